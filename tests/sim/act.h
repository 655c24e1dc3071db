/* SPDX-License-Identifier: MIT */
/* What the ends of the connections do, and when. */
#ifndef TESTS_SIM_ACT_H
#define TESTS_SIM_ACT_H

#include "model.h"

/* Posts what is due; *next: when it is due next, if that is earlier. */
void act_on_side(struct model *m, struct side *s, uint64_t now, uint64_t *next);
/* Nothing is left to do for anybody. */
bool act_done(struct model *m);
/* For people: where it stands. */
void act_say(const struct side *s);

#endif
