/* SPDX-License-Identifier: MIT */
/* Answers to the peer's READs and atomics, in the order it asked (RFC 5040). */
#include "base/asserts.h"
#include "iwarp/iwarp.h"

#include "hca/adapter.h"

void iwarp_fpdu_begin(struct iwarp_fpdu *f, const struct ddp_seg *seg)
{
	memset(f, 0, sizeof(*f));
	f->hdr_len = (uint8_t)(MPA_HDR_LEN + ddp_put(f->hdr + MPA_HDR_LEN, seg));
}

/* Those that are in segments already count until these have left: see check_depth(). */
bool iwarp_answer_owed(const struct iwarp_qp *s)
{
	return s->answer_next != s->answer_head;
}

static struct iwarp_answer *answer_at(struct iwarp_qp *s, uint32_t i)
{
	return &s->answer[i % HCA_MAX_RD_ATOMIC];
}

static bool add(struct hca_qp *qp, struct iwarp_fpdu *f)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_that(!s->tx.off);
	f->source = SOURCE_ANSWER;
	f->foreign = f->len;
	f->index = s->answer_next;
	if (!iwarp_writer_add(&s->writer, f, true)) {
		iwarp_end_answer(qp, f->index);
		return false;
	}
	s->tx.in_answer = !f->last;
	if (f->last) {
		s->answer_next++;
		s->tx.answer_turn = false;
	}
	return true;
}

static bool build_atomic(struct hca_qp *qp, const struct iwarp_answer *a)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct iwarp_fpdu f;

	iwarp_fpdu_begin(&f, &(struct ddp_seg){.last = true,
				     .opcode = RDMAP_ATOMIC_RESPONSE,
				     .qn = QN_ATOMIC_RESPONSE,
				     .msn = s->tx.msn[QN_ATOMIC_RESPONSE]++});
	put_be32(f.hdr + f.hdr_len, a->id);
	put_be64(f.hdr + f.hdr_len + 4, a->original);
	f.hdr_len += RDMAP_ATOMIC_RESPONSE_LEN;
	f.last = true;
	return add(qp, &f);
}

static bool build_read(struct hca_qp *qp, struct iwarp_answer *a)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	uint32_t most = iwarp_writer_most(&s->writer, true), len = a->size - a->built;
	struct ddp_seg seg = {.tagged = true,
		.last = len <= most,
		.opcode = RDMAP_READ_RESPONSE,
		.stag = a->sink_stag,
		.to = a->sink_to + a->built};
	struct iwarp_fpdu f;

	iwarp_fpdu_begin(&f, &seg);
	f.last = seg.last;
	f.off = a->built;
	f.len = seg.last ? len : most;
	a->built += f.len;
	return add(qp, &f);
}

bool iwarp_answer_build(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	struct iwarp_answer *a = answer_at(s, s->answer_next);
	uint32_t most = iwarp_writer_most(&s->writer, true), len = a->size - a->built;

	if (!iwarp_writer_has_room(&s->writer, len < most ? len : most, true))
		return false;
	return a->atomic ? build_atomic(qp, a) : build_read(qp, a);
}

bool iwarp_answer_gather(struct hca_qp *qp, const struct iwarp_fpdu *f, uint32_t off, uint32_t len,
	struct iovec *iov, unsigned *n)
{
	const struct iwarp_answer *a = answer_at(iwarp_qp(qp), f->index);
	void *p = hca_qp_target(qp, a->stag, a->to + f->off + off, len, IBV_ACCESS_REMOTE_READ);

	*n = 1;
	iov[0] = (struct iovec){p, len};
	return p;
}
