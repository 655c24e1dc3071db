/* SPDX-License-Identifier: MIT */
/* The line that the victim is obeying, and the commands that have a file of their own. */
#ifndef ATTACK_VICTIM_H
#define ATTACK_VICTIM_H

#include "fixture.h"

enum { MAX = 64 }; /* endpoints, regions */

/* Words of the line by place; what is not there is 0 or "". */
uint64_t num(unsigned i);
const char *text(unsigned i);
/* The endpoint that word 1 names. */
struct vt_ep *ep(void);

/* victim_cm.c: connections made by rdma_cm */
void cm_listen(void);
void cm_connect(void);
void cm_event(void);
void cm_accept(void);
void cm_establish(void);
void cm_drop(void);

#endif
