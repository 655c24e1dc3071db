/* SPDX-License-Identifier: MIT */
/*
 * The built-in subnet manager (subnet/sm.h) in this process: its time, its packets, and who else is there. It
 * makes way as soon as anybody has an issm file open, before a packet of theirs is looked at: inotify is read
 * before what a umad connection says is done (manager_look). It comes back when none has been open for a
 * while and links have moved since: a manager that ran once (opensm -o) has left a subnet that works.
 *
 *                 somebody opens an issm file
 *     MASTER -----------------------------------> AWAY <------------------.
 *        ^                                         | the last one closes  | one opens
 *        |      RETURN_NS later, links moved       v                      |
 *        '------------------------------------- WAITING ------------------'
 */
#include "fabricd/umad_parts.h"

#include "base/log.h"
#include "subnet/sa.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RETURN_NS 5000000000ull

enum { OWN_TIDS = 1u << 31, REPORT_MS = 1000, REPORT_RETRIES = 3 };

struct manager {
	struct fabricd *d;
	struct subnet_sm *sm;
	bool may_return;        /* none has been for long enough */
	bool relieved;          /* another one has begun to manage since we made way */
	struct loop_timer back; /* runs until it may return */
	struct ibmad_port mad;  /* the SA's messages, apart from those of programs at the same port */
	struct ibmad_agent *sa;
	struct loop_timer timer; /* of its deadline */
};

/* ---- the SA ---- */
static void on_send(void *arg, unsigned qp, const struct ibmad_addr *to, const uint8_t mad[MAD_LEN])
{
	struct manager *m = arg;

	umad_qp_put_mad(m->d->umad, subnet_sm_home(m->sm), qp, to, mad);
}

/* A question of a client, or the answer to a Report, which says nothing. */
static void on_deliver(void *arg, struct ibmad_agent *a, const struct ibmad_addr *from, unsigned status,
	const uint8_t *msg, size_t len)
{
	struct manager *m = arg;
	uint64_t now = loop_now(m->d->loop);
	const uint8_t *answer;

	if (status)
		return;
	len = subnet_sa_answer(m->sm, from->lid, msg, len, now, &answer);
	if (len)
		ibmad_send(a, from, answer, len, 0, REPORT_RETRIES, now);
}

static const struct ibmad_ops sa_ops = {on_send, on_deliver};

static int register_sa(struct manager *m)
{
	static const struct ibmad_reg reg = {
		.takes = {MAD_CLASS_SA, SA_CLASS_VERSION,
			{1ull << MAD_METHOD_GET | 1ull << MAD_METHOD_SET | 1ull << SA_GET_TABLE |
				1ull << SA_GET_TRACE_TABLE | 1ull << SA_GET_MULTI | 1ull << SA_DELETE}},
		.qp = GSI_QPN,
		.rmpp_version = 1};

	ibmad_port_init(&m->mad, &sa_ops, m);
	m->mad.last_tid_high = OWN_TIDS; /* those of programs count from 1 */
	return ibmad_register(&m->mad, &reg, NULL, &m->sa);
}

static void expire(void *arg, uint64_t now)
{
	struct manager *m = arg;

	ibmad_expire(&m->mad, now);
}

static void send_reports(struct manager *m, uint64_t now)
{
	struct sa_report r;

	while (subnet_sa_next_report(m->sm, &r)) {
		struct ibmad_addr to = {.lid = r.lid, .qpn = r.qpn, .qkey = GSI_QKEY};

		ibmad_send(m->sa, &to, r.mad, MAD_LEN, REPORT_MS, REPORT_RETRIES, now);
	}
}

/* ---- who else is there ---- */
void manager_look(struct fabricd *d)
{
	if (d->manager && subnet_sm_is_master(d->manager->sm))
		trees_read(d);
}

void manager_issm(struct fabricd *d, bool open)
{
	struct manager *m = d->manager;

	if (!m)
		return;
	m->may_return = false;
	loop_timer_set(d->loop, &m->back, trees_issms_held(d) ? UINT64_MAX : loop_now(d->loop) + RETURN_NS);
	if (!open || !subnet_sm_is_master(m->sm))
		return;
	log_info("the built-in subnet manager makes way");
	m->relieved = false;
	subnet_sm_step_aside(m->sm, loop_now(d->loop));
}

static void waited_long_enough(void *arg, uint64_t now)
{
	struct manager *m = arg;

	m->may_return = true;
}

static void take(struct manager *m, uint64_t now)
{
	m->may_return = false;
	m->relieved = true;
	subnet_sm_take(m->sm, now);
}

static void before_sleep(void *arg, uint64_t now)
{
	struct manager *m = arg;

	if (m->may_return && subnet_sm_has_work(m->sm)) {
		log_info("the built-in subnet manager is back");
		take(m, now);
	}
	subnet_sm_run(m->sm, now);
	send_reports(m, now);
	umad_qp_flush(m->d->umad);
	loop_timer_set(m->d->loop, &m->timer, ibmad_deadline(&m->mad));
}

/* A master that is new to the subnet asks all clients to register again. */
void manager_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what)
{
	if (d->manager && what == SUBNET_REREGISTER)
		d->manager->relieved = true;
}

bool manager_is_relieved(const struct fabricd *d)
{
	return !d->manager || d->manager->relieved;
}

const struct subnet_port *manager_home(const struct fabricd *d)
{
	return d->manager && subnet_sm_is_master(d->manager->sm) ? subnet_sm_home(d->manager->sm) : NULL;
}

/* ---- packets ---- */
bool manager_arrived(struct fabricd *d, struct subnet_port *at, unsigned qp, const struct ibmad_addr *from,
	const uint8_t *mad)
{
	struct manager *m = d->manager;
	uint8_t answer[MAD_LEN];

	if (!m || at != subnet_sm_home(m->sm) || !subnet_sm_is_master(m->sm))
		return false;
	if (qp == GSI_QPN)
		return ibmad_receive(&m->mad, qp, from, mad, loop_now(d->loop));
	memcpy(answer, mad, MAD_LEN);
	if (!subnet_sm_receive(m->sm, from->lid, answer))
		return false;
	umad_qp_put_mad(d->umad, at, qp, from, answer);
	return true;
}

/* ---- coming and going ---- */
/* The first port of the first host that has a cable. */
static struct subnet_port *find_home(const struct fabricd *d)
{
	struct subnet_port *first = NULL;

	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->topo.host[i].nhcas; k++)
			for (unsigned p = 1; p <= d->topo.host[i].hca[k]->nports; p++) {
				struct subnet_port *port = &d->topo.host[i].hca[k]->port[p];

				if (port->peer)
					return port;
				first = first ? first : port;
			}
	return first;
}

int manager_open(struct fabricd *d)
{
	struct subnet_port *home = d->sm_auto ? find_home(d) : NULL;
	struct manager *m;

	if (!home)
		return 0; /* ports wait in INIT, as in a machine room */
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->d = d;
	m->sm = subnet_sm_open(d->subnet, home);
	if (!m->sm || register_sa(m)) {
		subnet_sm_close(m->sm);
		free(m);
		return -ENOMEM;
	}
	d->manager = m;
	loop_timer_init(&m->back, waited_long_enough, m);
	loop_timer_init(&m->timer, expire, m);
	m->relieved = true;
	if (!trees_issms_held(d)) /* one that outlived the fabric before us goes on */
		take(m, loop_now(d->loop));
	loop_before_sleep(d->loop, before_sleep, m);
	return 0;
}

void manager_close(struct fabricd *d)
{
	struct manager *m = d->manager;

	if (!m)
		return;
	d->manager = NULL;
	loop_timer_stop(&m->back);
	loop_timer_stop(&m->timer);
	ibmad_port_fini(&m->mad);
	subnet_sm_close(m->sm);
	free(m);
}
