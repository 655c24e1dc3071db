/* SPDX-License-Identifier: MIT */
/*
 * MADs that the process they concern had no room for: a Unix socket holds ten datagrams where nobody raised
 * net.unix.max_dgram_qlen, fifty connections are opened at once, and who should empty it may have to wait for
 * a CPU. A lost MAD costs its sender seconds, an RTU even the program that does not send it. So they are kept
 * and tried again, in order, ever more seldom as they grow old: who does not empty its socket may be stopped.
 */
#include "mad/gsi_parts.h"

#include "hca/adapter.h"
#include "host/slot.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS   500000ull     /* at first; later an eighth of the age of the oldest */
#define GIVE_UP_NS 8000000000ull /* its sender has tried again meanwhile */

enum { MOST = 256 };

struct late {
	struct list node;
	uint32_t slot;
	uint64_t since;
	struct frame_in in;
	uint8_t bytes[];
};

static struct late *late_of(struct list *n)
{
	return container_of(n, struct late, node);
}

static void set_alarm(struct mad_gsi *g, uint64_t now)
{
	struct list *l = &g->late;
	uint64_t wait = list_empty(l) ? 0 : (now - late_of(l->next)->since) / 8;

	hca_engine_alarm(&g->adapter->engine, MAD_ALARM_LATE,
		list_empty(l) ? UINT64_MAX : now + (wait > AGAIN_NS ? wait : AGAIN_NS));
}

static void end(struct mad_gsi *g, struct late *m)
{
	list_del(&m->node);
	free(m);
	atomic_fetch_sub(&g->adapter->qp1.kept, 1);
}

bool mad_late_waits(const struct mad_gsi *g, uint32_t slot)
{
	for (struct list *n = g->late.next; n != &g->late; n = n->next) {
		if (late_of(n)->slot == slot)
			return true;
	}
	return false;
}

bool mad_late_keep(struct mad_gsi *g, uint32_t slot, const struct frame_in *in, uint64_t now)
{
	struct late *m = atomic_load(&g->adapter->qp1.kept) < MOST ? malloc(sizeof(*m) + in->len) : NULL;

	if (!m)
		return false;
	*m = (struct late){.slot = slot, .since = now, .in = *in};
	memcpy(m->bytes, in->bytes, in->len);
	m->in.bytes = m->bytes;
	list_add_tail(&g->late, &m->node);
	atomic_fetch_add(&g->adapter->qp1.kept, 1);
	set_alarm(g, now);
	return true;
}

/* Also one that is not to be found: it was there, and may only have to find its way back (link/steer.h). */
static bool went(struct mad_gsi *g, struct late *m, struct slots *full)
{
	if (slots_has(full, m->slot))
		return false;
	if (!hca_engine_hand_over(&g->adapter->engine, m->slot, &m->in, false))
		return true;
	slots_add(full, m->slot);
	return false;
}

void mad_late_retry(struct mad_gsi *g, uint64_t now)
{
	struct slots full = {0};

	list_for_each_safe(n, &g->late)
	{
		struct late *m = late_of(n);
		bool gone = went(g, m, &full);

		if (!gone && now - m->since <= GIVE_UP_NS)
			continue;
		mad_tell_handed(g->adapter, m->slot, gone);
		end(g, m);
	}
	set_alarm(g, now);
}

void mad_late_forget(struct mad_gsi *g)
{
	while (!list_empty(&g->late))
		end(g, late_of(g->late.next));
}
