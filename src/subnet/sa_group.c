/* SPDX-License-Identifier: MIT */
/*
 * Multicast groups (IBA volume 1, 15.2.5.17): who joins first makes the group, and says its Q_Key, P_Key and
 * the rest of what all members share; the last full member that leaves takes it away. IPoIB's broadcast group
 * is always there, since others take their parameters from it.
 *
 * A port joins for itself, or one that has the SM_Key for it. Its programs are one member: who counts them is
 * at the port.
 */
#include "subnet/sm_parts.h"

#include <stdlib.h>

enum {
	VALUE_MASK = 0x3f,
	EXACTLY = SA_EXACTLY << 6,
	BROADCAST_QKEY = 0x0b1b, /* as OpenSM has it */
	BROADCAST_MTU = 4,       /* 2048 */
	BROADCAST_RATE = 3,      /* 10 Gb/s */
	LIFE = 18,
	SCOPE_LINK_LOCAL = 2,
	SA_SIGNATURE = 0xa01b, /* ff1s:a01b: as OpenSM makes them up */
	JOIN_NEEDS = MEMBER_PORT_GID | MEMBER_JOIN_STATE,
	CREATE_NEEDS = MEMBER_QKEY | MEMBER_TCLASS | MEMBER_PKEY | MEMBER_SL | MEMBER_FLOW_LABEL | JOIN_NEEDS,
};

/* ---- which there are ---- */
static struct sa_group *find(const struct subnet_sm *m, const uint8_t mgid[16])
{
	list_for_each(pos, &m->sa.groups)
	{
		struct sa_group *g = container_of(pos, struct sa_group, node);

		if (!memcmp(g->what.mgid, mgid, 16))
			return g;
	}
	return NULL;
}

static struct sa_group_member *member_of(const struct sa_group *g, const uint8_t gid[16])
{
	list_for_each(pos, &g->members)
	{
		struct sa_group_member *k = container_of(pos, struct sa_group_member, node);

		if (!memcmp(k->gid, gid, 16))
			return k;
	}
	return NULL;
}

static uint16_t free_mlid(const struct subnet_sm *m)
{
	uint8_t used[SA_GROUPS] = {0};

	list_for_each(pos, &m->sa.groups)
		used[container_of(pos, struct sa_group, node)->what.mlid - LID_MCAST] = 1;
	for (unsigned i = 0; i < SA_GROUPS; i++)
		if (!used[i])
			return (uint16_t)(LID_MCAST + i);
	return 0;
}

static struct sa_group *add_group(struct subnet_sm *m, const struct sa_member *what)
{
	struct sa_group *g = m->sa.ngroups < SA_GROUPS ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return NULL;
	g->what = *what;
	g->what.mlid = free_mlid(m);
	g->what.join = 0;
	g->what.proxy = false;
	memset(g->what.port_gid, 0, 16);
	list_init(&g->members);
	list_add_tail(&m->sa.groups, &g->node);
	m->sa.ngroups++;
	return g;
}

static void drop_member(struct subnet_sm *m, struct sa_group_member *k)
{
	list_del(&k->node);
	free(k);
	m->sa.nmembers--;
}

static void drop_group(struct subnet_sm *m, struct sa_group *g)
{
	list_for_each_safe(pos, &g->members) drop_member(m, container_of(pos, struct sa_group_member, node));
	list_del(&g->node);
	free(g);
	m->sa.ngroups--;
}

static bool has_full_member(const struct sa_group *g)
{
	list_for_each(pos, &g->members)
	{
		if (container_of(pos, struct sa_group_member, node)->join & JOIN_FULL)
			return true;
	}
	return false;
}

/* Somebody has left: the group may go, too. */
static void settle(struct subnet_sm *m, struct sa_group *g)
{
	if (g->well_known || has_full_member(g)) {
		sm_write_group(m, g);
		return;
	}
	sm_clear_group(m, g->what.mlid);
	sa_report_gid(m, TRAP_GROUP_OUT, g->what.mgid);
	drop_group(m, g);
}

/* ---- joining ---- */
static bool is_zero(const uint8_t gid[16])
{
	static const uint8_t zero[16];

	return !memcmp(gid, zero, 16);
}

/* Flags that there are, and a scope. */
static bool is_group_gid(const uint8_t mgid[16])
{
	return mgid[0] == 0xff && !(mgid[1] & 0xe0) && mgid[1] & 15;
}

/* Those of the subnet alone under this signature are made up by the SA, below. */
static bool is_ours_to_make(const uint8_t mgid[16])
{
	return (mgid[1] & 15) == SCOPE_LINK_LOCAL && get_be16(mgid + 2) == SA_SIGNATURE;
}

static void make_mgid(struct subnet_sm *m, uint8_t scope, uint8_t mgid[16])
{
	memset(mgid, 0, 16);
	mgid[0] = 0xff;
	mgid[1] = (uint8_t)(0x10 | (scope ? scope : SCOPE_LINK_LOCAL));
	put_be16(mgid + 2, SA_SIGNATURE);
	put_be64(mgid + 8, ++m->sa.mgids);
}

static bool has_pkey(const struct subnet_port *end, uint16_t pkey)
{
	for (unsigned i = 0; i < FABRIC_PKEYS; i++)
		if (end->shared->pkey[i] && !((end->shared->pkey[i] ^ pkey) & 0x7fff))
			return true;
	return false;
}

/* What a port can do that joins: all that is sent to the group must reach it. */
static bool can_join(const struct subnet_port *end, const struct sa_member *g)
{
	return has_pkey(end, g->pkey) && end->shared->mtu >= (g->mtu & VALUE_MASK) &&
	       sm_port_rate(end) >= sa_rate_tenths(g->rate & VALUE_MASK);
}

/* What is left open is what the port can do. False: it cannot do what was asked for. */
static bool wanted_group(
	struct sa_request *r, const struct sa_member *want, struct subnet_port *end, struct sa_member *g)
{
	uint8_t mtu = end->shared->mtu, rate = sa_rate_of(sm_port_rate(end)), life = LIFE;

	if (!sa_select(r->mask, MEMBER_MTU_SELECTOR, want->mtu, &mtu, sa_order_plain) ||
		!sa_select_rate(r->mask, MEMBER_RATE_SELECTOR, want->rate, &rate) ||
		!sa_select(r->mask, MEMBER_LIFE_SELECTOR, want->life, &life, sa_order_plain))
		return false;
	*g = *want;
	if (r->mask & MEMBER_MGID && is_ours_to_make(want->mgid))
		return false;
	if (!(r->mask & MEMBER_MGID) || is_zero(g->mgid))
		make_mgid(r->m, r->mask & MEMBER_SCOPE ? want->scope : 0, g->mgid);
	g->scope = g->mgid[1] & 15;
	g->mtu = mtu | EXACTLY;
	g->rate = rate | EXACTLY;
	g->life = life | EXACTLY;
	if (!(r->mask & MEMBER_HOP_LIMIT))
		g->hop_limit = 0;
	return is_group_gid(g->mgid) && mtu_bytes(mtu) && sa_rate_tenths(rate) && can_join(end, g);
}

static uint16_t create(
	struct sa_request *r, const struct sa_member *want, struct subnet_port *end, struct sa_group **out)
{
	struct sa_member g;

	if (!(want->join & JOIN_FULL))
		return SA_INVALID;
	if ((r->mask & CREATE_NEEDS) != CREATE_NEEDS)
		return SA_FEW_COMPONENTS;
	if (!wanted_group(r, want, end, &g))
		return SA_INVALID;
	*out = add_group(r->m, &g);
	if (!*out)
		return SA_NO_RESOURCES;
	sa_report_gid(r->m, TRAP_GROUP_IN, g.mgid);
	return MAD_STATUS_OK;
}

/* What all members must agree on. */
static bool agrees(const struct sa_request *r, const struct sa_group *g)
{
	const uint64_t shared = MEMBER_QKEY | MEMBER_MLID | MEMBER_TCLASS | MEMBER_PKEY | MEMBER_SL |
				MEMBER_FLOW_LABEL | MEMBER_HOP_LIMIT | MEMBER_SCOPE;
	uint8_t record[52];

	sa_member_put(record, &g->what);
	return sa_matches(r->record, r->mask & shared, r->data, record);
}

/* With a selector: greater, less or exactly so. */
static bool compares(
	uint64_t mask, unsigned selector_bit, uint8_t asked, uint8_t value, unsigned (*order)(uint8_t))
{
	unsigned want = order(asked & VALUE_MASK), have = order(value & VALUE_MASK);
	unsigned selector = mask & selector_bit ? asked >> 6 : SA_EXACTLY;

	if (!(mask & selector_bit << 1) || selector == SA_LARGEST)
		return true;
	return selector == SA_GREATER ? have > want : selector == SA_LESS ? have < want : have == want;
}

static bool selects(const struct sa_request *r, const struct sa_member *want, const struct sa_member *g)
{
	return compares(r->mask, MEMBER_MTU_SELECTOR, want->mtu, g->mtu, sa_order_plain) &&
	       compares(r->mask, MEMBER_RATE_SELECTOR, want->rate, g->rate, sa_rate_tenths) &&
	       compares(r->mask, MEMBER_LIFE_SELECTOR, want->life, g->life, sa_order_plain);
}

static struct sa_group_member *add_member(
	struct subnet_sm *m, struct sa_group *g, struct subnet_port *end, const uint8_t gid[16])
{
	struct sa_group_member *k = member_of(g, gid);

	if (k || m->sa.nmembers >= SA_MEMBERS)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->end = end;
	memcpy(k->gid, gid, 16);
	list_add_tail(&g->members, &k->node);
	m->sa.nmembers++;
	return k;
}

static bool answer_with(struct sa_request *r, const struct sa_group *g, const uint8_t gid[16], uint8_t join)
{
	struct sa_member what = g->what;
	uint8_t record[52];

	memcpy(what.port_gid, gid, 16);
	what.join = join;
	sa_member_put(record, &what);
	return sa_add(r, record);
}

/* The port that a join or leave is about, if whoever asks may say so. */
static uint16_t port_meant(const struct sa_request *r, const struct sa_member *want, struct subnet_port **end)
{
	*end = sm_port_of_gid(r->m, want->port_gid);
	if (!*end || !sm_is_there(*end))
		return SA_INVALID_GID;
	return *end == r->asker || r->trusted ? MAD_STATUS_OK : SA_DENIED;
}

uint16_t sa_set_member(struct sa_request *r)
{
	struct sa_member want = sa_member_get(r->data);
	struct sa_group *g = r->mask & MEMBER_MGID ? find(r->m, want.mgid) : NULL;
	struct sa_group_member *k;
	struct subnet_port *end;
	uint16_t status;

	if ((r->mask & JOIN_NEEDS) != JOIN_NEEDS)
		return SA_FEW_COMPONENTS;
	status = port_meant(r, &want, &end);
	if (!status && !(want.join & (JOIN_FULL | JOIN_NON | JOIN_SEND_ONLY)))
		status = SA_INVALID;
	if (status)
		return status;
	if (g && (!agrees(r, g) || !selects(r, &want, &g->what) || !can_join(end, &g->what)))
		return SA_INVALID;
	if (!g)
		status = create(r, &want, end, &g);
	if (status)
		return status;
	k = add_member(r->m, g, end, want.port_gid);
	if (!k) {
		settle(r->m, g);
		return SA_NO_RESOURCES;
	}
	k->join |= want.join & (JOIN_FULL | JOIN_NON | JOIN_SEND_ONLY);
	sm_write_group(r->m, g);
	return answer_with(r, g, k->gid, k->join) ? MAD_STATUS_OK : SA_NO_RESOURCES;
}

uint16_t sa_delete_member(struct sa_request *r)
{
	const uint64_t needs = MEMBER_MGID | JOIN_NEEDS;
	struct sa_member want = sa_member_get(r->data);
	struct sa_group *g = find(r->m, want.mgid);
	struct sa_group_member *k = g ? member_of(g, want.port_gid) : NULL;
	struct subnet_port *end;
	uint16_t status;

	if ((r->mask & needs) != needs)
		return SA_FEW_COMPONENTS;
	status = port_meant(r, &want, &end);
	if (status)
		return status;
	if (!k || !want.join || want.join & ~k->join)
		return SA_INVALID;
	k->join &= (uint8_t)~want.join;
	status = answer_with(r, g, k->gid, k->join) ? MAD_STATUS_OK : SA_NO_RESOURCES;
	if (!k->join)
		drop_member(r->m, k);
	settle(r->m, g);
	return status;
}

/* ---- asking ---- */
static bool add_match(struct sa_request *r, const struct sa_member *want, const struct sa_member *what)
{
	uint8_t record[52];

	sa_member_put(record, what);
	if (!selects(r, want, what) || (r->mask & MEMBER_JOIN_STATE && want->join & ~what->join))
		return true;
	return sa_add_match(r, record);
}

/* Who is in a group is told to those who have the SM_Key; others are told of the group. */
static bool add_members(struct sa_request *r, const struct sa_member *want, const struct sa_group *g)
{
	struct sa_member what = g->what;

	list_for_each(pos, &g->members)
	{
		const struct sa_group_member *k = container_of(pos, struct sa_group_member, node);

		memcpy(what.port_gid, k->gid, 16);
		what.join = k->join;
		if (r->trusted && !add_match(r, want, &what))
			return false;
	}
	return r->trusted || add_match(r, want, &g->what);
}

uint16_t sa_get_members(struct sa_request *r)
{
	struct sa_member want = sa_member_get(r->data);

	list_for_each(pos, &r->m->sa.groups)
	{
		if (!add_members(r, &want, container_of(pos, struct sa_group, node)))
			return SA_NO_RESOURCES;
	}
	return MAD_STATUS_OK;
}

/* ---- coming and going ---- */
bool sa_groups_init(struct subnet_sm *m)
{
	struct sa_group *g = add_group(m, &(struct sa_member){.mgid = {0xff, 0x12, 0x40, 0x1b, 0xff, 0xff, 0,
								      0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff},
						  .qkey = BROADCAST_QKEY,
						  .pkey = PKEY_DEFAULT,
						  .mtu = BROADCAST_MTU | EXACTLY,
						  .rate = BROADCAST_RATE | EXACTLY,
						  .life = LIFE | EXACTLY,
						  .scope = SCOPE_LINK_LOCAL});

	if (g)
		g->well_known = true;
	return g;
}

void sa_groups_forget(struct subnet_sm *m)
{
	list_for_each_safe(pos, &m->sa.groups) drop_group(m, container_of(pos, struct sa_group, node));
}

static void drop_absent(struct subnet_sm *m, struct sa_group *g)
{
	list_for_each_safe(pos, &g->members)
	{
		struct sa_group_member *k = container_of(pos, struct sa_group_member, node);

		if (!sm_is_there(k->end))
			drop_member(m, k);
	}
}

void sa_groups_sweep(struct subnet_sm *m)
{
	if (m->fresh) /* another manager's, whose members will join again */
		for (unsigned i = 0; i < SUBNET_MLIDS; i++)
			sm_clear_group(m, (uint16_t)(LID_MCAST + i));
	list_for_each_safe(pos, &m->sa.groups)
	{
		struct sa_group *g = container_of(pos, struct sa_group, node);

		drop_absent(m, g);
		settle(m, g);
	}
}
