/* SPDX-License-Identifier: MIT */
/* How many READs and atomics may be under way, and what waits for them. */
#include "duo.h"

static void read_depth_is_never_exceeded(void **state)
{
	struct duo *d = duo_new();
	int out = 0, most = 0;

	d->opts[0].rd_atomic = 3;
	duo_connect(d);
	post_list(d, 0, IBV_WR_RDMA_READ, 20, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 20);
	for (unsigned i = 0; i < d->logged; i++) {
		out += d->log[i].op == OP_READ_REQUEST;
		out -= d->log[i].op == OP_READ_RESP_ONLY;
		most = out > most ? out : most;
	}
	assert_int_equal(most, 3);
	duo_end(d);
}

/* However many old READs come again at once, a new one is not refused because of them. */
static void duplicate_reads_do_not_crowd_out_new_ones(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rd_atomic = 16;
	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	for (unsigned i = 0; i < 40; i++)
		forge(d, 0, 0, 1, nth(d, 0, OP_READ_REQUEST, 0)->bytes, BTH_LEN + RETH_LEN);
	post_list(d, 0, IBV_WR_RDMA_READ, 16, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 16);
	assert_memory_equal(mem[0], mem[1], 16 * 64);
	duo_end(d);
}

static void fence_waits_for_reads(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 64);
	post_on(d, d->qp[0], 0, IBV_WR_RDMA_WRITE, 1, 0, 64, IBV_SEND_FENCE);
	post_on(d, d->qp[0], 0, IBV_WR_RDMA_WRITE, 2, 128, 64, 0);
	sim_run_idle(&d->w);
	expect_all(d, 0, 3);
	assert_true(nth(d, 0, OP_WRITE_ONLY, 0)->at >= nth(d, 1, OP_READ_RESP_ONLY, 0)->arrives);
	duo_end(d);
}

/* ---- the responder's depth ---- */
/* n requests that arrive at once, READs and atomics in turn, the k-th at 8 * k. */
static void ask_at_once(struct duo *d, unsigned n)
{
	for (unsigned k = 0; k < n; k++)
		forge_request(d, (struct forged){.op = k % 2 ? OP_FETCH_ADD : OP_READ_REQUEST,
					 .psn = k,
					 .va = (uintptr_t)mem[1] + 8 * k,
					 .dma_len = 8});
	sim_run_idle(&d->w);
}

static void peer_may_use_the_whole_depth_at_once(void **state)
{
	for (unsigned depth = 1; depth <= 16; depth++) {
		struct duo *d = duo_new();

		d->opts[0].rd_atomic = depth; /* and side 1's max_dest_rd_atomic */
		duo_connect(d);
		ask_at_once(d, depth);
		assert_int_equal(sent(d, 1, OP_READ_RESP_ONLY) + sent(d, 1, OP_ATOMIC_ACK), depth);
		assert_int_equal(naks(d, 1, AETH_NAK, AETH_TYPE_MASK), 0);
		duo_end(d);
	}
}

static void peer_that_exceeds_the_depth_is_refused(void **state)
{
	for (unsigned depth = 0; depth <= 16; depth++) {
		struct duo *d = duo_new();
		struct hca_qp *other[2];

		d->opts[0].rd_atomic = depth;
		duo_connect(d);
		duo_more(d, other);
		ask_at_once(d, depth + 1);
		assert_int_equal(naks(d, 1, AETH_NAK | NAK_INV_REQ, 0xff), 1);
		assert_int_equal(nth(d, 1, OP_ACK, 0)->psn, 100 + depth);
		/* What was asked within the depth is still answered. */
		assert_int_equal(sent(d, 1, OP_READ_RESP_ONLY) + sent(d, 1, OP_ATOMIC_ACK), depth);
		assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
		assert_int_equal(events(&d->w.node[1], IBV_EVENT_QP_REQ_ERR), 1);
		post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 3, 128, 64, 0);
		sim_run_idle(&d->w);
		expect_wc(d, 0, 3, IBV_WC_SUCCESS);
		duo_end(d);
	}
}

/* What was asked before does not count again, however often it is repeated. */
static void duplicates_do_not_count_against_the_depth(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rd_atomic = 2;
	duo_connect(d);
	ask_at_once(d, 2);
	for (unsigned i = 0; i < 5; i++)
		ask_at_once(d, 2);
	sim_port_pause(d->w.net, 1, true);
	for (unsigned i = 0; i < 3; i++)
		ask_at_once(d, 4); /* two of old, two new, then all of them again */
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	assert_int_equal(naks(d, 1, AETH_NAK, AETH_TYPE_MASK), 0);
	assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_RTS);
	duo_end(d);
}

/* ---- changed while requests run ---- */
static void set_depth(struct hca_qp *qp, int mask, uint8_t depth)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_SQD, .max_rd_atomic = depth, .max_dest_rd_atomic = depth};

	assert_int_equal(hca_qp_modify(qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(hca_qp_modify(qp, &attr, mask), 0);
	attr.qp_state = IBV_QPS_RTS;
	assert_int_equal(hca_qp_modify(qp, &attr, IBV_QP_STATE), 0);
}

static void requesters_depth_may_change_while_requests_run(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rd_atomic = 16;
	duo_connect(d);
	for (unsigned i = 0; i < 8; i++) {
		post_list(d, 0, IBV_WR_RDMA_READ, 24, 2 * MTU);
		sim_run(&d->w, sim_now(&d->w) + 7 * SIM_US);
		set_depth(d->qp[0], IBV_QP_MAX_QP_RD_ATOMIC, (uint8_t)(i % 2 ? 16 : 1 + i / 2));
		sim_run_idle(&d->w);
		expect_all(d, 0, 24);
		assert_memory_equal(mem[0], mem[1], 24 * 2 * MTU);
	}
	assert_int_equal(naks(d, 1, AETH_NAK, AETH_TYPE_MASK), 0);
	duo_end(d);
}

/* Results that were saved before the change are found after it, whether the depth grows or shrinks. */
static void responders_depth_may_change_while_atomics_wait_for_their_result(void **state)
{
	for (unsigned from = 1; from <= 4; from++) {
		for (unsigned to = 1; to <= 8; to++) {
			struct duo *d = duo_new();
			uint64_t before[8], v;

			d->opts[0].rd_atomic = from;
			duo_connect(d);
			memcpy(before, mem[1], sizeof(before));
			script(d, 1, OP_ATOMIC_ACK, 0, from - 1, SIM_LOST);
			post_list(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8);
			sim_run(&d->w, SIM_MS); /* done there, not known here */
			set_depth(d->qp[1], IBV_QP_MAX_DEST_RD_ATOMIC, (uint8_t)to);
			if (to < from)
				set_depth(d->qp[0], IBV_QP_MAX_QP_RD_ATOMIC, (uint8_t)to);
			sim_run_idle(&d->w);
			expect_all(d, 0, 8);
			for (unsigned i = 0; i < 8; i++) {
				memcpy(&v, mem[0] + 8 * i, 8);
				assert_true(v == before[i]);
				memcpy(&v, mem[1] + 8 * i, 8);
				assert_true(v == before[i] + 1);
			}
			duo_end(d);
		}
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_depth_is_never_exceeded),
		cmocka_unit_test(duplicate_reads_do_not_crowd_out_new_ones),
		cmocka_unit_test(fence_waits_for_reads),
		cmocka_unit_test(peer_may_use_the_whole_depth_at_once),
		cmocka_unit_test(peer_that_exceeds_the_depth_is_refused),
		cmocka_unit_test(duplicates_do_not_count_against_the_depth),
		cmocka_unit_test(requesters_depth_may_change_while_requests_run),
		cmocka_unit_test(responders_depth_may_change_while_atomics_wait_for_their_result),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
