/* SPDX-License-Identifier: MIT */
/* The beginning and the end of sockets. */
#include "preload/sock.h"
#include "base/asserts.h"
#include "base/beside_tcp.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/export.h"
#include "base/log.h"
#include "preload/config.h"
#include "preload/epoll.h"
#include "preload/names.h"
#include "preload/option.h"
#include "preload/relay.h"
#include "preload/signals.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct sock *free_socks; /* under files_lock */

int64_t now_ms(void)
{
	return (int64_t)clock_ms();
}

int ms_until(int64_t deadline)
{
	int64_t left;

	if (deadline == INT64_MAX)
		return -1;
	left = deadline - now_ms();
	return left < 0 ? 0 : left > INT_MAX ? INT_MAX : left;
}

struct sock *sock_new(enum sock_state state, int domain, int rs)
{
	struct sock *s;

	pthread_mutex_lock(&files_lock);
	s = free_socks;
	if (s)
		free_socks = s->next_free;
	pthread_mutex_unlock(&files_lock);
	if (!s)
		s = malloc(sizeof(*s));
	if (s)
		*s = (struct sock){.file.kind = FILE_SOCK,
			.state = state,
			.rs = rs,
			.domain = domain,
			.receive_ms = -1,
			.send_ms = -1,
			.relay = -1};
	return s;
}

void sock_recycle(struct sock *s)
{
	pthread_mutex_lock(&files_lock);
	s->next_free = free_socks;
	free_socks = s;
	pthread_mutex_unlock(&files_lock);
}

/* ---- states
 * ------------------------------------------------------------------------------------------------------- */

static const char *const state_names[] = {
	[SOCK_FRESH] = "FRESH",
	[SOCK_CONNECTING] = "CONNECTING",
	[SOCK_CONNECTED] = "CONNECTED",
	[SOCK_LISTENING] = "LISTENING",
	[SOCK_DATAGRAM] = "DATAGRAM",
	[SOCK_RELAYED] = "RELAYED",
	[SOCK_FAILED] = "FAILED",
};

#define FROM(state) (1u << SOCK_##state)

/* Where one can come from. */
static const unsigned state_from[] = {
	[SOCK_FRESH] = FROM(CONNECTING) | FROM(CONNECTED) | FROM(DATAGRAM), /* disown() */
	[SOCK_CONNECTING] = FROM(FRESH),
	[SOCK_CONNECTED] = FROM(FRESH) | FROM(CONNECTING),
	[SOCK_LISTENING] = FROM(FRESH),
	[SOCK_DATAGRAM] = 0,
	[SOCK_RELAYED] = FROM(CONNECTED),
	[SOCK_FAILED] = FROM(FRESH) | FROM(CONNECTING),
};

void sock_set_state(struct sock *s, enum sock_state state)
{
	assert_that(state_from[state] >> s->state & 1);
	log_debug("sockets: descriptor %d: %s -> %s", file_next_fd(&s->file, -1), state_names[s->state],
		state_names[state]);
	s->state = state;
}

/* ---- locking
 * ------------------------------------------------------------------------------------------------------ */

/* Not in the records, which are used anew while a thread may still wait. A thread has one at most; files_lock
 * and the locks of sets come after. */
enum { LOCKS = 32 };
static pthread_mutex_t locks[LOCKS] = {[0 ... LOCKS - 1] = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t *lock_of(const struct sock *s)
{
	return &locks[(uintptr_t)s / sizeof(*s) % LOCKS];
}

void sock_after_fork(void)
{
	for (int i = 0; i < LOCKS; i++)
		pthread_mutex_init(&locks[i], NULL);
}

bool sock_lock(int fd, struct sock *s)
{
	pthread_mutex_lock(lock_of(s));
	if (sock_at(fd) == s)
		return true;
	pthread_mutex_unlock(lock_of(s));
	return false;
}

bool sock_is_locked(const struct sock *s)
{
	return mutex_is_locked(lock_of(s));
}

static void finish(struct sock *s)
{
	if (s->relay >= 0)
		relay_start(s);
	else if (s->rs >= 0)
		rclose(s->rs);
	sock_recycle(s);
}

void sock_unlock(struct sock *s)
{
	bool last = s->over && !s->watchers;

	if (last)
		s->over = false; /* for those who still wait for the lock */
	pthread_mutex_unlock(lock_of(s));
	if (last)
		finish(s);
}

void sock_unwatch(struct sock *s)
{
	pthread_mutex_lock(lock_of(s));
	s->watchers--;
	sock_unlock(s);
}

void sock_end(struct sock *s)
{
	set_remove(s);
	pthread_mutex_lock(lock_of(s));
	s->over = true;
	sock_unlock(s);
}

/* A thread that closes the last descriptor at the same time comes after us, and ends it. */
void sock_go_plain(struct sock *s)
{
	assert_that(sock_is_locked(s));
	set_hand_over(s);
	pthread_mutex_lock(&files_lock);
	s->over = file_drop(&s->file);
	pthread_mutex_unlock(&files_lock);
}

/* ---- its beginning
 * ------------------------------------------------------------------------------------------------ */

int sock_open_rsocket(int fd, struct sock *s, int family)
{
	int rs = rsocket(family, SOCK_STREAM, 0);

	if (rs < 0)
		return -1;
	config_apply(rs);
	option_copy(fd, s, rs);
	rsetsockopt(rs, SOL_RDMA, RSOCKET_BESIDE_TCP, &(int){1}, sizeof(int));
	return rs;
}

int sock_bind_same(int fd, int rs)
{
	struct sock_name own = {.len = sizeof(own.storage)};
	struct sockaddr_in any;

	if (real()->getsockname(fd, &own.sa, &own.len))
		return -1;
	memcpy(&any, &own.storage, sizeof(any)); /* the port is at the same place for IPv6 */
	if (!any.sin_port)
		return 0;
	name_unmap(&own);
	return rbind(rs, &own.sa, own.len);
}

static int open_datagram(int fd, int domain)
{
	struct sock *s;
	int rs = rsocket(domain, SOCK_DGRAM, 0);

	if (rs < 0)
		return -1;
	s = sock_new(SOCK_DATAGRAM, domain, rs);
	if (!s || !file_put(fd, &s->file)) {
		rclose(rs);
		return -1;
	}
	config_apply(rs);
	rfcntl(rs, F_SETFL, (long)(real()->fcntl(fd, F_GETFL) & O_NONBLOCK));
	return 0;
}

static const void *own_rdmacm, *own_verbs;

static void find_own(void)
{
	Dl_info info;

	own_verbs = dladdr(dlsym(RTLD_DEFAULT, "ibv_get_device_list"), &info) ? info.dli_fbase : NULL;
	own_rdmacm = dladdr((void *)rsocket, &info) ? info.dli_fbase : NULL;
}

bool caller_is_ours(const void *caller)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	Dl_info info;

	pthread_once(&once, find_own);
	return dladdr(caller, &info) && (info.dli_fbase == own_rdmacm || info.dli_fbase == own_verbs);
}

EXPORTED int socket(int domain, int type, int protocol)
{
	int fd = real()->socket(domain, type, protocol);
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	struct sock *s;

	if (fd < 0 || caller_is_ours(__builtin_return_address(0)) || !config_wants(domain, kind, protocol))
		return fd;
	HANDLERS_WAIT;
	CANCEL_SAFE;
	if (kind == SOCK_DGRAM) {
		open_datagram(fd, domain);
		return fd;
	}
	s = sock_new(SOCK_FRESH, domain, -1);
	if (s && !file_put(fd, &s->file))
		sock_recycle(s);
	return fd;
}

EXPORTED int close(int fd)
{
	file_take(fd);
	return real()->close(fd);
}

static void take_from(unsigned first, unsigned last)
{
	for (int fd = files_highest; fd >= 0 && (unsigned)fd >= first; fd--)
		if ((unsigned)fd <= last)
			file_take(fd);
}

EXPORTED int close_range(unsigned first, unsigned last, int flags)
{
	if (!real()->close_range)
		return fail(ENOSYS);
	if (first <= last && !(flags & ~CLOSE_RANGE_UNSHARE))
		take_from(first, last);
	return real()->close_range(first, last, flags);
}

EXPORTED void closefrom(int first)
{
	take_from(first < 0 ? 0 : first, UINT_MAX);
	real()->closefrom(first);
}

/* Closes inside libc. */
EXPORTED int fclose(FILE *stream)
{
	int error = errno;

	file_take(fileno(stream));
	errno = error;
	return real()->fclose(stream);
}

/* The kernel sends what a program has written after the program is gone. Here the adapter goes with it, so
 * connections are closed before. Each close takes its time only if the peer does not receive; many such peers
 * shall not keep the program. */
__attribute__((destructor)) static void close_all(void)
{
	int64_t most = now_ms() + 5000;

	for (int fd = 0; fd <= files_highest && now_ms() < most; fd++) {
		struct sock *s = sock_at(fd);

		if (s && (s->state == SOCK_CONNECTED || s->state == SOCK_DATAGRAM))
			file_take(fd);
	}
}
