/* SPDX-License-Identifier: MIT */
/* Packets that are wrong in themselves or out of place. */
#include "duo.h"

static void out_of_place_packets_are_refused(void **state)
{
	static const uint8_t ops[] = {
		OP_SEND_MIDDLE, OP_SEND_LAST, OP_WRITE_MIDDLE, OP_WRITE_LAST, OP_SEND_FIRST};

	for (unsigned i = 0; i < sizeof(ops); i++) {
		struct duo *d = duo_new();
		uint8_t p[BTH_LEN];

		duo_connect(d);
		post_recv(d, 1, 9, 4096, 4096);
		bth_put(p, ops[i], false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), true, d->opts[0].psn);
		forge(d, 0, 0, 1, p, sizeof(p)); /* FIRST must be as long as the path MTU, LAST not empty */
		sim_run_idle(&d->w);
		assert_int_equal(naks(d, 1, AETH_NAK | NAK_INV_REQ, 0xff), 1);
		assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
		duo_end(d);
	}
}

static void unknown_and_short_packets_are_dropped(void **state)
{
	struct duo *d = duo_new();
	uint8_t p[FRAME_HDR_MAX] = {0};

	duo_connect(d);
	for (unsigned op = 0; op < OPCODE_ECHO_REQUEST; op++) {
		const struct ibt_op_info *info = ibt_op_lookup((uint8_t)op);

		if (info && (op & IBT_SERVICE_MASK) == IBT_RC && !info->ext_len)
			continue; /* a bare BTH is a whole packet: judged by what it says */
		bth_put(p, (uint8_t)op, false, 3, PKEY_DEFAULT, hca_qpn(d->qp[1]), true, d->opts[0].psn);
		forge(d, 0, 0, 1, p, BTH_LEN);
	}
	bth_put(p, OP_SEND_ONLY, false, 3, PKEY_DEFAULT, hca_qpn(d->qp[1]), true, d->opts[0].psn);
	forge(d, 0, 0, 1, p, BTH_LEN); /* more pad than payload */
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 1, OP_ACK), 0);
	assert_true(d->qp[1]->count->dropped > 150);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(out_of_place_packets_are_refused),
		cmocka_unit_test(unknown_and_short_packets_are_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
