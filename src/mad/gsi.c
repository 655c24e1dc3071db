/* SPDX-License-Identifier: MIT */
#include "mad/gsi.h"

#include "base/asserts.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "mad/gsi_parts.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GSI_FRAME_LEN = BTH_LEN + DETH_LEN + MAD_LEN };

_Static_assert(
	(int)MAD_ALARM_LATE < (int)HCA_QP1_ALARMS, "an alarm for each agent and for MADs that are late");

/* ---- out ---- */
/*
 * A MAD for another process of this host, which it names, is given to that one. By the network it could come
 * back to ourselves, since any process of the host receives for QP1, and would be lost with us if the program
 * ends here and now.
 */
static bool hand_to_neighbour(
	struct hca_adapter *a, const struct frame_dest *to, const uint8_t *hdr, const uint8_t mad[MAD_LEN])
{
	uint32_t slot = mad_addressee(a->qp1.gsi, mad);
	uint8_t bytes[GSI_FRAME_LEN];
	struct frame_in in = {
		.bytes = bytes, .len = sizeof(bytes), .tclass = to->tclass, .hop_limit = to->hop_limit};

	/* Of a link-local address the kernel alone knows by which interface it would come. */
	if (!slot || slot == a->slot || gid_is_link_local(to->dgid) || !hca_devices_have(a, to->dgid))
		return false;
	in.ifindex = hca_devices_loopback(a);
	memcpy(in.sgid, to->sgid, 16);
	memcpy(in.dgid, to->dgid, 16);
	memcpy(bytes, hdr, BTH_LEN + DETH_LEN);
	memcpy(bytes + BTH_LEN + DETH_LEN, mad, MAD_LEN);
	return in.ifindex && !hca_engine_hand_over(&a->engine, slot, &in, false);
}

static void put_headers(uint8_t *hdr, uint16_t pkey, uint32_t psn)
{
	bth_put(hdr, IBT_UD | OP_SEND_ONLY, false, 0, pkey, QP_GSI, false, psn & PSN_MASK);
	put_be32(hdr + BTH_LEN, GSI_QKEY);
	put_be32(hdr + BTH_LEN + 4, QP_GSI);
}

int mad_send(struct hca_adapter *a, const struct frame_dest *to, const uint8_t mad[MAD_LEN])
{
	const struct hca_port *port = hca_devices_port(a, to->sgid);
	struct frame_batch b;
	struct frame_out *f = &b.frame[0];
	int err;

	frame_batch_begin(&b);
	b.dest = *to;
	b.nframes = b.niov = 1;
	*f = (struct frame_out){.hdr_len = BTH_LEN + DETH_LEN, .payload_len = MAD_LEN, .iov_count = 1};
	b.iov[0] = (struct iovec){(void *)mad, MAD_LEN};
	/* An address that is ours no more is the kernel's to refuse; a neighbour can be told all the same. */
	put_headers(f->hdr, port ? hca_port_default_pkey(port) : PKEY_DEFAULT,
		atomic_fetch_add(&a->qp1.gsi->psn, 1));
	err = hand_to_neighbour(a, to, f->hdr, mad) ? 0 : hca_engine_send(&a->engine, &b);
	if (!err)
		mad_probe(a, MAD_TX, mad);
	return err;
}

struct frame_dest mad_reply_to(const struct mad_from *from)
{
	struct frame_dest to = {.ifindex = from->ifindex,
		.tclass = from->tclass,
		.hop_limit = 64,
		.sl = from->sl,
		.slid = gid_lid(from->dgid),
		.dlid = gid_lid(from->sgid)};

	memcpy(to.sgid, from->dgid, 16);
	memcpy(to.dgid, from->sgid, 16);
	return to;
}

/* ---- in: what the adapter calls, under the drive lock ---- */
/* A whole MAD for an address of ours, with the well-known Q_Key (IBA 13.5.3.3) and a P_Key of its port. */
static bool is_mad(struct hca_adapter *a, const struct frame_in *in)
{
	const uint8_t *p = in->bytes;
	const struct hca_port *port;

	if (in->len != GSI_FRAME_LEN || bth_opcode(p) != (IBT_UD | OP_SEND_ONLY) || bth_pad(p) ||
		bth_tver(p) || get_be32(p + BTH_LEN) != GSI_QKEY)
		return false;
	port = hca_devices_port(a, in->dgid);
	return port && pkey_matches(bth_pkey(p), hca_port_default_pkey(port));
}

static struct mad_from from_of(const struct frame_in *in)
{
	struct mad_from from = {
		.ifindex = in->ifindex,
		.src_qpn = get_be24(in->bytes + BTH_LEN + 5),
		.pkey = bth_pkey(in->bytes),
		.tclass = in->tclass,
		.hop_limit = in->hop_limit,
		.sl = in->sl,
	};

	memcpy(from.sgid, in->sgid, 16);
	memcpy(from.dgid, in->dgid, 16);
	return from;
}

static void give(struct mad_gsi *g, const uint8_t mad[MAD_LEN], const struct mad_from *from, uint64_t now)
{
	const struct mad_agent *agent = mad_agent_of(&g->agents, mad);
	uint8_t answer[MAD_LEN];

	if (agent) {
		agent->ops->receive(agent->arg, mad, from, now);
	} else if (mad_refuse(g, mad, answer)) {
		struct frame_dest to = mad_reply_to(from);

		mad_send(g->adapter, &to, answer);
	}
}

static void receive(struct hca_adapter *a, const struct frame_in *in, uint64_t now)
{
	const uint8_t *mad = in->bytes + BTH_LEN + DETH_LEN;
	struct mad_from from;

	assert_locked(&a->engine.drive);
	if (!is_mad(a, in)) {
		hca_adapter_probe(a, MAD_DROP, .why = "no MAD, or not for us");
		return;
	}
	from = from_of(in);
	if (mad_route(a->qp1.gsi, in, mad, &from, now))
		give(a->qp1.gsi, mad, &from, now);
}

static void timer(struct hca_adapter *a, uint32_t alarms, uint64_t now)
{
	assert_locked(&a->engine.drive);
	if (alarms >> MAD_ALARM_LATE & 1)
		mad_late_retry(a->qp1.gsi, now);
	mad_agent_timers(&a->qp1.gsi->agents, alarms, now);
}

static void changed(struct hca_adapter *a)
{
	assert_locked(&a->engine.drive);
	mad_agent_changed(&a->qp1.gsi->agents);
}

static void down(struct hca_adapter *a)
{
	assert_locked(&a->engine.drive);
	mad_late_forget(a->qp1.gsi);
}

static const struct hca_qp1_ops qp1_ops = {
	.receive = receive, .timer = timer, .changed = changed, .down = down};

/* ---- agents ---- */
int mad_register(
	struct hca_adapter *a, const struct mad_class *takes, const struct mad_agent_ops *ops, void *arg)
{
	int agent, err;

	lock_take(&a->bring_up);
	lock_take(&a->engine.drive);
	agent = mad_agent_add(&a->qp1.gsi->agents, takes, ops, arg);
	if (agent >= 0)
		a->qp1.users++;
	lock_drop(&a->engine.drive);
	lock_drop(&a->bring_up);
	if (agent < 0)
		return agent;
	err = hca_adapter_up(a);
	if (err)
		mad_unregister(a, agent);
	return err ? err : agent;
}

void mad_unregister(struct hca_adapter *a, int agent)
{
	lock_take(&a->bring_up);
	lock_take(&a->engine.drive);
	mad_agent_remove(&a->qp1.gsi->agents, (unsigned)agent);
	a->qp1.users--;
	if (a->engine.open)
		mad_arm(a, agent, UINT64_MAX);
	lock_drop(&a->engine.drive);
	lock_drop(&a->bring_up);
	hca_adapter_down(a);
}

void mad_arm(struct hca_adapter *a, int agent, uint64_t at)
{
	hca_engine_alarm(&a->engine, (unsigned)agent, at);
}

/* ---- opening and closing ---- */
int mad_gsi_open(struct hca_adapter *a, const struct mad_router *const *routers)
{
	struct mad_gsi *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->adapter = a;
	list_init(&g->late);
	a->qp1.gsi = g;
	a->qp1.ops = &qp1_ops;
	for (int i = 0; routers[i]; i++) {
		assert_that(i < MAD_ROUTERS);
		g->route[i].router = routers[i];
		g->route[i].state = calloc(1, routers[i]->state_size);
		if (!g->route[i].state) {
			mad_gsi_close(a);
			return -ENOMEM;
		}
	}
	return 0;
}

void mad_gsi_close(struct hca_adapter *a)
{
	struct mad_gsi *g = a->qp1.gsi;

	a->qp1.ops = &hca_qp1_none;
	a->qp1.gsi = NULL;
	for (int i = 0; i < MAD_ROUTERS; i++)
		free(g->route[i].state);
	free(g);
}
