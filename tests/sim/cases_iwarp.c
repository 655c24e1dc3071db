/* SPDX-License-Identifier: MIT */
/* iWARP between two ends of ours: what each operation must lead to, and what is copied on the way. */
#include "iwarp_stage.h"

#include <errno.h>
#include <string.h>

enum { MANY = 60000 };

static void with_crc(struct iwarp_pair *p)
{
	p->side[0].mpa.crc = true;
}

static void small_segments(struct iwarp_pair *p)
{
	p->side[0].mulpdu = p->side[1].mulpdu = 128;
}

static void strangers(struct iwarp_pair *p)
{
	p->side[1].mpa.extended = false;
}

/* ---- operations ---- */
static unsigned mode;

static void by_mode(struct iwarp_pair *p)
{
	static const uint32_t mulpdu[] = {128, 1400, MPA_ULPDU_MAX};

	p->side[1].mpa.crc = mode & 1;
	p->side[0].mpa.markers = mode & 2;
	p->side[1].mpa.markers = mode & 4;
	p->side[0].mulpdu = p->side[1].mulpdu = mulpdu[mode / 8];
}

static const uint32_t lengths[] = {0, 1, 2, 3, 4, 109, 110, 111, 112, 113, 220, 1381, 1382, 1383, 4096, MANY};

static void every_length_by(enum ibv_wr_opcode op)
{
	for (mode = 0; mode < 24; mode++) {
		struct iwarp_pair *p = stage_pair(by_mode);

		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			uint32_t len = lengths[i], at = i * 65536;
			bool recv = op != IBV_WR_RDMA_WRITE && op != IBV_WR_RDMA_READ;

			if (recv)
				stage_post_recv(p, 1, 100 + i, at, len);
			stage_post(p, 0, op, i, at, len, IBV_SEND_SOLICITED);
			iwarp_pair_run(p);
			stage_wc(p, 0, i, IBV_WC_SUCCESS);
			if (recv) {
				struct ibv_wc wc = stage_wc(p, 1, 100 + i, IBV_WC_SUCCESS);
				bool imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;

				assert_int_equal(wc.byte_len, len);
				assert_int_equal(wc.wc_flags, imm ? IBV_WC_WITH_IMM : 0);
				if (imm)
					assert_int_equal(wc.imm_data, htobe32(0x1badcafe));
				assert_int_equal(wc.opcode, op == IBV_WR_RDMA_WRITE_WITH_IMM
								    ? IBV_WC_RECV_RDMA_WITH_IMM
								    : IBV_WC_RECV);
			}
			stage_check_same(p, at, at, len);
			stage_no_wc(p, 1);
		}
		iwarp_pair_free(p);
	}
}

static void send_of_every_length_arrives(void **state)
{
	every_length_by(IBV_WR_SEND);
	every_length_by(IBV_WR_SEND_WITH_IMM);
}

static void write_of_every_length_arrives(void **state)
{
	every_length_by(IBV_WR_RDMA_WRITE);
	every_length_by(IBV_WR_RDMA_WRITE_WITH_IMM);
}

static void read_of_every_length_arrives(void **state)
{
	every_length_by(IBV_WR_RDMA_READ);
}

static void atomics_return_what_was_there(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	uint64_t *mine = (uint64_t *)p->side[0].mem, *theirs = (uint64_t *)p->side[1].mem;

	theirs[0] = 41;
	stage_post(p, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8, 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	assert_true(mine[0] == 41 && theirs[0] == 42);
	theirs[1] = 1;
	stage_post(p, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 2, 8, 8, 0); /* compares with 1, swaps 0 in */
	stage_post(p, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 8, 8, IBV_SEND_FENCE);
	iwarp_pair_run(p);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	stage_wc(p, 0, 3, IBV_WC_SUCCESS);
	assert_true(mine[1] == 0 && theirs[1] == 0);
	iwarp_pair_free(p);
}

static void atomics_and_immediates_need_a_peer_of_our_kind(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM};

	for (unsigned i = 0; i < 4; i++) {
		struct iwarp_pair *p = stage_pair(strangers);
		struct ibv_send_wr *bad, wr;
		struct ibv_sge sge;
		uint64_t sent;

		iwarp_pair_run(p);
		sent = p->side[0].sent;
		wr = stage_request(p, 0, ops[i], &sge, 0, 8);
		assert_int_equal(hca_qp_post_send(p->side[0].qp, &wr, &bad), EOPNOTSUPP);
		iwarp_pair_run(p);
		assert_int_equal(p->side[0].sent, sent); /* not a byte of it */
		iwarp_pair_free(p);
	}
}

static void windows_are_bound_used_and_invalidated(void **state)
{
	struct iwarp_pair *p = stage_pair(small_segments);
	struct iwarp_side *s = &p->side[1];
	struct hca_mr *mr =
		hca_mr_reg(s->node->pd, s->mem, 4096, s->iova, SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	struct hca_mw *mw = hca_mw_alloc(s->node->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = {.wr_id = 1, .opcode = IBV_WR_BIND_MW}, wr;
	uint32_t rkey = ibv_inc_rkey(mw->ibv.rkey);
	struct ibv_sge sge;

	bind.bind_mw.mw = &mw->ibv;
	bind.bind_mw.rkey = rkey;
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){&mr->ibv, s->iova, 1000, IBV_ACCESS_REMOTE_WRITE};
	stage_post_wr(p, 1, &bind);
	iwarp_pair_run(p);
	stage_wc(p, 1, 1, IBV_WC_SUCCESS);
	wr = stage_request(p, 0, IBV_WR_RDMA_WRITE, &sge, 0, 1000);
	wr.wr_id = 2;
	wr.wr.rdma.rkey = rkey;
	stage_post_wr(p, 0, &wr);
	stage_post_recv(p, 1, 3, 8192, 100);
	wr = stage_request(p, 0, IBV_WR_SEND_WITH_INV, &sge, 8192, 100);
	wr.wr_id = 4;
	wr.invalidate_rkey = rkey;
	stage_post_wr(p, 0, &wr);
	iwarp_pair_run(p);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	stage_wc(p, 0, 4, IBV_WC_SUCCESS);
	assert_int_equal(stage_wc(p, 1, 3, IBV_WC_SUCCESS).invalidated_rkey, rkey);
	stage_check_same(p, 0, 0, 1000);
	wr = stage_request(p, 0, IBV_WR_RDMA_WRITE, &sge, 0, 8);
	wr.wr_id = 5;
	wr.wr.rdma.rkey = rkey;
	stage_post_wr(p, 0, &wr);
	iwarp_pair_run(p);
	assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
	hca_mw_dealloc(mw);
	hca_mr_dereg(mr);
	iwarp_pair_free(p);
}

/* What no verb can say in one request: READ, and its sink is withdrawn. On the wire it is the same. */
static void read_then_local_invalidate_behind_a_fence(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct hca_mw *mw = hca_mw_alloc(p->side[0].node->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr inv = {.wr_id = 2, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_FENCE};

	inv.invalidate_rkey = mw->ibv.rkey;
	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 0, 5000, 0);
	stage_post_wr(p, 0, &inv);
	iwarp_side_step(p, 0);
	stage_no_wc(p, 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	stage_check_same(p, 0, 0, 5000);
	hca_mw_dealloc(mw);
	iwarp_pair_free(p);
}

static void scattered_sink_and_gathered_source(void **state)
{
	struct iwarp_pair *p = stage_pair(small_segments);
	struct ibv_sge sge[4];
	struct ibv_send_wr wr;
	uint32_t pieces[4] = {1, 0, 200, 799}, lkey = p->side[0].mr->ibv.lkey, at = 0;

	for (unsigned i = 0; i < 4; i++)
		sge[i] = (struct ibv_sge){p->side[0].iova + i * 2000, pieces[i], lkey};
	wr = stage_request(p, 0, IBV_WR_RDMA_READ, &(struct ibv_sge){0}, 50000, 0);
	wr.sg_list = sge;
	wr.num_sge = 4;
	stage_post_wr(p, 0, &wr);
	iwarp_pair_run(p);
	stage_wc(p, 0, 0, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 4; at += pieces[i++])
		stage_check_same(p, i * 2000, 50000 + at, pieces[i]);
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = p->side[1].iova + 90000;
	stage_post_wr(p, 0, &wr);
	iwarp_pair_run(p);
	stage_wc(p, 0, 0, IBV_WC_SUCCESS);
	assert_memory_equal(p->side[1].mem + 90000, p->side[1].mem + 50000, 1000);
	iwarp_pair_free(p);
}

/* ---- copies ---- */
static void payload_goes_straight_to_its_place_without_crc(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post(p, 0, IBV_WR_RDMA_WRITE, 1, 0, 1000000, 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	/* Every read but the first brings payload to its place, and the next header behind it. */
	assert_true(p->side[1].direct >= 15);
	assert_true(p->side[1].receives <= 40);
	stage_check_same(p, 0, 0, 1000000);
	iwarp_pair_free(p);
}

/* The program writes to what its peer reads: a torn value may arrive, a broken CRC may not. */
static void program_may_write_to_what_is_read_with_the_crc(void **state)
{
	struct iwarp_pair *p = stage_pair(with_crc);
	struct choices c = {.seed = 7};

	p->cut = &c;
	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 0, 400000, 0);
	while (iwarp_pair_step(p))
		memset(p->side[1].mem, (int)choose(&c, 256), 400000);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

/* And to what is being written: the CRC is that of the bytes received. */
static void program_may_write_to_what_is_written_with_the_crc(void **state)
{
	struct iwarp_pair *p = stage_pair(with_crc);
	struct choices c = {.seed = 8};

	p->cut = &c;
	stage_post_recv(p, 1, 7, 500000, 200000);
	stage_post(p, 0, IBV_WR_RDMA_WRITE, 1, 0, 400000, 0);
	stage_post(p, 0, IBV_WR_SEND, 2, 500000, 200000, 0);
	while (iwarp_pair_step(p))
		memset(p->side[1].mem, (int)choose(&c, 256), 700000);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	stage_wc(p, 0, 2, IBV_WC_SUCCESS);
	stage_wc(p, 1, 7, IBV_WC_SUCCESS);
	iwarp_pair_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_of_every_length_arrives),
		cmocka_unit_test(write_of_every_length_arrives),
		cmocka_unit_test(read_of_every_length_arrives),
		cmocka_unit_test(atomics_return_what_was_there),
		cmocka_unit_test(atomics_and_immediates_need_a_peer_of_our_kind),
		cmocka_unit_test(windows_are_bound_used_and_invalidated),
		cmocka_unit_test(read_then_local_invalidate_behind_a_fence),
		cmocka_unit_test(scattered_sink_and_gathered_source),
		cmocka_unit_test(payload_goes_straight_to_its_place_without_crc),
		cmocka_unit_test(program_may_write_to_what_is_read_with_the_crc),
		cmocka_unit_test(program_may_write_to_what_is_written_with_the_crc),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
