/* SPDX-License-Identifier: MIT */
#include "hca/gsi.h"

#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/engine.h"
#include "host/ports.h"
#include "wire/ibt.h"

#include <errno.h>
#include <string.h>

enum { GSI_FRAME_LEN = BTH_LEN + DETH_LEN + MAD_LEN };

/* ---- out ---- */
int hca_gsi_send(struct hca_adapter *a, const struct frame_dest *to, const uint8_t mad[MAD_LEN])
{
	struct frame_batch b;
	struct frame_out *f = &b.frame[0];
	int err;

	b.dest = *to;
	b.nframes = b.niov = 1;
	*f = (struct frame_out){.hdr_len = BTH_LEN + DETH_LEN, .payload_len = MAD_LEN, .iov_count = 1};
	b.iov[0] = (struct iovec){(void *)mad, MAD_LEN};
	bth_put(f->hdr, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, QP_GSI, false,
		atomic_fetch_add(&a->gsi.psn, 1) & PSN_MASK);
	put_be32(f->hdr + BTH_LEN, GSI_QKEY);
	put_be32(f->hdr + BTH_LEN + 4, QP_GSI);
	err = hca_engine_send(&a->engine, &b);
	if (!err)
		hca_gsi_count(&a->count->mads_sent);
	return err;
}

struct frame_dest hca_gsi_reply_to(const struct hca_gsi_from *from)
{
	struct frame_dest to = {.ifindex = from->ifindex, .tclass = from->tclass, .hop_limit = 64};

	memcpy(to.sgid, from->dgid, 16);
	memcpy(to.dgid, from->sgid, 16);
	return to;
}

/* ---- in ---- */
/* A whole MAD for an address of ours, with the well-known key (IBA 13.5.3.3). */
static bool is_mad(struct hca_adapter *a, const struct frame_in *in)
{
	const uint8_t *p = in->bytes;

	return in->len == GSI_FRAME_LEN && bth_opcode(p) == (IBT_UD | OP_SEND_ONLY) && !bth_pad(p) &&
	       !bth_tver(p) && (bth_pkey(p) & 0x7fff) == (PKEY_DEFAULT & 0x7fff) &&
	       get_be32(p + BTH_LEN) == GSI_QKEY && hca_devices_have(a, in->dgid);
}

static void give(struct hca_adapter *a, const struct frame_in *in, uint64_t now)
{
	const uint8_t *p = in->bytes, *mad = p + BTH_LEN + DETH_LEN;
	struct hca_gsi_from from = {
		.ifindex = in->ifindex,
		.src_qpn = get_be24(p + BTH_LEN + 5),
		.pkey = bth_pkey(p),
		.tclass = in->tclass,
		.hop_limit = in->hop_limit,
	};
	uint8_t answer[MAD_LEN];

	memcpy(from.sgid, in->sgid, 16);
	memcpy(from.dgid, in->dgid, 16);
	if (a->gsi.ops) {
		a->gsi.ops->receive(a->gsi.arg, mad, &from, now);
	} else if (hca_gsi_refuse(mad, answer)) {
		struct frame_dest to = hca_gsi_reply_to(&from);

		hca_gsi_send(a, &to, answer);
	}
}

/* false: nobody is there. Who is, but has no room, gets it later, or when its sender tries again. */
static bool hand_over(struct hca_adapter *a, uint32_t slot, const struct frame_in *in, uint64_t now)
{
	int err = hca_gsi_is_late(a, slot) ? -EAGAIN : hca_engine_hand_over(&a->engine, slot, in, true);

	if (err && err != -EAGAIN)
		return false;
	if (err && hca_gsi_keep(a, slot, in, now))
		return true;
	hca_gsi_count(err ? &a->count->mads_dropped : &a->count->mads_handed_over);
	return true;
}

static void hand_to_listeners(struct hca_adapter *a, const struct frame_in *in)
{
	struct slots slots;
	int err;

	host_ports_listeners(a->ports, &slots);
	for (uint32_t slot = 1; slot < QPN_SLOTS; slot++) {
		if (slot == a->slot || !slots_has(&slots, slot))
			continue;
		err = hca_engine_hand_over(&a->engine, slot, in, false);
		if (!err || err == -EAGAIN)
			hca_gsi_count(err ? &a->count->mads_dropped : &a->count->mads_handed_over);
	}
}

void hca_gsi_receive(struct hca_adapter *a, const struct frame_in *in, uint64_t now)
{
	uint32_t slot;

	if (!is_mad(a, in)) {
		hca_gsi_count(&a->count->mads_dropped);
		return;
	}
	/* Whoever handed it over has looked who it is for: a second opinion could send it round in circles.
	 */
	switch (in->handed
			? GSI_SLOT
			: hca_gsi_route(a, in->bytes + BTH_LEN + DETH_LEN, in->sgid, in->dgid, now, &slot)) {
	case GSI_SLOT:
		if (!in->handed && slot != a->slot) {
			if (hand_over(a, slot, in, now))
				return;
			hca_gsi_count(&a->count->mads_unclaimed); /* dead by now */
			break;
		}
		hca_gsi_count(&a->count->mads_received);
		break;
	case GSI_LISTENERS:
		hand_to_listeners(a, in);
		hca_gsi_count(&a->count->mads_received);
		break;
	case GSI_NOBODY:
		hca_gsi_count(&a->count->mads_unclaimed);
		break;
	case GSI_LOST:
		hca_gsi_count(&a->count->mads_dropped);
		hca_engine_look(&a->engine, false);
		return;
	}
	give(a, in, now);
}

void hca_gsi_timer(struct hca_adapter *a, uint32_t alarms, uint64_t now)
{
	if (alarms >> HCA_ALARM_LATE & 1)
		hca_gsi_try_late(a, now);
	if (alarms >> HCA_ALARM_CM & 1 && a->gsi.ops)
		a->gsi.ops->timer(a->gsi.arg, now);
}

void hca_gsi_changed(struct hca_adapter *a)
{
	lock_take(&a->engine.drive);
	if (a->gsi.ops && a->gsi.ops->changed)
		a->gsi.ops->changed(a->gsi.arg);
	lock_drop(&a->engine.drive);
}

void hca_gsi_arm(struct hca_adapter *a, uint64_t at)
{
	hca_engine_alarm(&a->engine, HCA_ALARM_CM, at);
}

/* ---- opening and closing ---- */
int hca_gsi_open(struct hca_adapter *a, const struct hca_gsi_ops *ops, void *arg)
{
	bool busy;
	int err;

	lock_take(&a->bring_up);
	lock_take(&a->engine.drive);
	busy = a->gsi.ops;
	if (!busy) {
		a->gsi.arg = arg;
		a->gsi.ops = ops;
	}
	lock_drop(&a->engine.drive);
	lock_drop(&a->bring_up);
	if (busy)
		return -EBUSY;
	err = hca_adapter_up(a);
	if (err)
		hca_gsi_close(a);
	return err;
}

void hca_gsi_close(struct hca_adapter *a)
{
	lock_take(&a->bring_up);
	lock_take(&a->engine.drive);
	a->gsi.ops = NULL;
	if (a->engine.link)
		hca_engine_alarm(&a->engine, HCA_ALARM_CM, UINT64_MAX);
	lock_drop(&a->engine.drive);
	lock_drop(&a->bring_up);
	hca_adapter_down(a);
}
