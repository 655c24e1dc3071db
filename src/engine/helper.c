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
 *   drives            callers, by polling          the helper: somebody else is at it
 *   posts_since_rx    callers, by posting          the same; callers: time to drive
 *   blocked           callers, asleep on sockets   the helper: no hurry; who holds back: set the alarm
 *   waits             callers, each such sleep     the helper: whether anything happens at all
 *   dozes             the helper, for good asleep  a caller that leaves its sleep: wake it
 *   ticks             the helper, looks by itself  who holds something back: no alarm is needed
 *   any_delayed_acks  who drives                   everybody: acknowledges wait for company
 *   any_coalescing    who posts, who drives        everybody: requests of a burst wait for company
 *   more_to_send      who drives                   everybody: QPs have more to send than a round let out
 *   window_freed      who ends a QP                who drives: look after all who wait for a window
 *
 * The three before the last are what hca_engine_has_pending_tx(): the alarm is the timerfd, which the helper
 * hears in WATCH and a caller that sleeps on the sockets at any time.
 */
#include "engine/parts.h"

#include "base/fd.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/slice.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/netdev.h"
#include "observe/probe.h"

#include <errno.h>
#include <poll.h>
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

static void drain_wake(struct hca_engine *e)
{
	uint64_t n;

	if (read(e->wake_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
		PROBE(CALL_FAILED, .call = "read(eventfd)", .error = errno);
}

bool hca_engine_unread(struct hca_engine *e)
{
	struct pollfd p[ENGINE_FDS];
	uint8_t bit[ENGINE_FDS];

	return poll(p, engine_fds(e, p, bit), 0) > 0;
}

/* Whether something has come that nobody has taken. */
static bool has_unread(struct hca_engine *e)
{
	bool nothing = engine_is_quiet(e);

	/* Nobody sleeps here: what a sleeper has to do to be sure is only done where a look is not enough. */
	if (!nothing) {
		nothing = engine_sleep(e);
		engine_woke(e);
	}
	return !nothing || hca_engine_unread(e);
}

/* How long the helper may sleep; NULL: until something comes. */
static struct timespec *until_next_look(struct hca_engine *e, struct timespec *ts)
{
	atomic_store(&e->helper_ticks, false);
	*ts = (struct timespec){.tv_nsec = atomic_load(&e->more_to_send) ? 0 : STAND_BY_MIN_NS};
	return hca_engine_has_pending_tx(e) || hca_engine_has_deferred(e) ? ts : NULL;
}

static void interfaces_changed(struct hca_engine *e)
{
	hca_devices_changed(e->adapter, e->netlink_fd);
	for_each_provider(p, e)
	{
		p->ops.interfaces_changed(p);
	}
}

/*
 * Asleep on everything; true when a provider has something. Not by epoll, which would stay on the sockets'
 * wait queues in STAND_BY too and cost every sender a call.
 */
static bool watch_once(struct hca_engine *e)
{
	enum { OWN = 3 };
	struct pollfd p[OWN + ENGINE_FDS] = {{.fd = e->timer_fd, .events = POLLIN},
		{.fd = e->wake_fd, .events = POLLIN}, {.fd = e->netlink_fd, .events = POLLIN}};
	uint8_t bit[ENGINE_FDS];
	struct timespec ts, none = {0};
	nfds_t n = engine_fds(e, p + OWN, bit);
	unsigned woken = 0;
	bool sleepy = engine_sleep(e);
	int got = ppoll(p, OWN + n, sleepy ? until_next_look(e, &ts) : &none, NULL);

	engine_woke(e);
	if (got <= 0)
		return !sleepy;
	if (p[0].revents)
		engine_drain_timer(e);
	if (p[1].revents)
		drain_wake(e);
	if (p[2].revents)
		interfaces_changed(e);
	for (nfds_t i = 0; i < n; i++)
		woken |= p[OWN + i].revents ? bit[i] : 0;
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

/*
 * Something that callers who sleep on the sockets are not woken for: it was left, or put off, by somebody who
 * drove while they lay down, or by us just now.
 */
static bool is_left(struct hca_engine *e)
{
	bool nothing;

	if (hca_engine_has_pending_tx(e) || hca_engine_has_deferred(e))
		return true;
	nothing = engine_sleep(e);
	engine_woke(e);
	return !nothing;
}

/* Lets callers drive; true when they left work lying. */
static bool stand_by(struct hca_engine *e)
{
	uint64_t wait = STAND_BY_MIN_NS;
	uint32_t waits = atomic_load(&e->waits);
	unsigned quiet = 0; /* looks at which the same callers slept */

	atomic_store(&e->helper_ticks, true);
	for (;;) {
		struct pollfd p[2] = {
			{.fd = e->wake_fd, .events = POLLIN}, {.fd = e->netlink_fd, .events = POLLIN}};
		struct signs seen = signs_of(e);
		struct timespec ts = {.tv_nsec = (long)wait};
		bool called, doze = quiet >= DOZE_AFTER;

		/*
		 * A caller that leaves its sleep looks whether we doze after it has said that it leaves, and
		 * after it has left anything for others.
		 */
		atomic_store(&e->helper_dozes, doze);
		doze = doze && atomic_load(&e->blocked) && !is_left(e);
		called = ppoll(p, 2, doze ? NULL : &ts, NULL) > 0;
		atomic_store(&e->helper_dozes, false);
		if (atomic_load(&e->stop) || called)
			return false; /* WATCH deals with it at once */
		if (atomic_load(&e->blocked)) {
			if (is_left(e))
				hca_engine_drive(e);
			quiet = atomic_load(&e->waits) == waits ? quiet + 1 : 0;
			waits = atomic_load(&e->waits);
			wait = STAND_BY_BLOCKED_NS;
			continue;
		}
		quiet = 0;
		if (!goes_on(e, seen)) {
			if (hca_engine_has_pending_tx(e) || hca_engine_has_deferred(e))
				hca_engine_drive(e);
			return has_unread(e);
		}
		wait = wait * 2 < STAND_BY_MAX_NS ? wait * 2 : STAND_BY_MAX_NS;
	}
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
	bool served_reads, drove;
	uint64_t until = 0;
	int n = hca_engine_drive_serving(e, &served_reads);

	drove = n >= 0;
	while (n >= 0 && atomic_load(&e->drives) == seen && !atomic_load(&e->stop)) {
		uint64_t now = hca_engine_now(e);

		if (n >= BURST || served_reads)
			until = now + LINGER_NS;
		if (now >= until)
			break;
		n = hca_engine_drive_serving(e, &served_reads);
	}
	return drove;
}

/* ---- what other processes ask us to look at ---- */
enum hca_look { LOOK_ASKED = 1, LOOK_OWN = 2 };

void hca_engine_look(struct hca_engine *e, bool asked)
{
	atomic_fetch_or(&e->look, asked ? LOOK_ASKED : LOOK_OWN);
	hca_engine_wake_helper(e);
}

static void look_now(struct hca_engine *e)
{
	unsigned look =
		atomic_load_explicit(&e->look, memory_order_relaxed) ? atomic_exchange(&e->look, 0) : 0;

	if (look)
		hca_adapter_look(e->adapter, !(look & LOOK_OWN));
}

static void *helper_main(void *arg)
{
	struct hca_engine *e = arg;
	unsigned useless = 0, patience = USELESS_WAKES;

	prctl(PR_SET_NAME, "anyrdma-helper");
	prctl(PR_SET_TIMERSLACK, 1000);
	slice_ask_short();
	hca_export_begin(e->adapter);
	while (!atomic_load(&e->stop)) {
		uint32_t seen = atomic_load(&e->drives), written = atomic_load(&e->stream_writes);
		bool came = watch_once(e), drove;

		if (atomic_load(&e->stop))
			break;
		look_now(e);
		atomic_store(&e->helper_ticks, true);
		drove = drive_bursts(e);
		if (!came)
			continue;
		if (drove && atomic_load(&e->drives) == seen && !atomic_load(&e->blocked)) {
			if (atomic_load(&e->stream_writes) != written)
				atomic_fetch_add(&e->helper_writes, 1);
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
			look_now(e);
		}
	}
	hca_export_end(e->adapter);
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
	e->netlink_fd = hca_devices_watch(e->adapter);
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
		PROBE(CALL_FAILED, .call = "write(eventfd)", .error = errno);
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
