/* SPDX-License-Identifier: MIT */
/*
 * Random work on an iWARP connection, all drawn from a seed: what both ends agree on, how long segments are,
 * what is posted and when, how the stream is cut and merged, and what goes wrong: the network dies (also
 * while they still negotiate), a bit flips, a program gives up, a request is wrong. The model knows what must
 * come out.
 *
 *   iwarp_test [--seed N] [--seeds COUNT]
 *
 * The model executes each request on a copy of the memory it touches when it is posted: TCP keeps the order,
 * and a side's target is touched by its peer alone. (A READ is answered from memory as it is when the answer
 * leaves: those who change what an earlier READ reads set the fence.) Where a connection broke, memory must
 * be what some prefix of the bytes would have made of it.
 */
#include "iwarp_pair.h"
#include "seeds.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A side's memory: the peer's target, receives, sources that never change, sinks of READs. */
enum {
	TARGET = 65536,
	SLOTS = 16,
	SLOT = 8192,
	RECEIVES = 65536,
	SOURCE = 262144,
	SOURCE_LEN = 131072,
	SINKS = 524288,
	OPS = 40,
};

struct op {
	enum ibv_wr_opcode opcode;
	uint32_t len, from, to; /* offsets in memory: here, there */
	bool signaled, wrong;
	uint8_t *expect; /* of a READ */
	uint64_t compare_add, swap, original;
	__be32 imm;
};

struct player {
	struct iwarp_side *s;
	struct player *peer;
	struct op op[OPS];
	unsigned todo, posted, done;
	uint8_t base[TARGET], model[TARGET]; /* of its target */
	bool fence;                          /* a READ of the peer's target may not be answered yet */
	uint32_t sink;
	unsigned received; /* the peer's op that is expected next */
	uint64_t recv_posted, recv_done;
};

enum trouble { CALM, KILLED, FLIPPED, GIVEN_UP, WRONG_REQUEST, TROUBLES };

static struct {
	uint64_t seed;
	struct choices c;
	struct iwarp_pair *p;
	struct player player[2];
	enum trouble trouble;
	uint64_t when; /* step, or byte */
	bool happened;
} t;

static struct {
	unsigned long long requests, bytes, broken, refused;
} total;

_Noreturn static void fail(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "seed %llu: ", (unsigned long long)t.seed);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\nreplay: %s --seed %llu\n", seeds.program, (unsigned long long)t.seed);
	exit(1);
}

static uint64_t draw(uint64_t below)
{
	return choose(&t.c, below);
}

static bool is_message(const struct op *o)
{
	return o->opcode == IBV_WR_SEND || o->opcode == IBV_WR_SEND_WITH_IMM ||
	       o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_write(const struct op *o)
{
	return o->opcode == IBV_WR_RDMA_WRITE || o->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool is_atomic(const struct op *o)
{
	return o->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/* ---- execution ---- */
/* What the first n bytes of op leave in a target. */
static void execute(struct player *pl, struct op *o, uint8_t *target, uint32_t n)
{
	uint64_t v;

	if (is_write(o)) {
		memcpy(target + o->to, pl->s->mem + o->from, n);
	} else if (is_atomic(o) && n) {
		memcpy(&v, target + o->to, 8);
		o->original = v;
		if (o->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			v += o->compare_add;
		else if (v == o->compare_add)
			v = o->swap;
		memcpy(target + o->to, &v, 8);
	}
}

/* Some prefix of what the peer posted explains what is in this side's target. */
static void check_prefix(struct player *pl)
{
	uint8_t m[TARGET];
	struct player *from = pl->peer;

	memcpy(m, pl->base, TARGET);
	for (unsigned i = 0; i < from->posted; i++) {
		struct op *o = &from->op[i];
		uint32_t n = 0;

		if (!memcmp(m, pl->s->mem, TARGET))
			return;
		if (o->wrong || !(is_write(o) || is_atomic(o)))
			continue;
		if (is_write(o)) {
			while (n < o->len && pl->s->mem[o->to + n] == from->s->mem[o->from + n])
				n++;
			execute(from, o, m, n);
			if (!memcmp(m, pl->s->mem, TARGET))
				return;
		}
		execute(from, o, m, o->len);
	}
	if (memcmp(m, pl->s->mem, TARGET))
		fail("a target holds what no prefix of its peer's requests would have left");
}

/* ---- work ---- */
static const enum ibv_wr_opcode kinds[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP,
	IBV_WR_ATOMIC_FETCH_AND_ADD};

static uint32_t draw_len(uint32_t most)
{
	static const uint32_t edges[] = {0, 1, 2, 3, 4, 94, 96, 98, 110, 512, 1024};

	if (draw(3) == 0)
		return edges[draw(sizeof(edges) / sizeof(edges[0]))];
	return (uint32_t)draw(draw(3) ? 2000 : most + 1);
}

static void draw_op(struct player *pl, struct op *o)
{
	bool extended = pl->s->connect.params.extended;

	*o = (struct op){.opcode = kinds[draw(extended ? 7 : 3)],
		.signaled = draw(4),
		.imm = (uint32_t)draw(1u << 31)};
	o->len = draw_len(is_message(o) && !is_write(o) ? SLOT : 40000);
	o->from = (uint32_t)(SOURCE + draw(SOURCE_LEN - 40000));
	o->to = (uint32_t)draw(TARGET - o->len + 1);
	if (is_atomic(o)) {
		o->len = 8;
		o->to = (uint32_t)draw(TARGET / 8) * 8;
		o->compare_add = draw(2);
		o->swap = draw(1u << 31);
		if (draw(2))
			memcpy(&o->compare_add, pl->peer->model + o->to, 8);
	}
	if (is_atomic(o) || o->opcode == IBV_WR_RDMA_READ) {
		o->from = pl->sink;
		pl->sink += (o->len + 15) & ~7u;
		if (o->opcode == IBV_WR_RDMA_READ && draw(2))
			o->to = (uint32_t)(SOURCE + draw(SOURCE_LEN - o->len)); /* which nobody changes */
	}
}

static void post(struct player *pl)
{
	struct op *o = &pl->op[pl->posted];
	struct ibv_sge sge[2];
	struct ibv_send_wr wr = {.wr_id = pl->posted, .sg_list = sge}, *bad;
	uint32_t lkey = pl->s->mr->ibv.lkey, rkey = pl->peer->s->mr->ibv.rkey, cut;
	uint64_t remote;

	draw_op(pl, o);
	if (pl->sink + 50000 > IW_MEM)
		return;
	if (t.trouble == WRONG_REQUEST && !t.happened && pl->posted >= t.when % OPS &&
		pl == &t.player[t.when & 1] && !is_atomic(o) && o->opcode != IBV_WR_SEND &&
		o->opcode != IBV_WR_SEND_WITH_IMM && o->len) {
		t.happened = o->wrong = true;
		rkey ^= 0x5555;
	}
	remote = pl->peer->s->iova + o->to;
	wr.opcode = o->opcode;
	wr.imm_data = o->imm;
	wr.send_flags = (o->signaled ? IBV_SEND_SIGNALED : 0) | (draw(2) ? IBV_SEND_SOLICITED : 0);
	cut = is_atomic(o) ? 8 : (uint32_t)draw(o->len + 1);
	sge[0] = (struct ibv_sge){pl->s->iova + o->from, cut, lkey};
	sge[1] = (struct ibv_sge){pl->s->iova + o->from + cut, o->len - cut, lkey};
	wr.num_sge = is_atomic(o) ? 1 : 2;
	if (is_atomic(o)) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = o->compare_add;
		wr.wr.atomic.swap = o->swap;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	if (!o->wrong && o->opcode == IBV_WR_RDMA_READ) {
		uint8_t *from = o->to < TARGET ? pl->peer->model + o->to : pl->peer->s->mem + o->to;

		o->expect = malloc(o->len + 1);
		memcpy(o->expect, from, o->len);
		pl->fence |= o->to < TARGET;
	}
	if ((is_write(o) || is_atomic(o)) && pl->fence) {
		wr.send_flags |= IBV_SEND_FENCE;
		pl->fence = false;
	}
	if ((is_write(o) || is_atomic(o)) && !o->wrong)
		execute(pl, o, pl->peer->model, o->len);
	pl->posted++;
	total.requests++;
	if (hca_qp_post_send(pl->s->qp, &wr, &bad))
		fail("a request is not taken");
}

static void post_recv(struct player *pl)
{
	uint32_t at = RECEIVES + (uint32_t)(pl->recv_posted % SLOTS) * SLOT, cut = (uint32_t)draw(SLOT);
	uint32_t lkey = pl->s->mr->ibv.lkey;
	struct ibv_sge sge[2] = {{pl->s->iova + at, cut, lkey}, {pl->s->iova + at + cut, SLOT - cut, lkey}};
	struct ibv_recv_wr wr = {.wr_id = 1000 + pl->recv_posted, .sg_list = sge, .num_sge = 2}, *bad;

	if (pl->recv_posted - pl->recv_done == SLOTS)
		return;
	pl->recv_posted++;
	if (hca_qp_post_recv(pl->s->qp, &wr, &bad))
		fail("a receive is not taken");
}

/* ---- completions ---- */
static bool broken(void)
{
	return t.happened;
}

static void check_send(struct player *pl, const struct ibv_wc *wc)
{
	struct op *o;

	for (; pl->done < wc->wr_id; pl->done++) {
		if (pl->op[pl->done].signaled)
			fail("request %u was not reported", pl->done);
	}
	if (pl->done != wc->wr_id || wc->wr_id >= pl->posted)
		fail("request %llu is reported out of order", (unsigned long long)wc->wr_id);
	o = &pl->op[pl->done++];
	if (wc->status && !broken())
		fail("request %llu ends with status %d", (unsigned long long)wc->wr_id, wc->status);
	if (wc->status && wc->status != IBV_WC_WR_FLUSH_ERR &&
		!(o->wrong && wc->status == IBV_WC_REM_ACCESS_ERR))
		fail("request %llu ends with status %d, which has no excuse", (unsigned long long)wc->wr_id,
			wc->status);
	if (o->wrong && o->opcode == IBV_WR_RDMA_READ && wc->status != IBV_WC_REM_ACCESS_ERR)
		fail("READ %llu was refused, and ends with %d", (unsigned long long)wc->wr_id, wc->status);
	if (wc->status)
		return;
	if (o->opcode == IBV_WR_RDMA_READ && (o->wrong || memcmp(o->expect, pl->s->mem + o->from, o->len)))
		fail("READ %llu brought something else", (unsigned long long)wc->wr_id);
	if (is_atomic(o) && memcmp(&o->original, pl->s->mem + o->from, 8))
		fail("atomic %llu brought something else", (unsigned long long)wc->wr_id);
}

static void check_recv(struct player *pl, const struct ibv_wc *wc)
{
	struct player *from = pl->peer;
	struct op *o;
	uint32_t at = RECEIVES + (uint32_t)(pl->recv_done % SLOTS) * SLOT;

	if (wc->wr_id != 1000 + pl->recv_done++)
		fail("a receive is reported out of order");
	if (wc->status) {
		if (!broken())
			fail("a receive ends with status %d", wc->status);
		return;
	}
	while (pl->received < from->posted && !is_message(&from->op[pl->received]))
		pl->received++;
	if (pl->received == from->posted)
		fail("a message nobody sent");
	o = &from->op[pl->received++];
	if (o->wrong || wc->byte_len != o->len ||
		wc->opcode != (is_write(o) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV))
		fail("a message of %u bytes instead of %u", wc->byte_len, o->len);
	if (o->opcode != IBV_WR_SEND && (!(wc->wc_flags & IBV_WC_WITH_IMM) || wc->imm_data != o->imm))
		fail("other immediate data");
	if (!is_write(o) && memcmp(pl->s->mem + at, from->s->mem + o->from, o->len))
		fail("a message of other content");
}

static void poll(struct player *pl)
{
	struct ibv_wc wc;

	while (hca_cq_take(pl->s->cq, &wc, 1)) {
		sim_note_wc(&wc);
		if (wc.wr_id >= 1000)
			check_recv(pl, &wc);
		else
			check_send(pl, &wc);
	}
}

/* ---- trouble ---- */
static void flip(struct iwarp_pair *p, unsigned from, uint8_t *bytes, size_t len)
{
	struct iwarp_side *s = &p->side[from];

	if (t.trouble != FLIPPED || t.happened || from != (t.when & 1) || s->sent + len <= t.when ||
		!s->opened)
		return;
	bytes[draw(len)] ^= (uint8_t)(1 << draw(8));
	t.happened = true;
}

static void trouble(uint64_t step)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (t.happened || step < t.when)
		return;
	if (t.trouble == KILLED)
		iwarp_pair_kill(t.p);
	else if (t.trouble == GIVEN_UP)
		hca_qp_modify(t.player[t.when & 1].s->qp, &a, IBV_QP_STATE);
	else
		return;
	t.happened = true;
}

/* ---- a seed ---- */
static void draw_options(void)
{
	static const uint32_t mulpdu[] = {128, 132, 536, 1400, 1460, 9000, 40000, MPA_ULPDU_MAX};
	uint8_t revision = draw(4) ? 2 : 1;

	for (unsigned i = 0; i < 2; i++) {
		struct iwarp_options *o = &t.p->side[i].mpa;

		o->revision = i ? 2 : revision;
		o->crc = !draw(3);
		o->markers = !draw(4);
		o->extended = draw(4);
		o->memory = draw(2); /* and then does not */
		o->peer_to_peer = revision == 2;
		o->rtr = (uint8_t)(draw(3) ? 7 : 1 + draw(7));
		o->ird = (uint16_t)(1 + draw(6));
		o->ord = (uint16_t)(revision == 2 ? 1 + draw(6) : 1);
		t.p->side[i].mulpdu = mulpdu[draw(8)];
	}
	if (revision == 1)
		t.p->side[0].mpa.peer_to_peer = false;
	if (t.trouble == FLIPPED)
		t.p->side[0].mpa.crc = true; /* or nobody would notice */
}

static bool all_done(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct player *pl = &t.player[i];

		if (pl->posted < pl->todo || pl->s->qp->sq.tail != pl->s->qp->sq.head)
			return false;
		for (unsigned k = pl->peer->received; k < pl->posted; k++) {
			if (is_message(&pl->op[k]))
				return false;
		}
	}
	return true;
}

static void run(void)
{
	unsigned idle = 0;

	for (uint64_t step = 1; broken() ? idle < 100 : !all_done(); step++) {
		trouble(step);
		for (unsigned i = 0; i < 2; i++) {
			struct player *pl = &t.player[i];

			/* In revision 1 the initiator must say something first. */
			if (pl->posted < pl->todo && draw(3) == 0 && pl->s->opened &&
				pl->posted - pl->done < 50)
				post(pl);
			if (draw(4) == 0)
				post_recv(pl);
		}
		idle = iwarp_pair_step(t.p) ? 0 : idle + 1;
		poll(&t.player[0]);
		poll(&t.player[1]);
		if (step > 200000)
			fail("it takes too long");
	}
	iwarp_pair_run(t.p); /* a WRITE is done when it has left */
	/* A length that grew by a bit: it waits for the rest of a segment that does not exist. */
	if (t.trouble == FLIPPED && t.happened &&
		!iwarp_reader_between(&iwarp_qp(t.p->side[!(t.when & 1)].qp)->reader))
		iwarp_pair_kill(t.p);
}

static void check_end(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct player *pl = &t.player[i];

		poll(pl);
		if (broken() && hca_qp_state(pl->s->qp) != IBV_QPS_ERR)
			fail("side %u is in state %d after trouble", i, hca_qp_state(pl->s->qp));
		if (pl->s->qp->sq.tail != pl->s->qp->sq.head)
			fail("side %u has requests that never end", i);
		if (broken())
			check_prefix(pl);
		else if (memcmp(pl->s->mem, pl->model, TARGET))
			fail("the target of side %u is not what it must be", i);
	}
}

static bool come_together(void)
{
	for (uint64_t step = 0; iwarp_pair_shake(t.p); step++) {
		if (t.trouble == KILLED && t.when < 8 && step == t.when) {
			iwarp_pair_kill(t.p);
			t.happened = true;
		}
	}
	iwarp_pair_open(t.p);
	iwarp_pair_begin(t.p);
	return t.p->side[0].opened && t.p->side[1].opened;
}

static void run_seed(uint64_t seed)
{
	memset(&t, 0, sizeof(t));
	t.seed = seed;
	t.c = (struct choices){.seed = seed * 0x9e3779b97f4a7c15ull + 1};
	t.trouble = draw(2) ? CALM : (enum trouble)draw(TROUBLES);
	t.when = draw(3) ? draw(400) : t.trouble == FLIPPED ? draw(50000) : draw(12);
	t.p = iwarp_pair_new();
	t.p->cut = &t.c;
	t.p->spy = flip;
	draw_options();
	for (unsigned i = 0; i < 2; i++) {
		struct player *pl = &t.player[i];

		pl->s = &t.p->side[i];
		pl->peer = &t.player[!i];
		pl->todo = 1 + (unsigned)draw(OPS - 1);
		pl->sink = SINKS;
		pl->s->opts.sig_all = false;
		memcpy(pl->base, pl->s->mem, TARGET);
		memcpy(pl->model, pl->s->mem, TARGET);
	}
	iwarp_pair_qps(t.p);
	if (come_together()) {
		run();
		check_end();
		total.broken += broken();
	} else {
		total.refused++;
		if (!broken() && (t.p->side[0].mpa.rtr & t.p->side[1].mpa.rtr))
			fail("they do not come together");
	}
	total.bytes += t.p->side[0].sent + t.p->side[1].sent;
	for (unsigned i = 0; i < 2; i++) {
		for (unsigned k = 0; k < t.player[i].posted; k++)
			free(t.player[i].op[k].expect);
	}
	iwarp_pair_free(t.p);
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu bytes, %llu connections broke, %llu "
	       "never were\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, total.requests, total.bytes,
		total.broken, total.refused);
	return 0;
}
