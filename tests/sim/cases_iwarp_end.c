/* SPDX-License-Identifier: MIT */
/* How an iWARP connection ends: errors at either end, memory that goes away, a peer that closes, a network
 * that dies. */
#include "iwarp_stage.h"

#include <string.h>

static void with_crc(struct iwarp_pair *p)
{
	p->side[0].mpa.crc = true;
}

/* ---- what one end asks and the other refuses: both report it ---- */
struct refusal {
	const char *what;
	enum ibv_wr_opcode op;
	bool bad_key, beyond, misaligned;
	unsigned qp_access;
	enum ibv_wc_status status; /* of a READ or atomic; the rest is done before the peer sees it */
	enum ibv_event_type event; /* at the end that refused */
	enum rdmap_error error;
};

static void refuse(const struct refusal *r)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ibv_qp_attr a = {.qp_access_flags = r->qp_access};
	bool asks = r->op == IBV_WR_RDMA_READ || r->op == IBV_WR_ATOMIC_FETCH_AND_ADD;
	uint8_t before[64];
	struct ibv_sge sge;
	struct ibv_send_wr wr =
		stage_request(p, 0, r->op, &sge, 4096, asks && r->op != IBV_WR_RDMA_READ ? 8 : 64);

	iwarp_pair_run(p);
	assert_int_equal(hca_qp_modify(p->side[1].qp, &a, IBV_QP_ACCESS_FLAGS), 0);
	memcpy(before, p->side[1].mem + 4096, 64);
	/* The first two words of the union are the same for all. */
	wr.wr.rdma.rkey ^= r->bad_key;
	if (r->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.rkey = p->side[1].mr->ibv.rkey ^ r->bad_key;
		wr.wr.atomic.remote_addr += r->misaligned + (r->beyond ? IW_MEM : 0);
	} else {
		wr.wr.rdma.remote_addr += r->beyond ? IW_MEM - 4096 - 32 : 0;
	}
	wr.wr_id = 1;
	stage_post_wr(p, 0, &wr);
	stage_post(p, 0, IBV_WR_RDMA_READ, 2, 0, 64, 0);
	iwarp_pair_run(p);
	if (!asks)
		stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	else
		stage_wc(p, 0, 1, r->status);
	stage_wc(p, 0, 2, IBV_WC_WR_FLUSH_ERR);
	assert_int_equal(stage_events(p, 0, IBV_EVENT_QP_ACCESS_ERR), !asks);
	assert_int_equal(stage_events(p, 1, r->event), 1);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(hca_qp_state(p->side[i].qp), IBV_QPS_ERR);
	assert_memory_equal(before, p->side[1].mem + 4096, 64);
	iwarp_pair_free(p);
}

static void both_ends_report_what_was_refused(void **state)
{
	static const unsigned all = SIM_ALL_ACCESS;
	static const struct refusal rows[] = {
		{"WRITE, unknown key", IBV_WR_RDMA_WRITE, true, false, false, all, 0, IBV_EVENT_QP_ACCESS_ERR,
			0},
		{"WRITE, beyond", IBV_WR_RDMA_WRITE, false, true, false, all, 0, IBV_EVENT_QP_ACCESS_ERR, 0},
		{"WRITE, no right", IBV_WR_RDMA_WRITE, false, false, false, IBV_ACCESS_REMOTE_READ, 0,
			IBV_EVENT_QP_ACCESS_ERR, 0},
		{"READ, unknown key", IBV_WR_RDMA_READ, true, false, false, all, IBV_WC_REM_ACCESS_ERR,
			IBV_EVENT_QP_ACCESS_ERR, 0},
		{"READ, beyond", IBV_WR_RDMA_READ, false, true, false, all, IBV_WC_REM_ACCESS_ERR,
			IBV_EVENT_QP_ACCESS_ERR, 0},
		{"READ, no right", IBV_WR_RDMA_READ, false, false, false, IBV_ACCESS_REMOTE_WRITE,
			IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, 0},
		{"atomic, unknown key", IBV_WR_ATOMIC_FETCH_AND_ADD, true, false, false, all,
			IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, 0},
		{"atomic, beyond", IBV_WR_ATOMIC_FETCH_AND_ADD, false, true, false, all,
			IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR, 0},
		{"atomic, misaligned", IBV_WR_ATOMIC_FETCH_AND_ADD, false, false, true, all,
			IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR, 0},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		refuse(&rows[i]);
}

/* The last word comes behind what had begun to leave, however full of other segments all was. */
static void refusal_arrives_behind_a_full_stream(void **state)
{
	for (uint32_t mulpdu = 2300; mulpdu < 2900; mulpdu += 8) {
		struct iwarp_pair *p = iwarp_pair_new();
		struct ibv_sge sge;
		struct ibv_send_wr wr = stage_request(p, 0, IBV_WR_RDMA_READ, &sge, 4096, 64);
		struct pipe full;

		p->side[0].mpa.markers = true;
		p->side[1].mulpdu = mulpdu;
		iwarp_pair_qps(p);
		assert_true(iwarp_pair_connect(p));
		iwarp_pair_run(p);
		stage_post(p, 1, IBV_WR_RDMA_WRITE, 1, 0, 500000, 0);
		while (iwarp_side_step(p, 1))
			;
		assert_true(iwarp_qp(p->side[1].qp)->writer.sent);
		wr.wr.rdma.rkey ^= 1;
		stage_post_wr(p, 0, &wr);
		full = p->side[1].out;
		p->side[1].out.tail = full.head; /* side 0 reads nothing of it yet */
		iwarp_side_step(p, 0);
		p->side[1].out = full;
		iwarp_side_step(p, 1);
		iwarp_pair_run(p);
		stage_wc(p, 0, 0, IBV_WC_REM_ACCESS_ERR);
		stage_wc(p, 1, 1, IBV_WC_WR_FLUSH_ERR);
		iwarp_pair_free(p);
	}
}

static void message_longer_than_its_receive_ends_both_ends(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post_recv(p, 1, 7, 0, 63);
	stage_post(p, 0, IBV_WR_SEND, 1, 0, 64, 0);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	stage_wc(p, 1, 7, IBV_WC_LOC_LEN_ERR);
	assert_int_equal(stage_events(p, 0, IBV_EVENT_QP_FATAL), 1);
	iwarp_pair_free(p);
}

/* ---- the program ends it ---- */
/* At every moment: what has begun to leave is finished, so the peer finds a whole number of FPDUs. */
static void moved_to_error_in_mid_message(void **state)
{
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct choices c = {.seed = seed};
		struct iwarp_pair *p = stage_pair(seed & 1 ? with_crc : NULL);
		unsigned steps = (unsigned)(seed / 4);

		p->cut = &c;
		stage_post_recv(p, 1, 7, 500000, 200000);
		stage_post(p, 0, IBV_WR_RDMA_WRITE, 1, 0, 200000, 0);
		stage_post(p, 0, IBV_WR_RDMA_READ, 2, 300000, 100000, 0);
		stage_post(p, 0, IBV_WR_SEND, 3, 500000, 200000, 0);
		while (steps-- && iwarp_pair_step(p))
			;
		stage_to_error(p, 0);
		iwarp_pair_run(p);
		assert_true(p->side[0].closed && p->side[1].closed);
		assert_true(iwarp_reader_between(&iwarp_qp(p->side[1].qp)->reader));
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(hca_qp_state(p->side[i].qp), IBV_QPS_ERR);
		for (unsigned i = 0, broken = 0; i < 3;
			i++) { /* each once, in order, none well behind one that is not */
			struct ibv_wc wc;

			assert_int_equal(hca_cq_take(p->side[0].cq, &wc, 1), 1);
			assert_int_equal(wc.wr_id, i + 1);
			assert_true(wc.status == IBV_WC_WR_FLUSH_ERR || (!wc.status && !broken));
			broken |= wc.status;
		}
		stage_no_wc(p, 0);
		iwarp_pair_free(p);
	}
}

static void network_dies_in_mid_message(void **state)
{
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct choices c = {.seed = seed};
		struct iwarp_pair *p = stage_pair(seed & 1 ? with_crc : NULL);
		struct ibv_wc wc;
		unsigned steps = (unsigned)(seed / 4), n = 0;

		p->cut = &c;
		stage_post_recv(p, 1, 7, 500000, 200000);
		stage_post(p, 1, IBV_WR_RDMA_READ, 1, 0, 100000, 0);
		stage_post(p, 0, IBV_WR_SEND, 3, 500000, 200000, 0);
		while (steps-- && iwarp_pair_step(p))
			;
		iwarp_pair_kill(p);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(hca_qp_state(p->side[i].qp), IBV_QPS_ERR);
			while (hca_cq_take(p->side[i].cq, &wc, 1)) {
				assert_true(!wc.status || wc.status == IBV_WC_WR_FLUSH_ERR);
				n++;
			}
		}
		assert_int_equal(n, 3);
		iwarp_pair_free(p);
	}
}

static void peer_that_closes_flushes_what_waits(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);

	stage_post_recv(p, 0, 7, 0, 64);
	stage_to_error(p, 1);
	iwarp_pair_run(p);
	stage_wc(p, 0, 7, IBV_WC_WR_FLUSH_ERR);
	stage_no_wc(p, 0);
	assert_true(p->side[0].closed && p->side[1].closed);
	iwarp_pair_free(p);
}

/* ---- memory that goes away ---- */
static struct hca_mr *own_region(struct iwarp_pair *p, unsigned side)
{
	return sim_mr(p->side[side].node, p->side[side].mem, IW_MEM, p->side[side].iova);
}

static void target_of_a_write_deregistered_in_its_middle(void **state)
{
	for (unsigned crc = 0; crc < 2; crc++) {
		struct iwarp_pair *p = stage_pair(crc ? with_crc : NULL);
		struct hca_mr *mr = own_region(p, 1);
		struct choices c = {.seed = 1};
		struct ibv_sge sge;
		struct ibv_send_wr wr = stage_request(p, 0, IBV_WR_RDMA_WRITE, &sge, 0, 300000);
		static uint8_t after[IW_MEM];

		p->cut = &c;
		wr.wr.rdma.rkey = mr->ibv.rkey;
		stage_post_wr(p, 0, &wr);
		while (p->side[1].received < 150000)
			assert_true(iwarp_pair_step(p));
		assert_int_equal(hca_mr_dereg(mr), 0);
		memcpy(after, p->side[1].mem, IW_MEM);
		iwarp_pair_run(p);
		assert_memory_equal(after, p->side[1].mem, IW_MEM); /* nothing lands any more */
		assert_int_equal(stage_events(p, 1, IBV_EVENT_QP_ACCESS_ERR), 1);
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(hca_qp_state(p->side[i].qp), IBV_QPS_ERR);
		iwarp_pair_free(p);
	}
}

static void source_of_a_read_deregistered_in_its_middle(void **state)
{
	for (unsigned crc = 0; crc < 2; crc++) {
		struct iwarp_pair *p = stage_pair(crc ? with_crc : NULL);
		struct hca_mr *mr = own_region(p, 1);
		struct choices c = {.seed = 3};
		struct ibv_sge sge;
		struct ibv_send_wr wr = stage_request(p, 0, IBV_WR_RDMA_READ, &sge, 0, 700000);

		p->cut = &c;
		wr.wr.rdma.rkey = mr->ibv.rkey;
		wr.wr_id = 1;
		stage_post_wr(p, 0, &wr);
		while (p->side[0].received < 150000)
			assert_true(iwarp_pair_step(p));
		assert_int_equal(hca_mr_dereg(mr), 0);
		memset(p->side[1].mem, 0xd1, IW_MEM); /* a secret, now that the region is gone */
		iwarp_pair_run(p);
		assert_int_equal(hca_cq_empty(p->side[0].cq), 0);
		assert_int_not_equal(hca_qp_state(p->side[0].qp), IBV_QPS_RTS);
		assert_null(memmem(p->side[0].mem, 700000, "\xd1\xd1\xd1\xd1\xd1\xd1\xd1\xd1", 8));
		iwarp_pair_free(p);
	}
}

static void source_of_a_send_deregistered_in_its_middle(void **state)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct iwarp_pair *p = stage_pair(seed & 1 ? with_crc : NULL);
		struct hca_mr *mr = own_region(p, 0);
		struct choices c = {.seed = seed};
		struct ibv_sge sge;
		struct ibv_send_wr wr = stage_request(p, 0, IBV_WR_SEND, &sge, 0, 900000);

		p->cut = &c;
		sge.lkey = mr->ibv.lkey;
		wr.wr_id = 1;
		stage_post_recv(p, 1, 7, 0, 900000);
		stage_post_wr(p, 0, &wr);
		while (p->side[0].sent < 150000)
			assert_true(iwarp_pair_step(p));
		assert_int_equal(hca_mr_dereg(mr), 0);
		iwarp_pair_run(p);
		stage_wc(p, 0, 1, IBV_WC_LOC_PROT_ERR);
		stage_wc(p, 1, 7, IBV_WC_WR_FLUSH_ERR);
		assert_true(p->side[0].closed && p->side[1].closed);
		iwarp_pair_free(p);
	}
}

static void wrong_local_keys_are_the_requests_own_fault(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ibv_sge sge;
	struct ibv_send_wr wr = stage_request(p, 0, IBV_WR_RDMA_WRITE, &sge, 0, 64);

	stage_post(p, 0, IBV_WR_RDMA_READ, 1, 4096, 64, 0);
	wr.wr_id = 2;
	sge.lkey ^= 1;
	stage_post_wr(p, 0, &wr);
	iwarp_pair_run(p);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS); /* what was before it is done */
	stage_wc(p, 0, 2, IBV_WC_LOC_PROT_ERR);
	iwarp_pair_free(p);
}

static void receive_with_a_wrong_key_is_its_own_fault(void **state)
{
	struct iwarp_pair *p = stage_pair(NULL);
	struct ibv_sge sge = {p->side[1].iova, 64, p->side[1].mr->ibv.lkey ^ 1};
	struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hca_qp_post_recv(p->side[1].qp, &wr, &bad), 0);
	stage_post(p, 0, IBV_WR_SEND, 1, 0, 64, 0);
	iwarp_pair_run(p);
	stage_wc(p, 1, 7, IBV_WC_LOC_PROT_ERR);
	stage_wc(p, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(hca_qp_state(p->side[0].qp), IBV_QPS_ERR);
	iwarp_pair_free(p);
}

static void sink_with_a_wrong_key_fails_the_read(void **state)
{
	for (unsigned op = 0; op < 2; op++) {
		struct iwarp_pair *p = stage_pair(NULL);
		struct ibv_sge sge;
		struct ibv_send_wr wr =
			stage_request(p, 0, op ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD, &sge, 0, 8);

		wr.wr_id = 1;
		sge.lkey ^= 1;
		stage_post_wr(p, 0, &wr);
		iwarp_pair_run(p);
		stage_wc(p, 0, 1, IBV_WC_LOC_PROT_ERR);
		assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
		iwarp_pair_free(p);
	}
}

static void full_completion_queue_ends_the_queue_pair(void **state)
{
	struct iwarp_pair *p = iwarp_pair_new();
	struct hca_cq *small = sim_cq(p->side[1].node, 1);

	p->side[1].opts.recv_cq = small;
	iwarp_pair_qps(p);
	assert_true(iwarp_pair_connect(p));
	for (unsigned i = 0; i < 3; i++) {
		stage_post_recv(p, 1, i, 0, 64);
		stage_post(p, 0, IBV_WR_SEND, i, 0, 64, 0);
	}
	iwarp_pair_run(p);
	assert_int_equal(hca_qp_state(p->side[1].qp), IBV_QPS_ERR);
	assert_int_equal(hca_qp_state(p->side[0].qp), IBV_QPS_ERR);
	hca_qp_destroy(p->side[1].qp);
	p->side[1].qp = NULL;
	hca_cq_destroy(small);
	iwarp_pair_free(p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_report_what_was_refused),
		cmocka_unit_test(refusal_arrives_behind_a_full_stream),
		cmocka_unit_test(message_longer_than_its_receive_ends_both_ends),
		cmocka_unit_test(moved_to_error_in_mid_message),
		cmocka_unit_test(network_dies_in_mid_message),
		cmocka_unit_test(peer_that_closes_flushes_what_waits),
		cmocka_unit_test(target_of_a_write_deregistered_in_its_middle),
		cmocka_unit_test(source_of_a_read_deregistered_in_its_middle),
		cmocka_unit_test(source_of_a_send_deregistered_in_its_middle),
		cmocka_unit_test(wrong_local_keys_are_the_requests_own_fault),
		cmocka_unit_test(receive_with_a_wrong_key_is_its_own_fault),
		cmocka_unit_test(sink_with_a_wrong_key_fails_the_read),
		cmocka_unit_test(full_completion_queue_ends_the_queue_pair),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
