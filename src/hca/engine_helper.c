/* SPDX-License-Identifier: MIT */
/*
 * The helper thread: drives when nobody else does.
 *
 *            frames for us, nobody polls               a caller drove since
 *   WATCH ------------------------------> drive -----------------------------> STAND_BY
 *     ^   (asleep in ppoll on the sockets)                (asleep for a while)    |
 *     '---------------------------------------------------------------------------'
 *          nobody drove in the meantime, or work was lying there that nobody took
 *
 * In STAND_BY it is on no socket's wait queue, so that a packet for a polling program wakes nobody. A program
 * that waits for memory to change, and not for completions, makes STAND_BY find work lying there: then the
 * helper stays in WATCH longer.
 *
 * What threads tell each other, all in struct hca_engine:
 *
 *   drives     callers, by polling          the helper: somebody else is at it
 *   posts_since_rx    callers, by posting          the helper: somebody else is at it; callers: time to drive
 *   blocked    callers, asleep on sockets   the helper: no hurry; who holds something back: set the alarm
 *   waits      callers, each such sleep     the helper: whether anything happens at all
 *   dozes      the helper, for good asleep  a caller that leaves its sleep: wake it
 *   ticks      the helper, looks by itself  who holds something back: no alarm is needed
 *   holding    who drives                   everybody: acknowledges wait for company
 *   deferring  who posts, who drives        everybody: requests of a burst wait for company
 *   backlog    who drives                   everybody: QPs have more to send than a round let out
 *   released   who ends a QP                who drives: look after all who wait for a window
 *
 * The three before the last are what hca_engine_has_pending_tx(): the alarm is the timerfd, which the helper
 * hears in WATCH and a caller that sleeps on the sockets at any time.
 */
#include "hca/engine_parts.h"

#include "base/cancel.h"
#include "base/fd.h"
#include "base/guard.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/board.h"
#include "hca/device.h"
#include "link/link.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
	STAND_BY_MIN_NS = 50 * 1000,
	STAND_BY_MAX_NS = 1000 * 1000,
	STAND_BY_BLOCKED_NS = 4000 * 1000, /* a caller sleeps on the sockets itself: no hurry at all */
	DOZE_AFTER = 16,                   /* such looks without news, after which it waits to be called */
	USELESS_WAKES = 16,                /* in a row, after which WATCH gives way to STAND_BY */
	PATIENT_WAKES = 1024, /* the same when STAND_BY found work lying there, again and again */
};

static void drain_timer(struct hca_engine *e)
{
	uint64_t n;

	if (read(e->timer_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_debug("timerfd: %d", errno);
	hca_engine_alarm_rang(e);
}

static void drain_wake(struct hca_engine *e)
{
	uint64_t n;

	if (read(e->wake_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		log_debug("eventfd: %d", errno);
}

enum { LINK_FDS = 5 }; /* the link's at most 4, and one for all streams */

/* The link's descriptors as poll() takes them; returns how many. */
static nfds_t link_fds(struct hca_engine *e, struct pollfd *p)
{
	int fds[LINK_FDS], n = e->link->ops->fds(e->link, fds);

	if (e->streams)
		fds[n++] = hca_streams_fd(e);
	for (int i = 0; i < n; i++)
		p[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
	return (nfds_t)n;
}

/* Before sleeping on the link's descriptors: false: something is there that they do not tell of. */
static bool link_sleep(struct hca_engine *e)
{
	return !e->link->ops->sleep || e->link->ops->sleep(e->link);
}

static void link_woke(struct hca_engine *e)
{
	if (e->link->ops->woke)
		e->link->ops->woke(e->link);
}

bool hca_engine_unread(struct hca_engine *e)
{
	struct pollfd p[LINK_FDS];

	return poll(p, link_fds(e, p), 0) > 0;
}

static bool link_readable(struct hca_engine *e)
{
	bool nothing = e->link->ops->quiet && e->link->ops->quiet(e->link);

	/* Nobody sleeps here: what a sleeper has to do to be sure is only done where a look is not enough. */
	if (!nothing) {
		nothing = link_sleep(e);
		link_woke(e);
	}
	return !nothing || hca_engine_unread(e);
}

/* How long the helper may sleep; NULL: until something comes. */
static struct timespec *until_next_look(struct hca_engine *e, struct timespec *ts)
{
	atomic_store(&e->ticks, false);
	*ts = (struct timespec){.tv_nsec = atomic_load(&e->more_to_send) ? 0 : STAND_BY_MIN_NS};
	return hca_engine_has_pending_tx(e) || hca_engine_link_holds(e) ? ts : NULL;
}

/*
 * Asleep on everything; true when the link has something. Not by epoll, which would stay on the sockets' wait
 * queues in STAND_BY too and cost every sender a call.
 */
static bool watch_once(struct hca_engine *e)
{
	struct pollfd p[3 + LINK_FDS] = {{.fd = e->timer_fd, .events = POLLIN},
		{.fd = e->wake_fd, .events = POLLIN}, {.fd = e->netlink_fd, .events = POLLIN}};
	struct timespec ts, none = {0};
	nfds_t n = link_fds(e, p + 3);
	unsigned woken = 0;
	bool sleepy = link_sleep(e);
	int got = ppoll(p, n + 3, sleepy ? until_next_look(e, &ts) : &none, NULL);

	link_woke(e);
	if (got <= 0)
		return !sleepy;
	if (p[0].revents)
		drain_timer(e);
	if (p[1].revents)
		drain_wake(e);
	if (p[2].revents) {
		hca_devices_changed(e->adapter, e->netlink_fd);
		hca_engine_interfaces_changed(e);
	}
	for (nfds_t i = 0; i < n; i++) {
		if (p[3 + i].revents)
			woken |= p[3 + i].fd == hca_streams_fd(e) ? WOKEN_STREAMS : WOKEN_LINK;
	}
	if (woken)
		atomic_fetch_or(&e->woken, woken);
	return woken || !sleepy;
}

/* Somebody is at it right now. */
static bool is_driven(struct hca_engine *e)
{
	if (!lock_try(&e->drive))
		return true;
	lock_drop(&e->drive);
	return false;
}

/* What tells that callers are at it. */
struct signs {
	uint32_t drives, posts_since_rx;
};

static struct signs signs_of(struct hca_engine *e)
{
	return (struct signs){atomic_load(&e->drives), atomic_load(&e->posts_since_rx)};
}

/* Somebody drove, is driving, or sends and will drive before long: one of these may take longer than we wait.
 */
static bool goes_on(struct hca_engine *e, struct signs seen)
{
	struct signs now = signs_of(e);

	return now.drives != seen.drives ||
	       (now.posts_since_rx != seen.posts_since_rx && now.posts_since_rx <= HCA_POSTS_PER_RX) ||
	       is_driven(e);
}

/* Lets callers drive; true when they left work lying. */
static bool stand_by(struct hca_engine *e)
{
	uint64_t wait = STAND_BY_MIN_NS;
	uint32_t waits = atomic_load(&e->waits);
	unsigned quiet = 0; /* looks at which the same callers slept */

	atomic_store(&e->ticks, true);
	for (;;) {
		struct pollfd p[2] = {
			{.fd = e->wake_fd, .events = POLLIN}, {.fd = e->netlink_fd, .events = POLLIN}};
		struct signs seen = signs_of(e);
		struct timespec ts = {.tv_nsec = (long)wait};
		bool called, doze = quiet >= DOZE_AFTER;

		/* A caller that leaves its sleep looks whether we doze after it has said that it leaves. */
		atomic_store(&e->dozes, doze);
		called = ppoll(p, 2, doze && atomic_load(&e->blocked) ? NULL : &ts, NULL) > 0;
		atomic_store(&e->dozes, false);
		if (atomic_load(&e->stop) || called)
			return false; /* WATCH deals with it at once */
		if (atomic_load(&e->blocked)) {
			quiet = atomic_load(&e->waits) == waits ? quiet + 1 : 0;
			waits = atomic_load(&e->waits);
			wait = STAND_BY_BLOCKED_NS;
			continue;
		}
		quiet = 0;
		if (!goes_on(e, seen)) {
			if (hca_engine_has_pending_tx(e) || hca_engine_link_holds(e))
				hca_engine_drive(e);
			return link_readable(e);
		}
		wait = wait * 2 < STAND_BY_MAX_NS ? wait * 2 : STAND_BY_MAX_NS;
	}
}

/*
 * The helper runs for microseconds and then sleeps. Asking for a short slice (Linux 6.12 and later, no
 * privilege) lets it run at once even when every CPU is busy with programs that spin. Older kernels ignore
 * it.
 */
static void ask_for_short_slice(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = {.size = sizeof(attr)};

	if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) || attr.policy != SCHED_OTHER)
		return; /* as the program wants it */
	attr.runtime = 100 * 1000;
	syscall(SYS_sched_setattr, 0, &attr, 0);
}

/*
 * Drives; goes on looking for more for a moment instead of going to sleep while data streams in, or while a
 * peer READs: its next request follows the answer. Not for single writes: the program may be waiting for just
 * that one, on this CPU.
 */
static bool drive_bursts(struct hca_engine *e)
{
	enum { BURST = 8, LINGER_NS = 30 * 1000 };
	uint32_t seen = atomic_load(&e->drives);
	bool asked, drove;
	uint64_t until = 0;
	int n = hca_engine_drive_asked(e, &asked);

	drove = n >= 0;
	while (n >= 0 && atomic_load(&e->drives) == seen && !atomic_load(&e->stop)) {
		uint64_t now = hca_engine_now(e);

		if (n >= BURST || asked)
			until = now + LINGER_NS;
		if (now >= until)
			break;
		n = hca_engine_drive_asked(e, &asked);
	}
	return drove;
}

static void *helper_main(void *arg)
{
	struct hca_engine *e = arg;
	unsigned useless = 0, patience = USELESS_WAKES;

	prctl(PR_SET_NAME, "anyrdma-helper");
	prctl(PR_SET_TIMERSLACK, 1000);
	ask_for_short_slice();
	hca_board_begin(e->adapter);
	while (!atomic_load(&e->stop)) {
		uint32_t seen = atomic_load(&e->drives), written = atomic_load(&e->written);
		bool link = watch_once(e), drove;

		if (atomic_load(&e->stop))
			break;
		hca_engine_look_now(e);
		atomic_store(&e->ticks, true);
		drove = drive_bursts(e);
		if (!link)
			continue;
		if (drove && atomic_load(&e->drives) == seen && !atomic_load(&e->blocked)) {
			if (atomic_load(&e->written) != written)
				atomic_fetch_add(&e->watches, 1);
			useless = 0;
			continue;
		}
		/* Somebody else is at it. */
		if (++useless >= patience || atomic_load(&e->blocked)) {
			patience = stand_by(e) ? patience * 2 : USELESS_WAKES;
			if (patience > PATIENT_WAKES)
				patience = PATIENT_WAKES;
			useless = 0;
			hca_engine_drive(e);
			hca_engine_look_now(e);
		}
	}
	hca_board_end(e->adapter);
	return NULL;
}

int hca_engine_start_helper(struct hca_engine *e)
{
	sigset_t all, old;
	int err;

	e->timer_fd = fd_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
	e->wake_fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	e->netlink_fd = -1;
	if (e->timer_fd < 0 || e->wake_fd < 0) {
		err = -errno;
		goto close_fds;
	}
	e->netlink_fd = hca_devices_watch();
	if (e->netlink_fd < 0)
		log_warn("changes of network interfaces will not be noticed: %s", fd_reason(-e->netlink_fd));
	/* The program's signals are the program's: none may land here. */
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* ours, see base/guard.h */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	atomic_store(&e->stop, false);
	err = -pthread_create(&e->helper, NULL, helper_main, e);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err) {
		e->running = true;
		return 0;
	}
close_fds:
	hca_engine_close_helper_fds(e);
	return err;
}

void hca_engine_wake_helper(struct hca_engine *e)
{
	uint64_t one = 1;

	if (e->wake_fd >= 0 && syscall(SYS_write, e->wake_fd, &one, sizeof(one)) < 0)
		log_debug("eventfd: %d", errno);
}

void hca_engine_stop_helper(struct hca_engine *e)
{
	if (!e->running)
		return;
	atomic_store(&e->stop, true);
	hca_engine_wake_helper(e);
	pthread_join(e->helper, NULL);
	e->running = false;
	hca_engine_close_helper_fds(e);
}

void hca_engine_close_helper_fds(struct hca_engine *e)
{
	int *fds[] = {&e->timer_fd, &e->wake_fd, &e->netlink_fd};

	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(fd_take(fds[i]));
	}
}

/* ---- a caller that sleeps ---- */
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
 * Going to sleep and being woken takes longer than a peer that answers at once. After SHORT_WAITS waits in a
 * row that were short, the next one looks for a moment before it sleeps; when nothing comes in that time, it
 * was one too many, and the next SPIN_MISSED short ones sleep again.
 */
enum { SHORT_NS = 100 * 1000, SHORT_WAITS = 4, SPIN_NS = 50 * 1000, SPIN_MISSED = -16 };

static bool spin(struct hca_engine *e, struct pollfd *p, nfds_t n)
{
	uint64_t until = hca_engine_now(e) + SPIN_NS;

	if (atomic_load_explicit(&e->short_waits, memory_order_relaxed) < SHORT_WAITS)
		return false;
	do {
		if (hca_engine_drive(e) && ready(p, n))
			return true;
	} while (hca_engine_now(e) < until);
	atomic_store_explicit(&e->short_waits, SPIN_MISSED, memory_order_relaxed);
	return false;
}

static void learn_wait(struct hca_engine *e, uint64_t since)
{
	int n = atomic_load_explicit(&e->short_waits, memory_order_relaxed);

	n = hca_engine_now(e) - since > SHORT_NS ? (n < 0 ? n : 0) : n < SHORT_WAITS ? n + 1 : n;
	atomic_store_explicit(&e->short_waits, n, memory_order_relaxed);
}

static void leave_sockets(void *arg)
{
	struct hca_engine *e = arg;

	atomic_fetch_sub(&e->blocked, 1);
	if (atomic_load(&e->dozes))
		hca_engine_wake_helper(e);
}

static void leave_asleep(void *arg)
{
	struct hca_engine *e = arg;

	link_woke(e);
	leave_sockets(e);
}

/* The only place where a thread that waits may be cancelled. */
static int sleep_on(struct hca_engine *e, struct pollfd *p, nfds_t n, int ms, int cancel)
{
	bool at_once = !link_sleep(e) || atomic_load(&e->more_to_send) || atomic_load(&e->window_freed);
	int err;

	pthread_cleanup_push(leave_asleep, e);
	cancel_restore(cancel);
	err = poll(p, n, at_once ? 0 : ms) < 0 ? -errno : 0;
	cancel_off();
	guard_doubt();
	pthread_cleanup_pop(0);
	link_woke(e);
	return err;
}

/* What a caller waits for. */
struct wait {
	struct pollfd *p; /* its descriptors, and room for ours behind them */
	nfds_t n;         /* its own */
	uint64_t until;
	bool restart; /* as a read does, not as poll */
};

enum { OUR_FDS = 1 + LINK_FDS }; /* the timer's, and the link's */

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
	nfds_t n = w->n + 1 + link_fds(e, timer + 1);

	*timer = (struct pollfd){.fd = e->timer_fd, .events = POLLIN};
	for (;;) {
		int err, ms;

		if ((hca_engine_drive(e) || hca_engine_has_pending_tx(e) || hca_engine_link_holds(e)) &&
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
			drain_timer(e);
		else if (!err)
			atomic_store(&e->woken, WOKEN_LINK | WOKEN_STREAMS);
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

	return e->link ? wait_for(e, &(struct wait){.p = p, .n = 1, .until = UINT64_MAX, .restart = true})
		       : 0;
}

int hca_engine_wait_fds(struct hca_engine *e, struct pollfd *fds, unsigned n, int ms)
{
	enum { MOST = 64 };
	struct pollfd p[MOST + OUR_FDS];
	struct wait w = {.p = p, .n = n, .until = UINT64_MAX};
	int err;

	if (!e->link || n > MOST)
		return poll(fds, n, ms) < 0 ? -errno : 0;
	if (ms >= 0)
		w.until = hca_engine_now(e) + (uint64_t)ms * 1000000;
	memcpy(p, fds, n * sizeof(*fds));
	err = wait_for(e, &w);
	memcpy(fds, p, n * sizeof(*fds));
	return err;
}
