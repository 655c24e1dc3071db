/* SPDX-License-Identifier: MIT */
/*
 * Random work on an iWARP connection, all drawn from a seed: what both ends agree on, how long segments are,
 * what is posted and when, how the stream is cut and merged, and what goes wrong: the network dies (also
 * while they still negotiate), a bit flips, a program gives up, a request is wrong. The model knows what must
 * come out.
 *
 *   iwarp_test [--seed N] [--seeds COUNT]
 *
 * iwarp_work.h has the work and the model.
 */
#include "iwarp_pair.h"
#include "iwarp_work.h"
#include "seeds.h"

#include <stdio.h>
#include <string.h>

enum trouble { CALM, KILLED, FLIPPED, GIVEN_UP, WRONG_REQUEST, TROUBLES };

static struct {
	struct choices c;
	struct iwarp_pair *p;
	struct iwarp_work work;
	enum trouble trouble;
	uint64_t when; /* step, or byte */
} t;

static struct {
	unsigned long long bytes, broken, refused;
} total;

static uint64_t draw(uint64_t below)
{
	return choose(&t.c, below);
}

/* ---- trouble ---- */
static void flip(struct iwarp_pair *p, unsigned from, uint8_t *bytes, size_t len)
{
	struct iwarp_side *s = &p->side[from];

	if (t.trouble != FLIPPED || t.work.broken || from != (t.when & 1) || s->sent + len <= t.when ||
		!s->opened)
		return;
	bytes[draw(len)] ^= (uint8_t)(1 << draw(8));
	t.work.broken = true;
}

static void trouble(uint64_t step)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};

	if (t.work.broken || step < t.when)
		return;
	if (t.trouble == KILLED)
		iwarp_pair_kill(t.p);
	else if (t.trouble == GIVEN_UP)
		hca_qp_modify(t.work.player[t.when & 1].qp, &a, IBV_QP_STATE);
	else
		return;
	t.work.broken = true;
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

static void run(void)
{
	unsigned idle = 0;

	for (uint64_t step = 1; t.work.broken ? idle < 100 : !iwarp_work_done(&t.work); step++) {
		trouble(step);
		for (unsigned i = 0; i < 2; i++) {
			struct player *pl = &t.work.player[i];

			/* In revision 1 the initiator must say something first. */
			if (pl->posted < pl->todo && draw(3) == 0 && t.p->side[i].opened &&
				pl->posted - pl->done < 50)
				iwarp_work_post(&t.work, pl);
			if (draw(4) == 0)
				iwarp_work_post_recv(&t.work, pl);
		}
		idle = iwarp_pair_step(t.p) ? 0 : idle + 1;
		iwarp_work_poll(&t.work, &t.work.player[0]);
		iwarp_work_poll(&t.work, &t.work.player[1]);
		if (step > 200000)
			iwarp_work_fail("it takes too long");
	}
	iwarp_pair_run(t.p); /* a WRITE is done when it has left */
	/* A length that grew by a bit: it waits for the rest of a segment that does not exist. */
	if (t.trouble == FLIPPED && t.work.broken &&
		!iwarp_reader_between(&iwarp_qp(t.p->side[!(t.when & 1)].qp)->reader))
		iwarp_pair_kill(t.p);
}

static bool come_together(void)
{
	for (uint64_t step = 0; iwarp_pair_shake(t.p); step++) {
		if (t.trouble == KILLED && t.when < 8 && step == t.when) {
			iwarp_pair_kill(t.p);
			t.work.broken = true;
		}
	}
	iwarp_pair_open(t.p);
	iwarp_pair_begin(t.p);
	for (unsigned i = 0; i < 2; i++)
		t.work.player[i].extended = t.p->side[i].connect.params.extended;
	return t.p->side[0].opened && t.p->side[1].opened;
}

static void begin_work(void)
{
	t.work.c = &t.c;
	t.work.wrong = t.trouble == WRONG_REQUEST;
	t.work.when = t.when;
	for (unsigned i = 0; i < 2; i++) {
		struct iwarp_side *s = &t.p->side[i];
		struct player *pl = &t.work.player[i];

		pl->qp = s->qp;
		pl->cq = s->cq;
		pl->mr = s->mr;
		pl->mem = s->mem;
		pl->iova = s->iova;
	}
	iwarp_work_init(&t.work);
}

static void run_seed(uint64_t seed)
{
	memset(&t, 0, sizeof(t));
	t.c = (struct choices){.seed = seed * 0x9e3779b97f4a7c15ull + 1};
	t.trouble = draw(2) ? CALM : (enum trouble)draw(TROUBLES);
	t.when = draw(3) ? draw(400) : t.trouble == FLIPPED ? draw(50000) : draw(12);
	t.p = iwarp_pair_new();
	t.p->cut = &t.c;
	t.p->spy = flip;
	draw_options();
	for (unsigned i = 0; i < 2; i++) {
		t.work.player[i].todo = 1 + (unsigned)draw(OPS - 1);
		t.p->side[i].opts.sig_all = false;
	}
	iwarp_pair_qps(t.p);
	begin_work();
	if (come_together()) {
		run();
		iwarp_work_check_end(&t.work);
		total.broken += t.work.broken;
	} else {
		total.refused++;
		if (!t.work.broken && (t.p->side[0].mpa.rtr & t.p->side[1].mpa.rtr))
			iwarp_work_fail("they do not come together");
	}
	total.bytes += t.p->side[0].sent + t.p->side[1].sent;
	iwarp_work_fini(&t.work);
	iwarp_pair_free(t.p);
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu bytes, %llu connections broke, %llu "
	       "never were\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, iwarp_work_total.requests,
		total.bytes, total.broken, total.refused);
	return 0;
}
