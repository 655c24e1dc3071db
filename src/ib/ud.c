/* SPDX-License-Identifier: MIT */
/* Unreliable datagrams: one packet a message, the address in each request, 40 bytes of GRH before each. */
#include "ib/ibt.h"

#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "ib/echo.h"
#include "wire/lrh.h"

#include <string.h>

static void finish_sent(struct hca_qp *qp, uint64_t now)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	while (qp->sq.tail != r->next)
		hca_qp_complete_send(qp, IBV_WC_SUCCESS, now);
}

static bool put_datagram(struct hca_qp *qp, struct hca_send_wqe *w, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;
	bool imm = w->opcode == IBV_WR_SEND_WITH_IMM;
	struct frame_out *f = ibt_frame(out, BTH_LEN + DETH_LEN + (imm ? IMM_LEN : 0));
	unsigned n = 0;
	uint8_t *p = f->hdr + BTH_LEN;

	if (w->flags & IBV_SEND_INLINE) {
		if (w->length)
			out->iov[out->niov + n++] = (struct iovec){w->data, w->length};
	} else if (!hca_sge_gather(qp, w->sge, w->nsge, 0, w->length, 0, out->iov + out->niov,
			   FRAME_BATCH_IOV - out->niov, &n)) {
		out->nframes--;
		return false;
	}
	f->iov_count = (uint16_t)n;
	out->niov += n;
	f->payload_len = w->length;
	f->pad = (uint8_t)(-w->length & 3);
	bth_put(f->hdr, IBT_UD | (imm ? OP_SEND_ONLY_IMM : OP_SEND_ONLY), w->flags & IBV_SEND_SOLICITED,
		f->pad, qp->path.pkey, gid_is_mcast(w->ud.dest.dgid) ? QP_MULTICAST : w->ud.qpn, false,
		r->psn);
	put_be32(p, w->ud.qkey);
	put_be32(p + 4, hca_qpn(qp));
	if (imm)
		memcpy(p + DETH_LEN, &w->imm, IMM_LEN);
	r->psn = psn_add(r->psn, 1);
	return true;
}

/* A group's members cannot all be asked for echoes: multicast goes out as it comes. */
static bool take_window(struct hca_qp *qp, const struct hca_send_wqe *w, uint64_t now, uint64_t *ask)
{
	*ask = 0;
	if (gid_is_mcast(w->ud.dest.dgid))
		return true;
	return hca_qp_flow_take_unreliable(qp, qp->path.flow, flow_cost(1, w->length), now, ask);
}

bool ibt_ud_request(struct hca_qp *qp, uint64_t now, struct frame_batch *out)
{
	struct ibt_requester *r = &ibt_qp(qp)->req;

	if (hca_qp_state(qp) != IBV_QPS_RTS && hca_qp_state(qp) != IBV_QPS_SQD)
		return false;
	finish_sent(qp, now);
	if (hca_qp_state(qp) == IBV_QPS_SQD) {
		ibt_settle(qp, now);
		return false;
	}
	while (r->next != qp->sq.head) {
		struct hca_send_wqe *w = hca_sq_at(&qp->sq, r->next);
		uint64_t ask;

		ibt_path_aim(qp, &w->ud.dest, w->ud.qpn);
		if (!out->nframes)
			hca_path_address(&qp->path, out);
		else if (!hca_path_goes_with(&qp->path, out))
			break;
		if (frame_batch_full(out, w->nsge + 1u) || out->nframes + 2 > FRAME_BATCH_MAX)
			break;
		if (!take_window(qp, w, now, &ask))
			break;
		if (!put_datagram(qp, w, out)) {
			if (!out->nframes)
				hca_qp_fail_send(qp, IBV_WC_LOC_PROT_ERR, now);
			break;
		}
		r->next++;
		if (ask)
			ibt_echo_ask(out, qp->path.pkey, hca_qpn(qp), w->ud.qpn, ask);
	}
	if (!out->nframes && hca_qp_state(qp) == IBV_QPS_RTS)
		ibt_settle(qp, now);
	return out->nframes > 0;
}

/* IPv4 has no GRH: its header lies in the last 20 of the 40 bytes (IBA Annex A17.4.5.2). */
static void put_ipv4(uint8_t *h, const struct frame_in *in, uint32_t udp_payload)
{
	uint32_t sum = 0;

	h[0] = 0x45;
	h[1] = in->tclass;
	put_be16(h + 2, (uint16_t)(20 + 8 + udp_payload));
	put_be16(h + 6, 0x4000); /* DF */
	h[8] = in->hop_limit;
	h[9] = 17;
	memcpy(h + 12, in->sgid + 12, 4);
	memcpy(h + 16, in->dgid + 12, 4);
	for (int i = 0; i < 20; i += 2)
		sum += get_be16(h + i);
	sum = (sum & 0xffff) + (sum >> 16);
	put_be16(h + 10, (uint16_t) ~(sum + (sum >> 16)));
}

static void put_grh(uint8_t grh[GRH_LEN], const struct frame_in *in)
{
	uint32_t udp_payload = in->len + ICRC_LEN;

	memset(grh, 0, GRH_LEN);
	if (gid_is_v4(in->dgid)) {
		put_ipv4(grh + 20, in, udp_payload);
		return;
	}
	put_be32(grh, 6u << 28 | (uint32_t)in->tclass << 20);
	put_be16(grh + 4, (uint16_t)(8 + udp_payload));
	grh[6] = 17;
	grh[7] = in->hop_limit;
	memcpy(grh + 8, in->sgid, 16);
	memcpy(grh + 24, in->dgid, 16);
}

/*
 * What came is said in the completion, too (IBA Annex A17.4.5.1), but no field of ibv_wc is for it.
 * Mellanox's cards use the service level, which RoCE has none of, and UCX's ud_verbs drops what does not say
 * so there.
 */
static uint8_t packet_type(const struct frame_in *in)
{
	enum { UDP = 8, IPV6 = 1, IPV4 = 2 };

	return UDP | (gid_is_v4(in->dgid) ? IPV4 : IPV6);
}

/* A GRH of InfiniBand, as it came; without one the 40 bytes are nobody's. */
static void put_grh_ib(uint8_t out[GRH_LEN], const struct frame_in *in)
{
	struct grh h = {.tclass = in->tclass,
		.next = GRH_NXT_IBA,
		.hop_limit = in->hop_limit,
		.len = (uint16_t)(in->len + ICRC_LEN),
		.flow_label = in->flow_label};

	memset(out, 0, GRH_LEN);
	if (!in->has_grh)
		return;
	memcpy(h.sgid, in->grh->sgid, 16);
	memcpy(h.dgid, in->grh->dgid, 16);
	grh_put(out, &h);
}

/* Whom a datagram is from: RoCE has its addresses in the GRH alone. */
static void put_source(
	const struct hca_qp *qp, const struct frame_in *in, uint8_t grh[GRH_LEN], struct ibv_wc *wc)
{
	const struct hca_port *port = qp->path.port;

	if (!in->slid) {
		put_grh(grh, in);
		wc->wc_flags = IBV_WC_GRH;
		wc->sl = packet_type(in);
		return;
	}
	put_grh_ib(grh, in);
	wc->wc_flags = in->has_grh ? IBV_WC_GRH : 0;
	wc->sl = in->sl;
	wc->slid = in->slid;
	wc->dlid_path_bits =
		lid_is_unicast(in->dlid) ? (uint8_t)(in->dlid & ((1u << hca_port_lids(port).lmc) - 1)) : 0;
	wc->pkey_index = qp->attr.pkey_index;
}

void ibt_ud_receive(struct hca_qp *qp, const struct frame_in *in, const struct ibt_packet *p, uint32_t qkey,
	uint32_t src_qpn, uint64_t now)
{
	struct ibv_wc wc = {
		.opcode = IBV_WC_RECV,
		.byte_len = GRH_LEN + p->len,
		.src_qp = src_qpn,
	};
	uint8_t grh[GRH_LEN];

	/* No receive, wrong key, no room: a datagram is lost, nobody is told (IBA 9.8.3). */
	if (qkey != qp->attr.qkey || !(p->op->flags & OPF_SEND) ||
		(!qp->recv.valid && !hca_qp_take_recv(qp)) || wc.byte_len > qp->recv.length) {
		hca_qp_probe(qp, DROP, .why = "a datagram with a wrong Q_Key, or no receive it fits");
		return;
	}
	put_source(qp, in, grh, &wc);
	if (!hca_sge_scatter(qp, qp->recv.sge, qp->recv.nsge, 0, grh, GRH_LEN) ||
		!hca_sge_scatter(qp, qp->recv.sge, qp->recv.nsge, GRH_LEN, p->payload, p->len)) {
		hca_qp_fail_recv(qp, IBV_WC_LOC_PROT_ERR, IBV_EVENT_QP_FATAL, now);
		return;
	}
	if (p->op->flags & OPF_IMM) {
		memcpy(&wc.imm_data, p->ext, IMM_LEN);
		wc.wc_flags |= IBV_WC_WITH_IMM;
	}
	hca_qp_complete_recv(qp, &wc, p->solicited, now);
}
