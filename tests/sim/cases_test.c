/* SPDX-License-Identifier: MIT */
/*
 * Single faults and what they must lead to, by name. Two adapters, a queue pair on each, a script that
 * decides on the k-th packet of an operation, and a log of every packet to ask afterwards.
 */
#include "sim_world.h"

#include "ib/ibt.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MEM = 1 << 20, LOG_MAX = 8192, SCRIPT_MAX = 32, MTU = 1024 };

/* The packets of `op` that port `from` sends, numbered from 0: numbers first to last meet this fate. */
struct script {
	unsigned from;
	uint8_t op;
	unsigned first, last;
	enum sim_fate fate;
	unsigned seen;
};

struct logged {
	uint64_t at, arrives;
	unsigned from;
	uint8_t op, syndrome;
	uint32_t psn, len;
	enum sim_fate fate;
	uint8_t bytes[64];
};

struct duo {
	struct sim_world w;
	struct hca_cq *cq[2];
	struct hca_mr *mr[2];
	struct sim_qp_opts opts[2];
	struct hca_qp *qp[2];
	struct script script[SCRIPT_MAX];
	unsigned scripts, logged;
	struct logged log[LOG_MAX];
	struct hca_qp *more[8];
	unsigned nmore;
};

static uint8_t mem[2][MEM] __attribute__((aligned(4096)));

/* ---- the stage ---- */
static enum sim_fate judge(void *arg, const struct sim_packet *p)
{
	struct duo *d = arg;
	enum sim_fate fate = SIM_BY_RULES;

	for (unsigned i = 0; i < d->scripts; i++) {
		struct script *s = &d->script[i];
		unsigned k;

		if (s->from != p->from || s->op != bth_opcode(p->bytes))
			continue;
		k = s->seen++;
		if (k >= s->first && k <= s->last)
			fate = s->fate;
	}
	return fate;
}

static void note(void *arg, const struct sim_packet *p)
{
	struct duo *d = arg;
	struct logged *l = &d->log[d->logged];
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(p->bytes));

	if (getenv("SIM_TRACE"))
		sim_trace_print(stdout, p);
	if (d->logged == LOG_MAX)
		return;
	d->logged++;
	*l = (struct logged){.at = p->at,
		.arrives = p->arrives,
		.from = p->from,
		.op = bth_opcode(p->bytes),
		.psn = bth_psn(p->bytes),
		.len = p->len,
		.fate = p->fate};
	if (op && (op->flags & OPF_AETH))
		l->syndrome = aeth_syndrome(p->bytes + BTH_LEN);
	memcpy(l->bytes, p->bytes, p->len < sizeof(l->bytes) ? p->len : sizeof(l->bytes));
}

static void duo_build(struct duo *d, bool ipv6, unsigned nodes)
{
	static const struct sim_rules calm = {.delay_min = 5 * SIM_US, .delay_max = 5 * SIM_US};

	memset(d, 0, sizeof(*d));
	sim_world_init(&d->w, nodes, 1, ipv6);
	sim_rules_set(d->w.net, &calm);
	sim_judge_set(d->w.net, judge, d);
	sim_trace_set(d->w.net, note, d);
	for (unsigned i = 0; i < 2; i++) {
		d->cq[i] = sim_cq(&d->w.node[i], 1024);
		d->mr[i] = sim_mr(&d->w.node[i], mem[i], MEM, (uintptr_t)mem[i]);
		d->opts[i] = sim_qp_opts(d->cq[i]);
		d->opts[i].psn = 100 + 1000 * i;
		for (unsigned k = 0; k < MEM; k++)
			mem[i][k] = (uint8_t)(k * 7 + (k >> 8) * 3 + i);
	}
}

static struct duo *duo_new(void)
{
	struct duo *d = malloc(sizeof(*d));

	assert_non_null(d);
	duo_build(d, false, 2);
	return d;
}

static void duo_connect(struct duo *d)
{
	for (unsigned i = 0; i < 2; i++)
		d->qp[i] = sim_qp(&d->w.node[i], &d->opts[i]);
	for (unsigned i = 0; i < 2; i++)
		sim_connect(d->qp[i], &d->opts[i], d->qp[!i], &d->opts[!i]);
}

/* A further pair of QPs on the same two adapters. */
static void duo_more(struct duo *d, struct hca_qp *out[2])
{
	for (unsigned i = 0; i < 2; i++)
		out[i] = d->more[d->nmore++] = sim_qp(&d->w.node[i], &d->opts[i]);
	for (unsigned i = 0; i < 2; i++)
		sim_connect(out[i], &d->opts[i], out[!i], &d->opts[!i]);
}

static void duo_end(struct duo *d)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(d->w.node[i].adapter.read_flow->in_flight, 0);
	for (unsigned i = 0; i < d->nmore; i++) {
		if (d->more[i])
			hca_qp_destroy(d->more[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (d->qp[i])
			hca_qp_destroy(d->qp[i]);
		hca_mr_dereg(d->mr[i]);
		hca_cq_destroy(d->cq[i]);
	}
	sim_world_fini(&d->w);
	free(d);
}

static void script(
	struct duo *d, unsigned from, uint8_t op, unsigned first, unsigned last, enum sim_fate fate)
{
	d->script[d->scripts++] = (struct script){from, op, first, last, fate, 0};
}

/* How many packets of this kind were sent. */
static unsigned sent(const struct duo *d, unsigned from, uint8_t op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->logged; i++)
		n += d->log[i].from == from && d->log[i].op == op;
	return n;
}

static const struct logged *nth(const struct duo *d, unsigned from, uint8_t op, unsigned k)
{
	for (unsigned i = 0; i < d->logged; i++) {
		if (d->log[i].from == from && d->log[i].op == op && !k--)
			return &d->log[i];
	}
	fail_msg("no such packet");
	return NULL;
}

static unsigned naks(const struct duo *d, unsigned from, uint8_t syndrome, uint8_t mask)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->logged; i++)
		n += d->log[i].from == from && d->log[i].op == OP_ACK &&
		     (d->log[i].syndrome & mask) == syndrome;
	return n;
}

/* ---- work ---- */
static struct ibv_send_wr request(
	struct duo *d, unsigned side, enum ibv_wr_opcode op, struct ibv_sge *sge, uint32_t off, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = op, .sg_list = sge, .num_sge = 1};

	*sge = (struct ibv_sge){(uintptr_t)mem[side] + off, len, d->mr[side]->ibv.lkey};
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)mem[!side] + off;
		wr.wr.atomic.rkey = d->mr[!side]->ibv.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)mem[!side] + off;
		wr.wr.rdma.rkey = d->mr[!side]->ibv.rkey;
	}
	return wr;
}

static void post_on(struct duo *d, struct hca_qp *qp, unsigned side, enum ibv_wr_opcode op, uint64_t id,
	uint32_t off, uint32_t len, unsigned flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(d, side, op, &sge, off, len), *bad;

	wr.wr_id = id;
	wr.send_flags = flags;
	assert_int_equal(hca_qp_post_send(qp, &wr, &bad), 0);
}

static void post(struct duo *d, unsigned side, enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len)
{
	post_on(d, d->qp[side], side, op, id, off, len, 0);
}

/* n equal requests in one call, at offsets that follow each other. */
static void post_list(struct duo *d, unsigned side, enum ibv_wr_opcode op, unsigned n, uint32_t len)
{
	struct ibv_send_wr wr[64], *bad;
	struct ibv_sge sge[64];

	for (unsigned i = 0; i < n; i++) {
		wr[i] = request(d, side, op, &sge[i], i * ((len + 7) & ~7u), len);
		wr[i].wr_id = i;
		if (i)
			wr[i - 1].next = &wr[i];
	}
	assert_int_equal(hca_qp_post_send(d->qp[side], wr, &bad), 0);
}

static void post_recv(struct duo *d, unsigned side, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)mem[side] + off, len, d->mr[side]->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hca_qp_post_recv(d->qp[side], &wr, &bad), 0);
}

static void expect_wc(struct duo *d, unsigned side, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(hca_cq_take(d->cq[side], &wc, 1), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

static void expect_all(struct duo *d, unsigned side, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		expect_wc(d, side, i, IBV_WC_SUCCESS);
	assert_true(hca_cq_empty(d->cq[side]));
}

static void expect_none(struct duo *d, unsigned side)
{
	assert_true(hca_cq_empty(d->cq[side]));
}

/* A packet made by hand, sent through a port; its sender's address may be anybody's. */
static void forge(struct duo *d, unsigned port, unsigned as, unsigned to, const uint8_t *bytes, uint32_t len)
{
	struct link *l = d->w.node[port].adapter.engine.link;
	struct frame_batch *b = calloc(1, sizeof(*b));

	assert_non_null(b);
	memcpy(b->dest.sgid, d->w.node[as].dev.gid[0].raw, 16);
	memcpy(b->dest.dgid, d->w.node[to].dev.gid[0].raw, 16);
	b->nframes = 1;
	b->frame[0].hdr_len = (uint8_t)len;
	memcpy(b->frame[0].hdr, bytes, len);
	l->ops->send(l, b);
	free(b);
}

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
	assert_int_equal(nth(d, 0, OP_READ_REQUEST, 1)->psn, 101); /* from where it broke */
	assert_int_equal(reth_get(nth(d, 0, OP_READ_REQUEST, 1)->bytes + BTH_LEN).len, 3 * MTU);
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
	assert_int_equal(d->qp[0]->count->timeouts, 1); /* nothing came after it that would have told */
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
	struct sim_rules twice = {.delay_min = 5 * SIM_US,
		.delay_max = 5 * SIM_US,
		.duplicate = SIM_MILLION,
		.late_max = 100 * SIM_US};
	uint64_t before, v;

	d->opts[0].psn = d->opts[1].psn = PSN_MASK - 5;
	duo_connect(d);
	sim_rules_set(d->w.net, &twice);
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

/* ---- receivers that are not ready ---- */
static void rnr_waits_the_timer_the_receiver_named(void **state)
{
	for (unsigned code = 1; code < 32; code++) {
		struct duo *d = duo_new();
		const struct logged *nak;

		d->opts[1].rnr_timer = code;
		duo_connect(d);
		post(d, 0, IBV_WR_SEND, 1, 0, 64);
		sim_run(&d->w, SIM_US * 20);
		nak = nth(d, 1, OP_ACK, 0);
		assert_int_equal(nak->syndrome, AETH_RNR | code);
		assert_int_equal(sent(d, 0, OP_SEND_ONLY), 1);
		post_recv(d, 1, 9, 4096, 64);
		sim_run_idle(&d->w);
		expect_wc(d, 0, 1, IBV_WC_SUCCESS);
		expect_wc(d, 1, 9, IBV_WC_SUCCESS);
		assert_int_equal(sent(d, 0, OP_SEND_ONLY), 2);
		assert_true(nth(d, 0, OP_SEND_ONLY, 1)->at - nak->arrives == ibt_rnr_ns(code));
		duo_end(d);
	}
}

static void rnr_wait_does_not_hold_up_other_queue_pairs(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];

	d->opts[1].rnr_timer = 0; /* 655 ms */
	duo_connect(d);
	duo_more(d, other);
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	sim_run(&d->w, SIM_MS);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 2, 0, 64, 0);
	sim_run(&d->w, 2 * SIM_MS);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	post_recv(d, 1, 9, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

static void rnr_retry_count_ends_in_its_own_error(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].rnr_retry = 3;
	duo_connect(d);
	post(d, 0, IBV_WR_SEND, 0, 0, 64);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64);
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 0, OP_SEND_ONLY), 4);
	expect_wc(d, 0, 0, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_wc(d, 0, 1, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	duo_end(d);
}

/* The peer answers: packets lost between its answers do not add up to a dead connection. */
static void timeouts_between_rnr_naks_do_not_add_up(void **state)
{
	struct duo *d = duo_new();

	d->opts[0].retry = 2;
	duo_connect(d);
	for (unsigned i = 0; i < 10; i++)
		script(d, 0, OP_SEND_ONLY, 2 * i + 1, 2 * i + 1, SIM_LOST); /* every other one */
	post(d, 0, IBV_WR_SEND, 1, 0, 64);
	sim_run(&d->w, 60 * SIM_MS);
	expect_none(d, 0);
	assert_true(d->qp[0]->count->timeouts > 7);
	post_recv(d, 1, 9, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

static void out_of_credits_one_message_at_a_time(void **state)
{
	struct duo *d = duo_new();
	unsigned alone = 0;

	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 1, i, 4096 * (i + 1), 64);
	post(d, 0, IBV_WR_SEND, 0, 0, 64);
	sim_run_idle(&d->w);
	assert_int_equal(nth(d, 1, OP_ACK, 0)->syndrome, AETH_ACK | ibt_credit_encode(2));
	post_list(d, 0, IBV_WR_SEND, 8, 64);
	sim_run(&d->w, sim_now(&d->w) + 100 * SIM_US);
	/* Two receives are left: two messages, their acknowledge, then one to see whether there are more. */
	for (unsigned i = 0; i < d->logged; i++)
		alone += d->log[i].from == 0;
	assert_int_equal(alone, 1 + 2 + 1);
	for (unsigned i = 3; i < 9; i++)
		post_recv(d, 1, i, 4096 * (i + 1), 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_all(d, 0, 8);
	expect_all(d, 1, 9);
	duo_end(d);
}

/* ---- errors ---- */
static void retry_exceeded_flushes_in_order(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		post_recv(d, 0, 100 + i, 4096, 64);
	sim_port_cut(d->w.net, 1, true);
	post_list(d, 0, IBV_WR_RDMA_WRITE, 5, 64);
	sim_run_idle(&d->w);
	assert_int_equal(sent(d, 0, OP_WRITE_ONLY), 5 + 7); /* once, then seven times the first alone */
	expect_wc(d, 0, 0, IBV_WC_RETRY_EXC_ERR);
	for (unsigned i = 1; i < 5; i++)
		expect_wc(d, 0, i, IBV_WC_WR_FLUSH_ERR);
	for (unsigned i = 0; i < 3; i++)
		expect_wc(d, 0, 100 + i, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	assert_int_equal(d->qp[0]->flow->in_flight, 0);
	assert_int_equal(hca_qp_state(d->qp[0]), IBV_QPS_ERR);
	post(d, 0, IBV_WR_RDMA_WRITE, 5, 0, 64);
	expect_wc(d, 0, 5, IBV_WC_WR_FLUSH_ERR);
	duo_end(d);
}

static unsigned events(struct sim_node *n, enum ibv_event_type type)
{
	unsigned count = 0;

	while (!list_empty(&n->ctx->async.events)) {
		struct ibv_async_event ev;

		assert_int_equal(hca_async_get(n->ctx, &ev), 0);
		count += ev.event_type == type;
		hca_async_ack(&ev);
	}
	return count;
}

static void two_writes_with_a_wrong_key_kill_one_queue_pair_once(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];

	duo_connect(d);
	duo_more(d, other);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, 64);
	d->mr[1]->ibv.rkey ^= 1;
	post_list(d, 0, IBV_WR_RDMA_WRITE, 2, 64);
	d->mr[1]->ibv.rkey ^= 1;
	post_recv(d, 1, 50, 4096, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_wc(d, 0, 0, IBV_WC_REM_ACCESS_ERR);
	expect_wc(d, 0, 1, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 0);
	expect_wc(d, 1, 50, IBV_WC_WR_FLUSH_ERR);
	expect_none(d, 1);
	assert_int_equal(naks(d, 1, AETH_NAK | NAK_ACCESS, 0xff), 1);
	assert_int_equal(events(&d->w.node[1], IBV_EVENT_QP_ACCESS_ERR), 1);
	assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 3, 128, 64, 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 3, IBV_WC_SUCCESS);
	duo_end(d);
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

static void region_gone_in_mid_read_is_refused(void **state)
{
	struct duo *d = duo_new();

	duo_connect(d);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_READ, 0, 0, 4 * MTU);
	sim_run(&d->w, SIM_MS);
	hca_mr_dereg(d->mr[1]);
	d->mr[1] = sim_mr(&d->w.node[1], mem[1], MEM, (uintptr_t)mem[1]);
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_REM_ACCESS_ERR);
	duo_end(d);
}

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

/* ---- strangers ---- */
static void packet_from_a_stranger_is_dropped_and_counted(void **state)
{
	struct duo *d = malloc(sizeof(*d));
	uint8_t p[BTH_LEN + RETH_LEN];

	assert_non_null(d);
	duo_build(d, false, 3);
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

/* ---- depth and order ---- */
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

/* ---- flows ---- */
static void paused_receiver_costs_no_packet(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *more[3][2];

	d->opts[0].timeout = 14; /* 67 ms */
	d->opts[0].mtu = d->opts[1].mtu = IBV_MTU_4096;
	duo_connect(d);
	for (unsigned i = 0; i < 3; i++)
		duo_more(d, more[i]);
	sim_port_buffer(d->w.net, 1, FLOW_RCVBUF);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, MEM);
	for (unsigned i = 0; i < 3; i++)
		post_on(d, more[i][0], 0, IBV_WR_RDMA_WRITE, 0, 0, MEM, 0);
	sim_run(&d->w, 20 * SIM_MS);
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < 4; i++)
		expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	assert_int_equal(sim_count(d->w.net, SIM_OVERRUN), 0);
	assert_int_equal(d->qp[0]->count->retransmits, 0);
	assert_true(sim_port_peak(d->w.net, 1) < FLOW_RCVBUF);
	duo_end(d);
}

/* Datagrams nobody asked an echo for must not keep a window shut that shrank behind them. */
static void datagrams_do_not_shut_the_window_for_ever(void **state)
{
	struct duo *d = duo_new();
	struct sim_qp_opts ud = d->opts[0];
	struct hca_ah *ah = sim_ah(&d->w.node[0], &d->w.node[1]);
	struct hca_qp *qp;

	duo_connect(d);
	ud.type = IBV_QPT_UD;
	qp = d->more[d->nmore++] = sim_qp(&d->w.node[0], &ud);
	sim_connect(qp, &ud, NULL, NULL);
	for (unsigned i = 0; i < 30; i++) {
		struct ibv_sge sge;
		struct ibv_send_wr wr = request(d, 0, IBV_WR_SEND, &sge, 0, MTU), *bad;

		wr.wr.ud.ah = &ah->ibv;
		wr.wr.ud.remote_qpn = hca_qpn(d->qp[1]);
		assert_int_equal(hca_qp_post_send(qp, &wr, &bad), 0);
	}
	sim_run_idle(&d->w);
	for (unsigned i = 0; i < 30; i++)
		expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	for (unsigned i = 1; i < 9; i++)
		hca_flow_loss(d->qp[0]->flow, i * SIM_S);
	assert_int_equal(d->qp[0]->flow->window, FLOW_WINDOW_MIN);
	post(d, 0, IBV_WR_RDMA_WRITE, 1, 0, 64 * MTU);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	sim_ah_free(ah);
	duo_end(d);
}

/* What a QP that is taken away had in flight is room for others. */
static void destroyed_queue_pair_gives_its_window_back(void **state)
{
	struct duo *d;
	struct hca_qp *other[2];

	d = duo_new();
	duo_connect(d);
	duo_more(d, other);
	sim_port_pause(d->w.net, 1, true);
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, MEM);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 1, 0, MEM, 0);
	sim_run(&d->w, SIM_MS);
	hca_qp_destroy(d->qp[0]);
	d->qp[0] = NULL;
	sim_port_pause(d->w.net, 1, false);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

/* The peer's QP is gone and its requests fill the window; another pair of the same two processes goes on. */
static void healthy_queue_pair_is_not_held_up_by_a_dead_one(void **state)
{
	struct duo *d = duo_new();
	struct hca_qp *other[2];

	duo_connect(d);
	duo_more(d, other);
	hca_qp_destroy(d->qp[1]);
	d->qp[1] = NULL;
	post(d, 0, IBV_WR_RDMA_WRITE, 0, 0, MEM);
	post_on(d, other[0], 0, IBV_WR_RDMA_WRITE, 1, 0, 4 * MTU, 0);
	post_on(d, other[0], 0, IBV_WR_RDMA_READ, 2, 0, 4 * MTU, 0);
	sim_run(&d->w, sim_now(&d->w) + SIM_MS);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_RETRY_EXC_ERR);
	duo_end(d);
}

static void local_error_in_mid_message_gives_its_window_back(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[2];
	struct ibv_send_wr wr, *bad;
	struct hca_flow *flow;

	d->opts[0].sge = 2;
	duo_connect(d);
	flow = d->qp[0]->flow;
	wr = request(d, 0, IBV_WR_RDMA_WRITE, &sge[0], 0, 16 * MTU);
	sge[1] = (struct ibv_sge){.addr = 4096, .length = 64, .lkey = sge[0].lkey + 1};
	wr.num_sge = 2;
	assert_int_equal(hca_qp_post_send(d->qp[0], &wr, &bad), 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, wr.wr_id, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(flow->in_flight, 0);
	duo_end(d);
}

static void read_before_a_refused_write_is_answered(void **state)
{
	struct duo *d = duo_new();
	struct ibv_sge sge[2];
	struct ibv_send_wr wr[2], *bad;

	duo_connect(d);
	for (unsigned i = 0; i < 2; i++) {
		wr[i] = request(d, 0, i ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ, &sge[i], 0, 4 * MTU);
		wr[i].wr_id = i;
	}
	wr[0].next = &wr[1];
	wr[1].wr.rdma.rkey++;
	assert_int_equal(hca_qp_post_send(d->qp[0], wr, &bad), 0);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0, IBV_WC_SUCCESS);
	expect_wc(d, 0, 1, IBV_WC_REM_ACCESS_ERR);
	duo_end(d);
}

/* ---- unreliable ---- */
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
		struct duo *d = malloc(sizeof(*d));
		struct hca_ah *ah;
		struct ibv_sge sge;
		struct ibv_send_wr wr, *bad;
		struct ibv_wc wc;

		assert_non_null(d);
		duo_build(d, ipv6, 2);
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
		cmocka_unit_test(read_replayed_after_lost_response),
		cmocka_unit_test(read_asked_again_after_lost_last_response),
		cmocka_unit_test(read_responses_reordered_are_put_in_place),
		cmocka_unit_test(atomic_answered_from_saved_result_after_lost_ack),
		cmocka_unit_test(as_many_saved_atomics_as_the_depth),
		cmocka_unit_test(coalesced_ack_lost),
		cmocka_unit_test(late_acks_and_acks_of_the_future_are_ignored),
		cmocka_unit_test(nak_sequence_sent_once_per_gap),
		cmocka_unit_test(lost_nak_is_made_up_for_by_the_timer),
		cmocka_unit_test(corrupted_packet_counts_as_bad_icrc),
		cmocka_unit_test(psn_wraps_with_duplicates_on_both_sides),
		cmocka_unit_test(rnr_waits_the_timer_the_receiver_named),
		cmocka_unit_test(rnr_wait_does_not_hold_up_other_queue_pairs),
		cmocka_unit_test(rnr_retry_count_ends_in_its_own_error),
		cmocka_unit_test(timeouts_between_rnr_naks_do_not_add_up),
		cmocka_unit_test(out_of_credits_one_message_at_a_time),
		cmocka_unit_test(retry_exceeded_flushes_in_order),
		cmocka_unit_test(two_writes_with_a_wrong_key_kill_one_queue_pair_once),
		cmocka_unit_test(send_longer_than_the_receive_ends_both_ends),
		cmocka_unit_test(region_gone_in_mid_read_is_refused),
		cmocka_unit_test(out_of_place_packets_are_refused),
		cmocka_unit_test(unknown_and_short_packets_are_dropped),
		cmocka_unit_test(packet_from_a_stranger_is_dropped_and_counted),
		cmocka_unit_test(late_packets_find_no_queue_pair),
		cmocka_unit_test(read_depth_is_never_exceeded),
		cmocka_unit_test(duplicate_reads_do_not_crowd_out_new_ones),
		cmocka_unit_test(fence_waits_for_reads),
		cmocka_unit_test(paused_receiver_costs_no_packet),
		cmocka_unit_test(datagrams_do_not_shut_the_window_for_ever),
		cmocka_unit_test(destroyed_queue_pair_gives_its_window_back),
		cmocka_unit_test(healthy_queue_pair_is_not_held_up_by_a_dead_one),
		cmocka_unit_test(local_error_in_mid_message_gives_its_window_back),
		cmocka_unit_test(read_before_a_refused_write_is_answered),
		cmocka_unit_test(uc_message_with_a_hole_is_lost_alone),
		cmocka_unit_test(ud_carries_forty_bytes_in_front),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
