/* SPDX-License-Identifier: MIT */
/*
 * What a peer may say that it must not: each is answered by the TERMINATE the RFCs have for it, which quotes
 * what it is about, and changes nothing in memory.
 */
#include "iwarp_stage.h"

#include <stdlib.h>
#include <string.h>

static void with_crc(struct iwarp_pair *p)
{
	p->side[0].mpa.crc = true;
}

static void strangers(struct iwarp_pair *p)
{
	p->side[0].mpa.extended = false;
}

static void deaf(struct iwarp_pair *p)
{
	p->side[0].mpa.ord = 2;
	p->side[1].mpa.ird = 2;
}

/* Nothing in the memory of side 1 has changed. */
static void check_untouched(struct iwarp_pair *p)
{
	for (unsigned k = 0; k < IW_MEM; k++)
		assert_int_equal(p->side[1].mem[k], (uint8_t)(k * 7 + (k >> 8) * 3 + 1));
}

static void check_ended(struct iwarp_pair *p, const struct ddp_seg *seg, enum rdmap_error error)
{
	struct rdmap_term t;
	uint8_t hdr[DDP_HDR_MAX];

	assert_true(stage_hear_terminate(p, &t));
	assert_int_equal(rdmap_term_error(&t), error);
	assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
	assert_int_equal(t.has_ddp, rdmap_errors[error].layer != 2);
	if (!t.has_ddp)
		return;
	ddp_put(hdr, seg);
	assert_memory_equal(hdr + 2, t.ddp + 2, ddp_hdr_len(hdr[0]) - 2);
	assert_int_equal(t.ddp[0] & 0xc0, hdr[0] & 0xc0);
}

/* One segment to a fresh connection. */
static void refused(void (*change)(struct iwarp_pair *), struct ddp_seg seg, const void *payload,
	uint32_t len, enum rdmap_error error)
{
	struct iwarp_pair *p = stage_pair(change);

	stage_forge(p);
	if (seg.tagged && seg.stag == 1) { /* stands for side 1's own */
		seg.stag = p->side[1].mr->ibv.rkey;
		seg.to += p->side[1].iova;
	}
	stage_post_recv(p, 1, 7, 0, 64);
	stage_say(p, &seg, payload, len);
	check_ended(p, &seg, error);
	check_untouched(p);
	iwarp_pair_free(p);
}

/* Segments that are right in all but what the test makes wrong: assignments to `s`. */
#define SEGMENT(init, ...)                                                                                   \
	({                                                                                                   \
		struct ddp_seg s = init;                                                                     \
		__VA_ARGS__;                                                                                 \
		s;                                                                                           \
	})
#define SEND(...)     SEGMENT(a_send, __VA_ARGS__)
#define TAGGED(...)   SEGMENT(a_write, __VA_ARGS__)
#define ASK(...)      SEGMENT(a_read, __VA_ARGS__)
#define RESPONSE(...) SEGMENT(a_response, __VA_ARGS__)

static const struct ddp_seg a_send = {.last = true, .opcode = RDMAP_SEND, .msn = 1},
			    a_write = {.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 1},
			    a_read = {.last = true, .opcode = RDMAP_READ_REQUEST, .qn = QN_REQUEST, .msn = 1},
			    a_response = {
				    .tagged = true, .last = true, .opcode = RDMAP_READ_RESPONSE, .stag = 1};

static uint8_t junk[2000];

static void wrong_versions_are_refused(void **state)
{
	for (uint8_t d = 1; d < 4; d++) {
		refused(NULL, SEND(s.dv = d), junk, 8, ERR_DDP_UNTAGGED_DV);
		refused(NULL, TAGGED(s.dv = d), junk, 8, ERR_DDP_TAGGED_DV);
		refused(NULL, SEND(s.rv = d), junk, 8, ERR_RDMAP_RV);
		refused(NULL, TAGGED(s.rv = d), junk, 8, ERR_RDMAP_RV);
	}
}

static void unknown_opcodes_and_wrong_models_are_refused(void **state)
{
	for (uint8_t op = 0; op < RDMAP_OPCODES; op++) {
		bool tagged = rdmap_ops[op].name && (rdmap_ops[op].flags & ROF_TAGGED);

		if (op > 0xf && !rdmap_ops[op].name)
			continue; /* that bit is no part of it */
		if (!rdmap_ops[op].name || tagged)
			refused(NULL, SEND(s.opcode = op), junk, 8, ERR_RDMAP_OPCODE);
		if (!tagged)
			refused(NULL, TAGGED(s.opcode = op), junk, 8, ERR_RDMAP_OPCODE);
		if (op >= 8 && rdmap_ops[op].name)
			refused(strangers, SEND(s.opcode = op, s.qn = rdmap_ops[op].qn), junk,
				rdmap_ops[op].len, ERR_RDMAP_OPCODE);
	}
}

static void unknown_queues_and_holes_in_numbers_are_refused(void **state)
{
	static const uint32_t queues[] = {
		QN_REQUEST, QN_TERMINATE, QN_ATOMIC_RESPONSE, 4, 0x80000000, UINT32_MAX};
	static const uint32_t msns[] = {0, 2, 3, 0x80000000, UINT32_MAX};

	for (unsigned i = 0; i < 6; i++)
		refused(NULL, SEND(s.qn = queues[i]), junk, 8, ERR_DDP_QN);
	refused(NULL, ASK(s.qn = QN_SEND), junk, RDMAP_READ_LEN, ERR_DDP_QN);
	for (unsigned i = 0; i < 5; i++) {
		refused(NULL, SEND(s.msn = msns[i]), junk, 8, ERR_DDP_MSN);
		refused(NULL, ASK(s.msn = msns[i]), junk, RDMAP_READ_LEN, ERR_DDP_MSN);
	}
	refused(NULL, SEND(s.mo = 1), junk, 8, ERR_DDP_MO);
	refused(NULL, SEND(s.mo = UINT32_MAX), junk, 8, ERR_DDP_MO);
	refused(NULL, ASK(s.mo = 4), junk, RDMAP_READ_LEN, ERR_DDP_MO);
}

static void requests_of_another_length_are_refused(void **state)
{
	for (uint32_t len = 0; len < 60; len++) {
		if (len < RDMAP_READ_LEN)
			refused(NULL, ASK(s.msn = 1), junk, len, ERR_RDMAP_UNSPECIFIC);
		if (len > RDMAP_READ_LEN)
			refused(NULL, ASK(s.msn = 1), junk, len, ERR_DDP_TOO_LONG);
		if (len < RDMAP_ATOMIC_LEN)
			refused(NULL, ASK(s.opcode = RDMAP_ATOMIC_REQUEST), junk, len, ERR_RDMAP_UNSPECIFIC);
		if (len != RDMAP_IMMEDIATE_LEN)
			refused(NULL, SEND(s.opcode = RDMAP_IMMEDIATE), junk, len,
				len < RDMAP_IMMEDIATE_LEN ? ERR_RDMAP_UNSPECIFIC : ERR_DDP_TOO_LONG);
	}
	refused(NULL, ASK(s.last = false), junk, RDMAP_READ_LEN, ERR_RDMAP_UNSPECIFIC);
	refused(NULL, SEND(s.last = false), NULL, 0, ERR_RDMAP_UNSPECIFIC);
	refused(NULL, TAGGED(s.last = false), NULL, 0, ERR_RDMAP_UNSPECIFIC);
}

static void tagged_segments_stay_in_their_region(void **state)
{
	refused(NULL, TAGGED(s.stag = 0x12345678), junk, 8, ERR_DDP_STAG);
	refused(NULL, TAGGED(s.stag = 0), junk, 8, ERR_DDP_STAG);
	refused(NULL, TAGGED(s.to = IW_MEM - 7), junk, 8, ERR_DDP_BOUNDS);
	refused(NULL, TAGGED(s.to = -1ull), junk, 8, ERR_DDP_BOUNDS);
	refused(NULL, TAGGED(s.to = IW_MEM), junk, 8, ERR_DDP_BOUNDS);
}

static void offset_and_length_never_wrap(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ddp_seg seg = TAGGED(s.stag = p->side[1].mr->ibv.rkey, s.to = UINT64_MAX - 3);

	stage_forge(p);
	stage_say(p, &seg, junk, 8);
	check_ended(p, &seg, ERR_DDP_WRAP);
	check_untouched(p);
	iwarp_pair_free(p);
}

static void region_of_another_domain_is_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct hca_pd *pd = hca_pd_alloc(p->side[1].node->ctx);
	struct hca_mr *mr = hca_mr_reg(pd, p->side[1].mem, 64, p->side[1].iova, SIM_ALL_ACCESS);
	struct ddp_seg seg = TAGGED(s.stag = mr->ibv.rkey, s.to = p->side[1].iova);

	stage_forge(p);
	stage_say(p, &seg, junk, 8);
	check_ended(p, &seg, ERR_DDP_STREAM);
	check_untouched(p);
	hca_mr_dereg(mr);
	hca_pd_dealloc(pd);
	iwarp_pair_free(p);
}

static void region_without_the_right_is_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct hca_mr *mr = hca_mr_reg(p->side[1].node->pd, p->side[1].mem, 64, p->side[1].iova,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ddp_seg seg = TAGGED(s.stag = mr->ibv.rkey, s.to = p->side[1].iova);

	stage_forge(p);
	stage_say(p, &seg, junk, 8);
	check_ended(p, &seg, ERR_RDMAP_ACCESS);
	check_untouched(p);
	hca_mr_dereg(mr);
	iwarp_pair_free(p);
}

/* A READ's source: the codes of RDMAP, and the request itself is quoted. */
static void reads_of_what_is_not_theirs_are_refused(void **state)
{
	static const struct {
		uint32_t key;
		uint64_t off;
		uint32_t size;
		enum rdmap_error error;
	} rows[] = {
		{1, 0, 8, ERR_RDMAP_STAG},
		{0, IW_MEM - 7, 8, ERR_RDMAP_BOUNDS},
		{0, 0, IW_MEM + 1, ERR_RDMAP_BOUNDS},
		{0, 0, UINT32_MAX, ERR_RDMAP_BOUNDS},
		{0, -1ull, 8, ERR_RDMAP_BOUNDS},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct iwarp_pair *p = stage_pair(NULL);
		struct rdmap_read r = {.sink_stag = 5,
			.size = rows[i].size,
			.source_stag = p->side[1].mr->ibv.rkey ^ rows[i].key,
			.source_to = p->side[1].iova + rows[i].off};
		struct ddp_seg seg = ASK(s.msn = 1);
		struct rdmap_term t;
		uint8_t b[RDMAP_READ_LEN];

		rdmap_read_put(b, &r);
		stage_forge(p);
		stage_say(p, &seg, b, sizeof(b));
		assert_true(stage_hear_terminate(p, &t));
		assert_int_equal(rdmap_term_error(&t), rows[i].error);
		assert_true(t.has_len && t.has_ddp && t.has_rdmap);
		assert_int_equal(t.len, DDP_UNTAGGED_LEN + RDMAP_READ_LEN);
		assert_memory_equal(t.rdmap, b, sizeof(b));
		iwarp_pair_free(p);
	}
}

static void read_whose_sink_would_wrap_is_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct rdmap_read r = {.sink_to = UINT64_MAX - 3,
		.size = 8,
		.source_stag = p->side[1].mr->ibv.rkey,
		.source_to = p->side[1].iova};
	struct ddp_seg seg = ASK(s.msn = 1);
	uint8_t b[RDMAP_READ_LEN];

	rdmap_read_put(b, &r);
	stage_forge(p);
	stage_say(p, &seg, b, sizeof(b));
	check_ended(p, &seg, ERR_RDMAP_WRAP);
	iwarp_pair_free(p);
}

static void more_reads_than_agreed_are_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(deaf);
	struct rdmap_read r = {
		.size = 1000000, .source_stag = p->side[1].mr->ibv.rkey, .source_to = p->side[1].iova};
	uint8_t b[RDMAP_READ_LEN];

	rdmap_read_put(b, &r);
	stage_forge(p);
	for (uint32_t i = 1; i <= 3; i++) { /* the pipe is full before the first is answered */
		struct ddp_seg seg = ASK(s.msn = i);

		stage_say(p, &seg, b, sizeof(b));
		assert_int_equal(hca_qp_state(p->side[1].qp), i < 3 ? IBV_QPS_RTS : IBV_QPS_ERR);
	}
	iwarp_pair_free(p);
}

/* ---- responses ---- */
static void response(struct ddp_seg seg, uint32_t len, enum rdmap_error error)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_forge(p);
	stage_post(p, 1, IBV_WR_RDMA_READ, 1, 0, 1000, 0);
	stage_say_bytes(p, NULL, 0);
	stage_say(p, &seg, junk, len);
	if (error) {
		stage_wc(p, 1, 1, IBV_WC_BAD_RESP_ERR);
		check_ended(p, &seg, error);
	} else {
		assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_RTS);
	}
	iwarp_pair_free(p);
}

static void responses_that_were_not_asked_for_are_refused(void **state)
{
	response(RESPONSE(s.stag = 1), 1000, ERR_NONE);
	response(RESPONSE(s.last = false), 500, ERR_NONE);
	response(RESPONSE(s.stag = 1), 1001, ERR_DDP_BOUNDS);     /* larger than asked */
	response(RESPONSE(s.last = false), 1000, ERR_DDP_BOUNDS); /* and not the end */
	response(RESPONSE(s.stag = 1), 999, ERR_DDP_BOUNDS);      /* smaller */
	response(RESPONSE(s.stag = 2), 1000, ERR_DDP_STAG);       /* for another */
	response(RESPONSE(s.to = 1), 1000, ERR_DDP_BOUNDS);       /* elsewhere */
	response(RESPONSE(s.to = UINT64_MAX), 1000, ERR_DDP_BOUNDS);
	response(SEND(s.opcode = RDMAP_ATOMIC_RESPONSE, s.qn = QN_ATOMIC_RESPONSE), RDMAP_ATOMIC_RESPONSE_LEN,
		ERR_RDMAP_OPCODE);
	/* nobody asked at all */
	refused(NULL, RESPONSE(s.stag = 3), junk, 8, ERR_DDP_STAG);
	refused(NULL, SEND(s.opcode = RDMAP_ATOMIC_RESPONSE, s.qn = QN_ATOMIC_RESPONSE), junk,
		RDMAP_ATOMIC_RESPONSE_LEN, ERR_RDMAP_OPCODE);
}

static void atomic_response_to_another_request_is_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ddp_seg seg = SEND(s.opcode = RDMAP_ATOMIC_RESPONSE, s.qn = QN_ATOMIC_RESPONSE);
	uint8_t b[RDMAP_ATOMIC_RESPONSE_LEN] = {0, 0, 0, 2};

	stage_forge(p);
	stage_post(p, 1, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, 0);
	stage_say_bytes(p, NULL, 0);
	stage_say(p, &seg, b, sizeof(b));
	stage_wc(p, 1, 1, IBV_WC_BAD_RESP_ERR);
	check_untouched(p);
	iwarp_pair_free(p);
}

/* ---- messages ---- */
static void message_may_not_change_its_kind(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ddp_seg first = SEND(s.last = false), next = SEND(s.opcode = RDMAP_SEND_SE, s.mo = 8);

	stage_forge(p);
	stage_post_recv(p, 1, 7, 0, 64);
	stage_say(p, &first, junk, 8);
	stage_say(p, &next, junk, 8);
	check_ended(p, &next, ERR_RDMAP_OPCODE);
	stage_wc(p, 1, 7, IBV_WC_REM_INV_REQ_ERR);
	iwarp_pair_free(p);
}

static void message_longer_than_the_receive_writes_none_beyond(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ddp_seg first = SEND(s.last = false), next = SEND(s.mo = 60);

	stage_forge(p);
	stage_post_recv(p, 1, 7, 0, 64);
	stage_say(p, &first, junk, 60);
	stage_say(p, &next, junk, 5);
	check_ended(p, &next, ERR_DDP_TOO_LONG);
	stage_wc(p, 1, 7, IBV_WC_LOC_LEN_ERR);
	assert_int_not_equal(p->side[1].mem[64], junk[0]);
	iwarp_pair_free(p);
}

static void immediate_data_inside_a_write_is_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ddp_seg part = TAGGED(
			       s.last = false, s.stag = p->side[1].mr->ibv.rkey, s.to = p->side[1].iova),
		       imm = SEND(s.opcode = RDMAP_IMMEDIATE);

	stage_forge(p);
	stage_post_recv(p, 1, 7, 4096, 64);
	stage_say(p, &part, junk, 8);
	stage_say(p, &imm, junk, RDMAP_IMMEDIATE_LEN);
	check_ended(p, &imm, ERR_RDMAP_UNSPECIFIC);
	iwarp_pair_free(p);
}

static void keys_that_cannot_be_invalidated(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct iwarp_pair *p = stage_pair(NULL);
		struct ddp_seg seg = SEND(s.opcode = RDMAP_SEND_INV);

		seg.stag = i ? 0x12345678 : p->side[1].mr->ibv.rkey; /* nobody's; a region's */
		stage_forge(p);
		stage_post_recv(p, 1, 7, 0, 64);
		stage_say(p, &seg, junk, 8);
		check_ended(p, &seg, ERR_RDMAP_CANNOT_INV);
		stage_wc(p, 1, 7, IBV_WC_LOC_ACCESS_ERR);
		iwarp_pair_free(p);
	}
}

static void atomic_of_no_known_kind_is_refused(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct rdmap_atomic a = {.op = 7, .stag = p->side[1].mr->ibv.rkey, .to = p->side[1].iova, .data = 1};
	struct ddp_seg seg = ASK(s.opcode = RDMAP_ATOMIC_REQUEST);
	uint8_t b[RDMAP_ATOMIC_LEN];

	rdmap_atomic_put(b, &a);
	stage_forge(p);
	stage_say(p, &seg, b, sizeof(b));
	check_ended(p, &seg, ERR_RDMAP_OPCODE);
	check_untouched(p);
	iwarp_pair_free(p);
}

/* ---- the stream itself ---- */
static void damaged_segment_is_not_placed(void **state)
{
	struct iwarp_pair *p = stage_pair(with_crc);
	struct ddp_seg seg = TAGGED(s.stag = p->side[1].mr->ibv.rkey, s.to = p->side[1].iova);
	uint8_t b[64] = {0};

	stage_forge(p);
	put_be16(b, DDP_TAGGED_LEN + 8);
	ddp_put(b + MPA_HDR_LEN, &seg);
	stage_say_bytes(p, b, mpa_fpdu_len(DDP_TAGGED_LEN + 8));
	check_ended(p, NULL, ERR_LLP_CRC);
	check_untouched(p);
	iwarp_pair_free(p);
}

static void length_shorter_than_the_header_ends_the_stream(void **state)
{
	for (unsigned len = 1; len < DDP_UNTAGGED_LEN; len++) {
		struct iwarp_pair *p = stage_pair(NULL);
		uint8_t b[32] = {0, (uint8_t)len, DDP_VERSION};

		stage_forge(p);
		stage_say_bytes(p, b, sizeof(b));
		check_ended(p, NULL, ERR_LLP_MARKER);
		iwarp_pair_free(p);
	}
}

static void fpdu_of_no_bytes_is_only_an_rtr(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	uint8_t b[8] = {0};

	stage_forge(p);
	stage_say_bytes(p, b, sizeof(b));
	check_ended(p, NULL, ERR_LLP_MARKER);
	iwarp_pair_free(p);
}

/* The bits at the other end of their byte, and the size in place of the message number. */
static void terminate_of_siw_finds_its_read(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ddp_seg seg = SEND(s.opcode = RDMAP_TERMINATE, s.qn = QN_TERMINATE), asked;
	struct rdmap_term t = {.layer = 1, .has_len = true, .has_ddp = true, .has_rdmap = true};
	uint8_t b[RDMAP_TERM_MAX], request[MPA_ULPDU_MAX];
	uint32_t len;

	stage_forge(p);
	stage_post(p, 1, IBV_WR_RDMA_READ, 1, 0, 1000, 0);
	stage_post(p, 1, IBV_WR_RDMA_READ, 2, 0, 1000, 0);
	stage_say_bytes(p, NULL, 0);
	assert_true(stage_hear(p, &asked, request, &len) && stage_hear(p, &asked, request, &len));
	assert_true(asked.opcode == RDMAP_READ_REQUEST && len == RDMAP_READ_LEN);
	asked.msn = 1000;
	ddp_put(t.ddp, &asked);
	memcpy(t.rdmap, request, RDMAP_READ_LEN);
	len = rdmap_term_put(b, &t);
	b[2] = 0x07;
	stage_say(p, &seg, b, len);
	stage_wc(p, 1, 1, IBV_WC_WR_FLUSH_ERR);
	stage_wc(p, 1, 2, IBV_WC_REM_OP_ERR);
	iwarp_pair_free(p);
}

/* What a TERMINATE quotes: anything. */
static struct rdmap_term quoting(struct ddp_seg seg, bool read, uint32_t sink)
{
	struct rdmap_term t = {.has_len = true, .has_ddp = true, .has_rdmap = read};

	ddp_put(t.ddp, &seg);
	rdmap_read_put(t.rdmap, &(struct rdmap_read){.sink_stag = sink, .size = 1000});
	return t;
}

static void say_terminate(struct iwarp_pair *p, const struct rdmap_term *t)
{
	struct ddp_seg seg = SEND(s.opcode = RDMAP_TERMINATE, s.qn = QN_TERMINATE);
	uint8_t b[RDMAP_TERM_MAX];

	stage_say(p, &seg, b, rdmap_term_put(b, t));
}

/* Four requests, of which a SEND and a WRITE have left, and a TERMINATE. `blamed`, or none, fails; 0: those
 * that wait are flushed. */
static void blame(struct iwarp_pair *p, struct rdmap_term t, enum rdmap_error error, uint64_t blamed)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	unsigned failed = 0;

	t.layer = rdmap_errors[error].layer;
	t.type = rdmap_errors[error].type;
	t.code = rdmap_errors[error].code;
	stage_forge(p);
	for (unsigned i = 0; i < 4; i++)
		stage_post(p, 1, ops[i], i + 1, i * 4096, 1000, 0);
	stage_say_bytes(p, NULL, 0);
	say_terminate(p, &t);
	for (uint64_t id = 1; id <= 4; id++) {
		bool asks = ops[id - 1] == IBV_WR_RDMA_READ;
		struct ibv_wc wc;

		assert_int_equal(hca_cq_take(p->side[1].cq, &wc, 1), 1);
		assert_int_equal(wc.wr_id, id);
		assert_false(asks && wc.status == IBV_WC_SUCCESS);
		if (wc.status != IBV_WC_WR_FLUSH_ERR && wc.status != IBV_WC_SUCCESS) {
			assert_int_equal(id, blamed);
			failed++;
		}
	}
	stage_no_wc(p, 1);
	assert_int_equal(failed, !!blamed);
	assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
	iwarp_pair_free(p);
}

/* Every error there is ends the request it is about, and none as a success. */
static void every_terminate_fails_its_request(void **state)
{
	for (unsigned e = 0; e < RDMAP_ERROR_COUNT; e++) {
		blame(stage_pair(NULL), quoting(ASK(s.msn = 2), true, 2), (enum rdmap_error)e, 4);
		blame(stage_pair(NULL), quoting(SEND(s.msn = 1), false, 0), (enum rdmap_error)e, 2);
	}
}

/* Numbers and keys that no request has blame none. */
static void terminate_about_nothing_blames_nobody(void **state)
{
	static const uint32_t numbers[] = {0, 3, 4, 64, 65, 0x80000000, UINT32_MAX};
	struct iwarp_pair *p;

	for (unsigned i = 0; i < 7; i++) {
		blame(stage_pair(NULL), quoting(ASK(s.msn = numbers[i]), false, 0), ERR_RDMAP_STAG, 0);
		blame(stage_pair(NULL), quoting(ASK(s.msn = 1), true, numbers[i]), ERR_RDMAP_STAG, 0);
		blame(stage_pair(NULL), quoting(SEND(s.msn = numbers[i]), true, 1), ERR_DDP_NO_BUFFER, 0);
		blame(stage_pair(NULL), quoting(SEND(s.qn = numbers[i] | 2), true, 1), ERR_DDP_QN, 0);
	}
	for (uint32_t key = 0; key < 2; key++) { /* a key nobody used; the right one, and another place */
		p = stage_pair(NULL);
		blame(p, quoting(TAGGED(s.stag = p->side[0].mr->ibv.rkey ^ !key), true, 1), ERR_DDP_STAG, 0);
	}
	p = stage_pair(NULL);
	blame(p,
		quoting(TAGGED(s.stag = p->side[0].mr->ibv.rkey, s.to = p->side[0].iova + 2 * 4096), true, 1),
		ERR_DDP_BOUNDS, 3);
}

/* The place in the queue has another request meanwhile, which is still without a number. */
static void terminate_about_a_message_of_long_ago_blames_nobody(void **state)
{
	struct iwarp_pair *p = stage_pair(with_crc);
	struct rdmap_term t = quoting(SEND(s.msn = 1), false, 0);
	uint32_t places = p->side[1].qp->sq.mask + 1;

	t.layer = rdmap_errors[ERR_DDP_NO_BUFFER].layer;
	t.type = rdmap_errors[ERR_DDP_NO_BUFFER].type;
	t.code = rdmap_errors[ERR_DDP_NO_BUFFER].code;
	stage_forge(p);
	for (uint32_t i = 0; i < places; i++) {
		stage_post(p, 1, IBV_WR_SEND, i, 0, 8, 0);
		stage_say_bytes(p, NULL, 0);
		stage_wc(p, 1, i, IBV_WC_SUCCESS);
	}
	stage_post(p, 1, IBV_WR_RDMA_WRITE_WITH_IMM, 1000, 0, 500000, 0); /* not all in hand */
	stage_say_bytes(p, NULL, 0);
	say_terminate(p, &t);
	stage_wc(p, 1, 1000, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(stage_events(p, 1, IBV_EVENT_QP_FATAL), 1);
	iwarp_pair_free(p);
}

/* Any TERMINATE ends it, whatever it says; it is not answered by another one. */
static void terminate_of_any_content_ends_the_connection(void **state)
{
	for (uint32_t len = 0; len <= RDMAP_TERM_MAX; len++) {
		struct iwarp_pair *p = stage_pair(NULL);
		struct ddp_seg seg = SEND(s.opcode = RDMAP_TERMINATE, s.qn = QN_TERMINATE);
		uint8_t b[RDMAP_TERM_MAX];
		struct rdmap_term t;

		memset(b, 0xff, sizeof(b));
		stage_forge(p);
		stage_post(p, 1, IBV_WR_RDMA_READ, 1, 0, 1000, 0);
		stage_say_bytes(p, NULL, 0);
		stage_say(p, &seg, b, len);
		assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
		assert_false(stage_hear_terminate(p, &t));
		iwarp_pair_free(p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_versions_are_refused),
		cmocka_unit_test(unknown_opcodes_and_wrong_models_are_refused),
		cmocka_unit_test(unknown_queues_and_holes_in_numbers_are_refused),
		cmocka_unit_test(requests_of_another_length_are_refused),
		cmocka_unit_test(tagged_segments_stay_in_their_region),
		cmocka_unit_test(offset_and_length_never_wrap),
		cmocka_unit_test(region_of_another_domain_is_refused),
		cmocka_unit_test(region_without_the_right_is_refused),
		cmocka_unit_test(reads_of_what_is_not_theirs_are_refused),
		cmocka_unit_test(read_whose_sink_would_wrap_is_refused),
		cmocka_unit_test(more_reads_than_agreed_are_refused),
		cmocka_unit_test(responses_that_were_not_asked_for_are_refused),
		cmocka_unit_test(atomic_response_to_another_request_is_refused),
		cmocka_unit_test(message_may_not_change_its_kind),
		cmocka_unit_test(message_longer_than_the_receive_writes_none_beyond),
		cmocka_unit_test(immediate_data_inside_a_write_is_refused),
		cmocka_unit_test(keys_that_cannot_be_invalidated),
		cmocka_unit_test(atomic_of_no_known_kind_is_refused),
		cmocka_unit_test(damaged_segment_is_not_placed),
		cmocka_unit_test(length_shorter_than_the_header_ends_the_stream),
		cmocka_unit_test(fpdu_of_no_bytes_is_only_an_rtr),
		cmocka_unit_test(terminate_of_siw_finds_its_read),
		cmocka_unit_test(every_terminate_fails_its_request),
		cmocka_unit_test(terminate_about_nothing_blames_nobody),
		cmocka_unit_test(terminate_about_a_message_of_long_ago_blames_nobody),
		cmocka_unit_test(terminate_of_any_content_ends_the_connection),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
