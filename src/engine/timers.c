/* SPDX-License-Identifier: MIT */
/*
 * Timers: a binary heap of QPs by the time they want to be called, and the alarms of QP1. Entries may be
 * early, never late: a QP that moves its deadline back stays where it is and is put in again when its time
 * has come.
 */
#include "engine/parts.h"

#include "base/guard.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/qp.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

static void heap_put(struct hca_engine *e, unsigned i, struct hca_qp *qp)
{
	e->heap[i] = qp;
	qp->timer_pos = (int)i;
}

static void heap_up(struct hca_engine *e, unsigned i)
{
	struct hca_qp *qp = e->heap[i];

	for (; i && e->heap[(i - 1) / 2]->timer_key > qp->timer_key; i = (i - 1) / 2)
		heap_put(e, i, e->heap[(i - 1) / 2]);
	heap_put(e, i, qp);
}

static void heap_down(struct hca_engine *e, unsigned i)
{
	struct hca_qp *qp = e->heap[i];

	for (;;) {
		unsigned c = 2 * i + 1;

		if (c >= e->heap_len)
			break;
		if (c + 1 < e->heap_len && e->heap[c + 1]->timer_key < e->heap[c]->timer_key)
			c++;
		if (e->heap[c]->timer_key >= qp->timer_key)
			break;
		heap_put(e, i, e->heap[c]);
		i = c;
	}
	heap_put(e, i, qp);
}

static void heap_remove(struct hca_engine *e, struct hca_qp *qp)
{
	unsigned i = (unsigned)qp->timer_pos;
	struct hca_qp *last = e->heap[--e->heap_len];

	qp->timer_pos = -1;
	if (last == qp)
		return;
	heap_put(e, i, last);
	heap_up(e, i);
	heap_down(e, (unsigned)last->timer_pos);
}

static bool heap_add(struct hca_engine *e, struct hca_qp *qp)
{
	if (e->heap_len == e->heap_size) {
		unsigned size = e->heap_size ? e->heap_size * 2 : 64;
		struct hca_qp **h = realloc(e->heap, size * sizeof(*h));

		if (!h)
			return false;
		e->heap = h;
		e->heap_size = size;
	}
	heap_put(e, e->heap_len, qp);
	heap_up(e, e->heap_len++);
	return true;
}

void engine_alarm_by(struct hca_engine *e, uint64_t at)
{
	struct itimerspec ts = {.it_value.tv_sec = (time_t)(at / 1000000000ull),
		.it_value.tv_nsec = (long)(at % 1000000000ull)};

	if (e->timer_fd < 0 || at >= e->timerfd_at)
		return;
	e->timerfd_at = at;
	if (!at)
		ts.it_value.tv_nsec = 1;
	timerfd_settime(e->timer_fd, TFD_TIMER_ABSTIME, &ts, NULL);
}

/* timer_lock held. */
static uint64_t heap_next(const struct hca_engine *e)
{
	uint64_t next = e->heap_len ? e->heap[0]->timer_key : UINT64_MAX;

	assert_locked(&e->timer_lock);
	return e->next_alarm < next ? e->next_alarm : next;
}

static void set_alarm(struct hca_engine *e, unsigned which, uint64_t at)
{
	assert_locked(&e->timer_lock);
	e->alarm_at[which] = at;
	e->next_alarm = UINT64_MAX;
	for (int i = 0; i < HCA_ALARMS; i++)
		e->next_alarm = e->alarm_at[i] < e->next_alarm ? e->alarm_at[i] : e->next_alarm;
}

static void heap_publish(struct hca_engine *e)
{
	uint64_t next = heap_next(e);

	atomic_store_explicit(&e->next_timer, next, memory_order_relaxed);
	engine_alarm_by(e, next);
}

void hca_engine_arm_now(struct hca_engine *e, struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	lock_take(&e->timer_lock);
	if (qp->timer_pos >= 0)
		heap_remove(e, qp);
	qp->timer_key = qp->deadline;
	heap_add(e, qp);
	heap_publish(e);
	lock_drop(&e->timer_lock);
}

void hca_engine_alarm(struct hca_engine *e, unsigned which, uint64_t at)
{
	lock_take(&e->timer_lock);
	set_alarm(e, which, at);
	heap_publish(e);
	lock_drop(&e->timer_lock);
}

/*
 * What it rang for is still there: who drives takes it off. That may be another thread, which is busy; so it
 * rings again, but not at once.
 */
void hca_engine_alarm_rang(struct hca_engine *e)
{
	enum { AGAIN_NS = 200 * 1000 };
	uint64_t soon = hca_engine_now(e) + AGAIN_NS, next;

	lock_take(&e->timer_lock);
	e->timerfd_at = UINT64_MAX;
	next = heap_next(e);
	engine_alarm_by(e, next > soon ? next : soon);
	lock_drop(&e->timer_lock);
}

void engine_drain_timer(struct hca_engine *e)
{
	uint64_t n;

	if (read(e->timer_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_debug("timerfd: %d", errno);
	hca_engine_alarm_rang(e);
}

/* Takes off the alarms that are due: a bit for each. */
static uint32_t alarms_due(struct hca_engine *e, uint64_t now)
{
	uint32_t due = 0;

	lock_take(&e->timer_lock);
	for (unsigned i = 0; i < HCA_ALARMS && e->next_alarm <= now; i++) {
		if (e->alarm_at[i] > now)
			continue;
		due |= 1u << i;
		set_alarm(e, i, UINT64_MAX);
	}
	lock_drop(&e->timer_lock);
	return due;
}

static struct hca_qp *timer_due(struct hca_engine *e, uint64_t now)
{
	struct hca_qp *qp = NULL;

	lock_take(&e->timer_lock);
	if (e->heap_len && e->heap[0]->timer_key <= now) {
		qp = e->heap[0];
		heap_remove(e, qp);
	}
	heap_publish(e);
	lock_drop(&e->timer_lock);
	return qp;
}

void engine_run_timers(struct hca_engine *e, uint64_t now)
{
	struct hca_qp *qp;
	uint32_t alarms;

	assert_locked(&e->drive);
	if (atomic_load_explicit(&e->next_timer, memory_order_relaxed) > now)
		return;
	guard_doubt();
	alarms = alarms_due(e, now);
	if (alarms)
		e->adapter->qp1.ops->timer(e->adapter, alarms, now);
	while ((qp = timer_due(e, now))) {
		lock_take(&qp->lock);
		if (qp->deadline && qp->deadline <= now) {
			qp->deadline = 0;
			qp->provider->ops.timer(qp, now);
			hca_engine_make_runnable(e, qp);
		}
		hca_engine_arm(e, qp);
		lock_drop(&qp->lock);
	}
}

void engine_disarm(struct hca_engine *e, struct hca_qp *qp)
{
	lock_take(&e->timer_lock);
	if (qp->timer_pos >= 0)
		heap_remove(e, qp);
	heap_publish(e);
	lock_drop(&e->timer_lock);
}
