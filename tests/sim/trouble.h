/* SPDX-License-Identifier: MIT */
/*
 * What happens to a world besides packets: adapters pause, are cut off, die and come back; queue pairs are
 * destroyed, moved to the error state, stopped and resumed; memory is deregistered, or registered anew, under
 * its peer's hands.
 */
#ifndef TESTS_SIM_TROUBLE_H
#define TESTS_SIM_TROUBLE_H

#include "life.h"

struct weather trouble_draw_weather(void);

enum { TROUBLES = 6 };

struct trouble {
	uint64_t pause_max, pause_next, cut_at;
	unsigned paused;
	bool pausing;
	uint64_t at[TROUBLES]; /* when something happens, in order */
	unsigned n, next;
};

void trouble_init(struct trouble *t, const struct weather *w);
/* Does what is due; returns when something is due next. */
uint64_t trouble_act(struct model *m, struct trouble *t);
/* The program moves it to the error state. */
void trouble_tell(struct model *m, struct side *s);
/* Whether something is still to be set right: a node to come back, a connection to be made anew. */
bool trouble_pending(struct model *m);

#endif
