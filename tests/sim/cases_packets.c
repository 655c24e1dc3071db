/* SPDX-License-Identifier: MIT */
/* What every packet has: its ICRC, its fixed bits, lengths of every kind. */
#include "duo.h"

/* Whatever the opcode says: a packet whose ICRC is wrong moves one counter and nothing else. */
static void wrong_icrc_is_counted_before_any_field_is_believed(void **state)
{
	struct duo *d = duo_new();
	struct sim_rules bad = {.delay_min = SIM_US, .delay_max = SIM_US, .corrupt = SIM_MILLION};
	struct sim_rules good = {.delay_min = SIM_US, .delay_max = SIM_US};
	struct host_adapter_counters *c, before;
	struct host_qp_counters qp_before;

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	expect_alive(d);
	c = d->w.node[1].adapter.count;
	before = *c;
	qp_before = *d->qp[1]->count;
	sim_rules_set(d->w.net, &bad);
	for (unsigned op = 0; op < 256; op++)
		forge_request(d,
			(struct forged){.op = (uint8_t)op, .psn = 1, .dma_len = 64, .payload = op % 2 * 64});
	sim_run_idle(&d->w);
	assert_int_equal(c->bad_icrc, before.bad_icrc + 256);
	before.bad_icrc = c->bad_icrc;
	assert_memory_equal(c, &before, sizeof(before));
	assert_memory_equal(d->qp[1]->count, &qp_before, sizeof(qp_before));
	expect_none(d, 1);
	sim_rules_set(d->w.net, &good);
	expect_alive(d);
	duo_end(d);
}

/* A message of n bytes each way, by each operation; guards around it stay as they were. */
static void carry(struct duo *d, enum ibv_wr_opcode op, uint32_t n)
{
	uint8_t *to = op == IBV_WR_RDMA_READ ? mem[0] : mem[1],
		*from = op == IBV_WR_RDMA_READ ? mem[1] : mem[0];
	struct ibv_wc wc;

	memset(to, 0x5a, n + 128);
	for (uint32_t i = 0; i < n; i++)
		from[64 + i] = (uint8_t)(i * 13 + n);
	if (op == IBV_WR_SEND)
		post_recv(d, 1, 9, 64, n);
	post(d, 0, op, 1, 64, n);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	if (op == IBV_WR_SEND) {
		assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
		assert_int_equal(wc.byte_len, n);
	}
	assert_memory_equal(to + 64, from + 64, n);
	for (unsigned i = 0; i < 64; i++)
		assert_true(to[i] == 0x5a && to[64 + n + i] == 0x5a);
}

static void messages_of_every_length_mod_4_and_whole_packets_arrive(void **state)
{
	static const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, 6, 7, MTU - 1, MTU, MTU + 1, MTU + 2, MTU + 3,
		2 * MTU - 1, 2 * MTU, 2 * MTU + 1, 3 * MTU, 16 * MTU, 64 * MTU};

	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		struct duo *d = duo_build(ipv6, 2);

		duo_connect(d);
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
			carry(d, IBV_WR_SEND, lengths[i]);
			carry(d, IBV_WR_RDMA_WRITE, lengths[i]);
			carry(d, IBV_WR_RDMA_READ, lengths[i]);
		}
		assert_int_equal(d->w.node[0].adapter.count->bad_icrc, 0);
		assert_int_equal(d->w.node[1].adapter.count->bad_icrc, 0);
		assert_int_equal(d->qp[0]->count->retransmits, 0);
		duo_end(d);
	}
}

/* IBA 17.2.8: a QP that does not use path migration is in state Migrated, and says so in all it sends. */
static void migreq_is_set_in_requests_responses_acks_and_naks(void **state)
{
	struct duo *d = duo_new();
	bool seen[OP_COUNT] = {false};

	duo_connect(d);
	post(d, 0, IBV_WR_SEND, 0, 0, 3 * MTU); /* meets no receive: an RNR NAK first */
	sim_run(&d->w, 50 * SIM_US);
	post_recv(d, 1, 9, 65536, 8192);
	script(d, 0, OP_WRITE_MIDDLE, 0, 0, SIM_LOST); /* a NAK for the hole */
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 4 * MTU);
	post(d, 0, IBV_WR_RDMA_WRITE, 2, 0, 64);
	post(d, 0, IBV_WR_RDMA_READ, 3, 0, 4 * MTU);
	post(d, 0, IBV_WR_RDMA_READ, 4, 0, 64);
	post(d, 0, IBV_WR_ATOMIC_FETCH_AND_ADD, 5, 0, 8);
	post(d, 0, IBV_WR_ATOMIC_CMP_AND_SWP, 6, 0, 8);
	sim_run_idle(&d->w);
	expect_all(d, 0, 7);
	for (unsigned i = 0; i < d->logged; i++) {
		assert_true(d->log[i].bytes[1] & 0x40);
		seen[d->log[i].op] = true;
	}
	for (unsigned op = OP_READ_REQUEST; op <= OP_FETCH_ADD; op++)
		assert_true(seen[op]);
	assert_true(naks(d, 1, AETH_RNR, AETH_TYPE_MASK) && naks(d, 1, AETH_NAK, AETH_TYPE_MASK));
	duo_end(d);
}

/* The peer's MigReq is not ours to judge: 0 means it asks for a migration we do not do. */
static void request_without_migreq_is_taken(void **state)
{
	struct duo *d = duo_new();
	uint8_t p[BTH_LEN];

	duo_connect(d);
	post_recv(d, 1, 9, 65536, 8192);
	bth_put(p, OP_SEND_ONLY, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), true, d->opts[0].psn);
	p[1] &= (uint8_t)~0x40;
	forge(d, 0, 0, 1, p, sizeof(p));
	sim_run_idle(&d->w);
	expect_wc(d, 1, 9, IBV_WC_SUCCESS);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(wrong_icrc_is_counted_before_any_field_is_believed),
		cmocka_unit_test(messages_of_every_length_mod_4_and_whole_packets_arrive),
		cmocka_unit_test(migreq_is_set_in_requests_responses_acks_and_naks),
		cmocka_unit_test(request_without_migreq_is_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
