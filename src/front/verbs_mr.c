/* SPDX-License-Identifier: MIT */
/* Protection domains, memory regions and windows, thread and parent domains. */
#include "front/verbs_front.h"

#include "base/cancel.h"
#include "hca/context.h"
#include "hca/dm.h"
#include "hca/mr.h"

#include <errno.h>
#include <stdlib.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	CANCEL_SAFE;
	struct hca_pd *pd = hca_pd_alloc(hca_context(c));

	return pd ? &pd->ibv : NULL;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(pd->context))
		return 0;
	return hca_pd_dealloc((struct hca_pd *)pd);
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct hca_mr *mr = hca_mr_reg((struct hca_pd *)pd, addr, length, iova, access);

	return mr ? &mr->ibv : NULL;
}

struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	CANCEL_SAFE;

	return reg(pd, addr, length, (uintptr_t)addr, (unsigned)access);
}

struct ibv_mr *(ibv_reg_mr_iova)(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	CANCEL_SAFE;

	return reg(pd, addr, length, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	CANCEL_SAFE;

	return reg(pd, addr, length, iova, access);
}

/* Device memory behind a dma-buf is not ours to reach. */
struct ibv_mr *ibv_reg_dmabuf_mr(
	struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	CANCEL_SAFE;
	int known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS,
	    err;

	if ((flags & ~known) || !flags || ((flags & IBV_REREG_MR_CHANGE_PD) && !pd) ||
		((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (!addr || !length))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	err = hca_mr_rereg((struct hca_mr *)mr, flags, (struct hca_pd *)pd, addr, length, (unsigned)access);
	if (err) {
		errno = err;
		return IBV_REREG_MR_ERR_CMD; /* and the region is as it was */
	}
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(mr->context))
		return 0;
	return hca_mr_dereg((struct hca_mr *)mr);
}

/* ---- device memory ---- */
struct ibv_dm *verbs_alloc_dm(struct ibv_context *c, struct ibv_alloc_dm_attr *attr)
{
	CANCEL_SAFE;
	struct hca_dm *dm;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	dm = hca_dm_alloc(hca_context(c), attr->length, attr->log_align_req);
	return dm ? &dm->ibv : NULL;
}

int verbs_free_dm(struct ibv_dm *dm)
{
	CANCEL_SAFE;
	if (hca_context_is_parents(dm->context))
		return 0;
	return hca_dm_free((struct hca_dm *)dm);
}

struct ibv_mr *verbs_reg_dm_mr(
	struct ibv_pd *pd, struct ibv_dm *dm, uint64_t off, size_t length, unsigned int access)
{
	CANCEL_SAFE;
	struct hca_mr *mr = hca_dm_reg((struct hca_pd *)pd, (struct hca_dm *)dm, off, length, access);

	return mr ? &mr->ibv : NULL;
}

/* Nothing is pinned or mapped ahead: advice is taken and not needed. */
int verbs_advise_mr(
	struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge, uint32_t n)
{
	return n ? 0 : EINVAL;
}

struct ibv_mw *verbs_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	CANCEL_SAFE;
	struct hca_mw *mw = hca_mw_alloc((struct hca_pd *)pd, type);

	return mw ? &mw->ibv : NULL;
}

int verbs_dealloc_mw(struct ibv_mw *mw)
{
	CANCEL_SAFE;

	if (hca_context_is_parents(mw->context))
		return 0;
	return hca_mw_dealloc((struct hca_mw *)mw);
}

/* ---- thread and parent domains: promises about locking that we do not need ---- */
struct ibv_td *verbs_alloc_td(struct ibv_context *c, struct ibv_td_init_attr *attr)
{
	CANCEL_SAFE;
	struct hca_td *td;

	if (attr->comp_mask) {
		errno = EINVAL;
		return NULL;
	}
	td = calloc(1, sizeof(*td));
	if (!td)
		return NULL;
	td->ibv.context = c;
	hca_context_get(hca_context(c));
	return &td->ibv;
}

int verbs_dealloc_td(struct ibv_td *ibv)
{
	CANCEL_SAFE;
	struct hca_td *td = (struct hca_td *)ibv;

	if (td->users)
		return EBUSY;
	hca_context_put(hca_context(ibv->context));
	free(td);
	return 0;
}

struct ibv_pd *verbs_alloc_parent_domain(struct ibv_context *c, struct ibv_parent_domain_init_attr *attr)
{
	CANCEL_SAFE;
	uint32_t known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
	struct hca_pd *pd;

	if (!attr->pd || (attr->comp_mask & ~known)) {
		errno = EINVAL;
		return NULL;
	}
	pd = hca_pd_alloc(hca_context(c));
	if (!pd)
		return NULL;
	pd->parent = hca_pd(attr->pd);
	pd->parent->objects++;
	pd->td = (struct hca_td *)attr->td;
	if (pd->td)
		pd->td->users++;
	return &pd->ibv;
}
