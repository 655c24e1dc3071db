/* SPDX-License-Identifier: MIT */
/*
 * For a thread that runs for microseconds and then sleeps, while others wait for it: asking for a short slice
 * (Linux 6.12 and later, no privilege) lets it run at once even when every CPU is busy with programs that
 * spin. Older kernels ignore it.
 */
#ifndef BASE_SLICE_H
#define BASE_SLICE_H

/* The calling thread, when it has the usual policy. */
void slice_ask_short(void);

#endif
