/* SPDX-License-Identifier: MIT */
/*
 * The peer's requests to an RC or UC queue pair. Each check is a small function that returns a verdict; they
 * run in the order of IBA 9.7.4 and 9.8.3 until one has something to say. What a verdict means, on the wire
 * and for the QP, is one row of a table.
 */
#include "ib/execute.h"

#include "hca/adapter.h"

struct outcome {
	const char *what;
	int nak;                   /* AETH syndrome; -1: none */
	enum ibv_wc_status status; /* of the receive in hand */
	enum ibv_event_type event; /* when there is none */
	bool fatal;                /* RC: to ERR */
	bool once;                 /* one NAK per missing packet */
};

#define SUCCESS  IBV_WC_SUCCESS
#define NO_EVENT IBV_EVENT_QP_FATAL

static const struct outcome outcomes[VERDICTS] = {
	[GO_ON] = {"", -1, SUCCESS, NO_EVENT, false, false},
	[DONE] = {"", -1, SUCCESS, NO_EVENT, false, false},
	[DROP] = {"dropped", -1, SUCCESS, NO_EVENT, false, false},
	[DUPLICATE] = {"duplicate", -1, SUCCESS, NO_EVENT, false, false},
	[OUT_OF_SEQUENCE] = {"out of sequence", AETH_NAK | NAK_SEQ, SUCCESS, NO_EVENT, false, true},
	[NOT_READY] = {"no receive posted", AETH_RNR, SUCCESS, NO_EVENT, false, true},
	[BAD_REQUEST] = {"invalid request", AETH_NAK | NAK_INV_REQ, IBV_WC_REM_INV_REQ_ERR,
		IBV_EVENT_QP_REQ_ERR, true, false},
	[TOO_LONG] = {"longer than the receive", AETH_NAK | NAK_INV_REQ, IBV_WC_LOC_LEN_ERR,
		IBV_EVENT_QP_REQ_ERR, true, false},
	[NO_ACCESS] = {"access refused", AETH_NAK | NAK_ACCESS, IBV_WC_LOC_ACCESS_ERR,
		IBV_EVENT_QP_ACCESS_ERR, true, false},
	[LOCAL_FAULT] = {"local protection", AETH_NAK | NAK_OP, IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL, true,
		false},
	[CQ_OVERRUN] = {"no room in the completion queue", AETH_NAK | NAK_OP, SUCCESS, NO_EVENT, false,
		false},
};

static bool reliable(const struct hca_qp *qp)
{
	return qp->service.reliable;
}

/* ---- the checks, in order ---- */
/*
 * Messages of UC keep their order, or are lost. What lies behind the expected PSN may be a message of a peer
 * that began anew (IBA 9.8.2.2: every start counts), unless packets have taken two paths just now. One of
 * them may be by way of another process (link/steer.h), where they overtake each other, too.
 */
static bool is_disordered(struct ibt_responder *r, const struct ibt_packet *p, int32_t d)
{
	enum { DISORDER = 1024 };

	if (p->handed)
		r->disorder = DISORDER;
	else
		r->disorder -= r->disorder ? 1 : 0;
	return r->disorder && d < 0 && d >= -DISORDER;
}

/*
 * Or a path has left shared memory, or returned to it (path.c). In it packets keep their order, and beside it
 * they do: one that is ahead of all that came the same way, and behind what came the other way, was
 * overtaken. Unless there are more of them in a row than can be on their way: then the peer has begun anew.
 */
static bool was_overtaken(struct ibt_responder *r, const struct ibt_packet *p, int32_t d)
{
	enum { MOST = 2 * 4096, FAR = 1 << 20 };
	uint32_t *same = &r->last[p->local], *other = &r->last[!p->local];
	bool late = d < 0 && psn_diff(p->psn, *same) > 0 && r->overtaken < MOST;

	*same = p->psn;
	r->overtaken = late ? r->overtaken + 1 : 0;
	if (late)
		return true;
	if (d < 0)
		*other = p->psn; /* all begins anew */
	else if (psn_diff(p->psn, *other) > FAR)
		*other = psn_add(p->psn, -(uint32_t)FAR); /* so that it stays behind */
	return false;
}

static bool is_late(struct ibt_responder *r, const struct ibt_packet *p, int32_t d)
{
	return is_disordered(r, p, d) || was_overtaken(r, p, d);
}

static enum verdict check_psn(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	int32_t d = psn_diff(p->psn, r->epsn);

	if (reliable(qp)) {
		if (!d) {
			r->nak_sent = r->gap = false;
			if (r->nak_syndrome == (AETH_NAK | NAK_SEQ))
				r->nak_due = false; /* it came before we could complain */
		}
		return d < 0 ? DUPLICATE : d > 0 ? OUT_OF_SEQUENCE : GO_ON;
	}
	if (is_late(r, p, d))
		return DROP;
	/* UC (IBA 9.8.2.2): a hole ends the message in hand; what follows waits for the next start. */
	if (d) {
		r->in_message = false;
		r->discard = !(p->op->flags & OPF_START);
		r->epsn = p->psn;
		hca_qp_probe(qp, OUT_OF_SEQUENCE, .psn = p->psn);
	}
	if (p->op->flags & OPF_START)
		r->discard = false;
	if (r->discard) {
		r->epsn = psn_add(r->epsn, 1);
		return DROP;
	}
	return GO_ON;
}

static enum verdict check_sequence(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	if (p->op->flags & OPF_START) {
		if (r->in_message && reliable(qp))
			return BAD_REQUEST;
		r->in_message = false; /* UC: the message in hand is lost, a new one begins (IBA 9.8.2.2) */
		return GO_ON;
	}
	if (!r->in_message || r->is_write != !!(p->op->flags & OPF_WRITE))
		return BAD_REQUEST;
	return GO_ON;
}

static enum verdict check_length(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	uint32_t mtu = ibt_mtu(qp);
	unsigned f = p->op->flags;

	if (!(f & OPF_PAYLOAD))
		return p->len ? BAD_REQUEST : GO_ON;
	if (p->len > mtu || (!(f & OPF_END) && p->len != mtu))
		return BAD_REQUEST;
	if ((f & OPF_END) && !(f & OPF_START) && !p->len)
		return BAD_REQUEST;
	if (f & OPF_WRITE) {
		uint32_t len = f & OPF_START ? reth_get(p->ext).len : r->reth.len,
			 off = f & OPF_START ? 0 : r->off;

		if (len > HCA_MAX_MSG || p->len > len - off || ((f & OPF_END) && off + p->len != len))
			return BAD_REQUEST;
	} else if (!(f & OPF_START) && p->len > HCA_MAX_MSG - r->off) {
		return BAD_REQUEST;
	}
	return GO_ON;
}

/*
 * A requester may have max_dest_rd_atomic READs and atomics under way (IBA 9.7.4.1). It counts until the
 * response has arrived, we until it has left: who keeps to the depth never meets this. Duplicates do not
 * count.
 */
static enum verdict check_depth(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	unsigned owed = 0;

	if (!(p->op->flags & (OPF_READ | OPF_ATOMIC)))
		return GO_ON;
	for (uint32_t i = r->answer_tail; i != r->answer_head; i++)
		owed += r->answer[i % IBT_ANSWERS].first_time;
	return owed < qp->attr.max_dest_rd_atomic ? GO_ON : BAD_REQUEST;
}

/* SEND needs a receive at its start, WRITE with immediate at its end. */
static enum verdict check_receive(struct hca_qp *qp, const struct ibt_packet *p)
{
	unsigned f = p->op->flags;

	if (!((f & OPF_SEND) && (f & OPF_START)) && !((f & OPF_WRITE) && (f & OPF_IMM)))
		return GO_ON;
	if (qp->recv.valid || hca_qp_take_recv(qp))
		return GO_ON;
	return NOT_READY;
}

static enum verdict check_access(struct hca_qp *qp, const struct ibt_packet *p)
{
	unsigned f = p->op->flags;

	if ((f & OPF_RETH)) {
		struct reth h = reth_get(p->ext);
		unsigned right = f & OPF_READ ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;

		if (h.len > HCA_MAX_MSG)
			return BAD_REQUEST;
		if (!hca_qp_grants(qp, h.rkey, h.va, h.len, right))
			return NO_ACCESS;
	} else if (f & OPF_ATOMICETH) {
		struct atomiceth h = atomiceth_get(p->ext);
		void *at;

		if (!hca_qp_allows(qp, IBV_ACCESS_REMOTE_ATOMIC))
			return NO_ACCESS;
		if (h.va & 7)
			return BAD_REQUEST;
		at = hca_qp_target(qp, h.rkey, h.va, 8, IBV_ACCESS_REMOTE_ATOMIC);
		if (!at)
			return NO_ACCESS;
		if ((uintptr_t)at & 7)
			return BAD_REQUEST; /* a region whose iova is aligned otherwise than its memory */
	}
	return GO_ON;
}

/* ---- execution ---- */
static struct ibt_answer *answer_new(struct hca_qp *qp)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	if (r->answer_head - r->answer_tail >= IBT_ANSWERS)
		return NULL;
	qp->answer_at = 0;
	return &r->answer[r->answer_head++ % IBT_ANSWERS];
}

static enum verdict do_read(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	struct reth h = reth_get(p->ext);
	struct ibt_answer *a;

	a = answer_new(qp);
	if (!a)
		return DROP; /* duplicates took all places: it will come again */
	r->stage_reads -= r->stage_reads ? 1 : 0;
	r->msn = (r->msn + 1) & PSN_MASK;
	*a = (struct ibt_answer){.kind = ANSWER_READ,
		.first_time = true,
		.psn = p->psn,
		.npkts = ibt_npkts(h.len, ibt_mtu(qp)),
		.msn = r->msn,
		.va = h.va,
		.rkey = h.rkey,
		.len = h.len};
	r->epsn = psn_add(r->epsn, a->npkts);
	return DONE;
}

static uint64_t atomic_result(const void *op, uint64_t original)
{
	const struct ibt_packet *p = op;
	struct atomiceth h = atomiceth_get(p->ext);

	if ((p->opcode & 0x1f) == OP_FETCH_ADD)
		return original + h.swap_add;
	return original == h.compare ? h.swap_add : original;
}

static void answer_atomic(struct hca_qp *qp, uint32_t psn, uint64_t original, bool first_time)
{
	struct ibt_answer *a = answer_new(qp);

	if (a)
		*a = (struct ibt_answer){.kind = ANSWER_ATOMIC,
			.first_time = first_time,
			.psn = psn,
			.npkts = 1,
			.msn = ibt_qp(qp)->resp.msn,
			.original = original};
}

static enum verdict do_atomic(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	struct atomiceth h = atomiceth_get(p->ext);
	struct ibt_atomic *saved;
	uint64_t original;

	if (r->answer_head - r->answer_tail >= IBT_ANSWERS)
		return DROP; /* duplicates took all places: it will come again */
	if (!hca_atomic(hca_qp_target(qp, h.rkey, h.va, 8, IBV_ACCESS_REMOTE_ATOMIC), atomic_result, p,
		    &original))
		return NO_ACCESS;
	saved = &r->atomic[r->atomic_next++ % HCA_MAX_RD_ATOMIC]; /* all places: the depth may change */
	saved->valid = true;
	saved->psn = p->psn;
	saved->original = original;
	r->msn = (r->msn + 1) & PSN_MASK;
	r->epsn = psn_add(r->epsn, 1);
	answer_atomic(qp, p->psn, saved->original, true);
	return DONE;
}

static enum verdict do_data(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	unsigned f = p->op->flags, n;
	struct iovec to[HCA_MAX_SGE];
	enum verdict v = ibt_find_place(qp, p, f, to, &n);

	if (v != GO_ON)
		return v;
	if (!hca_iov_fill(to, n, p->payload))
		return f & OPF_WRITE ? NO_ACCESS : LOCAL_FAULT; /* registered, but unmapped since */
	v = ibt_finish(qp, p, f, 1, now);
	if (v == DONE && p->ackreq && reliable(qp))
		ibt_delay_ack(qp, now);
	return v;
}

static enum verdict execute(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	if (p->op->flags & OPF_READ)
		return do_read(qp, p);
	if (p->op->flags & OPF_ATOMIC)
		return do_atomic(qp, p);
	return do_data(qp, p, now);
}

enum { STAGED_READS = 256 };

/* ---- duplicates: answered again, never executed again (IBA 9.7.5.1.5) ---- */
static void duplicate_read(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;
	struct reth h = reth_get(p->ext);
	uint32_t npkts = ibt_npkts(h.len, ibt_mtu(qp));
	struct ibt_answer *a;

	/* It may be a later part of the first one, but must not reach into what has not been asked yet. */
	if (h.len > HCA_MAX_MSG || psn_diff(psn_add(p->psn, npkts), r->epsn) > 0)
		return;
	if (!hca_qp_grants(qp, h.rkey, h.va, h.len, IBV_ACCESS_REMOTE_READ))
		return;
	a = answer_new(qp);
	r->stage_reads = STAGED_READS;
	if (a)
		*a = (struct ibt_answer){.kind = ANSWER_READ,
			.psn = p->psn,
			.npkts = npkts,
			.msn = r->msn,
			.va = h.va,
			.rkey = h.rkey,
			.len = h.len};
}

static void duplicate_atomic(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	for (unsigned i = 0; i < HCA_MAX_RD_ATOMIC; i++) {
		if (r->atomic[i].valid && r->atomic[i].psn == p->psn) {
			answer_atomic(qp, p->psn, r->atomic[i].original, false);
			return;
		}
	}
}

static void duplicate(struct hca_qp *qp, const struct ibt_packet *p)
{
	hca_qp_probe(qp, DUPLICATE, .psn = p->psn);
	qp->answer_at = 0; /* the peer is waiting */
	if (p->op->flags & OPF_READ)
		duplicate_read(qp, p);
	else if (p->op->flags & OPF_ATOMIC)
		duplicate_atomic(qp, p);
	else
		ibt_qp(qp)->resp.ack_due = true;
}

/* ---- verdicts ---- */
static void answer_nak(struct hca_qp *qp, const struct outcome *o)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	if (o->once && r->nak_sent)
		return;
	r->nak_sent = o->once;
	r->nak_due = true;
	qp->answer_at = 0;
	r->nak_psn = r->epsn;
	r->nak_syndrome = (uint8_t)o->nak;
	if (o->nak == AETH_RNR) {
		r->nak_syndrome |= qp->attr.min_rnr_timer;
		hca_qp_probe(qp, RNR_TX, .psn = r->nak_psn);
	} else {
		hca_qp_probe(qp, NAK_TX, .psn = r->nak_psn, .syndrome = r->nak_syndrome);
	}
}

/* UC tells its peer nothing: the message is lost. Only what our own program did wrong is an error. */
static void act_unreliable(struct hca_qp *qp, enum verdict v, const struct outcome *o, uint64_t now)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	hca_qp_probe(qp, DROP, .why = o->what);
	r->in_message = false;
	r->discard = true;
	r->epsn = psn_add(r->epsn, 1);
	if (v == LOCAL_FAULT || v == TOO_LONG)
		hca_qp_fail_recv(qp, o->status, o->event, now);
}

/*
 * One NAK per gap. But when the packet that showed the gap comes again, behind later ones, the peer has gone
 * back as it was told, and what is missing was lost once more.
 */
static void note_gap(struct hca_qp *qp, const struct ibt_packet *p)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	hca_qp_probe(qp, OUT_OF_SEQUENCE, .psn = p->psn);
	if (!r->gap) {
		r->gap = true;
		r->gap_past = false;
		r->gap_shown = p->psn;
	} else if (psn_diff(p->psn, r->gap_shown) > 0) {
		r->gap_past = true;
	} else if (r->gap_past) {
		r->nak_sent = r->gap_past = false;
		r->gap_shown = p->psn;
	}
}

static void act(struct hca_qp *qp, const struct ibt_packet *p, enum verdict v, uint64_t now)
{
	const struct outcome *o = &outcomes[v];

	if (v == DONE)
		return;
	if (v == DUPLICATE) {
		duplicate(qp, p);
		return;
	}
	PROBE(VERDICT, .qpn = hca_qpn(qp), .opcode = p->opcode, .psn = p->psn, .verdict = o->what);
	if (v == OUT_OF_SEQUENCE)
		note_gap(qp, p);
	if (v == DROP) {
		hca_qp_probe(qp, DROP, .why = o->what);
		return;
	}
	if (!reliable(qp)) {
		act_unreliable(qp, v, o, now);
		return;
	}
	answer_nak(qp, o);
	if (o->fatal)
		hca_qp_fail_recv(qp, o->status, o->event, now);
}

void ibt_respond_lost(struct hca_qp *qp)
{
	answer_nak(qp, &outcomes[OUT_OF_SEQUENCE]);
}

bool ibt_respond_to(struct hca_qp *qp, const struct ibt_packet *p, uint64_t now)
{
	static enum verdict (*const checks[])(struct hca_qp *, const struct ibt_packet *) = {
		check_psn, check_sequence, check_length, check_depth, check_receive, check_access};
	enum verdict v = GO_ON;

	assert_locked(&qp->lock);
	for (unsigned i = 0; i < sizeof(checks) / sizeof(checks[0]) && v == GO_ON; i++)
		v = checks[i](qp, p);
	if (v == GO_ON)
		v = execute(qp, p, now);
	act(qp, p, v, now);
	return v == DONE || v == DUPLICATE;
}
