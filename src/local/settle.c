/* SPDX-License-Identifier: MIT */
/*
 * Taking something away that others may be acting on: who acts in our memory has said so in its ring before
 * it looked at our export (`acting`, odd), and says when it is done. It is done in the time of a copy, or
 * dead, which is seen by its socket. Or it is stopped, or does not mean well: then we do not wait for it. It
 * is cut off: it may not act any more, which it sees before it goes on (local_process.revoked), its ring is
 * dropped, and its frames come over UDP, if they have one.
 */
#include "local/channel_parts.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/fence.h"
#include "base/log.h"

#include <sched.h>
#include <time.h>

enum { PATIENCE_MS = 80, YIELDS = 16, NAP_FIRST_NS = 20 * 1000, NAP_MOST_NS = 1000 * 1000 };

/* Whether the one in this place still acts on what it saw before; *seen: its count, 0 at first. */
static bool still_acts(struct local_reader *r, uint32_t *seen)
{
	uint32_t acting;

	if (atomic_load(&r->state) != READER_UP || !r->exported)
		return false;
	acting = atomic_load(&r->rx.ring->acting);
	if (!(acting & 1) || (*seen && *seen != acting))
		return false;
	*seen = acting;
	return true;
}

static void cut_off(struct local_channel *c, struct local_reader *r, uint32_t seen)
{
	lock_take(&c->handshake);
	if (still_acts(r, &seen)) {
		atomic_store(&r->rx.ring->revoked, 1);
		r->exported = false;
		local_reader_drop(c, r);
		log_warn("process in slot %u: stopped while it accessed our memory; its access is "
			 "revoked, no more shared memory",
			r->slot);
	}
	lock_drop(&c->handshake);
}

/* A moment longer each time; the first ones cost no more than a look. */
static uint64_t nap(unsigned times)
{
	struct timespec t = {.tv_nsec = NAP_FIRST_NS};

	if (times < YIELDS) {
		sched_yield();
		return 0;
	}
	for (times -= YIELDS; times && t.tv_nsec < NAP_MOST_NS; times--)
		t.tv_nsec *= 2;
	if (t.tv_nsec > NAP_MOST_NS)
		t.tv_nsec = NAP_MOST_NS;
	nanosleep(&t, NULL);
	return (uint64_t)t.tv_nsec;
}

/*
 * A thread of our own, by way of the ring to ourselves: it is never stopped while we go on, so it is done
 * before long, however late on a busy machine, and is not cut off.
 */
static bool is_ourselves(const struct local_channel *c, struct local_reader *r)
{
	return r->slot == c->slot && atomic_load(&r->verified);
}

/* Waits for one, but not beyond *until, which is set when there is something to wait for. */
static void settle_one(struct local_channel *c, struct local_reader *r, uint64_t *until)
{
	uint32_t seen = 0;

	for (unsigned n = 0; still_acts(r, &seen); n++) {
		if (nap(n))
			local_peers_attend(c, false);
		if (n < YIELDS)
			continue;
		if (!*until)
			*until = clock_ms() + PATIENCE_MS;
		else if (clock_ms() >= *until && !is_ourselves(c, r))
			cut_off(c, r, seen);
	}
}

void local_channel_settle(struct local_channel *c)
{
	unsigned readers = atomic_load(&c->nreaders);
	uint64_t until = 0;
	int cancel = cancel_off();

	fence_full();
	for (unsigned i = 0; i < readers; i++)
		settle_one(c, atomic_load(&c->reader[i]), &until);
	tsan_settled(c);
	cancel_restore(cancel);
}
