/* SPDX-License-Identifier: MIT */
/*
 * What the random test found (sim_test.c), boiled down to the few packets it takes. Two adapters, a queue
 * pair on each, and a judge that loses what the case says.
 */
#include "sim_world.h"

#include "hca/flow.h"
#include "ib/ibt.h"

#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MEM = 16384 };

struct duo {
	struct sim_world w;
	struct hca_cq *cq[2];
	struct hca_mr *mr[2], *big;
	struct hca_mw *mw; /* of the side that binds it */
	struct sim_qp_opts opts[2];
	struct hca_qp *qp[2];
	uint8_t lose; /* packets with this opcode are lost */
};

static uint8_t mem[2][MEM] __attribute__((aligned(4096)));
static uint8_t big[1 << 20]; /* more than a window holds */

static enum sim_fate judge(void *arg, const struct sim_packet *p)
{
	const struct duo *d = arg;

	return d->lose && bth_opcode(p->bytes) == d->lose ? SIM_LOST : SIM_BY_RULES;
}

static void duo_init(struct duo *d, enum ibv_qp_type type)
{
	static const struct sim_rules calm = {.delay_min = 5 * SIM_US, .delay_max = 5 * SIM_US};

	memset(d, 0, sizeof(*d));
	sim_world_init(&d->w, 2, 1, false);
	sim_rules_set(d->w.net, &calm);
	sim_judge_set(d->w.net, judge, d);
	for (unsigned i = 0; i < 2; i++) {
		d->cq[i] = sim_cq(&d->w.node[i], 64);
		d->mr[i] = hca_mr_reg(
			d->w.node[i].pd, mem[i], MEM, (uintptr_t)mem[i], SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
		assert_non_null(d->mr[i]);
		d->opts[i] = sim_qp_opts(d->cq[i]);
		d->opts[i].type = type;
		d->qp[i] = sim_qp(&d->w.node[i], &d->opts[i]);
	}
	d->big = sim_mr(&d->w.node[0], big, sizeof(big), (uintptr_t)big);
	for (unsigned i = 0; i < 2; i++)
		sim_connect(d->qp[i], &d->opts[i], d->qp[!i], &d->opts[!i]);
}

static void duo_fini(struct duo *d)
{
	if (d->mw)
		hca_mw_dealloc(d->mw);
	hca_mr_dereg(d->big);
	for (unsigned i = 0; i < 2; i++) {
		hca_qp_destroy(d->qp[i]);
		hca_mr_dereg(d->mr[i]);
		hca_cq_destroy(d->cq[i]);
	}
	sim_world_fini(&d->w);
}

/* Side 0 asks side 1 for something. */
static void post(struct duo *d, uint64_t id, enum ibv_wr_opcode op, uint32_t len, uint32_t rkey)
{
	struct ibv_sge sge = {(uintptr_t)mem[0], len, d->mr[0]->ibv.lkey};
	struct ibv_send_wr wr = {.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1}, *bad;

	wr.wr.rdma.remote_addr = (uintptr_t)mem[1];
	wr.wr.rdma.rkey = rkey;
	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
}

/* Side i binds all of its memory to a window. */
static uint32_t bind_all(struct duo *d, unsigned i, uint64_t id)
{
	struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_BIND_MW}, *bad;

	d->mw = hca_mw_alloc(d->w.node[i].pd, IBV_MW_TYPE_2);
	assert_non_null(d->mw);
	wr.bind_mw.mw = &d->mw->ibv;
	wr.bind_mw.rkey = ibv_inc_rkey(d->mw->ibv.rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		&d->mr[i]->ibv, (uintptr_t)mem[i], MEM, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	assert_int_equal(hca_qp_post_send(d->qp[i], &wr, &bad), 0);
	return wr.bind_mw.rkey;
}

static void post_inv(struct duo *d, uint64_t id, uint32_t rkey)
{
	struct ibv_send_wr wr = {.wr_id = id, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = rkey}, *bad;

	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
}

static void receive(struct duo *d, unsigned i, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)mem[i], MEM, d->mr[i]->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hca_qp_post_recv(d->qp[i], &wr, &bad), 0);
}

static void expect(struct duo *d, unsigned side, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(hca_cq_take(d->cq[side], &wc, 1), 1);
	assert_int_equal(wc.wr_id, id);
	assert_string_equal(ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
}

/*
 * The NAK of a later request comes through, the response of a READ before it does not, and will not: the
 * peer is in error by now. The READ was not refused.
 */
static void nak_behind_a_lost_response_does_not_blame_the_read(void **state)
{
	struct duo d;

	duo_init(&d, IBV_QPT_RC);
	d.lose = IBT_RC | OP_READ_RESP_ONLY;
	post(&d, 1, IBV_WR_RDMA_READ, 100, d.mr[1]->ibv.rkey);
	post(&d, 2, IBV_WR_RDMA_WRITE, 100, d.mr[1]->ibv.rkey ^ 1);
	sim_run_idle(&d.w);
	expect(&d, 0, 1, IBV_WC_WR_FLUSH_ERR);
	expect(&d, 0, 2, IBV_WC_REM_ACCESS_ERR);
	duo_fini(&d);
}

/*
 * A request without packets lies between one that is sent again and one that is refused, whose NAK was late:
 * it was done long ago.
 */
static void nak_behind_a_bind_does_not_blame_the_bind(void **state)
{
	struct duo d;

	duo_init(&d, IBV_QPT_RC);
	receive(&d, 1, 10);
	post(&d, 1, IBV_WR_SEND, 100, 0);
	bind_all(&d, 0, 2);
	post(&d, 3, IBV_WR_RDMA_WRITE, 100, d.mr[1]->ibv.rkey ^ 1);
	sim_port_pause(d.w.net, 0, true);
	sim_run(&d.w, 6 * SIM_MS); /* the ACK timer rings at 4 ms: the SEND goes again, alone */
	sim_port_pause(d.w.net, 0, false);
	sim_run_idle(&d.w);
	expect(&d, 0, 1, IBV_WC_SUCCESS);
	expect(&d, 0, 2, IBV_WC_SUCCESS);
	expect(&d, 0, 3, IBV_WC_REM_ACCESS_ERR);
	duo_fini(&d);
}

/*
 * A READ was asked for twice, and the first answer came after all. The program gives the window back,
 * rightly: its READ is done. The second request and the SEND that invalidates arrive together.
 */
static void duplicate_read_of_a_window_that_ends_harms_nobody(void **state)
{
	struct duo d;
	uint32_t rkey;

	duo_init(&d, IBV_QPT_RC);
	rkey = bind_all(&d, 1, 1);
	receive(&d, 1, 10);
	post(&d, 2, IBV_WR_RDMA_READ, 100, rkey);
	sim_port_pause(d.w.net, 0, true);
	sim_run(&d.w, SIM_MS); /* answered, but the answer waits */
	sim_port_pause(d.w.net, 1, true);
	sim_run(&d.w, 6 * SIM_MS); /* asked again */
	sim_port_pause(d.w.net, 0, false);
	sim_run(&d.w, 7 * SIM_MS);
	expect(&d, 0, 2, IBV_WC_SUCCESS);
	post_inv(&d, 3, rkey);
	sim_run(&d.w, 8 * SIM_MS);
	sim_port_pause(d.w.net, 1, false);
	sim_run_idle(&d.w);
	expect(&d, 0, 3, IBV_WC_SUCCESS);
	expect(&d, 1, 1, IBV_WC_SUCCESS);
	expect(&d, 1, 10, IBV_WC_SUCCESS);
	duo_fini(&d);
}

/* UC: the second packet of a message finds no memory, and the queue is being drained by then. */
static void local_error_while_draining_ends_in_sqe(void **state)
{
	static const struct ibv_qp_attr sqd = {.qp_state = IBV_QPS_SQD};
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = {.wr_id = 1, .opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2}, *bad;
	struct duo d;

	duo_init(&d, IBV_QPT_UC);
	sge[0] = (struct ibv_sge){(uintptr_t)big, sizeof(big), d.big->ibv.lkey};
	sge[1] = (struct ibv_sge){(uintptr_t)big, 1, d.big->ibv.lkey ^ 1};
	assert_int_equal(hca_qp_post_send(d.qp[0], &wr, &bad), 0); /* waits in its middle */
	assert_int_equal(hca_qp_modify(d.qp[0], &sqd, IBV_QP_STATE), 0);
	sim_run_idle(&d.w);
	expect(&d, 0, 1, IBV_WC_LOC_PROT_ERR);
	hca_qp_query(d.qp[0], &attr, &init);
	assert_int_equal(attr.qp_state, IBV_QPS_SQE);
	duo_fini(&d);
}

static void post_read(struct duo *d, uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)mem[0], 100, d->mr[0]->ibv.lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = id,
					 .opcode = IBV_WR_RDMA_READ,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {(uintptr_t)mem[1], d->mr[1]->ibv.rkey}};

	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
}

/*
 * Responses that are asked for again are charged without asking, which can overdraw the window of all READs.
 * The probe of a connection whose timer runs must not wait for that.
 */
static void probe_goes_out_though_the_window_is_overdrawn(void **state)
{
	struct hca_flow *reads;
	struct duo d;

	duo_init(&d, IBV_QPT_RC);
	reads = d.w.node[0].adapter.read_flow;
	post_read(&d, 1); /* tells how long a round trip takes */
	sim_run_idle(&d.w);
	expect(&d, 0, 1, IBV_WC_SUCCESS);

	d.lose = IBT_RC | OP_READ_RESP_ONLY;
	post_read(&d, 2);
	sim_run(&d.w, sim_now(&d.w) + 20 * SIM_US);
	d.lose = 0;
	hca_flow_charge(reads, 2 * FLOW_WINDOW);
	sim_run_idle(&d.w);
	expect(&d, 0, 2, IBV_WC_SUCCESS);
	hca_flow_cancel(reads, 2 * FLOW_WINDOW);
	duo_fini(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nak_behind_a_lost_response_does_not_blame_the_read),
		cmocka_unit_test(nak_behind_a_bind_does_not_blame_the_bind),
		cmocka_unit_test(duplicate_read_of_a_window_that_ends_harms_nobody),
		cmocka_unit_test(local_error_while_draining_ends_in_sqe),
		cmocka_unit_test(probe_goes_out_though_the_window_is_overdrawn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
