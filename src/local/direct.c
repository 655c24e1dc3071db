/* SPDX-License-Identifier: MIT */
#include "local/direct.h"

#include "local/copy.h"
#include "memory/file.h"
#include "memory/window.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* What a kind of request does, and needs. */
struct kind {
	bool mapped_only;   /* the kernel cannot do it for us */
	unsigned right;     /* at the peer */
	unsigned own_right; /* of our own memory */
	bool (*run)(const struct local_job *job);
};

static const struct kind kinds[] = {
	[IBV_WR_RDMA_WRITE] = {false, IBV_ACCESS_REMOTE_WRITE, 0, local_write},
	[IBV_WR_RDMA_READ] = {false, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, local_read},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {true, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_LOCAL_WRITE, local_atomic},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {true, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_LOCAL_WRITE,
		local_atomic},
};

/* ---- what the board says ---- */
/* Is our peer connected to us? The responder's checks, in its order. */
static bool is_open(const struct hca_qp *qp, const struct hca_board_qp *peer)
{
	return peer->peer_qpn == hca_qpn(qp) && peer->peer_psn == qp->attr.sq_psn &&
	       !memcmp(peer->peer_gid, qp->dest.sgid, 16) && !memcmp(peer->gid, qp->dest.dgid, 16);
}

static bool look(struct hca_qp *qp, uint32_t rkey, const struct local_peer *p, uint32_t changes)
{
	struct hca_seen *s = &qp->seen;
	struct hca_board_qp q;

	s->number = 0;
	if (!hca_board_find_qp(p->board, qp->attr.dest_qp_num, &q) || !is_open(qp, &q))
		return false;
	s->pd = q.pd;
	s->access = q.access;
	if (!hca_board_find_key(p->board, rkey, &s->key))
		s->key.access = 0; /* and no right */
	s->rkey = rkey;
	s->changes = changes;
	s->number = p->number;
	return true;
}

/* What we saw last time stands as long as nothing has changed on the board since. */
static inline bool see(struct hca_qp *qp, uint32_t rkey, const struct local_peer *p)
{
	uint32_t changes = hca_board_changes(p->board);

	if (!hca_board_lives(p->board))
		return false;
	return (qp->seen.number == p->number && qp->seen.changes == changes && qp->seen.rkey == rkey) ||
	       look(qp, rkey, p, changes);
}

/* Where [addr, addr + len) lies in the peer's memory; 0: it does not, or not for us. */
static uint64_t range(const struct hca_seen *s, uint64_t addr, uint32_t len, unsigned right)
{
	uint64_t off = addr - s->key.iova; /* wraps to something huge when below */

	if (s->key.pd != s->pd || (s->key.access & right) != right || off > s->key.length ||
		len > s->key.length - off)
		return 0;
	return s->key.host + off;
}

/* ---- by our own instructions ---- */
/* Where we have it; NULL: nowhere, or not in one piece. */
static char *mapped(const struct hca_seen *s, const struct local_peer *p, uint64_t host, uint32_t len)
{
	uint64_t in = host - s->key.map_host, off = s->key.map_off + in;

	if (p->memory->fd < 0)
		return NULL;
	if (p->self)
		return (char *)(uintptr_t)host;
	if (in > s->key.map_len || len > s->key.map_len - in)
		return NULL;
	if (off % MEMORY_WINDOW + len > MEMORY_WINDOW)
		return NULL; /* of more than a gigabyte, or a part of that */
	return windows_at(p->memory, off);
}

/* ---- by the kernel's ---- */
static enum local_act by_kernel(const struct local_job *job, uint64_t host, pid_t pid, bool read)
{
	struct iovec theirs = {(void *)(uintptr_t)host, job->len};
	ssize_t moved;

	if (!pid)
		return LOCAL_LEFT;
	moved = read ? process_vm_readv(pid, job->own, job->n, &theirs, 1, 0)
		     : process_vm_writev(pid, job->own, job->n, &theirs, 1, 0);
	if (moved == (ssize_t)job->len)
		return LOCAL_DONE;
	/* Memory that is gone, ours or theirs, or more than one call moves: all of it again, the usual way.
	 */
	return moved < 0 && (errno == EPERM || errno == ENOSYS) ? LOCAL_CLOSED : LOCAL_LEFT;
}

static bool own_pieces(struct hca_qp *qp, const struct hca_send_wqe *w, unsigned right, struct local_job *job)
{
	if (!(w->flags & IBV_SEND_INLINE))
		return hca_sge_gather(
			qp, w->sge, w->nsge, 0, job->len, right, job->own, HCA_MAX_SGE, &job->n);
	job->own[0] = (struct iovec){(void *)w->data, w->length};
	job->n = 1;
	return true;
}

/* What its own adapter would refuse. */
static bool is_wrong(const struct hca_qp *qp, const struct hca_send_wqe *w, const struct kind *kind)
{
	return (kind->own_right && !qp->attr.max_rd_atomic) || (kind->mapped_only && w->length != 8);
}

enum local_act local_do(struct hca_qp *qp, const struct hca_send_wqe *w, const struct local_peer *p)
{
	const struct kind *kind = &kinds[w->opcode];
	struct local_job job = {.len = w->length, .wqe = w};
	uint64_t host;

	if (is_wrong(qp, w, kind) || !see(qp, w->remote.rkey, p) ||
		(qp->seen.access & kind->right) != kind->right)
		return LOCAL_LEFT;
	if (!job.len)
		return LOCAL_DONE; /* needs no key (IBA C9-88) */
	host = range(&qp->seen, w->remote.addr, job.len, kind->right);
	if (!host || !own_pieces(qp, w, kind->own_right, &job))
		return LOCAL_LEFT;
	job.at = mapped(&qp->seen, p, host, job.len);
	if (job.at && kind->run(&job))
		return LOCAL_DONE;
	/* Half of a WRITE is no harm: it is written again. An atomic has not happened. */
	return kind->mapped_only ? LOCAL_LEFT : by_kernel(&job, host, p->pid, w->opcode == IBV_WR_RDMA_READ);
}
