/* SPDX-License-Identifier: MIT */
/*
 * rsockets: sockets whose data moves by RDMA. This folder is a client of the public interface (rdma_*,
 * ibv_*), as a program is; front/rdmacm_rsocket.c has the 27 calls and asks the functions below.
 *
 *   table.c        which descriptor is which rsocket
 *   config.c       defaults, and the administrator's in /etc/rdma/rsocket
 *   options.c      options that all kinds know
 *   poll.c         rpoll, rselect
 *   service.c      the thread that watches descriptors and times for rsockets nobody calls
 *   stream*.c      SOCK_STREAM
 *   dgram*.c       SOCK_DGRAM
 *
 * Functions return 0 or more, or -errno. The caller's threads may use one rsocket at the same time, and close
 * it while others wait in it: they hear of its end, and the last of them frees it.
 */
#ifndef RSOCKET_RSOCK_H
#define RSOCKET_RSOCK_H

#include "base/cancel.h"
#include "base/gid.h"

#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct rsock;

/* What a kind of rsocket does. A call that is missing is not supported by the kind. */
struct rsock_ops {
	int (*bind)(struct rsock *rs, const struct sockaddr *addr, socklen_t len);
	int (*listen)(struct rsock *rs, int backlog);
	int (*accept)(struct rsock *rs, struct rsock **out); /* the new one is in the table */
	int (*connect)(struct rsock *rs, const struct sockaddr *addr, socklen_t len);
	int (*shutdown)(struct rsock *rs, int how);
	/* Ends it, while others may be in calls for it; it is out of the table. Not all kinds have to. */
	void (*end)(struct rsock *rs);
	/* Frees everything, rs and its descriptor too; nobody is in a call for it. */
	void (*free)(struct rsock *rs);

	/* The other side's address goes to, or comes from, addr; len NULL or 0: not wanted, or none. */
	ssize_t (*recv)(struct rsock *rs, const struct iovec *iov, int n, int flags, struct sockaddr *addr,
		socklen_t *len);
	ssize_t (*send)(struct rsock *rs, const struct iovec *iov, int n, int flags,
		const struct sockaddr *addr, socklen_t len);

	int (*getpeername)(struct rsock *rs, struct sockaddr *addr, socklen_t *len);
	int (*getsockname)(struct rsock *rs, struct sockaddr *addr, socklen_t *len);
	/* What a kind does not know itself it leaves to rsock_set_common, rsock_get_common. */
	int (*setsockopt)(struct rsock *rs, int level, int name, const void *value, socklen_t len);
	int (*getsockopt)(struct rsock *rs, int level, int name, void *value, socklen_t *len);

	/* poll: which of `events` (and POLLERR, POLLHUP) hold now. Takes in what has arrived; never blocks.
	 */
	short (*poll)(struct rsock *rs, short events);
	/*
	 * arm: the descriptor (always POLLIN) that becomes readable when something may have changed after
	 * this call. Who sleeps asks in the order arm, poll, sleep.
	 */
	int (*arm)(struct rsock *rs);
	/* disarm: that descriptor was readable. Takes back what made it so; never blocks. */
	void (*disarm)(struct rsock *rs);

	off_t (*iomap)(struct rsock *rs, void *buf, size_t len, int prot, int flags, off_t offset);
	int (*iounmap)(struct rsock *rs, void *buf, size_t len);
	ssize_t (*iowrite)(struct rsock *rs, const void *buf, size_t len, off_t offset, int flags);
};

/* Sizes that the program chooses before there is a queue pair. */
struct rsock_sizes {
	uint32_t sbuf, rbuf;   /* bytes */
	uint32_t sq, rq;       /* work requests */
	uint32_t inline_bytes; /* what is copied into the work request itself */
	uint32_t iomap;        /* mappings the peer may announce */
};

struct rsock {
	const struct rsock_ops *ops;
	int domain, type;
	int fd;             /* the number the program knows it by: a descriptor of the kind's own */
	_Atomic int flags;  /* as of F_SETFL */
	unsigned owner;     /* rsock_generation() of the process that made it */
	_Atomic int polled; /* threads that sleep in rpoll for it; see rsock_wake */
	struct rsock_sizes sizes;
	uint32_t so_opts; /* of SOL_SOCKET, that are on or off: bit per name */
	bool linger_off;
	int linger;      /* seconds; 0: our choice */
	_Atomic int err; /* for SO_ERROR: positive */
};

static inline bool rsock_nonblocking(const struct rsock *rs, int msg_flags)
{
	return (rs->flags & O_NONBLOCK) || (msg_flags & MSG_DONTWAIT);
}

/* ---- cancellation ---- */
/*
 * A call that may wait is cancelled where it waits, as those of sockets are, and nowhere else: it begins with
 * RSOCK_CANCEL_SAFE, and what waits calls rsock_wait_begin() and rsock_wait_end() around that. In a call that
 * begins with CANCEL_SAFE, and in our own thread, that changes nothing.
 */
extern __thread int rsock_cancel __attribute__((tls_model("initial-exec"), visibility("hidden")));

static inline int rsock_enter(void)
{
	return rsock_cancel = cancel_off();
}

static inline void rsock_leave(const int *before)
{
	rsock_cancel = PTHREAD_CANCEL_DISABLE;
	cancel_restore(*before);
}

#define RSOCK_CANCEL_SAFE                                                                                    \
	__attribute__((cleanup(rsock_leave), unused)) const int cancel_before = rsock_enter()

static inline void rsock_wait_begin(void)
{
	cancel_restore(rsock_cancel);
}

static inline void rsock_wait_end(void)
{
	cancel_off();
}

/* ---- table.c ---- */
/* The common part of a new rsocket. */
void rsock_init(struct rsock *rs, const struct rsock_ops *ops, int domain, int type);
/* Makes rs known as number fd, which is a descriptor of its own. 0 or -ENOMEM. */
int rsock_insert(struct rsock *rs, int fd);
void rsock_remove(struct rsock *rs);
/* The rsocket, which stays until rsock_put; or NULL: no such number, or it is the parent's and we are a
 * child.
 */
struct rsock *rsock_get(int fd);
void rsock_put(struct rsock *rs);
/* For who has got it: nobody gets it any more, and the last rsock_put frees it. False: another thread has
 * done so. */
bool rsock_retire(struct rsock *rs);
/* Takes the number out of a child's table, where it is the parent's. */
int rsock_forget(int fd);
/* Changes with fork. */
unsigned rsock_generation(void);

/* ---- config.c ---- */
struct rsock_config {
	struct rsock_sizes sizes;
	uint32_t polling_us; /* how long a call looks before it sleeps */
	uint32_t wake_up_ms; /* how long rpoll sleeps at most before it looks again */
};

const struct rsock_config *rsock_config(void);

/* ---- options.c ---- */
int rsock_set_common(struct rsock *rs, int level, int name, const void *value, socklen_t len);
int rsock_get_common(struct rsock *rs, int level, int name, void *value, socklen_t *len);
/* Reads or writes an int as setsockopt and getsockopt have it: 0 or -EINVAL. */
int rsock_opt_read(const void *value, socklen_t len, int *out);
int rsock_opt_write(void *value, socklen_t *len, int v);
/* Gives an address to who asked for it, as much as there is room for; *len becomes its full length. */
void rsock_copy_addr(const struct sockaddr *from, struct sockaddr *to, socklen_t *len);

/* ---- poll.c ---- */
int rsock_poll(struct pollfd *fds, nfds_t n, int timeout);
int rsock_select(int nfds, fd_set *readfds, fd_set *writefds, fd_set *exceptfds, struct timeval *timeout);
/* Something about rs changed that a thread asleep in rpoll will not see by the descriptor it armed. */
void rsock_wake(struct rsock *rs);

/* What is not poll.c's: as poll does, but the adapter works meanwhile. Declared here, implemented by the
 * front. */
int rsock_sleep(struct pollfd *fds, nfds_t n, int ms);

/* ---- the kinds ---- */
int rsock_stream_new(int domain, struct rsock **out);
int rsock_dgram_new(int domain, struct rsock **out);

#endif
