/* SPDX-License-Identifier: MIT */
/* A connection manager at each end of a call: what it may be told and when, and what it does. */
#include "stream_calls.h"

#include <errno.h>
#include <string.h>

/* ---- what may be ---- */
static bool is_incompatible(const struct call *k)
{
	return !(sim.rtr[k->end[0].node] & sim.rtr[k->end[1].node]);
}

static bool has_excuse(const struct call *k)
{
	return k->happened || k->work.broken || k->whole || (k->trouble == FLIPPED && sim_tcp_flipped());
}

/* ---- the manager ---- */
static void requested(struct call *k, struct iwarp_conn *c, const struct iwarp_conn_event *e)
{
	struct end *n = &k->end[1];

	if (n->requested || e->listener != k->listener)
		fail("call %u: a request that nobody made", k->index);
	if (e->private_len != k->len[0] || memcmp(e->private_data, k->data[0], k->len[0]))
		fail("call %u: other private data in the request", k->index);
	n->requested = true;
	n->closed = false; /* its caller may be gone */
	n->conn = c;
	c->user = n;
	k->happened |= k->trouble == SLOW;
	k->answer_at = sim.now + (k->trouble == SLOW ? 130 * SIM_S : sim_draw(4 * sim.rules.delay + 1));
}

static void established(struct call *k, struct end *n, const struct iwarp_conn_event *e)
{
	const struct stream *s = (const struct stream *)n->conn;
	struct player *pl = &k->work.player[n == &k->end[1]];

	if (n->established || n->ended)
		fail("call %u: established twice, or after its end", k->index);
	if (n == &k->end[0] &&
		(e->private_len != k->len[1] || memcmp(e->private_data, k->data[1], k->len[1])))
		fail("call %u: other private data in the reply", k->index);
	n->established = true;
	pl->qp = n->qp;
	pl->extended = s->mpa.params.extended;
	sim_total.established++;
	sim_total.shared += s->by_frames;
	sim_total.declined += s->mpa.upgrades && !s->by_frames;
}

static void ended(struct call *k, struct end *n, const struct iwarp_conn_event *e)
{
	bool refused = !n->established && (is_incompatible(k) || k->trouble == UNHEARD ||
						  e->status == -EADDRNOTAVAIL /* sim_tcp.c */);

	if (n->ended)
		fail("call %u: its end is told twice", k->index);
	if ((e->type == IWARP_CONN_DISCONNECTED) != n->established)
		fail("call %u: told %s", k->index, n->established ? "FAILED" : "DISCONNECTED");
	if (!has_excuse(k) && !refused)
		fail("at %.3f us, call %u, end %u: it ended (%s), and nobody knows why",
			(double)sim.now / 1000, k->index, n == &k->end[1], strerror(-e->status));
	if (k->trouble == REJECTED && n == &k->end[0] && e->status == -ECONNREFUSED && k->answered &&
		(e->private_len != k->len[1] || memcmp(e->private_data, k->data[1], k->len[1])))
		fail("call %u: other private data in the refusal", k->index);
	n->ended = true;
	n->close_at = sim.now + sim_draw(sim_draw(2) ? SIM_S : 10 * sim.rules.delay + 1);
	sim_total.refused += refused;
}

static bool tell(struct iwarp_conn *c, const struct iwarp_conn_event *e)
{
	static const char *const names[] = {"REQUEST", "ESTABLISHED", "FAILED", "DISCONNECTED"};
	struct call *k = c->manager;
	struct end *n = c->user;
	const uint64_t v[] = {sim.now, k->index, e->type, (uint64_t)e->status, e->private_len};

	seeds_note(v, sizeof(v));
	if (e->type == IWARP_CONN_REQUEST) {
		bool room = k->trouble != FULL && sim_draw(4);

		call_say(k, "a request%s", room ? "" : ", and no room for it");
		if (k->trouble == FULL)
			k->happened = true;
		if (room)
			requested(k, c, e);
		return room;
	}
	if (!n)
		return true; /* the manager has let go of it */
	call_say(k, "end %u is told %s, %s", n == &k->end[1], names[e->type], strerror(-e->status));
	if (e->type == IWARP_CONN_ESTABLISHED)
		established(k, n, e);
	else
		ended(k, n, e);
	return true;
}

void call_let_go(struct call *k, struct end *n)
{
	call_say(k, "end %u is closed", n == &k->end[1]);
	if (n->conn) {
		n->conn->user = NULL;
		iwarp_conn_close(n->conn);
	}
	n->conn = NULL;
	n->closed = true;
}

void call_close_listener(struct call *k)
{
	if (!k->listener)
		return;
	k->listener->user = NULL;
	iwarp_conn_close(k->listener);
	k->listener = NULL;
	iwarp_conn_settle(node_adapter(k->end[1].node));
}

/* ---- queue pairs ---- */
void call_make_end(struct call *k, unsigned i)
{
	struct end *n = &k->end[i];
	struct sim_node *node = &sim.w.node[n->node];
	struct player *pl = &k->work.player[i];
	struct sim_qp_opts o;

	pl->cq = sim_cq(node, 256);
	pl->mem = sim.mem[k->index][i];
	pl->iova = (2 * k->index + i + 1) * 0x10000000ull;
	pl->mr = sim_mr(node, pl->mem, WORK_MEM, pl->iova);
	pl->todo = 1 + (unsigned)sim_draw(sim.rules.buffer < 600 ? 3 : OPS - 1);
	o = sim_qp_opts(pl->cq);
	o.sig_all = false;
	n->qp = sim_qp(node, &o);
}

void call_destroy_qp(struct call *k, struct end *n)
{
	struct player *pl = &k->work.player[n == &k->end[1]];

	if (!n->qp)
		return;
	if (pl->qp)
		iwarp_work_poll(&k->work, pl);
	pl->qp = NULL;
	if (hca_qp_destroy(n->qp))
		fail("call %u: a queue pair cannot be destroyed", k->index);
	n->qp = NULL;
}

void call_unmake_end(struct call *k, unsigned i)
{
	struct player *pl = &k->work.player[i];

	call_destroy_qp(k, &k->end[i]);
	if (!pl->cq)
		return;
	hca_mr_dereg(pl->mr);
	hca_cq_destroy(pl->cq);
	pl->cq = NULL;
}

/* ---- calling ---- */
void call_listen(struct call *k)
{
	struct hca_adapter *a = node_adapter(k->end[1].node);
	struct sockaddr_storage at = node_address(k->end[1].node, LISTEN_PORT + k->index);

	k->listened = true;
	k->listener = iwarp_conn_new(a, tell, k, k);
	if (!k->listener || iwarp_conn_listen(a, k->listener, (struct sockaddr *)&at, true, 16))
		fail("call %u: cannot listen", k->index);
	call_say(k, "listens");
}

static struct iwarp_conn_param param(struct call *k, unsigned i)
{
	return (struct iwarp_conn_param){.qpn = hca_qpn(k->end[i].qp),
		.ird = (uint16_t)(4 + sim_draw(5)),
		.ord = (uint16_t)(1 + sim_draw(4)),
		.private_data = k->data[i],
		.private_len = k->len[i]};
}

void call_connect(struct call *k)
{
	struct end *n = &k->end[0];
	struct sockaddr_storage from = node_address(n->node, CALLER_PORT + k->index),
				to = node_address(k->end[1].node, LISTEN_PORT + k->index);
	struct iwarp_conn_param p;
	int err;

	k->begun = true;
	if (!n->qp) {
		n->closed = true;
		return;
	}
	p = param(k, 0);
	p.from = (struct sockaddr *)&from;
	p.to = (struct sockaddr *)&to;
	n->conn = iwarp_conn_new(node_adapter(n->node), tell, k, n);
	sim.is = n->node;
	err = iwarp_conn_connect(node_adapter(n->node), n->conn, &p);
	call_say(k, "node %u (%s) calls node %u (%s): %d", n->node, sim.words[n->node], k->end[1].node,
		sim.words[k->end[1].node], err);
	if (!err)
		return;
	if (err != -EADDRNOTAVAIL && !(err == -EINVAL && k->happened))
		fail("call %u: cannot connect: %s", k->index, strerror(-err));
	k->happened = true; /* there is nothing to be told */
	n->ended = true;
	n->close_at = sim.now;
}

void call_answer(struct call *k)
{
	struct end *n = &k->end[1];
	struct iwarp_conn_param p;
	int err;

	k->answered = true;
	if (!n->qp) {
		call_let_go(k, n);
		return;
	}
	p = param(k, 1);
	if (k->trouble == REJECTED) {
		k->happened = true;
		err = iwarp_conn_reject(node_adapter(n->node), n->conn, k->data[1], k->len[1]);
		call_say(k, "rejects: %d", err);
		call_let_go(k, n);
		return;
	}
	sim.is = n->node;
	err = iwarp_conn_accept(node_adapter(n->node), n->conn, &p);
	call_say(k, "accepts: %d", err);
	if (!err)
		return;
	if (!is_incompatible(k) && !has_excuse(k))
		fail("call %u: cannot accept: %s", k->index, strerror(-err));
	call_let_go(k, n);
}
