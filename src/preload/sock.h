/* SPDX-License-Identifier: MIT */
/* A program's socket, as the preload library sees it.
 *
 * The descriptor that the program holds is always a real socket of the kernel, of the kind it asked for.
 * Beside it there may be an rsocket. So fstat(), SO_TYPE, most options and inheritance are the kernel's own,
 * and to go back to TCP is to forget the rsocket:
 *
 *                 connect              the peer answered
 *   FRESH -----------------> CONNECTING -------------> CONNECTED    all data by the rsocket
 *     |  \                      |
 *     |   \ listen              | it refused, or said nothing in time
 *     |    `---> LISTENING      v
 *     |        on both       forgotten: the kernel's socket connects
 *     `---> DATAGRAM  at once, when datagrams are wanted
 *
 *   CONNECTED, in a forked child: RELAYED (fork.c)
 *   forgotten, but the kernel's connect() failed before the program could be told: FAILED
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

/* Changed under files_lock, but for state and seen. */
struct sock {
	struct file file;
	_Atomic(enum sock_state) state;
	int rs; /* rsocket, or -1 */
	int domain;
	bool nonblock;    /* LISTENING: what the program believes; in truth both sockets are */
	int error;        /* FAILED: for SO_ERROR */
	unsigned options; /* a bit per row of the table in option.c: set by the program */
	int receive_ms;   /* SO_RCVTIMEO, or -1 */
	int send_ms;      /* SO_SNDTIMEO, or -1 */
	int64_t deadline; /* CONNECTING: then by TCP. LISTENING without an rsocket: then try again */
	int relay;        /* our end of a pair whose other end a child process has, or -1 */
	atomic_int seen;  /* EPOLLET: events that were reported and not used up (epoll.c) */
	struct set *set;  /* the epoll set it was put in last, or NULL */
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

/* The descriptors are the kernel's from now on. */
void sock_go_plain(struct sock *s);

/* Nobody uses the record any more. */
void sock_recycle(struct sock *s);

/* Binds the rsocket where the program has bound the kernel's socket, if it has. */
int sock_bind_same(int fd, int rs);

/* An rsocket with the options that the program has set on fd, or -1. */
int sock_open_rsocket(int fd, struct sock *s, int family);

/* CONNECTING: looks for at most timeout_ms (-1: to the end) what becomes of it. 0 when CONNECTED; EINPROGRESS
 * or EINTR when it still is; any other, also 0 with s no longer at fd: what the kernel's connect() said. */
int sock_progress(int fd, struct sock *s, int timeout_ms);

/* LISTENING: in a process that inherited it, listens by RDMA again if it can. */
void sock_listen_again(int fd, struct sock *s);

/* Milliseconds of the monotonic clock; and until then, for poll (-1 is never). */
int64_t now_ms(void);
int ms_until(int64_t deadline);

#endif
