/* SPDX-License-Identifier: MIT */
/*
 * rdma_cm of a process: its connection manager (host.h) and all that stands on it.
 *
 *   service.c   the process's connection manager, opened and closed
 *   id.c        ids: making, ending, migrating, options
 *   event.c     event channels; what an event makes of a QP when the program takes it
 *   device.c    opened devices
 *   addr.c      which device, which port: binding and resolving; neigh.c: the first hop there
 *   fabric.c    the same where there are no interfaces, but ports with GIDs and LIDs
 *   route.c     the path there; path.c: on a fabric, as its administration says (sa.c)
 *   listen.c    listening; ids for requests that come in
 *   connect.c   connecting, accepting, disconnecting; ib_event.c: what the core tells of that
 *   probe.c     whether anybody is there at all
 *   iwarp.c     the same over TCP: iwarp/conn.h in the place of the core's connections
 *   qp.c        QPs of ids through their states; queues and SRQs
 *   mcast.c     groups; mcast_ib.c: those of a fabric
 *   ep.c        endpoints; addrinfo.c: addresses for them, by name
 *
 * The public functions are in front/. Here all return 0 or -errno where nothing else is said. They are called
 * with cancellation switched off (base/cancel.h), but for those that may be cancelled where they wait, and
 * say so.
 *
 * It stands on libibverbs.so.1: verbs by their public names, the rest by names of its own version node there,
 * so that both have one adapter.
 *
 * Who locks what. The host's lock (cm/host.h) guards connections, listeners, event queues and the fields of
 * ids marked so. QPs are never touched under it: the connection manager only queues events, and the thread
 * that takes an event, or calls a function of the id, moves the QP.
 */
#ifndef CM_SERVICE_H
#define CM_SERVICE_H

#include "base/list.h"
#include "cm/host.h"

#include <pthread.h>

struct rcm {
	struct cm_host host;
	struct list ids;       /* all of the process; host lock */
	struct list listeners; /* struct rcm_listener; host lock */
	struct list questions; /* to the subnet's administration: struct rcm_question; host lock */
	struct list joins;     /* of groups of a fabric: struct rcm_join; host lock */
	uint64_t asked;        /* ever */
	pthread_cond_t acked;  /* with the host's lock */
	struct {
		uint8_t remote[16];
		uint32_t ifindex;
		uint64_t until;
	} last_hop; /* that was known; host lock */
	struct lock device_lock;
	struct list devices; /* opened ones; device_lock */
	bool dead;           /* the parent's, after fork, in the child */
};

/* The process's, opened on first use; a new one after fork. 0 or -errno, and *cm is NULL. */
int rcm_get(struct rcm **cm);

#endif
