/* SPDX-License-Identifier: MIT */
#include "hca/adapter.h"

#include "base/log.h"
#include "base/random.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "host/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void hca_adapter_init(struct hca_adapter *a)
{
	static const uint8_t self[16];

	memset(a, 0, sizeof(*a));
	lock_init(&a->lock);
	lock_init(&a->bring_up);
	lock_init(&a->fabric_lock);
	lock_init(&a->export.lock);
	lock_init(&a->engine.drive);
	tally_pool_init(&a->tallies);
	list_init(&a->devices);
	list_init(&a->contexts);
	list_init(&a->free_keys);
	list_init(&a->mcast);
	a->qp1.ops = &hca_qp1_none;
	a->table = &fabric_none;
	a->count = &a->own_count;
	a->read_flow = calloc(1, sizeof(*a->read_flow));
	if (idmap_init(&a->qps) || idmap_init(&a->srqs) || idmap_init(&a->keys) ||
		hca_flow_table_init(&a->flows) || !a->read_flow)
		abort(); /* a few kilobytes at start */
	hca_flow_init(a->read_flow, self, 0);
	a->read_flow->users = 1; /* for ever */
}

void hca_adapter_fini(struct hca_adapter *a)
{
	for (struct list *n; (n = list_pop(&a->free_keys));)
		free(container_of(n, struct hca_key, free));
	hca_flow_table_fini(&a->flows);
	tally_pool_fini(&a->tallies);
	free(a->read_flow);
	idmap_fini(&a->qps);
	idmap_fini(&a->srqs);
	idmap_fini(&a->keys);
}

int hca_adapter_up(struct hca_adapter *a)
{
	int err = 0;

	lock_take(&a->bring_up);
	if (a->dead)
		err = -EIO;
	else if (!a->up)
		err = bringup_open(a);
	if (!err)
		a->up = true;
	lock_drop(&a->bring_up);
	return err;
}

void hca_adapter_down(struct hca_adapter *a)
{
	lock_take(&a->bring_up);
	if (a->up && !a->dead && list_empty(&a->contexts) && !a->qps.count && !a->qp1.users) {
		a->up = false;
		bringup_close(a);
	}
	lock_drop(&a->bring_up);
}

uint32_t hca_adapter_random(struct hca_adapter *a)
{
	return a->seed ? (uint32_t)random_seeded(&a->seed) : random_u32();
}

static bool is_quarantined(const struct hca_qpn_quarantine *r, uint32_t qpn)
{
	uint32_t n = qpn % QPN_PER_SLOT;

	return r->is[n / 64] >> n % 64 & 1;
}

/* The one that has rested longest is free again. */
static void quarantine(struct hca_qpn_quarantine *r, uint32_t qpn)
{
	uint32_t n = qpn % QPN_PER_SLOT, place = r->count++ % HCA_QPN_QUARANTINE, old = r->queue[place];

	if (r->count > HCA_QPN_QUARANTINE)
		r->is[old / 64] &= ~(1ull << old % 64);
	r->queue[place] = (uint16_t)n;
	r->is[n / 64] |= 1ull << n % 64;
}

int hca_adapter_add_qp(struct hca_adapter *a, struct hca_qp *qp)
{
	int err = -ENOMEM;

	lock_take(&a->lock);
	if (a->qps.count < HCA_MAX_QP) {
		do {
			uint32_t qpn =
				a->slot << QPN_SLOT_SHIFT | (hca_adapter_random(a) & (QPN_PER_SLOT - 1));

			qp->ex.qp_base.qp_num = qp->ex.qp_base.handle = qpn;
			err = is_quarantined(&a->quarantine, qpn) ? -EEXIST : idmap_add(&a->qps, qpn, qp);
		} while (err == -EEXIST);
	}
	lock_drop(&a->lock);
	return err;
}

void hca_adapter_del_qp(struct hca_adapter *a, struct hca_qp *qp)
{
	lock_take(&a->lock);
	idmap_del(&a->qps, hca_qpn(qp));
	quarantine(&a->quarantine, hca_qpn(qp));
	lock_drop(&a->lock);
}

int hca_adapter_add_srq(struct hca_adapter *a, struct hca_srq *srq)
{
	int err = -ENOMEM;

	lock_take(&a->lock);
	if (a->srqs.count < HCA_MAX_SRQ) {
		do {
			srq->num = hca_adapter_random(a) & 0xffffff;
			err = idmap_add(&a->srqs, srq->num, srq);
		} while (err == -EEXIST);
	}
	lock_drop(&a->lock);
	return err;
}

void hca_adapter_del_srq(struct hca_adapter *a, struct hca_srq *srq)
{
	lock_take(&a->lock);
	idmap_del(&a->srqs, srq->num);
	lock_drop(&a->lock);
}

struct hca_flow *hca_adapter_flow_find(struct hca_adapter *a, const uint8_t dgid[16], uint32_t qpn)
{
	return hca_flow_table_get(&a->flows, dgid, qpn_slot(qpn));
}

struct hca_flow *hca_adapter_flow(struct hca_adapter *a, const uint8_t dgid[16], uint32_t qpn)
{
	struct hca_flow *f = hca_adapter_flow_find(a, dgid, qpn);

	if (!f)
		f = hca_flow_table_add(
			&a->flows, dgid, qpn_slot(qpn), hca_devices_have(a, dgid), a->read_flow->cap);
	/* More of them in use than queue pairs: share one, slower but right. */
	return f ? f : hca_flow_table_hold(&a->flows, a->read_flow);
}

void hca_adapter_flow_put(struct hca_adapter *a, struct hca_flow *f)
{
	hca_flow_table_put(&a->flows, f);
}
