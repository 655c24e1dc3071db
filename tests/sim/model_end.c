/* SPDX-License-Identifier: MIT */
/*
 * What is left in memory: when all went well, exactly what the model has; when a connection broke, what some
 * prefix of the packets of its requests would have left; over UC, any subset of the packets.
 */
#include "model.h"

#include <string.h>

/* ---- a connection that broke ---- */
/* The target as it would be, packet by packet, and in how many bytes it is not what it is. */
struct replay {
	const uint8_t *is;
	uint8_t would[TARGET];
	uint32_t wrong;
};

static uint32_t count_wrong(const struct replay *r, uint64_t at, uint32_t len)
{
	uint32_t n = 0;

	if (!memcmp(r->would + at, r->is + at, len))
		return 0;
	for (uint32_t i = 0; i < len; i++)
		n += r->would[at + i] != r->is[at + i];
	return n;
}

static void replay_bytes(struct replay *r, uint64_t at, const void *bytes, uint32_t len)
{
	r->wrong -= count_wrong(r, at, len);
	memcpy(r->would + at, bytes, len);
	r->wrong += count_wrong(r, at, len);
}

static void replay_atomic(struct replay *r, const struct sim_wr *w)
{
	uint64_t v, o;

	memcpy(&o, r->would + w->offset, 8);
	v = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? o + w->compare_add : o == w->compare_add ? w->swap : o;
	replay_bytes(r, w->offset, &v, 8);
}

/*
 * Applies request i of p to the target of s. true: it may have come to an end before, in the middle or,
 * unless it `must` go on, behind it, with the target as it is.
 */
static bool replay_request(struct replay *r, const struct side *s, unsigned i, bool must)
{
	const struct side *p = s->peer;
	const struct sim_wr *w = &p->wr[i];
	uint32_t mtu = 128u << p->opts.mtu;
	bool unheard = model_is_message(w) && i >= s->received; /* its last packet was not executed */

	if (!must && !r->wrong)
		return true;
	if (!w->in_target || w->shared || w->opcode == IBV_WR_RDMA_READ)
		return false;
	if (model_is_atomic(w)) {
		if (!w->bad)
			replay_atomic(r, w);
		return false;
	}
	if (w->bad && w->bad != BAD_LKEY)
		return false;
	for (uint32_t off = 0; off < w->len; off += mtu) {
		uint32_t n = w->len - off < mtu ? w->len - off : mtu;

		if (unheard && off + n == w->len)
			break;
		replay_bytes(r, w->offset + off, w->bytes + off, n);
		if (!must && !r->wrong)
			return true;
	}
	return false;
}

/*
 * Nothing is executed behind a request that was not, or not to its end. (A READ that finds no place for its
 * responses was executed.)
 */
static bool ends_here(const struct side *s, unsigned i)
{
	const struct sim_wr *w = &s->peer->wr[i];

	if (w->bad && !(w->bad == BAD_LKEY && w->opcode == IBV_WR_RDMA_READ))
		return true;
	return model_is_message(w) && i >= s->received;
}

/* Whether all that is wrong has come by a part of this WRITE, which its initiator copied until it was killed.
 */
static bool is_torn(const struct replay *r, const struct sim_wr *w)
{
	uint32_t explained = 0;

	if (w->opcode != IBV_WR_RDMA_WRITE || w->bad || !w->in_target)
		return false;
	for (uint32_t i = 0; i < w->len; i++) {
		uint8_t is = r->is[w->offset + i];

		explained += is != r->would[w->offset + i] && is == w->bytes[i];
	}
	return explained == r->wrong;
}

void model_check_remains(struct model *m, struct side *s)
{
	static struct replay r;
	const struct side *p = s->peer;

	if (s->opts.type != IBV_QPT_RC)
		return;
	if (!s->target_mr && memcmp(s->target, s->model, TARGET))
		model_fail(m, s, "the target changed after it was deregistered");
	r.is = s->target;
	memcpy(r.would, s->base, TARGET);
	r.wrong = count_wrong(&r, 0, TARGET);
	for (unsigned i = p->first; i < p->posted; i++) {
		bool must = i < p->succeeded || i < s->received;

		if (m->torn && !must && is_torn(&r, &p->wr[i]))
			r.wrong = 0;
		if (replay_request(&r, s, i, must))
			break;
		if (ends_here(s, i))
			break;
	}
	if (r.wrong)
		model_fail(m, s, "the target is in a state that nothing its peer posted leads to");
	memcpy(s->base, s->target, TARGET);
	memcpy(s->model, s->target, TARGET);
}

/* ---- the end ---- */
/* Of a WRITE over UC, any packet may be missing, but no byte may be neither old nor new. */
static void check_unreliable_write(struct model *m, struct side *s, unsigned i)
{
	const struct sim_wr *w = &s->wr[i];
	uint32_t mtu = 128u << s->opts.mtu;

	for (uint32_t off = 0; off < w->len; off += mtu) {
		uint32_t n = w->len - off < mtu ? w->len - off : mtu;
		uint8_t *at = s->peer->target + w->offset + off;

		if (memcmp(at, w->bytes + off, n) && memcmp(at, s->peer->model + w->offset + off, n))
			model_fail(m, s, "packet %u of WRITE %u is damaged in the target", off / mtu, i);
		memcpy(at, s->peer->model + w->offset + off, n);
	}
}

static void check_target(struct model *m, struct side *s)
{
	if (s->opts.type == IBV_QPT_RC && (model_conn(m, s)->over || s->cut || !s->target_mr)) {
		model_check_remains(m, s);
		return;
	}
	if (!memcmp(s->target, s->model, TARGET))
		return;
	for (uint32_t k = 0; k < TARGET; k++) {
		if (s->target[k] != s->model[k])
			model_fail(m, s, "the target's byte %u is 0x%02x, must be 0x%02x", k, s->target[k],
				s->model[k]);
	}
}

/* In a perfect network a datagram that is for this queue pair came, or was refused for want of a receive. */
static void check_datagrams(struct model *m, struct side *s)
{
	uint64_t refused = s->qp->count->dropped + s->qp->count->not_ready, sent = 0;

	for (unsigned i = 0; i < m->nsides; i++) {
		const struct side *from = &m->side[i];

		for (unsigned k = 0; from->opts.type == IBV_QPT_UD && k < from->posted; k++)
			sent += from->wr[k].done && from->wr[k].dqpn == hca_qpn(s->qp);
	}
	if (s->datagrams + refused < sent)
		model_fail(m, s, "took %llu and refused %llu of %llu datagrams",
			(unsigned long long)s->datagrams, (unsigned long long)refused,
			(unsigned long long)sent);
}

static void check_counter(struct model *m, unsigned i)
{
	const struct sim_site *c = &m->site[i];

	if (c->counter > c->counted || c->counter < c->counted_surely)
		model_fail(m, NULL, "the common counter of node %u is %llu after %llu to %llu additions", i,
			(unsigned long long)c->counter, (unsigned long long)c->counted_surely,
			(unsigned long long)c->counted);
}

void model_check_end(struct model *m)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		for (unsigned k = 0; s->opts.type == IBV_QPT_UC && k < s->posted; k++) {
			if (model_is_write(&s->wr[k]) && model_is_ours(s->peer))
				check_unreliable_write(m, s, k);
		}
	}
	for (unsigned i = 0; i < m->nsides; i++) {
		struct side *s = &m->side[i];

		if (!model_is_ours(s))
			continue;
		check_target(m, s);
		if (s->qp && s->qp->deadline && m->world.net)
			model_fail(m, s, "a timer is left when all is done");
		if (s->qp && s->opts.type == IBV_QPT_UD && m->calm && !s->harmed)
			check_datagrams(m, s);
	}
	for (unsigned i = 0; i < m->world.nodes; i++)
		check_counter(m, i);
	if (m->world.net)
		model_check_flows(m);
}

/* ---- flows ---- */
static void check_flow(struct model *m, const struct sim_node *n, const struct hca_flow *f, bool reads)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < m->nsides; i++) {
		struct hca_qp *qp = m->side[i].qp;

		if (qp && m->side[i].node == n && (reads || qp->path.flow == f))
			sum += sim_qp_in_flight(qp, reads);
	}
	if (sum != f->in_flight)
		model_fail(m, NULL, "node %u: %llu is in flight%s but %u is charged",
			(unsigned)(n - m->world.node), (unsigned long long)sum, reads ? " to itself" : "",
			f->in_flight);
}

void model_check_flows(struct model *m)
{
	for (unsigned i = 0; i < m->world.nodes; i++) {
		const struct hca_adapter *a = &m->world.node[i].adapter;

		if (!m->world.node[i].up)
			continue;
		check_flow(m, &m->world.node[i], a->read_flow, true);
		for (unsigned k = 0; k < FLOW_BUCKETS; k++) {
			for (const struct hca_flow *f = a->flows.bucket[k]; f; f = f->next)
				check_flow(m, &m->world.node[i], f, false);
		}
	}
}
