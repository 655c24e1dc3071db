/* SPDX-License-Identifier: MIT */
/* The path of an id on a fabric, asked of the subnet's administration (SA) by a PathRecord query. */
#ifndef CM_PATH_H
#define CM_PATH_H

struct rcm_id;

/* Of an id whose address is resolved: ROUTE_RESOLVED or ROUTE_ERROR follows. 0 or -errno; no lock held. */
int rcm_path_ask(struct rcm_id *id, int timeout_ms);

#endif
