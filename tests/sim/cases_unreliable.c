/* SPDX-License-Identifier: MIT */
/* UC and UD. */
#include "duo.h"

static void uc_message_with_a_hole_is_lost_alone(void **state)
{
	struct duo *d = duo_new();
	struct ibv_wc wc;

	d->opts[0].type = d->opts[1].type = IBV_QPT_UC;
	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 1, i, 65536 * (i + 1), 4096);
	script(d, 0, IBT_UC | OP_SEND_MIDDLE, 1, 1, SIM_LOST);
	post_list(d, 0, IBV_WR_SEND, 3, 3 * MTU);
	sim_run_idle(&d->w);
	expect_all(d, 0, 3);
	expect_wc(d, 1, 0, IBV_WC_SUCCESS);
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.wr_id, 1); /* the third message, in the second receive */
	assert_int_equal(wc.byte_len, 3 * MTU);
	assert_memory_equal(mem[1] + 65536, mem[0], 3 * MTU);
	assert_memory_equal(mem[1] + 2 * 65536, mem[0] + 6 * MTU, 3 * MTU);
	expect_none(d, 1);
	duo_end(d);
}

static void ud_carries_forty_bytes_in_front(void **state)
{
	for (int ipv6 = 0; ipv6 < 2; ipv6++) {
		struct duo *d = duo_build(ipv6, 2);
		struct hca_ah *ah;
		struct ibv_sge sge;
		struct ibv_send_wr wr, *bad;
		struct ibv_wc wc;

		d->opts[0].type = d->opts[1].type = IBV_QPT_UD;
		duo_connect(d);
		ah = sim_ah(&d->w.node[0], &d->w.node[1]);
		post_recv(d, 1, 9, 4096, 256);
		wr = request(d, 0, IBV_WR_SEND, &sge, 0, 101);
		wr.wr.ud.ah = &ah->ibv;
		wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
		wr.wr.ud.remote_qkey = SIM_QKEY ^ 1; /* a wrong Q_Key: dropped, counted */
		assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
		wr.wr.ud.remote_qkey = SIM_QKEY;
		assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
		sim_run_idle(&d->w);
		assert_int_equal(d->qp[1]->count->dropped, 1);
		assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
		assert_int_equal(wc.byte_len, GRH_LEN + 101);
		assert_int_equal(wc.src_qp, hca_qpn(d->qp[0]));
		assert_int_equal(mem[1][4096 + (ipv6 ? 0 : 20)] >> 4, ipv6 ? 6 : 4);
		assert_memory_equal(mem[1] + 4096 + GRH_LEN, mem[0], 101);
		expect_none(d, 1);
		sim_ah_free(ah);
		duo_end(d);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(uc_message_with_a_hole_is_lost_alone),
		cmocka_unit_test(ud_carries_forty_bytes_in_front),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
