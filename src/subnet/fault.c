/* SPDX-License-Identifier: MIT */
/*
 * What cables do to packets. Each direction of a cable draws from a generator of its own, seeded by the
 * subnet's seed and the port, and as often for each packet whatever comes of it: the fates of its packets
 * depend on their order alone, and not on the traffic elsewhere.
 */
#include "subnet/parts.h"

#include "base/random.h"

#include <errno.h>
#include <stdlib.h>

enum { MILLION = 1000000 };

struct held { /* a packet that is on the cable still */
	struct list at;
	uint64_t due;
	struct subnet_port *out;
	struct packet packet;
	uint8_t bytes[];
};

/* A copy for later, in the order of times; those of the same time as they came. NULL: no room, it is lost. */
static struct held *hold(struct subnet *s, struct subnet_port *out, const struct packet *p, uint64_t due)
{
	struct held *h = s->nheld < SUBNET_HELD_MAX ? malloc(sizeof(*h) + p->len) : NULL;
	struct list *before = s->held.prev;

	if (!h)
		return NULL;
	h->due = due;
	h->out = out;
	h->packet = *p;
	h->packet.bth = h->bytes;
	memcpy(h->bytes, p->bth, p->len);
	while (before != &s->held && container_of(before, struct held, at)->due > due)
		before = before->prev;
	list_add_tail(before->next, &h->at);
	s->nheld++;
	set_deadline(s, due);
	return h;
}

/* Where CRCs are checked, one bit behind the GRH, whichever was drawn, turns over: the receiver notices. */
static enum fate damage(
	struct subnet *s, struct subnet_port *out, const struct packet *p, uint64_t due, uint32_t drawn)
{
	struct held *h = s->crcs ? hold(s, out, p, due) : NULL;
	uint32_t bit = drawn % (8 * (p->len + PACKET_CRCS)), byte = bit / 8;

	if (!h)
		return FATE_DAMAGED;
	*(byte < p->len ? &h->bytes[byte] : &h->packet.crcs[byte - p->len]) ^= (uint8_t)(1 << bit % 8);
	return FATE_HELD;
}

static bool does_anything(const struct subnet_fault *f)
{
	return f->loss || f->corrupt || f->duplicate || f->delay;
}

enum fate fault_fate(struct subnet *s, struct subnet_port *out, const struct packet *p)
{
	const struct subnet_fault *f = &out->regs->fault;
	uint32_t loss, corrupt, twice;

	if (!does_anything(f))
		return FATE_PASSES; /* it is watched */
	loss = (uint32_t)(random_seeded(&out->regs->random) % MILLION);
	corrupt = (uint32_t)(random_seeded(&out->regs->random) % MILLION);
	twice = (uint32_t)(random_seeded(&out->regs->random) % MILLION);

	if (loss < f->loss)
		return FATE_LOST;
	if (corrupt < f->corrupt)
		return damage(s, out, p, s->now + f->delay, twice);
	if (twice < f->duplicate)
		hold(s, out, p, s->now + f->delay);
	if (!f->delay)
		return FATE_PASSES;
	hold(s, out, p, s->now + f->delay);
	return FATE_HELD;
}

static struct held *first_due(struct subnet *s)
{
	struct held *h = list_empty(&s->held) ? NULL : container_of(s->held.next, struct held, at);

	return h && h->due <= s->now ? h : NULL;
}

/* Those that are held anew meanwhile wait for the next time, even without a delay. */
void fault_expire(struct subnet *s)
{
	unsigned n = s->nheld;
	struct held *h;

	while (n-- && (h = first_due(s))) {
		list_del(&h->at);
		s->nheld--;
		s->copies = s->count.ports;
		forward_land(s, h->out, &h->packet);
		free(h);
	}
	if (!list_empty(&s->held))
		set_deadline(s, container_of(s->held.next, struct held, at)->due);
}

void fault_close(struct subnet *s)
{
	for (struct list *at; (at = list_pop(&s->held));)
		free(container_of(at, struct held, at));
}

/* ---- the user's side ---- */
static void set_plain_end(struct subnet_port *p)
{
	bool plain = !p->regs->watched && !does_anything(&p->regs->fault) && !p->node->subnet->crcs;
	uint32_t flags = (p->shared->flags & ~(uint32_t)FABRIC_PLAIN) | (plain ? FABRIC_PLAIN : 0);

	if (flags == p->shared->flags)
		return;
	table_changes(p->node->subnet);
	p->shared->flags = flags;
}

static void set_plain(struct subnet_port *p)
{
	struct subnet *s = p->node->subnet;

	enter(s, s->now);
	set_plain_end(p);
	set_plain_end(p->peer);
	leave(s);
}

int subnet_set_fault(struct subnet_port *p, const struct subnet_fault *f)
{
	if (!p->peer || !p->regs)
		return -ENOTCONN;
	if (f->loss > MILLION || f->corrupt > MILLION || f->duplicate > MILLION || f->delay > INT64_MAX)
		return -EINVAL;
	p->regs->fault = p->peer->regs->fault = *f;
	set_plain(p);
	return 0;
}

int subnet_set_watched(struct subnet_port *p, bool watched)
{
	if (!p->peer || !p->regs)
		return -ENOTCONN;
	p->regs->watched = p->peer->regs->watched = watched;
	set_plain(p);
	return 0;
}
