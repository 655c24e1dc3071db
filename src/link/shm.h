/* SPDX-License-Identifier: MIT */
/*
 * Memory to memory: a link that stands before another one, the wire, and takes what is for processes of this
 * host through rings in shared memory (link/ring.h): the same frames, without envelope and ICRC. What it
 * cannot take goes by the wire: nobody above has to know.
 */
#ifndef LINK_SHM_H
#define LINK_SHM_H

#include "link/link.h"

/* Is this an address of this host? What comes by memory must come from one. */
typedef bool link_shm_ours_fn(void *arg, const uint8_t gid[16]);

/* What others see of us, apart from frames. */
struct link_shm_shown {
	size_t size;
	void *board; /* out: memory of this size, all zero, that others can read; lives as long as the link */
	int memory;  /* a file (memory/file.h) that others may map, the caller's; negative: none */
};

/* Takes over the wire. 0 or -errno: then the wire is the caller's still, and as good as before. */
int link_shm_open(struct link **out, struct link *wire, uint16_t port, uint32_t slot, link_shm_ours_fn *ours,
	void *arg, struct link_shm_shown *shown);

#endif
