/* SPDX-License-Identifier: MIT */
/*
 * What happens in a seed, a line each, for who replays it: packets (link/sim.h prints them), what is posted,
 * completions, events, and what the test does to adapters and queue pairs. Nothing unless seeds.trace.
 */
#ifndef TESTS_SIM_TRACE_H
#define TESTS_SIM_TRACE_H

#include "model.h"

void trace_seed(struct model *m, const struct sim_rules *r, unsigned timeout, uint64_t pause);
void trace_side(struct model *m, const struct side *s);
void trace_post(struct model *m, const struct side *s, const struct ibv_send_wr *wr);
void trace_recv(struct model *m, const struct side *s, const struct ibv_recv_wr *wr, bool bad);
void trace_wc(struct model *m, const struct side *s, const struct ibv_wc *wc, bool send);
void trace_event(struct model *m, const struct side *s, const struct ibv_async_event *ev);
/* Something the test does, in words. */
void trace_say(struct model *m, const struct side *s, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
