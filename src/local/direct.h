/* SPDX-License-Identifier: MIT */
/*
 * One-sided requests that the initiator does itself, in the memory of a peer on this host. The peer's export
 * (local/export/export.h) says what its responder would check; then its bytes are moved by our own
 * instructions where we have them mapped (local/pages/window.h), else by the kernel (process_vm_writev). The
 * peer takes no part: it may sleep or be stopped.
 *
 * No lock, no allocation. What cannot be done here is left as it is for the usual way, which also finds the
 * words for what is wrong with it.
 */
#ifndef LOCAL_DIRECT_H
#define LOCAL_DIRECT_H

#include "hca/qp.h"
#include "local/peer.h"

/* Whether it is of a kind that can be done here. */
static inline bool local_can(const struct hca_send_wqe *w)
{
	return w->opcode == IBV_WR_RDMA_WRITE || w->opcode == IBV_WR_RDMA_READ ||
	       w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

/*
 * Does the request, or the next bytes of it, at most so many: w->moved says how far it is. `p` is the process
 * that has qp's peer. qp->lock held.
 */
enum local_act local_do(struct hca_qp *qp, struct hca_send_wqe *w, uint32_t most, const struct local_peer *p);

#endif
