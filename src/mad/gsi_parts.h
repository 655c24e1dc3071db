/* SPDX-License-Identifier: MIT */
/* What the parts of QP1 call of each other. Under the drive lock. */
#ifndef MAD_GSI_PARTS_H
#define MAD_GSI_PARTS_H

#include "base/list.h"
#include "mad/gsi.h"

#include <stdatomic.h>

enum { MAD_ROUTERS = 4, MAD_ALARM_LATE = MAD_AGENTS }; /* an agent's alarm has its number */

struct mad_gsi {
	struct hca_adapter *adapter;
	struct mad_agent_table agents; /* changed under bring-up and drive lock */
	_Atomic uint32_t psn;
	struct {
		const struct mad_router *router; /* NULL: no more */
		void *state;                     /* drive lock */
	} route[MAD_ROUTERS];
	struct list late; /* see late.c; drive lock */
};

/* Counts beside other threads: anyone may send. */
static inline void mad_count(uint64_t *counter)
{
	__atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* ---- route.c ---- */
/* Hands a MAD over to whom it concerns; whether it is for this process, or there is nobody else for it. */
bool mad_route(struct mad_gsi *g, const struct frame_in *in, const uint8_t mad[MAD_LEN],
	const struct mad_from *from, uint64_t now);
/* The process that a MAD names by itself, if it is one of this host; 0: none. Any thread. */
uint32_t mad_addressee(const struct mad_gsi *g, const uint8_t mad[MAD_LEN]);
/* Turns a MAD without an agent into its refusal; false: it gets none. */
bool mad_refuse(const struct mad_gsi *g, const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN]);

/* ---- late.c ---- */
/* Keeps a MAD for the process of that slot, which has no room; false: there are too many. */
bool mad_late_keep(struct mad_gsi *g, uint32_t slot, const struct frame_in *in, uint64_t now);
/* Whether some are kept for it: what follows must not overtake them. */
bool mad_late_waits(const struct mad_gsi *g, uint32_t slot);
/* Hands over what has room by now, and gives up what is too old. */
void mad_late_retry(struct mad_gsi *g, uint64_t now);
void mad_late_forget(struct mad_gsi *g);

#endif
