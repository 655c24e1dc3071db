/* SPDX-License-Identifier: MIT */
/*
 * Device memory (ibv_alloc_dm): memory of the adapter's own, on a file without a name that nobody can make
 * shorter. The program reaches it by requests and by ibv_memcpy_to_dm() alone, so its pages may be where
 * peers on this host map them: for these WRITE, READ and atomics are their own instructions.
 *
 * All of it is there from the beginning: a page that a peer touches first would be charged to that peer.
 */
#include "hca/dm.h"

#include "base/fd.h"
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/context.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_LOG_ALIGN = 12 }; /* a page: it begins with one */

static struct hca_dm *of(struct ibv_dm *dm)
{
	return (struct hca_dm *)dm;
}

/* ---- copying ---- */
static bool fits(const struct hca_dm *dm, uint64_t off, size_t length)
{
	return off <= dm->length && length <= dm->length - off;
}

/* Programs that run here run on cards, which want whole words: rdma-core's own tests ask for a refusal. */
static int check_copy(const struct hca_dm *dm, uint64_t off, const void *host, size_t length)
{
	if (off % 4 || length % 4)
		return EINVAL;
	return fits(dm, off, length) && (host || !length) ? 0 : EFAULT;
}

static int copy_to(struct ibv_dm *ibv, uint64_t off, const void *from, size_t length)
{
	struct hca_dm *dm = of(ibv);
	int err = check_copy(dm, off, from, length);

	if (err || !length)
		return err;
	return guard_copy(dm->mem + off, from, length) ? 0 : EFAULT;
}

static int copy_from(void *to, struct ibv_dm *ibv, uint64_t off, size_t length)
{
	struct hca_dm *dm = of(ibv);
	int err = check_copy(dm, off, to, length);

	if (err || !length)
		return err;
	return guard_copy(to, dm->mem + off, length) ? 0 : EFAULT;
}

/* ---- life ---- */
/* Takes it from what the process may have. */
static bool charge(struct hca_adapter *a, size_t length)
{
	uint64_t used = atomic_load(&a->dm_used);

	do {
		if (length > HCA_MAX_DM || used > HCA_MAX_DM - length)
			return false;
	} while (!atomic_compare_exchange_weak(&a->dm_used, &used, used + length));
	return true;
}

static int make_file(size_t size)
{
	int fd = fd_above_stdio(memfd_create("anyrdma-dm", MFD_CLOEXEC | MFD_ALLOW_SEALING)), err;

	if (fd < 0)
		return -errno;
	if (!fd_resize(fd, size) && !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) {
		err = posix_fallocate(fd, 0, (off_t)size);
		if (!err)
			return fd;
		errno = err;
	}
	err = -errno;
	close(fd);
	return err;
}

static int make(struct hca_dm *dm)
{
	dm->fd = make_file(dm->size);
	if (dm->fd < 0)
		return -dm->fd;
	dm->mem = mmap(NULL, dm->size, PROT_READ | PROT_WRITE, MAP_SHARED, dm->fd, 0);
	if (dm->mem != MAP_FAILED) {
		madvise(dm->mem, dm->size, MADV_DONTFORK); /* a device's memory has no copy in a child */
		return 0;
	}
	close(dm->fd);
	return ENOMEM;
}

struct hca_dm *hca_dm_alloc(struct hca_context *ctx, size_t length, uint32_t log_align)
{
	struct hca_dm *dm;
	int err = !length || log_align > MAX_LOG_ALIGN ? EINVAL : 0;

	if (!err && !charge(ctx->adapter, length))
		err = ENOMEM;
	if (err) {
		errno = err;
		return NULL;
	}
	dm = calloc(1, sizeof(*dm));
	err = dm ? 0 : ENOMEM;
	if (dm) {
		dm->length = length;
		dm->size = (length + MEMORY_PAGE - 1) & ~(size_t)(MEMORY_PAGE - 1);
		err = make(dm);
	}
	if (err) {
		atomic_fetch_sub(&ctx->adapter->dm_used, length);
		free(dm);
		errno = err;
		return NULL;
	}
	dm->ibv.context = &ctx->v.context;
	dm->ibv.memcpy_to_dm = copy_to;
	dm->ibv.memcpy_from_dm = copy_from;
	guard_install();
	hca_context_get(ctx);
	return dm;
}

int hca_dm_free(struct hca_dm *dm)
{
	struct hca_context *ctx = hca_context(dm->ibv.context);

	if (dm->users)
		return EBUSY;
	munmap(dm->mem, dm->size);
	close(dm->fd);
	atomic_fetch_sub(&ctx->adapter->dm_used, dm->length);
	hca_context_put(ctx);
	free(dm);
	return 0;
}

/* ---- regions ---- */
struct hca_mr *hca_dm_reg(struct hca_pd *pd, struct hca_dm *dm, uint64_t off, size_t length, unsigned access)
{
	struct hca_adapter *a = hca_context(pd->ibv.context)->adapter;
	struct hca_exported x;
	struct hca_mr *mr;
	int err = hca_mr_check_access(access);

	/* A region of device memory has no address but 0 (rdma-core: ibv_alloc_dm(3)). */
	if (!err && (!(access & IBV_ACCESS_ZERO_BASED) || !fits(dm, off, length) ||
			    dm->ibv.context != pd->ibv.context))
		err = EINVAL;
	if (err) {
		errno = err;
		return NULL;
	}
	hca_export_region_of_file(a, &x, dm->mem + off, length, dm->fd, off);
	mr = hca_mr_make(pd, dm->mem + off, length, 0, access, &x);
	if (!mr) {
		hca_unexport_region(a, &x, dm->mem + off, length);
		return NULL;
	}
	mr->ibv.addr = NULL;
	mr->dm = dm;
	dm->users++;
	return mr;
}
