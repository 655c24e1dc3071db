/* SPDX-License-Identifier: MIT */
/*
 * Whole adapters with iWARP connections over a TCP in memory (sim_tcp.h), all drawn from a seed: who calls
 * whom and when, what ANYRDMA_IWARP says at each node, how the socket calls go, what is posted, and what goes
 * wrong: from the first SYN on (nobody listens yet, the manager has no room, a program thinks too long or
 * refuses) to the last FIN.
 *
 *   stream_test [--seed N] [--seeds COUNT] [--trace]
 *
 * iwarp_work.h has the work and the model. Besides that each end of a connection must be told, once, of how
 * it begins and how it ends, and in the end no descriptor, no stream and no alarm may be left.
 */
#include "iwarp/port.h"
#include "iwarp_work.h"
#include "link/tcp.h"
#include "seeds.h"
#include "sim_tcp.h"

#include "base/env.h"
#include "base/gid.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CALLS = 4, STRANGERS = 3, LISTEN_PORT = 7000, CALLER_PORT = 40000, DATA = 64 };
enum { ROUNDS_MOST = 20000, STEPS_MOST = 2000000 };
#define PATIENCE (400 * SIM_S) /* more than all deadlines that follow each other */
#define LATE     (1 * SIM_S)   /* more than who is refused tries again */

/* What goes wrong with a connection, on purpose. */
#define TROUBLES(X)                                                                                          \
	X(CALM, "none")                                                                                      \
	X(BROKEN, "a box in between resets it")                                                              \
	X(TO_ERROR, "a queue pair is moved to the error state")                                              \
	X(DESTROYED, "a queue pair is destroyed")                                                            \
	X(CLOSED, "a manager lets go of it")                                                                 \
	X(DISCONNECTED, "a program disconnects")                                                             \
	X(DEAF, "the listener is closed")                                                                    \
	X(FLIPPED, "a bit flips")                                                                            \
	X(WRONG, "a request is wrong")                                                                       \
	X(REJECTED, "the program refuses")                                                                   \
	X(SLOW, "the program thinks too long")                                                               \
	X(FULL, "the manager never has room")                                                                \
	X(UNHEARD, "nobody listens in time")                                                                 \
	X(VANISHED, "a host vanishes")                                                                       \
	X(DIED, "a process ends")

enum trouble {
#define X(name, text) name,
	TROUBLES(X)
#undef X
		TROUBLE_COUNT,
};

static const char *const trouble_names[] = {
#define X(name, text) text,
	TROUBLES(X)
#undef X
};

/* One end of a connection, as its manager sees it. */
struct end {
	unsigned node;
	struct iwarp_conn *conn; /* NULL: not yet, or not any more */
	struct hca_qp *qp;
	bool requested, established, ended; /* it was told so */
	bool closed;                        /* the manager has let go of it */
	uint64_t close_at, next_post, next_recv;
};

struct call {
	unsigned index;
	struct end end[2]; /* 0 calls */
	struct iwarp_conn *listener;
	struct iwarp_work work;
	uint8_t data[2][DATA];
	uint32_t len[2];
	enum trouble trouble;
	unsigned whose; /* trouble it is */
	bool happened;  /* and it has */
	bool begun, listened, answered, whole;
	uint64_t listen_at, connect_at, answer_at, trouble_at, settle_at, over_at;
};

/* Who connects and does not speak MPA, or not to the end. */
struct stranger {
	int fd; /* -1: not there */
	uint64_t come_at, speak_at, leave_at;
	unsigned to;
	bool spoke;
};

static struct {
	struct sim_world w;
	struct choices c;
	uint64_t now;
	struct sim_tcp_rules rules;
	unsigned calls, strangers;
	struct call call[CALLS];
	struct stranger stranger[STRANGERS];
	char words[SIM_NODES][96]; /* ANYRDMA_IWARP */
	unsigned rtr[SIM_NODES];   /* of these */
	unsigned is;               /* whose environment it is */
	uint8_t *mem[CALLS][2];
} t;

static struct {
	unsigned long long established, refused, troubles[TROUBLE_COUNT];
} total;

static uint64_t draw(uint64_t below)
{
	return choose(&t.c, below);
}

static void say(const struct call *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(const struct call *k, const char *fmt, ...)
{
	va_list ap;

	if (!seeds.trace)
		return;
	printf("%12.3f us  ", (double)t.now / 1000);
	if (k)
		printf("call %u: ", k->index);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

#define fail iwarp_work_fail

/* ---- nodes ---- */
static struct hca_adapter *adapter(unsigned node)
{
	return &t.w.node[node].adapter;
}

static struct sockaddr_storage address(unsigned node, unsigned port)
{
	struct sockaddr_storage sa = {0};

	gid_to_sockaddr(t.w.node[node].gid, (uint16_t)port, 0, &sa);
	return sa;
}

/* What our_options() reads. */
static void draw_words(unsigned node)
{
	static const char *const words[] = {"crc", "markers", "mpa1", "client-server", "plain", "mss"};
	static const char *const rtrs[] = {"rtr-write", "rtr-read", "rtr-zero"};
	char *w = t.words[node];

	w[0] = 0;
	t.rtr[node] = 0;
	for (unsigned i = 0; i < 6; i++) {
		if (!draw(4))
			sprintf(w + strlen(w), "%s,", words[i]);
	}
	for (unsigned i = 0, some = !draw(4); some && i < 3; i++) {
		if (draw(2))
			continue;
		sprintf(w + strlen(w), "%s,", rtrs[i]);
		t.rtr[node] |= 1u << i;
	}
	if (!t.rtr[node])
		t.rtr[node] = 7;
}

static void node_open(unsigned i)
{
	t.w.node[i].dev.kind = HCA_IWARP;
	if (iwarp_port_open(adapter(i)))
		fail("no iWARP");
	draw_words(i);
}

/* What its process has in its environment: each node is a process. */
int64_t __real_env_value(enum env v);
int64_t __wrap_env_value(enum env v);
int64_t __wrap_env_value(enum env v)
{
	static const char *const all[] = {"crc", "markers", "mpa1", "client-server", "plain", "rtr-write",
		"rtr-read", "rtr-zero", "mss"};
	int64_t set = 0;

	if (v != ANYRDMA_IWARP)
		return __real_env_value(v);
	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		set |= strstr(t.words[t.is], all[i]) ? 1 << i : 0;
	return set;
}

/* Drives a node as a program that polls, or as the helper, which was woken. */
static void drive(unsigned i)
{
	struct hca_engine *e = &adapter(i)->engine;
	struct iwarp_port *p = iwarp_port_in(adapter(i));

	if (sim_tcp_ready(p->epfd) && draw(3))
		atomic_fetch_or(&e->woken, p->provider.bit);
	t.is = i;
	hca_engine_drive(e);
}

static bool has_work(unsigned i)
{
	struct hca_engine *e = &adapter(i)->engine;
	struct iwarp_port *p = iwarp_port_in(adapter(i));

	return sim_tcp_ready(p->epfd) || !list_empty(&e->runnable) || atomic_load(&p->tidy_wanted) ||
	       e->next_timer <= t.now;
}

/* Everybody, in any order, until nobody has anything to do. */
static void drive_all(void)
{
	bool again = true;

	for (unsigned rounds = 0; again; rounds++) {
		unsigned first = (unsigned)draw(t.w.nodes);

		for (unsigned i = 0; i < t.w.nodes; i++) {
			unsigned node = (first + i) % t.w.nodes;

			if (t.w.node[node].up)
				drive(node);
		}
		again = false;
		for (unsigned i = 0; i < t.w.nodes; i++)
			again |= t.w.node[i].up && has_work(i);
		if (rounds > ROUNDS_MOST)
			fail("at %.3f us: it turns in circles", (double)t.now / 1000);
	}
}

/* ---- what may be ---- */
static bool is_incompatible(const struct call *k)
{
	return !(t.rtr[k->end[0].node] & t.rtr[k->end[1].node]);
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
	k->answer_at = t.now + (k->trouble == SLOW ? 130 * SIM_S : draw(4 * t.rules.delay + 1));
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
	total.established++;
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
		fail("at %.3f us, call %u, end %u: it ended (%s), and nobody knows why", (double)t.now / 1000,
			k->index, n == &k->end[1], strerror(-e->status));
	if (k->trouble == REJECTED && n == &k->end[0] && e->status == -ECONNREFUSED && k->answered &&
		(e->private_len != k->len[1] || memcmp(e->private_data, k->data[1], k->len[1])))
		fail("call %u: other private data in the refusal", k->index);
	n->ended = true;
	n->close_at = t.now + draw(draw(2) ? SIM_S : 10 * t.rules.delay + 1);
	total.refused += refused;
}

static bool tell(struct iwarp_conn *c, const struct iwarp_conn_event *e)
{
	static const char *const names[] = {"REQUEST", "ESTABLISHED", "FAILED", "DISCONNECTED"};
	struct call *k = c->manager;
	struct end *n = c->user;
	const uint64_t v[] = {t.now, k->index, e->type, (uint64_t)e->status, e->private_len};

	seeds_note(v, sizeof(v));
	if (e->type == IWARP_CONN_REQUEST) {
		bool room = k->trouble != FULL && draw(4);

		say(k, "a request%s", room ? "" : ", and no room for it");
		if (k->trouble == FULL)
			k->happened = true;
		if (room)
			requested(k, c, e);
		return room;
	}
	if (!n)
		return true; /* the manager has let go of it */
	say(k, "end %u is told %s, %s", n == &k->end[1], names[e->type], strerror(-e->status));
	if (e->type == IWARP_CONN_ESTABLISHED)
		established(k, n, e);
	else
		ended(k, n, e);
	return true;
}

static void let_go(struct call *k, struct end *n)
{
	say(k, "end %u is closed", n == &k->end[1]);
	if (n->conn) {
		n->conn->user = NULL;
		iwarp_conn_close(n->conn);
	}
	n->conn = NULL;
	n->closed = true;
}

static void close_listener(struct call *k)
{
	if (!k->listener)
		return;
	k->listener->user = NULL;
	iwarp_conn_close(k->listener);
	k->listener = NULL;
	iwarp_conn_settle(adapter(k->end[1].node));
}

/* ---- queue pairs ---- */
static void make_end(struct call *k, unsigned i)
{
	struct end *n = &k->end[i];
	struct sim_node *node = &t.w.node[n->node];
	struct player *pl = &k->work.player[i];
	struct sim_qp_opts o;

	pl->cq = sim_cq(node, 256);
	pl->mem = t.mem[k->index][i];
	pl->iova = (2 * k->index + i + 1) * 0x10000000ull;
	pl->mr = sim_mr(node, pl->mem, WORK_MEM, pl->iova);
	pl->todo = 1 + (unsigned)draw(t.rules.buffer < 600 ? 3 : OPS - 1);
	o = sim_qp_opts(pl->cq);
	o.sig_all = false;
	n->qp = sim_qp(node, &o);
}

static void destroy_qp(struct call *k, struct end *n)
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

static void unmake_end(struct call *k, unsigned i)
{
	struct player *pl = &k->work.player[i];

	destroy_qp(k, &k->end[i]);
	if (!pl->cq)
		return;
	hca_mr_dereg(pl->mr);
	hca_cq_destroy(pl->cq);
	pl->cq = NULL;
}

/* ---- calling ---- */
static void begin_listening(struct call *k)
{
	struct hca_adapter *a = adapter(k->end[1].node);
	struct sockaddr_storage at = address(k->end[1].node, LISTEN_PORT + k->index);

	k->listened = true;
	k->listener = iwarp_conn_new(a, tell, k, k);
	if (!k->listener || iwarp_conn_listen(a, k->listener, (struct sockaddr *)&at, true, 16))
		fail("call %u: cannot listen", k->index);
	say(k, "listens");
}

static struct iwarp_conn_param param(struct call *k, unsigned i)
{
	return (struct iwarp_conn_param){.qpn = hca_qpn(k->end[i].qp),
		.ird = (uint16_t)(4 + draw(5)),
		.ord = (uint16_t)(1 + draw(4)),
		.private_data = k->data[i],
		.private_len = k->len[i]};
}

static void call_up(struct call *k)
{
	struct end *n = &k->end[0];
	struct sockaddr_storage from = address(n->node, CALLER_PORT + k->index),
				to = address(k->end[1].node, LISTEN_PORT + k->index);
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
	n->conn = iwarp_conn_new(adapter(n->node), tell, k, n);
	t.is = n->node;
	err = iwarp_conn_connect(adapter(n->node), n->conn, &p);
	say(k, "node %u (%s) calls node %u (%s): %d", n->node, t.words[n->node], k->end[1].node,
		t.words[k->end[1].node], err);
	if (!err)
		return;
	if (err != -EADDRNOTAVAIL && !(err == -EINVAL && k->happened))
		fail("call %u: cannot connect: %s", k->index, strerror(-err));
	k->happened = true; /* there is nothing to be told */
	n->ended = true;
	n->close_at = t.now;
}

static void answer(struct call *k)
{
	struct end *n = &k->end[1];
	struct iwarp_conn_param p;
	int err;

	k->answered = true;
	if (!n->qp) {
		let_go(k, n);
		return;
	}
	p = param(k, 1);
	if (k->trouble == REJECTED) {
		k->happened = true;
		err = iwarp_conn_reject(adapter(n->node), n->conn, k->data[1], k->len[1]);
		say(k, "rejects: %d", err);
		let_go(k, n);
		return;
	}
	t.is = n->node;
	err = iwarp_conn_accept(adapter(n->node), n->conn, &p);
	say(k, "accepts: %d", err);
	if (!err)
		return;
	if (!is_incompatible(k) && !has_excuse(k))
		fail("call %u: cannot accept: %s", k->index, strerror(-err));
	let_go(k, n);
}

/* ---- troubles ---- */
static void touch_node(unsigned node)
{
	for (unsigned i = 0; i < t.calls; i++) {
		struct call *k = &t.call[i];

		if (k->end[0].node != node && k->end[1].node != node)
			continue;
		k->work.lenient = k->happened = true;
		k->work.broken = true;
	}
}

static void end_process(unsigned node)
{
	for (unsigned i = 0; i < t.calls; i++) {
		struct call *k = &t.call[i];

		for (unsigned e = 0; e < 2; e++) {
			if (k->end[e].node != node)
				continue;
			unmake_end(k, e);
			k->end[e].closed = true;
			k->end[e].conn = NULL;
			if (e)
				k->listener = NULL;
		}
	}
	sim_node_stop(&t.w, node);
}

static void happen(struct call *k)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct end *n = &k->end[k->whose];
	struct sockaddr_storage addr = address(n->node, 0);

	if (k->trouble == FLIPPED) {
		if (n->established && k->end[!k->whose].established)
			sim_tcp_flip((uint16_t)(CALLER_PORT + k->index), k->whose, draw(20000));
		k->trouble_at = n->established || k->whole || k->happened ? UINT64_MAX : t.now + SIM_MS;
		return;
	}
	k->trouble_at = UINT64_MAX;
	if (k->whole || k->happened)
		return;
	if (k->trouble == CALM || k->trouble == WRONG || k->trouble == REJECTED || k->trouble == SLOW ||
		k->trouble == FULL || k->trouble == UNHEARD)
		return;
	say(k, "%s, end %u", trouble_names[k->trouble], k->whose);
	k->happened = k->work.broken = true;
	switch (k->trouble) {
	case BROKEN:
		k->happened = k->work.broken = sim_tcp_break((uint16_t)(CALLER_PORT + k->index));
		break;
	case TO_ERROR:
		if (n->qp && hca_qp_state(n->qp) != IBV_QPS_ERR)
			hca_qp_modify(n->qp, &a, IBV_QP_STATE);
		break;
	case DESTROYED:
		destroy_qp(k, n);
		break;
	case CLOSED:
		k->happened = k->work.broken = n->conn;
		if (n->conn)
			let_go(k, n);
		break;
	case DISCONNECTED:
		k->happened = k->work.broken = n->conn && !iwarp_conn_disconnect(adapter(n->node), n->conn);
		break;
	case DEAF:
		k->happened = k->work.broken = !k->end[1].conn && !k->answered;
		k->listened = true;
		close_listener(k);
		break;
	case VANISHED:
		touch_node(n->node);
		sim_tcp_vanish((struct sockaddr *)&addr);
		break;
	default:
		touch_node(n->node);
		end_process(n->node);
	}
}

static void act_on_stranger(struct stranger *s)
{
	uint8_t bytes[40];

	if (s->fd < 0 && t.now >= s->come_at && t.now < s->leave_at) {
		struct sockaddr_storage from = address(0, 0), to;

		to = address(t.call[s->to].end[1].node, LISTEN_PORT + s->to);
		s->fd = link_tcp_connect((struct sockaddr *)&from, (struct sockaddr *)&to, 0);
		s->speak_at = t.now + 4 * t.rules.delay;
	}
	if (s->fd >= 0 && !s->spoke && t.now >= s->speak_at) {
		struct iovec iov = {bytes, draw(sizeof(bytes))};
		struct sockaddr_storage local;

		memcpy(bytes, "MPA ID Req Frame\x40\x02\x00\x20", 20); /* more is announced than comes */
		if (draw(2))
			bytes[draw(18)] ^= (uint8_t)(1 + draw(255));
		memset(bytes + 20, 0x5a, 20);
		s->spoke = true;
		if (iov.iov_len && !link_tcp_connected(s->fd, &local))
			link_tcp_send(s->fd, &iov, 1);
	}
	if (s->fd >= 0 && t.now >= s->leave_at) {
		if (draw(2))
			link_tcp_reset(s->fd);
		else
			close(s->fd);
		s->fd = -1;
	}
}

/* ---- a call's life ---- */
static void work(struct call *k, unsigned i)
{
	struct end *n = &k->end[i];
	struct player *pl = &k->work.player[i];

	if (!n->established || !pl->qp || k->whole)
		return;
	if (t.now >= n->next_post && !k->work.broken) {
		for (unsigned m = (unsigned)draw(4); m-- && pl->posted < pl->todo;)
			iwarp_work_post(&k->work, pl);
		n->next_post = t.now + 1 + draw(draw(4) ? t.rules.delay + 1 : 100 * SIM_US);
	}
	if (t.now >= n->next_recv) {
		for (unsigned m = (unsigned)draw(6); m--;)
			iwarp_work_post_recv(&k->work, pl);
		n->next_recv = t.now + 1 + draw(draw(8) ? t.rules.delay + 1 : 5 * SIM_MS);
	}
}

/* All is done: what must come has come, and now it ends. */
static void finish(struct call *k)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct end *n = &k->end[draw(2)];

	if (!k->settle_at) {
		k->settle_at = t.now + t.rules.delay + SIM_MS; /* what has left arrives */
		return;
	}
	if (t.now < k->settle_at)
		return;
	if (!k->work.broken)
		iwarp_work_check_end(&k->work);
	if (k->work.broken)
		return;
	k->whole = k->happened = k->work.broken = true;
	say(k, "all is done");
	switch (draw(4)) {
	case 0:
		if (iwarp_conn_disconnect(adapter(n->node), n->conn))
			fail("call %u: cannot disconnect", k->index);
		break;
	case 1:
		hca_qp_modify(n->qp, &a, IBV_QP_STATE);
		break;
	case 2:
		destroy_qp(k, n);
		break;
	default:
		let_go(k, n);
	}
}

static bool both_established(const struct call *k)
{
	return k->work.player[0].qp && k->work.player[1].qp;
}

/* An end whose connection is over, or will never be, is closed. */
static void close_ends(struct call *k)
{
	for (unsigned i = 0; i < 2; i++) {
		struct end *n = &k->end[i];

		if (!n->closed && n->ended && t.now >= n->close_at)
			let_go(k, n);
		/* Whom nobody was told of. */
		if (i && !n->conn && !n->closed && k->end[0].closed)
			n->closed = true;
	}
}

/* A length that grew by a bit: one waits for the rest of a segment that does not exist. */
static void help_flipped(struct call *k)
{
	if (k->trouble != FLIPPED || !sim_tcp_flipped() || k->whole)
		return;
	k->work.broken = true;
	if (!k->over_at)
		k->over_at = t.now + 2 * SIM_S;
	if (t.now >= k->over_at && !k->happened) {
		k->happened = true;
		sim_tcp_break((uint16_t)(CALLER_PORT + k->index));
	}
}

static void earlier(uint64_t *next, uint64_t at)
{
	if (at > t.now && at < *next)
		*next = at;
}

static bool is_over(const struct call *k)
{
	return k->end[0].closed && k->end[1].closed;
}

static void act(struct call *k)
{
	if (!k->listened && !k->end[1].closed && t.now >= k->listen_at)
		begin_listening(k);
	if (!k->begun && !k->end[0].closed && t.now >= k->connect_at)
		call_up(k);
	if (!k->answered && k->end[1].conn && !k->end[1].ended && t.now >= k->answer_at)
		answer(k);
	if (!is_over(k) && t.now >= k->trouble_at)
		happen(k);
	help_flipped(k);
	for (unsigned i = 0; i < 2; i++) {
		work(k, i);
		if (k->work.player[i].cq)
			iwarp_work_poll(&k->work, &k->work.player[i]);
	}
	if (both_established(k) && !k->work.broken && iwarp_work_done(&k->work))
		finish(k);
	close_ends(k);
}

/* When there is something to do for it next. */
static void plan(const struct call *k, uint64_t *next)
{
	if (is_over(k))
		return;
	earlier(next, k->listened ? UINT64_MAX : k->listen_at);
	earlier(next, k->begun ? UINT64_MAX : k->connect_at);
	earlier(next, k->answered ? UINT64_MAX : k->answer_at);
	earlier(next, k->trouble_at);
	earlier(next, k->settle_at);
	earlier(next, k->over_at);
	for (unsigned i = 0; i < 2; i++) {
		earlier(next, k->end[i].close_at);
		if (k->end[i].established && !k->work.broken)
			earlier(next, k->end[i].next_post);
		if (k->end[i].established && !k->end[i].ended)
			earlier(next, k->end[i].next_recv);
	}
}

/* ---- a seed ---- */
static void draw_call(unsigned i)
{
	struct call *k = &t.call[i];
	uint64_t d = t.rules.delay;

	k->index = i;
	k->trouble = draw(2) ? CALM : (enum trouble)draw(TROUBLE_COUNT);
	k->whose = (unsigned)draw(2);
	total.troubles[k->trouble]++;
	k->end[0].node = (unsigned)draw(t.w.nodes);
	k->end[1].node = draw(8) ? (k->end[0].node + 1) % t.w.nodes : k->end[0].node;
	for (unsigned e = 0; e < 2; e++) {
		k->len[e] = (uint32_t)draw(DATA + 1);
		for (unsigned b = 0; b < DATA; b++)
			k->data[e][b] = (uint8_t)draw(256);
		make_end(k, e);
	}
	k->connect_at = t.now + draw(5 * d + 1);
	k->listen_at = draw(4) ? t.now : t.now + draw(250 * SIM_MS); /* the caller tries again */
	if (k->trouble == UNHEARD)
		k->listen_at = t.now + LATE + draw(LATE);
	k->trouble_at = t.now + draw(draw(2) ? 8 * d + 1 : 60 * d + 5 * SIM_MS);
	k->work.c = &t.c;
	k->work.wrong = k->trouble == WRONG;
	k->work.when = draw(OPS);
	iwarp_work_init(&k->work);
	if (k->trouble == FLIPPED)
		strcat(t.words[k->end[0].node], "crc,"); /* or nobody would notice */
	for (unsigned e = 0; e < 2; e++)
		k->work.player[e].qp = NULL; /* until it is established */
}

static void draw_rules(void)
{
	static const uint32_t buffers[] = {16, 100, 600, 5000, 65536, 1 << 17};

	t.rules = (struct sim_tcp_rules){.delay = 1 + draw(draw(2) ? 100 * SIM_US : 20 * SIM_US),
		.buffer = buffers[draw(30) ? 2 + draw(4) : draw(2)],
		.mss = (uint32_t)(100 + draw(9000)),
		.chopped = (unsigned)draw(4),
		.failing = draw(2) ? 0 : (unsigned)(3 + draw(50))};
}

static void fill(void)
{
	static uint8_t pattern[WORK_MEM];

	for (unsigned k = 0; !pattern[1] && k < WORK_MEM; k++)
		pattern[k] = (uint8_t)(k * 7 + (k >> 8) * 3);
	for (unsigned i = 0; i < t.calls; i++) {
		for (unsigned e = 0; e < 2; e++) {
			static uint8_t *kept[CALLS][2];

			if (!kept[i][e])
				kept[i][e] = malloc(WORK_MEM);
			t.mem[i][e] = kept[i][e];
			memcpy(t.mem[i][e], pattern, WORK_MEM);
		}
	}
}

static void world_open(uint64_t seed)
{
	t.now = 1000;
	draw_rules();
	sim_tcp_open(&t.rules, &t.c, &t.now);
	sim_world_init(&t.w, 2 + (unsigned)draw(2), seed, !draw(3));
	sim_clock_set(t.w.net, t.now);
	for (unsigned i = 0; i < t.w.nodes; i++)
		node_open(i);
	t.calls = 1 + (unsigned)draw(CALLS);
	t.strangers = draw(3) ? 0 : 1 + (unsigned)draw(STRANGERS);
	fill();
	for (unsigned i = 0; i < t.calls; i++)
		draw_call(i);
	for (unsigned i = 0; i < t.strangers; i++)
		t.stranger[i] = (struct stranger){.fd = -1,
			.come_at = t.now + draw(20 * t.rules.delay),
			.leave_at = t.now + draw(draw(2) ? 15 * SIM_S : 100 * t.rules.delay),
			.to = (unsigned)draw(t.calls)};
}

static void move_clock(uint64_t next)
{
	earlier(&next, sim_tcp_next());
	for (unsigned i = 0; i < t.w.nodes; i++) {
		if (t.w.node[i].up)
			earlier(&next, t.w.node[i].adapter.engine.next_timer);
	}
	if (next == UINT64_MAX)
		next = t.now + SIM_MS;
	t.now = next;
	sim_clock_set(t.w.net, t.now);
	sim_tcp_run();
}

static bool all_over(void)
{
	for (unsigned i = 0; i < t.calls; i++) {
		if (!is_over(&t.call[i]))
			return false;
	}
	for (unsigned i = 0; i < t.strangers; i++) {
		if (t.stranger[i].fd >= 0 || t.now < t.stranger[i].leave_at)
			return false;
	}
	return true;
}

static void say_stuck(void)
{
	for (unsigned i = 0; i < t.calls; i++) {
		const struct call *k = &t.call[i];

		if (!is_over(k))
			fprintf(stderr,
				"call %u, %s: established %d %d, ended %d %d, closed %d %d, posted %u %u of "
				"%u %u, received %u %u\n",
				i, trouble_names[k->trouble], k->end[0].established, k->end[1].established,
				k->end[0].ended, k->end[1].ended, k->end[0].closed, k->end[1].closed,
				k->work.player[0].posted, k->work.player[1].posted, k->work.player[0].todo,
				k->work.player[1].todo, k->work.player[0].received,
				k->work.player[1].received);
	}
	fail("at %.3f us: it does not come to an end", (double)t.now / 1000);
}

static void run(void)
{
	for (unsigned steps = 0; !all_over(); steps++) {
		uint64_t next = UINT64_MAX;

		for (unsigned i = 0; i < t.calls; i++)
			act(&t.call[i]);
		for (unsigned i = 0; i < t.strangers; i++)
			act_on_stranger(&t.stranger[i]);
		drive_all();
		for (unsigned i = 0; i < t.calls; i++)
			plan(&t.call[i], &next);
		for (unsigned i = 0; i < t.strangers; i++) {
			earlier(&next, t.stranger[i].come_at);
			earlier(&next, t.stranger[i].speak_at);
			earlier(&next, t.stranger[i].leave_at);
		}
		move_clock(next);
		if (steps > STEPS_MOST || t.now > PATIENCE)
			say_stuck();
	}
}

/* Whatever was let go of is out of the way before long. */
static void come_to_rest(void)
{
	uint64_t until = t.now + 100 * SIM_S;

	for (unsigned i = 0; i < t.calls; i++)
		close_listener(&t.call[i]);
	do {
		drive_all();
		move_clock(until);
	} while (t.now < until);
	for (unsigned i = 0; i < t.w.nodes; i++) {
		if (t.w.node[i].up && !list_empty(&iwarp_port_in(adapter(i))->all))
			fail("node %u: a stream is left when all is over", i);
	}
}

static void world_close(void)
{
	for (unsigned i = 0; i < t.calls; i++) {
		struct call *k = &t.call[i];

		if (k->end[0].established || k->end[1].established)
			iwarp_work_check_end(&k->work);
		unmake_end(k, 0);
		unmake_end(k, 1);
		iwarp_work_fini(&k->work);
	}
	sim_world_fini(&t.w);
	if (!sim_tcp_close())
		fail("descriptors are left when all is over");
}

static void run_seed(uint64_t seed)
{
	memset(&t, 0, sizeof(t));
	t.c = (struct choices){.seed = seed * 0x9e3779b97f4a7c15ull + 1};
	world_open(seed);
	run();
	come_to_rest();
	world_close();
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu requests, %llu ends established, %llu refused\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, iwarp_work_total.requests,
		total.established, total.refused);
	for (unsigned i = 1; seeds.trace && i < TROUBLE_COUNT; i++)
		printf("  %s: %llu\n", trouble_names[i], total.troubles[i]);
	return 0;
}
