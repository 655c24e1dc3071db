/* SPDX-License-Identifier: MIT */
/* What the IB connection manager tells of connections whose user is an id. */
#ifndef CM_IB_EVENT_H
#define CM_IB_EVENT_H

#include "cm/host.h"

/* As struct cm_host_user has it: `arg` is the host, whose lock is held. */
void rcm_ib_event(void *arg, struct cm_conn *c, const struct cm_event *ev);

#endif
