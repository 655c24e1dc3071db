/* SPDX-License-Identifier: MIT */
/* How the user wants peers on this host to be reached (ANYRDMA_LOCAL). */
#ifndef HCA_LOCAL_H
#define HCA_LOCAL_H

#include "base/env.h"

/* Each falls back to the one before it. In the order of the words in base/env.h. */
enum hca_local {
	HCA_LOCAL_OFF,  /* over the network stack */
	HCA_LOCAL_RING, /* frames through shared memory */
	/* And the initiator copies into the target's memory, or from it, through the kernel: the default. */
	HCA_LOCAL_COPY,
	/* And registration moves the program's own pages to where peers map them: for who asks for it. */
	HCA_LOCAL_MAP,
};

static inline enum hca_local hca_local_wanted(void)
{
	return (enum hca_local)env_value(ANYRDMA_LOCAL);
}

#endif
