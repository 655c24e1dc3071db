/* SPDX-License-Identifier: MIT */
/* Memory windows: what may be bound to what, and through which queue pair a window is open. */
#include "duo.h"

#include <errno.h>

enum { AT = 65536, LEN = 4096, ID = 77 };

/* A region of side 1's and a window, both in the domain of side 1's queue pairs unless a test says otherwise.
 */
struct window {
	struct duo *d;
	struct hca_mr *mr;
	struct hca_mw *mw;
};

static struct window window_new(enum ibv_mw_type type, struct hca_pd *pd, unsigned access)
{
	struct window w = {.d = duo_new()};

	duo_connect(w.d);
	w.mr = hca_mr_reg(pd ? pd : w.d->w.node[1].pd, mem[1] + AT, LEN, (uintptr_t)mem[1] + AT, access);
	w.mw = hca_mw_alloc(w.d->w.node[1].pd, type);
	assert_non_null(w.mr);
	assert_non_null(w.mw);
	return w;
}

static struct window bindable(enum ibv_mw_type type)
{
	return window_new(type, NULL, SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
}

static void window_end(struct window *w)
{
	assert_int_equal(hca_mw_dealloc(w->mw), 0);
	assert_int_equal(hca_mr_dereg(w->mr), 0);
	duo_end(w->d);
}

/* Binds [off, off + len) of the region by a request of this queue pair: the window's key is then the next. */
static uint32_t bind_to(struct window *w, struct hca_qp *qp, int off, uint32_t len, unsigned access,
	enum ibv_wc_status status)
{
	struct ibv_mw_bind_info info = {&w->mr->ibv, (uintptr_t)mem[1] + AT + off, len, access};
	struct ibv_mw_bind by_call = {.wr_id = ID, .send_flags = IBV_SEND_SIGNALED, .bind_info = info};
	struct ibv_send_wr wr = {.wr_id = ID, .opcode = IBV_WR_BIND_MW};

	wr.bind_mw.mw = &w->mw->ibv;
	wr.bind_mw.rkey = ibv_inc_rkey(w->mw->ibv.rkey);
	wr.bind_mw.bind_info = info;
	if (w->mw->ibv.type == IBV_MW_TYPE_1)
		assert_int_equal(hca_qp_bind_mw(qp, &w->mw->ibv, &by_call), 0);
	else
		post_wr(qp, &wr);
	sim_run_idle(&w->d->w);
	expect_wc(w->d, 1, ID, status);
	return w->mw->ibv.type == IBV_MW_TYPE_1 ? w->mw->ibv.rkey : wr.bind_mw.rkey;
}

/* A WRITE by the other end of one of side 1's queue pairs. */
static void write_by(struct window *w, struct hca_qp *qp, uint32_t rkey, enum ibv_wc_status status)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(w->d, 0, IBV_WR_RDMA_WRITE, &sge, AT, 64);

	wr.wr_id = 1;
	wr.wr.rdma.rkey = rkey;
	memset(mem[1] + AT, 0, 64);
	post_wr(qp, &wr);
	sim_run_idle(&w->d->w);
	expect_wc(w->d, 0, 1, status);
	assert_int_equal(!memcmp(mem[0] + AT, mem[1] + AT, 64), status == IBV_WC_SUCCESS);
}

/* ---- through which queue pair ---- */
static void type_2_window_is_open_through_its_queue_pair_alone(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_2);
	struct hca_qp *other[2];
	uint32_t rkey;

	duo_more(w.d, other);
	rkey = bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	write_by(&w, other[0], rkey, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(hca_qp_state(other[1]), IBV_QPS_ERR);
	write_by(&w, w.d->qp[0], rkey, IBV_WC_SUCCESS);
	window_end(&w);
}

static void type_1_window_is_open_through_every_queue_pair(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_1);
	struct hca_qp *other[2];
	uint32_t rkey;

	duo_more(w.d, other);
	rkey = bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	write_by(&w, other[0], rkey, IBV_WC_SUCCESS);
	write_by(&w, w.d->qp[0], rkey, IBV_WC_SUCCESS);
	window_end(&w);
}

/* ---- again ---- */
static void type_2_window_is_bound_once(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_2);
	struct hca_qp *other[2];
	uint32_t rkey;

	duo_more(w.d, other);
	rkey = bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	bind_to(&w, other[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_MW_BIND_ERR);
	assert_int_equal(hca_qp_state(other[1]), IBV_QPS_ERR);
	write_by(&w, w.d->qp[0], rkey, IBV_WC_SUCCESS); /* the first stands */
	window_end(&w);
}

static void type_1_window_bound_again_leaves_its_old_key(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_1);
	uint32_t old = bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	uint32_t rkey = bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);

	write_by(&w, w.d->qp[0], rkey, IBV_WC_SUCCESS);
	write_by(&w, w.d->qp[0], old, IBV_WC_REM_ACCESS_ERR);
	window_end(&w);
}

static void window_bound_to_no_bytes_is_closed(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_1);
	uint32_t rkey;

	bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	rkey = bind_to(&w, w.d->qp[1], 0, 0, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	write_by(&w, w.d->qp[0], rkey, IBV_WC_REM_ACCESS_ERR);
	window_end(&w);
}

/* ---- to what ---- */
static void refused(struct window w, int off, uint32_t len, unsigned access)
{
	bind_to(&w, w.d->qp[1], off, len, access, IBV_WC_MW_BIND_ERR);
	assert_int_equal(hca_qp_state(w.d->qp[1]), IBV_QPS_ERR);
	assert_int_equal(w.mr->key->windows, 0);
	window_end(&w);
}

static void window_stays_inside_its_region(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_2);

	bind_to(&w, w.d->qp[1], 1, LEN - 1, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	window_end(&w);
	refused(bindable(IBV_MW_TYPE_2), 0, LEN + 1, IBV_ACCESS_REMOTE_WRITE);
	refused(bindable(IBV_MW_TYPE_2), 1, LEN, IBV_ACCESS_REMOTE_WRITE);
	refused(bindable(IBV_MW_TYPE_2), -1, LEN, IBV_ACCESS_REMOTE_WRITE);
	refused(bindable(IBV_MW_TYPE_2), LEN, 1, IBV_ACCESS_REMOTE_WRITE);
}

static void region_must_allow_windows(void **state)
{
	for (enum ibv_mw_type type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++)
		refused(window_new(type, NULL, SIM_ALL_ACCESS), 0, LEN, IBV_ACCESS_REMOTE_READ);
}

/* Whoever may not write to it may not let others write to it either (IBA 10.6.7.2.1). */
static void region_that_is_not_written_has_no_window_to_write_by(void **state)
{
	unsigned read_only = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_MW_BIND;
	struct window w = window_new(IBV_MW_TYPE_2, NULL, read_only);

	bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);
	window_end(&w);
	refused(window_new(IBV_MW_TYPE_2, NULL, read_only), 0, LEN, IBV_ACCESS_REMOTE_WRITE);
	refused(window_new(IBV_MW_TYPE_2, NULL, read_only), 0, LEN, IBV_ACCESS_REMOTE_ATOMIC);
}

static void window_and_region_are_of_one_domain(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_2);
	struct hca_pd *pd = hca_pd_alloc(w.d->w.node[1].ctx);

	assert_int_equal(hca_mr_dereg(w.mr), 0);
	w.mr = hca_mr_reg(pd, mem[1] + AT, LEN, (uintptr_t)mem[1] + AT, SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	assert_non_null(w.mr);
	bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_MW_BIND_ERR);
	assert_int_equal(hca_mw_dealloc(w.mw), 0);
	assert_int_equal(hca_mr_dereg(w.mr), 0);
	assert_int_equal(hca_pd_dealloc(pd), 0);
	duo_end(w.d);
}

static void window_gives_the_rights_it_was_bound_with(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_2);
	uint32_t rkey = bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);

	write_by(&w, w.d->qp[0], rkey, IBV_WC_REM_ACCESS_ERR);
	window_end(&w);
}

static void region_stays_while_a_window_is_bound_to_it(void **state)
{
	struct window w = bindable(IBV_MW_TYPE_2);

	bind_to(&w, w.d->qp[1], 0, LEN, IBV_ACCESS_REMOTE_WRITE, IBV_WC_SUCCESS);
	assert_int_equal(hca_mr_dereg(w.mr), EBUSY);
	assert_int_equal(
		hca_mr_rereg(w.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), EBUSY);
	window_end(&w);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(type_2_window_is_open_through_its_queue_pair_alone),
		cmocka_unit_test(type_1_window_is_open_through_every_queue_pair),
		cmocka_unit_test(type_2_window_is_bound_once),
		cmocka_unit_test(type_1_window_bound_again_leaves_its_old_key),
		cmocka_unit_test(window_bound_to_no_bytes_is_closed),
		cmocka_unit_test(window_stays_inside_its_region),
		cmocka_unit_test(region_must_allow_windows),
		cmocka_unit_test(region_that_is_not_written_has_no_window_to_write_by),
		cmocka_unit_test(window_and_region_are_of_one_domain),
		cmocka_unit_test(window_gives_the_rights_it_was_bound_with),
		cmocka_unit_test(region_stays_while_a_window_is_bound_to_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
