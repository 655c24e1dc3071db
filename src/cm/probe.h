/* SPDX-License-Identifier: MIT */
/*
 * Whether a host takes RoCE packets at all. One on which no RDMA program runs answers a packet to the port by
 * ICMP, port unreachable, which the adapter's socket, shared by all traffic, is not told. A socket that is
 * connected to the one host is. What it sends is a whole RoCE packet, so that a card takes it and not
 * the kernel behind it; a DREP for no connection, so that nobody answers.
 */
#ifndef CM_PROBE_H
#define CM_PROBE_H

#include "cm/ib/conn.h"

/* A descriptor to ask a moment later, or -errno. */
int cm_probe_send(const struct cm_path *path, uint32_t ifindex, uint16_t udp_port);
/* Whether the host has said that nobody is there. Closes the descriptor. */
bool cm_probe_refused(int fd);

#endif
