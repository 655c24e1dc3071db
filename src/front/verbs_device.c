/* SPDX-License-Identifier: MIT */
/* Devices, ports, GIDs, and the life of the process's adapter. */
#include "front/verbs_front.h"

#include "base/cancel.h"
#include "base/env.h"
#include "base/fd.h"
#include "base/log.h"
#include "cm/router.h"
#include "cm/verbs.h"
#include "fabric/attach.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/dm.h"
#include "hca/fork.h"
#include "mad/gsi.h"
#include "observe/probe.h"
#include "sysfs/sysfs.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the adapter of this process ---- */
static pthread_mutex_t adapter_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct hca_adapter *the_adapter;
static struct hca_adapter *parents; /* in a child, until it has its own */
static pid_t owner;
static int fork_cancel; /* of the thread that forks, under adapter_mutex */

/* fork() is no place to be cancelled at, but these read and close files, with locks held. */
static void before_fork(void)
{
	int cancel = cancel_off();

	pthread_mutex_lock(&adapter_mutex);
	fork_cancel = cancel;
	hca_fork_prepare(the_adapter);
}

static void let_go(void)
{
	int cancel = fork_cancel;

	pthread_mutex_unlock(&adapter_mutex);
	cancel_restore(cancel);
}

static void after_fork(void)
{
	hca_fork_parent(the_adapter);
	let_go();
}

static void in_child(void)
{
	hca_fork_child(the_adapter);
	if (the_adapter)
		parents = the_adapter;
	the_adapter = NULL;
	env_forget();
	let_go();
}

/* An adapter whose QP1 routes MADs for all processes of the host; NULL: no memory. */
static struct hca_adapter *make_adapter(void)
{
	static const struct mad_router *const routers[] = {&cm_router, NULL};
	struct hca_adapter *a = malloc(sizeof(*a));

	if (!a)
		return NULL;
	hca_adapter_init(a);
	if (mad_gsi_open(a, routers)) {
		hca_adapter_fini(a);
		free(a);
		return NULL;
	}
	a->on_fabric = fabric_is_ours();
	a->local = hca_local_wanted();
	return a;
}

struct hca_adapter *verbs_adapter(void)
{
	static bool watching_fork;

	pthread_mutex_lock(&adapter_mutex);
	if (!the_adapter) {
		log_init();
		probe_init();
		the_adapter = make_adapter();
		if (the_adapter && parents)
			hca_fork_adopt(the_adapter, parents);
		owner = getpid();
	}
	if (!watching_fork)
		watching_fork = !pthread_atfork(before_fork, after_fork, in_child);
	pthread_mutex_unlock(&adapter_mutex);
	return the_adapter;
}

__attribute__((destructor)) static void at_exit(void)
{
	if (the_adapter && owner == getpid())
		hca_adapter_exit(the_adapter);
}

/* ---- the list ---- */
static bool is_named(const char *name, const char *word, size_t n)
{
	return strlen(name) == n && !strncmp(name, word, n);
}

/*
 * ANYRDMA_DEVICES: a comma separated list of devices, interfaces, or kinds of devices; unset: all. The place
 * where the list names it; -1: not at all.
 */
static int place_of(const struct hca_device *d)
{
	const char *list = env_text(ANYRDMA_DEVICES);
	size_t n;

	if (d->gone)
		return -1;
	if (!list)
		return 0;
	for (int place = 0; *list; place++, list += n + (list[n] == ',')) {
		n = strcspn(list, ",");
		if (is_named(d->netdev, list, n) || is_named(d->vd.ibv.name, list, n) ||
			is_named(hca_kinds[d->kind].name, list, n))
			return place;
	}
	return -1;
}

/* In the order of the user's list, and within it in ours. */
static void insert(struct ibv_device **list, int n, struct hca_device *d)
{
	int place = place_of(d);

	for (; n && place_of(hca_device(list[n - 1])) > place; n--)
		list[n] = list[n - 1];
	list[n] = &d->vd.ibv;
}

struct ibv_device **(ibv_get_device_list)(int *num)
{
	CANCEL_SAFE;
	struct hca_adapter *a = verbs_adapter();
	struct ibv_device **list;
	int n = 0, err;

	if (num)
		*num = 0;
	if (!a) {
		errno = ENOMEM;
		return NULL;
	}
	err = hca_devices_refresh(a);
	if (err) {
		log_error("cannot read the network interfaces: %s", fd_reason(-err));
		errno = -err;
		return NULL;
	}
	lock_take(&a->lock);
	list_for_each(node, &a->devices) n++;
	list = calloc((size_t)n + 1, sizeof(*list));
	n = 0;
	if (list) {
		list_for_each(node, &a->devices)
		{
			struct hca_device *d = container_of(node, struct hca_device, node);

			if (place_of(d) >= 0)
				insert(list, n++, d);
		}
	}
	lock_drop(&a->lock);
	if (num)
		*num = n;
	return list;
}

/* A port of the device that has this GID, and its index there; NULL: none. */
static struct hca_port *port_with(struct hca_device *d, const uint8_t gid[16], unsigned *index)
{
	for_each_port(p, d)
	{
		int i = hca_port_gid_index(p, gid);

		if (i >= 0) {
			*index = (unsigned)i;
			return p;
		}
	}
	return NULL;
}

struct hca_port *verbs_port_of(struct hca_adapter *a, const uint8_t gid[16], uint32_t ifindex,
	enum ibv_transport_type transport, unsigned *index)
{
	struct hca_port *found = NULL;

	lock_take(&a->lock);
	list_for_each(node, &a->devices)
	{
		struct hca_device *d = container_of(node, struct hca_device, node);
		unsigned i = 0;
		struct hca_port *p = port_with(d, gid, &i);

		if (!p || place_of(d) < 0 || (ifindex && ifindex != d->ifindex) ||
			(transport != IBV_TRANSPORT_UNKNOWN && transport != d->vd.ibv.transport_type))
			continue;
		if (!found || place_of(d) < place_of(found->dev)) {
			found = p;
			*index = i;
		}
	}
	lock_drop(&a->lock);
	return found;
}

bool verbs_device_any(struct hca_adapter *a, enum ibv_transport_type transport)
{
	bool any = false;

	lock_take(&a->lock);
	list_for_each(node, &a->devices)
	{
		const struct hca_device *d = container_of(node, struct hca_device, node);

		any |= place_of(d) >= 0 && d->vd.ibv.transport_type == transport;
	}
	lock_drop(&a->lock);
	return any;
}

/* Devices live as long as the process: programs keep pointers to them past this call. */
void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return htobe64(hca_device(device)->guid);
}

int ibv_get_device_index(struct ibv_device *device)
{
	return atoi(device->dev_name + strlen("uverbs")) + 1;
}

/* A host's files are not where those of the network's devices are: its adapters tell. */
static bool root_of_host(char *root, size_t len)
{
	struct hca_adapter *a = verbs_adapter();
	size_t n = 0;

	if (!a || !a->on_fabric || hca_devices_refresh(a))
		return false;
	lock_take(&a->lock);
	if (!list_empty(&a->devices)) {
		const struct ibv_device *d = &container_of(a->devices.next, struct hca_device, node)->vd.ibv;
		const char *end = strstr(d->ibdev_path, "/class/infiniband/");

		n = end ? (size_t)(end - d->ibdev_path) : 0;
		if (n < len)
			memcpy(root, d->ibdev_path, n);
	}
	lock_drop(&a->lock);
	return n && n < len;
}

const char *ibv_get_sysfs_path(void)
{
	CANCEL_SAFE;
	static char root[256];

	if (!root[0] && !root_of_host(root, sizeof(root)) && sysfs_root(root, sizeof(root)))
		strcpy(root, "/sys");
	return root;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	CANCEL_SAFE;

	/* A child may have the device from its parent: that it has an adapter comes first. */
	struct hca_context *ctx = verbs_adapter() ? hca_context_open(hca_device(device)) : NULL;

	if (!ctx)
		return NULL;
	verbs_fill_ops(ctx);
	return &ctx->v.context;
}

int ibv_close_device(struct ibv_context *c)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(c))
		return 0;
	hca_context_close(hca_context(c));
	return 0;
}

/* ---- queries ---- */
int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *attr)
{
	CANCEL_SAFE;

	hca_device_attr(hca_context(c)->dev, attr);
	return 0;
}

int verbs_query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *in,
	struct ibv_device_attr_ex *attr, size_t size)
{
	CANCEL_SAFE;
	struct ibv_device_attr_ex full = {
		.completion_timestamp_mask = UINT64_MAX,
		.hca_core_clock = 1000000, /* kHz: timestamps are nanoseconds */
		.max_dm_size = HCA_MAX_DM,
		.phys_port_cnt_ex = hca_context(c)->dev->nports,
	};

	if (in && in->comp_mask)
		return EINVAL;
	if (size < sizeof(full.orig_attr))
		return EINVAL;
	hca_device_attr(hca_context(c)->dev, &full.orig_attr);
	memset(attr, 0, size);
	memcpy(attr, &full, size < sizeof(full) ? size : sizeof(full));
	return 0;
}

int verbs_query_rt_values(struct ibv_context *c, struct ibv_values_ex *values)
{
	uint32_t asked = values->comp_mask;

	values->comp_mask = 0;
	if (asked & IBV_VALUES_MASK_RAW_CLOCK) {
		clock_gettime(CLOCK_MONOTONIC, &values->raw_clock);
		values->comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
	}
	return 0;
}

/* As it is now: before the first queue pair nobody follows a fabric. */
static struct hca_port *port_of(struct ibv_context *c, unsigned num)
{
	hca_devices_look(hca_context(c)->adapter);
	return hca_device_port(hca_context(c)->dev, num);
}

int verbs_query_port(struct ibv_context *c, uint8_t port, struct ibv_port_attr *attr, size_t len)
{
	CANCEL_SAFE;
	struct hca_adapter *a = hca_context(c)->adapter;
	const struct hca_port *p = port_of(c, port);
	struct ibv_port_attr full;

	if (!p)
		return EINVAL;
	lock_take(&a->lock);
	hca_port_attr(p, &full);
	lock_drop(&a->lock);
	memset(attr, 0, len);
	memcpy(attr, &full, len < sizeof(full) ? len : sizeof(full));
	return 0;
}

/* The exported function is the old one, whose structure ends before port_cap_flags2. */
int(ibv_query_port)(struct ibv_context *c, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	return verbs_query_port(c, port, (struct ibv_port_attr *)attr, 48);
}

int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	CANCEL_SAFE;
	struct hca_port *p = port_of(c, port);

	if (p && index >= 0 && hca_port_gid(p, (unsigned)index, gid->raw))
		return 0;
	errno = EINVAL;
	return -1;
}

/* 0; ENODATA: it is empty; EINVAL: the table is shorter. */
static int fill_entry(struct hca_port *p, uint32_t index, struct ibv_gid_entry *e)
{
	memset(e, 0, sizeof(*e));
	if (!hca_port_gid(p, index, e->gid.raw))
		return EINVAL;
	e->gid_index = index;
	e->port_num = p->num;
	e->gid_type = hca_kinds[p->dev->kind].gid_type;
	e->ndev_ifindex = p->dev->ifindex;
	return gid_is_zero(e->gid.raw) ? ENODATA : 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
	uint32_t flags, size_t size)
{
	CANCEL_SAFE;
	struct hca_port *p = port_of(c, port);
	struct ibv_gid_entry e;
	int err = flags || !p ? EINVAL : fill_entry(p, index, &e);

	if (err)
		return err;
	memset(entry, 0, size);
	memcpy(entry, &e, size < sizeof(e) ? size : sizeof(e));
	return 0;
}

ssize_t _ibv_query_gid_table(
	struct ibv_context *c, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size)
{
	CANCEL_SAFE;
	size_t n = 0;

	if (flags)
		return -EINVAL;
	for_each_port(p, hca_context(c)->dev)
	{
		for (uint32_t i = 0; i < p->ngids; i++) {
			struct ibv_gid_entry e;

			if (fill_entry(p, i, &e))
				continue;
			if (n == max)
				return -EINVAL;
			memset((char *)entries + n * size, 0, size);
			memcpy((char *)entries + n * size, &e, size < sizeof(e) ? size : sizeof(e));
			n++;
		}
	}
	return (ssize_t)n;
}

/* Private, but ibv_devinfo calls it: 0 is InfiniBand or RoCE v1, 1 is RoCE v2. */
int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned index, int *type);
int ibv_query_gid_type(struct ibv_context *c, uint8_t port, unsigned index, int *type)
{
	const struct hca_port *p = port_of(c, port);

	if (!p || index >= p->ngids) {
		errno = EINVAL;
		return -1;
	}
	*type = hca_kinds[hca_context(c)->dev->kind].gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t port, int index, __be16 *pkey)
{
	const struct hca_port *p = port_of(c, port);
	uint16_t key;

	if (!p || index < 0 || !hca_port_pkey(p, (unsigned)index, &key)) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htobe16(key);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *c, uint8_t port, __be16 pkey)
{
	const struct hca_port *p = port_of(c, port);
	int index = p ? hca_port_pkey_index(p, be16toh(pkey)) : -1;

	if (index < 0)
		errno = EINVAL;
	return index;
}

/* ---- asynchronous events ---- */
int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	int err = 0;

	if (!(fcntl(c->async_fd, F_GETFL) & O_NONBLOCK))
		err = hca_async_wait(hca_context(c));
	if (!err)
		err = hca_async_get(hca_context(c), event);

	if (err) {
		errno = -err;
		return -1;
	}
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	CANCEL_SAFE;

	hca_async_ack(event);
}
