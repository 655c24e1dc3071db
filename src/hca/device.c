/* SPDX-License-Identifier: MIT */
#include "hca/device.h"

#include "base/log.h"
#include "fabric/attach.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/netdev.h"
#include "observe/probe.h"
#include "sysfs/sysfs.h"
#include "wire/ibt.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KIND_INDEXES = 1024 }; /* numbers of a kind's uverbs devices: those of iWARP are so much further */

/* ---- the list ---- */
/* The adapter's lock. */
static struct hca_port *port_with(struct hca_adapter *a, const uint8_t gid[16])
{
	assert_locked(&a->lock);
	list_for_each(n, &a->devices)
	{
		for_each_port(p, container_of(n, struct hca_device, node))
		{
			if (hca_port_is_at(p, gid))
				return p;
		}
	}
	return NULL;
}

struct hca_port *hca_devices_port(struct hca_adapter *a, const uint8_t gid[16])
{
	struct hca_port *p;

	lock_take(&a->lock);
	p = port_with(a, gid);
	lock_drop(&a->lock);
	return p;
}

uint32_t hca_devices_loopback(struct hca_adapter *a)
{
	uint32_t ifindex = 0;

	lock_take(&a->lock);
	list_for_each(n, &a->devices)
	{
		const struct hca_device *d = container_of(n, struct hca_device, node);

		if (d->loopback && !d->gone)
			ifindex = d->ifindex;
	}
	lock_drop(&a->lock);
	return ifindex;
}

/* ---- following the interfaces ---- */
static void raise_port_event(struct hca_port *p, enum ibv_event_type type)
{
	list_for_each(n, &p->dev->adapter->contexts)
	{
		struct hca_context *c = container_of(n, struct hca_context, node);

		if (c->dev == p->dev)
			hca_async_raise(c, type, p);
	}
}

/* What ends comes before what changes, and the state that lets programs go on comes last. */
void hca_port_raise(struct hca_port *p, unsigned changed)
{
	static const struct {
		unsigned changed;
		enum ibv_event_type type;
	} events[] = {
		{HCA_PORT_LID_CHANGED, IBV_EVENT_LID_CHANGE},
		{HCA_PORT_PKEYS_CHANGED, IBV_EVENT_PKEY_CHANGE},
		{HCA_PORT_SM_CHANGED, IBV_EVENT_SM_CHANGE},
		{HCA_PORT_GIDS_CHANGED, IBV_EVENT_GID_CHANGE},
		{HCA_PORT_REREGISTER, IBV_EVENT_CLIENT_REREGISTER},
	};

	for (unsigned i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (changed & events[i].changed)
			raise_port_event(p, events[i].type);
	if (changed & HCA_PORT_STATE_CHANGED)
		raise_port_event(p, p->up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
}

static void device_follow(struct hca_device *d, const struct hca_netdev *nd, bool is_new)
{
	struct hca_port *p = hca_device_port(d, 1); /* all that an interface has */
	unsigned changed = hca_port_follow(p, nd);

	d->gone = !nd;
	if (!is_new)
		hca_port_raise(p, changed);
}

static struct hca_device *device_new(struct hca_adapter *a, const struct hca_netdev *nd, enum hca_kind kind)
{
	int index = (int)nd->ifindex - 1 + (int)kind * KIND_INDEXES;
	struct hca_device *d = calloc(1, sizeof(*d));
	struct ibv_device *ibv;
	char root[128];

	if (!d)
		return NULL;
	ibv = &d->vd.ibv;
	hca_port_init(&d->port[0], d, 1);
	d->adapter = a;
	memcpy(d->netdev, nd->name, sizeof(d->netdev));
	d->ifindex = nd->ifindex;
	d->loopback = nd->flags & IFF_LOOPBACK;
	d->kind = kind;
	d->guid = hca_netdev_guid(nd) ^
		  (kind == HCA_IWARP ? 0x03ull << 24 : 0); /* ff:fd in the middle for ff:fe */
	ibv->node_type = hca_kinds[kind].node_type;
	ibv->transport_type = hca_kinds[kind].transport_type;
	snprintf(ibv->name, sizeof(ibv->name), "%s_%s", hca_kinds[kind].name, nd->name);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%d", index);
	if (!sysfs_root(root, sizeof(root))) {
		snprintf(ibv->dev_path, sizeof(ibv->dev_path), "%s/class/infiniband_verbs/uverbs%d", root,
			index);
		snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "%s/class/infiniband/%s", root, ibv->name);
	}
	return d;
}

static struct hca_device *device_of(struct hca_adapter *a, const struct hca_netdev *nd, enum hca_kind kind)
{
	list_for_each(n, &a->devices)
	{
		struct hca_device *d = container_of(n, struct hca_device, node);

		if (d->ifindex == nd->ifindex && d->kind == kind && !strcmp(d->netdev, nd->name))
			return d;
	}
	return NULL;
}

/* Programs take the first device: kinds in their order, and loopback last of its kind. */
static int rank(const struct hca_device *d)
{
	return (int)d->kind * 2 + d->loopback;
}

static void device_insert(struct hca_adapter *a, struct hca_device *d)
{
	struct list *before = &a->devices;

	list_for_each(n, &a->devices)
	{
		if (rank(container_of(n, struct hca_device, node)) > rank(d)) {
			before = n;
			break;
		}
	}
	list_add_tail(before, &d->node);
}

static const struct hca_netdev *netdev_of(const struct hca_netdevs *all, const struct hca_device *d)
{
	for (int i = 0; i < all->n; i++) {
		if (all->dev[i].ifindex == d->ifindex && !strcmp(all->dev[i].name, d->netdev))
			return &all->dev[i];
	}
	return NULL;
}

/* What the sysfs-like tree will say: taken under the lock, written without it. */
struct snapshot {
	int n;
	struct sysfs_dev dev[HCA_KINDS * HCA_NETDEVS];
	struct sysfs_port port[HCA_KINDS * HCA_NETDEVS];
	struct sysfs_gid gid[HCA_KINDS * HCA_NETDEVS][HCA_GID_TABLE];
};

static void describe_port(struct hca_port *p, struct sysfs_port *to, struct sysfs_gid gid[HCA_GID_TABLE])
{
	static const uint16_t pkeys[] = {PKEY_DEFAULT}; /* all that a port on Ethernet has */
	struct ibv_port_attr attr;

	hca_port_attr(p, &attr);
	for (unsigned i = 0; i < HCA_GID_TABLE; i++) {
		hca_port_gid(p, i, gid[i].raw);
		memcpy(gid[i].ndev, p->dev->netdev, sizeof(gid[i].ndev));
	}
	*to = (struct sysfs_port){.num = 1, .state = attr.state, .phys_state = attr.phys_state};
	to->cap_mask = 0x00010000; /* IsCommunicationManagementSupported, as rxe */
	to->link_layer = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
	to->lid = attr.lid;
	to->lmc = attr.lmc;
	to->sm_lid = attr.sm_lid;
	to->sm_sl = attr.sm_sl;
	to->rate_gbps = 100;
	to->ngids = attr.gid_tbl_len;
	to->gids = gid;
	to->npkeys = 1;
	to->pkeys = pkeys;
}

static void take_snapshot(struct hca_adapter *a, struct snapshot *s)
{
	s->n = 0;
	list_for_each(node, &a->devices)
	{
		struct hca_device *d = container_of(node, struct hca_device, node);
		struct sysfs_dev *to = &s->dev[s->n];

		if (d->gone || s->n == HCA_KINDS * HCA_NETDEVS)
			continue;
		*to = (struct sysfs_dev){
			.netdev = d->netdev,
			.index = atoi(d->vd.ibv.dev_name + strlen("uverbs")),
			.node_guid = htobe64(d->guid),
			.node_type = hca_kinds[d->kind].node_desc,
			.nports = 1,
			.ports = &s->port[s->n],
		};
		snprintf(to->name, sizeof(to->name), "%s", d->vd.ibv.name);
		describe_port(hca_device_port(d, 1), &s->port[s->n], s->gid[s->n]);
		s->n++;
	}
}

static void add_device(struct hca_adapter *a, const struct hca_netdev *nd, enum hca_kind kind)
{
	struct hca_device *d;

	if (!(nd->flags & IFF_UP) || device_of(a, nd, kind))
		return;
	d = device_new(a, nd, kind);
	if (!d)
		return;
	device_follow(d, nd, true);
	device_insert(a, d);
}

int hca_devices_refresh(struct hca_adapter *a)
{
	struct hca_netdevs *all = malloc(sizeof(*all));
	struct snapshot *snap = malloc(sizeof(*snap));
	int err = -ENOMEM, unwritten;

	if (a->on_fabric) {
		free(snap);
		free(all);
		return hca_devices_refresh_ib(a);
	}
	if (!all || !snap)
		goto out;
	err = hca_netdevs_read(all);
	if (err)
		goto out;
	lock_take(&a->lock);
	list_for_each(n, &a->devices)
	{
		struct hca_device *d = container_of(n, struct hca_device, node);

		device_follow(d, netdev_of(all, d), false);
	}
	for (int i = 0; i < all->n; i++) {
		for (int kind = HCA_ROCE; kind <= HCA_IWARP; kind++)
			add_device(a, &all->dev[i], (enum hca_kind)kind);
	}
	take_snapshot(a, snap);
	lock_drop(&a->lock);
	unwritten = sysfs_update(snap->dev, snap->n);
	if (unwritten)
		PROBE(CALL_FAILED, .call = "sysfs_update", .error = -unwritten);
out:
	free(snap);
	free(all);
	return err;
}

int hca_devices_watch(struct hca_adapter *a)
{
	return a->on_fabric ? fabric_watch() : hca_netdevs_watch();
}

void hca_devices_changed(struct hca_adapter *a, int fd)
{
	if (a->on_fabric)
		fabric_watch_drain(fd);
	else
		hca_netdevs_drain(fd);
	hca_devices_refresh(a);
	hca_qp1_changed(a);
}

/* ---- attributes ---- */
void hca_device_attr(const struct hca_device *d, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){
		.fw_ver = ANYRDMA_VERSION,
		.node_guid = htobe64(d->guid),
		.sys_image_guid = htobe64(d->guid),
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 0xfffff000,
		.vendor_id = 0x02616e, /* locally administered: nobody's card */
		.vendor_part_id = 1,
		.hw_ver = 1,
		.max_qp = HCA_MAX_QP,
		.max_qp_wr = HCA_MAX_QP_WR,
		.device_cap_flags = IBV_DEVICE_CURR_QP_STATE_MOD | IBV_DEVICE_PORT_ACTIVE_EVENT |
				    IBV_DEVICE_SYS_IMAGE_GUID | IBV_DEVICE_RC_RNR_NAK_GEN |
				    IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_MEM_WINDOW |
				    IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_N_NOTIFY_CQ,
		.max_sge = HCA_MAX_SGE,
		.max_sge_rd = HCA_MAX_SGE,
		.max_cq = 1 << 16,
		.max_cqe = 1 << 22,
		.max_mr = 1 << 20,
		.max_pd = 1 << 16,
		.max_qp_rd_atom = HCA_MAX_RD_ATOMIC,
		.max_res_rd_atom = HCA_MAX_RD_ATOMIC * HCA_MAX_QP,
		.max_qp_init_rd_atom = HCA_MAX_RD_ATOMIC,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_mw = 1 << 20,
		.max_mcast_grp = 1 << 13,
		.max_mcast_qp_attach = 1 << 12,
		.max_total_mcast_qp_attach = 1 << 16,
		.max_ah = 1 << 20,
		.max_srq = HCA_MAX_SRQ,
		.max_srq_wr = HCA_MAX_QP_WR,
		.max_srq_sge = HCA_MAX_SGE,
		.max_pkeys = d->port[0].npkeys,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = (uint8_t)d->nports,
	};
	if (d->kind != HCA_IWARP)
		return;
	/* No datagrams; and it is TCP that waits for a receive. */
	attr->device_cap_flags &= ~(unsigned)IBV_DEVICE_RC_RNR_NAK_GEN;
	attr->max_mcast_grp = attr->max_mcast_qp_attach = attr->max_total_mcast_qp_attach = attr->max_ah = 0;
	attr->local_ca_ack_delay = 0;
}
