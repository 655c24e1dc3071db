/* SPDX-License-Identifier: MIT */
/* Packets that are not the peer's, or come too late. */
#include "duo.h"

static void packet_from_a_stranger_is_dropped_and_counted(void **state)
{
	struct duo *d = duo_build(false, 3);
	uint8_t p[BTH_LEN + RETH_LEN];

	duo_connect(d);
	/* Right in everything but the address: the next PSN, a forged NAK, a request out of place. */
	for (unsigned i = 0; i < 3; i++) {
		static const uint8_t ops[] = {OP_WRITE_ONLY, OP_ACK, OP_SEND_MIDDLE};
		uint8_t len = (uint8_t)(BTH_LEN + ibt_op_table[ops[i]].ext_len);

		bth_put(p, ops[i], false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), true, d->opts[0].psn);
		reth_put(p + BTH_LEN, (uintptr_t)mem[1], d->mr[1]->ibv.rkey, 0);
		if (ops[i] == OP_ACK)
			aeth_put(p + BTH_LEN, AETH_NAK | NAK_ACCESS, 0);
		forge(d, 2, 2, 1, p, len);
	}
	sim_run_idle(&d->w);
	assert_int_equal(d->qp[1]->count->wrong_peer, 3);
	assert_int_equal(sent(d, 1, OP_ACK), 0);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	assert_int_equal(d->qp[1]->count->out_of_sequence, 0);
	duo_end(d);
}

static void late_packets_find_no_queue_pair(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post_list(d, 0, IBV_WR_RDMA_WRITE, 4, 64);
	hca_qp_destroy(d->qp[1]);
	d->qp[1] = NULL;
	sim_run(&d->w, SIM_MS);
	assert_int_equal(d->w.node[1].adapter.count->no_qp, 4);
	duo_end(d);
}

static void wrong_pkey_is_dropped_and_counted(void **state)
{
	struct duo *d = duo_new();
	unsigned n = 0;

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 64);
	for (uint8_t op = 0; op < OP_COUNT; op++) {
		if (ibt_op_lookup(op)) {
			forge_request(d, (struct forged){.op = op, .pkey = 0x8001});
			n++;
		}
	}
	sim_run_idle(&d->w);
	assert_int_equal(d->qp[1]->count->dropped, n);
	assert_int_equal(sent(d, 1, OP_ACK), 0);
	expect_none(d, 1);
	/* A limited member of our partition may talk to us, who are a full one. */
	forge_request(d, (struct forged){.op = OP_SEND_ONLY, .payload = 64, .pkey = PKEY_DEFAULT & 0x7fff});
	sim_run_idle(&d->w);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	duo_end(d);
}

static void limited_members_do_not_hear_each_other(void **state)
{
	const uint16_t limited = PKEY_DEFAULT & ~PKEY_FULL;
	struct duo *d = duo_new();

	duo_connect(d);
	d->qp[1]->path.pkey = limited;
	post_recv(d, 1, 9, 65536, 64);
	forge_request(d, (struct forged){.op = OP_SEND_ONLY, .payload = 64, .pkey = limited});
	sim_run_idle(&d->w);
	assert_int_equal(d->qp[1]->count->dropped, 1);
	expect_none(d, 1);
	post(d, 0, IBV_WR_SEND, 1, 0, 64); /* from a full one; and its acknowledge has the limited key */
	sim_run_idle(&d->w);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

/* A response nobody asked for, or another than was asked for, from the peer's own address. */
static void responses_nobody_waits_for_change_nothing(void **state)
{
	static const uint8_t ops[] = {
		OP_READ_RESP_FIRST, OP_READ_RESP_MIDDLE, OP_READ_RESP_LAST, OP_READ_RESP_ONLY, OP_ATOMIC_ACK};
	struct duo *d = duo_new();

	duo_connect(d);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64);
	for (unsigned i = 0; i < sizeof(ops); i++) {
		uint8_t p[BTH_LEN + AETH_LEN + ATOMICACK_LEN] = {0};

		bth_put(p, ops[i], false, 0, PKEY_DEFAULT, hca_qpn(d->qp[0]), false, 100);
		forge(d, 1, 1, 0, p, BTH_LEN + ibt_op_table[ops[i]].ext_len);
	}
	sim_run(&d->w, SIM_MS);
	expect_none(d, 0);
	assert_int_equal(d->qp[0]->count->dropped, sizeof(ops));
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

/* A READ's response is no answer to an atomic, nor the other way round, though the number is right. */
static void response_of_another_kind_is_dropped(void **state)
{
	static const struct {
		enum ibv_wr_opcode asked;
		uint8_t answer;
		uint32_t payload;
	} cases[] = {
		{IBV_WR_ATOMIC_FETCH_AND_ADD, OP_READ_RESP_ONLY, 8},
		{IBV_WR_RDMA_READ, OP_ATOMIC_ACK, 0},
	};

	for (unsigned i = 0; i < 2; i++) {
		uint8_t p[BTH_LEN + AETH_LEN + ATOMICACK_LEN] = {0}, before[8];
		struct duo *d = duo_new();

		duo_connect(d);
		sim_port_pause(d->w.net, 1, true);
		post(d, 0, cases[i].asked, 1, 4096, 8);
		memcpy(before, mem[0] + 4096, 8);
		bth_put(p, cases[i].answer, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[0]), false, 100);
		forge(d, 1, 1, 0, p, BTH_LEN + ibt_op_table[cases[i].answer].ext_len + cases[i].payload);
		sim_run(&d->w, SIM_MS);
		expect_none(d, 0);
		assert_memory_equal(mem[0] + 4096, before, 8);
		assert_int_equal(d->qp[0]->count->dropped, 1);
		sim_port_pause(d->w.net, 1, false);
		sim_run_idle(&d->w);
		expect_wc(d, 0, 1, IBV_WC_SUCCESS);
		duo_end(d);
	}
}

/* ---- numbers used again ---- */
static void disconnect(struct duo *d)
{
	for (unsigned i = 0; i < 2; i++) {
		hca_qp_destroy(d->qp[i]);
		d->qp[i] = NULL;
	}
}

/* The same numbers as last time, as if thousands of others had come and gone between. */
static void connect_with_numbers(struct duo *d, const uint64_t seed[2], uint32_t psn)
{
	for (unsigned i = 0; i < 2; i++) {
		memset(&d->w.node[i].adapter.quarantine, 0, sizeof(d->w.node[i].adapter.quarantine));
		d->w.node[i].adapter.seed = seed[i];
		d->opts[i].psn = psn_add(psn, 1000 * i);
	}
	duo_connect(d);
}

static void work_on_all(struct duo *d, unsigned k)
{
	post_recv(d, 1, 9, 524288, 4096);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 4096 * k, 2 * MTU);
	post(d, 0, IBV_WR_SEND, 1, 4096 * k, 2 * MTU);
	post(d, 0, IBV_WR_RDMA_READ, 2, 262144, 2 * MTU);
	post(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 3, 393216, 8);
}

static void late_packets_do_not_harm_who_has_the_number_now(void **state)
{
	struct duo *d = duo_new();
	uint64_t seed[2] = {d->w.node[0].adapter.seed, d->w.node[1].adapter.seed}, count;
	uint32_t qpn;

	connect_with_numbers(d, seed, 100);
	qpn = hca_qpn(d->qp[1]);
	memcpy(&count, mem[1] + 393216, 8);
	memset(mem[1], 0x5a, 8192);
	work_on_all(d, 0);
	disconnect(d); /* all of it is still in flight */
	connect_with_numbers(d, seed, 0x700000);
	assert_int_equal(hca_qpn(d->qp[1]), qpn);
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < 2 * MTU; i++)
		assert_int_equal(mem[1][i], 0x5a);
	expect_none(d, 0);
	expect_none(d, 1);
	work_on_all(d, 0);
	sim_run_idle(&d->w);
	expect_all(d, 0, 4);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	assert_memory_equal(mem[0], mem[1], 2 * MTU);
	count++;
	assert_memory_equal(mem[1] + 393216, &count, 8);
	duo_end(d);
}

static void a_thousand_connections_share_one_number(void **state)
{
	struct duo *d = duo_new();
	uint64_t seed[2] = {d->w.node[0].adapter.seed, d->w.node[1].adapter.seed}, count;

	every_packet_twice(d, SIM_MS); /* the second copy finds the next connection, or the one after it */
	memcpy(&count, mem[1] + 393216, 8);
	for (unsigned i = 0; i < 1000; i++) {
		connect_with_numbers(d, seed, i * 7919u * 1009u);
		work_on_all(d, i % 64);
		while (d->qp[0]->sq.tail != d->qp[0]->sq.head)
			assert_true(sim_step(&d->w, UINT64_MAX));
		expect_all(d, 0, 4);
		expect_wc(d, 1, 9, IBV_WC_SUCCESS);
		expect_none(d, 1);
		assert_memory_equal(mem[0] + 4096 * (i % 64), mem[1] + 4096 * (i % 64), 2 * MTU);
		if (i < 999)
			disconnect(d);
	}
	sim_run_idle(&d->w);
	count += 1000;
	assert_memory_equal(mem[1] + 393216, &count, 8);
	assert_true(d->w.node[1].adapter.count->no_qp == 0); /* there was always somebody at that number */
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(packet_from_a_stranger_is_dropped_and_counted),
		cmocka_unit_test(late_packets_find_no_queue_pair),
		cmocka_unit_test(wrong_pkey_is_dropped_and_counted),
		cmocka_unit_test(limited_members_do_not_hear_each_other),
		cmocka_unit_test(responses_nobody_waits_for_change_nothing),
		cmocka_unit_test(response_of_another_kind_is_dropped),
		cmocka_unit_test(late_packets_do_not_harm_who_has_the_number_now),
		cmocka_unit_test(a_thousand_connections_share_one_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
