/* SPDX-License-Identifier: MIT */
#include "iwarp_pair.h"

#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECES = 64 };

/* ---- pipes ---- */
static size_t filled(const struct pipe *p)
{
	return p->head - p->tail;
}

static size_t draw(struct iwarp_pair *p, size_t most)
{
	if (!p->cut || most < 2)
		return most;
	switch (choose(p->cut, 4)) {
	case 0:
		return 1 + choose(p->cut, most < 8 ? most : 8);
	case 1:
		return 1 + choose(p->cut, most < 600 ? most : 600);
	case 2:
		return 1 + choose(p->cut, most);
	default:
		return most;
	}
}

static size_t list_len(const struct iovec *iov, unsigned n)
{
	size_t len = 0;

	for (unsigned i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

/* As sendmsg(): takes from the list as much as is drawn and fits. */
static size_t pipe_send(struct iwarp_pair *p, unsigned from, const struct iovec *iov, unsigned n)
{
	struct pipe *o = &p->side[from].out;
	size_t room = PIPE_SIZE - filled(o), len = list_len(iov, n), left;

	len = draw(p, len < room ? len : room);
	left = len;
	for (unsigned i = 0; i < n && left; i++) {
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;
		uint8_t *bytes = malloc(part + 1);

		memcpy(bytes, iov[i].iov_base, part);
		if (p->spy)
			p->spy(p, from, bytes, part);
		seeds_note(bytes, part);
		for (size_t k = 0; k < part; k++)
			o->bytes[o->head++ % PIPE_SIZE] = bytes[k];
		free(bytes);
		left -= part;
	}
	p->side[from].sent += len;
	p->side[from].sends += !!len;
	return len;
}

/* As readv(). */
static size_t pipe_receive(struct iwarp_pair *p, unsigned to, const struct iovec *iov, unsigned n)
{
	struct pipe *o = &p->side[!to].out;
	size_t len = list_len(iov, n), left;

	len = draw(p, len < filled(o) ? len : filled(o));
	left = len;
	for (unsigned i = 0; i < n && left; i++) {
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

		for (size_t k = 0; k < part; k++)
			((uint8_t *)iov[i].iov_base)[k] = o->bytes[o->tail++ % PIPE_SIZE];
		left -= part;
	}
	p->side[to].received += len;
	p->side[to].receives += !!len;
	return len;
}

/* ---- setting up ---- */
/* Contents that differ by place and side. */
static void fill(uint8_t *mem, unsigned side)
{
	static uint8_t pattern[2][IW_MEM];
	static bool made[2];

	for (unsigned k = 0; !made[side] && k < IW_MEM; k++)
		pattern[side][k] = (uint8_t)(k * 7 + (k >> 8) * 3 + side);
	made[side] = true;
	memcpy(mem, pattern[side], IW_MEM);
}

static uint8_t *large(size_t size)
{
	uint8_t *p = aligned_alloc(4096, (size + 4095) & ~4095ul);

	if (!p)
		abort();
	return p;
}

/* ---- a provider whose bytes the pair moves itself ---- */
static bool not_sent(struct hca_qp *qp, bool driving, uint64_t now)
{
	return false;
}

static bool not_due(struct hca_provider *v, unsigned woken, bool busy)
{
	return false;
}

static int no_fds(struct hca_provider *v, int fds[HCA_PROVIDER_FDS])
{
	return 0;
}

static void nothing(struct hca_provider *v)
{
}

static const struct hca_provider_ops pipe_ops = {
	.state_size = sizeof(struct iwarp_qp),
	.offers = iwarp_offers,
	.reset = iwarp_reset,
	.abort = iwarp_abort,
	.modified = iwarp_modified,
	.timer = iwarp_timer,
	.send = not_sent,
	.due = not_due,
	.fds = no_fds,
	.close = nothing,
};

static void side_init(struct iwarp_pair *p, unsigned i)
{
	static struct {
		uint8_t *mem, *rx, *tx, *pipe;
	} kept[2];
	struct iwarp_side *s = &p->side[i];

	if (!kept[i].mem) {
		kept[i].mem = large(IW_MEM);
		kept[i].rx = large(IWARP_STAGE);
		kept[i].tx = large(IWARP_STAGE_OUT);
		kept[i].pipe = large(PIPE_SIZE);
	}
	s->mem = kept[i].mem;
	s->iova = (i + 1) * 0x10000000ull;
	s->rx_stage = kept[i].rx;
	s->tx_stage = kept[i].tx;
	s->out.bytes = kept[i].pipe;
	fill(s->mem, i);
	s->node = &p->w.node[i];
	hca_provider_init(&s->provider, &pipe_ops, &s->node->adapter.engine, HCA_STREAMS);
	s->node->dev.kind = HCA_IWARP;
	s->cq = sim_cq(s->node, 1024);
	s->mr = sim_mr(s->node, s->mem, IW_MEM, s->iova);
	s->opts = sim_qp_opts(s->cq);
	s->mpa = (struct iwarp_options){.revision = 2,
		.peer_to_peer = true,
		.rtr = MPA_RTR_WRITE | MPA_RTR_READ | MPA_RTR_ZERO,
		.extended = true,
		.ird = 4,
		.ord = 4};
	s->mulpdu = MPA_ULPDU_MAX;
}

struct iwarp_pair *iwarp_pair_new(void)
{
	struct iwarp_pair *p = calloc(1, sizeof(*p));

	if (!p)
		abort();
	p->now = 1;
	sim_world_init(&p->w, 2, 1, false);
	side_init(p, 0);
	side_init(p, 1);
	return p;
}

void iwarp_pair_qps(struct iwarp_pair *p)
{
	for (unsigned i = 0; i < 2; i++)
		p->side[i].qp = sim_qp(p->side[i].node, &p->side[i].opts);
	iwarp_connect_start(&p->side[0].connect, &p->side[0].mpa, "hello", 5);
	iwarp_connect_await(&p->side[1].connect, &p->side[1].mpa);
}

bool iwarp_pair_shake(struct iwarp_pair *p)
{
	bool moved = false;

	for (unsigned i = 0; i < 2; i++) {
		struct iwarp_connect *c = &p->side[i].connect;
		struct iovec out = iwarp_connect_out(c), in = iwarp_connect_in(c);
		size_t n = out.iov_len ? pipe_send(p, i, &out, 1) : 0;

		if (n)
			iwarp_connect_sent(c, n);
		moved |= n;
		n = in.iov_len ? pipe_receive(p, i, &in, 1) : 0;
		if (n)
			iwarp_connect_got(c, n);
		moved |= n;
		if (c->state == CONNECT_ASKED) {
			iwarp_connect_accept(c, p->side[i].mpa.ird, p->side[i].mpa.ord, "welcome", 7);
			moved = true;
		}
		if (c->state == CONNECT_UPGRADE_READY) {
			iwarp_connect_upgrade(c, p->side[i].by_frames);
			moved = true;
		}
	}
	return moved;
}

void iwarp_pair_open(struct iwarp_pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		struct iwarp_side *s = &p->side[i];

		if (s->opened || s->connect.state != CONNECT_DONE || s->connect.params.memory)
			continue;
		s->opened = true;
		lock_take(&s->qp->lock);
		hca_qp_set_state(s->qp, IBV_QPS_RTS);
		iwarp_open(s->qp, &s->connect.params, s->rx_stage, s->tx_stage, s->mulpdu, p->now);
		lock_drop(&s->qp->lock);
	}
}

void iwarp_pair_begin(struct iwarp_pair *p)
{
	struct hca_qp *qp = p->side[0].qp;

	lock_take(&qp->lock);
	if (p->side[0].opened && qp->deadline)
		iwarp_timer(qp, p->now);
	lock_drop(&qp->lock);
}

bool iwarp_pair_connect(struct iwarp_pair *p)
{
	while (iwarp_pair_shake(p))
		;
	iwarp_pair_open(p);
	return p->side[0].opened && p->side[1].opened;
}

void iwarp_pair_free(struct iwarp_pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		if (p->side[i].qp)
			hca_qp_destroy(p->side[i].qp);
		hca_mr_dereg(p->side[i].mr);
		hca_cq_destroy(p->side[i].cq);
	}
	sim_world_fini(&p->w);
	free(p);
}

/* ---- moving ---- */
/* What the owner of a socket does when a connection is over. */
static void close_side(struct iwarp_pair *p, unsigned i)
{
	struct iwarp_side *s = &p->side[i];
	enum iwarp_life life = iwarp_life(s->qp);

	if (life == IWARP_FINISH || life == IWARP_GONE || life == IWARP_NONE)
		s->out.fin = true;
	if (life == IWARP_RESET) {
		s->out.lost = true;
		s->out.tail = s->out.head;
	}
	s->closed = life == IWARP_RESET || life == IWARP_GONE || life == IWARP_NONE;
}

bool iwarp_side_step(struct iwarp_pair *p, unsigned i)
{
	struct iwarp_side *s = &p->side[i];
	struct pipe *in = &p->side[!i].out;
	struct iovec iov[PIECES];
	size_t sent = 0, got = 0;
	unsigned n;

	if (!s->opened || s->closed)
		return false;
	lock_take(&s->qp->lock);
	n = iwarp_send_iov(s->qp, true, p->now, iov, PIECES);
	if (n)
		sent = pipe_send(p, i, iov, n);
	if (sent)
		iwarp_sent(s->qp, sent, p->now);
	n = iwarp_recv_iov(s->qp, p->now, iov, PIECES);
	if (n && iwarp_qp(s->qp)->reader.direct)
		s->direct++;
	if (n)
		got = pipe_receive(p, i, iov, n);
	if (got)
		iwarp_received(s->qp, got, p->now);
	if (n && !got && (in->fin || in->lost)) /* who waits for a receive does not read */
		iwarp_lost(s->qp, p->now);
	close_side(p, i);
	lock_drop(&s->qp->lock);
	return sent || got || s->closed;
}

bool iwarp_pair_step(struct iwarp_pair *p)
{
	bool a = iwarp_side_step(p, 0), b = iwarp_side_step(p, 1);

	return a || b;
}

void iwarp_pair_run(struct iwarp_pair *p)
{
	while (iwarp_pair_step(p))
		;
}

void iwarp_pair_wait(struct iwarp_pair *p, uint64_t ns)
{
	p->now += ns;
	for (unsigned i = 0; i < 2; i++) {
		struct hca_qp *qp = p->side[i].qp;

		lock_take(&qp->lock);
		if (qp->deadline && qp->deadline <= p->now)
			iwarp_timer(qp, p->now);
		lock_drop(&qp->lock);
	}
	iwarp_pair_run(p);
}

void iwarp_pair_kill(struct iwarp_pair *p)
{
	for (unsigned i = 0; i < 2; i++) {
		struct iwarp_side *s = &p->side[i];

		s->out.tail = s->out.head;
		s->out.lost = true;
		iwarp_connect_lost(&s->connect);
		if (!s->opened || s->closed)
			continue;
		lock_take(&s->qp->lock);
		iwarp_lost(s->qp, p->now);
		close_side(p, i);
		lock_drop(&s->qp->lock);
	}
}
