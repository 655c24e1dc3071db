/* SPDX-License-Identifier: MIT */
/*
 * The life of a connection.
 *
 *        iwarp_open()        iwarp_abort()           iwarp_life(): all has left
 *   NONE -----------> OPEN ----------------> ENDING ----------------------------> FINISH
 *                      |                        |                                    |
 *                      | iwarp_abort(): in      | source_gone(); iwarp_give_up():    | iwarp_give_up()
 *                      v mid FPDU               v it is not taken                    v
 *                    RESET                    RESET                                GONE
 *
 * Any but NONE: ---> GONE by iwarp_lost(): the peer has closed, or the connection is lost. Back to NONE by
 * iwarp_reset(), with everything else. An error, here or of the peer's, is a queue pair that goes to ERR, and
 * that is iwarp_abort().
 */
#include "iwarp/iwarp.h"

#include "base/asserts.h"

#include <string.h>

static const char *const names[] = {
	[IWARP_NONE] = "NONE",
	[IWARP_OPEN] = "OPEN",
	[IWARP_ENDING] = "ENDING",
	[IWARP_FINISH] = "FINISH",
	[IWARP_RESET] = "RESET",
	[IWARP_GONE] = "GONE",
};

#define FROM(life) (1u << IWARP_##life)

/* Where one can come from. */
static const unsigned from[] = {
	[IWARP_OPEN] = FROM(NONE),
	[IWARP_ENDING] = FROM(OPEN),
	[IWARP_FINISH] = FROM(ENDING),
	[IWARP_RESET] = FROM(OPEN) | FROM(ENDING) | FROM(GONE), /* given up just when the peer closed */
	[IWARP_GONE] = FROM(ENDING) | FROM(FINISH) | FROM(RESET),
};

static void set_life(struct hca_qp *qp, enum iwarp_life life)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	if (s->life == life)
		return;
	assert_that(from[life] >> s->life & 1);
	PROBE(RDMAP_STATE, .qpn = hca_qpn(qp), .from = names[s->life], .to = names[life]);
	s->life = life;
}

/* ---- what the writer asks ---- */
static bool gather(void *arg, const struct iwarp_fpdu *f, uint32_t off, uint32_t len, struct iovec *iov,
	unsigned max, unsigned *n)
{
	struct hca_qp *qp = arg;
	struct iovec all[HCA_MAX_SGE];
	struct hca_send_wqe *w;

	if (f->source == SOURCE_ANSWER)
		return iwarp_answer_gather(qp, f, off, len, iov, n);
	w = hca_sq_at(&qp->sq, f->index);
	if (!hca_wqe_gather(qp, w, f->off + off, len, 0, all, HCA_MAX_SGE, n))
		return false;
	*n = *n < max ? *n : max;
	memcpy(iov, all, *n * sizeof(*iov));
	return true;
}

static void done(void *arg, const struct iwarp_fpdu *f)
{
	struct hca_qp *qp = arg;
	struct iwarp_qp *s = iwarp_qp(qp);

	if (s->life != IWARP_OPEN || !f->last)
		return;
	if (f->source == SOURCE_ANSWER) {
		s->answer_tail++;
	} else if (f->source == SOURCE_REQUEST) {
		hca_sq_at(&qp->sq, f->index)->started = WQE_DONE;
		iwarp_settle(qp);
	}
}

static const struct iwarp_writer_ops writer_ops = {.gather = gather, .done = done};

/* ---- beginning ---- */
/* A responder that may not speak before it has come. */
static bool awaits_rtr(const struct iwarp_params *p)
{
	return !p->initiator && p->rtr;
}

void iwarp_open(struct hca_qp *qp, const struct iwarp_params *p, void *rx_stage, void *tx_stage,
	uint32_t mulpdu, uint64_t now)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	memset(s, 0, sizeof(*s));
	s->params = *p;
	if (s->params.ird > HCA_MAX_RD_ATOMIC)
		s->params.ird = HCA_MAX_RD_ATOMIC;
	s->now = now;
	s->tx.next = qp->sq.tail;
	for (unsigned q = 0; q < QN_COUNT; q++)
		s->tx.msn[q] = s->rx.msn[q] = 1;
	s->tx.held = !p->initiator || !p->extended;
	if (s->tx.held && !awaits_rtr(p))
		qp->deadline = now + IWARP_GRACE;
	s->tx.rtr_due = p->initiator ? p->rtr : 0;
	iwarp_reader_init(
		&s->reader, &iwarp_segment_ops, qp, rx_stage, IWARP_STAGE, p->crc, p->expect_markers);
	iwarp_writer_init(
		&s->writer, &writer_ops, qp, tx_stage, IWARP_STAGE_OUT, mulpdu, p->crc, p->send_markers);
	set_life(qp, IWARP_OPEN);
}

/* ---- going out ---- */
/* What is next in the queue cannot be sent: its memory is gone. */
static void source_gone(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	const struct iwarp_fpdu *f = &s->writer.fpdu[s->writer.tail % IWARP_FPDUS];

	if (s->life != IWARP_OPEN || iwarp_writer_empty(&s->writer)) {
		set_life(qp, IWARP_RESET);
		return;
	}
	if (f->source == SOURCE_REQUEST)
		iwarp_fail_request(qp, f->index, IBV_WC_LOC_PROT_ERR);
	else
		iwarp_end_answer(qp, f->index);
}

unsigned iwarp_send_iov(struct hca_qp *qp, bool driving, uint64_t now, struct iovec *iov, unsigned max)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	unsigned n = 0;

	assert_locked(&qp->lock);
	s->now = now;
	iwarp_build(qp, driving);
	while (s->life == IWARP_OPEN || s->life == IWARP_ENDING) {
		if (iwarp_writer_iov(&s->writer, driving, iov, max, &n))
			return n;
		source_gone(qp);
	}
	return 0;
}

void iwarp_sent(struct hca_qp *qp, size_t n, uint64_t now)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	s->now = now;
	if (s->life == IWARP_OPEN || s->life == IWARP_ENDING)
		iwarp_writer_sent(&s->writer, n);
}

void iwarp_send_fault(struct hca_qp *qp, uint64_t now)
{
	assert_locked(&qp->lock);
	iwarp_qp(qp)->now = now;
	source_gone(qp);
}

bool iwarp_sends_read(struct hca_qp *qp)
{
	return iwarp_qp(qp)->answer_head != iwarp_qp(qp)->answer_tail;
}

/* ---- coming in ---- */
bool iwarp_takes_write(struct hca_qp *qp)
{
	return iwarp_qp(qp)->reader.direct && iwarp_qp(qp)->rx.seg.opcode == RDMAP_WRITE;
}

/* Acts on what the reader said. */
static void act_on(struct hca_qp *qp, int v)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	if (v > 0)
		iwarp_end(qp, (enum rdmap_error)v);
	if (s->life != IWARP_OPEN)
		return;
	if (v == IWARP_WAIT && !s->rx.waiting)
		qp->deadline = s->rx.give_up_at = s->now + IWARP_PATIENCE;
	if (v != IWARP_WAIT && s->rx.waiting)
		qp->deadline = 0;
	s->rx.waiting = v == IWARP_WAIT;
}

unsigned iwarp_recv_iov(struct hca_qp *qp, uint64_t now, struct iovec *iov, unsigned max)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	unsigned n = 0;

	assert_locked(&qp->lock);
	s->now = now;
	if (s->life == IWARP_OPEN && s->rx.waiting)
		act_on(qp, iwarp_reader_run(&s->reader));
	if (s->life == IWARP_OPEN) {
		if (s->rx.waiting)
			return 0;
		act_on(qp, iwarp_reader_want(&s->reader, iov, max, &n));
	}
	if (!s->silent)
		return s->life == IWARP_OPEN ? n : 0;
	iov[0] = (struct iovec){s->reader.stage, s->reader.size};
	return 1;
}

void iwarp_received(struct hca_qp *qp, size_t n, uint64_t now)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	s->now = now;
	if (s->life == IWARP_OPEN)
		act_on(qp, iwarp_reader_got(&s->reader, n));
}

void iwarp_recv_fault(struct hca_qp *qp, uint64_t now)
{
	assert_locked(&qp->lock);
	iwarp_qp(qp)->now = now;
	act_on(qp, iwarp_segment_ops.fault(qp));
}

/* ---- the end ---- */
void iwarp_lost(struct hca_qp *qp, uint64_t now)
{
	struct iwarp_qp *s = iwarp_qp(qp);
	bool open = s->life == IWARP_OPEN;

	assert_locked(&qp->lock);
	s->now = now;
	if (s->life == IWARP_NONE)
		return;
	if (open)
		hca_qp_set_state(qp, IBV_QPS_ERR);
	set_life(qp, IWARP_GONE);
	s->silent = false;
}

void iwarp_give_up(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	set_life(qp, iwarp_life(qp) == IWARP_FINISH ? IWARP_GONE : IWARP_RESET);
	s->silent = false;
}

enum iwarp_life iwarp_life(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	if (s->life == IWARP_ENDING && iwarp_writer_empty(&s->writer))
		set_life(qp, IWARP_FINISH);
	return s->life;
}

bool iwarp_owes(struct hca_qp *qp)
{
	return iwarp_answer_owed(iwarp_qp(qp));
}

uint32_t iwarp_writes(struct hca_qp *qp)
{
	return iwarp_qp(qp)->rx.writes;
}

bool iwarp_needs_recv(struct hca_qp *qp)
{
	return iwarp_qp(qp)->rx.waiting;
}

void iwarp_reset(struct hca_qp *qp)
{
	memset(qp->stream_state, 0, sizeof(struct iwarp_qp));
}

/* To ERR: requests and receives are about to be flushed. */
void iwarp_abort(struct hca_qp *qp)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	if (s->life == IWARP_OPEN) {
		set_life(qp, iwarp_writer_cut(&s->writer) ? IWARP_ENDING : IWARP_RESET);
		s->silent = s->life == IWARP_ENDING;
	}
	s->tx.next = qp->sq.head;
	s->tx.off = s->tx.reads = 0;
	s->tx.failed = IBV_WC_SUCCESS;
	s->tx.in_answer = s->rx.waiting = false;
	s->answer_tail = s->answer_next = s->answer_head;
}

void iwarp_modified(struct hca_qp *qp, int mask, uint64_t now)
{
	iwarp_qp(qp)->now = now;
	if (hca_qp_state(qp) == IBV_QPS_SQD && iwarp_qp(qp)->life == IWARP_OPEN)
		iwarp_settle(qp);
}

void iwarp_timer(struct hca_qp *qp, uint64_t now)
{
	struct iwarp_qp *s = iwarp_qp(qp);

	assert_locked(&qp->lock);
	s->now = now;
	qp->deadline = 0;
	if (!awaits_rtr(&s->params))
		s->tx.held = false;
	if (s->life == IWARP_OPEN && s->rx.waiting) {
		act_on(qp, iwarp_reader_run(&s->reader));
		if (s->rx.waiting && now >= s->rx.give_up_at)
			iwarp_end(qp, ERR_DDP_NO_BUFFER);
		else if (s->rx.waiting)
			qp->deadline = s->rx.give_up_at;
	}
}
