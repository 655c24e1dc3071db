/* SPDX-License-Identifier: MIT */
/*
 * A request that nobody answers for a second: is there anybody? The host is asked once a second for a while.
 * When it has said twice that it takes no RoCE packets the program is told, and need not wait for the last
 * attempt of the request, 77 s later. Twice and only then, since what says so is not authenticated; and a
 * host that says so of every packet does not say it of every one in a hurry.
 */
#include "front/rdmacm_front.h"

#include "cm/probe.h"
#include "hca/adapter.h"

#include <errno.h>

enum { BETWEEN_NS = 1000 * 1000 * 1000, KNOCKS = 6, ENOUGH = 2 };

static bool waits(const struct rcm_id *id)
{
	return id->conn && (id->conn->state == CM_S_REQ_SENT || id->conn->state == CM_S_SIDR_REQ_SENT);
}

static void look(struct cm_host_timer *t, uint64_t now)
{
	struct rcm_id *id = container_of(t, struct rcm_id, probe.timer);
	struct rcm_probe *d = &id->probe;
	struct cm_host *h = &id->cm->host;

	if (d->fd > 0)
		d->refusals += cm_probe_refused(d->fd);
	d->fd = 0;
	if (!waits(id))
		return;
	if (d->refusals == ENOUGH) {
		cm_give_up(&h->core, id->conn, now);
		return;
	}
	if (d->knocks++ == KNOCKS)
		return;
	d->fd = cm_probe_send(&id->conn->path, id->path.ifindex, h->adapter->udp_port);
	cm_host_timer_set(h, t, now + BETWEEN_NS);
}

void rcm_probe_watch(struct rcm_id *id)
{
	id->probe.timer.due = look;
	cm_host_timer_set(&id->cm->host, &id->probe.timer, cm_host_now(&id->cm->host) + BETWEEN_NS);
}

void rcm_probe_leave(struct rcm_id *id)
{
	cm_host_timer_clear(&id->cm->host, &id->probe.timer);
	if (id->probe.fd > 0)
		cm_probe_refused(id->probe.fd);
	id->probe.fd = 0;
}

int rcm_probe_verdict(const struct rcm_id *id)
{
	return id->probe.refusals == ENOUGH ? -ECONNREFUSED : -ETIMEDOUT;
}
