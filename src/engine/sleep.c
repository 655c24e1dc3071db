/* SPDX-License-Identifier: MIT */
/* Callers that wait: they sleep on the sockets themselves, and drive. */
#include "engine/parts.h"

#include "base/cancel.h"
#include "base/guard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/*
 * A blocking read() goes on after a signal whose handler was installed with SA_RESTART; poll() never does.
 * Which signal it was cannot be known: go on when every handler of the program is of that kind.
 */
static bool signals_restart(void)
{
	for (int sig = 1; sig <= SIGRTMAX; sig++) {
		struct sigaction sa;

		if (sig == SIGSEGV || sig == SIGBUS || sigaction(sig, NULL, &sa))
			continue;
		if (sa.sa_handler != SIG_DFL && sa.sa_handler != SIG_IGN && !(sa.sa_flags & SA_RESTART))
			return false;
	}
	return true;
}

static bool ready(struct pollfd *p, nfds_t n)
{
	return poll(p, n, 0) > 0;
}

/*
 * Going to sleep and being woken takes longer than a peer that answers at once. After some waits in a row
 * that were short (base/streak.h), the next one looks for a moment before it sleeps; when nothing comes in
 * that time, the next ones sleep again.
 */
enum { SHORT_NS = 100 * 1000, SPIN_NS = 50 * 1000 };

static bool spin(struct hca_engine *e, struct pollfd *p, nfds_t n)
{
	uint64_t until = hca_engine_now(e) + SPIN_NS;

	if (!streak_bets(&e->short_waits))
		return false;
	do {
		if (hca_engine_drive(e) && ready(p, n))
			return true;
	} while (hca_engine_now(e) < until);
	streak_lose(&e->short_waits);
	return false;
}

static void learn_wait(struct hca_engine *e, uint64_t since)
{
	if (hca_engine_now(e) - since > SHORT_NS)
		streak_break(&e->short_waits);
	else
		streak_hit(&e->short_waits);
}

static void leave_sockets(void *arg)
{
	struct hca_engine *e = arg;

	atomic_fetch_sub(&e->blocked, 1);
	if (atomic_load(&e->helper_dozes))
		hca_engine_wake_helper(e);
}

static void leave_asleep(void *arg)
{
	struct hca_engine *e = arg;

	engine_woke(e);
	leave_sockets(e);
}

/* The only place where a thread that waits may be cancelled. */
static int sleep_on(struct hca_engine *e, struct pollfd *p, nfds_t n, int ms, int cancel)
{
	/*
	 * What others put off before they could see that we sleep is looked for now: they set no alarm for
	 * it.
	 */
	bool at_once = !engine_sleep(e) || atomic_load(&e->more_to_send) || atomic_load(&e->window_freed) ||
		       hca_engine_has_deferred(e);
	int err;

	pthread_cleanup_push(leave_asleep, e);
	cancel_restore(cancel);
	err = poll(p, n, at_once ? 0 : ms) < 0 ? -errno : 0;
	cancel_off();
	guard_doubt();
	pthread_cleanup_pop(0);
	engine_woke(e);
	return err;
}

/* What a caller waits for. */
struct wait {
	struct pollfd *p; /* its descriptors, and room for ours behind them */
	nfds_t n;         /* its own */
	uint64_t until;
	bool restart; /* as a read does, not as poll */
};

enum { OUR_FDS = 1 + ENGINE_FDS }; /* the timer's, and the providers' */

static int ms_left(struct hca_engine *e, uint64_t until)
{
	uint64_t now = hca_engine_now(e);

	return until == UINT64_MAX ? -1 : now < until ? (int)((until - now + 999999) / 1000000) : 0;
}

static bool woken_for(const struct wait *w)
{
	for (nfds_t i = 0; i < w->n; i++) {
		if (w->p[i].revents)
			return true;
	}
	return false;
}

/* Drives and sleeps until one of the caller's descriptors is ready, or its time is over. */
static int wait_asleep(struct hca_engine *e, const struct wait *w, int cancel)
{
	struct pollfd *timer = w->p + w->n;
	uint8_t bit[ENGINE_FDS];
	nfds_t n = w->n + 1 + engine_fds(e, timer + 1, bit);

	*timer = (struct pollfd){.fd = e->timer_fd, .events = POLLIN};
	for (;;) {
		int err, ms;

		if ((hca_engine_drive(e) || hca_engine_has_pending_tx(e) || hca_engine_has_deferred(e)) &&
			ready(w->p, w->n))
			return 0; /* the program may have something to say before we let go */
		hca_engine_flush_pending_tx(e);
		ms = ms_left(e, w->until);
		err = sleep_on(e, w->p, n, ms, cancel);
		if (err && !(w->restart && signals_restart()))
			return err;
		if (!err && (woken_for(w) || !ms))
			return 0;
		if (!err && timer->revents)
			engine_drain_timer(e);
		else if (!err)
			atomic_store(&e->woken, UINT32_MAX);
	}
}

static int wait_for(struct hca_engine *e, const struct wait *w)
{
	uint64_t since = hca_engine_now(e);
	int err = 0, cancel = cancel_off();

	guard_doubt();
	if (!ready(w->p, w->n) && !spin(e, w->p, w->n)) {
		atomic_fetch_add(&e->waits, 1);
		atomic_fetch_add(&e->blocked, 1);
		err = wait_asleep(e, w, cancel);
		leave_sockets(e);
	}
	learn_wait(e, since);
	cancel_restore(cancel);
	return err;
}

int hca_engine_wait_fd(struct hca_engine *e, int fd)
{
	struct pollfd p[1 + OUR_FDS] = {{.fd = fd, .events = POLLIN}};

	return e->open ? wait_for(e, &(struct wait){.p = p, .n = 1, .until = UINT64_MAX, .restart = true})
		       : 0;
}

int hca_engine_wait_fds(struct hca_engine *e, struct pollfd *fds, unsigned n, int ms)
{
	enum { MOST = 64 };
	struct pollfd p[MOST + OUR_FDS];
	struct wait w = {.p = p, .n = n, .until = UINT64_MAX};
	int err;

	if (!e->open || n > MOST)
		return poll(fds, n, ms) < 0 ? -errno : 0;
	if (ms >= 0)
		w.until = hca_engine_now(e) + (uint64_t)ms * 1000000;
	memcpy(p, fds, n * sizeof(*fds));
	err = wait_for(e, &w);
	memcpy(fds, p, n * sizeof(*fds));
	return err;
}
