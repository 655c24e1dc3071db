/* SPDX-License-Identifier: MIT */
/* Drawing and posting: requests of every kind, some of them wrong on purpose, and receives. */
#ifndef TESTS_SIM_WORK_H
#define TESTS_SIM_WORK_H

#include "model.h"

/* Posts a few requests in one call, as far as there is room. */
void work_post_sends(struct model *m, struct side *s);
/* Posts a receive when a slot is free. */
void work_post_recv(struct model *m, struct side *s);

#endif
