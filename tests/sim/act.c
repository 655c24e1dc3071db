/* SPDX-License-Identifier: MIT */
#include "act.h"

#include "draw.h"
#include "trouble.h"
#include "work.h"

#include <stdio.h>

/* A side that will be born again leaves most of its work for that life. */
static bool wants_to_post(struct model *m, const struct side *s)
{
	return s->qp && s->posted < s->todo &&
	       !(model_conn(m, s)->over && model_conn(m, s)->lives && draw(4));
}

void act_on_side(struct model *m, struct side *s, uint64_t now, uint64_t *next)
{
	bool receives;

	if (s->qp && s->posted < s->todo && s->next_post <= now) {
		if (wants_to_post(m, s))
			work_post_sends(m, s);
		s->next_post = now + between(1, one_in(4) ? 500 : 20) * SIM_US;
	}
	receives = s->qp && !model_side_done(m, s->peer);
	if (receives && s->next_recv <= now) {
		for (unsigned n = (unsigned)draw(6); n--;)
			work_post_recv(m, s);
		s->next_recv = now + between(1, one_in(4) ? 500 : 50) * SIM_US;
	}
	if (s->qp && s->posted < s->todo && s->next_post < *next)
		*next = s->next_post;
	if (receives && s->next_recv < *next)
		*next = s->next_recv;
}

bool act_done(struct model *m)
{
	for (unsigned i = 0; i < m->nsides; i++) {
		if (!model_side_done(m, &m->side[i]))
			return false;
	}
	return !trouble_pending(m);
}

void act_say(const struct side *s)
{
	const struct hca_flow *f = !s->qp || list_empty(&s->qp->flow_node) ? NULL : s->qp->waits_for;

	fprintf(stderr, "side %u: %s, posted %u of %u, completed %u, received %u", s->index,
		s->qp ? hca_qp_state_name(hca_qp_state(s->qp)) : "destroyed", s->posted, s->todo,
		s->completed, s->received);
	if (s->qp)
		fprintf(stderr, ", timer at %llu ns", (unsigned long long)s->qp->deadline);
	if (f)
		fprintf(stderr, "; waits for %s: window %u, in flight %u + %u, echo %s",
			f == s->node->adapter.read_flow ? "its own flow" : "a flow", f->window, f->in_flight,
			(unsigned)(f->sent - f->echoed), f->echo_asked ? "asked" : "not asked");
	fputc('\n', stderr);
}
