/* SPDX-License-Identifier: MIT */
/*
 * The endpoint of a connection: one queue pair, one completion queue for both directions, a send buffer, and
 * the memory that the other side writes to: the ring that we receive into, the slots for its grants, its
 * mappings.
 */
#include "rsocket/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_QUEUE = 16, RECEIVES_AT_ONCE = 64, LEAST_INLINE = RS_IOMAP_LEN };

static uint32_t at_most(uint32_t v, uint32_t most)
{
	return v < most ? v : most;
}

/* ---- queues ---- */
static void choose_sizes(struct rs_stream *s)
{
	struct rsock_sizes *z = &s->rs.sizes;
	struct ibv_device_attr attr;
	uint32_t most = 4096;

	if (!ibv_query_device(s->id->verbs, &attr))
		most = (uint32_t)attr.max_qp_wr / 2;
	z->sq = at_most(z->sq < LEAST_QUEUE ? LEAST_QUEUE : z->sq, most - RS_CTRL_SLOTS);
	z->rq = at_most(z->rq < LEAST_QUEUE ? LEAST_QUEUE : z->rq, most - RS_CTRL_SLOTS);
	z->rbuf &= ~1u;
}

/* In which numbers a message counts: one work request, or two where it is a SEND of its own. */
static uint32_t per_message(const struct rs_stream *s)
{
	return s->by_send ? 2 : 1;
}

static int create_cq(struct rs_stream *s)
{
	const struct rsock_sizes *z = &s->rs.sizes;
	uint32_t n = (z->sq + RS_CTRL_SLOTS) * per_message(s) + z->rq + RS_CTRL_SLOTS;

	s->comp = ibv_create_comp_channel(s->id->verbs);
	if (!s->comp)
		return -errno;
	s->cq = ibv_create_cq(s->id->verbs, (int)n, s, s->comp, 0);
	return s->cq ? 0 : -errno;
}

static int create_qp(struct rs_stream *s)
{
	struct rsock_sizes *z = &s->rs.sizes;
	struct ibv_qp_init_attr attr = {
		.send_cq = s->cq,
		.recv_cq = s->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap =
			{
				.max_send_wr = (z->sq + RS_CTRL_SLOTS) * per_message(s),
				.max_recv_wr = z->rq + RS_CTRL_SLOTS,
				.max_send_sge = 2,
				.max_recv_sge = 1,
				.max_inline_data =
					z->inline_bytes < LEAST_INLINE ? LEAST_INLINE : z->inline_bytes,
			},
	};

	if (rdma_create_qp(s->id, NULL, &attr))
		return -errno;
	s->sqe_free = z->sq;
	s->ctrl_free = RS_CTRL_SLOTS;
	return 0;
}

/* ---- memory ---- */
static int register_pages(struct rs_stream *s, uint8_t **mem, struct ibv_mr **mr, size_t len, int access)
{
	*mem = rs_pages(len);
	if (!*mem)
		return -ENOMEM;
	*mr = ibv_reg_mr(s->id->pd, *mem, len, access);
	return *mr ? 0 : -errno;
}

/* Behind the ring: slots, mappings, and the messages of devices that have no immediate data. */
static int make_buffers(struct rs_stream *s)
{
	const struct rsock_sizes *z = &s->rs.sizes;
	size_t slots = (z->rbuf + 15u) & ~15u, iomaps = slots + RS_SLOTS * RS_SGE_LEN,
	       msgs = iomaps + (size_t)z->iomap * RS_IOMAP_LEN;
	size_t len = msgs + (s->by_send ? (size_t)(z->rq + RS_CTRL_SLOTS) * RS_MSG_LEN : 0);
	int err;

	err = register_pages(
		s, &s->shared, &s->shared_mr, len, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!err)
		err = register_pages(s, &s->sbuf, &s->sbuf_mr, z->sbuf, IBV_ACCESS_LOCAL_WRITE);
	if (err)
		return err;
	s->iomaps = (struct rs_iomap *)(s->shared + iomaps);
	s->msgs = s->shared + msgs;
	rs_flow_init(&s->flow, (uintptr_t)s->shared, s->shared_mr->rkey, z->rbuf / 2, z->rq,
		(volatile struct rs_sge *)(s->shared + slots));
	s->flow.by_length = !s->by_send;
	s->flow.own_iomaps = z->iomap;
	return 0;
}

/* ---- receives ---- */
/* One has no memory: what is written says itself where to. */
static void fill_receive(struct rs_stream *s, struct ibv_recv_wr *wr, struct ibv_sge *sge)
{
	*wr = (struct ibv_recv_wr){.wr_id = (uint64_t)RS_WR_RECV << 32 | s->msg_at, .next = wr + 1};
	if (!s->by_send)
		return;
	*sge = (struct ibv_sge){.addr = (uintptr_t)s->msgs + s->msg_at * RS_MSG_LEN,
		.length = RS_MSG_LEN,
		.lkey = s->shared_mr->lkey};
	wr->sg_list = sge;
	wr->num_sge = 1;
	s->msg_at = (s->msg_at + 1) % (s->rs.sizes.rq + RS_CTRL_SLOTS);
}

int rs_ep_post_receives(struct rs_stream *s, unsigned n)
{
	struct ibv_recv_wr wr[RECEIVES_AT_ONCE], *bad;
	struct ibv_sge sge[RECEIVES_AT_ONCE];
	int err = 0;

	while (n && !err) {
		unsigned now = at_most(n, RECEIVES_AT_ONCE);

		for (unsigned i = 0; i < now; i++)
			fill_receive(s, &wr[i], &sge[i]);
		wr[now - 1].next = NULL;
		err = ibv_post_recv(s->id->qp, wr, &bad);
		n -= now;
	}
	return -err;
}

bool rs_ep_is_iwarp(const struct rs_stream *s)
{
	return s->id->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* ---- life ---- */
int rs_ep_create(struct rs_stream *s)
{
	int err;

	s->by_send = rs_ep_is_iwarp(s);
	choose_sizes(s);
	err = create_cq(s);
	if (!err)
		err = create_qp(s);
	if (!err)
		err = make_buffers(s);
	return err ? err : rs_ep_post_receives(s, s->rs.sizes.rq + RS_CTRL_SLOTS);
}

void rs_ep_destroy(struct rs_stream *s)
{
	if (s->id && s->id->qp)
		rdma_destroy_qp(s->id);
	if (s->cq) {
		ibv_ack_cq_events(s->cq, s->unacked);
		ibv_destroy_cq(s->cq);
	}
	if (s->comp)
		ibv_destroy_comp_channel(s->comp);
	if (s->shared_mr)
		ibv_dereg_mr(s->shared_mr);
	if (s->sbuf_mr)
		ibv_dereg_mr(s->sbuf_mr);
	free(s->shared);
	free(s->sbuf);
}
