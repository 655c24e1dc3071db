/* SPDX-License-Identifier: MIT */
/* RoCEv2 over plain UDP sockets: no raw socket, no capability. */
#ifndef LINK_UDP_H
#define LINK_UDP_H

#include "link/link.h"

/*
 * Opens the sockets and joins the processes that share the port (link/steer.h). *slot: this process's part of
 * the QP number space. 0 or -errno; -EADDRINUSE: the port is another program's, or another user's.
 */
int link_udp_open(struct link **out, uint16_t port, uint32_t *slot);

#endif
