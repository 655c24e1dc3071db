/* SPDX-License-Identifier: MIT */
/*
 * Subscriptions (InformInfo, IBA volume 1, 13.4.8.3 and 13.4.11): who asked for it is told by a Report what
 * ports have told the manager, and what it found out itself. Reports wait here until they are fetched.
 */
#include "subnet/sm_parts.h"

#include <stdlib.h>

enum {
	ALL = 0xffff,
	ALL_PRODUCERS = 0xffffff,
	PRODUCER_MANAGER = 4,
	ISSUER_GID = NOTICE_LEN, /* in a Report it follows the notice */
};

struct inform {
	struct list node;
	uint16_t lid;
	struct sa_inform what;
};

struct waiting {
	struct list node;
	struct sa_report report;
};

/* ---- subscribing ---- */
static bool is_same(const struct inform *i, uint16_t lid, const struct sa_inform *what)
{
	return i->lid == lid && i->what.trap == what->trap && i->what.type == what->type &&
	       i->what.producer == what->producer && i->what.generic == what->generic &&
	       !memcmp(i->what.gid, what->gid, 16) && i->what.lid_begin == what->lid_begin &&
	       i->what.lid_end == what->lid_end;
}

static struct inform *find(const struct subnet_sm *m, uint16_t lid, const struct sa_inform *what)
{
	list_for_each(pos, &m->sa.informs)
	{
		struct inform *i = container_of(pos, struct inform, node);

		if (is_same(i, lid, what))
			return i;
	}
	return NULL;
}

static void drop(struct subnet_sm *m, struct inform *i)
{
	list_del(&i->node);
	free(i);
	m->sa.ninforms--;
}

static struct inform *add(struct subnet_sm *m, uint16_t lid, const struct sa_inform *what)
{
	struct inform *i = m->sa.ninforms < SA_INFORMS ? calloc(1, sizeof(*i)) : NULL;

	if (!i)
		return NULL;
	i->lid = lid;
	i->what = *what;
	list_add_tail(&m->sa.informs, &i->node);
	m->sa.ninforms++;
	return i;
}

uint16_t sa_set_inform(struct sa_request *r)
{
	struct sa_inform what = sa_inform_get(r->data);
	struct inform *i = r->asker ? find(r->m, r->asker->shared->lid, &what) : NULL;

	if (!r->asker || (!what.subscribe && !i))
		return SA_INVALID;
	if (!what.subscribe)
		drop(r->m, i);
	else if (!i && !add(r->m, r->asker->shared->lid, &what))
		return SA_NO_RESOURCES;
	return sa_add(r, r->data) ? MAD_STATUS_OK : SA_NO_RESOURCES;
}

/* ---- telling ---- */
static bool wants(const struct subnet_sm *m, const struct inform *i, const uint8_t *notice)
{
	static const uint8_t any[16];
	const struct sa_inform *w = &i->what;
	const struct subnet_port *issuer = sm_port_of_lid(m, get_be16(notice + 6));
	uint16_t lid = get_be16(notice + 6);
	uint8_t gid[16];

	if (!w->generic || (w->trap != ALL && w->trap != notice_trap(notice)) ||
		(w->type != ALL && w->type != (notice[0] & 0x7f)) ||
		(w->producer != ALL_PRODUCERS && w->producer != get_be24(notice + 1)))
		return false;
	if (!memcmp(w->gid, any, 16))
		return w->lid_begin == ALL || (lid >= w->lid_begin && lid <= w->lid_end);
	if (!issuer)
		return false;
	sm_gid(issuer, gid);
	return !memcmp(w->gid, gid, 16);
}

static void queue(struct subnet_sm *m, uint16_t lid, const uint8_t *notice)
{
	const struct mad_hdr h = {MAD_BASE_VERSION, MAD_CLASS_SA, SA_CLASS_VERSION, SA_REPORT, 0, 0,
		++m->sa.tid & UINT32_MAX, SA_NOTICE, 0};
	const struct subnet_port *issuer = sm_port_of_lid(m, get_be16(notice + 6));
	struct waiting *w = m->sa.nreports < SA_REPORTS ? calloc(1, sizeof(*w)) : NULL;

	if (!w)
		return; /* lost, as a datagram may be */
	w->report.lid = lid;
	w->report.qpn = GSI_QPN;
	mad_hdr_put(w->report.mad, &h);
	memcpy(w->report.mad + SA_DATA, notice, NOTICE_LEN);
	if (issuer)
		sm_gid(issuer, w->report.mad + SA_DATA + ISSUER_GID);
	list_add_tail(&m->sa.reports, &w->node);
	m->sa.nreports++;
}

void sa_report(struct subnet_sm *m, const uint8_t notice[NOTICE_LEN])
{
	list_for_each(pos, &m->sa.informs)
	{
		const struct inform *i = container_of(pos, struct inform, node);

		if (wants(m, i, notice))
			queue(m, i->lid, notice);
	}
}

void sa_report_gid(struct subnet_sm *m, enum trap_number which, const uint8_t gid[16])
{
	uint8_t notice[NOTICE_LEN];

	notice_put(notice, NOTICE_SM, PRODUCER_MANAGER, which, m->home->shared->lid);
	memcpy(notice + NOTICE_DETAILS + 6, gid, 16);
	sa_report(m, notice);
}

void sa_report_ports(struct subnet_sm *m)
{
	for (unsigned i = 0; i < m->nends; i++) {
		bool there = sm_is_there(m->end[i]);
		uint8_t gid[16];

		if (there == m->there[i])
			continue;
		m->there[i] = there;
		sm_gid(m->end[i], gid);
		sa_report_gid(m, there ? TRAP_GID_IN : TRAP_GID_OUT, gid);
	}
}

bool subnet_sa_next_report(struct subnet_sm *m, struct sa_report *out)
{
	struct list *first = list_pop(&m->sa.reports);

	if (!first)
		return false;
	*out = container_of(first, struct waiting, node)->report;
	free(container_of(first, struct waiting, node));
	m->sa.nreports--;
	return true;
}

void sa_reports_forget(struct subnet_sm *m)
{
	struct sa_report gone;

	list_for_each_safe(pos, &m->sa.informs) drop(m, container_of(pos, struct inform, node));
	while (subnet_sa_next_report(m, &gone))
		;
}
