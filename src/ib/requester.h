/* SPDX-License-Identifier: MIT */
/* What the files of the requester share: requester.c, flight.c, packet.c, resend.c. */
#ifndef IB_REQUESTER_H
#define IB_REQUESTER_H

#include "hca/adapter.h"
#include "hca/flow.h"
#include "ib/ibt.h"

enum step { STEP_ON, STEP_STOP, STEP_FULL };

/* Bytes of packets [k0, k1) of a request. */
static inline uint64_t ibt_bytes_between(const struct hca_send_wqe *w, uint32_t mtu, uint32_t k0, uint32_t k1)
{
	uint64_t from = (uint64_t)k0 * mtu, to = (uint64_t)k1 * mtu;

	return (to < w->length ? to : w->length) - (from < w->length ? from : w->length);
}

/* Which flow a request is charged to: its own packets to the peer's, responses to ours. */
static inline struct hca_flow *ibt_flow_of(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	return hca_wqe_has_response(w) ? qp->adapter->read_flow : qp->path.flow;
}

static inline bool ibt_nothing_in_flight(struct hca_qp *qp)
{
	return ibt_qp(qp)->req.una == ibt_qp(qp)->req.sent;
}

/* The end of the chunk that packet k is in. */
static inline uint32_t ibt_chunk_end(const struct ibt_requester *r, const struct hca_send_wqe *w, uint32_t k)
{
	uint32_t end = (k / r->chunk + 1) * r->chunk;

	return end < w->npkts ? end : w->npkts;
}

/* packet.c; each puts a packet, for which there is room. */
/* Packet k of a SEND or WRITE; NULL: local protection error. */
struct frame_out *ibt_put_data(
	struct hca_qp *qp, struct hca_send_wqe *w, uint32_t k, bool ask, struct frame_batch *out);
/* A READ request for packets [k0, k1). */
void ibt_put_read(
	struct hca_qp *qp, const struct hca_send_wqe *w, uint32_t k0, uint32_t k1, struct frame_batch *out);
void ibt_put_atomic(struct hca_qp *qp, const struct hca_send_wqe *w, struct frame_batch *out);

/* resend.c */
/* A packet whose loss is only suspected: one, and the peer says where it is (recovery.c). */
enum step ibt_send_probe(struct hca_qp *qp, struct frame_batch *out);
/* Responses that were lost, since the peer is past them: asks for these again, and for nothing else. */
enum step ibt_send_missing(struct hca_qp *qp, struct frame_batch *out);

#endif
