/* SPDX-License-Identifier: MIT */
#include "mad/agent.h"

#include <errno.h>
#include <stddef.h>

int mad_agent_add(
	struct mad_agent_table *t, const struct mad_class *takes, const struct mad_agent_ops *ops, void *arg)
{
	int place = -ENOSPC;

	for (int i = MAD_AGENTS - 1; i >= 0; i--) {
		if (!t->agent[i].ops)
			place = i;
		else if (mad_class_overlaps(&t->agent[i].takes, takes))
			return -EBUSY;
	}
	if (place >= 0)
		t->agent[place] = (struct mad_agent){*takes, ops, arg};
	return place;
}

void mad_agent_remove(struct mad_agent_table *t, unsigned place)
{
	t->agent[place] = (struct mad_agent){0};
}

/* Of a class whose answers somebody takes there is one agent: nobody else here asks. */
static bool is_answer_for(const struct mad_agent *a, const struct mad_hdr *h)
{
	return a->ops->answers && h->method & MAD_METHOD_RESPONSE && h->base_version == MAD_BASE_VERSION &&
	       h->mgmt_class == a->takes.mgmt_class && h->class_version == a->takes.class_version;
}

const struct mad_agent *mad_agent_of(const struct mad_agent_table *t, const uint8_t mad[MAD_LEN])
{
	struct mad_hdr h = mad_hdr_get(mad);

	for (const struct mad_agent *a = t->agent; a < t->agent + MAD_AGENTS; a++) {
		if (a->ops && (mad_class_has(&a->takes, &h) || is_answer_for(a, &h)))
			return a;
	}
	return NULL;
}

void mad_agent_timers(const struct mad_agent_table *t, uint32_t places, uint64_t now)
{
	for (unsigned i = 0; i < MAD_AGENTS; i++) {
		const struct mad_agent *a = &t->agent[i];

		if (places >> i & 1 && a->ops && a->ops->timer)
			a->ops->timer(a->arg, now);
	}
}

void mad_agent_changed(const struct mad_agent_table *t)
{
	for (const struct mad_agent *a = t->agent; a < t->agent + MAD_AGENTS; a++) {
		if (a->ops && a->ops->changed)
			a->ops->changed(a->arg);
	}
}
