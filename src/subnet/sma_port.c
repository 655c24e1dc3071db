/* SPDX-License-Identifier: MIT */
/*
 * PortInfo (IBA volume 1, 14.2.5.6): the attribute that brings a subnet up. Zero in a Set often means "as it
 * is". What belongs to an end port (LID, subnet manager, M_Key, prefix) is nothing to the cabled ports of a
 * switch, which neither show nor take it.
 */
#include "subnet/parts.h"

#include "wire/smp.h"

#include <assert.h>

static_assert((int)SUBNET_VL_ARB <= 32, "a block has all of a priority");

/* ---- Get ---- */
static void show_link(const struct subnet_port *p, struct port_info *i)
{
	const struct fabric_port *f = p->shared;
	const struct port_regs *r = p->regs;
	bool up = f->phys == PHYS_LINK_UP && p->num;

	i->width_enabled = r->width_enabled;
	i->width_supported = p->caps.width;
	i->width_active = up ? f->width : p->caps.width & 1 ? 1 : 2;
	i->speed_supported = p->caps.speed;
	i->speed_active = up ? (f->speed ? f->speed : 4) : 1;
	i->speed_enabled = r->speed_enabled;
	i->speed_ext_supported = p->caps.speed_ext;
	i->speed_ext_enabled = r->speed_ext_enabled;
	i->speed_ext_active = up ? f->speed_ext : 0;
	i->state = f->state;
	i->phys = f->phys;
	i->down_default = r->down_default;
	i->mtu = f->mtu;
	i->mtu_cap = f->mtu_cap;
	i->vls = f->vls;
	i->vl_cap = SUBNET_VL_CAP;
	i->vl_high_limit = r->vl_high_limit;
	i->vl_arb_high_cap = i->vl_arb_low_cap = SUBNET_VL_ARB;
	i->vl_stall = r->vl_stall;
	i->hoq_life = r->hoq_life;
	i->init_type = r->init_type;
	i->enforce_in = f->flags & FABRIC_PKEY_IN;
	i->enforce_out = f->flags & FABRIC_PKEY_OUT;
	i->phy_errors = r->phy_threshold;
	i->overrun_errors = r->overrun_threshold;
}

static void show_end(const struct subnet_port *p, uint64_t mkey_given, struct port_info *i)
{
	const struct fabric_port *f = p->shared;
	const struct port_agent *a = p->regs->agent;

	i->mkey = a->mkey_protect == 1 && mkey_given != a->mkey ? 0 : a->mkey;
	i->mkey_lease = a->mkey_lease;
	i->mkey_protect = a->mkey_protect;
	i->mkey_violations = a->mkey_violations;
	i->pkey_violations = a->pkey_violations;
	i->qkey_violations = a->qkey_violations;
	i->prefix = f->prefix;
	i->lid = f->lid;
	i->lmc = f->lmc;
	i->sm_lid = f->sm_lid;
	i->sm_sl = f->sm_sl;
	i->cap_mask = f->cap_mask;
	i->guid_cap = FABRIC_GUIDS;
	i->subnet_timeout = f->timeout;
	i->resp_time = SUBNET_RESP_TIME;
}

void sma_get_port_info(struct subnet_port *p, uint64_t mkey_given, uint8_t *data)
{
	struct port_info i = {.local_port = p->num};

	show_link(p, &i);
	if (p == end_port(p))
		show_end(p, mkey_given, &i);
	port_info_put(data, &i);
}

/* ---- Set: first whether all of it may be ---- */
static uint8_t all_or(uint8_t asked, uint8_t supported, uint8_t all)
{
	return asked == all ? supported : asked;
}

/* Enabled bits are some of those supported, or all ones for all of them. */
static bool subset(uint8_t asked, uint8_t supported, uint8_t all)
{
	return asked == all || !(asked & ~supported);
}

static bool link_fields_ok(const struct subnet_port *p, const struct port_info *i, bool extended)
{
	return subset(i->width_enabled, p->caps.width, 0xff) &&
	       subset(i->speed_enabled, p->caps.speed, 0xf) &&
	       (!extended || i->speed_ext_enabled == 30 ||
		       subset(i->speed_ext_enabled, p->caps.speed_ext, 31)) &&
	       i->down_default <= PHYS_POLLING && i->vls <= SUBNET_VL_CAP && i->mtu <= p->caps.mtu;
}

static bool end_fields_ok(const struct subnet_port *p, const struct port_info *i)
{
	if (i->lid && (!lid_is_unicast(i->lid) || (p->node->sw && i->lmc)))
		return false;
	return !i->sm_lid || lid_is_unicast(i->sm_lid);
}

/* ---- then doing it ---- */
/* All LIDs of a port point to it, or no longer do. */
static void map_lids(struct subnet_port *p, uint32_t from, uint32_t to)
{
	struct fabric_table *t = p->node->subnet->table;
	unsigned first = p->shared->lid & ~((1u << p->shared->lmc) - 1), n = 1u << p->shared->lmc;

	for (unsigned lid = first; p->shared->lid && lid < first + n; lid++)
		if (fabric_lid_port(t, (uint16_t)lid) == from || from == FABRIC_NONE)
			fabric_lid_set(t, (uint16_t)lid, to);
}

static void set_lid(struct subnet_port *p, uint16_t lid, uint8_t lmc)
{
	if (p->shared->lid == lid && p->shared->lmc == lmc)
		return;
	table_changes(p->node->subnet);
	map_lids(p, p->index, FABRIC_NONE);
	p->shared->lid = lid;
	p->shared->lmc = lmc;
	map_lids(p, FABRIC_NONE, p->index);
	tell_changed(p, SUBNET_LID_CHANGED);
}

static void set_sm(struct subnet_port *p, uint16_t lid, uint8_t sl)
{
	if (p->shared->sm_lid == lid && p->shared->sm_sl == sl)
		return;
	table_changes(p->node->subnet);
	p->shared->sm_lid = lid;
	p->shared->sm_sl = sl;
	tell_changed(p, SUBNET_SM_CHANGED);
}

static void set_prefix(struct subnet_port *p, uint64_t prefix)
{
	if (p->shared->prefix == prefix)
		return;
	table_changes(p->node->subnet);
	p->shared->prefix = prefix;
	tell_changed(p, SUBNET_GUIDS_CHANGED);
}

static void set_end(struct subnet_port *p, const struct port_info *i)
{
	struct port_agent *a = p->regs->agent;

	a->mkey = i->mkey;
	a->mkey_protect = i->mkey_protect;
	a->mkey_lease = i->mkey_lease;
	a->mkey_violations =
		i->mkey_violations ? a->mkey_violations : 0; /* zero resets, others are as they are */
	a->pkey_violations = i->pkey_violations ? a->pkey_violations : 0;
	a->qkey_violations = i->qkey_violations ? a->qkey_violations : 0;
	if (p->shared->timeout != i->subnet_timeout) {
		table_changes(p->node->subnet);
		p->shared->timeout = i->subnet_timeout;
	}
	set_prefix(p, i->prefix);
	if (i->lid)
		set_lid(p, i->lid, i->lmc);
	if (i->sm_lid)
		set_sm(p, i->sm_lid, i->sm_sl);
	if (i->reregister) {
		table_changes(p->node->subnet);
		p->shared->reregisters++;
		tell_changed(p, SUBNET_REREGISTER);
	}
}

/* What the fields of a link are to be that others on the path see. */
static void set_path(struct subnet_port *p, const struct port_info *i)
{
	struct fabric_port *f = p->shared;
	uint32_t flags = f->flags & ~(uint32_t)(FABRIC_PKEY_IN | FABRIC_PKEY_OUT);
	uint8_t vls = i->vls ? i->vls : f->vls, mtu = i->mtu ? i->mtu : f->mtu;

	if (p->node->sw && p->num)
		flags |= (i->enforce_in ? FABRIC_PKEY_IN : 0) | (i->enforce_out ? FABRIC_PKEY_OUT : 0);
	if (f->flags == flags && f->vls == vls && f->mtu == mtu)
		return;
	table_changes(p->node->subnet);
	f->flags = flags;
	f->vls = vls;
	f->mtu = mtu;
}

static void set_link(struct subnet_port *p, const struct port_info *i, bool extended)
{
	struct port_regs *r = p->regs;
	uint16_t changes = 0;

	if (i->width_enabled && r->width_enabled != all_or(i->width_enabled, p->caps.width, 0xff)) {
		r->width_enabled = all_or(i->width_enabled, p->caps.width, 0xff);
		changes |= NOTICE_WIDTH_ENABLED;
	}
	if (i->speed_enabled && r->speed_enabled != all_or(i->speed_enabled, p->caps.speed, 0xf)) {
		r->speed_enabled = all_or(i->speed_enabled, p->caps.speed, 0xf);
		changes |= NOTICE_SPEED_ENABLED;
	}
	if (extended && i->speed_ext_enabled)
		r->speed_ext_enabled =
			i->speed_ext_enabled == 30 ? 0 : all_or(i->speed_ext_enabled, p->caps.speed_ext, 31);
	if (i->down_default)
		r->down_default = i->down_default;
	r->vl_high_limit = i->vl_high_limit;
	r->vl_stall = i->vl_stall;
	r->hoq_life = i->hoq_life;
	r->init_type = i->init_type;
	r->phy_threshold = i->phy_errors;
	r->overrun_threshold = i->overrun_errors;
	if (changes && !p->node->sw)
		trap_local_changes(p, changes);
}

uint16_t sma_set_port_info(struct subnet_port *p, uint32_t mod, const uint8_t *data)
{
	const struct port_info i = port_info_get(data);
	bool extended = mod & PORT_INFO_EXTENDED, is_end = p == end_port(p);

	if (!link_fields_ok(p, &i, extended) || (is_end && !end_fields_ok(p, &i)) ||
		!link_may_set(p, i.state, i.phys))
		return MAD_STATUS_BAD_FIELD;
	if (is_end)
		set_end(p, &i);
	set_path(p, &i);
	set_link(p, &i, extended);
	link_set(p, i.state, i.phys);
	return MAD_STATUS_OK;
}
