/* SPDX-License-Identifier: MIT */
/* Talks to our libibverbs through dlopen: the tool must start, and explain, when the library is broken. */
#include "tool/devlist.h"
#include "tool/tool.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct verbs_calls {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	const char *(*get_device_name)(struct ibv_device *);
	__be64 (*get_device_guid)(struct ibv_device *);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*close_device)(struct ibv_context *);
	int (*query_gid_ex)(
		struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *, uint32_t, size_t);
};

static int load_calls(struct verbs_calls *c, char *why, size_t len)
{
	const struct {
		void *slot;
		const char *name;
	} syms[] = {
		{&c->get_device_list, "ibv_get_device_list"},
		{&c->free_device_list, "ibv_free_device_list"},
		{&c->get_device_name, "ibv_get_device_name"},
		{&c->get_device_guid, "ibv_get_device_guid"},
		{&c->open_device, "ibv_open_device"},
		{&c->close_device, "ibv_close_device"},
		{&c->query_gid_ex, "_ibv_query_gid_ex"},
	};
	char dir[PATH_MAX], path[PATH_MAX + 32];
	int err = tool_libdir(dir, sizeof(dir));
	void *lib;

	if (err) {
		snprintf(why, len, "cannot find out where anyrdma is installed: %s", strerror(-err));
		return -1;
	}
	snprintf(path, sizeof(path), "%s/libibverbs.so.1", dir);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		snprintf(why, len, "cannot load anyrdma's library: %s", dlerror());
		return -1;
	}
	for (size_t i = 0; i < sizeof(syms) / sizeof(syms[0]); i++) {
		void *f = dlsym(lib, syms[i].name);

		if (!f) {
			snprintf(why, len, "%s has no %s", path, syms[i].name);
			return -1;
		}
		memcpy(syms[i].slot, &f, sizeof(f));
	}
	return 0;
}

static const char *state_name(enum ibv_port_state s)
{
	static const char *const names[] = {"nop", "down", "init", "armed", "active", "active-defer"};

	return (unsigned)s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown";
}

static const char *type_name(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB:
		return "IB";
	case IBV_GID_TYPE_ROCE_V1:
		return "RoCE v1";
	case IBV_GID_TYPE_ROCE_V2:
		return "RoCE v2";
	default:
		return "unknown";
	}
}

static double rate(const struct ibv_port_attr *a)
{
	static const struct {
		int bits;
		double value;
	} widths[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}},
	  speeds[] = {{1, 2.5}, {2, 5}, {4, 10}, {8, 10}, {16, 14}, {32, 25}, {64, 50}, {128, 100}};
	double w = 0, s = 0;

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++)
		if (a->active_width == widths[i].bits)
			w = widths[i].value;
	for (size_t i = 0; i < sizeof(speeds) / sizeof(speeds[0]); i++)
		if (a->active_speed == speeds[i].bits)
			s = speeds[i].value;
	return w * s;
}

static void read_gids(const struct verbs_calls *c, struct ibv_context *ctx, int len, struct verbs_dev *d)
{
	d->gids = calloc(len ? len : 1, sizeof(*d->gids));
	for (int i = 0; d->gids && i < len; i++) {
		struct ibv_gid_entry e;
		struct verbs_gid *g = &d->gids[d->ngids];

		if (c->query_gid_ex(ctx, 1, i, &e, 0, sizeof(e)))
			continue; /* ENODATA: an empty slot */
		g->index = i;
		g->type =
			ctx->device->transport_type == IBV_TRANSPORT_IWARP ? "iWARP" : type_name(e.gid_type);
		memcpy(g->raw, e.gid.raw, sizeof(g->raw));
		if (!e.ndev_ifindex || !if_indextoname(e.ndev_ifindex, g->netdev))
			g->netdev[0] = '\0';
		if (!d->netdev[0])
			memcpy(d->netdev, g->netdev, sizeof(d->netdev));
		d->ngids++;
	}
}

/* The port through the context, as the inline ibv_query_port() of the header does it. */
static int read_dev(const struct verbs_calls *c, struct ibv_device *dev, struct verbs_dev *d)
{
	struct ibv_context *ctx = c->open_device(dev);
	struct verbs_context *v;
	struct ibv_port_attr a = {0};
	int err;

	snprintf(d->name, sizeof(d->name), "%s", c->get_device_name(dev));
	d->guid = c->get_device_guid(dev);
	if (!ctx)
		return errno ? errno : EIO;
	v = verbs_get_ctx_op(ctx, query_port);
	err = v ? v->query_port(ctx, 1, &a, sizeof(a)) : EOPNOTSUPP;
	if (!err) {
		d->state = state_name(a.state);
		d->active = a.state == IBV_PORT_ACTIVE;
		d->link_layer = a.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand";
		d->mtu = 128 << a.active_mtu;
		d->max_mtu = 128 << a.max_mtu;
		d->rate_gbps = rate(&a);
		read_gids(c, ctx, a.gid_tbl_len, d);
	}
	c->close_device(ctx);
	return err;
}

int verbs_load(struct verbs_dev **devs, int *n, char *why, size_t len)
{
	struct verbs_calls c;
	struct ibv_device **list;
	int err = 0;

	if (load_calls(&c, why, len))
		return -1;
	errno = 0;
	list = c.get_device_list(n);
	if (!list) {
		snprintf(why, len, "listing the devices failed: %s", strerror(errno));
		return -1;
	}
	*devs = calloc(*n ? *n : 1, sizeof(**devs));
	for (int i = 0; *devs && !err && i < *n; i++) {
		err = read_dev(&c, list[i], &(*devs)[i]);
		if (err)
			snprintf(why, len, "device %s cannot be opened: %s", (*devs)[i].name, strerror(err));
	}
	if (!*devs)
		snprintf(why, len, "out of memory");
	c.free_device_list(list);
	if (*devs && !err)
		return 0;
	if (*devs)
		verbs_free(*devs, *n);
	return -1;
}

void verbs_free(struct verbs_dev *devs, int n)
{
	for (int i = 0; i < n; i++)
		free(devs[i].gids);
	free(devs);
}

void verbs_touch(void)
{
	struct verbs_calls c;
	struct ibv_device **list;
	char why[256];

	if (load_calls(&c, why, sizeof(why)))
		return;
	list = c.get_device_list(NULL);
	if (list)
		c.free_device_list(list);
}

void verbs_gid_str(const uint8_t raw[16], char buf[INET6_ADDRSTRLEN])
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

	if (!memcmp(raw, mapped, sizeof(mapped)))
		inet_ntop(AF_INET, raw + 12, buf, INET6_ADDRSTRLEN);
	else
		inet_ntop(AF_INET6, raw, buf, INET6_ADDRSTRLEN);
}
