/* SPDX-License-Identifier: MIT */
/*
 * Memory regions, memory windows and their keys. A key is 32 random bits; hca_key is what it stands for:
 * a stretch of this process's memory, a protection domain and rights.
 *
 * Look-ups take no lock. hca_key records are recycled but never freed, and a reader checks that the record
 * still carries the key it looked up. Remote access happens under the drive lock (hca/engine.h), which
 * deregistration passes through: once ibv_dereg_mr returns, nothing more lands.
 */
#ifndef HCA_MR_H
#define HCA_MR_H

#include "base/fence.h"
#include "base/list.h"
#include "hca/export.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>

struct hca_adapter;
struct hca_context;
struct hca_dm;

struct hca_td {
	struct ibv_td ibv;
	_Atomic unsigned users; /* parent domains */
};

struct hca_pd {
	struct ibv_pd ibv;
	struct hca_pd *parent;    /* of a parent domain: the PD it stands for; else NULL */
	struct hca_td *td;        /* of a parent domain, or NULL */
	uint32_t number;          /* how others on this host know it */
	_Atomic unsigned objects; /* MRs, QPs, SRQs, AHs, parent domains */
};

/* The PD that protection checks compare: a parent domain is its parent. */
static inline struct hca_pd *hca_pd(struct ibv_pd *p)
{
	struct hca_pd *pd = (struct hca_pd *)p;

	return pd->parent ? pd->parent : pd;
}

enum hca_key_kind { KEY_FREE, KEY_MR, KEY_MW1, KEY_MW2 };

struct hca_key {
	_Atomic uint32_t key; /* 0: free */
	enum hca_key_kind kind;
	unsigned access;
	struct hca_pd *pd;
	uint64_t iova, length;        /* what requests name: [iova, iova + length) */
	char *host;                   /* where iova is in this process */
	struct hca_exported exported; /* a region's: what of it others can map */
	struct hca_key *parent;       /* a bound window's region */
	uint32_t qpn;                 /* a bound type 2 window belongs to this QP */
	_Atomic unsigned windows;     /* a region's bound windows */
	struct list free;
};

struct hca_mr {
	struct ibv_mr ibv;
	uint64_t stock_private[2]; /* stock libraries keep a type and the access flags behind ibv_mr */
	struct hca_key *key;
	struct hca_dm *dm; /* of device memory; else NULL */
};

struct hca_mw {
	struct ibv_mw ibv;
	struct hca_key *key;
};

struct hca_pd *hca_pd_alloc(struct hca_context *ctx);
int hca_pd_dealloc(struct hca_pd *pd);

/* NULL with errno. access: IBV_ACCESS_*, optional bits ignored. */
struct hca_mr *hca_mr_reg(struct hca_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access);
/* 0 or an errno: EBUSY: a window is bound to it; another (map): its pages could not be put back. */
int hca_mr_dereg(struct hca_mr *mr);

/* 0 or EINVAL. */
int hca_mr_check_access(unsigned access);
/* For hca_dm_reg(): a region whose export is known. Takes over *x; NULL with errno: it is the caller's. */
struct hca_mr *hca_mr_make(struct hca_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access,
	const struct hca_exported *x);
/* 0 or an errno; flags: IBV_REREG_MR_* */
int hca_mr_rereg(struct hca_mr *mr, int flags, struct hca_pd *pd, void *addr, size_t length, unsigned access);

struct hca_mw *hca_mw_alloc(struct hca_pd *pd, enum ibv_mw_type type);
int hca_mw_dealloc(struct hca_mw *mw);
/*
 * A bind as it waits in a send queue. What it names may be gone when its turn comes, so it holds records,
 * which are never freed, and not the program's objects.
 */
struct hca_bind {
	struct hca_key *mw, *mr; /* mr: NULL when there is none */
	uint32_t mr_key;         /* what mr stood for */
	uint32_t rkey;           /* the window's, once it is bound */
	uint64_t addr, length;
	unsigned access;
};

struct hca_bind hca_bind_of(struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info);
/* Binds (length 0: unbinds): 0 or an errno. */
int hca_mw_bind(struct hca_adapter *a, const struct hca_bind *b, uint32_t qpn);
/* Takes a type 2 window's key away (LOCAL_INV, SEND with invalidate): 0 or -EINVAL. */
int hca_key_invalidate(struct hca_adapter *a, struct hca_pd *pd, uint32_t key, uint32_t qpn);

/*
 * The host address of [addr, addr + len) under `key`, whose record is k, or NULL when the key is not known,
 * belongs to another PD or QP, the range leaves it, or a right in `access` is missing. len 0 is the caller's
 * to allow. For a peer's requests: hca_qp_target().
 */
static inline void *hca_key_at(const struct hca_key *k, const struct hca_pd *pd, uint32_t key, uint64_t addr,
	uint64_t len, unsigned access, uint32_t qpn)
{
	uint64_t off;
	char *host;

	if (!k || atomic_load_explicit(&k->key, memory_order_acquire) != key || k->pd != pd)
		return NULL;
	if (k->kind == KEY_MW2 && k->qpn != qpn)
		return NULL;
	if ((k->access & access) != access)
		return NULL;
	off = addr - k->iova; /* wraps to something huge when below */
	if (off > k->length || len > k->length - off)
		return NULL;
	host = k->host;
	/* Still the same? A window may be bound anew, or a record recycled, while we look. */
	fence_acquire();
	return atomic_load_explicit(&k->key, memory_order_relaxed) == key ? host + off : NULL;
}

/* Tells who listens; apart, so that who finds a key pays nothing for it. */
void hca_key_refused(uint32_t key, uint64_t addr, uint64_t len, unsigned access, uint32_t qpn)
	__attribute__((cold));

/* The record of a key, or NULL; it may become another one's, but never goes away. */
struct hca_key *hca_key_find(struct hca_adapter *a, uint32_t key);
/* How many of these bytes, which hca_key_at() found, others can map. */
uint32_t hca_key_mapped(struct hca_adapter *a, uint32_t key, const void *host, uint32_t len);

#endif
