/* SPDX-License-Identifier: MIT */
/* The path of an id on a fabric, asked of the subnet's administration (SA) by a PathRecord query. */
#ifndef CM_PATH_H
#define CM_PATH_H

#include "base/list.h"

#include <stdint.h>

struct cm_host;
struct rcm_id;

/* One at a time; host lock. */
struct rcm_question {
	struct list node; /* in rcm.questions */
	uint64_t tid;
};

/* Of an id whose address is resolved: ROUTE_RESOLVED or ROUTE_ERROR follows. 0 or -errno; no lock held. */
int rcm_path_ask(struct rcm_id *id, int timeout_ms);
/* Nobody waits for the answer any more; host lock held. */
void rcm_question_forget(struct rcm_id *id);
/* An answer of the SA, to whatever; host lock held. */
void rcm_sa_answer(struct cm_host *h, const uint8_t *mad);

#endif
