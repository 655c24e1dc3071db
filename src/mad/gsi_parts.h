/* SPDX-License-Identifier: MIT */
/* What the parts of QP1 call of each other. Under the drive lock. */
#ifndef MAD_GSI_PARTS_H
#define MAD_GSI_PARTS_H

#include "base/list.h"
#include "hca/adapter.h"
#include "mad/gsi.h"
#include "wire/mad.h"

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

#define mad_probe(a, name, mad)                                                                              \
	hca_adapter_probe(a, name, .mgmt_class = (mad)[1], .method = (mad)[3], .attr = get_be16((mad) + 16))

/* It went to the process of that slot, or it is lost. */
static inline void mad_tell_handed(struct hca_adapter *a, uint32_t slot, bool went)
{
	if (went)
		hca_adapter_probe(a, MAD_HANDED_OVER, .slot = slot);
	else
		hca_adapter_probe(a, MAD_DROP, .why = "the process it is for has no room");
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
