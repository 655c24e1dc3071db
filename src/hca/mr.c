/* SPDX-License-Identifier: MIT */
#include "hca/mr.h"

#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "hca/dm.h"
#include "observe/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static const unsigned access_known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				     IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND |
				     IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB;

struct hca_pd *hca_pd_alloc(struct hca_context *ctx)
{
	static _Atomic uint32_t numbers;
	struct hca_pd *pd = calloc(1, sizeof(*pd));

	if (!pd)
		return NULL;
	pd->number = ++numbers;
	pd->ibv.context = &ctx->v.context;
	hca_context_get(ctx);
	return pd;
}

int hca_pd_dealloc(struct hca_pd *pd)
{
	if (pd->objects)
		return EBUSY;
	if (pd->parent)
		pd->parent->objects--;
	if (pd->td)
		pd->td->users--;
	hca_context_put(hca_context(pd->ibv.context));
	free(pd);
	return 0;
}

/* ---- keys ---- */
/* What a region is; its record is filled before anybody can find it by its key. */
struct region {
	void *addr;
	size_t length;
	uint64_t iova;
	unsigned access;
	struct hca_exported exported;
};

static const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

/* a->lock held */
static void region_set(struct hca_adapter *a, struct hca_key *k, const struct region *r)
{
	assert_locked(&a->lock);
	k->host = r->addr;
	k->length = r->length;
	k->iova = r->access & IBV_ACCESS_ZERO_BASED ? 0 : r->iova;
	/* Local reads need no right; remote ones are asked for by name. */
	k->access = r->access;
	k->exported = r->exported;
}

/* r: NULL for a window, which is bound later. */
static struct hca_key *key_new(
	struct hca_adapter *a, enum hca_key_kind kind, struct hca_pd *pd, const struct region *r)
{
	struct hca_key *k = NULL;
	struct list *n;
	uint32_t key;
	int err;

	lock_take(&a->lock);
	n = list_pop(&a->free_keys);
	k = n ? container_of(n, struct hca_key, free) : calloc(1, sizeof(*k));
	if (!k)
		goto out;
	list_init(&k->free);
	k->kind = kind;
	k->pd = pd;
	k->access = 0;
	k->iova = k->length = 0;
	k->host = NULL;
	k->exported = (struct hca_exported){.file = 0};
	k->parent = NULL;
	k->qpn = 0;
	k->windows = 0;
	if (r)
		region_set(a, k, r);
	do {
		key = hca_adapter_random(a);
		err = idmap_add(&a->keys, key, k);
	} while (err == -EEXIST);
	if (err) {
		list_add_tail(&a->free_keys, &k->free);
		k = NULL;
		goto out;
	}
	atomic_store_explicit(&k->key, key, memory_order_release);
	hca_export_key(a, k);
out:
	lock_drop(&a->lock);
	return k;
}

/* After this no look-up finds the key, and no frame that found it is still being worked on. */
static int key_free(struct hca_adapter *a, struct hca_key *k)
{
	lock_take(&a->lock);
	if (k->windows) {
		lock_drop(&a->lock);
		return EBUSY;
	}
	idmap_del(&a->keys, k->key);
	hca_unexport_key(a, k->key);
	atomic_store_explicit(&k->key, 0, memory_order_release);
	lock_drop(&a->lock);
	hca_engine_quiesce(&a->engine);
	lock_take(&a->lock);
	k->kind = KEY_FREE;
	list_add_tail(&a->free_keys, &k->free);
	lock_drop(&a->lock);
	return 0;
}

void hca_key_refused(uint32_t key, uint64_t addr, uint64_t len, unsigned access, uint32_t qpn)
{
	PROBE(KEY_REFUSED, .qpn = qpn, .key = key, .addr = addr, .length = len, .access = access);
}

struct hca_key *hca_key_find(struct hca_adapter *a, uint32_t key)
{
	return idmap_get(&a->keys, key);
}

/* ---- what peers on this host can map ---- */
uint32_t hca_key_mapped(struct hca_adapter *a, uint32_t key, const void *host, uint32_t len)
{
	const struct hca_key *k = idmap_get(&a->keys, key);
	uintptr_t from = (uintptr_t)host, to = from + len, start, end;
	const struct share_run *run = k ? &k->exported.run : NULL;

	if (!k || !k->exported.file)
		return 0;
	start = run->start > from ? run->start : from;
	end = run->start + run->len < to ? run->start + run->len : to;
	return start < end ? (uint32_t)(end - start) : 0;
}

/* ---- regions ---- */
/* Linux 5.14 and later; before, the advice is not known. */
static bool can_populate(void)
{
	static _Atomic int known; /* 0: not tried */
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (!known) {
		char probe;

		known = madvise((void *)((uintptr_t)&probe & ~(page - 1)), page, MADV_POPULATE_READ) ? -1 : 1;
	}
	return known > 0;
}

/*
 * Nothing is pinned, but a range that is not mapped, or not writable when it must be, is refused here as the
 * kernel refuses to pin it. The ends are touched; what lies between is only looked up. Of a long range by
 * msync() with nothing to do, which walks mappings and not pages, so that the length does not matter; of a
 * short one by mincore(), since memory checkers take msync() for one that reads all bytes.
 */
static bool is_mapped(char *start, size_t length, size_t page)
{
	enum { SHORT = 1024 };
	unsigned char vec[SHORT];

	if (length / page <= SHORT)
		return !mincore(start, length, vec) || errno != ENOMEM;
	return !msync(start, length, MS_ASYNC) || errno != ENOMEM;
}

static int check_mapped(char *addr, size_t length, unsigned access)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *start = (char *)((uintptr_t)addr & ~(page - 1));
	char *last = (char *)((uintptr_t)(addr + length - 1) & ~(page - 1));
	int advice = access & IBV_ACCESS_LOCAL_WRITE ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;

	if (!is_mapped(start, (size_t)(last - start) + page, page))
		return EFAULT;
	if (!can_populate())
		return 0;
	return madvise(start, page, advice) || (last != start && madvise(last, page, advice)) ? EFAULT : 0;
}

int hca_mr_check_access(unsigned access)
{
	if (access & ~access_known & ~IBV_ACCESS_OPTIONAL_RANGE)
		return EINVAL;
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		!(access & IBV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	return 0;
}

static int check_region(void *addr, size_t length, uint64_t iova, unsigned access)
{
	if (hca_mr_check_access(access))
		return EINVAL;
	if ((uintptr_t)addr + length < (uintptr_t)addr || iova + length < iova)
		return EINVAL;
	return length ? check_mapped(addr, length, access) : 0;
}

struct hca_mr *hca_mr_make(struct hca_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
	const struct hca_exported *x)
{
	struct region r = {.addr = addr, .length = length, .iova = iova, .access = access, .exported = *x};
	struct hca_mr *mr = calloc(1, sizeof(*mr));

	if (!mr)
		return NULL;
	guard_install();
	mr->key = key_new(hca_context(pd->ibv.context)->adapter, KEY_MR, hca_pd(&pd->ibv), &r);
	if (!mr->key) {
		free(mr);
		errno = ENOMEM;
		return NULL;
	}
	mr->ibv.context = pd->ibv.context;
	mr->ibv.pd = &pd->ibv;
	mr->ibv.addr = addr;
	mr->ibv.length = length;
	mr->ibv.lkey = mr->ibv.rkey = mr->key->key;
	pd->objects++;
	PROBE(MR_REG, .key = mr->ibv.lkey, .addr = (uintptr_t)addr, .length = length, .access = access);
	return mr;
}

struct hca_mr *hca_mr_reg(struct hca_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct hca_adapter *a = hca_context(pd->ibv.context)->adapter;
	struct hca_exported x;
	struct hca_mr *mr;
	int err = check_region(addr, length, iova, access);

	if (err) {
		errno = err;
		return NULL;
	}
	hca_export_region(a, &x, addr, length, access);
	mr = hca_mr_make(pd, addr, length, iova, access, &x);
	if (!mr)
		hca_unexport_region(a, &x, addr, length);
	return mr;
}

/* Pages that were moved go back while the region still is one: should that fail, it stays. */
static int put_back(struct hca_adapter *a, struct hca_mr *mr)
{
	struct hca_key *k = mr->key;
	int err;

	if (!k->exported.share)
		return 0;
	hca_unexport_key(a, k->key);
	hca_engine_quiesce(&a->engine);
	err = hca_unexport_region(a, &k->exported, mr->ibv.addr, mr->ibv.length);
	hca_export_key(a, k);
	return -err;
}

int hca_mr_dereg(struct hca_mr *mr)
{
	struct hca_pd *pd = (struct hca_pd *)mr->ibv.pd;
	struct hca_adapter *a = hca_context(mr->ibv.context)->adapter;
	struct hca_key *k = mr->key;
	struct hca_exported x;
	int err = k->windows ? EBUSY : put_back(a, mr);

	if (err)
		return err;
	x = k->exported;
	if (key_free(a, k))
		return EBUSY; /* a window is bound to it */
	hca_unexport_region(a, &x, mr->ibv.addr, mr->ibv.length);
	PROBE(MR_DEREG, .key = mr->ibv.lkey);
	if (mr->dm)
		mr->dm->users--;
	pd->objects--;
	free(mr);
	return 0;
}

int hca_mr_rereg(struct hca_mr *mr, int flags, struct hca_pd *pd, void *addr, size_t length, unsigned access)
{
	struct hca_context *ctx = hca_context(mr->ibv.context);
	struct hca_adapter *a = ctx->adapter;
	struct hca_key *k = mr->key;
	void *new_addr = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? addr : mr->ibv.addr;
	size_t new_len = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? length : mr->ibv.length;
	unsigned new_access = flags & IBV_REREG_MR_CHANGE_ACCESS ? access : k->access;
	uint64_t new_iova = flags & IBV_REREG_MR_CHANGE_TRANSLATION ? (uintptr_t)addr : k->iova;
	struct region r = {.addr = new_addr, .length = new_len, .iova = new_iova, .access = new_access};
	struct hca_exported old;
	int err = mr->dm ? EOPNOTSUPP : check_region(new_addr, new_len, new_iova, new_access);

	if (err)
		return err;
	if (k->windows)
		return EBUSY;
	hca_export_region(a, &r.exported, new_addr, new_len, new_access);
	/* No frame may see half of the change. */
	hca_unexport_key(a, k->key);
	lock_take(&a->engine.drive);
	if (flags & IBV_REREG_MR_CHANGE_PD)
		k->pd = hca_pd(&pd->ibv);
	lock_take(&a->lock);
	old = k->exported;
	region_set(a, k, &r);
	hca_export_key(a, k);
	lock_drop(&a->lock);
	lock_drop(&a->engine.drive);
	hca_engine_quiesce(&a->engine);
	hca_unexport_region(a, &old, mr->ibv.addr, mr->ibv.length);
	mr->ibv.addr = new_addr;
	mr->ibv.length = new_len;
	PROBE(MR_REG, .key = mr->ibv.lkey, .addr = (uintptr_t)new_addr, .length = new_len,
		.access = new_access);
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		((struct hca_pd *)mr->ibv.pd)->objects--;
		pd->objects++;
		mr->ibv.pd = &pd->ibv;
	}
	return 0;
}

/* ---- windows ---- */
struct hca_mw *hca_mw_alloc(struct hca_pd *pd, enum ibv_mw_type type)
{
	struct hca_adapter *a = hca_context(pd->ibv.context)->adapter;
	struct hca_mw *mw;

	if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) {
		errno = EINVAL;
		return NULL;
	}
	mw = calloc(1, sizeof(*mw));
	if (!mw)
		return NULL;
	mw->key = key_new(a, type == IBV_MW_TYPE_1 ? KEY_MW1 : KEY_MW2, hca_pd(&pd->ibv), NULL);
	if (!mw->key) {
		free(mw);
		errno = ENOMEM;
		return NULL;
	}
	mw->ibv.context = pd->ibv.context;
	mw->ibv.pd = &pd->ibv;
	mw->ibv.rkey = mw->key->key;
	mw->ibv.type = type;
	pd->objects++;
	return mw;
}

/*
 * Binding, unbinding and invalidating run under the adapter's lock: the program binds through one QP while
 * the peer of another may invalidate, and a region must know of every window that reaches into it.
 */
static void window_unbind(struct hca_key *k)
{
	k->access = 0; /* first: who looks now finds no right */
	if (k->parent)
		k->parent->windows--;
	k->parent = NULL;
	k->length = 0;
	k->qpn = 0;
}

int hca_mw_dealloc(struct hca_mw *mw)
{
	struct hca_adapter *a = hca_context(mw->ibv.context)->adapter;
	struct hca_pd *pd = (struct hca_pd *)mw->ibv.pd;

	lock_take(&a->lock);
	window_unbind(mw->key);
	lock_drop(&a->lock);
	key_free(a, mw->key);
	pd->objects--;
	free(mw);
	return 0;
}

static int window_rename(struct hca_adapter *a, struct hca_key *k, uint32_t key)
{
	if (key == k->key)
		return 0;
	if (idmap_add(&a->keys, key, k))
		return EINVAL;
	idmap_del(&a->keys, k->key);
	atomic_store_explicit(&k->key, key, memory_order_release);
	return 0;
}

struct hca_bind hca_bind_of(struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info)
{
	return (struct hca_bind){.mw = ((struct hca_mw *)mw)->key,
		.mr = info->mr ? ((struct hca_mr *)info->mr)->key : NULL,
		.mr_key = info->mr ? info->mr->lkey : 0,
		.rkey = rkey,
		.addr = info->addr,
		.length = info->length,
		.access = info->mw_access_flags};
}

static bool may_bind(const struct hca_bind *b)
{
	const struct hca_key *k = b->mw, *mr = b->mr;

	if (!k->key || (k->kind != KEY_MW1 && k->kind != KEY_MW2))
		return false; /* gone */
	/* A type 2 window is bound once, then invalidated (IBA 10.6.7.2.2). */
	if (k->kind == KEY_MW2 && k->parent)
		return false;
	if (!b->length)
		return true;
	if (!mr || mr->key != b->mr_key || mr->kind != KEY_MR)
		return false;
	if (mr->pd != k->pd || !(mr->access & IBV_ACCESS_MW_BIND))
		return false;
	if ((b->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) &&
		!(mr->access & IBV_ACCESS_LOCAL_WRITE))
		return false;
	return b->addr >= mr->iova && b->addr - mr->iova <= mr->length &&
	       b->length <= mr->length - (b->addr - mr->iova);
}

static int window_bind(struct hca_adapter *a, const struct hca_bind *b, uint32_t qpn)
{
	struct hca_key *k = b->mw, *mr = b->mr;

	if (!may_bind(b) || window_rename(a, k, b->rkey))
		return EINVAL;
	window_unbind(k);
	if (!b->length)
		return 0;
	mr->windows++;
	k->parent = mr;
	k->host = mr->host + (b->addr - mr->iova);
	k->iova = b->access & IBV_ACCESS_ZERO_BASED ? 0 : b->addr;
	k->qpn = qpn;
	k->access = b->access & remote;
	k->length = b->length;
	return 0;
}

int hca_mw_bind(struct hca_adapter *a, const struct hca_bind *b, uint32_t qpn)
{
	int err;

	lock_take(&a->lock);
	err = window_bind(a, b, qpn);
	lock_drop(&a->lock);
	return err;
}

int hca_key_invalidate(struct hca_adapter *a, struct hca_pd *pd, uint32_t key, uint32_t qpn)
{
	struct hca_key *k;
	int err = -EINVAL;

	lock_take(&a->lock);
	k = idmap_get(&a->keys, key);
	if (k && k->key == key && k->pd == pd && k->kind == KEY_MW2 && (!k->parent || k->qpn == qpn)) {
		window_unbind(k);
		err = 0;
	}
	lock_drop(&a->lock);
	return err;
}
