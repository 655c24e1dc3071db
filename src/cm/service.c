/* SPDX-License-Identifier: MIT */
/* The process's connection manager: opened on first use, closed at exit, left to the parent by fork. */
#include "cm/service.h"

#include "base/env.h"
#include "base/log.h"
#include "cm/device.h"
#include "cm/event.h"
#include "cm/ib_event.h"
#include "cm/id.h"
#include "cm/listen.h"
#include "cm/mcast_ib.h"
#include "cm/sa.h"
#include "cm/verbs.h"
#include "hca/adapter.h"
#include "observe/probe.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- devices that go ---- */
/* Each of its ids is told, once; the program then destroys them. Host lock held. */
static void on_change(struct cm_host *h)
{
	struct rcm *cm = container_of(h, struct rcm, host);

	assert_locked(&h->lock);
	list_for_each(n, &cm->ids)
	{
		struct rcm_id *id = container_of(n, struct rcm_id, node);

		if (!id->dev || id->listened_by || id->told_removal || !rcm_device_gone(id->dev))
			continue;
		id->told_removal = true;
		rcm_tell_locked(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0);
	}
	rcm_joins_follow(cm);
}

/* ---- life ---- */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct rcm *the_rcm;
static pid_t owner;

/* Whatever the parent's threads were doing with it: the child begins anew. */
static void in_child(void)
{
	pthread_mutex_init(&mutex, NULL);
	if (the_rcm)
		the_rcm->dead = true;
	the_rcm = NULL;
	env_forget();
}

static int open_host(struct rcm *cm)
{
	static const struct cm_host_user user = {.event = rcm_ib_event,
		.incoming = rcm_incoming,
		.changed = on_change,
		.answer = rcm_sa_answer};
	struct hca_adapter *a = verbs_adapter();
	int n, err = a ? 0 : -ENOMEM;
	struct ibv_device **list = err ? NULL : ibv_get_device_list(&n);

	if (!list)
		return err ? err : -errno;
	err = n ? cm_host_open(&cm->host, a, &user, be64toh(ibv_get_device_guid(list[0]))) : -ENODEV;
	ibv_free_device_list(list);
	return err;
}

static int open_rcm(struct rcm **out)
{
	struct rcm *cm = calloc(1, sizeof(*cm));
	int err;

	if (!cm)
		return -ENOMEM;
	list_init(&cm->ids);
	list_init(&cm->listeners);
	list_init(&cm->devices);
	list_init(&cm->questions);
	list_init(&cm->joins);
	lock_init(&cm->device_lock);
	pthread_cond_init(&cm->acked, NULL);
	err = open_host(cm);
	if (err)
		free(cm);
	else
		*out = cm;
	return err;
}

int rcm_get(struct rcm **cm)
{
	static bool watching_fork;
	int err = 0;

	pthread_mutex_lock(&mutex);
	if (!the_rcm) {
		env_quiet = true; /* libibverbs, which we need, reads the same */
		log_init();
		probe_init();
		err = open_rcm(&the_rcm);
		owner = getpid();
	}
	if (!watching_fork)
		watching_fork = !pthread_atfork(NULL, NULL, in_child);
	*cm = the_rcm;
	pthread_mutex_unlock(&mutex);
	return err;
}

/* Peers of connections that the program leaves open are told, once. */
__attribute__((destructor)) static void at_exit(void)
{
	struct rcm *cm = the_rcm;

	if (!cm || owner != getpid())
		return;
	cm_host_lock(&cm->host);
	list_for_each(n, &cm->ids) rcm_id_cut(container_of(n, struct rcm_id, node));
	cm_host_unlock(&cm->host);
	cm_host_close(&cm->host);
}
