/* SPDX-License-Identifier: MIT */
/* Messages that come twice, from peers without memory, and from those who lie. */
#include "cm/ib/pair_test.h"

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

/* ---- stale connections ---- */
static void a_peer_that_forgot_is_rejected_and_the_old_connection_ends(void **state)
{
	struct cm_msg m = a_req(0x11);

	up_to_established();
	m.attr = CM_REQ;
	m.local_id = A.local_id + 1; /* the same QP, another id */
	m.req.ca_guid = p.a.core.ca_guid;
	assert_int_equal(give_msg(&p.b, &m), CM_V_STALE);
	assert_int_equal(taken(&p.b, CM_REJ).rej.reason, CM_REJ_STALE_CONN);
	take(&p.b, CM_DREQ);
	state_is(&B, DREQ_SENT);
}

/* Linux gives a QP's number away again at once. */
static void a_qp_number_of_a_finished_connection_is_not_stale(void **state)
{
	struct cm_msg m = a_req(0x11);

	up_to_established();
	disconnect(&p.a);
	pass(&p.a, CM_DREQ);
	disconnect(&p.b);
	state_is(&B, TIMEWAIT);
	take(&p.b, CM_DREP);
	m.attr = CM_REQ;
	m.local_id = A.local_id + 1;
	assert_int_equal(give_msg(&p.b, &m), CM_V_TAKEN);
	events_are(&p.b, REQ, 2);
}

static void an_id_used_again_for_another_qp_is_stale_too(void **state)
{
	struct cm_msg m = a_req(0x12);

	up_to_established();
	m.attr = CM_REQ;
	m.local_id = A.local_id;
	m.req.ca_guid = p.a.core.ca_guid;
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

/* ---- what cannot be meant ---- */
static void a_request_with_an_impossible_mtu_is_refused(void **state)
{
	for (uint8_t mtu = 0; mtu < 8; mtu++) {
		struct cm_msg m = a_req(0x11);

		m.attr = CM_REQ;
		m.local_id = 77;
		m.req.mtu = mtu;
		if (mtu >= 1 && mtu <= 5)
			continue;
		assert_int_equal(give_msg(&p.b, &m), CM_V_REFUSED);
		assert_int_equal(taken(&p.b, CM_REJ).rej.reason, CM_REJ_INVALID_MTU);
	}
	events_are(&p.b, REQ, 0);
}

/* ---- what must not be believed ---- */
/* Refused, since Linux's ib_cm would not take it either; but the connection stays. */
static void a_guessed_qp_number_ends_nothing(void **state)
{
	struct cm_msg m = a_req(0x11);

	up_to_established();
	m.attr = CM_REQ;
	m.local_id = 77;
	m.req.ca_guid = p.a.core.ca_guid + 1;
	assert_int_equal(give_msg(&p.b, &m), CM_V_STALE);
	assert_int_equal(taken(&p.b, CM_REJ).rej.reason, CM_REJ_STALE_CONN);
	state_is(&B, ESTABLISHED);
	silent(&p.b);
	m = (struct cm_msg){.attr = CM_REP, .local_id = 78, .remote_id = A.local_id};
	m.rep.qpn = 0x22;
	assert_int_equal(give_msg(&p.a, &m), CM_V_UNKNOWN);
	state_is(&A, ESTABLISHED);
}

static void right_ids_from_a_wrong_address_change_nothing(void **state)
{
	struct cm_path stranger = p.b.to_peer;
	uint8_t rtu[MAD_LEN];

	up_to_rep();
	cm_establish(&p.a.core, &A, NULL, 0);
	memcpy(rtu, take(&p.a, CM_RTU), MAD_LEN);
	stranger.remote[15] = 9;
	assert_int_equal(cm_receive(&p.b.core, &stranger, rtu, MAD_LEN, p.now), CM_V_WRONG_SOURCE);
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
	assert_int_equal(give_msg(&p.a, &m), CM_V_WRONG_STATE);
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

/* Who never heard of our id gives up: that can be said before we know that the peer knows it, not later. */
static void a_rejection_without_our_id_ends_no_established_connection(void **state)
{
	struct cm_msg m = {.attr = CM_REJ};

	up_to_established();
	m.local_id = A.local_id;
	m.rej.about = CM_ABOUT_OTHER;
	m.rej.reason = CM_REJ_TIMEOUT;
	assert_int_equal(give_msg(&p.b, &m), CM_V_UNKNOWN);
	state_is(&B, ESTABLISHED);
	silent(&p.b);
}

static void a_rejection_without_our_id_ends_a_request(void **state)
{
	struct cm_msg m = {.attr = CM_REJ};

	up_to_req();
	m.local_id = A.local_id;
	m.rej.about = CM_ABOUT_OTHER;
	m.rej.reason = CM_REJ_TIMEOUT;
	assert_int_equal(give_msg(&p.b, &m), CM_V_TAKEN);
	events_are(&p.b, REJ, 1);
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

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_request_again_is_answered_by_what_there_is),
		TEST(a_reply_again_is_answered_by_ready_to_use),
		TEST(a_reply_to_the_passive_side_is_not_echoed),
		TEST(after_a_mra_the_request_goes_out_again_and_may_be_put_off_again),
		TEST(a_peer_that_forgot_is_rejected_and_the_old_connection_ends),
		TEST(a_qp_number_of_a_finished_connection_is_not_stale),
		TEST(an_id_used_again_for_another_qp_is_stale_too),
		TEST(a_stale_rejection_leads_through_timewait),
		TEST(a_request_with_an_impossible_mtu_is_refused),
		TEST(a_guessed_qp_number_ends_nothing),
		TEST(right_ids_from_a_wrong_address_change_nothing),
		TEST(ids_must_be_right_on_both_sides),
		TEST(a_rejection_of_the_request_is_too_late_after_the_reply),
		TEST(a_rejection_ends_an_established_connection),
		TEST(a_rejection_without_our_id_ends_no_established_connection),
		TEST(a_rejection_without_our_id_ends_a_request),
		TEST(alternate_paths_are_refused),
		TEST(times_a_peer_names_are_believed_within_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
