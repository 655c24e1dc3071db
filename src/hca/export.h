/* SPDX-License-Identifier: MIT */
/*
 * What of the adapter other processes of this host may act on (local/export/export.h): regions, and queue
 * pairs that take requests.
 *
 * Of a region they are told where it lies in a file that they can open, if it does. Memory that is shareable
 * already (local/pages/shareable.h) is used as it is; with ANYRDMA_LOCAL=map the pages of any other region
 * that peers may reach are moved onto a file of ours (local/pages/share.h).
 */
#ifndef HCA_EXPORT_H
#define HCA_EXPORT_H

#include "local/export/export.h"
#include "local/pages/share.h"

struct hca_adapter;
struct hca_key;
struct hca_qp;

/* Of a region. */
struct hca_exported {
	struct share_run run; /* the part that they can map; no length: none */
	struct share *share;  /* ours, if the pages were moved; else NULL */
	uint16_t file;        /* its number, as on the export; 0: none */
};

/* Exports all there is to this table from now on; NULL: no more. Takes a->lock. */
void hca_export_to(struct hca_adapter *a, struct local_export *table);
/* Until hca_export_end(), by the same thread, others may act on it. Without it they do not. */
void hca_export_begin(struct hca_adapter *a);
void hca_export_end(struct hca_adapter *a);
/* Exports a region as it is now; any lock but the export's own. */
void hca_export_key(struct hca_adapter *a, const struct hca_key *k);
void hca_unexport_key(struct hca_adapter *a, uint32_t key);
/* Exports a QP as it is now: no more, when it takes no requests of others. qp->lock held. */
void hca_export_qp(struct hca_adapter *a, struct hca_qp *qp);

/* Finds out about a region, and (map) moves what can be moved, which may take the time of a copy. */
void hca_export_region(
	struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len, unsigned access);
/* For device memory, which is a file's from birth. */
void hca_export_region_of_file(
	struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len, int fd, uint64_t off);
/*
 * Nobody uses the region any more. 0; or -errno when pages that were moved could not be put back, and all is
 * as before.
 */
int hca_unexport_region(struct hca_adapter *a, struct hca_exported *x, void *addr, size_t len);

#endif
