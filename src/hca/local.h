/* SPDX-License-Identifier: MIT */
/* How the user wants peers on this host to be reached (ANYRDMA_LOCAL). */
#ifndef HCA_LOCAL_H
#define HCA_LOCAL_H

/* Each falls back to the one before it. */
enum hca_local {
	HCA_LOCAL_OFF,  /* by the wire */
	HCA_LOCAL_RING, /* frames through memory */
	HCA_LOCAL_COPY, /* and the initiator copies into the target's memory, or from it, through the kernel
			 */
	HCA_LOCAL_MAP,  /* and by itself, into registered memory that it has mapped: the default */
};

/* Reads the environment: when an adapter is made, once. */
enum hca_local hca_local_wanted(void);

#endif
