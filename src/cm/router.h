/* SPDX-License-Identifier: MIT */
/*
 * Which process of this host a message of the connection manager is for, and how a request is refused where
 * nobody manages connections. Programs that never connect have it too: they share the UDP port with those
 * that do.
 */
#ifndef CM_ROUTER_H
#define CM_ROUTER_H

#include "mad/route.h"

extern const struct mad_router cm_router;

#endif
