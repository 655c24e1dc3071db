/* SPDX-License-Identifier: MIT */
/* How connections begin and end, and what the user may do. */
#include "cm/ib/pair_test.h"
#include "wire/qpn.h"

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

static void retries_until_somebody_listens(void **state)
{
	p.a.core.no_listener_retries = 2;
	cm_abandon(&p.b.core, &p.b.listener, p.now);
	connect_a();
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_REFUSED);
	assert_int_equal(pass(&p.b, CM_REJ), CM_V_TAKEN);
	state_is(&A, REQ_SENT);
	assert_int_equal(cm_deadline(&p.a.core), p.now + 10 * 1000 * 1000);
	timer(&p.a);
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_REFUSED);
	assert_int_equal(pass(&p.b, CM_REJ), CM_V_TAKEN);
	assert_int_equal(cm_deadline(&p.a.core), p.now + 20 * 1000 * 1000);
	assert_int_equal(cm_listen(&p.b.core, &p.b.listener, cm_service_id(CM_PS_TCP, PORT)), 0);
	timer(&p.a);
	assert_int_equal(pass(&p.a, CM_REQ), CM_V_TAKEN);
	events_are(&p.a, REJ, 0);
	events_are(&p.b, REQ, 1);
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
	assert_int_equal(give_msg(&p.b, &m), CM_V_WRONG_STATE);
	state_is(&B, ESTABLISHED);
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

static void an_answer_about_another_datagram_service_is_not_believed(void **state)
{
	struct cm_msg m = {.attr = CM_SIDR_REP};

	request_sidr();
	m.local_id = taken(&p.a, CM_SIDR_REQ).local_id;
	m.sidr_rep.service_id = cm_service_id(CM_PS_TCP, PORT + 1);
	assert_int_equal(give_msg(&p.a, &m), CM_V_WRONG_STATE);
	events_are(&p.a, SIDR_REP, 0);
	m.sidr_rep.service_id = cm_service_id(CM_PS_TCP, PORT);
	assert_int_equal(give_msg(&p.a, &m), CM_V_TAKEN);
	events_are(&p.a, SIDR_REP, 1);
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
	struct cm_msg m = {.attr = CM_REJ, .local_id = 7, .rej.reason = CM_REJ_TIMEOUT};
	uint8_t mad[MAD_LEN];

	up_to_req();
	accept_b();
	assert_int_equal(comm_id_slot(A.local_id), 3);
	assert_int_equal(cm_owner(take(&p.b, CM_REP), MAD_LEN, &service), 3);
	timer(&p.a);
	assert_int_equal(cm_owner(take(&p.a, CM_REQ), MAD_LEN, &service), CM_OWNER_SERVICE);
	assert_true(service == cm_service_id(CM_PS_TCP, PORT));
	cm_msg_pack(&m, mad);
	assert_int_equal(cm_owner(mad, MAD_LEN, &service), CM_OWNER_ANY);
	assert_int_equal(cm_owner(mad, MAD_LEN - 1, &service), CM_OWNER_NONE);
	m.rej.reason = CM_REJ_CONSUMER; /* its sender had our id */
	cm_msg_pack(&m, mad);
	assert_int_equal(cm_owner(mad, MAD_LEN, &service), CM_OWNER_NONE);
	m = (struct cm_msg){.attr = CM_SIDR_REP, .local_id = comm_id_make(511, UINT32_MAX)};
	cm_msg_pack(&m, mad);
	assert_int_equal(cm_owner(mad, MAD_LEN, &service), 511);
}

/* Somebody who knows more has told that nobody is there. */
static void the_user_need_not_wait_for_the_last_attempt(void **state)
{
	connect_a();
	take(&p.a, CM_REQ);
	assert_int_equal(cm_give_up(&p.a.core, &A, p.now), 0);
	assert_int_equal(taken(&p.a, CM_REJ).rej.reason, CM_REJ_TIMEOUT);
	events_are(&p.a, UNREACHABLE, 1);
	state_is(&A, IDLE);
	up_to_established();
	assert_int_equal(cm_give_up(&p.a.core, &A, p.now), -EINVAL);
	state_is(&A, ESTABLISHED);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_connection_from_request_to_timewait),
		TEST(a_lost_request_is_sent_again_until_it_is_too_often),
		TEST(a_peer_that_gave_up_frees_the_request_here),
		TEST(nobody_listens),
		TEST(retries_until_somebody_listens),
		TEST(a_service_has_one_listener),
		TEST(a_full_backlog_is_silent_and_the_request_comes_again),
		TEST(incoming_may_refuse_with_a_reason),
		TEST(a_request_that_cannot_be_is_refused),
		TEST(a_rejection_carries_reason_information_and_private_data),
		TEST(the_active_side_may_reject_the_reply),
		TEST(a_lost_rejection_of_a_reply_is_made_good_by_the_next_reply),
		TEST(data_is_as_good_as_a_ready_to_use),
		TEST(a_reply_that_is_never_confirmed_ends_in_an_error),
		TEST(a_disconnect_request_again_is_confirmed_again_even_when_all_is_forgotten),
		TEST(both_disconnect_at_once),
		TEST(a_disconnect_nobody_answers_is_one_all_the_same),
		TEST(a_disconnect_may_come_before_the_ready_to_use),
		TEST(a_disconnect_for_another_qp_is_not_believed),
		TEST(a_datagram_service_is_resolved_once_however_often_it_is_asked),
		TEST(an_answer_about_another_datagram_service_is_not_believed),
		TEST(an_unknown_datagram_service_is_said_to_be_so),
		TEST(abandoning_tells_the_peer_from_every_state),
		TEST(verbs_out_of_place_are_refused),
		TEST(a_message_names_the_process_it_is_for),
		TEST(the_user_need_not_wait_for_the_last_attempt),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
