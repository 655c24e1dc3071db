/* SPDX-License-Identifier: MIT */
#include "hca/export.h"

#include "hca/adapter.h"
#include "hca/mr.h"
#include "hca/qp.h"

#include <string.h>

void hca_export_begin(struct hca_adapter *a)
{
	local_export_begin(&a->export);
}

void hca_export_end(struct hca_adapter *a)
{
	local_export_end(&a->export);
}

/* ---- keys and QPs ---- */
void hca_export_key(struct hca_adapter *a, const struct hca_key *k)
{
	struct local_export_key e = {.pd = k->pd->number,
		.access = (uint16_t)k->access, /* the rights; what is optional lies above */
		.file = k->exported.file,
		.iova = k->iova,
		.length = k->length,
		.host = (uintptr_t)k->host,
		.map_host = k->exported.run.start,
		.map_off = k->exported.run.off,
		.map_len = k->exported.run.len};

	if (k->kind == KEY_MR)
		local_export_set_key(&a->export, k->key, &e);
}

void hca_unexport_key(struct hca_adapter *a, uint32_t key)
{
	local_export_set_key(&a->export, key, NULL);
}

/*
 * In RTR the first request raises an event: the responder has to see that one. On a fabric the path is
 * decided by who acts, each time (ib/path.c).
 */
static bool takes_requests(const struct hca_qp *qp)
{
	enum ibv_qp_state s = hca_qp_state(qp);

	return (qp->path.shared || qp->adapter->on_fabric) &&
	       (s == IBV_QPS_RTS || s == IBV_QPS_SQD || (s == IBV_QPS_RTR && qp->comm_est_raised));
}

void hca_export_qp(struct hca_adapter *a, struct hca_qp *qp)
{
	struct local_export_qp e = {.peer_qpn = qp->attr.dest_qp_num,
		.peer_psn = qp->attr.rq_psn,
		.pd = qp->pd->number,
		.access = qp->attr.qp_access_flags,
		.life = qp->generation,
		.pkey = qp->path.pkey};

	assert_locked(&qp->lock);
	qp->seen.number = 0; /* its peer may be another one now */
	if (!qp->attr.max_dest_rd_atomic)
		e.access &= ~(unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC); /* refused */
	if (!a->export.table || !qp->service.reliable)
		return;
	memcpy(e.peer_gid, qp->path.dest.dgid, 16);
	memcpy(e.gid, qp->path.dest.sgid, 16);
	local_export_set_qp(&a->export, hca_qpn(qp), takes_requests(qp) ? &e : NULL);
}

static void export_key(void *arg, void *key)
{
	hca_export_key(arg, key);
}

void hca_export_to(struct hca_adapter *a, struct local_export *table)
{
	lock_take(&a->lock);
	a->export.table = table;
	local_files_export(&a->files, &a->export);
	idmap_each(&a->keys, export_key, a);
	lock_drop(&a->lock);
}

/*
 * ---- other regions on pages that move (map) ----
 * Peers write to the edges of a region by the kernel's hand, which takes hold of a page first. A page that is
 * moved just then would keep nothing of it. So while pages move, regions that share them are not exported.
 */
struct overlap {
	struct hca_adapter *a;
	uintptr_t from, to;
	void (*act)(struct hca_adapter *a, const struct hca_key *k);
	unsigned n;
};

static void if_overlaps(void *arg, void *value)
{
	struct overlap *o = arg;
	const struct hca_key *k = value;
	uintptr_t start = (uintptr_t)k->host;

	if (k->kind != KEY_MR || start >= o->to || start + k->length <= o->from)
		return;
	o->n++;
	o->act(o->a, k);
}

static void hide(struct hca_adapter *a, const struct hca_key *k)
{
	hca_unexport_key(a, k->key);
}

static unsigned others_on(struct hca_adapter *a, const void *addr, size_t length,
	void (*act)(struct hca_adapter *a, const struct hca_key *k))
{
	struct overlap o = {.a = a, .from = (uintptr_t)addr, .to = (uintptr_t)addr + length, .act = act};

	lock_take(&a->lock);
	idmap_each(&a->keys, if_overlaps, &o);
	lock_drop(&a->lock);
	return o.n;
}

static void set_aside(struct hca_adapter *a, const void *addr, size_t length)
{
	if (others_on(a, addr, length, hide))
		hca_engine_quiesce(&a->engine);
}

/* ---- regions ---- */
static void export_run(struct hca_adapter *a, struct hca_exported *x, const struct shared_file *f)
{
	lock_take(&a->lock);
	x->file = local_files_get(&a->files, &a->export, f);
	lock_drop(&a->lock);
}

static void move(struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len)
{
	struct shared_file f;
	int fd;

	set_aside(a, addr, len);
	x->share = share_take(addr, len, &x->run);
	others_on(a, addr, len, hca_export_key);
	if (!x->share)
		return;
	fd = share_file_get();
	if (fd >= 0 && shared_file_of(fd, &f))
		export_run(a, x, &f);
	if (fd >= 0)
		share_file_put();
}

void hca_export_region(struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len, unsigned access)
{
	const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct shared_file f;
	uint64_t off;

	*x = (struct hca_exported){.file = 0};
	if (a->local < HCA_LOCAL_COPY || !len)
		return;
	if (shareable_find(addr, len, &f, &off)) {
		x->run = (struct share_run){(uintptr_t)addr, off, len};
		export_run(a, x, &f);
	} else if (a->local == HCA_LOCAL_MAP && (access & remote)) {
		move(a, x, addr, len);
	}
}

void hca_export_region_of_file(
	struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len, int fd, uint64_t off)
{
	struct shared_file f;

	*x = (struct hca_exported){.file = 0};
	if (a->local < HCA_LOCAL_COPY || !len || !shared_file_of(fd, &f))
		return;
	x->run = (struct share_run){(uintptr_t)addr, off, len};
	export_run(a, x, &f);
}

static int move_back(struct hca_adapter *a, struct share *share, void *addr, size_t len)
{
	int err;

	set_aside(a, addr, len);
	err = share_drop(share);
	others_on(a, addr, len, hca_export_key);
	return err;
}

int hca_unexport_region(struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len)
{
	int err = x->share ? move_back(a, x->share, addr, len) : 0;

	if (err)
		return err;
	if (x->file) {
		lock_take(&a->lock);
		local_files_put(&a->files, &a->export, x->file);
		lock_drop(&a->lock);
	}
	*x = (struct hca_exported){.file = 0};
	return 0;
}
