/* SPDX-License-Identifier: MIT */
/*
 * Memory changes hands under a running program: the same bytes at the same address, first in private pages,
 * then on the file (local/pages/file.h), and back. Done in steps, so that nobody who writes there waits long.
 * Pages that nobody ever touched cost nothing.
 */
#ifndef LOCAL_PAGES_MOVE_H
#define LOCAL_PAGES_MOVE_H

#include "local/pages/freeze.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Whole pages of plain memory (local/pages/maps.h), from `at` on. How many bytes have moved: less than len
 * when something failed; *err says what.
 */
size_t move_onto_file(struct freeze *f, char *at, size_t len, uint64_t off, int *err);
size_t move_back(struct freeze *f, char *at, size_t len, uint64_t off, int prot, int *err);

/*
 * Pages take the place of others. By the bare call: libraries that keep registrations (UCX) put their own
 * mremap in the place of the C library's, one that knows no fifth argument.
 */
bool move_pages(void *from, size_t len, void *to);

#endif
