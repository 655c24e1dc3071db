/* SPDX-License-Identifier: MIT */
/*
 * MADs that the process they concern had no room for: a Unix socket holds ten datagrams where nobody raised
 * net.unix.max_dgram_qlen, fifty connections are opened at once, and who should empty it may have to wait for
 * a CPU. A lost MAD costs its sender seconds, an RTU even the program that does not send it. So they are kept
 * and tried again, in order, ever more seldom as they grow old: who does not empty its socket may be stopped.
 */
#include "hca/gsi.h"

#include "base/list.h"
#include "host/slot.h"
#include "hca/adapter.h"

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

static void set_alarm(struct hca_adapter *a, uint64_t now)
{
	struct list *l = &a->gsi.late;
	uint64_t wait = list_empty(l) ? 0 : (now - late_of(l->next)->since) / 8;

	hca_engine_alarm(&a->engine, HCA_ALARM_LATE,
		list_empty(l) ? UINT64_MAX : now + (wait > AGAIN_NS ? wait : AGAIN_NS));
}

static void end(struct hca_adapter *a, struct late *m)
{
	list_del(&m->node);
	free(m);
	atomic_fetch_sub(&a->gsi.nlate, 1);
}

bool hca_gsi_is_late(const struct hca_adapter *a, uint32_t slot)
{
	for (struct list *n = a->gsi.late.next; n != &a->gsi.late; n = n->next) {
		if (late_of(n)->slot == slot)
			return true;
	}
	return false;
}

bool hca_gsi_keep(struct hca_adapter *a, uint32_t slot, const struct frame_in *in, uint64_t now)
{
	struct late *m = atomic_load(&a->gsi.nlate) < MOST ? malloc(sizeof(*m) + in->len) : NULL;

	if (!m)
		return false;
	*m = (struct late){.slot = slot, .since = now, .in = *in};
	memcpy(m->bytes, in->bytes, in->len);
	m->in.bytes = m->bytes;
	list_add_tail(&a->gsi.late, &m->node);
	atomic_fetch_add(&a->gsi.nlate, 1);
	set_alarm(a, now);
	return true;
}

/* Also one that is not to be found: it was there, and may only have to find its way back (link/steer.h). */
static bool went(struct hca_adapter *a, struct late *m, struct slots *full)
{
	if (slots_has(full, m->slot))
		return false;
	if (!hca_engine_hand_over(&a->engine, m->slot, &m->in, false))
		return true;
	slots_add(full, m->slot);
	return false;
}

void hca_gsi_try_late(struct hca_adapter *a, uint64_t now)
{
	struct slots full = {0};

	list_for_each_safe(n, &a->gsi.late)
	{
		struct late *m = late_of(n);
		bool gone = went(a, m, &full);

		if (!gone && now - m->since <= GIVE_UP_NS)
			continue;
		hca_gsi_count(gone ? &a->count->mads_handed_over : &a->count->mads_dropped);
		end(a, m);
	}
	set_alarm(a, now);
}

void hca_gsi_forget_late(struct hca_adapter *a)
{
	while (!list_empty(&a->gsi.late))
		end(a, late_of(a->gsi.late.next));
}
