/* SPDX-License-Identifier: MIT */
#include "sim_tcp.h"

#include "base/gid.h"
#include "link/tcp.h"
#include "seeds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define NEVER   UINT64_MAX
#define GIVE_UP (60 * 1000000000ull) /* link/tcp.c: GONE_AFTER_MS */

enum { FIRST = 1 << 20, THINGS = 64, BUFFER = 1 << 17, ARRIVALS = 256 };

enum kind { FREE, LISTENER, SOCKET, EPOLL, TIMER };

/* The bytes before `upto`, counted over all, are there from then on. */
struct arrival {
	uint64_t at, upto;
};

/*
 *   CONNECTING ---> ESTABLISHED     what the other end sent comes until its FIN or RST
 *        '--------> REFUSED
 */
enum state { CONNECTING, ESTABLISHED, REFUSED };

struct thing {
	enum kind kind;
	/* in an epoll set */
	int set;
	uint32_t events;
	epoll_data_t data;
	/* timer, or when the initiator hears of how it went */
	uint64_t at;
	/* sockets */
	enum state state;
	struct sockaddr_storage local, remote;
	uint64_t syn_at;     /* the request arrives; NEVER: it has */
	int listener;        /* not accepted yet */
	struct thing *peer;  /* NULL: it is closed */
	bool accepted, shut; /* we send no more */
	bool lost;           /* nothing moves any more, */
	uint64_t error_at;   /* and this is when one is told; or of a reset */
	int error;
	bool told;
	uint64_t fin_at;
	uint8_t *bytes;                  /* BUFFER */
	uint64_t head, tail, sent, kept; /* kept: what a lost one was given */
	struct arrival arrival[ARRIVALS];
	uint64_t first, last; /* of these, free running */
	uint64_t flip_at;     /* the byte of those it sends; NEVER: none */
};

static struct {
	struct sim_tcp_rules rules;
	struct choices *c;
	const uint64_t *now;
	struct thing *thing[THINGS]; /* kept, with their buffers */
	int most;                    /* places above were not used in this seed */
	unsigned port;
	bool flipped;
	bool kernel; /* makes the epoll sets */
	uint8_t vanished[16];
} net;

/* ---- things ---- */
static _Noreturn void misuse(const char *what)
{
	fprintf(stderr, "seed %llu: %s\nreplay: %s --seed %llu\n", (unsigned long long)seeds.now, what,
		seeds.program, (unsigned long long)seeds.now);
	exit(1);
}

static bool is_ours(int fd)
{
	return fd >= FIRST && fd < FIRST + THINGS;
}

static struct thing *of(int fd)
{
	if (!is_ours(fd) || !net.thing[fd - FIRST] || net.thing[fd - FIRST]->kind == FREE)
		misuse("a descriptor is used that is not open");
	return net.thing[fd - FIRST];
}

static int fd_of(const struct thing *t)
{
	for (int i = 0; i < net.most; i++) {
		if (net.thing[i] == t)
			return FIRST + i;
	}
	misuse("a thing without descriptor");
}

static struct thing *new_thing(enum kind kind)
{
	for (int i = 0; i < THINGS; i++) {
		struct thing *t = net.thing[i] ? net.thing[i] : calloc(1, sizeof(*t));
		uint8_t *bytes;

		net.thing[i] = t;
		if (!t || t->kind != FREE)
			continue;
		net.most = i < net.most ? net.most : i + 1;
		bytes = t->bytes ? t->bytes : malloc(BUFFER);
		*t = (struct thing){.kind = kind,
			.set = -1,
			.at = NEVER,
			.syn_at = NEVER,
			.listener = -1,
			.error_at = NEVER,
			.fin_at = NEVER,
			.flip_at = NEVER,
			.bytes = bytes};
		return t;
	}
	misuse("too many descriptors");
}

static uint64_t now(void)
{
	return *net.now;
}

static bool draw_one_in(unsigned n)
{
	return n && choose(net.c, n) == 0;
}

static size_t chop(size_t most)
{
	if (most < 2 || !draw_one_in(net.rules.chopped))
		return most;
	switch (choose(net.c, 3)) {
	case 0:
		return 1 + choose(net.c, most < 8 ? most : 8);
	case 1:
		return 1 + choose(net.c, most < 600 ? most : 600);
	default:
		return 1 + choose(net.c, most);
	}
}

static uint16_t port_of(const struct sockaddr_storage *sa)
{
	return ntohs(((const struct sockaddr_in *)sa)->sin_port); /* at the same place for IPv6 */
}

static bool is_vanished(const struct sockaddr_storage *sa)
{
	uint8_t gid[16];

	gid_of_sockaddr((const struct sockaddr *)sa, gid);
	return !memcmp(gid, net.vanished, 16);
}

static void say(const struct thing *t, const char *what, long n)
{
	if (seeds.trace)
		printf("%12.3f us  socket %u to %u: %s %ld\n", (double)now() / 1000, port_of(&t->local),
			port_of(&t->remote), what, n);
}

/* ---- what has come ---- */
static uint64_t there(const struct thing *t)
{
	uint64_t upto = t->tail;

	for (uint64_t i = t->first; i != t->last && t->arrival[i % ARRIVALS].at <= now(); i++)
		upto = t->arrival[i % ARRIVALS].upto;
	return upto;
}

static bool has_failed(const struct thing *t)
{
	return t->error_at <= now();
}

static bool has_fin(const struct thing *t)
{
	return t->fin_at <= now() && there(t) == t->head;
}

/* Where nothing moves any more the socket itself still takes as much. */
static size_t room(const struct thing *t)
{
	uint64_t filled = t->lost ? t->kept : t->peer ? t->peer->head - t->peer->tail : 0;

	if (!t->lost && t->peer && t->peer->last - t->peer->first == ARRIVALS)
		return 0;
	return filled < net.rules.buffer ? net.rules.buffer - filled : 0;
}

/* Behind what was sent before. */
static uint64_t arrives(const struct thing *to)
{
	uint64_t at = now() + net.rules.delay;

	if (to->first != to->last && to->arrival[(to->last - 1) % ARRIVALS].at > at)
		at = to->arrival[(to->last - 1) % ARRIVALS].at;
	return at;
}

static void fail_at(struct thing *t, uint64_t at, int error)
{
	if (t->error_at <= at || t->lost)
		return;
	t->error_at = at;
	t->error = error;
}

/* ---- connecting ---- */
int link_tcp_listen(const struct sockaddr *addr, bool v6only, int backlog)
{
	struct thing *t = new_thing(LISTENER);

	(void)v6only;
	(void)backlog;
	memcpy(&t->local, addr, sockaddr_len(addr));
	return fd_of(t);
}

int link_tcp_connect(const struct sockaddr *from, const struct sockaddr *to, uint8_t tclass)
{
	struct thing *t;

	(void)tclass;
	if (draw_one_in(net.rules.failing * 8))
		return -EADDRNOTAVAIL;
	t = new_thing(SOCKET);
	memcpy(&t->local, from, sockaddr_len(from));
	memcpy(&t->remote, to, sockaddr_len(to));
	if (!port_of(&t->local))
		((struct sockaddr_in *)&t->local)->sin_port = htons((uint16_t)(50000 + net.port++ % 10000));
	t->lost = is_vanished(&t->local) || is_vanished(&t->remote);
	t->syn_at = t->lost ? NEVER : now() + net.rules.delay;
	return fd_of(t);
}

static struct thing *listener_at(const struct sockaddr_storage *at)
{
	for (int i = 0; i < net.most; i++) {
		struct thing *t = net.thing[i];

		if (t && t->kind == LISTENER &&
			!memcmp(&t->local, at, sockaddr_len((const struct sockaddr *)at)))
			return t;
	}
	return NULL;
}

static void arrive(struct thing *t)
{
	struct thing *l = listener_at(&t->remote), *s;

	t->syn_at = NEVER;
	t->at = now() + net.rules.delay;
	t->state = l ? ESTABLISHED : REFUSED;
	if (!l)
		return;
	s = new_thing(SOCKET);
	s->state = ESTABLISHED;
	s->accepted = true;
	s->local = t->remote;
	s->remote = t->local;
	s->peer = t;
	t->peer = s;
	s->listener = fd_of(l);
	s->at = now() + 2 * net.rules.delay; /* it is whole at both ends */
}

void sim_tcp_run(void)
{
	for (int i = 0; i < net.most; i++) {
		if (net.thing[i] && net.thing[i]->kind == SOCKET && net.thing[i]->syn_at <= now())
			arrive(net.thing[i]);
	}
}

static struct thing *waiting_at(const struct thing *l)
{
	struct thing *first = NULL;

	for (int i = 0; i < net.most; i++) {
		struct thing *t = net.thing[i];

		if (t && t->kind == SOCKET && t->listener == fd_of(l) && t->at <= now() &&
			(!first || t->at < first->at))
			first = t;
	}
	return first;
}

int link_tcp_accept(int fd, struct sockaddr_storage *local, struct sockaddr_storage *remote)
{
	struct thing *s = waiting_at(of(fd));

	if (!s)
		return -EAGAIN;
	if (draw_one_in(net.rules.failing * 2))
		return -EMFILE;
	s->listener = -1;
	*local = s->local;
	*remote = s->remote;
	return fd_of(s);
}

int link_tcp_connected(int fd, struct sockaddr_storage *local)
{
	struct thing *t = of(fd);

	if (t->at > now() && t->lost)
		return -ETIMEDOUT;
	if (t->at > now() && !has_failed(t))
		misuse("how a connect went is asked for before it is known");
	*local = t->local;
	return t->state == REFUSED ? -ECONNREFUSED : has_failed(t) ? -t->error : 0;
}

uint32_t link_tcp_mss(int fd)
{
	(void)fd;
	return net.rules.mss;
}

/* ---- bytes ---- */
/* A call that does not wait says so also when a signal is pending. It is never interrupted. */
static bool is_put_off(void)
{
	return draw_one_in(net.rules.failing);
}

/* Once; then it is like one that was closed. */
static int failure(struct thing *t, int after)
{
	if (t->told)
		return after;
	t->told = true;
	say(t, "has failed, errno", t->error);
	return -t->error;
}

static void put(struct thing *t, const uint8_t *from, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		uint8_t byte = from[i];

		if (t->sent++ == t->flip_at) {
			byte ^= (uint8_t)(1u << choose(net.c, 8));
			net.flipped = true;
		}
		if (t->peer && !t->lost)
			t->peer->bytes[t->peer->head++ % BUFFER] = byte;
	}
	seeds_note(from, len);
}

static size_t length(const struct iovec *iov, unsigned n)
{
	size_t len = 0;

	for (unsigned i = 0; i < n; i++)
		len += iov[i].iov_len;
	return len;
}

ssize_t link_tcp_send(int fd, const struct iovec *iov, unsigned n)
{
	struct thing *t = of(fd);
	size_t len = length(iov, n), left;
	uint64_t at = t->peer ? arrives(t->peer) : 0;

	if (t->state != ESTABLISHED || t->at > now())
		misuse("something is sent on a socket that is not connected");
	if (has_failed(t))
		return failure(t, -EPIPE);
	if (t->shut)
		return -EPIPE;
	if (is_put_off())
		return -EAGAIN;
	len = chop(len < room(t) ? len : room(t));
	if (!len)
		return -EAGAIN;
	left = len;
	for (unsigned i = 0; left; i++) {
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

		put(t, iov[i].iov_base, part);
		left -= part;
	}
	if (t->lost)
		t->kept += len;
	else if (t->peer)
		t->peer->arrival[t->peer->last++ % ARRIVALS] = (struct arrival){at, t->peer->head};
	else
		fail_at(t, now() + 2 * net.rules.delay, ECONNRESET);
	say(t, "sends", (long)len);
	return (ssize_t)len;
}

ssize_t link_tcp_receive(int fd, const struct iovec *iov, unsigned n)
{
	struct thing *t = of(fd);
	size_t len = length(iov, n), have = there(t) - t->tail, left;

	if (t->state != ESTABLISHED || t->at > now())
		misuse("something is received from a socket that is not connected");
	if (is_put_off())
		return -EAGAIN;
	if (!have)
		return has_failed(t) ? failure(t, 0) : has_fin(t) ? 0 : -EAGAIN;
	len = left = chop(len < have ? len : have);
	for (unsigned i = 0; left; i++) {
		size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

		for (size_t k = 0; k < part; k++)
			((uint8_t *)iov[i].iov_base)[k] = t->bytes[t->tail++ % BUFFER];
		left -= part;
	}
	while (t->first != t->last && t->arrival[t->first % ARRIVALS].upto <= t->tail)
		t->first++;
	say(t, "receives", (long)len);
	return (ssize_t)len;
}

/* ---- the end ---- */
void link_tcp_finish(int fd)
{
	struct thing *t = of(fd);

	if (t->peer && !t->shut && !t->lost)
		t->peer->fin_at = arrives(t->peer);
	t->shut = true;
	say(t, "sends no more after", (long)t->sent);
}

static void let_go(struct thing *t)
{
	if (t->kind == SOCKET)
		say(t, "is closed after", (long)t->sent);
	if (t->peer)
		t->peer->peer = NULL;
	for (int i = 0; i < net.most; i++) { /* nobody will accept these */
		struct thing *s = net.thing[i];

		if (s && s->kind == SOCKET && t->kind == LISTENER && s->listener == fd_of(t)) {
			if (s->peer)
				fail_at(s->peer, now() + net.rules.delay, ECONNRESET);
			s->listener = -1;
			let_go(s);
		}
	}
	t->kind = FREE;
}

/* What has not left yet may be thrown away. */
void link_tcp_reset(int fd)
{
	struct thing *t = of(fd), *p = t->peer;

	if (p && !t->lost) {
		if (choose(net.c, 2)) {
			p->head = there(p);
			while (p->first != p->last && p->arrival[(p->last - 1) % ARRIVALS].upto > p->head)
				p->last--;
		}
		fail_at(p, arrives(p), ECONNRESET);
	}
	let_go(t);
}

/* Who closes with something unread says that it broke. */
static void close_socket(struct thing *t)
{
	if (t->peer && !t->lost) {
		if (t->head != t->tail)
			fail_at(t->peer, arrives(t->peer) + (there(t) == t->tail ? net.rules.delay : 0),
				ECONNRESET);
		else if (!t->shut)
			t->peer->fin_at = arrives(t->peer);
	}
	let_go(t);
}

/* ---- what libc does ---- */
int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	if (!is_ours(fd))
		return __real_close(fd);
	if (of(fd)->kind == SOCKET)
		close_socket(of(fd));
	else
		let_go(of(fd));
	return 0;
}

ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len)
{
	uint64_t times = 1;

	if (!is_ours(fd))
		return __real_read(fd, to, len);
	if (of(fd)->at > now()) {
		errno = EAGAIN;
		return -1;
	}
	of(fd)->at = NEVER;
	memcpy(to, &times, sizeof(times));
	return sizeof(times);
}

int __wrap_timerfd_create(int clock, int flags);
int __wrap_timerfd_create(int clock, int flags)
{
	return fd_of(new_thing(TIMER));
}

int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *ts, struct itimerspec *old);
int __wrap_timerfd_settime(int fd, int flags, const struct itimerspec *ts, struct itimerspec *old)
{
	uint64_t at = (uint64_t)ts->it_value.tv_sec * 1000000000ull + (uint64_t)ts->it_value.tv_nsec;

	of(fd)->at = at ? at : NEVER;
	return 0;
}

int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_create1(int flags)
{
	return net.kernel ? __real_epoll_create1(flags) : fd_of(new_thing(EPOLL));
}

int __real_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	struct thing *t;

	if (!is_ours(epfd))
		return __real_epoll_ctl(epfd, op, fd, ev);
	t = of(fd);
	if (of(epfd)->kind != EPOLL || (op == EPOLL_CTL_ADD) != (t->set < 0))
		misuse("epoll_ctl for a descriptor that is in the set, or is not");
	t->set = op == EPOLL_CTL_DEL ? -1 : epfd;
	t->events = op == EPOLL_CTL_DEL ? 0 : ev->events;
	if (op != EPOLL_CTL_DEL)
		t->data = ev->data;
	return 0;
}

static uint32_t events_of(const struct thing *t)
{
	uint32_t e = 0;

	if (t->kind == TIMER)
		return t->at <= now() ? EPOLLIN : 0;
	if (t->kind == LISTENER)
		return waiting_at(t) ? EPOLLIN : 0;
	if (has_failed(t))
		return EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP;
	if (t->at > now())
		return 0;
	if (t->state == REFUSED)
		return EPOLLOUT | EPOLLERR | EPOLLHUP;
	e |= there(t) != t->tail || has_fin(t) ? EPOLLIN : 0;
	e |= room(t) ? EPOLLOUT : 0;
	return e | (has_fin(t) && t->shut ? EPOLLHUP : 0);
}

static uint32_t told_of(const struct thing *t, int epfd)
{
	if (!t || t->kind == FREE || t->set != epfd)
		return 0;
	return events_of(t) & (t->events | EPOLLERR | EPOLLHUP);
}

/* In any order. */
int __real_epoll_wait(int epfd, struct epoll_event *ev, int most, int ms);
int __wrap_epoll_wait(int epfd, struct epoll_event *ev, int most, int ms);
int __wrap_epoll_wait(int epfd, struct epoll_event *ev, int most, int ms)
{
	unsigned from;
	int n = 0;

	if (!is_ours(epfd))
		return __real_epoll_wait(epfd, ev, most, ms);
	from = (unsigned)choose(net.c, (uint64_t)net.most);
	for (int i = 0; i < net.most && n < most; i++) {
		struct thing *t = net.thing[(from + (unsigned)i) % (unsigned)net.most];
		uint32_t events = told_of(t, epfd);

		if (events)
			ev[n++] = (struct epoll_event){events, t->data};
	}
	return n;
}

/* ---- for the test ---- */
bool sim_tcp_ready(int epfd)
{
	for (int i = 0; i < net.most; i++) {
		if (told_of(net.thing[i], epfd))
			return true;
	}
	return false;
}

static void earlier(uint64_t *next, uint64_t at)
{
	if (at > now() && at < *next)
		*next = at;
}

uint64_t sim_tcp_next(void)
{
	uint64_t next = NEVER;

	for (int i = 0; i < net.most; i++) {
		const struct thing *t = net.thing[i];

		if (!t || t->kind == FREE)
			continue;
		earlier(&next, t->at);
		earlier(&next, t->syn_at);
		earlier(&next, t->error_at);
		earlier(&next, t->fin_at);
		for (uint64_t k = t->first; k != t->last; k++) {
			if (t->arrival[k % ARRIVALS].at > now()) {
				earlier(&next, t->arrival[k % ARRIVALS].at);
				break;
			}
		}
	}
	return next;
}

static struct thing *initiator(uint16_t port)
{
	for (int i = 0; i < net.most; i++) {
		struct thing *t = net.thing[i];

		if (t && t->kind == SOCKET && !t->accepted && port_of(&t->local) == port)
			return t;
	}
	return NULL;
}

bool sim_tcp_break(uint16_t port)
{
	struct thing *t = initiator(port);

	if (!t || t->state != ESTABLISHED)
		return false;
	fail_at(t, now() + choose(net.c, net.rules.delay + 1), ECONNRESET);
	if (t->peer)
		fail_at(t->peer, now() + choose(net.c, net.rules.delay + 1), ECONNRESET);
	return true;
}

static void lose(struct thing *t)
{
	if (t->lost)
		return;
	t->head = there(t);
	while (t->first != t->last && t->arrival[(t->last - 1) % ARRIVALS].upto > t->head)
		t->last--;
	if (t->fin_at > now())
		t->fin_at = NEVER;
	if (t->state != ESTABLISHED || t->at > now()) /* it never hears of it */
		t->at = NEVER;
	if (t->error_at > now()) {
		t->error_at = now() + GIVE_UP;
		t->error = ETIMEDOUT;
	}
	t->syn_at = NEVER;
	t->lost = true;
}

void sim_tcp_vanish(const struct sockaddr *addr)
{
	gid_of_sockaddr(addr, net.vanished);
	for (int i = 0; i < net.most; i++) {
		struct thing *t = net.thing[i];

		if (t && t->kind == SOCKET && (is_vanished(&t->local) || is_vanished(&t->remote)))
			lose(t);
	}
}

void sim_tcp_flip(uint16_t port, bool accepted, uint64_t after)
{
	struct thing *t = initiator(port);

	t = t && accepted ? t->peer : t;
	if (t)
		t->flip_at = t->sent + after;
}

void sim_tcp_kernel_sets(bool kernel)
{
	net.kernel = kernel;
}

bool sim_tcp_flipped(void)
{
	return net.flipped;
}

void sim_tcp_open(const struct sim_tcp_rules *r, struct choices *c, const uint64_t *clock)
{
	net.rules = *r;
	net.c = c;
	net.now = clock;
	net.port = 0;
	net.most = 0;
	net.flipped = false;
	memset(net.vanished, 0xff, sizeof(net.vanished));
}

bool sim_tcp_close(void)
{
	bool clean = true;

	for (int i = 0; i < net.most; i++) {
		if (!net.thing[i] || net.thing[i]->kind == FREE)
			continue;
		fprintf(stderr, "descriptor %d is left, kind %d, from port %u to port %u\n", FIRST + i,
			net.thing[i]->kind, port_of(&net.thing[i]->local), port_of(&net.thing[i]->remote));
		clean = false;
		net.thing[i]->kind = FREE;
	}
	return clean;
}
