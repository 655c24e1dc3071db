/* SPDX-License-Identifier: MIT */
/* Which sockets the user wants by RDMA. */
#ifndef PRELOAD_CONFIG_H
#define PRELOAD_CONFIG_H

#include <stdbool.h>

bool config_wants(int domain, int type, int protocol);

/* The sizes that the environment asks for: RS_SQ_SIZE, RS_RQ_SIZE, RS_INLINE. */
void config_apply(int rs);

#endif
