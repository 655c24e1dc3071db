/* SPDX-License-Identifier: MIT */
/*
 * Two connection managers and every message between them in the test's hand: it says what arrives, what is
 * lost, what comes twice, and what time it is.
 */
#include "cm/conn.h"

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
static void on_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN])
{
	struct side *s = arg;

	assert_in_range(s->out_tail - s->out_head, 0, OUT - 1);
	memcpy(s->out[s->out_tail++ % OUT], mad, MAD_LEN);
}

static void on_event(void *arg, struct cm_conn *c, const struct cm_event *e)
{
	struct side *s = arg;

	s->events[e->type]++;
	if (e->msg)
		s->last = *e->msg;
}

static struct cm_conn *on_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	struct side *s = arg;

	assert_ptr_equal(listener, &s->listener);
	*refuse = s->refuse;
	return s->used < s->room ? &s->conn[s->used++] : NULL;
}

static uint32_t on_random(void *arg)
{
	return (((struct side *)arg)->random += 0x9e3779b1) >> 5;
}

static const struct cm_ops ops = {on_send, on_event, on_incoming, on_random};

/* ---- the world ---- */
static void side_init(struct side *s, uint8_t address, uint8_t peer, uint32_t slot)
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

static int start(void **state)
{
	p.now = 1000;
	side_init(&p.a, 1, 2, 3);
	side_init(&p.b, 2, 1, 4);
	assert_int_equal(cm_listen(&p.b.core, &p.b.listener, cm_service_id(CM_PS_TCP, PORT)), 0);
	return 0;
}

/* Nothing may be left behind once everybody has let go and time has passed. */
static int finish(void **state)
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

static enum cm_attr attr_of(const uint8_t *mad)
{
	return (enum cm_attr)mad_hdr_get(mad).attr;
}

/* Takes the next message of a side, which must be this one. */
static const uint8_t *take(struct side *s, enum cm_attr attr)
{
	const uint8_t *mad = s->out[s->out_head % OUT];

	if (s->out_head == s->out_tail)
		fail_msg("no %s was sent", cm_attr_name(attr));
	if (attr_of(mad) != attr)
		fail_msg("%s was sent, not %s", cm_attr_name(attr_of(mad)), cm_attr_name(attr));
	s->out_head++;
	return mad;
}

static struct cm_msg taken(struct side *s, enum cm_attr attr)
{
	struct cm_msg m;

	assert_true(cm_msg_parse(take(s, attr), MAD_LEN, &m));
	return m;
}

static void silent(const struct side *s)
{
	if (s->out_head != s->out_tail)
		fail_msg("%s was sent", cm_attr_name(attr_of(s->out[s->out_head % OUT])));
}

static enum cm_verdict give(struct side *to, const uint8_t *mad)
{
	return cm_receive(&to->core, &to->to_peer, mad, MAD_LEN, p.now);
}

static enum cm_verdict give_msg(struct side *to, const struct cm_msg *m)
{
	uint8_t mad[MAD_LEN];

	cm_msg_pack(m, mad);
	return give(to, mad);
}

static enum cm_verdict pass(struct side *from, enum cm_attr attr)
{
	return give(from == &p.a ? &p.b : &p.a, take(from, attr));
}

static void timer(struct side *s)
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
static struct cm_msg a_req(uint32_t qpn)
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

static void connect_a(void)
{
	struct cm_msg m = a_req(0x11);

	assert_int_equal(cm_connect(&p.a.core, &A, &p.a.to_peer, &m, p.now), 0);
	state_is(&A, REQ_SENT);
}

static void accept_b(void)
{
	struct cm_msg m = {0};

	m.rep.qpn = 0x22;
	assert_int_equal(cm_accept(&p.b.core, &B, &m, p.now), 0);
	state_is(&B, REP_SENT);
}

static void up_to_req(void)
{
	connect_a();
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_TAKEN);
	events_are(&p.b, REQ, 1);
	state_is(&B, REQ_RCVD);
}

static void up_to_rep(void)
{
	up_to_req();
	accept_b();
	assert_int_equal(pass(&p.b, CM_REP), CM_V_TAKEN);
	events_are(&p.a, REP, 1);
	state_is(&A, REP_RCVD);
}

static void up_to_established(void)
{
	up_to_rep();
	assert_int_equal(cm_establish(&p.a.core, &A, "rtu", 3), 0);
	state_is(&A, ESTABLISHED);
	assert_int_equal(pass(&p.a, CM_RTU), CM_V_TAKEN);
	state_is(&B, ESTABLISHED);
	events_are(&p.b, ESTABLISHED, 1);
}

static int disconnect(struct side *s)
{
	return cm_disconnect(&s->core, &s->conn[0], NULL, 0, p.now);
}

/* ---- connecting ---- */
static void a_connection_from_request_to_timewait(void **state)
{
	up_to_established();
	assert_memory_equal(p.b.last.priv, "rtu", 3);
	assert_int_equal(A.remote_qpn, 0x22);
	assert_int_equal(B.remote_qpn, 0x11);
	assert_int_equal(A.remote_id, B.local_id);
	assert_int_equal(B.remote_id, A.local_id);
	assert_true(cm_deadline(&p.a.core) == UINT64_MAX && cm_deadline(&p.b.core) == UINT64_MAX);
	assert_int_equal(disconnect(&p.a), 0);
	assert_int_equal(pass(&p.a, CM_DREQ), CM_V_TAKEN);
	events_are(&p.b, DREQ, 1);
	state_is(&B, DREQ_RCVD);
	assert_int_equal(disconnect(&p.b), 0);
	assert_int_equal(pass(&p.b, CM_DREP), CM_V_TAKEN);
	events_are(&p.a, DREP, 1);
	state_is(&A, TIMEWAIT);
	state_is(&B, TIMEWAIT);
	timer(&p.a);
	timer(&p.b);
	events_are(&p.a, TIMEWAIT_EXIT, 1);
	events_are(&p.b, TIMEWAIT_EXIT, 1);
	state_is(&A, IDLE);
	silent(&p.a);
	silent(&p.b);
}

static void a_lost_request_is_sent_again_until_it_is_too_often(void **state)
{
	uint64_t begin = p.now;

	connect_a();
	for (int i = 0; i <= CM_MAX_RETRIES; i++) {
		take(&p.a, CM_REQ);
		events_are(&p.a, UNREACHABLE, 0);
		timer(&p.a);
	}
	events_are(&p.a, UNREACHABLE, 1);
	state_is(&A, IDLE);
	/* sixteen times 4.3 s for the answer and 2.1 s for the way there and back */
	assert_true(p.now - begin == 16 * ((4096ull << 20) + (4096ull << 19)));
	assert_int_equal(taken(&p.a, CM_REJ).rej.reason, CM_REJ_TIMEOUT);
	silent(&p.a);
}

static void a_peer_that_gave_up_frees_the_request_here(void **state)
{
	up_to_req();
	for (int i = 0; i < CM_MAX_RETRIES; i++) {
		timer(&p.a);
		assert_int_equal(pass(&p.a, CM_REQ), CM_V_DUPLICATE);
	}
	timer(&p.a);
	assert_int_equal(pass(&p.a, CM_REJ), CM_V_TAKEN);
	events_are(&p.b, REJ, 1);
	state_is(&B, IDLE);
}

static void nobody_listens(void **state)
{
	cm_abandon(&p.b.core, &p.b.listener, p.now);
	events_are(&p.b, GONE, 1);
	connect_a();
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_REFUSED);
	assert_int_equal(pass(&p.b, CM_REJ), CM_V_TAKEN);
	assert_int_equal(p.a.last.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	state_is(&A, IDLE);
	assert_int_equal(cm_listen(&p.b.core, &p.b.listener, cm_service_id(CM_PS_TCP, PORT)), 0);
}

static void a_service_has_one_listener(void **state)
{
	struct cm_conn second = {0};

	assert_int_equal(cm_listen(&p.b.core, &second, cm_service_id(CM_PS_TCP, PORT)), -EADDRINUSE);
	assert_int_equal(cm_listen(&p.b.core, &second, cm_service_id(CM_PS_UDP, PORT)), 0);
	cm_abandon(&p.b.core, &second, p.now);
}

static void a_full_backlog_is_silent_and_the_request_comes_again(void **state)
{
	p.b.room = 0;
	connect_a();
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_NO_ROOM);
	silent(&p.b);
	p.b.room = 1;
	timer(&p.a);
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_TAKEN);
}

static void incoming_may_refuse_with_a_reason(void **state)
{
	p.b.room = 0;
	p.b.refuse = CM_REJ_INVALID_GID;
	connect_a();
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_REFUSED);
	assert_int_equal(pass(&p.b, CM_REJ), CM_V_TAKEN);
	assert_int_equal(p.a.last.rej.reason, CM_REJ_INVALID_GID);
}

static void a_request_that_cannot_be_is_refused(void **state)
{
	static const struct {
		uint8_t transport, mtu;
		uint16_t reason;
	} bad[] = {{CM_TRANSPORT_RD, 3, CM_REJ_INVALID_TRANSPORT},
		{CM_TRANSPORT_EXTENDED, 3, CM_REJ_INVALID_TRANSPORT},
		{CM_TRANSPORT_RC, 0, CM_REJ_INVALID_MTU}, {CM_TRANSPORT_RC, 6, CM_REJ_INVALID_MTU}};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct cm_msg m = a_req(0x11);

		m.attr = CM_REQ;
		m.local_id = 77;
		m.req.transport = bad[i].transport;
		m.req.mtu = bad[i].mtu;
		assert_int_equal(give_msg(&p.b, &m), CM_V_REFUSED);
		assert_int_equal(taken(&p.b, CM_REJ).rej.reason, bad[i].reason);
	}
}

static void a_rejection_carries_reason_information_and_private_data(void **state)
{
	up_to_req();
	assert_int_equal(cm_reject(&p.b.core, &B, CM_REJ_CONSUMER, "info", 4, "because", 7, p.now), 0);
	state_is(&B, IDLE);
	assert_int_equal(pass(&p.b, CM_REJ), CM_V_TAKEN);
	events_are(&p.a, REJ, 1);
	assert_int_equal(p.a.last.rej.info_len, 4);
	assert_memory_equal(p.a.last.rej.info, "info", 4);
	assert_memory_equal(p.a.last.priv, "because", 7);
	state_is(&A, IDLE);
}

static void the_active_side_may_reject_the_reply(void **state)
{
	up_to_rep();
	assert_int_equal(cm_reject(&p.a.core, &A, CM_REJ_CONSUMER, NULL, 0, NULL, 0, p.now), 0);
	assert_int_equal(pass(&p.a, CM_REJ), CM_V_TAKEN);
	events_are(&p.b, REJ, 1);
	state_is(&B, IDLE);
}

static void a_lost_rejection_of_a_reply_is_made_good_by_the_next_reply(void **state)
{
	up_to_rep();
	assert_int_equal(cm_reject(&p.a.core, &A, CM_REJ_CONSUMER, NULL, 0, NULL, 0, p.now), 0);
	take(&p.a, CM_REJ);
	timer(&p.b);
	assert_int_equal(pass(&p.b, CM_REP), CM_V_UNKNOWN);
	assert_int_equal(pass(&p.a, CM_REJ), CM_V_TAKEN);
	assert_int_equal(p.b.last.rej.reason, CM_REJ_INVALID_COMM_ID);
	events_are(&p.b, REJ, 1);
}

static void data_is_as_good_as_a_ready_to_use(void **state)
{
	up_to_rep();
	assert_int_equal(cm_establish(&p.a.core, &A, NULL, 0), 0);
	assert_int_equal(cm_data_came(&p.b.core, &B), 0);
	events_are(&p.b, ESTABLISHED, 1);
	assert_int_equal(pass(&p.a, CM_RTU), CM_V_DUPLICATE);
	assert_int_equal(cm_data_came(&p.b.core, &B), -EINVAL);
	events_are(&p.b, ESTABLISHED, 1);
}

static void a_reply_that_is_never_confirmed_ends_in_an_error(void **state)
{
	up_to_rep();
	assert_int_equal(cm_establish(&p.a.core, &A, NULL, 0), 0);
	take(&p.a, CM_RTU);
	for (int i = 0; i < CM_MAX_RETRIES; i++) {
		timer(&p.b);
		assert_int_equal(pass(&p.b, CM_REP), CM_V_DUPLICATE);
		take(&p.a, CM_RTU); /* lost every time */
	}
	timer(&p.b);
	events_are(&p.b, UNREACHABLE, 1);
	state_is(&B, IDLE);
	assert_int_equal(pass(&p.b, CM_REJ), CM_V_TAKEN); /* the other side learns it */
	events_are(&p.a, REJ, 1);
	state_is(&A, TIMEWAIT);
}

/* ---- duplicates ---- */
static void a_request_again_is_answered_by_what_there_is(void **state)
{
	uint8_t req[MAD_LEN];

	connect_a();
	memcpy(req, take(&p.a, CM_REQ), MAD_LEN);
	assert_int_equal(give(&p.b, req), CM_V_TAKEN);
	assert_int_equal(give(&p.b, req), CM_V_DUPLICATE); /* the user thinks: nothing */
	silent(&p.b);
	assert_int_equal(cm_prepare_mra(&p.b.core, &B, CM_MRA_TIMEOUT), 0);
	silent(&p.b);
	assert_int_equal(give(&p.b, req), CM_V_DUPLICATE);
	assert_int_equal(pass(&p.b, CM_MRA), CM_V_TAKEN);
	state_is(&A, MRA_REQ_RCVD);
	events_are(&p.a, MRA, 1);
	accept_b();
	take(&p.b, CM_REP);
	assert_int_equal(give(&p.b, req), CM_V_DUPLICATE);
	assert_int_equal(pass(&p.b, CM_REP), CM_V_TAKEN);
	assert_int_equal(cm_establish(&p.a.core, &A, NULL, 0), 0);
	pass(&p.a, CM_RTU);
	assert_int_equal(give(&p.b, req), CM_V_DUPLICATE); /* established: nothing */
	silent(&p.b);
	disconnect(&p.a);
	pass(&p.a, CM_DREQ);
	disconnect(&p.b);
	pass(&p.b, CM_DREP);
	assert_int_equal(give(&p.b, req), CM_V_DUPLICATE);
	assert_int_equal(taken(&p.b, CM_REJ).rej.reason, CM_REJ_STALE_CONN);
	events_are(&p.b, REQ, 1);
}

static void a_reply_again_is_answered_by_ready_to_use(void **state)
{
	uint8_t rep[MAD_LEN];

	up_to_req();
	accept_b();
	memcpy(rep, take(&p.b, CM_REP), MAD_LEN);
	give(&p.a, rep);
	assert_int_equal(give(&p.a, rep), CM_V_DUPLICATE);
	silent(&p.a);
	assert_int_equal(cm_prepare_mra(&p.a.core, &A, CM_MRA_TIMEOUT), 0);
	assert_int_equal(give(&p.a, rep), CM_V_DUPLICATE);
	assert_int_equal(pass(&p.a, CM_MRA), CM_V_TAKEN);
	state_is(&B, MRA_REP_RCVD);
	assert_int_equal(cm_establish(&p.a.core, &A, "rtu", 3), 0);
	take(&p.a, CM_RTU);
	assert_int_equal(give(&p.a, rep), CM_V_DUPLICATE);
	assert_int_equal(pass(&p.a, CM_RTU), CM_V_TAKEN);
	assert_memory_equal(p.b.last.priv, "rtu", 3);
	events_are(&p.a, REP, 1);
}

/* The passive side of an established connection keeps a REP, which is no answer to one. */
static void a_reply_to_the_passive_side_is_not_echoed(void **state)
{
	struct cm_msg m = {.attr = CM_REP};

	up_to_established();
	m.local_id = A.local_id;
	m.remote_id = B.local_id;
	assert_int_equal(give_msg(&p.b, &m), CM_V_DUPLICATE);
	silent(&p.b);
}

static void after_a_mra_the_request_goes_out_again_and_may_be_put_off_again(void **state)
{
	uint64_t begin;

	up_to_req();
	cm_prepare_mra(&p.b.core, &B, CM_MRA_TIMEOUT);
	timer(&p.a);
	pass(&p.a, CM_REQ);
	begin = p.now;
	assert_int_equal(pass(&p.b, CM_MRA), CM_V_TAKEN);
	timer(&p.a);
	assert_true(p.now - begin == (4096ull << CM_MRA_TIMEOUT) + (4096ull << 19));
	state_is(&A, REQ_SENT);
	pass(&p.a, CM_REQ);
	assert_int_equal(pass(&p.b, CM_MRA), CM_V_TAKEN);
	state_is(&A, MRA_REQ_RCVD);
}

/* ---- disconnecting ---- */
static void a_disconnect_request_again_is_confirmed_again_even_when_all_is_forgotten(void **state)
{
	uint8_t dreq[MAD_LEN];
	struct cm_msg drep;

	up_to_established();
	disconnect(&p.a);
	memcpy(dreq, take(&p.a, CM_DREQ), MAD_LEN);
	give(&p.b, dreq);
	assert_int_equal(give(&p.b, dreq), CM_V_DUPLICATE);
	silent(&p.b);
	assert_int_equal(cm_disconnect(&p.b.core, &B, "bye", 3, p.now), 0);
	take(&p.b, CM_DREP);
	assert_int_equal(give(&p.b, dreq), CM_V_DUPLICATE);
	drep = taken(&p.b, CM_DREP);
	assert_memory_equal(drep.priv, "bye", 3);
	timer(&p.b);
	state_is(&B, IDLE);
	assert_int_equal(give(&p.b, dreq), CM_V_UNKNOWN);
	assert_int_equal(pass(&p.b, CM_DREP), CM_V_TAKEN);
	events_are(&p.a, DREP, 1);
}

static void both_disconnect_at_once(void **state)
{
	up_to_established();
	disconnect(&p.a);
	disconnect(&p.b);
	assert_int_equal(pass(&p.a, CM_DREQ), CM_V_TAKEN);
	assert_int_equal(pass(&p.b, CM_DREQ), CM_V_TAKEN);
	state_is(&A, TIMEWAIT);
	state_is(&B, TIMEWAIT);
	events_are(&p.a, DREQ, 1);
	events_are(&p.b, DREQ, 1);
	assert_int_equal(pass(&p.a, CM_DREP), CM_V_DUPLICATE);
	assert_int_equal(pass(&p.b, CM_DREP), CM_V_DUPLICATE);
	events_are(&p.a, DREP, 0);
	silent(&p.a);
}

static void a_disconnect_nobody_answers_is_one_all_the_same(void **state)
{
	up_to_established();
	disconnect(&p.a);
	for (int i = 0; i <= CM_MAX_RETRIES; i++) {
		take(&p.a, CM_DREQ);
		timer(&p.a);
	}
	events_are(&p.a, DREQ_TIMEOUT, 1);
	state_is(&A, TIMEWAIT);
}

static void a_disconnect_may_come_before_the_ready_to_use(void **state)
{
	up_to_rep();
	cm_establish(&p.a.core, &A, NULL, 0);
	take(&p.a, CM_RTU);
	disconnect(&p.a);
	assert_int_equal(pass(&p.a, CM_DREQ), CM_V_TAKEN);
	events_are(&p.b, ESTABLISHED, 0);
	events_are(&p.b, DREQ, 1);
	state_is(&B, DREQ_RCVD);
}

static void a_disconnect_for_another_qp_is_not_believed(void **state)
{
	struct cm_msg m = {.attr = CM_DREQ};

	up_to_established();
	m.local_id = A.local_id;
	m.remote_id = B.local_id;
	m.dreq.remote_qpn = 0x23;
	assert_int_equal(give_msg(&p.b, &m), CM_V_OUT_OF_PLACE);
	state_is(&B, ESTABLISHED);
}

/* ---- stale connections ---- */
static void a_peer_that_forgot_is_rejected_and_the_old_connection_ends(void **state)
{
	struct cm_msg m = a_req(0x11);

	up_to_established();
	m.attr = CM_REQ;
	m.local_id = A.local_id + 1; /* the same QP, another id */
	assert_int_equal(give_msg(&p.b, &m), CM_V_STALE);
	assert_int_equal(taken(&p.b, CM_REJ).rej.reason, CM_REJ_STALE_CONN);
	take(&p.b, CM_DREQ);
	state_is(&B, DREQ_SENT);
}

static void an_id_used_again_for_another_qp_is_stale_too(void **state)
{
	struct cm_msg m = a_req(0x12);

	up_to_established();
	m.attr = CM_REQ;
	m.local_id = A.local_id;
	assert_int_equal(give_msg(&p.b, &m), CM_V_STALE);
	assert_int_equal(taken(&p.b, CM_REJ).rej.about, CM_ABOUT_REQ);
	state_is(&B, DREQ_SENT);
}

static void a_stale_rejection_leads_through_timewait(void **state)
{
	struct cm_msg m = {.attr = CM_REJ};

	connect_a();
	m.remote_id = A.local_id;
	m.rej.reason = CM_REJ_STALE_CONN;
	assert_int_equal(give_msg(&p.a, &m), CM_V_TAKEN);
	events_are(&p.a, REJ, 1);
	state_is(&A, TIMEWAIT);
}

/* ---- what must not be believed ---- */
static void right_ids_from_a_wrong_address_change_nothing(void **state)
{
	struct cm_path stranger = p.b.to_peer;
	uint8_t rtu[MAD_LEN];

	up_to_rep();
	cm_establish(&p.a.core, &A, NULL, 0);
	memcpy(rtu, take(&p.a, CM_RTU), MAD_LEN);
	stranger.remote[15] = 9;
	assert_int_equal(cm_receive(&p.b.core, &stranger, rtu, MAD_LEN, p.now), CM_V_STRANGER);
	state_is(&B, REP_SENT);
	silent(&p.b);
}

static void ids_must_be_right_on_both_sides(void **state)
{
	struct cm_msg m = {.attr = CM_DREQ};

	up_to_established();
	m.local_id = A.local_id + 1;
	m.remote_id = B.local_id;
	m.dreq.remote_qpn = 0x22;
	assert_int_equal(give_msg(&p.b, &m), CM_V_UNKNOWN);
	take(&p.b, CM_DREP);
	state_is(&B, ESTABLISHED);
}

static void a_rejection_of_the_request_is_too_late_after_the_reply(void **state)
{
	struct cm_msg m = {.attr = CM_REJ};

	up_to_established();
	m.local_id = A.remote_id;
	m.remote_id = A.local_id;
	m.rej.reason = CM_REJ_STALE_CONN;
	assert_int_equal(give_msg(&p.a, &m), CM_V_OUT_OF_PLACE);
	state_is(&A, ESTABLISHED);
}

static void a_rejection_ends_an_established_connection(void **state)
{
	struct cm_msg m = {.attr = CM_REJ};

	up_to_established();
	m.local_id = A.remote_id;
	m.remote_id = A.local_id;
	m.rej.about = CM_ABOUT_OTHER;
	m.rej.reason = CM_REJ_CONSUMER;
	assert_int_equal(give_msg(&p.a, &m), CM_V_TAKEN);
	events_are(&p.a, REJ, 1);
	state_is(&A, TIMEWAIT);
}

static void alternate_paths_are_refused(void **state)
{
	struct cm_msg m = {.attr = CM_LAP};

	up_to_established();
	m.local_id = A.local_id;
	m.remote_id = B.local_id;
	assert_int_equal(give_msg(&p.b, &m), CM_V_REFUSED);
	assert_int_equal(taken(&p.b, CM_APR).apr.status, CM_APR_UNSUPPORTED);
	state_is(&B, ESTABLISHED);
}

static void times_a_peer_names_are_believed_within_bounds(void **state)
{
	struct cm_msg m = a_req(0x11);
	uint64_t begin = p.now;

	m.attr = CM_REQ;
	m.local_id = 77;
	m.req.local_timeout = 0;
	give_msg(&p.b, &m);
	accept_b();
	assert_true(cm_deadline(&p.b.core) - begin == 4096ull << 14);
	m.local_id = 78;
	m.req.qpn = 0x12;
	m.req.local_timeout = 31;
	give_msg(&p.b, &m);
	cm_abandon(&p.b.core, &B, p.now);
	cm_expire(&p.b.core, p.now = cm_deadline(&p.b.core)); /* TIMEWAIT of the first */
	begin = p.now;
	m = (struct cm_msg){.rep.qpn = 0x33};
	assert_int_equal(cm_accept(&p.b.core, &p.b.conn[1], &m, p.now), 0);
	assert_true(cm_deadline(&p.b.core) - begin == 4096ull << 21);
}

/* ---- datagrams ---- */
static void request_sidr(void)
{
	struct cm_msg m = {0};

	m.sidr_req.service_id = cm_service_id(CM_PS_TCP, PORT);
	assert_int_equal(cm_sidr_request(&p.a.core, &A, &p.a.to_peer, &m, p.now), 0);
}

static void a_datagram_service_is_resolved_once_however_often_it_is_asked(void **state)
{
	struct cm_msg m = {0};
	uint8_t req[MAD_LEN], rep[MAD_LEN];

	request_sidr();
	memcpy(req, take(&p.a, CM_SIDR_REQ), MAD_LEN);
	assert_int_equal(give(&p.b, req), CM_V_TAKEN);
	assert_int_equal(give(&p.b, req), CM_V_DUPLICATE);
	events_are(&p.b, SIDR_REQ, 1);
	m.sidr_rep.qpn = 0x44;
	m.sidr_rep.qkey = 0x01234567;
	assert_int_equal(cm_sidr_reply(&p.b.core, &B, &m, p.now), 0);
	take(&p.b, CM_SIDR_REP);
	timer(&p.a); /* the answer was lost */
	assert_int_equal(pass(&p.a, CM_SIDR_REQ), CM_V_DUPLICATE);
	memcpy(rep, take(&p.b, CM_SIDR_REP), MAD_LEN);
	assert_int_equal(give(&p.a, rep), CM_V_TAKEN);
	assert_int_equal(give(&p.a, rep), CM_V_UNKNOWN);
	events_are(&p.a, SIDR_REP, 1);
	events_are(&p.b, SIDR_REQ, 1);
	assert_int_equal(p.a.last.sidr_rep.qpn, 0x44);
	state_is(&A, IDLE);
}

static void an_unknown_datagram_service_is_said_to_be_so(void **state)
{
	cm_abandon(&p.b.core, &p.b.listener, p.now);
	request_sidr();
	assert_int_equal(pass(&p.a, CM_SIDR_REQ), CM_V_REFUSED);
	assert_int_equal(pass(&p.b, CM_SIDR_REP), CM_V_TAKEN);
	assert_int_equal(p.a.last.sidr_rep.status, CM_SIDR_UNSUPPORTED);
	assert_int_equal(cm_listen(&p.b.core, &p.b.listener, cm_service_id(CM_PS_TCP, PORT)), 0);
}

/* ---- the end ---- */
static void abandoning_tells_the_peer_from_every_state(void **state)
{
	static const struct {
		void (*reach)(void);
		bool passive;
		enum cm_attr says;
		bool lingers;
	} ends[] = {
		{connect_a, false, CM_REJ, false},
		{up_to_req, true, CM_REJ, false},
		{up_to_rep, false, CM_REJ, false},
		{up_to_rep, true, CM_REJ, true},
		{up_to_established, false, CM_DREQ, true},
		{up_to_established, true, CM_DREQ, true},
	};

	for (unsigned i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct side *s = ends[i].passive ? &p.b : &p.a;

		start(NULL);
		ends[i].reach();
		s->out_head = s->out_tail;
		cm_abandon(&s->core, &s->conn[0], p.now);
		take(s, ends[i].says);
		silent(s);
		events_are(s, GONE, !ends[i].lingers);
		while (s->conn[0].state != CM_S_IDLE) {
			timer(s);
			s->out_head = s->out_tail;
		}
		events_are(s, GONE, 1);
		events_are(s, DREQ_TIMEOUT, 0); /* nothing but GONE */
		events_are(s, TIMEWAIT_EXIT, 0);
		finish(NULL);
	}
	start(NULL);
}

static void verbs_out_of_place_are_refused(void **state)
{
	struct cm_msg m = {0};
	uint8_t much[CM_PRIV_MAX + 1] = {0};

	assert_int_equal(cm_accept(&p.a.core, &A, &m, p.now), -EINVAL);
	assert_int_equal(cm_establish(&p.a.core, &A, NULL, 0), -EINVAL);
	assert_int_equal(cm_reject(&p.a.core, &A, CM_REJ_CONSUMER, NULL, 0, NULL, 0, p.now), -EINVAL);
	assert_int_equal(disconnect(&p.a), -EINVAL);
	assert_int_equal(cm_prepare_mra(&p.a.core, &A, 20), -EINVAL);
	assert_int_equal(cm_sidr_reply(&p.a.core, &A, &m, p.now), -EINVAL);
	up_to_rep();
	assert_int_equal(cm_establish(&p.a.core, &A, much, 225), -EINVAL);
	assert_int_equal(cm_reject(&p.a.core, &A, 1, much, 73, NULL, 0, p.now), -EINVAL);
	assert_int_equal(cm_reject(&p.a.core, &A, 1, NULL, 0, much, 149, p.now), -EINVAL);
	state_is(&A, REP_RCVD);
}

/* ---- several processes on one host ---- */
static void a_message_names_the_process_it_is_for(void **state)
{
	uint64_t service = 0;
	struct cm_msg m = {.attr = CM_REJ};
	uint8_t mad[MAD_LEN];

	up_to_req();
	accept_b();
	assert_int_equal(cm_id_slot(A.local_id), 3);
	assert_int_equal(cm_owner(take(&p.b, CM_REP), MAD_LEN, &service), 3);
	timer(&p.a);
	assert_int_equal(cm_owner(take(&p.a, CM_REQ), MAD_LEN, &service), CM_OWNER_SERVICE);
	assert_true(service == cm_service_id(CM_PS_TCP, PORT));
	cm_msg_pack(&m, mad);
	assert_int_equal(cm_owner(mad, MAD_LEN, &service), CM_OWNER_ANY);
	assert_int_equal(cm_owner(mad, MAD_LEN - 1, &service), CM_OWNER_NONE);
	m = (struct cm_msg){.attr = CM_SIDR_REP, .local_id = cm_id_make(511, UINT32_MAX)};
	cm_msg_pack(&m, mad);
	assert_int_equal(cm_owner(mad, MAD_LEN, &service), 511);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, finish)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_connection_from_request_to_timewait),
		TEST(a_lost_request_is_sent_again_until_it_is_too_often),
		TEST(a_peer_that_gave_up_frees_the_request_here),
		TEST(nobody_listens),
		TEST(a_service_has_one_listener),
		TEST(a_full_backlog_is_silent_and_the_request_comes_again),
		TEST(incoming_may_refuse_with_a_reason),
		TEST(a_request_that_cannot_be_is_refused),
		TEST(a_rejection_carries_reason_information_and_private_data),
		TEST(the_active_side_may_reject_the_reply),
		TEST(a_lost_rejection_of_a_reply_is_made_good_by_the_next_reply),
		TEST(data_is_as_good_as_a_ready_to_use),
		TEST(a_reply_that_is_never_confirmed_ends_in_an_error),
		TEST(a_request_again_is_answered_by_what_there_is),
		TEST(a_reply_again_is_answered_by_ready_to_use),
		TEST(a_reply_to_the_passive_side_is_not_echoed),
		TEST(after_a_mra_the_request_goes_out_again_and_may_be_put_off_again),
		TEST(a_disconnect_request_again_is_confirmed_again_even_when_all_is_forgotten),
		TEST(both_disconnect_at_once),
		TEST(a_disconnect_nobody_answers_is_one_all_the_same),
		TEST(a_disconnect_may_come_before_the_ready_to_use),
		TEST(a_disconnect_for_another_qp_is_not_believed),
		TEST(a_peer_that_forgot_is_rejected_and_the_old_connection_ends),
		TEST(an_id_used_again_for_another_qp_is_stale_too),
		TEST(a_stale_rejection_leads_through_timewait),
		TEST(right_ids_from_a_wrong_address_change_nothing),
		TEST(ids_must_be_right_on_both_sides),
		TEST(a_rejection_of_the_request_is_too_late_after_the_reply),
		TEST(a_rejection_ends_an_established_connection),
		TEST(alternate_paths_are_refused),
		TEST(times_a_peer_names_are_believed_within_bounds),
		TEST(a_datagram_service_is_resolved_once_however_often_it_is_asked),
		TEST(an_unknown_datagram_service_is_said_to_be_so),
		TEST(abandoning_tells_the_peer_from_every_state),
		TEST(verbs_out_of_place_are_refused),
		TEST(a_message_names_the_process_it_is_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
