/* SPDX-License-Identifier: MIT */
/* Where messages land: receives that are too short, scattered or empty; windows that a message withdraws. */
#include "duo.h"

#include <pthread.h>

static void post_recv_list(struct duo *d, uint64_t id, struct ibv_sge *sge, int n)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = sge, .num_sge = n}, *bad;

	assert_int_equal(hca_qp_post_recv(d->qp[1], &wr, &bad), 0);
}

static struct ibv_sge at(struct duo *d, uint32_t off, uint32_t len)
{
	return (struct ibv_sge){(uintptr_t)mem[1] + off, len, d->mr[1]->ibv.lkey};
}

static void send_longer_than_the_receive_ends_both_ends(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	post_recv(d, 1, 9, 4096, 3 * MTU - 1);
	post_recv(d, 1, 10, 4096, MTU);
	post_list(d, 0, IBV_WR_SEND, 2, 3 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 1, 9, IBV_WC_LOC_LEN_ERR);
	expect_wc(d, 1, 10, IBV_WC_WR_FLUSH_ERR);
	expect_wc(d, 0, 0, IBV_WC_REM_INV_REQ_ERR);
	expect_wc(d, 0, 1, IBV_WC_WR_FLUSH_ERR);
	duo_end(d);
}

static void send_longer_than_scattered_entries_together_writes_none_beyond(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[3];

	duo_connect(d);
	memset(mem[1], 0x5a, MEM);
	sge[0] = at(d, 4096, 100);
	sge[1] = at(d, 8192, MTU);
	sge[2] = at(d, 12288, 27);
	post_recv_list(d, 9, sge, 3);
	post(d, 0, IBV_WR_SEND, 0, 0, MTU + 128);
	sim_run_idle(&d->w);
	expect_wc(d, 1, 9, IBV_WC_LOC_LEN_ERR);
	expect_wc(d, 0, 0, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(mem[1][4096 + 100], 0x5a);
	assert_int_equal(mem[1][8192 + MTU], 0x5a);
	assert_int_equal(mem[1][12288 + 27], 0x5a);
	duo_end(d);
}

/* Entries of odd sizes, cut across packets; some of them of no bytes, whose key nobody looks at. */
static void scattered_receive_with_empty_entries_is_filled_in_order(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[6];
	struct ibv_wc wc;

	d->opts[1].sge = 6;
	duo_connect(d);
	memset(mem[1], 0x5a, MEM);
	sge[0] = (struct ibv_sge){.addr = 1, .length = 0, .lkey = 0xbad};
	sge[1] = at(d, 4096, 1);
	sge[2] = at(d, 8192, MTU + 7);
	sge[3] = (struct ibv_sge){.addr = 0, .length = 0, .lkey = 0};
	sge[4] = at(d, 16384, 3);
	sge[5] = at(d, 20480, 2 * MTU);
	post_recv_list(d, 9, sge, 6);
	post(d, 0, IBV_WR_SEND, 0, 0, 3 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, 3 * MTU);
	assert_memory_equal(mem[1] + 4096, mem[0], 1);
	assert_memory_equal(mem[1] + 8192, mem[0] + 1, MTU + 7);
	assert_memory_equal(mem[1] + 16384, mem[0] + MTU + 8, 3);
	assert_memory_equal(mem[1] + 20480, mem[0] + MTU + 11, 2 * MTU - 11);
	assert_int_equal(mem[1][4097], 0x5a);
	assert_int_equal(mem[1][8192 + MTU + 7], 0x5a);
	assert_int_equal(mem[1][16384 + 3], 0x5a);
	assert_int_equal(mem[1][20480 + 2 * MTU - 11], 0x5a);
	duo_end(d);
}

static void empty_message_takes_a_receive_of_no_entries(void **state)
{
	struct duo *d = duo_new();
	struct ibv_wc wc;

	duo_connect(d);
	post_recv_list(d, 9, NULL, 0);
	post(d, 0, IBV_WR_SEND, 0, 0, 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
	assert_int_equal(wc.byte_len, 0);
	duo_end(d);
}

/* ---- SEND with invalidate ---- */
struct window {
	struct duo *d;
	struct hca_mr *mr; /* bindable */
	struct hca_mw *mw;
	struct hca_pd *pd;
};

static struct window window_new(struct duo *d, struct hca_pd *pd)
{
	struct window w = {.d = d, .pd = pd};

	w.mr = hca_mr_reg(
		pd, mem[1] + 65536, 65536, (uintptr_t)mem[1] + 65536, SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	w.mw = hca_mw_alloc(pd, IBV_MW_TYPE_2);
	assert_non_null(w.mr);
	assert_non_null(w.mw);
	return w;
}

static void window_free(struct window *w)
{
	assert_int_equal(hca_mw_dealloc(w->mw), 0);
	assert_int_equal(hca_mr_dereg(w->mr), 0);
}

/* Binds by a work request of side 1's queue pair; the window's key is then `rkey`. */
static uint32_t window_bind(struct window *w, struct hca_qp *qp)
{
	struct ibv_send_wr wr = {.wr_id = 77,
		.opcode = IBV_WR_BIND_MW,
		.bind_mw = {.mw = &w->mw->ibv,
			.rkey = w->mw->ibv.rkey + 1,
			.bind_info = {.mr = &w->mr->ibv,
				.addr = (uintptr_t)mem[1] + 65536,
				.length = 4096,
				.mw_access_flags = IBV_ACCESS_REMOTE_WRITE}}};

	post_wr(qp, &wr);
	sim_run_idle(&w->d->w);
	expect_wc(w->d, 1, 77, IBV_WC_SUCCESS);
	return wr.bind_mw.rkey;
}

static void send_inv(struct duo *d, uint64_t id, uint32_t rkey, uint32_t len)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(d, 0, IBV_WR_SEND_WITH_INV, &sge, 0, len);

	wr.wr_id = id;
	wr.invalidate_rkey = rkey;
	post_recv(d, 1, 100 + id, 131072, 8192);
	post_wr(d->qp[0], &wr);
	sim_run_idle(&d->w);
}

static void write_by_key(struct duo *d, uint64_t id, uint32_t rkey)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(d, 0, IBV_WR_RDMA_WRITE, &sge, 65536, 64);

	wr.wr_id = id;
	wr.wr.rdma.rkey = rkey;
	post_wr(d->qp[0], &wr);
	sim_run_idle(&d->w);
}

static void send_with_invalidate_withdraws_a_bound_key(void **state)
{
	for (uint32_t len = 0; len <= 3 * MTU; len += 3 * MTU) {
		struct duo *d = duo_new();
		struct window w;
		struct ibv_wc wc;
		uint32_t rkey;

		duo_connect(d);
		w = window_new(d, d->w.node[1].pd);
		rkey = window_bind(&w, d->qp[1]);
		write_by_key(d, 0, rkey);
		expect_wc(d, 0, 0, IBV_WC_SUCCESS);
		send_inv(d, 1, rkey, len);
		expect_wc(d, 0, 1, IBV_WC_SUCCESS);
		assert_int_equal(hca_cq_take(d->cq[1], &wc, 1), 1);
		assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV);
		assert_int_equal(wc.invalidated_rkey, rkey);
		assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_RTS);
		write_by_key(d, 2, rkey);
		expect_wc(d, 0, 2, IBV_WC_REM_ACCESS_ERR);
		window_free(&w);
		duo_end(d);
	}
}

/* A window that is bound to nothing has nothing to withdraw: that is no error (IBA 10.6.7.2.6). */
static void send_with_invalidate_of_a_key_that_is_not_bound_does_nothing(void **state)
{
	struct duo *d = duo_new();
	struct window w;

	duo_connect(d);
	w = window_new(d, d->w.node[1].pd);
	send_inv(d, 0, w.mw->ibv.rkey, 64);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_wc(d, 1, 100, IBV_WC_SUCCESS);
	expect_alive(d);
	window_free(&w);
	duo_end(d);
}

static void expect_invalidate_refused(struct duo *d, uint32_t rkey)
{
	send_inv(d, 0, rkey, 64);
	expect_wc(d, 0, 0, IBV_WC_REM_ACCESS_ERR);
	expect_wc(d, 1, 100, IBV_WC_LOC_ACCESS_ERR);
	assert_int_equal(naks(d, 1, AETH_NAK | NAK_ACCESS, 0xff), 1);
	assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
}

static void send_with_invalidate_of_another_domains_key_is_refused(void **state)
{
	struct duo *d = duo_new();
	struct hca_pd *pd = hca_pd_alloc(d->w.node[1].ctx);
	struct window w;

	assert_non_null(pd);
	duo_connect(d);
	w = window_new(d, pd);
	expect_invalidate_refused(d, w.mw->ibv.rkey);
	window_free(&w);
	assert_int_equal(hca_pd_dealloc(pd), 0);
	duo_end(d);
}

static void send_with_invalidate_of_another_queue_pairs_window_is_refused(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2], *mine;
	struct window w;
	uint32_t rkey;

	duo_connect(d);
	duo_more(d, other);
	w = window_new(d, d->w.node[1].pd);
	rkey = window_bind(&w, other[1]);
	expect_invalidate_refused(d, rkey);
	mine = d->qp[0];
	d->qp[0] = other[0]; /* whose it is, it still serves */
	write_by_key(d, 2, rkey);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	d->qp[0] = mine;
	window_free(&w);
	duo_end(d);
}

static void send_with_invalidate_of_a_region_or_of_nothing_is_refused(void **state)
{
	for (int region = 0; region < 2; region++) {
		struct duo *d = duo_new();

		duo_connect(d);
		expect_invalidate_refused(d, d->mr[1]->ibv.rkey ^ (region ? 0 : 1));
		duo_end(d);
	}
}

/* The program takes away what a bind names while the bind waits for its turn: an error, and nothing worse. */
static void bind_of_what_is_gone_by_then_fails(void **state)
{
	for (int window_too = 0; window_too < 2; window_too++) {
		struct duo *d = duo_new();
		struct window w;
		struct ibv_send_wr wr = {.wr_id = 77, .opcode = IBV_WR_BIND_MW};

		duo_connect(d);
		w = window_new(d, d->w.node[1].pd);
		wr.bind_mw.mw = &w.mw->ibv;
		wr.bind_mw.rkey = w.mw->ibv.rkey + 1;
		wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = &w.mr->ibv,
			.addr = (uintptr_t)mem[1] + 65536,
			.length = 4096,
			.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
		post(d, 1, IBV_WR_RDMA_READ, 1, 0, 64);
		wr.send_flags = IBV_SEND_FENCE; /* behind the READ */
		post_wr(d->qp[1], &wr);
		assert_int_equal(hca_mr_dereg(w.mr), 0);
		if (window_too)
			assert_int_equal(hca_mw_dealloc(w.mw), 0);
		sim_run_idle(&d->w);
		expect_wc(d, 1, 1, IBV_WC_SUCCESS);
		expect_wc(d, 1, 77, IBV_WC_MW_BIND_ERR);
		if (!window_too)
			assert_int_equal(hca_mw_dealloc(w.mw), 0);
		duo_end(d);
	}
}

/* ---- a peer that invalidates what is being bound ---- */
enum { ROUNDS = 300000, BINDER = 0x111, PEER = 0x222 };

static void *invalidate_all_the_time(void *arg)
{
	struct window *w = arg;

	for (unsigned i = 0; i < ROUNDS; i++)
		hca_key_invalidate(&w->d->w.node[1].adapter, w->pd, w->mw->ibv.rkey, PEER);
	return NULL;
}

/* Another QP's peer may invalidate a window that is not bound, but never come between the halves of a bind.
 */
static void bind_and_a_strangers_invalidate_may_race(void **state)
{
	struct duo *d = duo_new();
	struct window w = window_new(d, d->w.node[1].pd);
	struct ibv_mw_bind_info info = {.mr = &w.mr->ibv,
		.addr = (uintptr_t)mem[1] + 65536,
		.length = 4096,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct hca_bind bind = hca_bind_of(&w.mw->ibv, w.mw->ibv.rkey, &info);
	pthread_t thread;
	unsigned broken = 0;

	assert_int_equal(pthread_create(&thread, NULL, invalidate_all_the_time, &w), 0);
	for (unsigned i = 0; i < ROUNDS; i++) {
		assert_int_equal(hca_mw_bind(&d->w.node[1].adapter, &bind, BINDER), 0);
		broken += w.mr->key->windows != 1; /* the region must know, or it could go */
		hca_key_invalidate(&d->w.node[1].adapter, w.pd, w.mw->ibv.rkey, BINDER);
		broken += w.mr->key->windows != 0;
	}
	pthread_join(thread, NULL);
	assert_int_equal(broken, 0);
	window_free(&w);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(send_longer_than_the_receive_ends_both_ends),
		cmocka_unit_test(send_longer_than_scattered_entries_together_writes_none_beyond),
		cmocka_unit_test(scattered_receive_with_empty_entries_is_filled_in_order),
		cmocka_unit_test(empty_message_takes_a_receive_of_no_entries),
		cmocka_unit_test(send_with_invalidate_withdraws_a_bound_key),
		cmocka_unit_test(send_with_invalidate_of_a_key_that_is_not_bound_does_nothing),
		cmocka_unit_test(send_with_invalidate_of_another_domains_key_is_refused),
		cmocka_unit_test(send_with_invalidate_of_another_queue_pairs_window_is_refused),
		cmocka_unit_test(send_with_invalidate_of_a_region_or_of_nothing_is_refused),
		cmocka_unit_test(bind_of_what_is_gone_by_then_fails),
		cmocka_unit_test(bind_and_a_strangers_invalidate_may_race),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
