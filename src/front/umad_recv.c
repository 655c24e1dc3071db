/* SPDX-License-Identifier: MIT */
/*
 * Receiving: one message at a time, as far as its bytes have come. No lock is held while a thread waits, and
 * it can be cancelled there alone, as OpenSM does with the thread it keeps in umad_recv().
 */
#include "front/umad_front.h"

#include "base/cancel.h"
#include "base/clock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <infiniband/umad.h>

enum { MAD_BYTES = 256 };

/* Reads what is there of the current message: 1 it is complete (but for its end), 0 not yet, or -errno. */
static int read_message(struct umad_handle *p)
{
	for (;;) {
		bool header = p->have < sizeof(p->in);
		size_t want = sizeof(p->in) + (header ? 0 : p->in.len - FABRIC_RECV_END) - p->have;
		uint8_t *to = header ? (uint8_t *)&p->in + p->have : p->body + p->have - sizeof(p->in);
		ssize_t n;

		if (!want && !header)
			return 1;
		n = recv(p->fd, to, want, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return !n ? -ECONNRESET : errno == EAGAIN ? 0 : -errno;
		p->have += (size_t)n;
		if (header && p->have == sizeof(p->in)) {
			if (p->in.type != FABRIC_RECV || p->in.len > FABRIC_MESSAGE_MAX ||
				p->in.len < sizeof(struct fabric_mad) + UMAD_HDR + FABRIC_RECV_END)
				return -EPROTO;
			p->body = malloc(p->in.len);
			if (!p->body)
				return -ENOMEM;
		}
	}
}

/* The request that this message ends: a response or the news that there was none. */
static void forget_request(struct umad_handle *p, const struct fabric_mad *mad, const uint8_t *hdr)
{
	if (!mad->status && !umad_is_response(hdr))
		return;
	list_for_each_safe(pos, &p->waiting)
	{
		struct umad_waiting *w = container_of(pos, struct umad_waiting, node);

		if (w->mad.agent == mad->agent && w->msg[1] == hdr[1] && !memcmp(w->msg + 12, hdr + 12, 4)) {
			list_del(pos);
			free(w);
			return;
		}
	}
}

/*
 * Gives a message to the program: the agent's number, or -errno. ENOSPC: it is longer than a MAD, and does
 * not fit; the program gets what tells it how long. EINVAL: not even that.
 */
static int give(const struct fabric_mad *mad, const uint8_t *msg, size_t len, void *umad, int *length)
{
	size_t room = *length < 0 ? 0 : (size_t)*length, first = len < MAD_BYTES ? len : MAD_BYTES;

	if (room < first)
		return -EINVAL;
	memcpy(umad, mad, sizeof(*mad));
	memcpy((char *)umad + sizeof(*mad), msg, first);
	*length = (int)len;
	if (room < len)
		return -ENOSPC;
	memcpy((char *)umad + sizeof(*mad) + first, msg + first, len - first);
	return (int)mad->agent;
}

/* Its end is there when it is: otherwise the fabric is just writing it. Who has no room for it leaves it. */
static int take_message(struct umad_handle *p, void *umad, int *length)
{
	size_t len = p->in.len - FABRIC_RECV_END - sizeof(struct fabric_mad);
	const uint8_t *msg = p->body + sizeof(struct fabric_mad);
	bool fits = *length >= 0 && (size_t)*length >= len;
	struct fabric_mad mad;
	uint8_t end;
	int agent;

	if (recv(p->fd, &end, sizeof(end), MSG_DONTWAIT | (fits ? 0 : MSG_PEEK)) != sizeof(end))
		return -EAGAIN;
	memcpy(&mad, p->body, sizeof(mad));
	agent = give(&mad, msg, len, umad, length);
	if (fits) {
		forget_request(p, &mad, msg);
		umad_handle_forget(p);
	}
	return agent;
}

static void expire(struct umad_handle *p)
{
	uint64_t now = clock_ns();

	list_for_each_safe(pos, &p->waiting)
	{
		if (container_of(pos, struct umad_waiting, node)->deadline > now)
			continue;
		list_del(pos);
		list_add_tail(&p->timed_out, pos);
	}
}

static int take_timeout(struct umad_handle *p, void *umad, int *length)
{
	struct umad_waiting *w = container_of(p->timed_out.next, struct umad_waiting, node);
	int agent = give(&w->mad, w->msg, UMAD_HDR, umad, length);

	if (agent >= 0) {
		list_del(&w->node);
		free(w);
	}
	return agent;
}

/* umad NULL: only looks. Anything to receive, or -EAGAIN; *lost: the connection has ended. */
static int take(struct umad_handle *p, void *umad, int *length, bool *lost)
{
	int err;

	if (p->down)
		expire(p);
	if (!list_empty(&p->timed_out))
		return umad ? take_timeout(p, umad, length) : 0;
	if (p->down)
		return -EAGAIN;
	err = read_message(p);
	if (err < 0)
		*lost = true;
	if (err <= 0)
		return -EAGAIN;
	return umad ? take_message(p, umad, length) : 0;
}

static int try_take(struct umad_handle *p, void *umad, int *length)
{
	bool lost = false;
	int got;

	umad_handle_mend(p);
	pthread_mutex_lock(&p->lock);
	got = p->closed ? -EBADF : take(p, umad, length, &lost);
	if (p->down && umad)
		umad_handle_set_alarm(p);
	pthread_mutex_unlock(&p->lock);
	if (lost)
		umad_handle_lost(p);
	return got;
}

/* The port is not held while we sleep: a thread that is cancelled there holds nothing. */
static int receive(int portid, void *umad, int *length, int timeout_ms)
{
	uint64_t until = timeout_ms > 0 ? clock_ms() + (unsigned)timeout_ms : 0;
	int before = cancel_off(), got;

	for (;;) {
		struct umad_handle *p = umad_handle_get(portid);
		struct pollfd f = {.fd = portid, .events = POLLIN};
		uint64_t now = clock_ms();

		got = p ? try_take(p, umad, length) : -EINVAL;
		if (p)
			umad_handle_put(p);
		if (got != -EAGAIN || !timeout_ms)
			break;
		if (timeout_ms > 0 && now >= until) {
			got = -ETIMEDOUT;
			break;
		}
		cancel_restore(before);
		/* A message whose end is still to come makes it readable, too: not for long. */
		if (poll(&f, 1, timeout_ms < 0 ? -1 : (int)(until - now)) < 0 && errno == EINTR)
			got = -EINTR; /* a handler of the program ran, which may want it to end */
		cancel_off();
		if (got == -EINTR)
			break;
	}
	cancel_restore(before);
	if (got == -EINTR) {
		errno = EINTR;
		return -EIO; /* as rdma-core has it */
	}
	return got < 0 ? umad_error(-got) : got;
}

int umad_recv(int portid, void *umad, int *length, int timeout_ms)
{
	if (!umad || !length)
		return umad_error(EINVAL);
	errno = 0;
	return receive(portid, umad, length, timeout_ms);
}

int umad_poll(int portid, int timeout_ms)
{
	int got = receive(portid, NULL, NULL, timeout_ms);

	return got == -EAGAIN                    ? umad_error(ETIMEDOUT)
	       : got == -EINVAL || got == -EBADF ? umad_error(EIO)
						 : got;
}
