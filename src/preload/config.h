/* SPDX-License-Identifier: MIT */
/* Which sockets the user wants by RDMA. */
#ifndef PRELOAD_CONFIG_H
#define PRELOAD_CONFIG_H

#include <stdbool.h>

bool config_wants(int domain, int type, int protocol);

/* The sizes that the environment asks for: RS_SQ_SIZE, RS_RQ_SIZE, RS_INLINE. */
void config_apply(int rs);

/* How long a host may be silent before TCP is tried. A REQ is answered in microseconds where somebody
 * listens, and refused in a third of a second where nobody does; a host without RDMA says nothing at all. */
int config_silence_ms(void);

#endif
