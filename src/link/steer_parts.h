/* SPDX-License-Identifier: MIT */
/* What the parts of steering call of each other: steer.c the group, steer_hand.c handing over. */
#ifndef LINK_STEER_PARTS_H
#define LINK_STEER_PARTS_H

#include "link/steer.h"

uint64_t steer_now_ms(void);
/*
 * Makes sure that we are in the group's file, and that it is the file others will find. `asked`: another
 * process did that asks everybody; else, if the file turns out to be new or empty, we do.
 */
void steer_look(struct steer *s, bool asked);

#endif
