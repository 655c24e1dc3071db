/* SPDX-License-Identifier: MIT */
/* A request that is not answered: whether its host takes RoCE packets at all. All with the host lock held. */
#ifndef CM_PROBE_H
#define CM_PROBE_H

#include "cm/host.h"

struct rcm_id;

/* Waiting for an answer to a request. */
struct rcm_probe {
	struct cm_host_timer timer;
	int fd; /* of a probe; not above 0: none */
	uint8_t probes, refusals;
};

/* From the request on; ends by itself when there is an answer. */
void rcm_probe_watch(struct rcm_id *id);
void rcm_probe_leave(struct rcm_id *id);
/* Why a request was given up, -errno. */
int rcm_probe_verdict(const struct rcm_id *id);

#endif
