/* SPDX-License-Identifier: MIT */
/*
 * A link that carries nothing, for a process that has no UDP port: it has a slot, and so QP numbers that no
 * other process of the network namespace has. Streams (iwarp/conn.h) need no more.
 */
#ifndef LINK_NONE_H
#define LINK_NONE_H

#include "link/link.h"

/* 0 or -errno. */
int link_none_open(struct link **out, uint16_t port, uint32_t *slot);

#endif
