/* SPDX-License-Identifier: MIT */
/*
 * A link that carries nothing, for a process that has no UDP port: it has a slot, and so QP numbers that no
 * other process of the network namespace has. Streams (iwarp/conn.h) need no more.
 *
 * It is a link, and not the lack of one, so that the channel, which lies in front of it all the same, and
 * ib's port need not ask at each of some twenty calls whether there is one.
 */
#ifndef LINK_NONE_H
#define LINK_NONE_H

#include "link/link.h"

/* 0 or -errno. */
int link_none_open(struct link **out, uint16_t port, uint32_t *slot);

#endif
