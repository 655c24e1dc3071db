/* SPDX-License-Identifier: MIT */
/* Device memory: see dm.c. */
#ifndef HCA_DM_H
#define HCA_DM_H

#include "hca/mr.h"
#include "local/pages/file.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>

struct hca_context;

enum { HCA_MAX_DM = 256 << 20 }; /* bytes, of all of a process's */

struct hca_dm {
	struct ibv_dm ibv;
	char *mem;
	size_t length, size; /* as asked for; whole pages */
	int fd;
	_Atomic unsigned users; /* regions */
};

/* NULL with errno; log_align: of its first byte. */
struct hca_dm *hca_dm_alloc(struct hca_context *ctx, size_t length, uint32_t log_align);
/* 0, or EBUSY when regions are left. */
int hca_dm_free(struct hca_dm *dm);
struct hca_mr *hca_dm_reg(struct hca_pd *pd, struct hca_dm *dm, uint64_t off, size_t length, unsigned access);

#endif
