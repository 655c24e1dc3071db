/* SPDX-License-Identifier: MIT */
/* How the user wants peers on this host to be reached (ANYRDMA_LOCAL). */
#ifndef HCA_LOCAL_H
#define HCA_LOCAL_H

/* Each falls back to the one before it. */
enum hca_local {
	HCA_LOCAL_OFF,  /* over the network stack */
	HCA_LOCAL_RING, /* frames through shared memory */
	/* And the initiator copies into the target's memory, or from it, through the kernel: the default. */
	HCA_LOCAL_COPY,
	/* And registration moves the program's own pages to where peers map them: for who asks for it. */
	HCA_LOCAL_MAP,
};

/* Reads the environment: when an adapter is made, once. */
enum hca_local hca_local_wanted(void);

#endif
