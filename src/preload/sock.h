/* SPDX-License-Identifier: MIT */
/* A program's socket, as the preload library sees it.
 *
 * The descriptor that the program holds is always a real socket of the kernel, of the kind it asked for.
 * Beside it there may be an rsocket. So fstat(), SO_TYPE, most options and inheritance are the kernel's own,
 * and to go back to TCP is to forget the rsocket:
 *
 *           begin()               connect_done(): the peer answered
 *   FRESH ------------> CONNECTING -----------------------------> CONNECTED    all data by the rsocket
 *     |                     |                                         |
 *     | begin_listening()   | connect_plain(): refused, or nothing    | take_place(): in a forked child
 *     v                     v in time, and the kernel's failed, too   v
 *   LISTENING             FAILED  until the program is told         RELAYED (relay.c)
 *     on both
 *
 *   A socket for datagrams is DATAGRAM from its beginning (open_datagram()), an accepted one CONNECTED
 *   (wrap()). begin() may know at once that it is CONNECTED or FAILED.
 *   Forgotten by sock_go_plain(): a connect that the kernel's socket goes on with, FAILED once it is told, a
 *   listener that RDMA does not have.
 *   In a forked child disown() makes FRESH what the parent had under way, or could not hand on.
 *
 * A state changes (sock_set_state) with the socket locked (sock_lock), so by one thread at a time. Threads
 * that sleep until the rsocket of a connect has something to say watch it (sock_watch): it is closed, and the
 * record used anew, when the last of them has seen what became of it.
 *
 * The rule behind it: RDMA never makes a call fail that would have worked without it. */
#ifndef PRELOAD_SOCK_H
#define PRELOAD_SOCK_H

#include "preload/file.h"

#include <stdint.h>

enum sock_state {
	SOCK_FRESH,
	SOCK_CONNECTING,
	SOCK_CONNECTED,
	SOCK_LISTENING,
	SOCK_DATAGRAM,
	SOCK_RELAYED,
	SOCK_FAILED
};

struct sock_name {
	union {
		struct sockaddr sa;
		struct sockaddr_storage storage;
	};
	socklen_t len;
};

/* State, rs, error, deadline, peer, watchers and over are changed with it locked, or by a fork. */
struct sock {
	struct file file;
	_Atomic(enum sock_state) state;
	int rs; /* rsocket, or -1 */
	int domain;
	bool nonblock;             /* LISTENING: what the program believes; in truth both sockets are */
	int error;                 /* FAILED: for SO_ERROR */
	unsigned options;          /* a bit per row of the table in option.c: set by the program */
	int receive_ms;            /* SO_RCVTIMEO, or -1 */
	int send_ms;               /* SO_SNDTIMEO, or -1 */
	int64_t deadline;          /* CONNECTING: then by TCP. LISTENING without an rsocket: then try again */
	int relay;                 /* our end of a pair whose other end a child process has, or -1 */
	atomic_int seen;           /* EPOLLET: events that were reported and not used up (epoll.c) */
	int watchers;              /* see sock_watch */
	bool over;                 /* no descriptor leads here: ends with the last watcher */
	_Atomic(struct set *) set; /* the epoll set it was put in last, or NULL */
	struct sock_name peer, name; /* peer: CONNECTING and RELAYED; name: RELAYED */
	struct sock *next_free;
};

static inline struct sock *sock_at(int fd)
{
	struct file *f = file_at(fd);

	return f && f->kind == FILE_SOCK ? (struct sock *)f : NULL;
}

struct sock *sock_new(enum sock_state state, int domain, int rs);

/* All its descriptors are closed: ends the connection. */
void sock_end(struct sock *s);

/* sock_lock: locks the socket at fd. False, and not locked, when s is no longer at fd.
 * sock_unlock: after every sock_lock that was true; ends it when that was asked for meanwhile. */
bool sock_lock(int fd, struct sock *s);
void sock_unlock(struct sock *s);
/* For asserts: whether anybody has it locked. */
bool sock_is_locked(const struct sock *s);
void sock_after_fork(void);

/* To another state than it is in. Locked, or in the child of a fork. */
void sock_set_state(struct sock *s, enum sock_state state);

/* The descriptors are the kernel's from now on. Locked. */
void sock_go_plain(struct sock *s);

/* Nobody uses the record any more. */
void sock_recycle(struct sock *s);

/* Binds the rsocket where the program has bound the kernel's socket, if it has. */
int sock_bind_same(int fd, int rs);

/* An rsocket with the options that the program has set on fd, or -1. */
int sock_open_rsocket(int fd, struct sock *s, int family);

/* CONNECTING: looks what has become of it. It may be CONNECTED, FAILED or no longer at fd afterwards. */
void sock_progress(int fd, struct sock *s);

/* The same; and if it still is CONNECTING: its rsocket, which stays open until sock_unwatch, else -1. */
int sock_watch(int fd, struct sock *s);
void sock_unwatch(struct sock *s);

/* FAILED: the error, once; the descriptors are the kernel's then. Else 0. */
int sock_take_failure(int fd, struct sock *s);

/* LISTENING: in a process that inherited it, listens by RDMA again if it can. */
void sock_listen_again(int fd, struct sock *s);

/* Our own libraries have sockets and epoll sets too; those stay theirs. */
bool caller_is_ours(const void *caller);

/* Milliseconds of the monotonic clock; and until then, for poll (-1 is never). */
int64_t now_ms(void);
int ms_until(int64_t deadline);

#endif
