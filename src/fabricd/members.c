/* SPDX-License-Identifier: MIT */
/*
 * Which programs are in which multicast groups. A port joins a group once, for all its programs
 * (IBA 15.2.5.17): it leaves when the last of them does, or dies, by a Delete as anybody's. A subnet manager
 * that asks clients to register again is told of all groups again.
 *
 * A membership is what the SA has confirmed. When a program leaves before that, or dies, its port leaves when
 * the answer comes. While a join of another program is on its way no leave makes the port leave: it could
 * arrive after that join; if the join fails the port leaves then.
 */
#include "base/log.h"
#include "fabric/shared.h"
#include "fabricd/attach_parts.h"
#include "wire/sa.h"

#include <stdlib.h>
#include <string.h>

struct membership {
	struct list node;
	struct attach_conn *conn;
	struct subnet_port *at;
	unsigned joins;       /* of this program */
	uint8_t mad[MAD_LEN]; /* the Set that made it */
};

static const uint8_t *mgid_of(const uint8_t *mad)
{
	return mad + SA_DATA; /* the record begins with it */
}

static bool is_of(const struct membership *m, const struct subnet_port *at, const uint8_t *mad)
{
	return m->at == at && !memcmp(mgid_of(m->mad), mgid_of(mad), 16);
}

static struct membership *find(const struct attach_conn *c, const struct subnet_port *at, const uint8_t *mad)
{
	list_for_each(n, &c->all->members)
	{
		struct membership *m = container_of(n, struct membership, node);

		if (m->conn == c && is_of(m, at, mad))
			return m;
	}
	return NULL;
}

/* Whether a program is in the group by this port, besides one of its memberships. */
static bool has_others(const struct attach *all, const struct membership *but, const struct subnet_port *at,
	const uint8_t *mad)
{
	list_for_each(n, &all->members)
	{
		const struct membership *m = container_of(n, struct membership, node);

		if (m != but && is_of(m, at, mad))
			return true;
	}
	return false;
}

/* As well by a program whose join is on its way: a leave must not overtake it. */
static bool is_wanted(
	struct attach *all, const struct membership *but, const struct subnet_port *at, const uint8_t *mad)
{
	return has_others(all, but, at, mad) || sa_client_keeps(all, at, mad);
}

static void drop(struct membership *m)
{
	m->conn->ngroups--;
	list_del(&m->node);
	free(m);
}

/* By a port that no program is in the group by any more. */
static void leave(struct attach *all, struct subnet_port *at, const uint8_t *set)
{
	uint8_t mad[MAD_LEN];

	memcpy(mad, set, MAD_LEN);
	mad[3] = SA_DELETE;
	put_be64(mad + SA_MASK, MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE);
	sa_client_send(all, at, NULL, mad);
}

/* ---- what programs want ---- */
bool members_may(const struct attach_conn *c, const struct subnet_port *at, const uint8_t mad[MAD_LEN])
{
	const struct sa_member r = sa_member_get(mad + SA_DATA);
	const uint64_t needs = MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE;

	/* Full members only, which all of a port's programs then are: a port's membership is one. */
	if ((get_be64(mad + SA_MASK) & needs) != needs || !fabric_port_has_gid(at->shared, r.port_gid) ||
		r.join != JOIN_FULL)
		return false;
	if (mad[3] == SA_DELETE)
		return find(c, at, mad);
	return c->ngroups < ATTACH_GROUPS || find(c, at, mad);
}

bool members_must_ask(const struct attach_conn *c, const struct subnet_port *at, const uint8_t mad[MAD_LEN])
{
	struct membership *m = find(c, at, mad);
	bool last;

	if (mad[3] != SA_DELETE || !m)
		return true;
	if (--m->joins)
		return false;
	last = !is_wanted(c->all, m, at, mad);
	drop(m);
	return last;
}

/* ---- what the SA says ---- */
/* The answer as a question: the whole group, as it was made. */
static void make_set(uint8_t mad[MAD_LEN])
{
	mad[3] = MAD_METHOD_SET;
	memset(mad + MAD_HDR_LEN, 0, SA_MASK - MAD_HDR_LEN);
	put_be64(mad + SA_MASK, MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE | MEMBER_QKEY |
					MEMBER_PKEY | MEMBER_SL | MEMBER_FLOW_LABEL | MEMBER_TCLASS);
}

void members_joined(
	struct attach *all, struct attach_conn *c, struct subnet_port *at, const uint8_t mad[MAD_LEN])
{
	struct membership *m = c ? find(c, at, mad) : NULL;

	if (c && !m) {
		m = calloc(1, sizeof(*m));
		if (m) {
			m->conn = c;
			m->at = at;
			memcpy(m->mad, mad, MAD_LEN);
			make_set(m->mad);
			list_add_tail(&all->members, &m->node);
			c->ngroups++;
		}
	}
	if (m)
		m->joins++;
	else if (!is_wanted(all, NULL, at, mad))
		leave(all, at, mad);
}

void members_not_joined(struct attach *all, struct subnet_port *at, const uint8_t mad[MAD_LEN])
{
	if (!is_wanted(all, NULL, at, mad))
		leave(all, at, mad);
}

void members_forget(struct attach_conn *c)
{
	list_for_each_safe(n, &c->all->members)
	{
		struct membership *m = container_of(n, struct membership, node);

		if (m->conn != c)
			continue;
		if (!is_wanted(c->all, m, m->at, m->mad))
			leave(c->all, m->at, m->mad);
		drop(m);
	}
}

/* Once for each group, by the first of its members. */
void members_renew(struct attach *all, struct subnet_port *at)
{
	list_for_each(n, &all->members)
	{
		const struct membership *m = container_of(n, struct membership, node);
		bool first = true;

		for (struct list *k = all->members.next; k != n; k = k->next)
			first &= !is_of(container_of(k, struct membership, node), at, m->mad);
		if (m->at == at && first)
			sa_client_send(all, at, NULL, m->mad);
	}
}
