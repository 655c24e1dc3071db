/* SPDX-License-Identifier: MIT */
/*
 * The peer of a stream rsocket: any connection data, any messages, any bytes in the memory that it may write
 * (ring, grants, mappings), while the program sends, receives, maps and writes to mappings. The input is a
 * list of moves. Nothing is written but where the peer has ever granted it, and the accounts stay right.
 */
#include "input.h"
#include "rsocket/device_test.h"
#include "rsocket/stream.h"

#include <endian.h>
#include <string.h>
#include <sys/mman.h>

enum { HALF = 512, SBUF = 4096, INLINE = 64, MAPS = 4, GIVEN = 4096, MEMORY = 64 };

static struct rs_stream *s;
static struct rs_sge given[GIVEN]; /* by the peer, ever */
static unsigned ngiven;
static uint8_t program[8192]; /* its memory; MEMORY bytes each are mapped */

/* ---- what goes out ---- */
static bool is_within(uint64_t addr, uint64_t len, uint64_t start, uint64_t size)
{
	return addr - start <= size && len <= size - (addr - start);
}

static bool is_given(uint64_t addr, uint32_t key, uint64_t len)
{
	const struct rs_flow *f = &s->flow;

	for (unsigned i = 0; i < ngiven; i++)
		if (given[i].key == key && is_within(addr, len, given[i].addr, given[i].length))
			return true;
	/* The table of grants, and that of mappings behind it */
	return key == f->sgl.key &&
	       is_within(addr, len, f->sgl.addr,
		       (uint64_t)f->sgl.length * RS_SGE_LEN + (uint64_t)f->iomap.length * RS_IOMAP_LEN);
}

static void posted(const struct ibv_send_wr *wr)
{
	uint64_t len = 0;

	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *sge = &wr->sg_list[i];

		len += sge->length;
		if (!(wr->send_flags & IBV_SEND_INLINE))
			must(is_within(sge->addr, sge->length, (uintptr_t)s->sbuf, SBUF));
	}
	must(len <= (wr->send_flags & IBV_SEND_INLINE ? INLINE : RS_MOST_AT_ONCE));
	if (wr->opcode != IBV_WR_SEND && len)
		must(is_given(wr->wr.rdma.remote_addr, wr->wr.rdma.rkey, len));
}

/* ---- the peer's moves ---- */
static uint32_t shared_len(void)
{
	return (uint32_t)((uint8_t *)(s->iomaps + MAPS) - s->shared);
}

/* Whatever lies in the tables now may be used. */
static void note_given(void)
{
	for (unsigned i = 0; i < RS_SLOTS; i++)
		given[ngiven++] = s->flow.slots[i];
	for (unsigned i = 0; i < MAPS; i++)
		given[ngiven++] = s->iomaps[i].sge;
}

static void peer_writes(struct input *in)
{
	uint8_t how = draw_u8(in), bytes[RS_IOMAP_LEN];
	uint32_t at, len = sizeof(bytes);

	if (how % 4 == 0) { /* a grant, in the slot that is looked at next */
		at = (uint32_t)((uint8_t *)&s->flow.slots[s->flow.slot_at] - s->shared);
		len = RS_SGE_LEN;
	} else if (how % 4 == 1) {
		at = (uint32_t)((uint8_t *)&s->iomaps[how / 4 % MAPS] - s->shared);
	} else {
		at = draw_u16(in) % (shared_len() - len);
	}
	draw(in, bytes, len);
	memcpy(s->shared + at, bytes, len);
	note_given();
}

static uint32_t draw_message(struct input *in)
{
	uint8_t op = draw_u8(in);

	return (uint32_t)op << 24 | (op & 8 ? 0xf00000u : 0) | draw_u16(in);
}

static void peer_says(struct input *in)
{
	uint8_t how = draw_u8(in);
	uint32_t msg = draw_message(in), op = rs_msg_op(msg);
	struct ibv_wc wc = {.status = how == 255 ? IBV_WC_WR_FLUSH_ERR : IBV_WC_SUCCESS};

	if (s->by_send || how & 64) /* no immediate data */
		wc.byte_len = how & 16 ? how % 5 : RS_MSG_LEN;
	else if (op == RS_OP_DATA)
		wc.byte_len = how & 16 ? how : rs_msg_data(msg); /* the truth, if it is there to be told */
	else
		wc.byte_len = how & 16 ? how : how & 32 ? RS_SGE_LEN : 0;
	if (!s->by_send && !(how & 64)) {
		wc.wc_flags = IBV_WC_WITH_IMM;
		wc.imm_data = htobe32(msg);
	}
	device_complete_receive(&wc, &msg);
}

static void peer_acknowledges(struct input *in)
{
	uint8_t how = draw_u8(in);

	for (unsigned i = 0; i <= how % 32u; i++)
		device_complete_send(how == 255   ? IBV_WC_RETRY_EXC_ERR
				     : how == 254 ? IBV_WC_WR_FLUSH_ERR
						  : IBV_WC_SUCCESS);
}

/* ---- the program's ---- */
/* It gets what lies in the ring, in order, and as much as it asks for. */
static void receive(struct input *in)
{
	uint16_t how = draw_u16(in);
	uint32_t head = s->flow.head, unread = s->flow.unread, len = how % (2 * HALF);
	uint8_t to[2 * HALF];
	struct iovec iov[2] = {{to, len / 3}, {to + len / 3, len - len / 3}};
	ssize_t got =
		rs_stream_recv(&s->rs, iov, 2, MSG_DONTWAIT | (how & 0x8000 ? MSG_PEEK : 0), NULL, NULL);

	must(got <= (ssize_t)len && (!unread || got == (ssize_t)(unread < len ? unread : len)));
	for (ssize_t i = 0; i < got; i++)
		must(to[i] == s->shared[(head + i) % (2 * HALF)]);
	must(got <= 0 || s->flow.head == (head + (how & 0x8000 ? 0 : (size_t)got)) % (2 * HALF));
}

static void send_some(struct input *in)
{
	uint16_t how = draw_u16(in);
	struct iovec iov = {program, how % sizeof(program)};

	must(rs_stream_send(&s->rs, &iov, 1, MSG_DONTWAIT, NULL, 0) <= (ssize_t)iov.iov_len);
}

static void write_to_mapping(struct input *in)
{
	uint16_t len = draw_u16(in);
	uint64_t offset;

	draw(in, &offset, sizeof(offset));
	if (len & 1) /* where the peer has one */
		offset = s->iomaps[len / 2 % MAPS].offset + offset % 64;
	must(rs_stream_iowrite(&s->rs, program, len % sizeof(program), (off_t)offset, MSG_DONTWAIT) <=
		(ssize_t)sizeof(program));
}

static void map_or_unmap(struct input *in)
{
	uint8_t which = draw_u8(in);
	void *at = program + which / 2 % 32 * MEMORY;

	if (which & 1)
		rs_stream_iounmap(&s->rs, at, MEMORY);
	else
		rs_stream_iomap(&s->rs, at, MEMORY, PROT_WRITE, 0, -1);
}

static void look(struct input *in)
{
	s->rs.ops->poll(&s->rs, POLLIN | POLLOUT);
}

/* ---- the whole ---- */
static void check(void)
{
	const struct rs_flow *f = &s->flow;

	must((uint64_t)f->open + f->unread + f->spare ==
		2 * HALF); /* each byte of the ring is one of these */
	must(f->head < 2 * HALF && (f->next == 0 || f->next == HALF));
	must(f->targets <= RS_SLOTS && f->target_at < RS_SLOTS && f->slot_at < RS_SLOTS);
	must(f->sgl_at < f->sgl.length && rs_flow_room(f) <= RS_MOST_AT_ONCE);
	must(s->sbuf_used <= SBUF && s->sbuf_at < SBUF);
	must(s->sqe_free <= s->rs.sizes.sq && s->ctrl_free <= RS_CTRL_SLOTS);
	must(s->state == RS_CONNECTED || (!s->can_read && !s->can_write));
}

/* What is parsed can be said again, and is then the same. */
static void check_conn(const uint8_t in[RS_CONN_LEN])
{
	struct rs_conn a, b;
	uint8_t again[RS_CONN_LEN];

	rs_conn_parse(in, &a);
	rs_conn_pack(&a, again);
	rs_conn_parse(again, &b);
	must(!memcmp(&a, &b, sizeof(a)));
}

/* false: refused, as it must be. */
static bool open_stream(struct input *in)
{
	uint8_t how = draw_u8(in), conn[RS_CONN_LEN];

	device_reset(how & 1 ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB, posted);
	s = rs_stream_alloc(AF_INET);
	s->rs.sizes = (struct rsock_sizes){
		.sbuf = SBUF, .rbuf = 2 * HALF, .sq = 16, .rq = 16, .inline_bytes = INLINE, .iomap = MAPS};
	s->id = &device.id;
	must(!rs_ep_create(s));
	draw(in, conn, sizeof(conn));
	if (how & 2)
		conn[0] = RS_VERSION;
	check_conn(conn);
	ngiven = 0;
	if (rs_flow_meet(&s->flow, conn)) {
		must(conn[0] != RS_VERSION || !get_be32(conn + 20));
		return false;
	}
	must(conn[0] == RS_VERSION && s->flow.sgl.length);
	given[ngiven++] = s->flow.target[0];
	lock_take(&s->lock);
	rs_stream_set_state(s, RS_OPENING);
	rs_stream_set_state(s, RS_CONNECTED);
	lock_drop(&s->lock);
	return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const moves[])(struct input *) = {peer_writes, peer_says, peer_acknowledges, receive,
		send_some, write_to_mapping, map_or_unmap, look};
	struct input in = {data, data + size};

	if (open_stream(&in)) {
		check();
		while (in.at < in.end && ngiven < GIVEN - RS_SLOTS - MAPS) {
			moves[*in.at++ % 8](&in);
			check();
		}
	}
	rs_stream_free(s);
	return 0;
}
