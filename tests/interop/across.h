/* SPDX-License-Identifier: MIT */
/*
 * What Debian's programs leave out, between two processes on two machines: each runs the same cases in step,
 * the one as the caller, who requests, the other as the target. Built on the fixture of the verbs suite, so
 * it runs on any device, with any libibverbs.
 */
#ifndef INTEROP_ACROSS_H
#define INTEROP_ACROSS_H

#include "fixture.h"

struct end {
	struct vt *t;
	int fd; /* a stream to the other process */
	bool calls;
	bool kernel[2]; /* Linux's rxe or siw is the caller's, the target's device: they have ways of their
			   own */
	struct vt_ep *ep;
	struct vt_addr peer;
};

/* Who has something to do next: the other waits for it at turn(). */
void turn(struct end *e);

/* A new pair of QPs, with the port's MTU; `conn` NULL for the defaults. */
void meet(struct end *e, const struct vt_opts *opts, const struct vt_conn *conn);
void part(struct end *e);
struct vt_conn usual(const struct end *e);

enum { CALLER, TARGET };

void data_of_every_length(struct end *e);
void unreliable_data_of_every_length(struct end *e);
void unreliable_data_with_gaps(struct end *e);
void reads_at_full_depth(struct end *e);
void atomics_at_full_depth(struct end *e);
void everything_in_both_directions(struct end *e);
void bad_requests(struct end *e);
void bad_receives(struct end *e);
void no_receive(struct end *e);
void late_receive(struct end *e);
void destroyed(struct end *e);
void killed(struct end *e);
void stream_requests(struct end *e);
void stream_receives(struct end *e);
void stream_destroyed(struct end *e);
void stream_killed(struct end *e);
void stream_words(struct end *e);

#endif
