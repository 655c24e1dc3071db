/* SPDX-License-Identifier: MIT */
#include "hca/device.h"

#include "base/log.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/netdev.h"
#include "hca/sysfs.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROCE_OVERHEAD = 40 + 8 + 12 + 16 + 28 + 4 };

/* Numbers of iWARP devices are these further. */
enum { KIND_INDEXES = 1024 }; /* numbers of a kind's uverbs devices */

/* The largest IBA MTU whose packets fit the interface: IPv6, UDP, BTH, extension headers, ICRC. */
enum ibv_mtu hca_mtu_of(unsigned netdev_mtu)
{
	enum ibv_mtu mtu = IBV_MTU_4096;

	while (mtu > IBV_MTU_256 && hca_mtu_bytes(mtu) + ROCE_OVERHEAD > netdev_mtu)
		mtu--;
	return mtu;
}

/* gid_lock held */
static int find_gid(const struct hca_device *d, const uint8_t gid[16])
{
	assert_locked(&d->gid_lock);
	for (int i = 0; i < HCA_GID_TABLE && !gid_is_zero(gid); i++) {
		if (!memcmp(d->gid[i].raw, gid, 16))
			return i;
	}
	return -1;
}

int hca_device_gid_index(struct hca_device *d, const uint8_t gid[16])
{
	int index;

	lock_take(&d->gid_lock);
	index = find_gid(d, gid);
	lock_drop(&d->gid_lock);
	return index;
}

void hca_device_gid(struct hca_device *d, unsigned index, uint8_t gid[16])
{
	lock_take(&d->gid_lock);
	memcpy(gid, d->gid[index].raw, 16);
	lock_drop(&d->gid_lock);
}

/* The commonest mistake of a newcomer deserves a word; a program that probes does not deserve a flood. */
static void say_once(const char *what)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&said))
		log_warn("%s", what);
}

bool hca_devices_have(struct hca_adapter *a, const uint8_t gid[16])
{
	bool have = false;

	lock_take(&a->lock);
	list_for_each(n, &a->devices)
	{
		if (hca_device_gid_index(container_of(n, struct hca_device, node), gid) >= 0)
			have = true;
	}
	lock_drop(&a->lock);
	return have;
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

int hca_device_resolve(struct hca_device *d, const struct ibv_ah_attr *ah, struct frame_dest *out)
{
	const struct ibv_global_route *g = &ah->grh;
	uint8_t sgid[16];

	/* RoCE addresses are GIDs: without a GRH there is no address. */
	if (!ah->is_global)
		say_once("the program gives no GID to connect with, and RoCE needs one: pass a GID index "
			 "(often -g 0 or "
			 "-x 0); `anyrdma devices` lists them");
	if (!ah->is_global || ah->port_num != 1 || g->sgid_index >= HCA_GID_TABLE)
		return EINVAL;
	hca_device_gid(d, g->sgid_index, sgid);
	if (gid_is_zero(sgid))
		say_once("the program uses a GID index that is empty; `anyrdma devices` lists those that are "
			 "there");
	if (gid_is_zero(sgid) || gid_is_zero(g->dgid.raw) || gid_is_v4(sgid) != gid_is_v4(g->dgid.raw))
		return EINVAL;
	memset(out, 0, sizeof(*out));
	memcpy(out->sgid, sgid, 16);
	memcpy(out->dgid, g->dgid.raw, 16);
	out->ifindex = d->ifindex;
	out->tclass = g->traffic_class;
	out->hop_limit = g->hop_limit ? g->hop_limit : 64;
	return 0;
}

/* ---- our devices ---- */
static void raise_port_event(struct hca_device *d, enum ibv_event_type type)
{
	list_for_each(n, &d->adapter->contexts)
	{
		struct hca_context *c = container_of(n, struct hca_context, node);

		if (c->dev == d)
			hca_async_raise(c, type, NULL);
	}
}

/* gid_lock held */
static bool gids_follow(struct hca_device *d, const struct hca_netdev *nd)
{
	bool changed = false;

	assert_locked(&d->gid_lock);
	for (int i = 0; i < HCA_GID_TABLE; i++) {
		bool still = gid_is_zero(d->gid[i].raw);

		for (int k = 0; k < nd->naddrs && !still; k++)
			still = !memcmp(d->gid[i].raw, nd->addr[k], 16);
		if (!still) {
			memset(d->gid[i].raw, 0, 16);
			changed = true;
		}
	}
	for (int k = 0; k < nd->naddrs; k++) {
		if (find_gid(d, nd->addr[k]) >= 0)
			continue;
		for (int i = 0; i < HCA_GID_TABLE; i++) {
			if (gid_is_zero(d->gid[i].raw)) {
				memcpy(d->gid[i].raw, nd->addr[k], 16);
				changed = true;
				break;
			}
		}
	}
	return changed;
}

static void device_follow(struct hca_device *d, const struct hca_netdev *nd, bool is_new)
{
	bool up = nd && (nd->flags & IFF_UP) && (nd->flags & IFF_RUNNING), was_up = d->up, moved;

	d->up = up;
	d->gone = !nd;
	if (nd) {
		d->mtu = nd->mtu;
		lock_take(&d->gid_lock);
		moved = gids_follow(d, nd);
		lock_drop(&d->gid_lock);
		if (moved && !is_new)
			raise_port_event(d, IBV_EVENT_GID_CHANGE);
	}
	if (up != was_up && !is_new)
		raise_port_event(d, up ? IBV_EVENT_PORT_ACTIVE : IBV_EVENT_PORT_ERR);
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
	lock_init(&d->gid_lock);
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
	struct sysfs_gid gid[HCA_KINDS * HCA_NETDEVS][HCA_GID_TABLE];
};

static void take_snapshot(struct hca_adapter *a, struct snapshot *s)
{
	s->n = 0;
	list_for_each(node, &a->devices)
	{
		struct hca_device *d = container_of(node, struct hca_device, node);
		struct sysfs_gid *gid = s->gid[s->n];
		struct ibv_port_attr port;

		if (d->gone || s->n == HCA_KINDS * HCA_NETDEVS)
			continue;
		hca_port_attr(d, &port);
		for (unsigned i = 0; i < HCA_GID_TABLE; i++) {
			hca_device_gid(d, i, gid[i].raw);
			memcpy(gid[i].ndev, d->netdev, sizeof(gid[i].ndev));
		}
		s->dev[s->n] = (struct sysfs_dev){
			.netdev = d->netdev,
			.index = atoi(d->vd.ibv.dev_name + strlen("uverbs")),
			.node_guid = htobe64(d->guid),
			.node_type = hca_kinds[d->kind].node_desc,
			.state = port.state,
			.phys_state = port.phys_state,
			.link_layer = "Ethernet",
			.rate_gbps = 100,
			.ngids = HCA_GID_TABLE,
			.gids = gid,
		};
		snprintf(s->dev[s->n].name, sizeof(s->dev[s->n].name), "%s", d->vd.ibv.name);
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
	int err = -ENOMEM;

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
		for (int kind = 0; kind < HCA_KINDS; kind++)
			add_device(a, &all->dev[i], (enum hca_kind)kind);
	}
	take_snapshot(a, snap);
	lock_drop(&a->lock);
	if (sysfs_update(snap->dev, snap->n))
		log_debug("the sysfs-like tree was not written");
out:
	free(snap);
	free(all);
	return err;
}

void hca_devices_changed(struct hca_adapter *a, int fd)
{
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
		.max_srq = 1 << 16,
		.max_srq_wr = HCA_MAX_QP_WR,
		.max_srq_sge = HCA_MAX_SGE,
		.max_pkeys = 1,
		.local_ca_ack_delay = 15,
		.phys_port_cnt = 1,
	};
	if (d->kind != HCA_IWARP)
		return;
	/* No datagrams; and it is TCP that waits for a receive. */
	attr->device_cap_flags &= ~(unsigned)IBV_DEVICE_RC_RNR_NAK_GEN;
	attr->max_mcast_grp = attr->max_mcast_qp_attach = attr->max_total_mcast_qp_attach = attr->max_ah = 0;
	attr->local_ca_ack_delay = 0;
}

void hca_port_attr(const struct hca_device *d, struct ibv_port_attr *attr)
{
	*attr = (struct ibv_port_attr){
		.state = d->up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = hca_mtu_of(d->mtu),
		.gid_tbl_len = HCA_GID_TABLE,
		.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_REINIT_SUP | IBV_PORT_DEVICE_MGMT_SUP |
				  IBV_PORT_VENDOR_CLASS_SUP | IBV_PORT_IP_BASED_GIDS,
		.max_msg_sz = HCA_MAX_MSG,
		.pkey_tbl_len = 1,
		.max_vl_num = 1,
		.active_width = 2,  /* 4X */
		.active_speed = 32, /* 25 Gb/s a lane: no wire sets a limit */
		.phys_state = d->up ? 5 : 3,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
	};
}
