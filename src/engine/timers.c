/* SPDX-License-Identifier: MIT */
/*
 * When QPs, QP1 and providers want to be called (base/timers.h), and the alarm that wakes the helper for it.
 * Timers may be early, never late: that of a QP which moves its deadline back stays where it is and is set
 * again when its time has come.
 */
#include "engine/parts.h"

#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/qp.h"
#include "observe/probe.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

void engine_alarm_by(struct hca_engine *e, uint64_t at)
{
	struct itimerspec ts = {.it_value.tv_sec = (time_t)(at / 1000000000ull),
		.it_value.tv_nsec = (long)(at % 1000000000ull)};

	assert_locked(&e->timer_lock);
	if (e->timer_fd < 0 || at >= e->timerfd_at)
		return;
	e->timerfd_at = at;
	if (!at)
		ts.it_value.tv_nsec = 1;
	timerfd_settime(e->timer_fd, TFD_TIMER_ABSTIME, &ts, NULL);
}

/* timer_lock held. */
static uint64_t next_timer(const struct hca_engine *e)
{
	uint64_t qp = timers_next(&e->qp_timers), alarm = timers_next(&e->alarms);

	assert_locked(&e->timer_lock);
	return qp < alarm ? qp : alarm;
}

static void publish_next(struct hca_engine *e)
{
	uint64_t next = next_timer(e);

	atomic_store_explicit(&e->next_timer, next, memory_order_relaxed);
	engine_alarm_by(e, next);
}

void hca_engine_arm_now(struct hca_engine *e, struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	lock_take(&e->timer_lock);
	timer_set(&e->qp_timers, &qp->timer, qp->deadline);
	publish_next(e);
	lock_drop(&e->timer_lock);
}

void hca_engine_alarm(struct hca_engine *e, unsigned which, uint64_t at)
{
	lock_take(&e->timer_lock);
	if (at == UINT64_MAX)
		timer_clear(&e->alarms, &e->alarm[which]);
	else
		timer_set(&e->alarms, &e->alarm[which], at);
	publish_next(e);
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
	next = next_timer(e);
	engine_alarm_by(e, next > soon ? next : soon);
	lock_drop(&e->timer_lock);
}

void engine_drain_timer(struct hca_engine *e)
{
	uint64_t n;

	if (read(e->timer_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		PROBE(CALL_FAILED, .call = "read(timerfd)", .error = errno);
	hca_engine_alarm_rang(e);
}

/* Takes off the alarms that are due: a bit for each. */
static uint32_t alarms_due(struct hca_engine *e, uint64_t now)
{
	uint32_t due = 0;
	struct timer *t;

	lock_take(&e->timer_lock);
	while ((t = timers_take_due(&e->alarms, now)))
		due |= 1u << (t - e->alarm);
	lock_drop(&e->timer_lock);
	return due;
}

static void run_alarms(struct hca_engine *e, uint64_t now)
{
	uint32_t due = alarms_due(e, now), qp1 = due & ((1u << HCA_QP1_ALARMS) - 1);

	if (qp1)
		e->adapter->qp1.ops->timer(e->adapter, qp1, now);
	for_each_provider(p, e)
	{
		if (due >> HCA_QP1_ALARMS & p->bit)
			p->ops.expire(p, now);
	}
}

static struct hca_qp *qp_due(struct hca_engine *e, uint64_t now)
{
	struct timer *t;

	lock_take(&e->timer_lock);
	t = timers_take_due(&e->qp_timers, now);
	publish_next(e);
	lock_drop(&e->timer_lock);
	return t ? container_of(t, struct hca_qp, timer) : NULL;
}

void engine_run_timers(struct hca_engine *e, uint64_t now)
{
	struct hca_qp *qp;

	assert_locked(&e->drive);
	if (atomic_load_explicit(&e->next_timer, memory_order_relaxed) > now)
		return;
	guard_doubt();
	run_alarms(e, now);
	while ((qp = qp_due(e, now))) {
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
	timer_clear(&e->qp_timers, &qp->timer);
	publish_next(e);
	lock_drop(&e->timer_lock);
}
