/* SPDX-License-Identifier: MIT */
/*
 * What the files of stream rsockets share.
 *
 *   stream.c         making and freeing, names, the one function that changes states
 *   stream_ep.c      queue pair, completion queue, buffers
 *   stream_cq.c      completions: what they mean, waiting for them, posting
 *   stream_connect.c the active side; what a connected one hears from the connection manager
 *   stream_accept.c  the passive side
 *   stream_close.c   shutdown and close
 *   stream_send.c    stream_recv.c    stream_iomap.c    stream_option.c
 *
 * Locks, in this order: send_lock or recv_lock, wait_lock, lock. Each direction has one caller at a time, who
 * may sleep in it; `lock` is held for moments only, and never while bytes are copied.
 */
#ifndef RSOCKET_STREAM_H
#define RSOCKET_STREAM_H

#include "base/lock.h"
#include "rsocket/flow.h"
#include "rsocket/rsock.h"
#include "rsocket/service.h"

#include <rdma/rdma_cma.h>

enum {
	RS_CTRL_SLOTS = 4,    /* messages about the connection that may be under way, beyond the data */
	RS_LEAST_ROOM = 2048, /* a send waits until the send buffer has so much room */
};

enum rs_state {
	RS_NEW,       /* perhaps bound */
	RS_LISTENING, /* passive for good */
	RS_OPENING,   /* connecting, or accepted and not yet established */
	RS_CONNECTED,
	RS_CLOSED, /* in good order; what has arrived can still be read */
	RS_FAILED, /* for the reason `why`; likewise */
};

struct rs_listener;
struct rs_mapping;

struct rs_stream {
	struct rsock rs;
	pthread_mutex_t send_lock, recv_lock; /* one caller each */
	pthread_mutex_t wait_lock;            /* one thread waits for the completion channel */
	struct lock lock;                     /* all of the following */
	bool asleep;          /* a thread waits for the completion channel, others that wait do for */
	pthread_cond_t awake; /* this */

	_Atomic enum rs_state state;
	bool can_read, can_write; /* neither side has shut it down */
	bool shut_write;          /* we have */
	bool reported;            /* rconnect has told that it is connected */
	bool beside_tcp;          /* base/beside_tcp.h */
	int why;                  /* positive errno */

	struct rdma_event_channel *channel; /* its descriptor is ours */
	struct rdma_cm_id *id;
	struct rs_watch watch; /* the service thread: events of the id, silence */
	_Atomic bool attended; /* the service thread looks after silence */
	_Atomic int waiting;   /* threads */
	bool keepalive;
	unsigned keep_idle;           /* seconds */
	uint64_t heard, heard_before; /* completions so far; when the service thread last looked */
	uint64_t quiet_since;
	uint64_t give_up; /* when the other side must have taken our good-bye; UINT64_MAX: none is said */
	bool nodelay, v6only;
	void *route;
	socklen_t route_len;

	/* endpoint */
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	_Atomic bool armed;
	unsigned unacked;
	bool by_send;    /* the device has no immediate data: messages are SENDs */
	uint8_t *shared; /* the ring, the slots and mappings behind it: the other side writes here */
	uint8_t *sbuf;
	uint8_t *msgs; /* of by_send */
	struct ibv_mr *shared_mr, *sbuf_mr;
	uint32_t sbuf_at, sbuf_used; /* sbuf_at: send_lock */
	uint32_t sqe_free, ctrl_free;
	uint32_t msg_at; /* next receive of by_send: which four bytes */
	struct rs_flow flow;

	/* mappings */
	struct list mappings;    /* struct rs_mapping */
	struct rs_iomap *iomaps; /* the other side's, in shared memory */
	bool *iomap_used;        /* entries of its table that we have filled */
	bool unannounced;

	/* passive */
	struct rs_stream *listener; /* until it is accepted */
	struct rs_listener *accepting;
	struct list node;
};

static inline struct rs_stream *rs_stream(struct rsock *rs)
{
	return (struct rs_stream *)rs;
}

/* Pages that belong to nobody else: registered memory may be kept from children. NULL: no memory. */
void *rs_pages(size_t len);

/* ---- stream.c ---- */
struct rs_stream *rs_stream_alloc(int domain);
/* Frees everything that is there. */
void rs_stream_free(struct rs_stream *s);
/* To another state, as stream.c has them; lock held. */
void rs_stream_set_state(struct rs_stream *s, enum rs_state state);
/* Ends it for a reason, positive errno; lock held. */
void rs_stream_fail(struct rs_stream *s, int why);

/* ---- stream_ep.c ---- */
bool rs_ep_is_iwarp(const struct rs_stream *s); /* its id has a device */
int rs_ep_create(struct rs_stream *s);
void rs_ep_destroy(struct rs_stream *s);
int rs_ep_post_receives(struct rs_stream *s, unsigned n);

/* ---- stream_cq.c: lock held where not said otherwise ---- */
enum rs_wr { RS_WR_PART, RS_WR_DATA, RS_WR_CTRL, RS_WR_DISCONNECT, RS_WR_RECV };

/* Takes in all completions and says what is due. */
void rs_progress(struct rs_stream *s);
/* Waits until ready(s): 0, -EAGAIN when it may not wait, -EINTR. Drops the lock meanwhile. */
int rs_wait(struct rs_stream *s, bool nonblock, bool (*ready)(struct rs_stream *s));
/* Posts payload (perhaps none) and its message; `used` bytes of the send buffer come back with it. 0 or
 * -errno. */
int rs_post(struct rs_stream *s, enum rs_wr kind, uint32_t used, const struct rs_post *p, struct ibv_sge *sge,
	int n, int flags);
/* The same without a message. */
int rs_post_write(struct rs_stream *s, enum rs_wr kind, uint32_t used, uint64_t addr, uint32_t rkey,
	struct ibv_sge *sge, int n, int flags);
/* The SGL message, if one is due. */
void rs_tell(struct rs_stream *s);
/* Without the lock. */
int rs_stream_arm(struct rsock *rs);
void rs_stream_disarm(struct rsock *rs);

/* ---- the calls ---- */
int rs_stream_connect(struct rsock *rs, const struct sockaddr *addr, socklen_t len);
/* A call that needs a connection: 0, or the error; waits for one that is opening if it may. */
int rs_need_connection(struct rs_stream *s, int flags);
/* The service thread watches the id from now on. */
int rs_stream_watch(struct rs_stream *s);
/* Somebody waits, or wants the connection kept alive: silence is looked into; lock held. */
void rs_attend(struct rs_stream *s);
int rs_stream_listen(struct rsock *rs, int backlog);
int rs_stream_accept(struct rsock *rs, struct rsock **out);
/* The connection of an accepted one is established, or has failed; no lock held. */
void rs_accepted(struct rs_stream *s, bool ok);
int rs_listener_fd(struct rs_stream *s);
bool rs_listener_ready(struct rs_stream *s);
void rs_listener_free(struct rs_stream *s);
int rs_stream_shutdown(struct rsock *rs, int how);
void rs_stream_end(struct rsock *rs);
ssize_t rs_stream_send(struct rsock *rs, const struct iovec *iov, int n, int flags,
	const struct sockaddr *addr, socklen_t len);
/* Bytes that a send can take now; lock held. */
uint32_t rs_send_room(struct rs_stream *s);
ssize_t rs_stream_recv(
	struct rsock *rs, const struct iovec *iov, int n, int flags, struct sockaddr *addr, socklen_t *len);
int rs_stream_setsockopt(struct rsock *rs, int level, int name, const void *value, socklen_t len);
int rs_stream_getsockopt(struct rsock *rs, int level, int name, void *value, socklen_t *len);
off_t rs_stream_iomap(struct rsock *rs, void *buf, size_t len, int prot, int flags, off_t offset);
int rs_stream_iounmap(struct rsock *rs, void *buf, size_t len);
ssize_t rs_stream_iowrite(struct rsock *rs, const void *buf, size_t len, off_t offset, int flags);
/* Tells the other side of new mappings, as far as it can be done now; lock held. */
void rs_announce(struct rs_stream *s);
void rs_mappings_free(struct rs_stream *s);

/* ---- the send buffer, for who holds send_lock ---- */
/* A place for len bytes: one or two pieces. */
int rs_sbuf_pieces(const struct rs_stream *s, uint32_t len, struct ibv_sge sge[2]);
void rs_sbuf_advance(struct rs_stream *s, uint32_t len);
/* Lets go of what a sender holds, also of one that is cancelled where it waits: struct rs_stream *. */
void rs_stop_sending(void *stream);

#endif
