/* SPDX-License-Identifier: MIT */
/* The door of the IBA transport: takes frames apart, checks what every service checks, and dispatches. */
#include "ib/ibt.h"

#include "base/log.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "wire/qpn.h"

#include <string.h>

void ibt_abort(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	/* What was in flight is nobody's any more. */
	if (qp->path.flow && qp->service.reliable)
		ibt_release_all(qp);
	r->una = r->acked = r->sent = r->high = r->asked = r->psn;
	r->rnr_until = r->rec.ack_by = r->rec.probe_at = 0;
	r->failed = IBV_WC_SUCCESS;
	r->next = qp->sq.head;
	r->pkt = 0;
}

void ibt_reset(struct hca_qp *qp)
{
	ibt_abort(qp);
	memset(qp->frame_state, 0, sizeof(struct ibt_qp));
}

static bool is_under_way(struct hca_qp *qp)
{
	return qp->sq.tail != qp->sq.head && hca_sq_at(&qp->sq, qp->sq.tail)->started;
}

/*
 * From SQE, where all was flushed, from SQD, or it is in RTS already. What has left and is not completed yet
 * does not leave again. UC: numbers of what has not left are the next one's; who waits for all to be done
 * waits for no more. A message that is under way, or that SQD has stopped there, keeps those that it has.
 */
static void resume_unreliable(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if ((int32_t)(r->next - qp->sq.tail) < 0)
		r->next = qp->sq.tail;
	if (qp->service.connected && !is_under_way(qp))
		r->psn = r->una = r->sent;
}

void ibt_modified(struct hca_qp *qp, int mask, uint64_t now)
{
	struct ibt_qp *s = ibt_qp(qp);

	if (mask & IBV_QP_RQ_PSN) {
		s->resp.epsn = qp->attr.rq_psn;
		s->resp.ack_psn = psn_add(qp->attr.rq_psn, PSN_MASK);
		s->resp.last[0] = s->resp.last[1] = s->resp.ack_psn;
	}
	if (mask & IBV_QP_SQ_PSN)
		ibt_requester_start(qp);
	if (mask & IBV_QP_RETRY_CNT)
		s->req.retries = qp->attr.retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		s->req.rnr_retries = qp->attr.rnr_retry;
	if (hca_qp_state(qp) == IBV_QPS_RTS && (mask & IBV_QP_STATE) && !(mask & IBV_QP_SQ_PSN) &&
		!qp->service.reliable)
		resume_unreliable(qp);
	if (hca_qp_state(qp) == IBV_QPS_SQD)
		ibt_settle(qp, now);
}

bool ibt_requests(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	return !qp->service.connected ? ibt_ud_request(qp, now, out) : ibt_request(qp, now, out);
}

bool ibt_answers(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	return qp->service.reliable ? ibt_respond(qp, now, out) : false;
}

void ibt_answered(struct hca_qp *qp)
{
	ibt_qp(qp)->resp.ack_leaving = false;
}

bool ibt_nothing_started(struct hca_qp *qp)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	return r->next == qp->sq.tail && r->una == r->sent && !r->pkt && !r->failed && !r->rnr_until &&
	       !hca_sq_at(&qp->sq, r->next)->started;
}

void ibt_skip_oldest(struct hca_qp *qp)
{
	ibt_qp(qp)->req.next = qp->sq.tail;
}

bool ibt_is_idle(struct hca_qp *qp)
{
	const struct ibt_requester *r = &ibt_qp(qp)->req;
	const struct ibt_responder *p = &ibt_qp(qp)->resp;

	return r->una == r->psn && !r->failed && !r->rnr_until && p->answer_head == p->answer_tail &&
	       !p->ack_leaving && !p->nak_due;
}

/* What left by the other path may be behind what leaves from now on. */
void ibt_ack_again(struct hca_qp *qp)
{
	struct ibt_responder *r = &ibt_qp(qp)->resp;

	r->ack_due |= qp->service.reliable && r->ack_asked_at;
}

void ibt_leave_onesided(struct hca_qp *qp)
{
	if (qp->sq.tail != qp->sq.head)
		hca_sq_at(&qp->sq, qp->sq.tail)->moved = 0;
	qp->moving = false;
	qp->direct_min_len = 0;
}

/* ---- receiving ---- */
static bool parse_packet(const struct frame_in *in, struct ibt_packet *p)
{
	const uint8_t *b = in->bytes;

	if (in->len < BTH_LEN || bth_tver(b))
		return false;
	p->opcode = bth_opcode(b);
	p->op = ibt_op_lookup(p->opcode);
	return p->op && ibt_parse(in, BTH_LEN + ((p->opcode & IBT_SERVICE_MASK) == IBT_UD ? DETH_LEN : 0), p);
}

static bool can_receive(const struct hca_qp *qp)
{
	enum ibv_qp_state s = hca_qp_state(qp);

	return s == IBV_QPS_RTR || s == IBV_QPS_RTS || s == IBV_QPS_SQD || s == IBV_QPS_SQE;
}

static bool from_peer(const struct hca_qp *qp, const struct frame_in *in)
{
	return !memcmp(in->sgid, qp->path.dest.dgid, 16) && !memcmp(in->dgid, qp->path.dest.sgid, 16);
}

/* A datagram is for any address of its port, or for a group: of two ports of an adapter each brings its copy.
 */
static bool for_port(struct hca_qp *qp, const struct frame_in *in)
{
	struct hca_port *port = qp->path.port;

	if (!gid_is_mcast(in->dgid))
		return hca_port_is_at(port, in->dgid);
	return !hca_port_is_ib(port) || in->ifindex == port->ib.index + 1;
}

/*
 * On a fabric a datagram names a queue pair of its sender's as its source: fabricd/trunk.c sees to that where
 * it comes by packets.
 */
static bool names_its_sender(const struct frame_in *in)
{
	return !in->from || !in->slid || qpn_slot(get_be24(in->bytes + BTH_LEN + 5)) == in->slot;
}

bool ibt_receive(struct hca_qp *qp, const struct frame_in *in, uint64_t now)
{
	struct ibt_packet p;

	if (parse_packet(in, &p))
		return ibt_receive_packet(qp, in, &p, now);
	hca_qp_probe(qp, DROP, .why = "malformed");
	return false;
}

/* Its P_Key may be another one by now, and it may not have sent since. */
static bool is_of_partition(struct hca_qp *qp, uint16_t pkey)
{
	if (pkey_matches(pkey, qp->path.pkey))
		return true;
	hca_qp_follow_pkey(qp);
	return pkey_matches(pkey, qp->path.pkey);
}

bool ibt_receive_packet(
	struct hca_qp *qp, const struct frame_in *in, const struct ibt_packet *p, uint64_t now)
{
	bool ud = !qp->service.connected;

	if ((p->opcode & IBT_SERVICE_MASK) != ibt_service(qp) || !is_of_partition(qp, bth_pkey(in->bytes))) {
		hca_qp_probe(qp, DROP, .why = "of another service, or of another partition");
		return false;
	}
	if (!can_receive(qp)) {
		hca_qp_probe(qp, NOT_READY, .state = hca_qp_state(qp));
		return false;
	}
	if (ud ? !for_port(qp, in) || !names_its_sender(in) : !from_peer(qp, in)) {
		hca_qp_probe(qp, WRONG_PEER);
		return false;
	}
	if (hca_qp_state(qp) == IBV_QPS_RTR && !ud && !qp->comm_est_raised) {
		qp->comm_est_raised =
			true; /* the peer speaks before our program went on to RTS (IBA 11.6.3.1) */
		hca_qp_raise(qp, IBV_EVENT_COMM_EST);
		hca_export_qp(qp->adapter, qp); /* nothing more to see for us */
	}
	if (ud) {
		const uint8_t *deth = in->bytes + BTH_LEN;

		ibt_ud_receive(qp, in, p, get_be32(deth), get_be24(deth + 5), now);
	} else if (p->op->flags & OPF_RESPONSE) {
		if (hca_qp_state(qp) != IBV_QPS_RTR)
			ibt_complete(qp, p, now);
	} else {
		return ibt_respond_to(qp, p, now);
	}
	return true;
}
