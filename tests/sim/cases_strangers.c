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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(packet_from_a_stranger_is_dropped_and_counted),
		cmocka_unit_test(late_packets_find_no_queue_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
