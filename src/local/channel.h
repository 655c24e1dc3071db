/* SPDX-License-Identifier: MIT */
/*
 * Memory to memory: a link that stands before another one, the wire, and takes what is for processes of this
 * host through rings in shared memory (local/ring.h): the same frames, without envelope and ICRC. What it
 * cannot take goes by the wire: nobody above has to know.
 */
#ifndef LOCAL_CHANNEL_H
#define LOCAL_CHANNEL_H

#include "link/link.h"

/* Is this an address of this host? What comes by memory must come from one. */
typedef bool local_channel_ours_fn(void *arg, const uint8_t gid[16]);

/*
 * Takes over the wire. 0 or -errno: then the wire is the caller's still, and as good as before.
 *
 * size: of our export, what others need to act in our memory by themselves; 0: there is none, and we act in
 * nobody's. *export: that memory, all zero. Only those can read it, and only while they are connected, whom
 * the kernel lets into this process anyway. It lives as long as the link.
 */
int local_channel_open(struct link **out, struct link *wire, uint16_t port, uint32_t slot,
	local_channel_ours_fn *ours, void *arg, size_t size, void **export);

#endif
