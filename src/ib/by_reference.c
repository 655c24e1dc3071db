/* SPDX-License-Identifier: MIT */
/*
 * Messages whose bytes do not travel: on one host the sender says where they lie (base/frame.h: by
 * reference), and the receiver fetches them, straight to where they belong. One frame stands for all packets
 * of the message, and has all their PSNs; so whatever goes before or comes after may go by packets, and so
 * may the message itself, should it have to be sent again.
 *
 * Where all is as usual the receiver executes it at once. Where not (no receive, one that is too short, a
 * missing right, the first message in RTR) it makes the packets and hands them to the responder one by one,
 * until one is refused: the peer hears what it would have heard over the wire.
 */
#include "ib/execute.h"

enum {
	BY_REF_MAX = 4 << 20, /* longer ones would keep the receiver from everything else for too long */
	/* Looks, of which a message takes one or two: a peer that could not fetch, or had no room, just then
	 * is asked again soon enough, and one that never can seldom enough. */
	BY_REF_PAUSE = 1024,
};

_Static_assert(sizeof(struct frame_ref) == sizeof(struct ibv_sge) &&
		       offsetof(struct frame_ref, len) == offsetof(struct ibv_sge, length) &&
		       offsetof(struct frame_ref, key) == offsetof(struct ibv_sge, lkey),
	"a list of entries is a list of places");

/* ---- sending ---- */
/* One that would have gone by reference goes by packets instead. */
static bool pauses(struct ibt_requester *r)
{
	return r->by_ref_pause && r->by_ref_pause--;
}

static bool may_go(struct hca_qp *qp, const struct hca_send_wqe *w)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	/* Charged by itself and not by bytes: nothing before it may be open (charge_of). */
	return w->length <= BY_REF_MAX && w->nsge <= FRAME_REFS && !r->reads &&
	       w->opcode != IBV_WR_SEND_WITH_INV &&
	       (uint32_t)psn_diff(r->psn, r->una) + ibt_npkts(w->length, ibt_mtu(qp)) <= IBT_PSNS_OUT &&
	       hca_sge_goes_by_ref(qp, w) && !pauses(r);
}

bool ibt_put_by_ref(struct hca_qp *qp, struct hca_send_wqe *w, struct frame_out *f, struct iovec *iov)
{
	if (!may_go(qp, w))
		return false;
	iov[0] = (struct iovec){w->sge, w->nsge * sizeof(w->sge[0])};
	f->own = 1;
	f->by_ref = frame_by_ref(qp->attr.path_mtu, qp->generation);
	f->iov_first = 0;
	f->iov_count = 1;
	f->payload_len = (uint32_t)iov[0].iov_len;
	f->pad = f->copy = 0;
	w->by_ref = true;
	return true;
}

void ibt_by_ref_failed(struct hca_qp *qp)
{
	ibt_qp(qp)->req.by_ref_pause = BY_REF_PAUSE;
	ibt_move_to(qp, ibt_qp(qp)->req.acked);
}

void ibt_by_ref_refused(struct hca_qp *qp, uint32_t psn)
{
	const struct hca_send_wqe *w = ibt_wqe_at(qp, psn);

	if (w && w->by_ref)
		ibt_qp(qp)->req.by_ref_pause = BY_REF_PAUSE;
}

/* ---- receiving ---- */
struct message {
	const struct frame_in *in;
	struct ibt_packet p; /* as if it were one */
	uint32_t npkts, mtu; /* as its sender cuts it */
	ibt_fetch_fn *fetch;
	void *arg;
};

static bool parse_message(struct message *m, const struct frame_in *in)
{
	const uint8_t *b = in->bytes;
	uint8_t opcode = bth_opcode(b), mtu = in->by_ref & FRAME_BY_REF_MTU;

	if (!ibt_is_whole(opcode) || !mtu || mtu > IBV_MTU_4096 || in->ref_len > BY_REF_MAX)
		return false;
	m->in = in;
	m->p = (struct ibt_packet){
		.op = &ibt_op_table[opcode & 0x1f],
		.opcode = opcode,
		.psn = bth_psn(b),
		.solicited = bth_solicited(b),
		.local = in->local,
		.handed = in->handed,
		.ext = b + BTH_LEN,
		.len = (uint32_t)in->ref_len,
	};
	m->mtu = 128u << mtu;
	m->npkts = ibt_npkts(m->p.len, m->mtu);
	return in->head_len == (uint32_t)BTH_LEN + m->p.op->ext_len;
}

static bool execute(struct hca_qp *qp, const struct message *m, uint64_t now)
{
	if (!m->p.len || m->mtu != ibt_mtu(qp) || !ibt_is_next(qp, m->in, m->p.psn) ||
		ibt_qp(qp)->resp.in_message || !ibt_execute_whole(qp, &m->p, m->npkts, m->fetch, m->arg, now))
		return false;
	qp->count->rx_packets += m->npkts;
	qp->count->rx_bytes += m->npkts * BTH_LEN + m->p.op->ext_len + (uint64_t)m->p.len;
	return true;
}

/* ---- packet by packet ---- */
/* Packet k of it, without its bytes: the first has the first headers of the whole, the last has the last. */
static struct ibt_packet packet_at(const struct message *m, uint32_t k)
{
	uint8_t op = ibt_op_at(m->p.opcode & 0x1f, !k, k + 1 == m->npkts);
	uint32_t off = k * m->mtu;
	struct ibt_packet p = m->p;

	p.op = &ibt_op_table[op];
	p.opcode = IBT_RC | op;
	p.psn = psn_add(p.psn, k);
	p.len = p.len - off < m->mtu ? p.len - off : m->mtu;
	if (k)
		p.ext += m->p.op->ext_len - p.op->ext_len;
	return p;
}

static bool by_packets(struct hca_qp *qp, const struct message *m, uint64_t now)
{
	uint8_t payload[4096];

	for (uint32_t k = 0; k < m->npkts; k++) {
		struct ibt_packet p = packet_at(m, k);
		struct iovec to = {payload, p.len};

		p.payload = payload;
		if (p.len && !m->fetch(m->arg, k * m->mtu, &to, 1, p.len)) {
			if (ibt_is_next(qp, m->in, p.psn))
				ibt_respond_lost(qp);
			return false;
		}
		qp->count->rx_packets++;
		qp->count->rx_bytes += BTH_LEN + p.op->ext_len + p.len + (-p.len & 3);
		if (!ibt_receive_packet(qp, m->in, &p, now))
			return false;
	}
	return true;
}

bool ibt_receive_by_ref(
	struct hca_qp *qp, const struct frame_in *in, ibt_fetch_fn *fetch, void *arg, uint64_t now)
{
	struct message m = {.fetch = fetch, .arg = arg};

	if (!qp->service.reliable || !parse_message(&m, in)) {
		hca_qp_probe(qp, DROP, .why = "a message by reference that makes no sense");
		return false;
	}
	return execute(qp, &m, now) || by_packets(qp, &m, now);
}
