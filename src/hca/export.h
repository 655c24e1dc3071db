/* SPDX-License-Identifier: MIT */
/*
 * What of a region peers on this host can map: where it lies in a file that they can open. Memory that is
 * shareable already (local/pages/shareable.h) is used as it is; with ANYRDMA_LOCAL=map the pages of any other
 * region that peers may reach are moved onto a file of ours (local/pages/share.h).
 */
#ifndef HCA_EXPORT_H
#define HCA_EXPORT_H

#include "local/pages/share.h"
#include "local/pages/shareable.h"

struct hca_adapter;

enum { HCA_FILES = 256 };

/* Files that regions lie in, each once. The adapter's lock. */
struct hca_files {
	struct {
		struct shared_file file;
		unsigned users; /* 0: free */
	} place[HCA_FILES];
};

struct hca_export {
	struct share_run run; /* the part that they can map; no length: none */
	struct share *share;  /* ours, if the pages were moved; else NULL */
	uint16_t file;        /* its number, as on the board; 0: none */
};

/* Finds out about a region, and (map) moves what can be moved, which may take the time of a copy. */
void hca_export_begin(struct hca_adapter *a, struct hca_export *x, void *addr, size_t len, unsigned access);
/* For device memory, which is a file's from birth. */
void hca_export_file(
	struct hca_adapter *a, struct hca_export *x, void *addr, size_t len, int fd, uint64_t off);
/*
 * Nobody uses the region any more. 0; or -errno when pages that were moved could not be put back, and all is
 * as before.
 */
int hca_export_end(struct hca_adapter *a, struct hca_export *x, void *addr, size_t len);
/* On a board that is new. */
void hca_export_show_files(struct hca_adapter *a);

#endif
