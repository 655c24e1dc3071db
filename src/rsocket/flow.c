/* SPDX-License-Identifier: MIT */
/* See flow.h. Whatever the other side says is checked against what it was allowed. */
#include "rsocket/flow.h"

#include <errno.h>

#define HOST_IS_BIG_ENDIAN (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

void rs_flow_init(struct rs_flow *f, uint64_t rbuf, uint32_t rkey, uint32_t half, uint32_t rq,
	volatile struct rs_sge *slots)
{
	*f = (struct rs_flow){
		.by_length = true,
		.rbuf = rbuf,
		.rkey = rkey,
		.half = half,
		.open = half,
		.spare = half,
		.next = half,
		.rq = rq,
		.tell_at = (uint16_t)(rq / 2),
		.slots = slots,
		.slot_at = 1, /* the first grant comes with the connection */
	};
}

void rs_flow_describe(const struct rs_flow *f, uint64_t slots, uint32_t key, uint8_t out[RS_CONN_LEN])
{
	struct rs_conn c = {
		.version = RS_VERSION,
		.flags = RS_FLAG_IOMAP | (HOST_IS_BIG_ENDIAN ? RS_FLAG_BIG_ENDIAN : 0),
		.credits = (uint16_t)f->rq,
		.iomap_size = f->own_iomaps,
		.sgl = {.addr = slots, .key = key, .length = RS_SLOTS},
		.data = {.addr = f->rbuf, .key = f->rkey, .length = f->half},
	};

	rs_conn_pack(&c, out);
}

int rs_flow_meet(struct rs_flow *f, const uint8_t in[RS_CONN_LEN])
{
	struct rs_conn c;

	rs_conn_parse(in, &c);
	if (c.version != RS_VERSION || !c.sgl.length)
		return -EPROTO;
	f->swap = HOST_IS_BIG_ENDIAN != !!(c.flags & RS_FLAG_BIG_ENDIAN);
	f->sgl = c.sgl;
	f->sgl_at = c.sgl.length > 1; /* the first grant went with the connection */
	f->target[0] = c.data;
	f->targets = c.data.length != 0;
	f->may_send = c.credits;
	f->iomap = (struct rs_sge){
		.addr = c.sgl.addr + (uint64_t)c.sgl.length * RS_SGE_LEN,
		.key = c.sgl.key,
		.length = c.iomap_size,
	};
	return 0;
}

/* ---- sending ---- */
bool rs_flow_has_credit(const struct rs_flow *f)
{
	return f->sent != f->may_send;
}

uint32_t rs_flow_room(const struct rs_flow *f)
{
	uint32_t room = f->targets ? f->target[f->target_at].length : 0;

	if (!rs_flow_has_credit(f))
		return 0;
	return room < RS_MOST_AT_ONCE ? room : RS_MOST_AT_ONCE;
}

void rs_flow_send(struct rs_flow *f, uint32_t len, struct rs_post *out)
{
	struct rs_sge *t = &f->target[f->target_at];

	*out = (struct rs_post){.msg = rs_msg(RS_OP_DATA, len), .addr = t->addr, .rkey = t->key};
	f->sent++;
	t->addr += len;
	t->length -= len;
	if (!t->length) {
		f->target_at = (f->target_at + 1) % RS_SLOTS;
		f->targets--;
	}
}

void rs_flow_send_iomap(struct rs_flow *f, uint32_t index, struct rs_post *out)
{
	f->sent++;
	*out = (struct rs_post){
		.msg = rs_msg(RS_OP_IOMAP, index),
		.addr = f->iomap.addr + (uint64_t)index * RS_IOMAP_LEN,
		.rkey = f->iomap.key,
	};
}

/* ---- receiving ---- */
static enum rs_verdict on_data(struct rs_flow *f, uint32_t len, uint32_t written)
{
	if (len > f->open || (f->by_length && len != written))
		return RS_BREACH;
	f->received++;
	f->open -= len;
	f->unread += len;
	return len ? RS_DATA : RS_NOTHING;
}

/* A grant is taken out of the slot when its message is here: by then it is wholly written. */
static enum rs_verdict take_grant(struct rs_flow *f)
{
	volatile struct rs_sge *slot = &f->slots[f->slot_at];
	struct rs_sge *t = &f->target[(f->target_at + f->targets) % RS_SLOTS];

	if (f->targets == RS_SLOTS)
		return RS_BREACH;
	*t = (struct rs_sge){.addr = slot->addr, .key = slot->key, .length = slot->length};
	slot->length = 0;
	f->slot_at = (f->slot_at + 1) % RS_SLOTS;
	f->targets += t->length != 0;
	return RS_CREDIT;
}

static enum rs_verdict on_sgl(struct rs_flow *f, uint32_t credits, uint32_t written)
{
	f->may_send = (uint16_t)credits;
	if (!f->by_length)
		written = f->slots[f->slot_at].length ? RS_SGE_LEN : 0;
	if (!written)
		return RS_CREDIT;
	return written == RS_SGE_LEN ? take_grant(f) : RS_BREACH;
}

static enum rs_verdict on_ctrl(uint32_t what)
{
	switch (what) {
	case RS_CTRL_DISCONNECT:
		return RS_DISCONNECT;
	case RS_CTRL_SHUTDOWN:
		return RS_SHUTDOWN;
	default: /* KEEPALIVE, and what newer ones may say */
		return RS_NOTHING;
	}
}

enum rs_verdict rs_flow_receive(struct rs_flow *f, uint32_t msg, uint32_t written)
{
	uint32_t data = rs_msg_data(msg);

	switch (rs_msg_op(msg)) {
	case RS_OP_DATA:
		return on_data(f, data, written);
	case RS_OP_SGL:
		return on_sgl(f, data, written);
	case RS_OP_IOMAP:
		f->received++; /* it took a credit */
		return data < f->own_iomaps ? RS_CREDIT : RS_BREACH;
	case RS_OP_CTRL:
		return on_ctrl(data);
	default:
		return RS_BREACH;
	}
}

uint32_t rs_flow_piece(const struct rs_flow *f, uint32_t skip, uint32_t *len)
{
	uint32_t size = 2 * f->half, at = (uint32_t)(((uint64_t)f->head + skip) % size);
	uint32_t left = f->unread - skip;

	*len = left < size - at ? left : size - at;
	return at;
}

void rs_flow_consume(struct rs_flow *f, uint32_t len)
{
	f->head = (uint32_t)(((uint64_t)f->head + len) % (2 * f->half));
	f->unread -= len;
	f->spare += len;
}

/* ---- telling the other side ---- */
bool rs_flow_must_tell(const struct rs_flow *f)
{
	return f->spare >= f->half || (int16_t)(f->received - f->tell_at) >= 0;
}

void rs_flow_tell(struct rs_flow *f, struct rs_post *out)
{
	*out = (struct rs_post){.msg = rs_msg(RS_OP_SGL, (uint16_t)(f->received + f->rq))};
	f->tell_at = (uint16_t)(f->received + f->rq / 2);
	if (f->spare < f->half)
		return;
	out->sge = (struct rs_sge){.addr = f->rbuf + f->next, .key = f->rkey, .length = f->half};
	if (f->swap)
		out->sge = rs_sge_swap(out->sge);
	out->len = RS_SGE_LEN;
	out->addr = f->sgl.addr + (uint64_t)f->sgl_at * RS_SGE_LEN;
	out->rkey = f->sgl.key;
	f->sgl_at = (f->sgl_at + 1) % f->sgl.length;
	f->next = f->next ? 0 : f->half;
	f->spare -= f->half;
	f->open += f->half;
}
