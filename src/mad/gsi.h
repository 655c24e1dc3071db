/* SPDX-License-Identifier: MIT */
/*
 * The general services interface: QP1 of the adapter, which takes and sends management datagrams (MADs).
 * Every adapter of a process has it, with nobody's doing.
 *
 * Whoever receives a MAD asks the router of its class whom it concerns (mad/route.h), and hands it over.
 * What was handed over is never handed on. What concerns nobody stays here. What stays goes to the agent of
 * its class and method (mad/agent.h); where there is none, the router of the class may refuse it, as a host
 * does on which nobody listens.
 */
#ifndef MAD_GSI_H
#define MAD_GSI_H

#include "base/export.h"
#include "base/frame.h"
#include "mad/agent.h"
#include "mad/route.h"

struct hca_adapter;

/* ---- for who makes the adapter, before it is up and after it has gone down ---- */
/* Runs QP1 of the adapter with these routers, which end with NULL: 0 or -ENOMEM. */
int mad_gsi_open(struct hca_adapter *a, const struct mad_router *const *routers);
/* Nobody is registered any more. */
void mad_gsi_close(struct hca_adapter *a);

/* ---- for agents ---- */
/*
 * Brings the adapter up, if it is not, and gives the agent its MADs from now on, from within this call too:
 * the agent's number, or -errno; -EBUSY: somebody takes one of these methods; -ENOSPC: there are too many.
 * Takes the bring-up and the drive lock.
 */
EXPORTED int mad_register(
	struct hca_adapter *a, const struct mad_class *takes, const struct mad_agent_ops *ops, void *arg);
/* When it has returned the agent is not called any more. The adapter may go down. The same locks. */
EXPORTED void mad_unregister(struct hca_adapter *a, int agent);
/* Sends a MAD to QP1 there; any thread, while it is registered. 0 or -errno; no promise that it arrives. */
EXPORTED int mad_send(struct hca_adapter *a, const struct frame_dest *to, const uint8_t mad[MAD_LEN]);
/* Where an answer goes. */
struct frame_dest mad_reply_to(const struct mad_from *from);
/* Asks for ops->timer at this time instead of any asked for before; UINT64_MAX: not at all. Any thread. */
EXPORTED void mad_arm(struct hca_adapter *a, int agent, uint64_t at);

#endif
