/* SPDX-License-Identifier: MIT */
#include "local/direct.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Is our peer connected to us, and does it let us do this? The responder's checks, in its order. */
static bool is_open(const struct hca_qp *qp, const struct hca_board_qp *peer, unsigned right)
{
	return peer->peer_qpn == hca_qpn(qp) && peer->peer_psn == qp->attr.sq_psn &&
	       !memcmp(peer->peer_gid, qp->dest.sgid, 16) && !memcmp(peer->gid, qp->dest.dgid, 16) &&
	       (peer->access & right) == right;
}

/* Where [addr, addr + len) lies in the peer's memory; NULL: it does not, or not for us. */
static void *range(const struct hca_board_key *k, uint32_t pd, uint64_t addr, uint32_t len, unsigned right)
{
	uint64_t off = addr - k->iova; /* wraps to something huge when below */

	if (k->pd != pd || (k->access & right) != right || off > k->length || len > k->length - off)
		return NULL;
	return (void *)(uintptr_t)(k->host + off);
}

static bool own_pieces(struct hca_qp *qp, const struct hca_send_wqe *w, struct iovec *iov, unsigned *n)
{
	unsigned access = w->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0;

	if (!(w->flags & IBV_SEND_INLINE))
		return hca_sge_gather(qp, w->sge, w->nsge, 0, w->length, access, iov, HCA_MAX_SGE, n);
	iov[0] = (struct iovec){(void *)w->data, w->length};
	*n = 1;
	return true;
}

enum local_act local_do(
	struct hca_qp *qp, const struct hca_send_wqe *w, const struct hca_board *peer, pid_t pid)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;
	unsigned right = read ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE, n;
	struct iovec own[HCA_MAX_SGE], theirs = {.iov_len = w->length};
	struct hca_board_qp q;
	struct hca_board_key k;
	ssize_t moved;

	if (!hca_board_find_qp(peer, qp->attr.dest_qp_num, &q) || !is_open(qp, &q, right))
		return LOCAL_LEFT;
	if (!w->length)
		return LOCAL_DONE; /* needs no key (IBA C9-88) */
	if (!hca_board_find_key(peer, w->remote.rkey, &k))
		return LOCAL_LEFT;
	theirs.iov_base = range(&k, q.pd, w->remote.addr, w->length, right);
	if (!theirs.iov_base || !own_pieces(qp, w, own, &n))
		return LOCAL_LEFT;
	moved = read ? process_vm_readv(pid, own, n, &theirs, 1, 0)
		     : process_vm_writev(pid, own, n, &theirs, 1, 0);
	if (moved == (ssize_t)w->length)
		return LOCAL_DONE;
	/* Memory that is gone, ours or theirs, or more than one call moves: all of it again, the usual way.
	 */
	return moved < 0 && (errno == EPERM || errno == ENOSYS) ? LOCAL_CLOSED : LOCAL_LEFT;
}
