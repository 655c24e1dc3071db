/* SPDX-License-Identifier: MIT */
/*
 * Connection managers between hosts on a bad network. Everything is drawn from a seed: who connects to whom,
 * what the users on both sides do and how long they think about it, what is lost, doubled and delayed, and
 * which processes die. Hosts have several processes, so messages are also handed over as cm_owner() says.
 *
 * What must hold: each side of each connection ends in exactly one of established or a reported error, is
 * told of the end of an established one at most once, hears nothing after that, and is gone in the end; no
 * table, timer or object is left. No passive side is established unless the active one is, nor two for one
 * attempt. And where the network is good enough and nobody dies, what both users want comes about.
 *
 *   cm_test [--seed N] [--seeds COUNT] [--trace]
 */
#include "agenda.h"
#include "base/random.h"
#include "cm/ib/conn.h"
#include "seeds.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS = 3, PROCS = 2, ALL = HOSTS * PROCS, ATTEMPTS = 1000, BUCKETS = 256, NOBODY = 99 };
#define SECOND 1000000000ull

static uint64_t draws, now;
static uint32_t slots; /* given out */

/* ---- choices ---- */
static uint64_t below(uint64_t n)
{
	return random_seeded(&draws) % n;
}

static bool chance(unsigned percent)
{
	return below(100) < percent;
}

/* ---- who is there ---- */
struct process {
	struct cm_core core;
	struct cm_link *buckets[CM_INDEXES * BUCKETS];
	struct cm_conn *listener[2]; /* TCP, UDP */
	unsigned index, host, qpns, life;
};

/* What the users of one attempt will do. */
struct attempt {
	unsigned from, to;
	bool sidr, nobody, impatient, mra, data;
	enum { ACCEPT, REJECT, IGNORE, LEAVE } passive, active; /* LEAVE: abandons it instead */
	enum { BY_ACTIVE, BY_PASSIVE, BY_BOTH, BY_LEAVING, BY_NOBODY } end;
	uint64_t think_passive, think_active, lasts;
	unsigned passives_established;
	struct end *a;
};

/* One side of one attempt, as its user sees it; stays when the connection is gone. */
struct end {
	struct end *next;
	struct cm_conn *conn; /* NULL: gone */
	struct process *proc;
	unsigned attempt, life; /* life of the process: it may have died since */
	bool active, left;
	enum { PENDING, ESTABLISHED, FAILED } outcome;
	bool over;               /* an established one has ended */
	enum cm_event_type told; /* what made it fail or be over */
};

static struct process procs[ALL];
static struct attempt attempts[ATTEMPTS];
static struct end *ends;
static unsigned live; /* connections allocated */
static struct {
	unsigned loss, duplicate, late; /* percent */
	uint64_t delay, late_max;
	unsigned crashes;
} net;
static struct {
	unsigned long long established, failed, sent, lost, repeated, crashes;
} total;

#define must(condition, end)                                                                                 \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail(#condition, end);                                                               \
	} while (0)

static void fail(const char *what, const struct end *e)
{
	fprintf(stderr, "at %.6f s: not %s", (double)now / SECOND, what);
	if (e)
		fprintf(stderr, " (attempt %u, %s side, %s)", e->attempt, e->active ? "active" : "passive",
			e->conn ? cm_state_name(e->conn->state) : "gone");
	fputc('\n', stderr);
	abort();
}

static void __attribute__((format(printf, 1, 2))) say(const char *fmt, ...)
{
	va_list ap;

	if (!seeds.trace)
		return;
	printf("%12.6f  ", (double)now / SECOND);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

/* ---- what will happen ---- */
enum what {
	ARRIVES,  /* a packet */
	STARTS,   /* an attempt */
	ANSWERS,  /* the passive user */
	REPLIES,  /* the active user, to the REP */
	DATA,     /* the passive QP receives something */
	ENDS,     /* a user ends an established connection */
	CONFIRMS, /* a user answers a DREQ */
	LEAVES,   /* a user abandons its side */
	CRASHES,  /* a process dies and comes back without memory */
};

struct packet {
	uint8_t from[16], to[16], mad[MAD_LEN];
};

static struct agenda agenda;

static void later(uint64_t at, enum what what, unsigned number, void *thing)
{
	agenda_add(
		&agenda, (struct happening){.at = at, .what = (int)what, .number = number, .thing = thing});
}

static void user_will(enum what what, struct end *e, uint64_t in)
{
	later(now + in, what, 0, e);
}

/* ---- the network ---- */
static void gid_of(unsigned host, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[15] = (uint8_t)(host + 1);
}

static void launch(const struct cm_path *path, const uint8_t mad[MAD_LEN], uint64_t delay)
{
	struct packet *p = malloc(sizeof(*p));

	memcpy(p->from, path->local, 16);
	memcpy(p->to, path->remote, 16);
	memcpy(p->mad, mad, MAD_LEN);
	later(now + delay, ARRIVES, 0, p);
}

static void on_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN])
{
	struct process *p = arg;
	struct cm_msg m;
	unsigned copies = chance(net.loss) ? 0 : chance(net.duplicate) ? 2 : 1;

	must(cm_msg_parse(mad, MAD_LEN, &m), NULL);
	seeds_note(&now, sizeof(now));
	seeds_note(mad, MAD_LEN);
	say("p%u sends %s %08x %08x to host %u%s", p->index, cm_attr_name(m.attr), m.local_id, m.remote_id,
		path->remote[15] - 1,
		copies == 0   ? ": lost"
		: copies == 2 ? ": twice"
			      : "");
	total.sent++;
	total.lost += !copies;
	while (copies--)
		launch(path, mad, 1 + below(net.delay) + (chance(net.late) ? below(net.late_max) : 0));
}

/* As processes of one host share QP1: whom it concerns takes it. */
static struct process *whom(unsigned host, const uint8_t *mad)
{
	uint64_t service = 0;
	int owner = cm_owner(mad, MAD_LEN, &service);

	for (unsigned i = host * PROCS; i < (host + 1) * PROCS; i++)
		if (owner == CM_OWNER_SERVICE ? cm_service_port(service) == i
					      : owner >= 0 && (uint32_t)owner == procs[i].core.slot)
			return &procs[i];
	return owner == CM_OWNER_ANY ? NULL : &procs[host * PROCS];
}

static void arrive(struct packet *packet)
{
	unsigned host = packet->to[15] - 1u;
	struct process *p = whom(host, packet->mad);
	struct cm_path path = {.via = NULL};
	enum cm_verdict v = CM_V_UNKNOWN;

	memcpy(path.local, packet->to, 16);
	memcpy(path.remote, packet->from, 16);
	if (p)
		v = cm_receive(&p->core, &path, packet->mad, MAD_LEN, now);
	for (unsigned i = host * PROCS; !p && v == CM_V_UNKNOWN && i < (host + 1) * PROCS; i++)
		v = cm_receive(&procs[i].core, &path, packet->mad, MAD_LEN, now);
	say("   host %u receives: %s", host, cm_verdict_name(v));
	must(v != CM_V_MALFORMED && v != CM_V_WRONG_SOURCE, NULL);
	free(packet);
}

/* ---- the users ---- */
static struct end *end_new(struct process *p, unsigned attempt, bool active)
{
	struct end *e = calloc(1, sizeof(*e));

	*e = (struct end){.next = ends, .proc = p, .attempt = attempt, .life = p->life, .active = active};
	e->conn = malloc(sizeof(*e->conn));
	memset(e->conn, 0xa5, sizeof(*e->conn));
	e->conn->user = e;
	live++;
	return ends = e;
}

static void conn_free(struct end *e)
{
	free(e->conn);
	e->conn = NULL;
	live--;
}

static void leave(struct end *e)
{
	if (!e->conn || e->left)
		return;
	if (e->outcome == PENDING)
		e->outcome = FAILED;
	e->left = e->over = true;
	cm_abandon(&e->proc->core, e->conn, now);
}

/* The end of it, as the user is told: at most once before and once after it was established. */
static void told_end(struct end *e, enum cm_event_type type)
{
	must(e->outcome != FAILED && !e->over, e);
	if (e->outcome == PENDING)
		e->outcome = FAILED;
	e->over = true;
	e->told = type;
	if (e->conn->state == CM_S_DREQ_RCVD)
		user_will(CONFIRMS, e, below(2 * SECOND));
	else if (chance(50))
		user_will(LEAVES, e, below(5 * SECOND));
	else
		leave(e);
}

/* Establishes, and plans the end. */
static void established(struct end *e)
{
	struct attempt *t = &attempts[e->attempt];
	bool mine = t->end == BY_BOTH || t->end == (e->active ? BY_ACTIVE : BY_PASSIVE);

	must(e->outcome == PENDING, e);
	e->outcome = ESTABLISHED;
	if (!e->active) {
		must(t->a->outcome == ESTABLISHED, e);
		must(++t->passives_established == 1, e);
	}
	if (mine)
		user_will(ENDS, e, t->lasts);
	else if (t->end == BY_LEAVING)
		user_will(LEAVES, e, t->lasts);
}

static void asked(struct end *e, const struct cm_event *ev)
{
	struct attempt *t = &attempts[e->attempt];

	must(e->conn->remote_id == ev->msg->local_id, e);
	if (t->mra && ev->type == CM_EV_REQ)
		cm_prepare_mra(&e->proc->core, e->conn, CM_MRA_TIMEOUT);
	if (t->passive != IGNORE)
		user_will(ANSWERS, e, t->think_passive);
}

static void on_event(void *arg, struct cm_conn *c, const struct cm_event *ev)
{
	struct end *e = c->user;

	say("   attempt %u, %s: %s", e->attempt, e->active ? "active" : "passive", cm_event_name(ev->type));
	must(e->conn == c && (!e->left || ev->type == CM_EV_GONE), e);
	seeds_note(&ev->type, sizeof(ev->type));
	switch (ev->type) {
	case CM_EV_REQ:
	case CM_EV_SIDR_REQ:
		asked(e, ev);
		break;
	case CM_EV_REP:
		must(e->outcome == PENDING, e);
		user_will(REPLIES, e, attempts[e->attempt].think_active);
		break;
	case CM_EV_ESTABLISHED:
		established(e);
		break;
	case CM_EV_SIDR_REP:
		must(e->outcome == PENDING, e);
		e->outcome = ev->msg->sidr_rep.status ? FAILED : ESTABLISHED;
		e->over = true;
		leave(e);
		break;
	case CM_EV_MRA:
		must(e->outcome == PENDING, e);
		break;
	case CM_EV_TIMEWAIT_EXIT:
		must(e->outcome != PENDING && c->state == CM_S_IDLE, e);
		leave(e);
		break;
	case CM_EV_GONE:
		must(e->left && c->state == CM_S_IDLE, e);
		conn_free(e);
		break;
	default:
		told_end(e, ev->type);
	}
}

static unsigned attempt_of(const struct cm_msg *m)
{
	return get_be32(m->priv);
}

static struct cm_conn *on_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	if (chance(2))
		return NULL; /* the backlog is full: they will ask again */
	return end_new(arg, attempt_of(m), false)->conn;
}

static uint32_t on_random(void *arg)
{
	return (uint32_t)random_seeded(&draws);
}

static const struct cm_ops ops = {on_send, on_event, on_incoming, on_random};

/* ---- what users do ---- */
static uint64_t service_of(const struct attempt *t)
{
	return cm_service_id(t->sidr ? CM_PS_UDP : CM_PS_TCP, (uint16_t)(t->nobody ? NOBODY : t->to));
}

static uint32_t qpn_of(struct process *p)
{
	return (p->index % PROCS + 1) << 20 | ++p->qpns;
}

static void begin(unsigned number)
{
	struct attempt *t = &attempts[number];
	struct process *p = &procs[t->from];
	struct end *e = t->a = end_new(p, number, true);
	struct cm_path path = {.via = NULL};
	struct cm_msg m = {0};

	gid_of(p->host, path.local);
	gid_of(procs[t->to].host, path.remote);
	put_be32(m.priv, number);
	if (t->sidr) {
		m.sidr_req.service_id = service_of(t);
		must(!cm_sidr_request(&p->core, e->conn, &path, &m, now), e);
	} else {
		m.req.service_id = service_of(t);
		m.req.qpn = qpn_of(p);
		m.req.mtu = 3;
		m.req.remote_timeout = m.req.local_timeout = CM_RESPONSE_TIMEOUT;
		m.req.max_cm_retries = CM_MAX_RETRIES;
		m.req.primary.ack_timeout = 19;
		must(!cm_connect(&p->core, e->conn, &path, &m, now), e);
	}
	if (t->impatient)
		user_will(LEAVES, e, below(20 * SECOND));
}

static void answer(struct end *e)
{
	struct attempt *t = &attempts[e->attempt];
	struct cm_core *core = &e->proc->core;
	struct cm_msg m = {0};

	if (e->outcome != PENDING)
		return; /* the peer has given up meanwhile */
	if (t->passive == LEAVE) {
		leave(e);
	} else if (t->sidr) {
		m.sidr_rep.status = t->passive == ACCEPT ? CM_SIDR_OK : CM_SIDR_REJECT;
		m.sidr_rep.qpn = qpn_of(e->proc);
		must(!cm_sidr_reply(core, e->conn, &m, now), e);
		e->outcome = t->passive == ACCEPT ? ESTABLISHED : FAILED;
		t->passives_established += t->passive == ACCEPT;
		user_will(LEAVES, e, below(100 * SECOND));
	} else if (t->passive == ACCEPT) {
		m.rep.qpn = qpn_of(e->proc);
		must(!cm_accept(core, e->conn, &m, now), e);
		if (t->data)
			user_will(DATA, e, below(10 * SECOND));
	} else {
		must(!cm_reject(core, e->conn, CM_REJ_CONSUMER, NULL, 0, NULL, 0, now), e);
		e->outcome = FAILED;
		leave(e);
	}
}

static void reply(struct end *e)
{
	struct attempt *t = &attempts[e->attempt];

	if (e->outcome != PENDING)
		return;
	if (t->active == LEAVE) {
		leave(e);
	} else if (t->active == REJECT) {
		must(!cm_reject(&e->proc->core, e->conn, CM_REJ_CONSUMER, NULL, 0, NULL, 0, now), e);
		e->outcome = FAILED;
		leave(e);
	} else {
		must(!cm_establish(&e->proc->core, e->conn, NULL, 0), e);
		established(e);
	}
}

/* Data may come when the active side sends it, whatever became of its RTU. */
static void data(struct end *e)
{
	struct end *peer = attempts[e->attempt].a;

	if (e->outcome == PENDING && peer->outcome == ESTABLISHED && e->conn->remote_id && peer->conn &&
		peer->conn->remote_id == e->conn->local_id)
		cm_data_came(&e->proc->core, e->conn);
}

/* The core may have begun by itself, when the peer came back without memory. */
static void finish(struct end *e)
{
	if (e->conn->state == CM_S_DREQ_SENT)
		must(net.crashes, e);
	else if (!e->over)
		must(!cm_disconnect(&e->proc->core, e->conn, NULL, 0, now), e);
}

static void confirm(struct end *e)
{
	if (chance(20))
		leave(e); /* that confirms as well */
	else if (e->conn->state == CM_S_DREQ_RCVD)
		must(!cm_disconnect(&e->proc->core, e->conn, NULL, 0, now), e);
}

/* ---- processes ---- */
static void process_start(struct process *p)
{
	memset(p->buckets, 0, sizeof(p->buckets));
	p->qpns = 0;
	cm_core_init(&p->core, &ops, p, ++slots, 0xca00 + p->host, p->buckets, BUCKETS);
	for (int i = 0; i < 2; i++) {
		p->listener[i] = end_new(p, 0, false)->conn;
		((struct end *)p->listener[i]->user)->outcome = ESTABLISHED;
		must(!cm_listen(&p->core, p->listener[i],
			     cm_service_id(i ? CM_PS_UDP : CM_PS_TCP, (uint16_t)p->index)),
			NULL);
	}
}

static void crash(struct process *p)
{
	say("p%u dies", p->index);
	total.crashes++;
	for (struct end *e = ends; e; e = e->next)
		if (e->proc == p && e->conn) {
			conn_free(e);
			if (e->outcome == PENDING)
				e->outcome = FAILED;
		}
	p->life++;
	process_start(p);
}

static void happen(const struct happening *h)
{
	struct end *e = h->what >= ANSWERS && h->what <= LEAVES ? h->thing : NULL;

	if (e && (!e->conn || e->left))
		return;
	switch ((enum what)h->what) {
	case ARRIVES:
		arrive(h->thing);
		break;
	case STARTS:
		begin(h->number);
		break;
	case ANSWERS:
		answer(e);
		break;
	case REPLIES:
		reply(e);
		break;
	case DATA:
		data(e);
		break;
	case ENDS:
		finish(e);
		break;
	case CONFIRMS:
		confirm(e);
		break;
	case LEAVES:
		leave(e);
		break;
	case CRASHES:
		crash(&procs[h->number]);
		break;
	}
}

/* ---- time ---- */
static struct process *first_due(uint64_t *at)
{
	struct process *first = NULL;

	*at = UINT64_MAX;
	for (struct process *p = procs; p < procs + ALL; p++)
		if (cm_deadline(&p->core) < *at) {
			*at = cm_deadline(&p->core);
			first = p;
		}
	return first;
}

/* Until nothing more will happen. */
static void run(void)
{
	for (;;) {
		uint64_t due;
		struct process *p = first_due(&due);

		if (agenda.count && agenda_due(&agenda) <= due) {
			struct happening h = agenda_next(&agenda);

			now = h.at;
			happen(&h);
		} else if (p) {
			now = due;
			cm_expire(&p->core, now);
		} else {
			return;
		}
	}
}

/* ---- a seed ---- */
static void draw_net(void)
{
	static const unsigned losses[] = {0, 0, 2, 5, 10, 20, 40};

	net.loss = losses[below(7)];
	net.duplicate = chance(50) ? 0 : (unsigned)below(30);
	net.late = chance(50) ? 0 : (unsigned)below(20);
	net.delay = chance(50) ? SECOND / 1000 : SECOND;
	net.late_max = chance(50) ? SECOND : 40 * SECOND;
	net.crashes = chance(50) ? 0 : 1 + (unsigned)below(6);
}

static void draw_attempt(struct attempt *t)
{
	*t = (struct attempt){.from = (unsigned)below(ALL), .to = (unsigned)below(ALL)};
	t->sidr = chance(25);
	t->nobody = chance(4);
	t->impatient = chance(4);
	t->mra = chance(50);
	t->data = chance(30);
	t->passive = chance(80) ? ACCEPT : chance(60) ? REJECT : chance(50) ? IGNORE : LEAVE;
	t->active = chance(88) ? ACCEPT : chance(50) ? REJECT : LEAVE;
	t->end = (unsigned)below(5);
	t->think_passive = below((t->mra && !t->sidr ? 100 : 10) * SECOND);
	t->think_active = chance(70) ? 0 : below(5 * SECOND);
	t->lasts = chance(30) ? 0 : below(60 * SECOND);
}

/* Nobody dies, and all sixteen tries will hardly fail. */
static bool calm(void)
{
	return net.loss <= 10 && net.late_max <= SECOND && !net.crashes;
}

/* Both users want it, and nothing stands in the way. */
static bool wanted(const struct attempt *t)
{
	return !t->nobody && !t->impatient && t->passive == ACCEPT && (t->sidr || t->active == ACCEPT);
}

/* On a calm network nobody who is alive is ever taken for dead, and who is gone has somebody to say so. */
static void check_calm(const struct end *e)
{
	const struct attempt *t = &attempts[e->attempt];

	must(e->told != CM_EV_DREQ_TIMEOUT, e);
	must(e->told != CM_EV_UNREACHABLE || (e->active && t->passive == IGNORE), e);
	if (!e->active || !wanted(t))
		return;
	must(e->outcome == ESTABLISHED, e);
	if (t->sidr || t->end == BY_NOBODY)
		must(t->passives_established == 1, e);
}

static void check_ends(void)
{
	for (struct end *e = ends; e; e = e->next) {
		must(!e->conn, e);
		must(e->outcome != PENDING, e);
		total.established += e->outcome == ESTABLISHED;
		total.failed += e->outcome == FAILED;
		if (calm())
			check_calm(e);
	}
	must(live == 0, NULL);
	for (struct process *p = procs; p < procs + ALL; p++) {
		for (int i = 0; i < CM_INDEXES; i++)
			must(p->core.table.count[i] == 0, NULL);
		must(cm_deadline(&p->core) == UINT64_MAX, NULL);
		total.repeated += p->core.repeated;
	}
}

/* After an hour those who still hold something let go; whoever waits for an answer must have had it by then.
 */
static void everybody_leaves(void)
{
	now += 3600 * SECOND;
	for (struct end *e = ends; e; e = e->next) {
		must(e->outcome != PENDING || (!e->active && attempts[e->attempt].passive == IGNORE) ||
				!e->conn,
			e);
		leave(e);
	}
	run();
}

static void run_seed(void)
{
	draws = seeds.now * 0x9e3779b97f4a7c15ull + 1;
	now = SECOND;
	slots = 0;
	draw_net();
	for (unsigned i = 0; i < ALL; i++) {
		procs[i] = (struct process){.index = i, .host = i / PROCS};
		process_start(&procs[i]);
	}
	for (unsigned i = 0; i < ATTEMPTS; i++) {
		draw_attempt(&attempts[i]);
		later(now + below(120 * SECOND), STARTS, i, NULL);
	}
	for (unsigned i = 0; i < net.crashes; i++)
		later(now + below(150 * SECOND), CRASHES, (unsigned)below(ALL), NULL);
	run();
	everybody_leaves();
	check_ends();
	for (struct end *e = ends, *following; e; e = following) {
		following = e->next;
		free(e);
	}
	ends = NULL;
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	for (uint64_t i = 0; i < seeds.count; i++) {
		seeds.now = seeds.first + i;
		run_seed();
	}
	agenda_fini(&agenda);
	printf("%" PRIu64 " seeds from %" PRIu64
	       " on, %d connects each: all well; sides established %llu, failed "
	       "%llu; messages %llu, lost %llu, repeated %llu; processes died %llu\n",
		seeds.count, seeds.first, ATTEMPTS, total.established, total.failed, total.sent, total.lost,
		total.repeated, total.crashes);
	return 0;
}
