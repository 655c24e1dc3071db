/* SPDX-License-Identifier: MIT */
/*
 * One-sided requests that the initiator does itself, in the memory of a peer on this host: the peer's board
 * (hca/board.h) says what its responder would check, and the kernel copies (process_vm_writev). The peer
 * takes no part: it may sleep or be stopped.
 *
 * No lock, no allocation. What cannot be done here is left as it is for the usual way, which also finds the
 * words for what is wrong with it.
 */
#ifndef LOCAL_DIRECT_H
#define LOCAL_DIRECT_H

#include "hca/board.h"
#include "hca/qp.h"

#include <sys/types.h>

enum local_act {
	LOCAL_DONE,
	LOCAL_LEFT,   /* to the usual way: not shown, not allowed, not there */
	LOCAL_CLOSED, /* the kernel does not let us into this process */
};

/* Whether it is of a kind that can be done here. */
static inline bool local_can(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_READ;
}

/* Does the request; `peer` and `pid` are those of the process that has qp's peer. qp->lock held. */
enum local_act local_do(
	struct hca_qp *qp, const struct hca_send_wqe *w, const struct hca_board *peer, pid_t pid);

#endif
