/* SPDX-License-Identifier: MIT */
/*
 * Devices of InfiniBand: the adapters of the fabric's host that the program is on. The fabric says which
 * there are when we come; all else is in its table, which we follow. When it ends, the ports go down and the
 * devices stay, as with a cable that is pulled.
 */
#include "base/fence.h"
#include "base/log.h"
#include "fabric/attach.h"
#include "fabric/client.h"
#include "fabric/shared.h"
#include "hca/adapter.h"
#include "hca/device.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * ---- the fabric ----
 * A child of fork finds a->fabric at any moment, and lets go of it: it is there when it is whole, and until
 * it ceases to be.
 */
static void let_go(struct hca_adapter *a)
{
	struct fabric_attachment *was = a->fabric;

	a->fabric = NULL;
	fence_release();
	fabric_detach(was);
	free(was);
}

static int attach(struct hca_adapter *a)
{
	struct fabric_attachment *now = malloc(sizeof(*now));
	int err = now ? fabric_attach(now, 0, FABRIC_PATIENCE_MS) : -ENOMEM;

	if (err) {
		free(now);
		return err;
	}
	atomic_store(&a->host_tag, now->welcome.host_tag);
	fence_release();
	a->fabric = now;
	return 0;
}

/* Whether it is there, perhaps again. fabric_lock held. */
static int reach(struct hca_adapter *a)
{
	bool gone = false;

	assert_locked(&a->fabric_lock);
	if (a->fabric)
		fabric_read_news(a->fabric->fd, &gone);
	if (gone)
		let_go(a);
	return a->fabric ? 0 : attach(a);
}

/* A port as it is between two changes of the table. */
static bool read_port(const struct fabric_table *t, uint32_t index, struct fabric_port *out)
{
	enum { TRIES = 1000 }; /* the fabric may have died in the midst of a change */
	const struct fabric_port *p = fabric_port(t, index);

	for (int i = 0; p && i < TRIES; i++) {
		uint64_t epoch = fabric_epoch(t);

		memcpy(out, p, sizeof(*out));
		fence_acquire();
		if (!(epoch & 1) && fabric_epoch(t) == epoch)
			break;
		sched_yield();
	}
	return p;
}

void hca_devices_abandon(struct hca_adapter *a)
{
	lock_init(&a->fabric_lock);
	if (!a->fabric)
		return;
	close(a->fabric->fd);
	a->parents.fabric = a->fabric; /* what it mapped is not there in a child */
	a->fabric = NULL;
}

/* ---- devices ---- */
static struct hca_device *find(struct hca_adapter *a, const char *name)
{
	list_for_each(n, &a->devices)
	{
		struct hca_device *d = container_of(n, struct hca_device, node);

		if (d->kind == HCA_INFINIBAND && !strcmp(d->vd.ibv.name, name))
			return d;
	}
	return NULL;
}

static struct hca_device *make(struct hca_adapter *a, const struct attach_welcome *w, unsigned index)
{
	const struct attach_hca *h = &w->hca[index];
	struct hca_device *d = calloc(1, sizeof(*d));
	struct ibv_device *ibv;

	if (!d)
		return NULL;
	ibv = &d->vd.ibv;
	d->adapter = a;
	d->kind = HCA_INFINIBAND;
	d->guid = h->node_guid;
	for (uint8_t i = 0; i < h->nports; i++)
		hca_port_init_ib(&d->port[i], d, (uint8_t)(i + 1), h->port[i]);
	ibv->node_type = hca_kinds[d->kind].node_type;
	ibv->transport_type = hca_kinds[d->kind].transport_type;
	snprintf(ibv->name, sizeof(ibv->name), "%s", h->name);
	snprintf(ibv->dev_name, sizeof(ibv->dev_name), "uverbs%u", index);
	if (w->tree[0]) {
		snprintf(ibv->dev_path, sizeof(ibv->dev_path), "%.200s/class/infiniband_verbs/uverbs%u",
			w->tree, index);
		snprintf(ibv->ibdev_path, sizeof(ibv->ibdev_path), "%.200s/class/infiniband/%s", w->tree,
			h->name);
	}
	return d;
}

static const struct attach_hca *hca_of(const struct attach_welcome *w, const struct hca_device *d)
{
	for (uint32_t i = 0; i < w->nhcas; i++)
		if (!strcmp(w->hca[i].name, d->vd.ibv.name))
			return &w->hca[i];
	return NULL;
}

/*
 * The fabric may have come back with other adapters under the same names, and their ports elsewhere in its
 * table. A device keeps its number of ports, which programs have counted: those that are not there any more
 * are down. Without a fabric it stays. The adapter's lock.
 */
static void device_follows(struct hca_device *d, const struct fabric_attachment *f, bool is_new)
{
	const struct attach_hca *h = f ? hca_of(&f->welcome, d) : NULL;

	d->gone = f && !h;
	if (h)
		d->guid = h->node_guid;
	for_each_port(p, d)
	{
		struct fabric_port now;
		bool there = h && p->num <= h->nports;
		unsigned changed;

		if (there)
			p->ib.index = h->port[p->num - 1];
		there = there && read_port(f->table, p->ib.index, &now);
		changed = hca_port_follow_ib(p, there ? &now : NULL);
		if (!is_new)
			hca_port_raise(p, changed);
	}
}

/* Those that the fabric says we have. The adapter's lock. */
static void add_devices(struct hca_adapter *a)
{
	for (unsigned i = 0; i < a->fabric->welcome.nhcas; i++) {
		struct hca_device *d =
			find(a, a->fabric->welcome.hca[i].name) ? NULL : make(a, &a->fabric->welcome, i);

		if (!d)
			continue;
		device_follows(d, a->fabric, true);
		list_add_tail(&a->devices, &d->node);
	}
}

static void say_why(int err)
{
	static atomic_flag said = ATOMIC_FLAG_INIT;

	if (atomic_flag_test_and_set(&said))
		return;
	log_warn("the program is on a host of a fabric (ANYRDMA_HOST), and has no devices: %s",
		err == -ENOENT   ? "no fabric is up, or several are, and ANYRDMA_FABRIC does not say which; "
				   "see `anyrdma fabric up`"
		: err == -ENODEV ? "the fabric has no such host, see `anyrdma fabric hosts`"
				 : strerror(-err));
}

int hca_devices_refresh_ib(struct hca_adapter *a)
{
	int err;

	lock_take(&a->fabric_lock);
	err = reach(a);
	lock_take(&a->lock);
	if (err && list_empty(&a->devices))
		say_why(err);
	a->fabric_seen = a->fabric ? fabric_epoch(a->fabric->table) : 0;
	list_for_each(n, &a->devices)
	{
		device_follows(container_of(n, struct hca_device, node), a->fabric, false);
	}
	if (a->fabric)
		add_devices(a);
	lock_drop(&a->lock);
	lock_drop(&a->fabric_lock);
	return 0;
}

void hca_devices_look(struct hca_adapter *a)
{
	bool stale;

	if (!a->on_fabric || a->dead)
		return;
	lock_take(&a->fabric_lock);
	stale = !a->fabric || fabric_epoch(a->fabric->table) != a->fabric_seen;
	lock_drop(&a->fabric_lock);
	if (stale)
		hca_devices_refresh_ib(a);
}
