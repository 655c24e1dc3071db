/* SPDX-License-Identifier: MIT */
/*
 * Posting. ibv_post_send and the ibv_wr_* builders fill the same descriptor: begin() finds the place, the
 * fill_*() functions write the parts, commit() makes it the transport's.
 */
#include "hca/qp.h"

#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/provider.h"
#include "wire/ibt.h"

#include <errno.h>
#include <string.h>

enum { RC = SERVICE_RC, UC = SERVICE_UC, UD = SERVICE_UD };

/* Which service offers which work request (IBA table 90). */
static const uint8_t offered[] = {
	[IBV_WR_RDMA_WRITE] = RC | UC,
	[IBV_WR_RDMA_WRITE_WITH_IMM] = RC | UC,
	[IBV_WR_SEND] = RC | UC | UD,
	[IBV_WR_SEND_WITH_IMM] = RC | UC | UD,
	[IBV_WR_RDMA_READ] = RC,
	[IBV_WR_ATOMIC_CMP_AND_SWP] = RC,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = RC,
	[IBV_WR_LOCAL_INV] = RC | UC,
	[IBV_WR_BIND_MW] = RC | UC,
	[IBV_WR_SEND_WITH_INV] = RC,
};

/* 0 or an errno: EOPNOTSUPP where the transport could, but not this peer. */
static int check_offered(struct hca_qp *qp, unsigned opcode)
{
	if (opcode >= sizeof(offered) || !(offered[opcode] & qp->service.bit))
		return EINVAL;
	return hca_qp_provider(qp)->ops.offers(qp, opcode) ? 0 : EOPNOTSUPP;
}

static bool may_post_send(const struct hca_qp *qp)
{
	enum ibv_qp_state s = hca_qp_state(qp);

	return s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE || s == IBV_QPS_ERR;
}

/* post_lock held; or, of a QP without ibv_wr_*, its lock */
static struct hca_send_wqe *begin(struct hca_qp *qp, uint32_t at)
{
	struct hca_send_wqe *w;

	if (at - __atomic_load_n(&qp->sq.tail, __ATOMIC_ACQUIRE) >= qp->sq.max_wr)
		return NULL;
	w = hca_sq_at(&qp->sq, at);
	w->started = 0;
	w->by_ref = false;
	w->moved = 0;
	w->nsge = 0;
	w->length = 0;
	return w;
}

static int fill_sge(struct hca_qp *qp, struct hca_send_wqe *w, const struct ibv_sge *sge, size_t n)
{
	uint64_t length = 0;

	if (n > qp->sq.max_sge)
		return EINVAL;
	for (size_t i = 0; i < n; i++) {
		w->sge[i] = sge[i];
		length += sge[i].length;
	}
	if (length > HCA_MAX_MSG)
		return EINVAL;
	w->nsge = (uint8_t)n;
	w->length = (uint32_t)length;
	w->flags &= (uint8_t)~IBV_SEND_INLINE;
	return 0;
}

static int fill_inline(struct hca_qp *qp, struct hca_send_wqe *w, const void *addr, size_t len)
{
	if (len > qp->sq.max_inline - w->length)
		return ENOMEM;
	if (len)
		memcpy(w->data + w->length, addr, len);
	w->length += (uint32_t)len;
	w->flags |= IBV_SEND_INLINE;
	return 0;
}

static int fill_ud(
	struct hca_qp *qp, struct hca_send_wqe *w, const struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	const struct hca_ah *a = (const struct hca_ah *)ah;

	if (!ah || hca_pd(ah->pd) != qp->pd || a->path.port != qp->path.port)
		return EINVAL;
	w->ud.dest = a->path.dest;
	w->ud.qpn = qpn & 0xffffff;
	/* The high bit asks for the QP's own Q_Key (IBA 10.2.5). */
	w->ud.qkey = qkey & 0x80000000u ? qp->attr.qkey : qkey;
	return 0;
}

static int check_wqe(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	if (!qp->service.connected && w->length > hca_mtu_bytes(qp->path.mtu))
		return EINVAL;
	if ((w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) &&
		(w->flags & IBV_SEND_INLINE))
		return EINVAL;
	if (w->opcode == IBV_WR_RDMA_READ && (w->flags & IBV_SEND_INLINE))
		return EINVAL;
	return 0;
}

static void __attribute__((cold, noinline)) tell_posted(const struct hca_qp *qp, uint32_t head)
{
	for (uint32_t i = qp->sq.head; i != head; i++) {
		const struct hca_send_wqe *w = hca_sq_at(&qp->sq, i);

		PROBE(WR_POSTED, .qpn = hca_qpn(qp), .wr_id = w->wr_id, .opcode = w->opcode,
			.length = w->length, .wqe = w);
	}
}

/* Hands descriptors up to `head` to the transport, or flushes them when the queue is in error. */
static void commit(struct hca_qp *qp, uint32_t head)
{
	struct hca_engine *e = &qp->adapter->engine;
	enum ibv_qp_state s = hca_qp_state(qp);

	if (probe_is_on(WR_POSTED))
		tell_posted(qp, head);
	qp->sq.head = head;
	if (s == IBV_QPS_RTS) {
		hca_engine_post(e, qp);
	} else if (s == IBV_QPS_ERR || s == IBV_QPS_SQE) {
		while (qp->sq.tail != qp->sq.head)
			hca_qp_complete_send(qp, IBV_WC_WR_FLUSH_ERR, hca_engine_now(e));
	}
}

static int fill_wr(struct hca_qp *qp, struct hca_send_wqe *w, const struct ibv_send_wr *wr)
{
	int err = 0;

	w->wr_id = wr->wr_id;
	w->opcode = (uint8_t)wr->opcode;
	w->flags = (uint8_t)wr->send_flags;
	w->imm = wr->opcode == IBV_WR_SEND_WITH_INV || wr->opcode == IBV_WR_LOCAL_INV ? wr->invalidate_rkey
										      : wr->imm_data;
	if (wr->num_sge < 0)
		return EINVAL;
	switch (wr->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		w->remote.addr = wr->wr.atomic.remote_addr;
		w->remote.rkey = wr->wr.atomic.rkey;
		w->remote.compare_add = wr->wr.atomic.compare_add;
		w->remote.swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		w->remote.addr = wr->wr.rdma.remote_addr;
		w->remote.rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_BIND_MW:
		if (!wr->bind_mw.mw || wr->bind_mw.mw->type != IBV_MW_TYPE_2)
			return EINVAL;
		w->bind = hca_bind_of(wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return 0;
	case IBV_WR_LOCAL_INV:
		return 0;
	default:
		if (!qp->service.connected)
			err = fill_ud(qp, w, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
	}
	if (err)
		return err;
	if (w->flags & IBV_SEND_INLINE) {
		for (int i = 0; i < wr->num_sge && !err; i++)
			err = fill_inline(
				qp, w, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
	} else {
		err = fill_sge(qp, w, wr->sg_list, (size_t)wr->num_sge);
	}
	return err ? err : check_wqe(qp, w);
}

int hca_qp_post_send(struct hca_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	bool builders = qp->wr_api; /* else nobody holds descriptors without the QP's lock */
	uint32_t head;
	int err = 0;

	if (builders)
		lock_take(&qp->post_lock);
	lock_take(&qp->lock);
	head = qp->sq.head;
	if (!may_post_send(qp))
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		struct hca_send_wqe *w = begin(qp, head);

		if (!w)
			err = ENOMEM;
		else
			err = check_offered(qp, wr->opcode);
		if (!err)
			err = fill_wr(qp, w, wr);
		if (err)
			break;
		head++;
	}
	if (err)
		*bad = wr;
	if (head != qp->sq.head)
		commit(qp, head);
	lock_drop(&qp->lock);
	if (builders)
		lock_drop(&qp->post_lock);
	hca_engine_drive_if_overdue(&qp->adapter->engine);
	return err;
}

int hca_qp_post_recv(struct hca_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	int err = 0;

	if (hca_qp_state(qp) == IBV_QPS_RESET || qp->srq)
		err = EINVAL;
	for (; wr && !err; wr = wr->next) {
		err = hca_rq_post(&qp->rq, wr);
		if (err)
			break;
	}
	if (err)
		*bad = wr;
	if (!qp->by_modify && hca_qp_provider(qp) == qp->dev_provider)
		hca_engine_recv_posted(&qp->adapter->engine);
	/* Posted to a queue in error: flushed at once. */
	if (hca_qp_state(qp) == IBV_QPS_ERR) {
		lock_take(&qp->lock);
		if (hca_qp_state(qp) == IBV_QPS_ERR)
			hca_qp_set_state(qp, IBV_QPS_ERR);
		lock_drop(&qp->lock);
	}
	return err;
}

int hca_qp_bind_mw(struct hca_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind)
{
	struct hca_send_wqe *w;
	int err = 0;

	lock_take(&qp->post_lock);
	lock_take(&qp->lock);
	w = may_post_send(qp) ? begin(qp, qp->sq.head) : NULL;
	if (!w) {
		err = may_post_send(qp) ? ENOMEM : EINVAL;
	} else {
		w->wr_id = bind->wr_id;
		w->opcode = IBV_WR_BIND_MW;
		w->flags = (uint8_t)bind->send_flags;
		mw->rkey = ibv_inc_rkey(mw->rkey);
		w->bind = hca_bind_of(mw, mw->rkey, &bind->bind_info);
		commit(qp, qp->sq.head + 1);
	}
	lock_drop(&qp->lock);
	lock_drop(&qp->post_lock);
	return err;
}

/* ---- ibv_wr_* ---- */
/*
 * wr_start takes the QP's posting lock and wr_complete drops it. The QP itself goes on in between: the
 * program may well poll. An error in the middle is remembered and reported by wr_complete; nothing of the
 * batch is then sent.
 */
static struct hca_qp *of_ex(struct ibv_qp_ex *ex)
{
	return (struct hca_qp *)ex;
}

static void wr_begin(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct hca_qp *qp = of_ex(ex);
	struct hca_send_wqe *w = NULL;

	if (!qp->wr_err)
		qp->wr_err = check_offered(qp, opcode);
	if (!qp->wr_err) {
		w = begin(qp, qp->wr_head);
		if (!w)
			qp->wr_err = ENOMEM;
	}
	qp->wr_wqe = w;
	if (!w)
		return;
	w->wr_id = ex->wr_id;
	w->opcode = (uint8_t)opcode;
	w->flags = (uint8_t)(ex->wr_flags & ~(unsigned)IBV_SEND_INLINE);
	w->imm = 0;
	qp->wr_head++;
}

static void wr_remote(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode, uint32_t rkey, uint64_t addr)
{
	struct hca_send_wqe *w;

	wr_begin(ex, opcode);
	w = of_ex(ex)->wr_wqe;
	if (!w)
		return;
	w->remote.addr = addr;
	w->remote.rkey = rkey;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	wr_begin(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	wr_begin(ex, IBV_WR_SEND_WITH_IMM);
	if (of_ex(ex)->wr_wqe)
		of_ex(ex)->wr_wqe->imm = imm;
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_begin(ex, IBV_WR_SEND_WITH_INV);
	if (of_ex(ex)->wr_wqe)
		of_ex(ex)->wr_wqe->imm = rkey;
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	wr_begin(ex, IBV_WR_LOCAL_INV);
	if (of_ex(ex)->wr_wqe)
		of_ex(ex)->wr_wqe->imm = rkey;
}

static void wr_bind_mw(
	struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	struct hca_send_wqe *w;

	wr_begin(ex, IBV_WR_BIND_MW);
	w = of_ex(ex)->wr_wqe;
	if (!w)
		return;
	w->bind = hca_bind_of(mw, rkey, info);
	if (mw->type != IBV_MW_TYPE_2)
		of_ex(ex)->wr_err = EINVAL;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_remote(ex, IBV_WR_RDMA_WRITE, rkey, addr);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm)
{
	wr_remote(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, addr);
	if (of_ex(ex)->wr_wqe)
		of_ex(ex)->wr_wqe->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr)
{
	wr_remote(ex, IBV_WR_RDMA_READ, rkey, addr);
}

static void wr_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode op, uint32_t rkey, uint64_t addr,
	uint64_t compare_add, uint64_t swap)
{
	struct hca_send_wqe *w;

	wr_remote(ex, op, rkey, addr);
	w = of_ex(ex)->wr_wqe;
	if (!w)
		return;
	w->remote.compare_add = compare_add;
	w->remote.swap = swap;
}

static void wr_atomic_cmp_swp(
	struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap)
{
	wr_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, addr, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add)
{
	wr_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, addr, add, 0);
}

/* The setters act on the request begun last. */
static void wr_note(struct hca_qp *qp, int err)
{
	if (err && !qp->wr_err)
		qp->wr_err = err;
}

static void wr_set_ud_addr(struct ibv_qp_ex *ex, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey)
{
	struct hca_qp *qp = of_ex(ex);

	if (qp->wr_wqe)
		wr_note(qp, fill_ud(qp, qp->wr_wqe, ah, qpn, qkey));
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *sge)
{
	struct hca_qp *qp = of_ex(ex);

	if (qp->wr_wqe)
		wr_note(qp, fill_sge(qp, qp->wr_wqe, sge, n));
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	wr_set_sge_list(ex, 1, &sge);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *buf)
{
	struct hca_qp *qp = of_ex(ex);

	if (!qp->wr_wqe)
		return;
	qp->wr_wqe->nsge = 0;
	qp->wr_wqe->length = 0;
	for (size_t i = 0; i < n; i++)
		wr_note(qp, fill_inline(qp, qp->wr_wqe, buf[i].addr, buf[i].length));
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf buf = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &buf);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct hca_qp *qp = of_ex(ex);

	lock_take(&qp->post_lock);
	lock_take(&qp->lock);
	qp->wr_base = qp->wr_head = qp->sq.head;
	qp->wr_err = may_post_send(qp) ? 0 : EINVAL;
	lock_drop(&qp->lock);
	qp->wr_wqe = NULL;
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct hca_qp *qp = of_ex(ex);
	int err = qp->wr_err;

	lock_take(&qp->lock);
	if (!err && (qp->sq.head != qp->wr_base || !may_post_send(qp)))
		err = EINVAL; /* reset in the meantime */
	for (uint32_t i = qp->wr_base; i != qp->wr_head && !err; i++)
		err = check_wqe(qp, hca_sq_at(&qp->sq, i));
	if (!err && qp->wr_head != qp->wr_base)
		commit(qp, qp->wr_head);
	lock_drop(&qp->lock);
	lock_drop(&qp->post_lock);
	hca_engine_drive_if_overdue(&qp->adapter->engine);
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	lock_drop(&of_ex(ex)->post_lock);
}

void hca_qp_wr_init(struct hca_qp *qp, uint64_t send_ops)
{
	struct ibv_qp_ex *ex = &qp->ex;

	qp->wr_api = true;
	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_set_ud_addr = wr_set_ud_addr;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}
