/* SPDX-License-Identifier: MIT */
/* Completion queues and channels; the extended reader. */
#include "front/verbs_front.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/cq.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>

/* ---- channels ---- */
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	CANCEL_SAFE;
	struct hca_channel *ch = hca_channel_create(hca_context(c));

	return ch ? &ch->ibv : NULL;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(channel->context))
		return 0;
	return hca_channel_destroy((struct hca_channel *)channel);
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	struct hca_engine *e = &hca_context(channel->context)->adapter->engine;
	struct hca_cq *got;
	int err = 0, flags = fcntl(channel->fd, F_GETFL);

	/* Who would only sleep may as well do the helper's work. */
	if (!(flags & O_NONBLOCK))
		err = hca_engine_wait_fd(e, channel->fd);
	if (!err)
		err = hca_channel_get((struct hca_channel *)channel, &got);
	if (err) {
		errno = -err;
		return -1;
	}
	*cq = (struct ibv_cq *)&got->ex;
	*cq_context = got->ex.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	if (!hca_context_is_parents(cq->context))
		hca_cq_ack(hca_cq(cq), n);
}

/* ---- queues ---- */
struct ibv_cq *ibv_create_cq(
	struct ibv_context *c, int cqe, void *user, struct ibv_comp_channel *channel, int vector)
{
	CANCEL_SAFE;
	struct hca_cq *cq;

	if (cqe <= 0) {
		errno = EINVAL;
		return NULL;
	}
	cq = hca_cq_create(hca_context(c), (unsigned)cqe, user, (struct hca_channel *)channel, vector);
	return cq ? (struct ibv_cq *)&cq->ex : NULL;
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	CANCEL_SAFE;

	return cqe <= 0 ? EINVAL : hca_cq_resize(hca_cq(cq), (unsigned)cqe);
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(cq->context))
		return 0;
	return hca_cq_destroy(hca_cq(cq));
}

/*
 * Moves packets for a program that found its queue empty. One that has found it empty for a while gives way
 * to other threads, if any wait for the CPU: what it waits for may have to be made by one of them.
 */
static void drive_for(struct hca_cq *cq)
{
	enum { PATIENCE = 64 };
	unsigned empty;

	if (!hca_engine_poll(&cq->ctx->adapter->engine, &cq->looks))
		return;
	empty = atomic_load_explicit(&cq->empty_polls, memory_order_relaxed);
	if (hca_cq_empty(cq) && empty >= PATIENCE) {
		guard_doubt();
		sched_yield();
	} else
		atomic_store_explicit(
			&cq->empty_polls, hca_cq_empty(cq) ? empty + 1 : 0, memory_order_relaxed);
}

int verbs_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct hca_cq *cq = hca_cq(ibv);
	int got = hca_cq_take(cq, wc, n);

	if (got) {
		if (atomic_load_explicit(&cq->streams, memory_order_relaxed))
			hca_engine_spin_for_write(&cq->ctx->adapter->engine);
		return got;
	}
	drive_for(cq);
	return hca_cq_take(cq, wc, n);
}

int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	hca_cq_arm(hca_cq(cq), solicited_only);
	return 0;
}

int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE ? EINVAL
								 : 0; /* events are not delayed anyway */
}

/* ---- the extended reader ---- */
static struct hca_cqe *cursor(struct ibv_cq_ex *ex)
{
	return &((struct hca_cq *)ex)->cursor;
}

static int advance(struct ibv_cq_ex *ex)
{
	struct hca_cq *cq = (struct hca_cq *)ex;

	if (!hca_cq_take_one(cq, &cq->cursor))
		return ENOENT;
	ex->status = cq->cursor.wc.status;
	ex->wr_id = cq->cursor.wc.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct hca_cq *cq = (struct hca_cq *)ex;

	if (attr->comp_mask)
		return EINVAL;
	if (hca_cq_empty(cq))
		drive_for(cq);
	return advance(ex);
}

static void end_poll(struct ibv_cq_ex *ex)
{
}

#define READER(type, name, expr)                                                                             \
	static type name(struct ibv_cq_ex *ex)                                                               \
	{                                                                                                    \
		return expr;                                                                                 \
	}

READER(enum ibv_wc_opcode, read_opcode, cursor(ex)->wc.opcode)
READER(uint32_t, read_vendor_err, cursor(ex)->wc.vendor_err)
READER(uint32_t, read_byte_len, cursor(ex)->wc.byte_len)
READER(__be32, read_imm_data, cursor(ex)->wc.imm_data)
READER(uint32_t, read_qp_num, cursor(ex)->wc.qp_num)
READER(uint32_t, read_src_qp, cursor(ex)->wc.src_qp)
READER(unsigned, read_wc_flags, cursor(ex)->wc.wc_flags)
READER(uint32_t, read_slid, cursor(ex)->wc.slid)
READER(uint8_t, read_sl, cursor(ex)->wc.sl)
READER(uint8_t, read_dlid_path_bits, cursor(ex)->wc.dlid_path_bits)
READER(uint64_t, read_completion_ts, cursor(ex)->ns)

static uint64_t read_wallclock_ns(struct ibv_cq_ex *ex)
{
	return cursor(ex)->ns + clock_real_offset();
}

struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *attr)
{
	CANCEL_SAFE;
	uint64_t offered = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			   IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
	struct ibv_cq *cq;
	struct ibv_cq_ex *ex;

	if ((attr->wc_flags & ~offered) ||
		(attr->comp_mask & ~(uint32_t)(IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD))) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
		(attr->flags & ~(uint32_t)IBV_CREATE_CQ_ATTR_SINGLE_THREADED)) {
		errno = EOPNOTSUPP;
		return NULL;
	}
	if (!attr->cqe || attr->cqe > INT32_MAX) {
		errno = EINVAL;
		return NULL;
	}
	cq = ibv_create_cq(c, (int)attr->cqe, attr->cq_context, attr->channel, (int)attr->comp_vector);
	if (!cq)
		return NULL;
	hca_cq(cq)->stamps = attr->wc_flags & (IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
						      IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK);
	ex = (struct ibv_cq_ex *)cq;
	ex->start_poll = start_poll;
	ex->next_poll = advance;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_completion_wallclock_ns = read_wallclock_ns;
	return ex;
}
