/* SPDX-License-Identifier: MIT */
/* Connections of libibumad: messages in, messages out. Whatever is wrong with a message ends its connection.
 */
#include "fabricd/umad_parts.h"

#include "base/log.h"
#include "wire/mad.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

static void watch(struct umad_conn *c)
{
	loop_change(c->umad->d->loop, c->fd, list_empty(&c->out) ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

/* It may be in the midst of another's event: the loop closes it, and the shutdown makes sure that it looks.
 */
static void hang_up(struct umad_conn *c)
{
	c->gone = true;
	shutdown(c->fd, SHUT_RDWR);
}

/* ---- out ---- */
static void keep(struct umad_conn *c, const struct iovec *iov, int n, size_t skip, size_t total)
{
	struct umad_chunk *k = malloc(sizeof(*k) + total - skip);
	size_t at = 0;

	if (!k) {
		hang_up(c); /* half a message is none; the program connects again */
		return;
	}
	k->at = 0;
	k->len = total - skip;
	for (int i = 0; i < n; i++) {
		size_t from = skip < iov[i].iov_len ? skip : iov[i].iov_len, len = iov[i].iov_len - from;

		if (len)
			memcpy(k->data + at, (const char *)iov[i].iov_base + from, len);
		at += len;
		skip -= from;
	}
	list_add_tail(&c->out, &k->node);
	c->out_bytes += k->len;
	c->umad->held += k->len;
	watch(c);
}

static bool has_room(const struct umad_conn *c, size_t len)
{
	return c->out_bytes + len <= UMAD_OUT_MAX && c->umad->held + len <= UMAD_HELD_MAX;
}

void umad_conn_write(struct umad_conn *c, enum fabric_umad_type type, const void *head, size_t head_len,
	const void *body, size_t len)
{
	size_t end = type == FABRIC_RECV ? FABRIC_RECV_END : 0, total = head_len + len + end;
	struct fabric_msg m = {(uint32_t)total, FABRIC_UMAD_VERSION, (uint16_t)type};
	struct iovec iov[] = {{&m, sizeof(m)}, {(void *)head, head_len}, {(void *)body, len},
		{(char[FABRIC_RECV_END]){0}, end}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 4};
	ssize_t n = 0;

	total += sizeof(m);
	if (c->gone || !has_room(c, total)) {
		if (!c->gone && !c->lost++)
			log_warn("a program does not take its MADs: %zu MB wait, the rest is lost",
				c->out_bytes >> 20);
		return;
	}
	if (list_empty(&c->out))
		n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n < 0 && errno != EAGAIN && errno != EINTR)
		hang_up(c);
	else if (n < 0 || (size_t)n < total)
		keep(c, iov, 4, n < 0 ? 0 : (size_t)n, total);
}

static void write_more(struct umad_conn *c)
{
	while (!list_empty(&c->out)) {
		struct umad_chunk *k = container_of(c->out.next, struct umad_chunk, node);
		ssize_t n = send(c->fd, k->data + k->at, k->len - k->at, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0) {
			if (errno != EAGAIN && errno != EINTR)
				hang_up(c);
			return;
		}
		k->at += (size_t)n;
		c->out_bytes -= (size_t)n;
		c->umad->held -= (size_t)n;
		if (k->at < k->len)
			return;
		list_del(&k->node);
		free(k);
	}
	watch(c);
}

/* ---- in ---- */
/* Nobody will answer: the program, which waits for that, gets it as it gets a timeout. */
static void give_back(struct umad_conn *c, struct fabric_mad mad, const uint8_t *msg)
{
	mad.status = ETIMEDOUT;
	mad.length = sizeof(mad) + MAD_HDR_LEN;
	umad_conn_write(c, FABRIC_RECV, &mad, sizeof(mad), msg, MAD_HDR_LEN);
}

/* What cannot be sent is lost, but a request is not left without its end. */
static bool do_send(struct umad_conn *c, const uint8_t *body, size_t len)
{
	const uint8_t *msg = body + sizeof(struct fabric_mad);
	struct fabric_mad mad;
	struct umad_agent *a;

	if (len < sizeof(mad) + MAD_HDR_LEN)
		return false;
	memcpy(&mad, body, sizeof(mad));
	if (mad.agent >= FABRIC_AGENTS)
		return false;
	a = &c->agent[mad.agent];
	if ((!a->mad || umad_qp_send(a, &mad, msg, len - sizeof(mad))) && mad.timeout_ms)
		give_back(c, mad, msg);
	return true;
}

/* False: the connection ends. */
static bool do_message(struct umad_conn *c, const struct fabric_msg *m, const uint8_t *body)
{
	uint8_t answer[UMAD_ANSWER];
	struct fabric_done old = {.error = EPROTO};
	size_t len;

	if (m->version != FABRIC_UMAD_VERSION) {
		umad_conn_write(c, m->type, &old, sizeof(old), NULL, 0);
		return false;
	}
	if (c->qp)
		return m->type == FABRIC_SEND && do_send(c, body, m->len);
	if (m->type == FABRIC_SEND || m->type == FABRIC_RECV)
		return false;
	len = umad_answer(c, m->type, body, m->len, answer);
	umad_conn_write(c, m->type, answer, len, NULL, 0);
	return true;
}

/* All messages that are complete; how many bytes they were. */
static size_t do_messages(struct umad_conn *c)
{
	size_t at = 0;

	while (!c->gone && c->in_have - at >= sizeof(struct fabric_msg)) {
		struct fabric_msg m;

		memcpy(&m, c->in + at, sizeof(m));
		if (m.len > FABRIC_MESSAGE_MAX)
			hang_up(c);
		if (c->gone || c->in_have - at - sizeof(m) < m.len)
			break;
		if (!do_message(c, &m, c->in + at + sizeof(m)))
			hang_up(c);
		at += sizeof(m) + m.len;
	}
	return at;
}

/* Room for the rest of a long message. Memory is the kernel's to give when bytes really come. */
static bool make_room(struct umad_conn *c)
{
	struct fabric_msg m = {0};
	size_t need = UMAD_IN_FIRST;
	uint8_t *in;

	if (c->in_have >= sizeof(m)) {
		memcpy(&m, c->in, sizeof(m));
		if (sizeof(m) + m.len > need)
			need = sizeof(m) + m.len;
	}
	if (need == c->in_size || (need < c->in_size && c->in_have > need))
		return true;
	if (need > UMAD_IN_FIRST && c->umad->held - c->in_size + need > UMAD_HELD_MAX)
		return false;
	in = realloc(c->in, need);
	if (!in)
		return false;
	c->in = in;
	c->umad->held += need - c->in_size;
	c->in_size = need;
	return true;
}

/* Not for ever: others wait, too. */
void umad_conn_read(struct umad_conn *c)
{
	for (int i = 0; i < 64 && !c->gone; i++) {
		size_t room, done;
		ssize_t n;

		if (!make_room(c)) {
			hang_up(c);
			break;
		}
		room = c->in_size - c->in_have;
		n = recv(c->fd, c->in + c->in_have, room, MSG_DONTWAIT);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (n <= 0) {
			hang_up(c);
			break;
		}
		c->in_have += (size_t)n;
		manager_look(c->umad->d);
		done = do_messages(c);
		c->in_have -= done;
		memmove(c->in, c->in + done, c->in_have);
		if ((size_t)n < room)
			break; /* that was all */
	}
}

/* ---- coming and going ---- */
static void on_late(void *arg, uint64_t now)
{
	umad_conn_close(arg);
}

static void wait_on(struct umad_conn *c)
{
	struct loop *l = c->umad->d->loop;

	loop_timer_set(l, &c->timer, c->qp ? UINT64_MAX : loop_now(l) + UMAD_PATIENCE_S * 1000000000ull);
}

static void on_event(void *arg, uint32_t events)
{
	struct umad_conn *c = arg;
	struct umad *u = c->umad;

	if (events & EPOLLOUT)
		write_more(c);
	if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		umad_conn_read(c);
	if (c->gone)
		umad_conn_close(c);
	else
		wait_on(c);
	umad_qp_flush(u);
}

void umad_conn_close(struct umad_conn *c)
{
	struct umad *u = c->umad;

	loop_timer_stop(&c->timer);
	loop_remove(u->d->loop, c->fd);
	close(c->fd);
	for (unsigned i = 0; i < FABRIC_AGENTS; i++) {
		if (c->agent[i].mad)
			ibmad_unregister(c->agent[i].mad);
	}
	if (c->qp)
		umad_qp_put(c->qp);
	for (struct list *l; (l = list_pop(&c->out));)
		free(container_of(l, struct umad_chunk, node));
	list_del(&c->node);
	u->nconns--;
	u->held -= c->in_size + c->out_bytes;
	free(c->in);
	free(c);
}

static bool has_agents(const struct umad_conn *c)
{
	for (unsigned i = 0; i < FABRIC_AGENTS; i++)
		if (c->agent[i].mad)
			return true;
	return false;
}

/* The first that came and has registered nothing goes: it can connect again. False: each has an agent. */
static bool make_place(struct umad *u)
{
	if (u->nconns < UMAD_CONNS)
		return true;
	list_for_each_safe(pos, &u->conns)
	{
		struct umad_conn *c = container_of(pos, struct umad_conn, node);

		if (!has_agents(c)) {
			umad_conn_close(c);
			return true;
		}
	}
	return false;
}

static void add(struct umad *u, int fd)
{
	struct umad_conn *c = make_place(u) ? calloc(1, sizeof(*c)) : NULL;

	if (!c) {
		close(fd);
		return;
	}
	c->umad = u;
	c->fd = fd;
	list_init(&c->out);
	loop_timer_init(&c->timer, on_late, c);
	wait_on(c);
	list_add_tail(&u->conns, &c->node);
	u->nconns++;
	if (loop_add(u->d->loop, fd, EPOLLIN, on_event, c))
		umad_conn_close(c);
}

void umad_conn_accept(void *arg, uint32_t events)
{
	struct umad *u = arg;

	for (;;) {
		int fd = fabricd_accept(u->listener);

		if (fd < 0)
			return;
		add(u, fd);
	}
}
