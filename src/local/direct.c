/* SPDX-License-Identifier: MIT */
#include "local/direct.h"

#include "local/copy.h"
#include "wire/ibt.h"

#include <string.h>

/* What a kind of request does, and needs. */
struct kind {
	bool mapped_only;   /* the kernel cannot do it for us */
	unsigned right;     /* at the peer */
	unsigned own_right; /* of our own memory */
	bool (*run)(struct local_job *job);
};

static const struct kind kinds[] = {
	[IBV_WR_RDMA_WRITE] = {false, IBV_ACCESS_REMOTE_WRITE, 0, local_write},
	[IBV_WR_RDMA_READ] = {false, IBV_ACCESS_REMOTE_READ, IBV_ACCESS_LOCAL_WRITE, local_read},
	[IBV_WR_ATOMIC_CMP_AND_SWP] = {true, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_LOCAL_WRITE, local_atomic},
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = {true, IBV_ACCESS_REMOTE_ATOMIC, IBV_ACCESS_LOCAL_WRITE,
		local_atomic},
};

/* ---- what the export says ---- */
/* Is our peer connected to us? The responder's checks, in its order. */
static bool is_open(const struct hca_qp *qp, const struct local_export_qp *peer)
{
	return pkey_matches(peer->pkey, qp->path.pkey) && peer->peer_qpn == hca_qpn(qp) &&
	       peer->peer_psn == qp->attr.sq_psn && !memcmp(peer->peer_gid, qp->path.dest.sgid, 16) &&
	       !memcmp(peer->gid, qp->path.dest.dgid, 16);
}

static bool look(struct hca_qp *qp, uint32_t rkey, const struct local_peer *p)
{
	struct local_seen *s = &qp->seen;
	struct local_export_qp q;

	s->number = 0;
	if (!local_export_find_qp(p->export, qp->attr.dest_qp_num, &q) || !is_open(qp, &q))
		return false;
	s->pd = q.pd;
	s->access = q.access;
	if (!local_look(s, p, rkey))
		s->key.access = 0; /* and no right */
	return true;
}

/* What we saw last time stands as long as nothing has changed on the export since. */
static inline bool see(struct hca_qp *qp, uint32_t rkey, const struct local_peer *p)
{
	if (!local_export_lives(p->export))
		return false;
	return local_has_seen(&qp->seen, p, rkey) || look(qp, rkey, p);
}

/* Where [addr, addr + len) lies in the peer's memory; 0: it does not, or not for us. */
static uint64_t range(const struct local_seen *s, uint64_t addr, uint32_t len, unsigned right)
{
	return s->key.pd == s->pd && (s->key.access & right) == right ? local_range(&s->key, addr, len) : 0;
}

/* Whether it was done by our own instructions. */
static bool by_hand(struct hca_qp *qp, const struct kind *kind, struct local_job *job, uint64_t host,
	const struct local_peer *p)
{
	uint32_t len = job->len;

	job->at = local_mapped(&qp->seen, p, host, &len);
	return job->at && len == job->len && kind->run(job);
}

/* Half of a WRITE is no harm: it is written again. */
static enum local_act move(struct hca_qp *qp, const struct kind *kind, struct local_job *job, uint64_t host,
	const struct local_peer *p)
{
	bool write = kind->right == IBV_ACCESS_REMOTE_WRITE;

	if (by_hand(qp, kind, job, host, p))
		return local_is_revoked(p) ? LOCAL_DECLINED : LOCAL_DONE;
	return local_by_kernel(&qp->seen, p, job->own, job->n, host, job->len, write);
}

/* The kernel cannot do it for us; but it may have to touch the page first. */
static enum local_act act_on_word(struct hca_qp *qp, const struct kind *kind, struct local_job *job,
	uint64_t host, const struct local_peer *p)
{
	uint64_t word;
	struct iovec own = {&word, sizeof(word)};

	if (by_hand(qp, kind, job, host, p))
		return LOCAL_DONE;
	if (job->at || !qp->seen.key.file ||
		local_by_kernel(&qp->seen, p, &own, 1, host, sizeof(word), false) != LOCAL_DONE)
		return LOCAL_DECLINED;
	return by_hand(qp, kind, job, host, p) ? LOCAL_DONE : LOCAL_DECLINED;
}

enum local_act local_do(struct hca_qp *qp, struct hca_send_wqe *w, uint32_t most, const struct local_peer *p)
{
	const struct kind *kind = &kinds[w->opcode];
	struct local_job job;
	enum local_act act;
	uint64_t host;

	assert_locked(&qp->lock);
	local_job_begin(&job, w->length - w->moved, &qp->seen.back);
	job.wqe = w;
	job.revoked = p->revoked;
	if (hca_wqe_check(w, qp->attr.max_rd_atomic) || !see(qp, w->remote.rkey, p) ||
		(qp->seen.access & kind->right) != kind->right)
		return LOCAL_DECLINED;
	if (!job.len)
		return LOCAL_DONE; /* needs no key (IBA C9-88) */
	host = range(
		&qp->seen, w->remote.addr, w->length, kind->right); /* all of it, before the first byte */
	if (job.len > most)
		job.len = most;
	if (!host || !hca_wqe_gather(qp, w, w->moved, job.len, kind->own_right, job.own, HCA_MAX_SGE, &job.n))
		return LOCAL_DECLINED;
	host += w->moved;
	act = kind->mapped_only ? act_on_word(qp, kind, &job, host, p) : move(qp, kind, &job, host, p);
	if (act == LOCAL_DONE)
		w->moved += job.len;
	return act;
}
