/* SPDX-License-Identifier: MIT */
/*
 * Sending: what the program gives is copied into the send buffer, where it stays until it is acknowledged,
 * and written from there into what the other side has granted. A little goes inside the work request.
 */
#include "rsocket/stream.h"

#include "rsocket/iov.h"

#include <errno.h>

enum {
	FIRST_AT_ONCE =
		4096, /* the first piece of a long send leaves early; each next may be twice as long */
	MOST_INLINE = 256,
};

/* ---- the send buffer ---- */
int rs_sbuf_pieces(const struct rs_stream *s, uint32_t len, struct ibv_sge sge[2])
{
	uint32_t to_end = s->rs.sizes.sbuf - s->sbuf_at, first = len < to_end ? len : to_end;

	sge[0] = (struct ibv_sge){
		.addr = (uintptr_t)s->sbuf + s->sbuf_at, .length = first, .lkey = s->sbuf_mr->lkey};
	sge[1] =
		(struct ibv_sge){.addr = (uintptr_t)s->sbuf, .length = len - first, .lkey = s->sbuf_mr->lkey};
	return len > first ? 2 : 1;
}

void rs_sbuf_advance(struct rs_stream *s, uint32_t len)
{
	s->sbuf_at = (uint32_t)(((uint64_t)s->sbuf_at + len) % s->rs.sizes.sbuf);
}

/* ---- sending ---- */
uint32_t rs_send_room(struct rs_stream *s)
{
	uint32_t space = s->rs.sizes.sbuf - s->sbuf_used, room = rs_flow_room(&s->flow);

	assert_locked(&s->lock);
	if (!s->sqe_free || space < RS_LEAST_ROOM)
		return 0;
	return room < space ? room : space;
}

static bool can_send(struct rs_stream *s)
{
	return !s->can_write || rs_send_room(s);
}

static int why_not(const struct rs_stream *s)
{
	if (s->shut_write)
		return -EPIPE;
	return s->state == RS_FAILED ? -s->why : -ECONNRESET;
}

/* Takes what a message of len bytes needs before the lock is dropped: riomap() takes from the same. Lock
 * held.
 */
static void reserve(struct rs_stream *s, uint32_t len, uint32_t used, struct rs_post *p)
{
	assert_locked(&s->lock);
	rs_flow_send(&s->flow, len, p);
	s->sqe_free--;
	s->sbuf_used += used;
}

static int send_inline(struct rs_stream *s, struct rs_iov *src, uint32_t len)
{
	uint8_t few[MOST_INLINE];
	struct ibv_sge sge = {.addr = (uintptr_t)few, .length = len};
	struct rs_post p;

	reserve(s, len, 0, &p);
	rs_iov_get(src, few, len);
	return rs_post(s, RS_WR_DATA, 0, &p, &sge, 1, IBV_SEND_INLINE);
}

static int send_buffered(struct rs_stream *s, struct rs_iov *src, uint32_t len)
{
	struct ibv_sge sge[2];
	struct rs_post p;
	int n = rs_sbuf_pieces(s, len, sge);

	reserve(s, len, len, &p);
	lock_drop(&s->lock);
	for (int i = 0; i < n; i++)
		rs_iov_get(src, (uint8_t *)(uintptr_t)sge[i].addr, sge[i].length);
	lock_take(&s->lock);
	rs_sbuf_advance(s, len);
	return rs_post(s, RS_WR_DATA, len, &p, sge, n, 0);
}

static int send_all(struct rs_stream *s, struct rs_iov *src, size_t *left, bool nonblock)
{
	uint32_t at_once = FIRST_AT_ONCE;
	int err = 0;

	while (*left && !err) {
		uint32_t len;

		if (!rs_send_room(s) || !s->can_write) {
			err = rs_wait(s, nonblock, can_send);
			if (err)
				return err;
			if (!s->can_write)
				return why_not(s);
		}
		if (s->unannounced) {
			rs_announce(s);
			continue;
		}
		len = rs_send_room(s);
		len = len < at_once ? len : at_once;
		len = len < *left ? len : (uint32_t)*left;
		err = len <= s->rs.sizes.inline_bytes && len <= MOST_INLINE ? send_inline(s, src, len)
									    : send_buffered(s, src, len);
		if (!err)
			*left -= len;
		at_once *= at_once < RS_MOST_AT_ONCE ? 2 : 1;
	}
	return err;
}

void rs_stop_sending(void *arg)
{
	struct rs_stream *s = arg;

	lock_drop(&s->lock);
	pthread_mutex_unlock(&s->send_lock);
}

ssize_t rs_stream_send(struct rsock *rs, const struct iovec *iov, int n, int flags,
	const struct sockaddr *addr, socklen_t addr_len)
{
	struct rs_stream *s = rs_stream(rs);
	struct rs_iov src = {.iov = iov};
	size_t len = rs_iov_total(iov, n), left = len;
	int err;

	if (addr || addr_len)
		return -EISCONN;
	err = rs_need_connection(s, flags);
	if (err)
		return err;
	pthread_mutex_lock(&s->send_lock);
	lock_take(&s->lock);
	pthread_cleanup_push(rs_stop_sending, s);
	err = send_all(s, &src, &left, rsock_nonblocking(rs, flags));
	pthread_cleanup_pop(1);
	return err && left == len ? err : (ssize_t)(len - left);
}
