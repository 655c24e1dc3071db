/* SPDX-License-Identifier: MIT */
/* Data that arrives as it was: every length class, every operation, as much at once as may be. */
#include "across.h"

#include <arpa/inet.h>
#include <string.h>

enum { AROUND = 5, PACKETS = 4, GAP = 64, UNTOUCHED = 0xEE, MANY = 64 };

/* The i-th length: a few bytes around 0 to 3 packets. False after the last. */
static bool length(const struct end *e, unsigned i, uint32_t *len)
{
	uint32_t mtu = vt_mtu_bytes(e->t->port.active_mtu), packets = i / (2 * AROUND + 1),
		 around = i % (2 * AROUND + 1);

	*len = packets * mtu + around < AROUND ? 0 : packets * mtu + around - AROUND;
	return packets < PACKETS;
}

/* Each length has a place of its own in the buffer, at an address of its own class mod 4; places do not
 * touch. */
static size_t place(const struct end *e, unsigned i)
{
	return i * (size_t)(PACKETS * vt_mtu_bytes(e->t->port.active_mtu) + GAP) + i % 4;
}

static bool is_send(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
}

static bool takes_receive(enum ibv_wr_opcode op)
{
	return is_send(op) || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static void post_receives(struct end *e, enum ibv_wr_opcode op)
{
	uint32_t len;

	for (unsigned i = 0; takes_receive(op) && length(e, i, &len); i++)
		/* siw's library takes no receive without an entry. */
		vt_recv(e->ep, i, place(e, i), is_send(op) ? len + (!len && vt_by_cm(e->t)) : 0);
}

static void expect_receive(struct end *e, enum ibv_wr_opcode op, unsigned i, uint32_t len)
{
	struct ibv_wc wc = vt_ok(e->ep, i);

	assert_int_equal(wc.byte_len, len);
	if (op != IBV_WR_SEND)
		assert_int_equal(ntohl(wc.imm_data), 1000 + i);
}

static void check_place(struct end *e, enum ibv_wr_opcode op, unsigned i, uint32_t len)
{
	const uint8_t *p = e->ep->buf + place(e, i);

	if (op == IBV_WR_RDMA_WRITE)
		vt_check_written(p, len, i);
	else
		vt_check(p, len, i);
	vt_check_all(p + len, GAP / 2, UNTOUCHED);
}

/* All lengths at once; the unreliable one by one, so that nobody is overrun. */
static void one_operation(struct end *e, enum ibv_wr_opcode op, bool one_by_one)
{
	bool has_data = op == IBV_WR_RDMA_READ ? !e->calls : e->calls;
	uint32_t len;

	memset(e->ep->buf, UNTOUCHED, e->ep->len);
	for (unsigned i = 0; has_data && length(e, i, &len); i++)
		vt_fill(e->ep->buf + place(e, i), len, i);
	if (!e->calls)
		post_receives(e, op);
	turn(e);
	for (unsigned i = 0; e->calls && length(e, i, &len); i++) {
		vt_post(e->ep, .op = op, .id = i, .off = place(e, i), .len = len,
			.raddr = e->peer.addr + place(e, i), .rkey = e->peer.rkey, .imm = 1000 + i);
		if (one_by_one)
			vt_ok(e->ep, i);
	}
	for (unsigned i = 0; e->calls && !one_by_one && length(e, i, &len); i++)
		vt_ok(e->ep, i);
	for (unsigned i = 0; !e->calls && takes_receive(op) && length(e, i, &len); i++)
		expect_receive(e, op, i, len);
	turn(e);
	for (unsigned i = 0; !has_data && length(e, i, &len); i++)
		check_place(e, op, i, len);
	turn(e);
}

static void operations(struct end *e, enum ibv_qp_type type, const enum ibv_wr_opcode *op, size_t n)
{
	uint32_t len;
	unsigned count = 0;

	while (length(e, count, &len))
		count++;
	meet(e,
		&(struct vt_opts){
			.type = type, .len = place(e, count) + GAP, .send_wr = count, .recv_wr = count},
		NULL);
	for (size_t i = 0; i < n; i++)
		one_operation(e, op[i], type == IBV_QPT_UC);
	part(e);
}

void data_of_every_length(struct end *e)
{
	static const enum ibv_wr_opcode op[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ};
	static const enum ibv_wr_opcode stream[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};

	if (vt_by_cm(e->t))
		operations(e, IBV_QPT_RC, stream, ARRAY_LEN(stream));
	else
		operations(e, IBV_QPT_RC, op, ARRAY_LEN(op));
}

/* A plain WRITE tells the target nothing; the WRITE with immediate data behind it shows that it arrived. */
void unreliable_data_of_every_length(struct end *e)
{
	static const enum ibv_wr_opcode op[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

	operations(e, IBV_QPT_UC, op, ARRAY_LEN(op));
}

static bool arrived(struct end *e, struct ibv_wc *wc)
{
	int n = ibv_poll_cq(e->ep->cq, 1, wc);

	assert_in_range(n, 0, 1);
	return n;
}

/* The stream between the ends may overtake the messages: a quarter of them is waited for, and of the rest
 * those count that are there. */
static bool next_of_many(struct end *e, unsigned came, struct ibv_wc *wc)
{
	if (came >= MANY / 4)
		return arrived(e, wc);
	*wc = vt_wait(e->ep);
	return true;
}

/* On a wire that loses packets: messages may be missing, but what comes is whole and nothing else. */
void unreliable_data_with_gaps(struct end *e)
{
	enum { EACH = 5003 };
	unsigned came = 0;
	struct ibv_wc wc;

	meet(e,
		&(struct vt_opts){
			.type = IBV_QPT_UC, .len = (size_t)MANY * EACH, .send_wr = MANY, .recv_wr = MANY},
		NULL);
	for (unsigned i = 0; i < MANY; i++) {
		if (e->calls)
			vt_fill(e->ep->buf + (size_t)i * EACH, EACH, i);
		else
			vt_recv(e->ep, i, (size_t)i * EACH, EACH);
	}
	turn(e);
	for (unsigned i = 0; e->calls && i < MANY; i++) {
		vt_post(e->ep, .op = IBV_WR_SEND_WITH_IMM, .id = i, .off = (size_t)i * EACH, .len = EACH,
			.imm = i);
		vt_ok(e->ep, i);
	}
	turn(e);
	for (; !e->calls && next_of_many(e, came, &wc); came++) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.byte_len, EACH);
		vt_check(e->ep->buf + wc.wr_id * EACH, EACH, ntohl(wc.imm_data));
	}
	if (!e->calls)
		print_message("  %u of %u came\n", came, MANY);
	part(e);
}

void reads_at_full_depth(struct end *e)
{
	enum { EACH = 20003, LEN = MANY * EACH };

	meet(e, &(struct vt_opts){.len = LEN, .send_wr = MANY}, NULL);
	if (!e->calls)
		vt_fill(e->ep->buf, LEN, 9);
	turn(e);
	for (unsigned i = 0; e->calls && i < MANY; i++)
		vt_post(e->ep, .op = IBV_WR_RDMA_READ, .id = i, .off = (size_t)i * EACH, .len = EACH,
			.raddr = e->peer.addr + (size_t)i * EACH, .rkey = e->peer.rkey);
	for (unsigned i = 0; e->calls && i < MANY; i++)
		vt_ok(e->ep, i);
	if (e->calls)
		vt_check(e->ep->buf, LEN, 9);
	part(e);
}

static uint64_t word(const struct end *e, unsigned i)
{
	uint64_t v;

	memcpy(&v, e->ep->buf + i * sizeof(v), sizeof(v));
	return v;
}

/* Additions and exchanges in turn, on one word: each returns what the one before left, so none was done
 * twice. */
void atomics_at_full_depth(struct end *e)
{
	meet(e, &(struct vt_opts){.send_wr = 2 * MANY}, NULL);
	turn(e);
	for (unsigned i = 0; e->calls && i < MANY; i++) {
		vt_post(e->ep, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 2 * i, .off = 16 * i, .len = 8,
			.raddr = e->peer.addr, .rkey = e->peer.rkey, .add = 5);
		vt_post(e->ep, .op = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 2 * i + 1, .off = 16 * i + 8, .len = 8,
			.raddr = e->peer.addr, .rkey = e->peer.rkey, .add = 3 * i + 5, .swap = 3 * i + 3);
	}
	for (unsigned i = 0; e->calls && i < 2 * MANY; i++)
		vt_ok(e->ep, i);
	for (unsigned i = 0; e->calls && i < MANY; i++) {
		assert_int_equal(word(e, 2 * i), 3 * i);
		assert_int_equal(word(e, 2 * i + 1), 3 * i + 5);
	}
	turn(e);
	if (!e->calls)
		assert_int_equal(word(e, 0), 3 * MANY);
	part(e);
}

/* Both ends call at once: WRITE, READ back what was written, and SEND. */
void everything_in_both_directions(struct end *e)
{
	enum { EACH = 30001, ROUNDS = 20, MINE = 0, HIS = 1, BACK = 2, IN = 3, PARTS = 4 };
	uint32_t seed = e->calls ? 1 : 2, his = 3 - seed;
	size_t room = (size_t)ROUNDS * EACH;

	meet(e, &(struct vt_opts){.len = PARTS * room, .send_wr = 3 * ROUNDS}, NULL);
	vt_fill(e->ep->buf + MINE * room, room, seed);
	for (unsigned i = 0; i < ROUNDS; i++)
		vt_recv(e->ep, 1000 + i, IN * room + (size_t)i * EACH, EACH);
	turn(e);
	for (unsigned i = 0; i < ROUNDS; i++) {
		size_t at = (size_t)i * EACH;

		vt_post(e->ep, .op = IBV_WR_RDMA_WRITE, .quiet = true, .off = at, .len = EACH,
			.raddr = e->peer.addr + HIS * room + at, .rkey = e->peer.rkey);
		vt_post(e->ep, .op = IBV_WR_RDMA_READ, .quiet = true, .off = BACK * room + at, .len = EACH,
			.raddr = e->peer.addr + HIS * room + at, .rkey = e->peer.rkey);
		vt_post(e->ep, .op = IBV_WR_SEND, .id = i, .off = at, .len = EACH);
	}
	for (unsigned i = 0; i < 2 * ROUNDS; i++)
		assert_int_equal(vt_wait(e->ep).status, IBV_WC_SUCCESS);
	turn(e);
	vt_check(e->ep->buf + BACK * room, room, seed);
	vt_check(e->ep->buf + HIS * room, room, his);
	vt_check(e->ep->buf + IN * room, room, his);
	part(e);
}
