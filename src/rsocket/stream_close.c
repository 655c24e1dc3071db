/* SPDX-License-Identifier: MIT */
/*
 * Shutdown and close: the other side is told in the stream itself, behind the data, and has acknowledged it
 * all. An rsocket always has receives for what it granted, so that takes no time; a peer that has none would
 * keep us for ever, and is given up.
 */
#include "rsocket/stream.h"

#include <errno.h>

enum { PATIENCE_S = 5 };

static bool can_tell(struct rs_stream *s)
{
	return s->ctrl_free || s->state != RS_CONNECTED;
}

static bool all_sent(struct rs_stream *s)
{
	return (s->sqe_free == s->rs.sizes.sq && s->ctrl_free == RS_CTRL_SLOTS) || s->state != RS_CONNECTED;
}

/* Signals do not hurry it. */
static void wait_for(struct rs_stream *s, bool (*ready)(struct rs_stream *s))
{
	while (rs_wait(s, false, ready) == -EINTR)
		;
}

/* The service thread does, which hears of it when we sleep. */
static void give_up_in(struct rs_stream *s, int seconds)
{
	s->give_up = rs_now() + (uint64_t)seconds * 1000000000u;
	s->attended = false;
}

static void say(struct rs_stream *s, enum rs_ctrl what)
{
	struct rs_post p = {.msg = rs_msg(RS_OP_CTRL, what)};

	give_up_in(s, s->rs.linger ? s->rs.linger : PATIENCE_S);
	wait_for(s, can_tell);
	if (s->state != RS_CONNECTED)
		return;
	s->ctrl_free--;
	if (rs_post(s, what == RS_CTRL_DISCONNECT ? RS_WR_DISCONNECT : RS_WR_CTRL, 0, &p, NULL, 0, 0))
		rs_stream_fail(s, ECONNRESET);
	else
		wait_for(s, all_sent);
	s->give_up = UINT64_MAX;
}

/* lock held */
static void shut(struct rs_stream *s, bool reading, bool writing)
{
	bool was_writing = s->can_write;

	assert_locked(&s->lock);
	if (reading)
		s->can_read = false;
	if (writing) {
		s->can_write = false;
		s->shut_write = true;
	}
	if (!s->can_read && !s->can_write)
		say(s, RS_CTRL_DISCONNECT);
	else if (was_writing && writing)
		say(s, RS_CTRL_SHUTDOWN);
}

int rs_stream_shutdown(struct rsock *rs, int how)
{
	struct rs_stream *s = rs_stream(rs);
	int err = 0;

	if (how != SHUT_RD && how != SHUT_WR && how != SHUT_RDWR)
		return -EINVAL;
	lock_take(&s->lock);
	if (s->state == RS_CONNECTED)
		shut(s, how != SHUT_WR, how != SHUT_RD);
	else if (s->state != RS_CLOSED && s->state != RS_FAILED)
		err = -ENOTCONN;
	lock_drop(&s->lock);
	rsock_wake(rs);
	return err;
}

void rs_stream_end(struct rsock *rs)
{
	struct rs_stream *s = rs_stream(rs);

	lock_take(&s->lock);
	if (s->state == RS_CONNECTED)
		shut(s, true, true);
	lock_drop(&s->lock);
	rsock_wake(rs);
}
