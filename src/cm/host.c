/* SPDX-License-Identifier: MIT */
#include "cm/host.h"

#include "base/cancel.h"
#include "base/list.h"
#include "base/random.h"
#include "hca/adapter.h"
#include "mad/gsi.h"
#include "wire/sa.h"

#include <errno.h>
#include <string.h>

/* ---- via: three numbers in the place of a pointer, so that nobody has to own it ---- */
_Static_assert(sizeof(void *) == 8, "a path's via holds 48 bits");

void *cm_via_pack(struct cm_via v)
{
	return (void *)((uintptr_t)v.sl << 40 | (uintptr_t)v.tclass << 32 | v.ifindex);
}

struct cm_via cm_via_of(const struct cm_path *path)
{
	uintptr_t v = (uintptr_t)path->via;

	return (struct cm_via){
		.ifindex = (uint32_t)v, .tclass = (uint8_t)(v >> 32), .sl = (uint8_t)(v >> 40)};
}

/* ---- what the core calls ---- */
static void send_mad(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN])
{
	struct cm_host *h = arg;
	struct cm_via via = cm_via_of(path);
	struct frame_dest to = {.ifindex = via.ifindex,
		.tclass = via.tclass,
		.hop_limit = 64,
		.sl = via.sl,
		.slid = gid_lid(path->local),
		.dlid = gid_lid(path->remote)};

	memcpy(to.sgid, path->local, 16);
	memcpy(to.dgid, path->remote, 16);
	mad_send(h->adapter, &to, mad); /* what does not leave is lost: the core sends again */
}

static uint32_t draw(void *arg)
{
	return random_u32();
}

/* ---- what the adapter calls, under its drive lock ---- */
static void receive(void *arg, const uint8_t mad[MAD_LEN], const struct mad_from *from, uint64_t now)
{
	struct cm_host *h = arg;
	struct cm_path path = {.via = cm_via_pack((struct cm_via){
				       .ifindex = from->ifindex, .tclass = from->tclass, .sl = from->sl})};

	if (!atomic_load(&h->open))
		return;
	memcpy(path.local, from->dgid, 16);
	memcpy(path.remote, from->sgid, 16);
	cm_host_lock(h);
	cm_receive(&h->core, &path, mad, MAD_LEN, now);
	cm_host_unlock(h);
}

static void expire(struct cm_host *h, uint64_t now)
{
	struct timer *t;

	cm_expire(&h->core, now);
	while ((t = timers_take_due(&h->timers, now))) {
		struct cm_host_timer *due = container_of(t, struct cm_host_timer, t);

		due->due(due, now);
	}
}

static void timer(void *arg, uint64_t now)
{
	struct cm_host *h = arg;

	if (!atomic_load(&h->open))
		return;
	cm_host_lock(h);
	h->armed = UINT64_MAX; /* that alarm is used up */
	expire(h, now);
	cm_host_unlock(h);
}

static void changed(void *arg)
{
	struct cm_host *h = arg;

	if (!atomic_load(&h->open))
		return;
	cm_host_lock(h);
	h->changed(h);
	cm_host_unlock(h);
}

static const struct mad_class cm_class = {
	.mgmt_class = MAD_CLASS_CM, .class_version = CM_CLASS_VERSION, .methods = {1ull << MAD_METHOD_SEND}};
static const struct mad_agent_ops agent_ops = {.receive = receive, .timer = timer, .changed = changed};

/* ---- the subnet's administration ---- */
static void receive_answer(void *arg, const uint8_t mad[MAD_LEN], const struct mad_from *from, uint64_t now)
{
	struct cm_host *h = arg;

	if (!atomic_load(&h->open))
		return;
	cm_host_lock(h);
	h->answer(h, mad);
	cm_host_unlock(h);
}

static const struct mad_class sa_class = {
	.mgmt_class = MAD_CLASS_SA, .class_version = SA_CLASS_VERSION}; /* nobody asks us */
static const struct mad_agent_ops sa_ops = {.receive = receive_answer, .answers = true};

/*
 * Servers stop listening between two clients for a moment (perftest -R does between two connections), and the
 * way through a kernel is longer than ours: 0.3 s in all.
 */
enum { NO_LISTENER_RETRIES = 5 };

/* ---- life ---- */
int cm_host_open(struct cm_host *h, struct hca_adapter *a, const struct cm_host_user *user, uint64_t ca_guid)
{
	memset(h, 0, sizeof(*h));
	h->adapter = a;
	h->armed = UINT64_MAX;
	h->ops = (struct cm_ops){
		.send = send_mad, .event = user->event, .incoming = user->incoming, .random = draw};
	h->changed = user->changed;
	h->answer = user->answer;
	lock_init_unbiased(&h->lock);
	h->agent = mad_register(a, &cm_class, &agent_ops, h);
	if (h->agent < 0)
		return h->agent;
	h->sa = a->on_fabric ? mad_register(a, &sa_class, &sa_ops, h) : 0;
	if (h->sa < 0) {
		mad_unregister(a, h->agent);
		return h->sa;
	}
	/* Only now has the process its slot. */
	cm_core_init(&h->core, &h->ops, h, a->slot, ca_guid, h->bucket, CM_HOST_BUCKETS);
	h->core.no_listener_retries = NO_LISTENER_RETRIES;
	atomic_store(&h->open, true);
	return 0;
}

void cm_host_close(struct cm_host *h)
{
	atomic_store(&h->open, false);
	if (h->adapter->on_fabric)
		mad_unregister(h->adapter, h->sa);
	mad_unregister(h->adapter, h->agent);
}

void cm_host_lock(struct cm_host *h)
{
	int cancel = cancel_off();

	lock_take(&h->lock);
	h->cancel = cancel;
}

static uint64_t deadline(const struct cm_host *h)
{
	uint64_t own = timers_next(&h->timers), core = cm_deadline(&h->core);

	return own < core ? own : core;
}

void cm_host_unlock(struct cm_host *h)
{
	uint64_t at = deadline(h);
	int cancel = h->cancel;

	assert_locked(&h->lock);
	if (at != h->armed && atomic_load(&h->open)) {
		h->armed = at;
		mad_arm(h->adapter, h->agent, at);
	}
	lock_drop(&h->lock);
	cancel_restore(cancel);
}

void cm_host_wait(struct cm_host *h, pthread_cond_t *cond)
{
	int cancel = h->cancel;

	lock_wait(&h->lock, cond);
	h->cancel = cancel;
}

void cm_host_timer_set(struct cm_host *h, struct cm_host_timer *t, uint64_t at)
{
	assert_locked(&h->lock);
	timer_set(&h->timers, &t->t, at);
}

void cm_host_timer_clear(struct cm_host *h, struct cm_host_timer *t)
{
	assert_locked(&h->lock);
	timer_clear(&h->timers, &t->t);
}

uint64_t cm_host_now(const struct cm_host *h)
{
	return hca_engine_now(&h->adapter->engine);
}
