/* SPDX-License-Identifier: MIT */
/*
 * SOCK_DGRAM rsockets. One is a UDP socket, whose number and address it has, and a UD QP for each local
 * address it has sent from:
 *
 *   dgram.c         the calls
 *   dgram_qp.c      QPs, buffers, what arrives
 *   dgram_dest.c    destinations: which QP of ours, which of theirs
 *   dgram_udp.c     the UDP socket: how both sides learn each other's QP
 *
 * A message to a destination whose QP is not known goes by UDP, with our QP number before it. The peer
 * answers with its own, and from then on messages go from QP to QP. Messages above the path MTU go on by UDP.
 *
 * One lock guards all of an rsocket. It is held while QPs are made, never while somebody sleeps.
 */
#ifndef RSOCKET_DGRAM_H
#define RSOCKET_DGRAM_H

#include "base/gid.h"
#include "base/list.h"
#include "base/lock.h"
#include "rsocket/dgram_wire.h"
#include "rsocket/rsock.h"
#include "rsocket/service.h"

#include <rdma/rdma_cma.h>

struct dgram;

/* A message that has arrived: in a receive buffer of a QP, or in memory of its own when it came by UDP. */
struct dg_msg {
	struct list node; /* of dgram.arrived */
	struct dg_qp *qp; /* NULL: by UDP */
	uint8_t *grh;     /* where the buffer begins */
	const uint8_t *data;
	uint32_t len;
	union dg_addr from;
};

/* A UD QP at one local address. */
struct dg_qp {
	struct list node; /* of dgram.qps */
	struct dgram *d;
	union dg_addr at; /* with the UDP socket's port */
	struct rdma_cm_id *id;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *send_mr, *recv_mr;
	uint8_t *recv_buf;
	struct dg_msg *msgs; /* one per receive buffer */
	uint32_t mtu, inline_bytes;
	unsigned events; /* not acknowledged yet */
	bool armed;
};

/* Somebody we send to, or who has sent to us by UDP. */
struct dg_dest {
	struct list node; /* of dgram.dests: the one used last is last */
	union dg_addr addr;
	struct dg_qp *qp;
	struct ibv_ah *ah; /* NULL: its QP is not known */
	uint32_t qpn;
};

struct dgram {
	struct rsock rs; /* first: the frame's */
	struct lock lock;
	int udp, epoll, bell;
	struct rs_watch watch;
	bool up;
	uint32_t nsend, nrecv; /* buffers, and per QP */
	uint8_t *send_buf;
	uint8_t **send_free; /* a stack of nfree buffers */
	uint32_t nfree;
	struct list qps, dests;
	uint32_t ndests;
	bool connected;
	union dg_addr peer;
	struct list arrived; /* dg_msg */
	uint32_t nspilled;   /* of them came by UDP */
	uint32_t sleeping;   /* threads in calls of ours */
};

static inline struct dgram *dg_of(struct rsock *rs)
{
	return (struct dgram *)rs;
}

/* An address of the program's, checked. 0 or -errno. */
int dg_addr_read(union dg_addr *a, const struct sockaddr *addr, socklen_t len);
/*
 * An IPv6 socket may talk IPv4, under mapped addresses. Inside, those are the IPv4 addresses they stand for
 * (sockaddr_unmap); the program and the UDP socket get them mapped.
 */
void dg_addr_map(const struct dgram *d, union dg_addr *a);
bool dg_addr_equal(const union dg_addr *a, const union dg_addr *b);

/* All below: with the lock held. */

/* Buffers, and the service for the UDP socket; at the first use. 0 or -errno. */
int dg_start(struct dgram *d);

/* The QP at the address from which the kernel would send to `to`; made when there is none. */
int dg_qp_towards(struct dgram *d, const union dg_addr *to, struct dg_qp **out);
void dg_qp_free(struct dg_qp *qp);
/* Takes in completions of all QPs. */
void dg_collect(struct dgram *d);
/* Sends a message whose header and data are in a buffer from the stack. */
int dg_qp_post(struct dg_qp *qp, const struct dg_dest *dest, uint8_t *buf, uint32_t len);
/* A message was read: its buffer is free again. */
void dg_msg_free(struct dgram *d, struct dg_msg *m);

/* The destination with that address; made when there is none. */
int dg_dest_get(struct dgram *d, const union dg_addr *addr, struct dg_dest **out);
/* The peer's QP is known now. */
int dg_dest_learn(struct dg_dest *dest, uint32_t qpn);
void dg_dest_free(struct dgram *d, struct dg_dest *dest);

/* Wakes a thread that sleeps in a call. */
void dg_ring(struct dgram *d);

/* Copies the pieces of a message together; its length. */
uint32_t dg_gather(uint8_t *to, const struct iovec *iov, int n);

/* Sends by UDP. Bytes of data sent, or -errno. */
ssize_t dg_udp_send(
	struct dgram *d, const struct dg_dest *dest, int op, const struct iovec *iov, int n, int flags);
/* The service thread's: a packet has come. Takes the lock. */
void dg_udp_receive(struct rs_watch *w, uint64_t now);

/* Whether a message from there is for the program, which may have chosen one peer. */
static inline bool dg_wanted(const struct dgram *d, const union dg_addr *from)
{
	return !d->connected || dg_addr_equal(from, &d->peer);
}

#endif
