/* SPDX-License-Identifier: MIT */
/* What will happen in a simulation, by time; what is due at the same time happens in the order it was added.
 */
#ifndef SIM_AGENDA_H
#define SIM_AGENDA_H

#include <stddef.h>
#include <stdint.h>

struct happening {
	uint64_t at, order; /* order is the agenda's own */
	int what;
	unsigned number;
	void *thing;
};

struct agenda {
	struct happening *heap;
	size_t count, room;
	uint64_t order;
};

void agenda_add(struct agenda *a, struct happening h);
/* When the next one is due; UINT64_MAX: there is none. */
uint64_t agenda_due(const struct agenda *a);
struct happening agenda_next(struct agenda *a);
void agenda_fini(struct agenda *a);

#endif
