/* SPDX-License-Identifier: MIT */
/*
 * The states of a stream, and the one function that changes them.
 *
 * The initiator:
 *                                          retry_later(): nobody listens
 *         begin_connect()                ------------------------------->
 *   FRESH ---------------> CONNECTING                                      RETRY_CONNECT
 *                           |      ^     <-------------------------------
 *        stream_connected() |      |          stream_retry_connect()
 *                           v      | try_older(): the peer knows MPA's first revision only
 *                          NEGOTIATING
 *
 * The responder, for each that connects to a listener (FRESH ---> LISTENING: iwarp_conn_listen()):
 *
 *           accept_one()                 stream_tell_request()
 *   FRESH ---------------> NEGOTIATING ------------------------> BACKLOGGED: the manager has no room
 *                           ^      |                                 |
 *                  answer() |      | stream_tell_request()           | stream_tell_request()
 *                           |      v                                 |
 *                          AWAIT_APP <-------------------------------'
 *
 * Both, once they have agreed or not:
 *                                          wait_for_link()
 *                                        ------------------->
 *                          NEGOTIATING                        UPGRADING
 *                           |      |     <-------------------     |
 *                 refused() |      |       stream_upgrade()       |
 *                           |      | tell_established(), or       |
 *                           |      v stream_setup_failed()        | stream_detach_qp(): the program takes
 *                           |     OPEN                            | its queue pair away, or the manager
 *                           v      v stream_detach_qp()           | lets go; from NEGOTIATING, too
 *                           DRAINING <----------------------------'
 *
 * Any of them: ---> CLOSED by stream_close_socket().
 */
#include "iwarp/port.h"

#include "base/asserts.h"
#include "hca/qp.h"
#include "observe/probe.h"

static const char *const names[] = {
	[STREAM_FRESH] = "FRESH",
	[STREAM_LISTENING] = "LISTENING",
	[STREAM_RETRY_CONNECT] = "RETRY_CONNECT",
	[STREAM_CONNECTING] = "CONNECTING",
	[STREAM_NEGOTIATING] = "NEGOTIATING",
	[STREAM_UPGRADING] = "UPGRADING",
	[STREAM_BACKLOGGED] = "BACKLOGGED",
	[STREAM_AWAIT_APP] = "AWAIT_APP",
	[STREAM_OPEN] = "OPEN",
	[STREAM_DRAINING] = "DRAINING",
	[STREAM_CLOSED] = "CLOSED",
};

#define FROM(state) (1u << STREAM_##state)

/* Where one can come from. */
static const unsigned from[] = {
	[STREAM_LISTENING] = FROM(FRESH),
	[STREAM_RETRY_CONNECT] = FROM(CONNECTING),
	[STREAM_CONNECTING] = FROM(FRESH) | FROM(RETRY_CONNECT) | FROM(NEGOTIATING),
	[STREAM_NEGOTIATING] = FROM(FRESH) | FROM(CONNECTING) | FROM(UPGRADING) | FROM(AWAIT_APP),
	[STREAM_UPGRADING] = FROM(NEGOTIATING),
	[STREAM_BACKLOGGED] = FROM(NEGOTIATING),
	[STREAM_AWAIT_APP] = FROM(NEGOTIATING) | FROM(BACKLOGGED),
	[STREAM_OPEN] = FROM(NEGOTIATING),
	[STREAM_DRAINING] = FROM(NEGOTIATING) | FROM(UPGRADING) | FROM(OPEN),
	[STREAM_CLOSED] = FROM(CLOSED) - 1, /* all others */
};

void stream_set_state(struct stream *s, enum stream_state state)
{
	assert_locked(&s->e->drive);
	if (s->qp && (s->state == STREAM_OPEN || state == STREAM_OPEN))
		assert_locked(&s->qp->lock); /* who posts asks whether it is open */
	assert_that(from[state] >> s->state & 1);
	PROBE(STREAM_STATE, .qpn = s->qpn, .fd = (uint64_t)s->fd, .from = names[s->state],
		.to = names[state]);
	s->state = state;
}
