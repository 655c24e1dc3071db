/* SPDX-License-Identifier: MIT */
/*
 * For the tests of this folder: two connection managers, and every message between them in the test's hand.
 * It says what arrives, what is lost, what comes twice, and what time it is.
 */
#ifndef CM_PAIR_TEST_H
#define CM_PAIR_TEST_H

#include "cm/ib/conn.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { BUCKETS = 16, OUT = 64, CONNS = 4, PORT = 7174 };

struct side {
	struct cm_core core;
	struct cm_link *buckets[CM_INDEXES * BUCKETS];
	struct cm_path to_peer;
	struct cm_conn listener, conn[CONNS];
	unsigned used, room; /* of conn, by incoming() */
	uint16_t refuse;     /* what incoming() says when there is no room */
	unsigned events[CM_EVENT_COUNT];
	struct cm_msg last; /* of the last event that had one */
	uint8_t out[OUT][MAD_LEN];
	unsigned out_head, out_tail;
	uint32_t random;
};

struct pair {
	struct side a, b; /* a connects, b listens */
	uint64_t now;
};

/* ---- what the core calls ---- */
static inline void on_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN])
{
	struct side *s = arg;

	assert_in_range(s->out_tail - s->out_head, 0, OUT - 1);
	memcpy(s->out[s->out_tail++ % OUT], mad, MAD_LEN);
}

static inline void on_event(void *arg, struct cm_conn *c, const struct cm_event *e)
{
	struct side *s = arg;

	s->events[e->type]++;
	if (e->msg)
		s->last = *e->msg;
}

static inline struct cm_conn *on_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	struct side *s = arg;

	assert_ptr_equal(listener, &s->listener);
	*refuse = s->refuse;
	return s->used < s->room ? &s->conn[s->used++] : NULL;
}

static inline uint32_t on_random(void *arg)
{
	return (((struct side *)arg)->random += 0x9e3779b1) >> 5;
}

static const struct cm_ops ops = {on_send, on_event, on_incoming, on_random};

/* ---- the world ---- */
static inline void side_init(struct side *s, uint8_t address, uint8_t peer, uint32_t slot)
{
	memset(s, 0, sizeof(*s));
	s->random = slot;
	s->room = CONNS;
	s->to_peer.local[15] = address;
	s->to_peer.remote[15] = peer;
	cm_core_init(&s->core, &ops, s, slot, 0xca000000 + address, s->buckets, BUCKETS);
}

static struct pair p;
#define A p.a.conn[0]
#define B p.b.conn[0]

static inline int start(void **state)
{
	p.now = 1000;
	side_init(&p.a, 1, 2, 3);
	side_init(&p.b, 2, 1, 4);
	assert_int_equal(cm_listen(&p.b.core, &p.b.listener, cm_service_id(CM_PS_TCP, PORT)), 0);
	return 0;
}

/* Nothing may be left behind once everybody has let go and time has passed. */
static inline int finish(void **state)
{
	struct side *sides[] = {&p.a, &p.b};

	for (int i = 0; i < 2; i++) {
		struct side *s = sides[i];

		if (i)
			cm_abandon(&s->core, &s->listener, p.now);
		for (int c = 0; c < CONNS; c++)
			if (s->conn[c].state != CM_S_IDLE && !s->conn[c].abandoned)
				cm_abandon(&s->core, &s->conn[c], p.now);
		for (int steps = 0; cm_deadline(&s->core) != UINT64_MAX; steps++) {
			assert_in_range(steps, 0, 200);
			cm_expire(&s->core, p.now = cm_deadline(&s->core));
			s->out_head = s->out_tail;
		}
		for (int index = 0; index < CM_INDEXES; index++)
			assert_int_equal(s->core.table.count[index], 0);
	}
	return 0;
}

static inline enum cm_attr attr_of(const uint8_t *mad)
{
	return (enum cm_attr)mad_hdr_get(mad).attr;
}

/* Takes the next message of a side, which must be this one. */
static inline const uint8_t *take(struct side *s, enum cm_attr attr)
{
	const uint8_t *mad = s->out[s->out_head % OUT];

	if (s->out_head == s->out_tail)
		fail_msg("no %s was sent", cm_attr_name(attr));
	if (attr_of(mad) != attr)
		fail_msg("%s was sent, not %s", cm_attr_name(attr_of(mad)), cm_attr_name(attr));
	s->out_head++;
	return mad;
}

static inline struct cm_msg taken(struct side *s, enum cm_attr attr)
{
	struct cm_msg m;

	assert_true(cm_msg_parse(take(s, attr), MAD_LEN, &m));
	return m;
}

static inline void silent(const struct side *s)
{
	if (s->out_head != s->out_tail)
		fail_msg("%s was sent", cm_attr_name(attr_of(s->out[s->out_head % OUT])));
}

static inline enum cm_verdict give(struct side *to, const uint8_t *mad)
{
	return cm_receive(&to->core, &to->to_peer, mad, MAD_LEN, p.now);
}

static inline enum cm_verdict give_msg(struct side *to, const struct cm_msg *m)
{
	uint8_t mad[MAD_LEN];

	cm_msg_pack(m, mad);
	return give(to, mad);
}

static inline enum cm_verdict pass(struct side *from, enum cm_attr attr)
{
	return give(from == &p.a ? &p.b : &p.a, take(from, attr));
}

static inline void timer(struct side *s)
{
	assert_true(cm_deadline(&s->core) != UINT64_MAX);
	p.now = cm_deadline(&s->core);
	cm_expire(&s->core, p.now);
}

#define state_is(c, s)                                                                                       \
	do {                                                                                                 \
		if ((c)->state != CM_S_##s)                                                                  \
			fail_msg("%s, not " #s, cm_state_name((c)->state));                                  \
	} while (0)
#define events_are(s, e, n) assert_int_equal((s)->events[CM_EV_##e], n)

/* ---- steps ---- */
static inline struct cm_msg a_req(uint32_t qpn)
{
	struct cm_msg m = {0};

	m.req.service_id = cm_service_id(CM_PS_TCP, PORT);
	m.req.qpn = qpn;
	m.req.mtu = 3;
	m.req.remote_timeout = m.req.local_timeout = CM_RESPONSE_TIMEOUT;
	m.req.max_cm_retries = CM_MAX_RETRIES;
	m.req.primary.ack_timeout = 19;
	memcpy(m.priv, "hello", 5);
	return m;
}

static inline void connect_a(void)
{
	struct cm_msg m = a_req(0x11);

	assert_int_equal(cm_connect(&p.a.core, &A, &p.a.to_peer, &m, p.now), 0);
	state_is(&A, REQ_SENT);
}

static inline void accept_b(void)
{
	struct cm_msg m = {0};

	m.rep.qpn = 0x22;
	assert_int_equal(cm_accept(&p.b.core, &B, &m, p.now), 0);
	state_is(&B, REP_SENT);
}

static inline void up_to_req(void)
{
	connect_a();
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_TAKEN);
	events_are(&p.b, REQ, 1);
	state_is(&B, REQ_RCVD);
}

static inline void up_to_rep(void)
{
	up_to_req();
	accept_b();
	assert_int_equal(pass(&p.b, CM_REP), CM_V_TAKEN);
	events_are(&p.a, REP, 1);
	state_is(&A, REP_RCVD);
}

static inline void up_to_established(void)
{
	up_to_rep();
	assert_int_equal(cm_establish(&p.a.core, &A, "rtu", 3), 0);
	state_is(&A, ESTABLISHED);
	assert_int_equal(pass(&p.a, CM_RTU), CM_V_TAKEN);
	state_is(&B, ESTABLISHED);
	events_are(&p.b, ESTABLISHED, 1);
}

static inline int disconnect(struct side *s)
{
	return cm_disconnect(&s->core, &s->conn[0], NULL, 0, p.now);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

#endif
