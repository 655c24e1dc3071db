/* SPDX-License-Identifier: MIT */
#include "iwarp_stage.h"

#include "hca/context.h"

#include <string.h>

struct iwarp_pair *stage_pair(void (*change)(struct iwarp_pair *p))
{
	struct iwarp_pair *p = iwarp_pair_new();

	if (change)
		change(p);
	iwarp_pair_qps(p);
	assert_true(iwarp_pair_connect(p));
	iwarp_pair_begin(p);
	return p;
}

/* ---- work ---- */
struct ibv_send_wr stage_request(struct iwarp_pair *p, unsigned side, enum ibv_wr_opcode op,
	struct ibv_sge *sge, uint32_t off, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = op, .sg_list = sge, .num_sge = 1};
	uint64_t remote = p->side[!side].iova + off;
	uint32_t rkey = p->side[!side].mr->ibv.rkey;

	*sge = (struct ibv_sge){p->side[side].iova + off, len, p->side[side].mr->ibv.lkey};
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	return wr;
}

void stage_post_wr(struct iwarp_pair *p, unsigned side, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(hca_qp_post_send(p->side[side].qp, wr, &bad), 0);
}

void stage_post(struct iwarp_pair *p, unsigned side, enum ibv_wr_opcode op, uint64_t id, uint32_t off,
	uint32_t len, unsigned flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = stage_request(p, side, op, &sge, off, len);

	wr.wr_id = id;
	wr.send_flags = flags;
	wr.imm_data = htobe32(0x1badcafe);
	stage_post_wr(p, side, &wr);
}

void stage_post_recv(struct iwarp_pair *p, unsigned side, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = {p->side[side].iova + off, len, p->side[side].mr->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hca_qp_post_recv(p->side[side].qp, &wr, &bad), 0);
}

struct ibv_wc stage_wc(struct iwarp_pair *p, unsigned side, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(hca_cq_take(p->side[side].cq, &wc, 1), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
	return wc;
}

void stage_check_same(struct iwarp_pair *p, uint32_t at0, uint32_t at1, uint32_t len)
{
	assert_memory_equal(p->side[0].mem + at0, p->side[1].mem + at1, len);
	assert_int_not_equal(p->side[0].mem[at0 + len], p->side[1].mem[at1 + len]);
}

void stage_no_wc(struct iwarp_pair *p, unsigned side)
{
	assert_true(hca_cq_empty(p->side[side].cq));
}

unsigned stage_events(struct iwarp_pair *p, unsigned side, enum ibv_event_type type)
{
	struct hca_context *ctx = p->side[side].node->ctx;
	unsigned count = 0;

	while (!list_empty(&ctx->async.events)) {
		struct ibv_async_event ev;

		assert_int_equal(hca_async_get(ctx, &ev), 0);
		count += ev.event_type == type;
		hca_async_ack(&ev);
	}
	return count;
}

void stage_to_error(struct iwarp_pair *p, unsigned side)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(hca_qp_modify(p->side[side].qp, &a, IBV_QP_STATE), 0);
}

/* ---- by hand ---- */
void stage_forge(struct iwarp_pair *p)
{
	iwarp_pair_run(p);
	p->side[0].closed = true;
}

void stage_say_bytes(struct iwarp_pair *p, const void *bytes, size_t len)
{
	struct pipe *o = &p->side[0].out;

	for (size_t i = 0; i < len; i++)
		o->bytes[o->head++ % PIPE_SIZE] = ((const uint8_t *)bytes)[i];
	while (iwarp_side_step(p, 1) && !p->side[1].closed)
		;
}

void stage_say(struct iwarp_pair *p, const struct ddp_seg *seg, const void *payload, uint32_t len)
{
	uint8_t b[MPA_ULPDU_MAX + 16] = {0};
	uint32_t ulpdu = ddp_put(b + MPA_HDR_LEN, seg) + len, all;

	/* What ddp_put() makes right by itself may be wrong here. */
	b[MPA_HDR_LEN] = (uint8_t)((b[MPA_HDR_LEN] & ~3) | ((DDP_VERSION + seg->dv) & 3));
	b[MPA_HDR_LEN + 1] = (uint8_t)((b[MPA_HDR_LEN + 1] & 0x3f) | ((RDMAP_VERSION + seg->rv) & 3) << 6);
	put_be16(b, (uint16_t)ulpdu);
	if (len)
		memcpy(b + MPA_HDR_LEN + ulpdu - len, payload, len);
	all = mpa_fpdu_len(ulpdu);
	if (p->side[1].connect.params.crc)
		mpa_crc_end(mpa_crc_add(MPA_CRC_INIT, b, all - MPA_CRC_LEN), b + all - MPA_CRC_LEN);
	stage_say_bytes(p, b, all);
}

bool stage_hear(struct iwarp_pair *p, struct ddp_seg *seg, uint8_t *payload, uint32_t *len)
{
	struct pipe *o = &p->side[1].out;
	uint8_t b[MPA_ULPDU_MAX + 16];
	uint32_t ulpdu, hdr;

	if (o->head - o->tail < MPA_HDR_LEN)
		return false;
	ulpdu = (uint32_t)o->bytes[o->tail % PIPE_SIZE] << 8 | o->bytes[(o->tail + 1) % PIPE_SIZE];
	assert_true(o->head - o->tail >= mpa_fpdu_len(ulpdu));
	for (uint32_t i = 0; i < mpa_fpdu_len(ulpdu); i++)
		b[i] = o->bytes[o->tail++ % PIPE_SIZE];
	*seg = ddp_get(b + MPA_HDR_LEN);
	hdr = MPA_HDR_LEN + ddp_hdr_len(b[MPA_HDR_LEN]);
	*len = MPA_HDR_LEN + ulpdu - hdr;
	memcpy(payload, b + hdr, *len);
	return true;
}

bool stage_hear_terminate(struct iwarp_pair *p, struct rdmap_term *t)
{
	static uint8_t payload[MPA_ULPDU_MAX];
	struct ddp_seg seg;
	uint32_t len;

	while (stage_hear(p, &seg, payload, &len)) {
		if (seg.opcode == RDMAP_TERMINATE) {
			assert_true(
				!seg.tagged && seg.last && seg.qn == QN_TERMINATE && seg.msn == 1 && !seg.mo);
			return rdmap_term_get(payload, len, t);
		}
	}
	return false;
}
