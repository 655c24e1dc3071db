/* SPDX-License-Identifier: MIT */
/*
 * The states of a port, and cables that train (IBA volume 1, 7.2.7 and 14.2.5.6).
 *
 *                 link_train(): both ends of the cable can talk
 *          DOWN -------------------------------------------------> INIT
 *           ^                                                       |
 *           |                                                       |  SubnSet(PortInfo): Armed
 *           |  link_fall(): cut, disabled at either end,            v
 *           |  SubnSet(PortInfo): Down                            ARMED
 *           |                                                       |
 *           |                                                       |  SubnSet(PortInfo): Active
 *           '---- from any of them -------------------------------- v
 *                                                                 ACTIVE
 *
 * All arrows pass through set_state(). A link that falls and could train does so at once: time passes in real
 * ones, here only for who asks in between. Port 0 of a switch has no cable and is always ACTIVE.
 *
 * Below them the physical states: POLLING and SLEEP wait for the other end, DISABLED waits for the subnet
 * manager, LINK_UP is a trained cable. Two ends that both sleep stay asleep.
 */
#include "subnet/parts.h"

#include "base/asserts.h"

#include <errno.h>

enum cause { BY_LINK, BY_SET };

static bool arrow(enum port_state from, enum port_state to)
{
	switch (to) {
	case PORT_DOWN:
		return from != PORT_DOWN;
	case PORT_INIT:
		return from == PORT_DOWN;
	case PORT_ARMED:
		return from == PORT_INIT;
	case PORT_ACTIVE:
		return from == PORT_ARMED;
	}
	return false;
}

/*
 * A switch remembers what its links did, and tells of it; not what the subnet manager itself set (IBA
 * 14.2.5.4, PortStateChange).
 */
static void note_change(struct subnet_port *p, enum port_state to, enum cause by)
{
	p->node->subnet->moved += by == BY_LINK;
	if (!is_switch(p->node)) {
		tell_changed(p, SUBNET_PORT_STATE);
	} else if (by == BY_LINK && to <= PORT_INIT) {
		p->node->sw->state_change = true;
		trap_link_state(&p->node->port[0]);
	}
}

static void set_state(struct subnet_port *p, enum port_state to, enum cause by)
{
	assert_that(arrow((enum port_state)p->shared->state, to));
	table_changes(p->node->subnet);
	p->shared->state = (uint8_t)to;
	note_change(p, to, by);
}

static void set_phys(struct subnet_port *p, enum port_phys to)
{
	table_changes(p->node->subnet);
	p->shared->phys = (uint8_t)to;
}

/* ---- training ---- */
static unsigned highest_bit(unsigned v)
{
	return v ? 1u << (31 - __builtin_clz(v)) : 0;
}

struct rate {
	uint8_t width, speed, speed_ext;
};

/* What both ends of a cable have enabled, the best of it. No width or no speed: they cannot talk. */
static struct rate common_rate(const struct subnet_port *a, const struct subnet_port *b)
{
	static const uint8_t lanes_order[] = {8, 4, 2, 16, 1}; /* 12x, 8x, 4x, 2x, 1x */
	unsigned widths = a->regs->width_enabled & b->regs->width_enabled;
	unsigned speeds = a->regs->speed_enabled & b->regs->speed_enabled;
	unsigned ext = a->regs->speed_ext_enabled & b->regs->speed_ext_enabled;
	struct rate r = {.speed = (uint8_t)highest_bit(speeds), .speed_ext = (uint8_t)highest_bit(ext)};

	for (unsigned i = 0; i < sizeof(lanes_order) && !r.width; i++)
		r.width = widths & lanes_order[i];
	return r;
}

static bool waits(const struct subnet_port *p)
{
	return p->shared->phys == PHYS_POLLING || p->shared->phys == PHYS_SLEEP;
}

static bool can_train(const struct subnet_port *p, struct rate *r)
{
	if (!p->peer || p->cut || !waits(p) || !waits(p->peer))
		return false;
	if (p->shared->phys == PHYS_SLEEP && p->peer->shared->phys == PHYS_SLEEP)
		return false;
	*r = common_rate(p, p->peer);
	return r->width && (r->speed || r->speed_ext);
}

static void come_up(struct subnet_port *p, const struct rate *r)
{
	set_phys(p, PHYS_LINK_UP);
	p->shared->width = r->width;
	p->shared->speed = r->speed;
	p->shared->speed_ext = r->speed_ext;
	p->regs->phy_errors = 0;
	set_state(p, PORT_INIT, BY_LINK);
}

void link_train(struct subnet_port *p)
{
	struct rate r;

	if (!can_train(p, &r))
		return;
	come_up(p, &r);
	come_up(p->peer, &r);
}

/* ---- falling ---- */
static void go_down(struct subnet_port *p, enum port_phys then, enum cause by)
{
	set_phys(p, then);
	if (p->shared->state == PORT_DOWN)
		return;
	if (by == BY_LINK)
		p->regs->count.total[CNT_LINK_DOWNED]++;
	set_state(p, PORT_DOWN, by);
}

/* This end of the link goes to `then`, and the other, if the link was up, back to where it waits. */
static void link_fall(struct subnet_port *p, enum port_phys then, enum cause by)
{
	struct subnet_port *peer = p->peer;

	go_down(p, then, by);
	if (peer && peer->shared->phys == PHYS_LINK_UP)
		go_down(peer, (enum port_phys)peer->regs->down_default, BY_LINK);
}

/* ---- what the subnet manager sets ---- */
bool link_may_set(const struct subnet_port *p, unsigned state, unsigned phys)
{
	unsigned now = p->shared->state;

	if (phys > PHYS_DISABLED || state > PORT_ACTIVE || state == PORT_INIT)
		return false;
	if (!p->num)
		return true; /* a switch's own port has no link to set */
	return state <= PORT_DOWN || state == now || arrow((enum port_state)now, (enum port_state)state);
}

void link_set(struct subnet_port *p, unsigned state, unsigned phys)
{
	if (!p->num)
		return;
	if (state == PORT_DOWN || phys) {
		link_fall(p, phys ? (enum port_phys)phys : (enum port_phys)p->regs->down_default, BY_SET);
		link_train(p);
	} else if (state > PORT_DOWN && state != p->shared->state) {
		set_state(p, (enum port_state)state, BY_SET);
	}
}

/* ---- cables ---- */
void link_init(struct subnet_port *p)
{
	p->shared->phys = p->num ? PHYS_POLLING : PHYS_LINK_UP;
	p->shared->state = p->num ? PORT_DOWN : PORT_ACTIVE;
}

int subnet_cut(struct subnet_port *p, uint64_t now)
{
	struct subnet *s = p->node->subnet;

	if (!p->peer)
		return -ENOTCONN;
	if (p->cut)
		return -EALREADY;
	p->cut = p->peer->cut = true;
	if (!s->table)
		return 0;
	enter(s, now);
	if (p->shared->phys == PHYS_LINK_UP)
		link_fall(p, (enum port_phys)p->regs->down_default, BY_LINK);
	leave(s);
	return 0;
}

int subnet_mend(struct subnet_port *p, uint64_t now)
{
	struct subnet *s = p->node->subnet;

	if (!p->peer)
		return -ENOTCONN;
	if (!p->cut)
		return -EALREADY;
	p->cut = p->peer->cut = false;
	if (!s->table)
		return 0;
	enter(s, now);
	link_train(p);
	leave(s);
	return 0;
}
