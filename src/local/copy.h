/* SPDX-License-Identifier: MIT */
/*
 * Moving bytes between our memory and that of a peer which we have mapped. Each is false when memory was not
 * there (the program may have unmapped its own, or the host has no page left), or may not be written to any
 * more.
 */
#ifndef LOCAL_COPY_H
#define LOCAL_COPY_H

#include "hca/qp.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct local_job {
	const struct hca_send_wqe *wqe;
	char *at;                        /* the peer's */
	const _Atomic uint32_t *revoked; /* not 0: nothing may be written there any more */
	bool allowed;                    /* it was not */
	bool *back;                      /* whether the last long one went back: local/walk.h */
	uint32_t len;
	unsigned n;
	struct iovec own[HCA_MAX_SGE];
};

/* All but the list, which is long, and filled by who uses it. */
static inline void local_job_begin(struct local_job *job, uint32_t len, bool *back)
{
	job->back = back;
	job->wqe = NULL;
	job->at = NULL;
	job->revoked = NULL;
	job->allowed = false;
	job->len = len;
	job->n = 0;
}

/*
 * The last bytes are written last, and up to eight that are aligned at once: programs look at them to see
 * that all has come.
 */
bool local_write(struct local_job *job);
bool local_read(struct local_job *job);
/* Reads, and writes to our own memory in the order of a write. */
bool local_place(struct local_job *job);
/* One step, as hca_atomic() of the peer's own adapter, but revocable. False also when it is not aligned. */
bool local_atomic(struct local_job *job);

#endif
