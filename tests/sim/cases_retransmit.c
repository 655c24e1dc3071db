/* SPDX-License-Identifier: MIT */
/* Packets that are lost, doubled or late, and how an RC queue pair makes up for them. */
#include "duo.h"

/* ---- responses that are lost ---- */
static void read_replayed_after_lost_response(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 1, OP_READ_RESP_MIDDLE, 0, 0, SIM_LOST);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 4 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	assert_memory_equal(mem[0], mem[1], 4 * MTU);
	assert_int_equal(sent(d, 0, OP_READ_REQUEST), 2);
	assert_int_equal(nth(d, 0, OP_READ_REQUEST, 1)->psn, 101); /* what is missing, and no more */
	assert_int_equal(reth_get(nth(d, 0, OP_READ_REQUEST, 1)->bytes + BTH_LEN).len, MTU);
	assert_int_equal(d->qp[0]->count->timeouts, 0);
	duo_end(d);
}

static void read_asked_again_after_lost_last_response(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 1, OP_READ_RESP_LAST, 0, 0, SIM_LOST);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 4 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	assert_memory_equal(mem[0], mem[1], 4 * MTU);
	assert_int_equal(nth(d, 0, OP_READ_REQUEST, 1)->psn, 103);
	assert_int_equal(d->qp[0]->count->probes, 1); /* nothing came after it that would have told */
	assert_int_equal(d->qp[0]->count->timeouts, 0);
	duo_end(d);
}

static void read_responses_reordered_are_put_in_place(void **state)
{
	struct duo *d = duo_new();
	struct sim_rules late = {.delay_min = 5 * SIM_US, .delay_max = 5 * SIM_US, .late_max = 10 * SIM_US};

	duo_connect(d);
	sim_rules_set(d->w.net, &late);
	script(d, 1, OP_READ_RESP_MIDDLE, 0, 2, SIM_DELAYED);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 16 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	assert_memory_equal(mem[0], mem[1], 16 * MTU);
	duo_end(d);
}

static void atomic_answered_from_saved_result_after_lost_ack(void **state)
{
	struct duo *d = duo_new();
	uint64_t before, v;

	duo_connect(d);
	memcpy(&before, mem[1], 8);
	script(d, 1, OP_ATOMIC_ACK, 0, 0, SIM_LOST);
	post(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0, 8);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(sent(d, 0, OP_FETCH_ADD), 2);
	memcpy(&v, mem[0], 8);
	assert_true(v == before);
	memcpy(&v, mem[1], 8);
	assert_true(v == before + 1);
	duo_end(d);
}

static void as_many_saved_atomics_as_the_depth(void **state)
{
	struct duo *d = duo_new();
	uint64_t before[16], v;

	d->opts[0].rd_atomic = 16;
	duo_connect(d);
	memcpy(before, mem[1], sizeof(before));
	script(d, 1, OP_ATOMIC_ACK, 0, 15, SIM_LOST);
	post_list(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 16, 8);
	sim_run_idle(&d->w);
	expect_all(d, 0, 16);
	for (unsigned i = 0; i < 16; i++) {
		memcpy(&v, mem[0] + 8 * i, 8);
		assert_true(v == before[i]);
		memcpy(&v, mem[1] + 8 * i, 8);
		assert_true(v == before[i] + 1);
	}
	duo_end(d);
}

static void coalesced_ack_lost(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 1, OP_ACK, 0, 0, SIM_LOST);
	post_list(d, 0, IBV_WR_RDMA_WRITE, 8, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 8);
	assert_memory_equal(mem[0], mem[1], 8 * 64);
	assert_int_equal(sent(d, 1, OP_ACK), 2);
	assert_int_equal(d->qp[0]->count->timeouts, 1);
	assert_int_equal(d->qp[1]->count->duplicates, 1); /* one packet asks, its acknowledge covers all */
	duo_end(d);
}

/* Programs count on it: the reply says that the request has arrived, and the acknowledge that left before it
 * may be lost or late. */
static void request_is_done_before_its_reply_comes(void **state)
{
	struct duo *d = duo_new();
	struct ibv_wc wc;

	duo_connect(d);
	script(d, 1, OP_ACK, 0, 0, SIM_LOST);
	post_recv(d, 0, 2, 65536, 100);
	post_recv(d, 1, 7, 65536, 100);
	post(d, 0, IBV_WR_SEND, 1, 0, 100);
	sim_run(&d->w, 20 * SIM_US);
	expect_wc(d, 1, 7, IBV_WC_SUCCESS);
	assert_int_equal(sent(d, 1, OP_ACK), 1);
	post(d, 1, IBV_WR_SEND, 8, 0, 100);
	sim_run(&d->w, 40 * SIM_US);
	assert_int_equal(hca_cq_take(d->cq[0], &wc, 1), 1);
	assert_int_equal(wc.wr_id, 1);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	sim_run_idle(&d->w);
	assert_int_equal(d->qp[0]->count->retransmits, 0);
	duo_end(d);
}

static void late_acks_and_acks_of_the_future_are_ignored(void **state)
{
	struct duo *d = duo_new();
	uint8_t ack[BTH_LEN + AETH_LEN];

	duo_connect(d);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64); /* PSN 100 */
	for (unsigned i = 0; i < 3; i++) {
		static const uint32_t psn[] = {101, 99, 5000};

		bth_put(ack, OP_ACK, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[0]), false, psn[i]);
		aeth_put(ack + BTH_LEN, AETH_ACK | AETH_CREDIT_NONE, 1);
		forge(d, 1, 1, 0, ack, sizeof(ack));
	}
	sim_run(&d->w, SIM_MS);
	expect_none(d, 0);
	assert_int_equal(d->qp[0]->count->stale_responses, 3);
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

/* ---- requests that are lost ---- */
static void nak_sequence_sent_once_per_gap(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 0, OP_WRITE_ONLY, 1, 1, SIM_LOST);
	script(d, 0, OP_WRITE_ONLY, 13, 13, SIM_LOST); /* of the second round: PSN 104 again */
	post_list(d, 0, IBV_WR_RDMA_WRITE, 10, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 10);
	assert_memory_equal(mem[0], mem[1], 640);
	assert_int_equal(naks(d, 1, AETH_NAK | NAK_SEQ, 0xff), 2);
	assert_int_equal(d->qp[1]->count->naks_sent, 2);
	assert_int_equal(d->qp[0]->count->timeouts, 0);
	duo_end(d);
}

static void lost_nak_is_made_up_for_by_the_timer(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 0, OP_WRITE_ONLY, 1, 1, SIM_LOST);
	script(d, 1, OP_ACK, 0, 0, SIM_LOST);
	post_list(d, 0, IBV_WR_RDMA_WRITE, 10, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 10);
	assert_int_equal(d->qp[0]->count->timeouts, 1);
	duo_end(d);
}

static void corrupted_packet_counts_as_bad_icrc(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 0, OP_SEND_ONLY, 0, 2, SIM_CORRUPTED);
	post_recv(d, 1, 9, 4096, 64);
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	expect_none(d, 1);
	assert_memory_equal(mem[0], mem[1] + 4096, 64);
	assert_int_equal(d->w.node[1].adapter.count->bad_icrc, 3);
	assert_int_equal(d->qp[1]->count->dropped, 0); /* no field of it was believed */
	duo_end(d);
}

static void psn_wraps_with_duplicates_on_both_sides(void **state)
{
	struct duo *d = duo_new();
	uint64_t before, v;

	d->opts[0].psn = d->opts[1].psn = PSN_MASK - 5;
	duo_connect(d);
	every_packet_twice(d, 100 * SIM_US);
	memcpy(&before, mem[1] + 65536, 8);
	for (unsigned i = 0; i < 4; i++) {
		post_recv(d, 1, 100 + i, 131072 + i * 4096, 4096);
		post(d, 0, IBV_WR_RDMA_WRITE, 4 * i, 4096 * i, 2 * MTU);
		post(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 4 * i + 1, 65536, 8);
		post(d, 0, IBV_WR_SEND, 4 * i + 2, 4096 * i, 3 * MTU);
		post(d, 0, IBV_WR_RDMA_READ, 4 * i + 3, 262144 + 4096 * i, 2 * MTU);
	}
	sim_run_idle(&d->w);
	expect_all(d, 0, 16);
	for (unsigned i = 0; i < 4; i++) {
		expect_wc(d, 1, 100 + i, IBV_WC_SUCCESS);
		assert_memory_equal(mem[0] + 4096 * i, mem[1] + 4096 * i, 2 * MTU);
		assert_memory_equal(mem[0] + 4096 * i, mem[1] + 131072 + 4096 * i, 3 * MTU);
		assert_memory_equal(mem[0] + 262144 + 4096 * i, mem[1] + 262144 + 4096 * i, 2 * MTU);
	}
	expect_none(d, 1);
	memcpy(&v, mem[1] + 65536, 8);
	assert_true(v == before + 4);
	assert_true(ibt_qp(d->qp[1])->resp.epsn < 100); /* it did wrap */
	duo_end(d);
}

/* ---- what comes twice ---- */
static void read_again(struct duo *d, uint32_t psn, uint32_t off, uint32_t len)
{
	forge_request(
		d, (struct forged){
			   .op = OP_READ_REQUEST, .psn = psn, .va = (uintptr_t)mem[1] + off, .dma_len = len});
	sim_run_idle(&d->w);
}

static void duplicate_read_is_answered_again_from_memory(void **state)
{
	struct duo *d = duo_new();
	const struct logged *answer;

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 4 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	memset(mem[1], 0x77, 4 * MTU); /* as memory is now, not as it was */
	read_again(d, 0, 0, 4 * MTU);
	assert_int_equal(sent(d, 1, OP_READ_RESP_FIRST), 2);
	assert_int_equal(sent(d, 1, OP_READ_RESP_MIDDLE), 4);
	assert_int_equal(sent(d, 1, OP_READ_RESP_LAST), 2);
	answer = nth(d, 1, OP_READ_RESP_FIRST, 1);
	assert_int_equal(answer->psn, 100);
	assert_int_equal(answer->bytes[BTH_LEN + AETH_LEN], 0x77);
	assert_int_equal(d->qp[1]->count->duplicates, 1);
	assert_int_equal(d->qp[0]->count->stale_responses, 4); /* nobody waits for them */
	expect_alive(d);
	duo_end(d);
}

static void later_part_of_a_read_is_answered_alone(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 4 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	read_again(d, 2, 2 * MTU, 2 * MTU); /* its second half */
	assert_int_equal(nth(d, 1, OP_READ_RESP_FIRST, 1)->psn, 102);
	assert_int_equal(nth(d, 1, OP_READ_RESP_LAST, 1)->psn, 103);
	read_again(d, 1, MTU, MTU); /* one packet of its middle */
	assert_int_equal(sent(d, 1, OP_READ_RESP_ONLY), 1);
	assert_int_equal(nth(d, 1, OP_READ_RESP_ONLY, 0)->psn, 101);
	read_again(d, 3, 3 * MTU, 2 * MTU); /* beyond what was ever asked: no answer, and no harm */
	assert_int_equal(sent(d, 1, OP_READ_RESP_FIRST), 2);
	expect_alive(d);
	duo_end(d);
}

/* What is forbidden since is not read again either; that is no error, since it was none. */
static void duplicate_read_needs_its_rights(void **state)
{
	struct ibv_qp_attr none = {.qp_access_flags = 0}, all = {.qp_access_flags = SIM_ALL_ACCESS};
	struct duo *d = duo_new();

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	assert_int_equal(hca_qp_modify(d->qp[1], &none, IBV_QP_ACCESS_FLAGS), 0);
	read_again(d, 0, 0, 64);
	assert_int_equal(hca_qp_modify(d->qp[1], &all, IBV_QP_ACCESS_FLAGS), 0);
	assert_int_equal(
		hca_mr_rereg(d->mr[1], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
	read_again(d, 0, 0, 64);
	assert_int_equal(d->qp[1]->count->duplicates, 2);
	assert_int_equal(sent(d, 1, OP_READ_RESP_ONLY), 1);
	assert_int_equal(
		hca_mr_rereg(d->mr[1], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, SIM_ALL_ACCESS), 0);
	expect_alive(d);
	duo_end(d);
}

/* A READ of many chunks that loses a packet here and there asks only for what it lacks. */
static void read_resumes_where_it_broke_each_time(void **state)
{
	struct duo *d = duo_new();
	uint32_t asked = 0;

	duo_connect(d);
	for (unsigned i = 0; i < 10; i++)
		script(d, 1, OP_READ_RESP_MIDDLE, 37 * i + 5, 37 * i + 5, SIM_LOST);
	post(d, 0, IBV_WR_RDMA_READ, 7, 0, 512 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	assert_memory_equal(mem[0], mem[1], 512 * MTU);
	for (unsigned i = 0; i < sent(d, 0, OP_READ_REQUEST); i++) {
		const struct logged *l = nth(d, 0, OP_READ_REQUEST, i);
		struct reth h = reth_get(l->bytes + BTH_LEN);

		/* Its PSN and its address name the same place, always. */
		assert_true(h.va == (uintptr_t)mem[1] + (uint64_t)psn_diff(l->psn, 100) * MTU);
		asked += h.len;
	}
	assert_true(asked < 2 * 512 * MTU);
	assert_int_equal(d->qp[0]->count->timeouts, 0);
	duo_end(d);
}

static void duplicate_write_is_acknowledged_and_not_executed(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post(d, 0, IBV_WR_RDMA_WRITE, 7, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 7, IBV_WC_SUCCESS);
	mem[1][0] = 0x11; /* the program goes on with its memory */
	forge_request(d, (struct forged){.op = OP_WRITE_ONLY, .payload = 64, .dma_len = 64});
	sim_run_idle(&d->w);
	assert_int_equal(mem[1][0], 0x11);
	assert_int_equal(sent(d, 1, OP_ACK), 2);
	assert_int_equal(nth(d, 1, OP_ACK, 1)->psn, 100);
	duo_end(d);
}

static void duplicate_send_takes_no_second_receive(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	every_packet_twice(d, 50 * SIM_US);
	for (unsigned i = 0; i < 4; i++)
		post_recv(d, 1, i, 65536 + 4096 * i, 4096);
	post_list(d, 0, IBV_WR_SEND, 3, 2 * MTU);
	sim_run_idle(&d->w);
	expect_all(d, 0, 3);
	expect_all(d, 1, 3); /* the fourth receive waits */
	for (unsigned i = 0; i < 3; i++)
		assert_memory_equal(mem[1] + 65536 + 4096 * i, mem[0] + 2 * MTU * i, 2 * MTU);
	duo_end(d);
}

static void responses_that_come_twice_are_taken_once(void **state)
{
	struct duo *d = duo_new();
	uint64_t before, v;

	duo_connect(d);
	every_packet_twice(d, 50 * SIM_US);
	memcpy(&before, mem[1], 8);
	post(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 0, 8);
	post(d, 0, IBV_WR_RDMA_READ, 1, 4096, 4 * MTU);
	post(d, 0, IBV_WR_RDMA_WRITE, 2, 65536, 4 * MTU);
	post(d, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 3, 8, 8);
	sim_run_idle(&d->w);
	expect_all(d, 0, 4);
	memcpy(&v, mem[0], 8);
	assert_true(v == before);
	memcpy(&v, mem[1], 8);
	assert_true(v == before + 1);
	assert_memory_equal(mem[0] + 4096, mem[1] + 4096, 4 * MTU);
	assert_true(d->qp[0]->count->stale_responses >= 6);
	duo_end(d);
}

/* The second one would find its own result and fail: it must see what the first one saw. */
static void compare_and_swap_is_not_done_twice(void **state)
{
	struct duo *d = duo_new();
	uint64_t old = 42, v;
	struct ibv_sge sge;
	struct ibv_send_wr wr;

	duo_connect(d);
	memcpy(mem[1], &old, 8);
	script(d, 1, OP_ATOMIC_ACK, 0, 1, SIM_LOST);
	wr = request(d, 0, IBV_WR_ATOMIC_CMP_AND_SWP, &sge, 0, 8);
	wr.wr.atomic.compare_add = old;
	wr.wr.atomic.swap = 43;
	post_wr(d->qp[0], &wr);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	assert_int_equal(sent(d, 0, OP_CMP_SWAP), 3);
	memcpy(&v, mem[0], 8);
	assert_true(v == old);
	memcpy(&v, mem[1], 8);
	assert_true(v == 43);
	duo_end(d);
}

/*
 * The responses of a READ or atomic are its acknowledge. Linux's rxe takes a plain one with their last PSN
 * for them: it completes a READ of one packet without its data, and gives up in the middle of a longer one.
 */
static void no_acknowledge_names_a_read_or_atomic(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};

	for (unsigned i = 0; i < 2; i++) {
		struct duo *d = duo_new();
		uint32_t len = i ? 8 : 3 * MTU, write_psn;

		duo_connect(d);
		script(d, 1, i ? OP_ATOMIC_ACK : OP_READ_RESP_LAST, 0, 0, SIM_LOST);
		post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, 64);
		post(d, 0, ops[i], 1, 8192, len);
		write_psn = d->opts[0].psn;
		sim_run(&d->w, SIM_MS / 10);
		/* The WRITE comes once more, behind it all: the peer lost its acknowledge. */
		forge_request(d, (struct forged){.op = OP_WRITE_ONLY, .dma_len = 64, .payload = 64});
		sim_run_idle(&d->w);
		expect_all(d, 0, 2);
		assert_true(d->qp[1]->count->duplicates > 0);
		for (unsigned k = 0; k < sent(d, 1, OP_ACK); k++)
			assert_int_equal(nth(d, 1, OP_ACK, k)->psn, write_psn);
		assert_true(sent(d, 1, OP_ACK) > 0);
		duo_end(d);
	}
}

/*
 * Linux's rxe answers no part of a READ request that begins before a part which it has answered since. So of
 * what is missing the first is asked for, and the next when that has come, however often it is lost.
 */
static void missing_parts_of_a_read_are_asked_for_in_order(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	script(d, 1, OP_READ_RESP_MIDDLE, 2, 2, SIM_LOST);
	script(d, 1, OP_READ_RESP_MIDDLE, 6, 7, SIM_LOST);
	script(d, 1, OP_READ_RESP_ONLY, 0, 2, SIM_LOST);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 12 * MTU);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 65536, 64);
	sim_run_idle(&d->w);
	expect_all(d, 0, 2);
	assert_memory_equal(mem[0], mem[1], 12 * MTU);
	assert_true(sent(d, 0, OP_READ_REQUEST) >= 5);
	for (unsigned k = 1; k < sent(d, 0, OP_READ_REQUEST); k++)
		assert_true(psn_diff(nth(d, 0, OP_READ_REQUEST, k)->psn,
				    nth(d, 0, OP_READ_REQUEST, k - 1)->psn) >= 0);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_replayed_after_lost_response),
		cmocka_unit_test(read_asked_again_after_lost_last_response),
		cmocka_unit_test(read_responses_reordered_are_put_in_place),
		cmocka_unit_test(atomic_answered_from_saved_result_after_lost_ack),
		cmocka_unit_test(as_many_saved_atomics_as_the_depth),
		cmocka_unit_test(coalesced_ack_lost),
		cmocka_unit_test(request_is_done_before_its_reply_comes),
		cmocka_unit_test(late_acks_and_acks_of_the_future_are_ignored),
		cmocka_unit_test(nak_sequence_sent_once_per_gap),
		cmocka_unit_test(lost_nak_is_made_up_for_by_the_timer),
		cmocka_unit_test(corrupted_packet_counts_as_bad_icrc),
		cmocka_unit_test(psn_wraps_with_duplicates_on_both_sides),
		cmocka_unit_test(duplicate_read_is_answered_again_from_memory),
		cmocka_unit_test(later_part_of_a_read_is_answered_alone),
		cmocka_unit_test(duplicate_read_needs_its_rights),
		cmocka_unit_test(read_resumes_where_it_broke_each_time),
		cmocka_unit_test(duplicate_write_is_acknowledged_and_not_executed),
		cmocka_unit_test(duplicate_send_takes_no_second_receive),
		cmocka_unit_test(responses_that_come_twice_are_taken_once),
		cmocka_unit_test(compare_and_swap_is_not_done_twice),
		cmocka_unit_test(no_acknowledge_names_a_read_or_atomic),
		cmocka_unit_test(missing_parts_of_a_read_are_asked_for_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
