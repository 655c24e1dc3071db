/* SPDX-License-Identifier: MIT */
/* A full fence: what this thread wrote before is seen by others before what it reads after. */
#ifndef BASE_FENCE_H
#define BASE_FENCE_H

#include <stdatomic.h>

static inline void fence_full(void)
{
#ifdef __SANITIZE_THREAD__ /* knows no fences, but counts this as one */
	static _Atomic int word;

	atomic_fetch_add(&word, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

#endif
