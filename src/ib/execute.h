/* SPDX-License-Identifier: MIT */
/*
 * What a SEND or WRITE does at its responder: where its bytes go, and what follows once they are there.
 * responder.c executes packet by packet, and has checked before; on one host a message may be executed as a
 * whole (fastpath.c, by_reference.c), and what is not as usual about it is left for the responder to find.
 *
 * Inline, for the instructions of a small message are counted: as calls these cost 80 more.
 */
#ifndef IB_EXECUTE_H
#define IB_EXECUTE_H

#include "hca/adapter.h"
#include "ib/ibt.h"

#include <string.h>

enum verdict {
	GO_ON,     /* the next check */
	DONE,      /* executed */
	DROP,      /* without a word */
	DUPLICATE, /* seen before: answer again */
	OUT_OF_SEQUENCE,
	NOT_READY,   /* no receive posted */
	BAD_REQUEST, /* malformed, out of place */
	TOO_LONG,    /* for the receive */
	NO_ACCESS,   /* key, range or right */
	LOCAL_FAULT, /* our program's receive points nowhere */
	CQ_OVERRUN,  /* the completion found no room: the QP is in ERR by now */
	VERDICTS,
};

/* Where the bytes of a packet go; f: what its opcode says, OPF_*. */
static inline enum verdict ibt_find_place(
	struct hca_qp *qp, const struct ibt_packet *p, unsigned f, struct iovec *to, unsigned *n)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	if (f & OPF_START) {
		r->is_write = f & OPF_WRITE;
		r->off = 0;
		if (f & OPF_RETH)
			r->reth = reth_get(p->ext);
	}
	if (f & OPF_SEND) {
		if (p->len > qp->recv.length - r->off)
			return TOO_LONG;
		return hca_sge_gather(qp, qp->recv.sge, qp->recv.nsge, r->off, p->len, IBV_ACCESS_LOCAL_WRITE,
			       to, HCA_MAX_SGE, n)
			       ? GO_ON
			       : LOCAL_FAULT;
	}
	*n = p->len ? 1 : 0;
	if (!p->len)
		return GO_ON;
	/* Again for every packet: the region may have gone since the first. */
	to[0].iov_base =
		hca_qp_target(qp, r->reth.rkey, r->reth.va + r->off, p->len, IBV_ACCESS_REMOTE_WRITE);
	to[0].iov_len = p->len;
	return to[0].iov_base ? GO_ON : NO_ACCESS;
}

/* Completes the receive that a message took. */
static inline bool ibt_deliver(struct hca_qp *qp, const struct ibt_packet *p, unsigned f, uint64_t now)
{
	const uint8_t *ext = p->ext + (f & OPF_RETH ? RETH_LEN : 0);
	struct ibv_wc *wc = hca_qp_recv_wc(qp);

	if (!wc)
		return false;
	*wc = (struct ibv_wc){
		.wr_id = qp->recv.wr_id,
		.opcode = f & OPF_WRITE ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV,
		.byte_len = ibt_qp(qp)->resp.off,
		.qp_num = hca_qpn(qp),
		.src_qp = qp->attr.dest_qp_num,
	};
	if (f & OPF_IMM) {
		memcpy(&wc->imm_data, ext, IMM_LEN);
		wc->wc_flags = IBV_WC_WITH_IMM;
	}
	if (f & OPF_IETH) {
		wc->invalidated_rkey = get_be32(ext);
		wc->wc_flags = IBV_WC_WITH_INV;
	}
	hca_cq_put(qp->recv_cq, p->solicited, now);
	return true;
}

/* The bytes are there, of so many packets: an acknowledge names the last, and the next one is expected. */
static inline enum verdict ibt_finish(
	struct hca_qp *qp, const struct ibt_packet *p, unsigned f, uint32_t npkts, uint64_t now)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	if ((f & OPF_IETH) && hca_key_invalidate(qp->adapter, qp->pd, get_be32(p->ext), hca_qpn(qp)))
		return NO_ACCESS;
	r->off += p->len;
	if ((f & OPF_END) && (f & (OPF_SEND | OPF_IMM)) && !ibt_deliver(qp, p, f, now))
		return CQ_OVERRUN;
	r->in_message = !(f & OPF_END);
	r->ack_psn = psn_add(r->epsn, npkts - 1);
	r->epsn = psn_add(r->epsn, npkts);
	if (f & OPF_END)
		r->msn = (r->msn + 1) & PSN_MASK;
	return DONE;
}

/*
 * A whole message, of so many packets, that is the next (ibt_is_next) and no SEND with invalidate; nothing
 * else was checked. fetch brings its bytes; NULL: they are p->payload. false: something is not as usual, and
 * it is still the next; a receive that was taken for it is in qp->recv.
 */
static inline bool ibt_execute_whole(struct hca_qp *qp, const struct ibt_packet *p, uint32_t npkts,
	ibt_fetch_fn *fetch, void *arg, uint64_t now)
{
	unsigned f = (p->op->flags | OPF_START | OPF_END) & ~(unsigned)OPF_IETH, n;
	struct iovec to[HCA_MAX_SGE];

	if ((f & (OPF_SEND | OPF_IMM)) &&
		(hca_cq_full(qp->recv_cq) || (!qp->recv.valid && !hca_qp_take_recv(qp))))
		return false;
	if (ibt_find_place(qp, p, f, to, &n) != GO_ON)
		return false;
	if ((f & OPF_WRITE) &&
		(ibt_qp(qp)->resp.reth.len != p->len || !hca_qp_allows(qp, IBV_ACCESS_REMOTE_WRITE)))
		return false;
	if (!(fetch ? fetch(arg, 0, to, n, p->len) : hca_iov_fill(to, n, p->payload)))
		return false;
	ibt_finish(qp, p, f, npkts, now); /* a completion that is lost after all has put the QP into ERR */
	return true;
}

#endif
