/* SPDX-License-Identifier: MIT */
/* Receiving: bytes are copied out of the ring; what was read is granted to the other side again. */
#include "rsocket/stream.h"

#include "rsocket/iov.h"

#include <errno.h>

static bool can_read(struct rs_stream *s)
{
	return s->flow.unread || !s->can_read;
}

/* Copies what is there, at most `most` bytes; lock held, and dropped while they are copied. */
static uint32_t copy_ready(struct rs_stream *s, struct rs_iov *to, size_t most)
{
	uint32_t total = s->flow.unread < most ? s->flow.unread : (uint32_t)most;

	assert_locked(&s->lock);
	for (uint32_t done = 0, len; done < total; done += len) {
		uint32_t at = rs_flow_piece(&s->flow, done, &len);

		len = len < total - done ? len : total - done;
		lock_drop(&s->lock);
		rs_iov_put(to, s->shared + at, len);
		lock_take(&s->lock);
	}
	return total;
}

static int receive(struct rs_stream *s, struct rs_iov *to, size_t *left, int flags)
{
	bool nonblock = rsock_nonblocking(&s->rs, flags);

	do {
		uint32_t got;
		int err = s->flow.unread ? 0 : rs_wait(s, nonblock, can_read);

		if (err)
			return err;
		if (!s->flow.unread)
			return s->state == RS_FAILED ? -s->why : 0;
		got = copy_ready(s, to, *left);
		*left -= got;
		if (flags & MSG_PEEK)
			return 0;
		rs_flow_consume(&s->flow, got);
		rs_tell(s);
	} while (*left && (flags & MSG_WAITALL));
	return 0;
}

/* Also of a thread that is cancelled where it waits. */
static void stop_receiving(void *arg)
{
	struct rs_stream *s = arg;

	lock_drop(&s->lock);
	pthread_mutex_unlock(&s->recv_lock);
}

ssize_t rs_stream_recv(struct rsock *rs, const struct iovec *iov, int n, int flags, struct sockaddr *addr,
	socklen_t *addr_len)
{
	struct rs_stream *s = rs_stream(rs);
	struct rs_iov to = {.iov = iov};
	size_t len = rs_iov_total(iov, n), left = len;
	int err = rs_need_connection(s, flags);

	if (err)
		return err;
	if (!len)
		return 0;
	pthread_mutex_lock(&s->recv_lock);
	lock_take(&s->lock);
	pthread_cleanup_push(stop_receiving, s);
	err = receive(s, &to, &left, flags);
	pthread_cleanup_pop(1);
	if (err && left == len)
		return err;
	if (addr && addr_len && left < len)
		rs->ops->getpeername(rs, addr, addr_len);
	return (ssize_t)(len - left);
}
