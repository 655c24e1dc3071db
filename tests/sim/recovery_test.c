/* SPDX-License-Identifier: MIT */
/*
 * Loss and what it costs. Two adapters, a queue pair on each, a wire of 2.5 GB/s and 10 us; the spec's timer
 * at 67 ms and seven retries, as programs usually have it. Streams of 1 MiB requests on a path that loses
 * packets at random, and single losses by name: none of them may wait for the spec's timer.
 *
 * RECOVERY_TABLE=1 prints the bandwidths. With --digest (replay.sh) streams of one seed are enough.
 */
#include "seeds.h"
#include "sim_world.h"

#include "ib/ibt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MIB = 1 << 20, DEPTH = 8, LAST = 16, SEEDS = RECOVERY_SEEDS, MTU = 4096 };

struct pair {
	struct sim_world w;
	struct hca_cq *cq[2];
	struct hca_mr *mr[2];
	struct hca_qp *qp[2];
	/* packets to lose: the count-th from now of those from this port with this operation and kind of AETH
	 */
	struct kill {
		unsigned from, op, nth, times;
		uint8_t syndrome;
	} kill[8];
	unsigned kills;
	unsigned sent[2][256]; /* by operation */
	uint64_t done_at;      /* when the last request was */
};

static uint8_t mem[2][DEPTH * MIB] __attribute__((aligned(4096)));
static const struct sim_rules wire = {.delay_min = 10 * SIM_US, .delay_max = 10 * SIM_US, .rate = 2500};

/* ---- the stage ---- */
static bool matches(const struct kill *k, const struct sim_packet *p)
{
	if (k->from != p->from || k->op != bth_opcode(p->bytes))
		return false;
	return k->op != OP_ACK || (aeth_syndrome(p->bytes + BTH_LEN) & AETH_TYPE_MASK) == k->syndrome;
}

static enum sim_fate judge(void *arg, const struct sim_packet *p)
{
	struct pair *t = arg;
	enum sim_fate fate = SIM_BY_RULES;

	t->sent[p->from][bth_opcode(p->bytes)]++;
	for (unsigned i = 0; i < t->kills; i++) {
		struct kill *k = &t->kill[i];

		if (!k->times || !matches(k, p))
			continue;
		if (k->nth) {
			k->nth--;
			continue;
		}
		k->times--;
		fate = SIM_LOST;
	}
	return fate;
}

/* What requests name memory by: the same in every process. */
static uint64_t iova(unsigned i, uint32_t off)
{
	return (i + 1) * 0x100000000ull + off;
}

static struct pair *pair_new(uint64_t seed, const struct sim_rules *rules)
{
	struct pair *t = calloc(1, sizeof(*t));
	struct sim_qp_opts o[2];

	assert_non_null(t);
	sim_world_init(&t->w, 2, seed, false);
	sim_rules_set(t->w.net, rules);
	sim_judge_set(t->w.net, judge, t);
	sim_watch(&t->w);
	for (unsigned i = 0; i < 2; i++) {
		t->cq[i] = sim_cq(&t->w.node[i], 1024);
		t->mr[i] = sim_mr(&t->w.node[i], mem[i], sizeof(mem[i]), iova(i, 0));
		o[i] = sim_qp_opts(t->cq[i]);
		o[i].mtu = IBV_MTU_4096;
		o[i].timeout = 14;
		t->qp[i] = sim_qp(&t->w.node[i], &o[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		sim_connect(t->qp[i], &o[i], t->qp[!i], &o[!i]);
	for (unsigned k = 0; k < sizeof(mem[0]) / 4; k++) {
		((uint32_t *)mem[0])[k] = k * 2654435761u + (uint32_t)seed;
		((uint32_t *)mem[1])[k] = ~((uint32_t *)mem[0])[k];
	}
	return t;
}

static void pair_end(struct pair *t)
{
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(t->qp[i]->path.flow->in_flight, 0);
		assert_int_equal(t->w.node[i].adapter.read_flow->in_flight, 0);
		hca_qp_destroy(t->qp[i]);
		hca_mr_dereg(t->mr[i]);
		hca_cq_destroy(t->cq[i]);
	}
	sim_world_fini(&t->w);
	free(t);
}

static void lose(struct pair *t, unsigned from, unsigned op, unsigned nth, unsigned times)
{
	t->kill[t->kills++] = (struct kill){from, op, nth, times, 0};
}

static void lose_ack(struct pair *t, uint8_t type, unsigned nth, unsigned times)
{
	t->kill[t->kills++] = (struct kill){1, OP_ACK, nth, times, type};
}

static void post(struct pair *t, enum ibv_wr_opcode op, unsigned id, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = {iova(0, off), len, t->mr[0]->ibv.lkey};
	struct ibv_send_wr wr = {.wr_id = id, .opcode = op, .sg_list = &sge, .num_sge = 1}, *bad;

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = iova(1, off);
		wr.wr.atomic.rkey = t->mr[1]->ibv.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = iova(1, off);
		wr.wr.rdma.rkey = t->mr[1]->ibv.rkey;
	}
	assert_int_equal(hca_qp_post_send(t->qp[0], &wr, &bad), 0);
}

static void post_recv(struct pair *t, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = {iova(1, off), len, t->mr[1]->ibv.lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hca_qp_post_recv(t->qp[1], &wr, &bad), 0);
}

/* Steps until a request is done; when that was (a step ends where the next one begins). */
static uint64_t wait_for(struct pair *t, unsigned id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	while (!hca_cq_take(t->cq[0], &wc, 1)) {
		t->done_at = sim_now(&t->w);
		sim_step(&t->w, t->done_at + SIM_S);
		assert_true(t->done_at < 100 * SIM_S);
	}
	sim_note_wc(&wc);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
	return t->done_at;
}

static uint64_t wait_one(struct pair *t, unsigned id)
{
	return wait_for(t, id, IBV_WC_SUCCESS);
}

/* ---- streams ---- */
/* Bytes per us of a stream of requests of 1 MiB, DEPTH of them at a time. */
static double stream(enum ibv_wr_opcode op, uint32_t loss, uint64_t seed)
{
	struct sim_rules rules = wire;
	struct pair *t;
	uint64_t from, at = 0;

	rules.loss = loss;
	t = pair_new(seed, &rules);
	from = sim_now(&t->w);
	for (unsigned i = 0; i < LAST + DEPTH; i++) {
		uint32_t off = i % DEPTH * MIB;

		if (i >= DEPTH)
			at = wait_one(t, i - DEPTH);
		if (i >= LAST)
			continue;
		if (op == IBV_WR_SEND)
			post_recv(t, off, MIB);
		post(t, op, i, off, MIB);
	}
	sim_run_idle(&t->w);
	assert_memory_equal(mem[0], mem[1], sizeof(mem[0]));
	pair_end(t);
	return (double)LAST * MIB * 1000 / (double)(at - from);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The median and the worst of many seeds. */
static void streams(enum ibv_wr_opcode op, uint32_t loss, double *median, double *worst)
{
	unsigned count = seeds.digests ? 1 : SEEDS;
	double b[SEEDS];

	for (unsigned i = 0; i < count; i++)
		b[i] = stream(op, loss, i + 1);
	qsort(b, count, sizeof(b[0]), by_value);
	*median = b[count / 2];
	*worst = b[0];
}

static void bandwidth_does_not_collapse(enum ibv_wr_opcode op, const char *name)
{
	static const struct {
		unsigned percent, part; /* of the whole that the worst seed keeps at least: one in so many */
	} rows[] = {{1, 3}, {5, 6}, {10, 40}};
	double whole = stream(op, 0, 1), median, worst;

	assert_true(whole > 1500); /* of a wire of 2500 */
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		streams(op, rows[i].percent * SIM_MILLION / 100, &median, &worst);
		if (getenv("RECOVERY_TABLE"))
			printf("%-5s %2u%%: %4.0f of %4.0f MB/s, %3.0f%%; worst seed %3.0f%%\n", name,
				rows[i].percent, median, whole, 100 * median / whole, 100 * worst / whole);
		assert_true(rows[i].part * worst > whole);
	}
}

static void write_stream_keeps_a_third_at_one_percent(void **state)
{
	bandwidth_does_not_collapse(IBV_WR_RDMA_WRITE, "WRITE");
}

static void send_stream_keeps_a_third_at_one_percent(void **state)
{
	bandwidth_does_not_collapse(IBV_WR_SEND, "SEND");
}

static void read_stream_keeps_a_third_at_one_percent(void **state)
{
	bandwidth_does_not_collapse(IBV_WR_RDMA_READ, "READ");
}

/* ---- single losses ---- */
/* A first request, so that the round trip is known; then the test's own begin to be lost. */
static struct pair *warm(void)
{
	struct pair *t = pair_new(1, &wire);

	post(t, IBV_WR_RDMA_WRITE, 0, 0, 8);
	wait_one(t, 0);
	sim_run_idle(&t->w);
	memset(t->sent, 0, sizeof(t->sent));
	return t;
}

static void expect_soon(struct pair *t, unsigned last, uint64_t limit)
{
	uint64_t from = sim_now(&t->w), at = from;

	for (unsigned i = 1; i <= last; i++)
		at = wait_one(t, i);
	assert_in_range(at - from, 0, limit);
	assert_int_equal(t->qp[0]->count->timeouts, 0);
	sim_run_idle(&t->w);
}

static void lost_packet_costs_a_round_trip(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_WRITE_MIDDLE, 3, 1);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 16 * MTU);
	expect_soon(t, 1, 300 * SIM_US);
	assert_memory_equal(mem[0], mem[1], 16 * MTU);
	assert_int_equal(t->qp[0]->count->probes, 0);
	pair_end(t);
}

static void lost_retransmission_is_asked_for_again(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_WRITE_MIDDLE, 3, 1);
	lose(t, 0, OP_WRITE_MIDDLE, 14, 1); /* the first of those sent again: the fourth, once more */
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 16 * MTU);
	expect_soon(t, 1, 300 * SIM_US);
	assert_memory_equal(mem[0], mem[1], 16 * MTU);
	assert_int_equal(t->qp[1]->count->naks_sent, 2);
	assert_int_equal(t->qp[0]->count->probes, 0);
	pair_end(t);
}

static void lost_nak_is_made_up_for_by_a_probe(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_WRITE_MIDDLE, 3, 1);
	lose_ack(t, AETH_NAK, 0, 1);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 16 * MTU);
	expect_soon(t, 1, 1500 * SIM_US);
	assert_memory_equal(mem[0], mem[1], 16 * MTU);
	assert_int_equal(t->qp[0]->count->probes, 2); /* how far it is, and what is missing there */
	pair_end(t);
}

static void lost_tail_is_made_up_for_by_a_probe(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_WRITE_MIDDLE, 12, 2);
	lose(t, 0, OP_WRITE_LAST, 0, 1);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 16 * MTU);
	expect_soon(t, 1, 3 * SIM_MS);
	assert_memory_equal(mem[0], mem[1], 16 * MTU);
	pair_end(t);
}

static void lost_ack_costs_one_packet(void **state)
{
	struct pair *t = warm();

	lose_ack(t, AETH_ACK, 0, 1);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 8 * MTU);
	expect_soon(t, 1, 3 * SIM_MS);
	assert_int_equal(t->qp[0]->count->probes, 1);
	assert_int_equal(t->qp[0]->count->retransmits, 0);
	assert_int_equal(t->qp[1]->count->duplicates, 1);
	pair_end(t);
}

static void lost_probe_comes_again_later(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_WRITE_ONLY, 0, 3);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 64);
	expect_soon(t, 1, 10 * SIM_MS);
	assert_int_equal(t->qp[0]->count->probes, 3);
	pair_end(t);
}

static void lost_rnr_nak_is_made_up_for_by_a_probe(void **state)
{
	struct pair *t = warm();

	lose_ack(t, AETH_RNR, 0, 1);
	post(t, IBV_WR_SEND, 1, 0, 64);
	sim_run(&t->w, sim_now(&t->w) + 100 * SIM_US);
	post_recv(t, MIB, 64);
	expect_soon(t, 1, 3 * SIM_MS);
	pair_end(t);
}

static void lost_read_request_is_made_up_for_by_a_probe(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_READ_REQUEST, 0, 1);
	post(t, IBV_WR_RDMA_READ, 1, 0, 8 * MTU);
	expect_soon(t, 1, 3 * SIM_MS);
	assert_memory_equal(mem[0], mem[1], 8 * MTU);
	pair_end(t);
}

/* With several READ requests out, what was lost is asked for again, and nothing else comes twice. */
static void lost_read_responses_are_asked_for_alone(void **state)
{
	struct pair *t = warm();

	lose(t, 1, OP_READ_RESP_MIDDLE, 3, 2);
	lose(t, 1, OP_READ_RESP_MIDDLE, 9, 1);
	lose(t, 1, OP_READ_RESP_LAST, 0, 1);
	lose(t, 1, OP_READ_RESP_FIRST, 1, 1);
	post(t, IBV_WR_RDMA_READ, 1, 0, 40 * MTU);
	expect_soon(t, 1, 500 * SIM_US);
	assert_memory_equal(mem[0], mem[1], 40 * MTU);
	assert_int_equal(t->sent[0][OP_READ_REQUEST], 3 + 4);
	assert_int_equal(t->sent[1][OP_READ_RESP_FIRST] + t->sent[1][OP_READ_RESP_MIDDLE] +
				 t->sent[1][OP_READ_RESP_LAST] + t->sent[1][OP_READ_RESP_ONLY],
		40 + 5);
	assert_int_equal(t->qp[0]->count->probes, 0);
	pair_end(t);
}

static void lost_last_read_responses_are_made_up_for_by_a_probe(void **state)
{
	struct pair *t = warm();

	lose(t, 1, OP_READ_RESP_MIDDLE, 4, 2);
	lose(t, 1, OP_READ_RESP_LAST, 0, 1);
	post(t, IBV_WR_RDMA_READ, 1, 0, 8 * MTU);
	expect_soon(t, 1, 3 * SIM_MS);
	assert_memory_equal(mem[0], mem[1], 8 * MTU);
	assert_int_equal(t->qp[0]->count->probes, 1);
	pair_end(t);
}

static void lost_read_response_does_not_repeat_the_writes_behind_it(void **state)
{
	struct pair *t = warm();

	lose(t, 1, OP_READ_RESP_MIDDLE, 1, 1);
	post(t, IBV_WR_RDMA_READ, 1, 0, 8 * MTU);
	post(t, IBV_WR_RDMA_WRITE, 2, MIB, 8 * MTU);
	expect_soon(t, 2, 300 * SIM_US);
	assert_memory_equal(mem[0], mem[1], 8 * MTU);
	assert_memory_equal(mem[0] + MIB, mem[1] + MIB, 8 * MTU);
	assert_int_equal(t->qp[1]->count->duplicates, 1);
	pair_end(t);
}

static void lost_atomics_are_executed_once(void **state)
{
	struct pair *t = warm();
	uint64_t before[4], v;

	memcpy(before, mem[1], sizeof(before));
	lose(t, 1, OP_ATOMIC_ACK, 1, 1); /* the second's result; then the fourth's, twice */
	lose(t, 1, OP_ATOMIC_ACK, 3, 2);
	for (unsigned i = 0; i < 4; i++)
		post(t, IBV_WR_ATOMIC_FETCH_AND_ADD, i + 1, 8 * i, 8);
	expect_soon(t, 4, 10 * SIM_MS);
	for (unsigned i = 0; i < 4; i++) {
		memcpy(&v, mem[0] + 8 * i, 8);
		assert_true(v == before[i]);
		memcpy(&v, mem[1] + 8 * i, 8);
		assert_true(v == before[i] + 1);
	}
	pair_end(t);
}

static enum sim_fate double_naks(void *arg, const struct sim_packet *p)
{
	struct pair *t = arg;
	enum sim_fate fate = judge(arg, p);

	if (fate == SIM_BY_RULES && t->kills == 1 && bth_opcode(p->bytes) == OP_ACK &&
		(aeth_syndrome(p->bytes + BTH_LEN) & AETH_TYPE_MASK) == AETH_NAK)
		fate = SIM_DUPLICATED;
	return fate;
}

/* A second copy of a NAK neither costs a retry nor another round of packets. */
static void doubled_nak_is_ignored(void **state)
{
	struct pair *t = warm();
	unsigned all;

	sim_judge_set(t->w.net, double_naks, t);
	lose(t, 0, OP_WRITE_MIDDLE, 3, 1);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 16 * MTU);
	expect_soon(t, 1, 300 * SIM_US);
	all = t->sent[0][OP_WRITE_FIRST] + t->sent[0][OP_WRITE_MIDDLE] + t->sent[0][OP_WRITE_LAST];
	assert_int_equal(t->qp[0]->count->naks_received + t->qp[0]->count->stale_responses, 2);
	assert_int_equal(all, 16 + 12);
	pair_end(t);
}

/* A receiver that sleeps for 20 ms is asked now and then, no more, and nothing is sent to it twice. */
static void slow_peer_is_not_stormed(void **state)
{
	struct pair *t = warm();

	sim_port_buffer(t->w.net, 1, FLOW_RCVBUF);
	sim_port_pause(t->w.net, 1, true);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, MIB);
	sim_run(&t->w, sim_now(&t->w) + 20 * SIM_MS);
	assert_in_range(t->qp[0]->count->probes, 1, 5);
	sim_port_pause(t->w.net, 1, false);
	expect_soon(t, 1, 5 * SIM_MS);
	assert_int_equal(t->qp[0]->count->retransmits, 0);
	assert_int_equal(sim_count(t->w.net, SIM_OVERRUN), 0);
	pair_end(t);
}

/* The error of a dead peer comes when the program said, whatever was probed before. */
static void dead_peer_is_given_up_when_the_program_said(void **state)
{
	struct pair *t = warm();
	uint64_t from = sim_now(&t->w), took;

	sim_port_cut(t->w.net, 1, true);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, MIB);
	took = wait_for(t, 1, IBV_WC_RETRY_EXC_ERR) - from;
	assert_true(took >= 8 * ibt_timeout_ns(14) && took < 8 * ibt_timeout_ns(14) + SIM_MS);
	assert_int_equal(t->qp[0]->count->timeouts, 8);
	assert_true(t->qp[0]->count->probes < 10);
	pair_end(t);
}

/* A packet that never gets through ends in the error too, although the peer complains of it for ever. */
static void packet_that_never_arrives_ends_in_an_error(void **state)
{
	struct pair *t = warm();

	lose(t, 0, OP_WRITE_FIRST, 0, UINT32_MAX);
	post(t, IBV_WR_RDMA_WRITE, 1, 0, 16 * MTU);
	wait_for(t, 1, IBV_WC_RETRY_EXC_ERR);
	pair_end(t);
}

/* A receiver whose buffer is a quarter of what we think: the window shrinks to what it holds. */
static void overrun_shrinks_the_window(void **state)
{
	struct pair *t = warm();
	uint64_t from = sim_now(&t->w);

	sim_port_buffer(t->w.net, 1, FLOW_RCVBUF / 4);
	for (unsigned i = 1; i <= 64; i++) {
		post(t, IBV_WR_RDMA_WRITE, i, 0, MIB);
		wait_one(t, i);
	}
	assert_true(sim_count(t->w.net, SIM_OVERRUN) > 0);
	assert_true(t->qp[0]->path.flow->window < FLOW_WINDOW / 2);
	assert_true(64ull * MIB * 1000 / (t->done_at - from) > wire.rate / 4);
	sim_run_idle(&t->w);
	pair_end(t);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(lost_packet_costs_a_round_trip),
		cmocka_unit_test(lost_retransmission_is_asked_for_again),
		cmocka_unit_test(lost_nak_is_made_up_for_by_a_probe),
		cmocka_unit_test(lost_tail_is_made_up_for_by_a_probe),
		cmocka_unit_test(lost_ack_costs_one_packet),
		cmocka_unit_test(lost_probe_comes_again_later),
		cmocka_unit_test(lost_rnr_nak_is_made_up_for_by_a_probe),
		cmocka_unit_test(lost_read_request_is_made_up_for_by_a_probe),
		cmocka_unit_test(lost_read_responses_are_asked_for_alone),
		cmocka_unit_test(lost_last_read_responses_are_made_up_for_by_a_probe),
		cmocka_unit_test(lost_read_response_does_not_repeat_the_writes_behind_it),
		cmocka_unit_test(lost_atomics_are_executed_once),
		cmocka_unit_test(doubled_nak_is_ignored),
		cmocka_unit_test(slow_peer_is_not_stormed),
		cmocka_unit_test(dead_peer_is_given_up_when_the_program_said),
		cmocka_unit_test(packet_that_never_arrives_ends_in_an_error),
		cmocka_unit_test(overrun_shrinks_the_window),
		cmocka_unit_test(write_stream_keeps_a_third_at_one_percent),
		cmocka_unit_test(send_stream_keeps_a_third_at_one_percent),
		cmocka_unit_test(read_stream_keeps_a_third_at_one_percent),
	};

	seeds_init(argc, argv);
	seeds.trace |= getenv("SIM_TRACE") != NULL;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
