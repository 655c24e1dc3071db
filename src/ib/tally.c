/* SPDX-License-Identifier: MIT */
/*
 * What goes through shared memory on a fabric is tallied as the packets that the switches would have seen. No
 * acknowledges: there are none. Nor the echoes of unreliable traffic, which clock what may be on its way.
 */
#include "ib/requester.h"

static uint64_t padded(uint32_t len)
{
	return ((uint64_t)len + 3) & ~3ull;
}

static bool is_tallied(uint8_t opcode)
{
	return opcode != (IBT_RC | OP_ACK) && ibt_op_lookup(opcode);
}

void ibt_tally_frames(struct hca_qp *qp, const struct frame_batch *b, unsigned first)
{
	uint64_t packets = 0, bytes = 0;

	assert_locked(&qp->lock);
	for (unsigned i = first; i < b->nframes; i++)
		if (is_tallied(bth_opcode(b->frame[i].hdr))) {
			packets++;
			bytes += frame_len(&b->frame[i]);
		}
	if (packets)
		hca_qp_tally(qp, &b->dest, TALLY_THERE, packets, bytes);
}

void ibt_tally_message(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	uint32_t packets = ibt_npkts(w->length, ibt_mtu(qp));

	assert_locked(&qp->lock);
	hca_qp_tally(qp, &qp->path.dest, TALLY_THERE, packets,
		(uint64_t)packets * BTH_LEN + ibt_op_table[ibt_only_op[w->opcode]].ext_len +
			padded(w->length));
}

/* Each chunk is asked for by itself (requester.c), and its first and last response have an AETH. */
static void tally_read(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	uint32_t packets = ibt_npkts(w->length, ibt_mtu(qp)), chunk = ibt_qp(qp)->req.chunk;
	uint32_t chunks = (packets - 1) / chunk + 1;
	uint64_t aeths = chunk == 1 ? packets : 2ull * chunks - (packets - (chunks - 1) * chunk == 1);

	hca_qp_tally(qp, &qp->path.dest, TALLY_THERE, chunks, (uint64_t)chunks * (BTH_LEN + RETH_LEN));
	hca_qp_tally(qp, &qp->path.dest, TALLY_BACK, packets,
		(uint64_t)packets * BTH_LEN + aeths * AETH_LEN + padded(w->length));
}

void ibt_tally_onesided(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	if (hca_wqe_is_atomic(w)) {
		hca_qp_tally(qp, &qp->path.dest, TALLY_THERE, 1, BTH_LEN + ATOMICETH_LEN);
		hca_qp_tally(qp, &qp->path.dest, TALLY_BACK, 1, BTH_LEN + AETH_LEN + ATOMICACK_LEN);
	} else if (hca_wqe_is_read(w)) {
		tally_read(qp, w);
	} else {
		ibt_tally_message(qp, w);
	}
}
