/* SPDX-License-Identifier: MIT */
/* The drive: frames in, timers, frames out. The helper thread is in engine_helper.c. */
#include "hca/engine.h"

#include "base/cancel.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/gsi.h"
#include "hca/qp.h"
#include "hca/transport.h"
#include "ib/echo.h"
#include "link/link.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>

enum {
	DRIVE_FRAMES = 256,
	ROUND_BATCHES = 4, /* what one QP may send before others get their turn */
};

uint64_t hca_clock_monotonic(void *arg)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* READs bring data to our own socket, whose size we know. */
static void size_read_window(struct hca_flow *f, uint32_t rcvbuf)
{
	f->window = f->most = f->limit = f->acked = hca_flow_limit(rcvbuf);
	/* A READ request always fits: what it brings is in our own hands, but not what the path holds. */
	f->least = f->limit < FLOW_WINDOW ? f->limit / 3 * 2 : FLOW_WINDOW;
}

int hca_engine_init(
	struct hca_engine *e, struct hca_adapter *a, struct link *link, uint64_t (*clock)(void *), void *arg)
{
	e->adapter = a;
	e->link = link;
	size_read_window(a->read_flow, link->rcvbuf);
	e->clock = clock ? clock : hca_clock_monotonic;
	e->clock_arg = arg;
	lock_init(&e->timer_lock);
	lock_init(&e->defer_lock);
	list_init(&e->deferred);
	list_init(&e->touched);
	list_init(&e->held);
	e->heap = NULL;
	e->heap_len = e->heap_size = 0;
	atomic_init(&e->next_timer, UINT64_MAX);
	e->alarm_at = e->timerfd_at = UINT64_MAX;
	e->timer_fd = e->wake_fd = -1;
	e->batch = malloc(sizeof(*e->batch));
	e->answers = malloc(sizeof(*e->answers));
	if (!e->batch || !e->answers) {
		free(e->batch);
		free(e->answers);
		return -ENOMEM;
	}
	e->answers->nframes = e->answers->niov = e->nanswering = 0;
	return 0;
}

void hca_engine_fini(struct hca_engine *e)
{
	e->link->ops->close(e->link);
	e->link = NULL;
	free(e->batch);
	free(e->answers);
	free(e->heap);
	e->batch = e->answers = NULL;
	e->heap = NULL;
	lock_fini(&e->timer_lock);
	lock_fini(&e->defer_lock);
}

int hca_engine_mcast(struct hca_engine *e, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	return e->link ? e->link->ops->mcast(e->link, mgid, ifindex, join) : -ENODEV;
}

int hca_engine_send(struct hca_engine *e, const struct frame_batch *b)
{
	return e->link ? e->link->ops->send(e->link, b) : -ENETDOWN;
}

int hca_engine_hand_over(struct hca_engine *e, uint32_t slot, const struct frame_in *in, bool wait)
{
	return e->link->ops->hand_over ? e->link->ops->hand_over(e->link, slot, in, wait) : -ESRCH;
}

/* ---- timers: a binary heap of QPs; entries may be early, never late ---- */
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

/*
 * timer_lock held. The helper's alarm only ever has to come earlier; when it comes too early it is set again.
 */
static void set_alarm(struct hca_engine *e, uint64_t at)
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

static void heap_publish(struct hca_engine *e)
{
	uint64_t next = e->heap_len ? e->heap[0]->timer_key : UINT64_MAX;

	if (next > e->alarm_at)
		next = e->alarm_at;
	atomic_store_explicit(&e->next_timer, next, memory_order_relaxed);
	set_alarm(e, next);
}

void hca_engine_arm(struct hca_engine *e, struct hca_qp *qp)
{
	if (!qp->deadline || (qp->timer_pos >= 0 && qp->timer_key <= qp->deadline))
		return; /* nothing to wait for, or an entry that comes early enough */
	lock_take(&e->timer_lock);
	if (qp->timer_pos >= 0)
		heap_remove(e, qp);
	qp->timer_key = qp->deadline;
	heap_add(e, qp);
	heap_publish(e);
	lock_drop(&e->timer_lock);
}

void hca_engine_alarm(struct hca_engine *e, uint64_t at)
{
	lock_take(&e->timer_lock);
	e->alarm_at = at;
	heap_publish(e);
	lock_drop(&e->timer_lock);
}

void hca_engine_alarm_rang(struct hca_engine *e)
{
	lock_take(&e->timer_lock);
	e->timerfd_at = UINT64_MAX;
	heap_publish(e);
	lock_drop(&e->timer_lock);
}

static bool alarm_due(struct hca_engine *e, uint64_t now)
{
	bool due;

	lock_take(&e->timer_lock);
	due = e->alarm_at <= now;
	if (due)
		e->alarm_at = UINT64_MAX;
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

/* ---- out ---- */
/* Frames of the batch from `first` on are this QP's. */
static void count_frames(struct hca_engine *e, struct hca_qp *qp, const struct frame_batch *b, unsigned first)
{
	unsigned n = b->nframes - first;
	uint64_t bytes = 0;

	for (unsigned i = first; i < b->nframes; i++)
		bytes += frame_len(&b->frame[i]);
	qp->count->tx_packets += n;
	qp->count->tx_bytes += bytes;
	__atomic_fetch_add(&e->adapter->count->tx_packets, n, __ATOMIC_RELAXED);
	__atomic_fetch_add(&e->adapter->count->tx_bytes, bytes, __ATOMIC_RELAXED);
}

/* Sends requests; qp->lock is held all the while, since they must leave in order whoever sends them. */
static bool send_requests(
	struct hca_engine *e, struct hca_qp *qp, struct frame_batch *b, unsigned rounds, uint64_t now)
{
	bool more = true;

	qp->flow_closed = false; /* unless it asks and finds it so */
	while (more && rounds--) {
		b->nframes = b->niov = 0;
		more = qp->transport->request(qp, now, b);
		if (!b->nframes)
			continue;
		count_frames(e, qp, b, 0);
		e->link->ops->send(e->link, b);
	}
	return more;
}

void hca_engine_kick(struct hca_engine *e, struct hca_qp *qp)
{
	struct frame_batch b;
	int cancel;

	if (!e->link)
		return; /* a child after fork: the parent's QP */
	cancel = cancel_off();
	/* Ends by itself: the window closes, or the queue is empty. */
	send_requests(e, qp, &b, UINT32_MAX, hca_engine_now(e));
	hca_engine_arm(e, qp);
	cancel_restore(cancel);
}

static void touch(struct hca_engine *e, struct hca_qp *qp)
{
	if (list_empty(&qp->touched_node))
		list_add_tail(&e->touched, &qp->touched_node);
}

enum { OWED_NS = 50 * 1000 };

/* What is held back must leave by then: the helper looks by itself (ticks), or its alarm is set. */
static void promise(struct hca_engine *e, uint64_t until)
{
	/* It says so before it looks whether anything is owed; we the other way round. A caller that sleeps
	 * on the sockets hears the alarm too, and looks before it sleeps. */
	if (atomic_load(&e->ticks) && !atomic_load(&e->blocked))
		return;
	lock_take(&e->timer_lock);
	set_alarm(e, until);
	lock_drop(&e->timer_lock);
}

static void owe(struct hca_engine *e, _Atomic bool *owing, uint64_t until)
{
	if (!atomic_load_explicit(owing, memory_order_relaxed))
		atomic_store(owing, true);
	promise(e, until);
}

/* Only who drives says whether there is a backlog: said by anyone else, nobody would take it back. */
void hca_engine_owe_rest(struct hca_engine *e)
{
	promise(e, hca_engine_now(e) + OWED_NS);
}

/* ---- requests that wait for more to go with ---- */
/*
 * A program that posts many small requests one by one would pay a system call for each. The first few of a
 * burst leave at once; then every BURST_BATCH of them leave together, or what there is when the program polls
 * or waits, or when OWED_NS have passed.
 */
enum { BURST_ALONE = 4, BURST_BATCH = 32, BURST_GAP_NS = 3 * 1000 };

static bool in_burst(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	uint32_t drives = atomic_load_explicit(&e->drives, memory_order_relaxed);
	bool goes_on = drives == qp->burst_drives && now - qp->burst_at < BURST_GAP_NS;

	qp->burst = goes_on ? qp->burst + 1 : 0;
	qp->burst_drives = drives;
	return qp->burst >= BURST_ALONE && qp->burst % BURST_BATCH;
}

void hca_engine_post(struct hca_engine *e, struct hca_qp *qp)
{
	uint64_t now = hca_engine_now(e);

	if (!e->running || !in_burst(e, qp, now)) {
		hca_engine_kick(e, qp);
		qp->burst_at = hca_engine_now(e);
		return;
	}
	qp->burst_at = now;
	lock_take(&e->defer_lock);
	if (list_empty(&qp->deferred_node))
		list_add_tail(&e->deferred, &qp->deferred_node);
	lock_drop(&e->defer_lock);
	owe(e, &e->deferring, now + OWED_NS);
}

static void touch_deferred(struct hca_engine *e)
{
	struct list all, *n;

	lock_take(&e->defer_lock);
	list_take(&all, &e->deferred);
	atomic_store(&e->deferring, false);
	while ((n = list_pop(&all)))
		touch(e, container_of(n, struct hca_qp, deferred_node));
	lock_drop(&e->defer_lock);
}

/* ---- answers that wait for a request to ride with ---- */
/* The transport may name a time until which its acknowledge can wait. */
static bool hold(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	uint64_t until = atomic_load_explicit(&qp->answer_at, memory_order_relaxed);

	if (now >= until || !e->running)
		return false;
	if (list_empty(&qp->held_node))
		list_add_tail(&e->held, &qp->held_node);
	owe(e, &e->holding, until);
	return true;
}

/* Those whose time is over, or whose acknowledge has left. */
static void release_held(struct hca_engine *e, uint64_t now)
{
	list_for_each_safe(n, &e->held)
	{
		struct hca_qp *qp = container_of(n, struct hca_qp, held_node);

		if (now < atomic_load_explicit(&qp->answer_at, memory_order_relaxed))
			continue;
		list_del(n);
		touch(e, qp);
	}
	if (list_empty(&e->held))
		atomic_store_explicit(&e->holding, false, memory_order_relaxed);
}

/*
 * Answers of all QPs that go to one place leave together. They leave in order because only who holds the
 * drive lock sends them, so qp->lock is not held during the system call: the program, woken by what just
 * arrived, wants to post now.
 */
static void flush_answers(struct hca_engine *e)
{
	struct frame_batch *b = e->answers;

	if (b->nframes)
		e->link->ops->send(e->link, b);
	b->nframes = b->niov = 0;
	while (e->nanswering) {
		struct hca_qp *qp = e->answering[--e->nanswering];

		lock_take(&qp->lock);
		qp->transport->answered(qp);
		lock_drop(&qp->lock);
	}
}

static bool put_answers(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	struct frame_batch *b = e->answers;
	unsigned before;
	bool more;

	if (b->nframes && (frame_batch_full(b, 1) || !frame_dest_same(&b->dest, &qp->dest)))
		flush_answers(e);
	before = b->nframes;
	lock_take(&qp->lock);
	more = qp->transport->respond(qp, now, b);
	count_frames(e, qp, b, before);
	lock_drop(&qp->lock);
	if (b->nframes == before)
		return false;
	e->asked |= b->frame[before].hdr[0] != (IBT_RC | OP_ACK);
	e->answering[e->nanswering++] = qp; /* once per frame at most: there is room */
	return more;
}

/* Puts a QP's answers with the others'. Whether it has more. */
static bool collect_answers(struct hca_engine *e, struct hca_qp *qp, uint64_t now)
{
	bool more = !hold(e, qp, now);

	for (unsigned i = 0; i < ROUND_BATCHES && more; i++) {
		more = put_answers(e, qp, now);
		if (more)
			flush_answers(e);
	}
	return more;
}

/* Lets a QP ask; *flow is what it sends by. false: it found a window closed and waits. */
static bool run_requests(struct hca_engine *e, struct hca_qp *qp, uint64_t now, struct hca_flow **flow)
{
	bool more, waits;

	lock_take(&qp->lock);
	more = send_requests(e, qp, e->batch, ROUND_BATCHES, now);
	hca_engine_arm(e, qp);
	*flow = qp->flow;
	waits = qp->flow_closed;
	lock_drop(&qp->lock);
	if (more)
		touch(e, qp);
	return !waits;
}

static void run_waiters(struct hca_engine *e, struct hca_flow *f, uint64_t now)
{
	struct hca_flow *own;
	struct list *n;

	/* When one waits again the window is as good as closed. */
	while (f && (n = hca_flow_pop(f)) &&
		run_requests(e, container_of(n, struct hca_qp, flow_node), now, &own))
		;
}

/* A QP went away and gave its share of windows back: everyone may wait for that. */
static void sweep_waiters(struct hca_engine *e, uint64_t now)
{
	struct hca_adapter *a = e->adapter;

	for (unsigned i = 0; i < sizeof(a->flows) / sizeof(a->flows[0]); i++) {
		struct hca_flow *f;

		lock_take(&a->flow_lock);
		f = a->flows[i];
		lock_drop(&a->flow_lock);
		for (; f; f = f->next)
			run_waiters(e, f, now);
	}
	run_waiters(e, a->read_flow, now);
}

void hca_engine_released(struct hca_engine *e)
{
	if (!atomic_exchange(&e->released, true))
		hca_engine_wake_helper(e);
}

static void run_touched(struct hca_engine *e, uint64_t now)
{
	struct list round, *n;

	list_take(&round, &e->touched);
	list_for_each(m, &round)
	{
		struct hca_qp *qp = container_of(m, struct hca_qp, touched_node);

		qp->more_answers = collect_answers(e, qp, now);
	}
	flush_answers(e);
	while ((n = list_pop(&round))) {
		struct hca_qp *qp = container_of(n, struct hca_qp, touched_node);
		struct hca_flow *flow;

		if (qp->more_answers)
			touch(e, qp);
		run_requests(e, qp, now, &flow);
		run_waiters(e, flow, now);
	}
	run_waiters(e, e->adapter->read_flow, now);
	atomic_store(&e->backlog, !list_empty(&e->touched));
}

/* ---- in ---- */
static void give(struct hca_engine *e, struct hca_qp *qp, const struct frame_in *in, uint64_t now)
{
	lock_take(&qp->lock);
	qp->count->rx_packets++;
	qp->count->rx_bytes += in->len;
	qp->transport->receive(qp, in, now);
	lock_drop(&qp->lock);
	touch(e, qp);
}

struct mcast_give {
	struct hca_engine *e;
	const struct frame_in *in;
	uint64_t now;
};

static void mcast_give(struct hca_qp *qp, void *arg)
{
	struct mcast_give *g = arg;

	give(g->e, qp, g->in, g->now);
}

/* Only who could send to the QP is answered: a datagram's sender any, a connection's the peer. */
static bool may_ask(struct hca_adapter *a, const struct frame_in *in)
{
	const struct hca_qp *qp = idmap_get(&a->qps, bth_dqpn(in->bytes));

	return qp && (hca_qp_type(qp) == IBV_QPT_UD || !memcmp(in->sgid, qp->dest.dgid, 16));
}

static void handle_echo(struct hca_engine *e, const struct frame_in *in)
{
	struct frame_batch *b = e->batch;
	uint32_t qpn;
	uint64_t sent;

	if (!hca_devices_have(e->adapter, in->dgid))
		return;
	b->nframes = b->niov = 0;
	if (ibt_echo_reply(in, b)) {
		if (!may_ask(e->adapter, in)) {
			e->adapter->count->no_qp++;
			return;
		}
		e->adapter->count->echo_requests++;
		e->link->ops->send(e->link, b);
	} else if (ibt_echo_parse(in, &qpn, &sent)) {
		struct hca_flow *f = hca_adapter_flow_find(e->adapter, in->sgid, qpn);

		if (f)
			hca_flow_echoed(f, sent);
		run_waiters(e, f, hca_engine_now(e));
	}
}

void hca_engine_deliver(struct hca_engine *e, const struct frame_in *in, uint64_t now)
{
	struct hca_adapter *a = e->adapter;
	uint32_t qpn = bth_dqpn(in->bytes);
	struct hca_qp *qp;

	if (bth_opcode(in->bytes) == OPCODE_ECHO_REQUEST || bth_opcode(in->bytes) == OPCODE_ECHO_REPLY) {
		handle_echo(e, in);
		return;
	}
	if (qpn == QP_MULTICAST) {
		struct mcast_give g = {e, in, now};

		hca_mcast_each(a, in->dgid, mcast_give, &g);
		return;
	}
	if (qpn == QP_GSI) {
		hca_gsi_receive(a, in, now);
		return;
	}
	qp = idmap_get(&a->qps, qpn);
	if (qp)
		give(e, qp, in, now);
	else
		a->count->no_qp++;
}

struct deliver_arg {
	struct hca_engine *e;
	uint64_t now;
};

static void deliver(void *arg, const struct frame_in *in)
{
	struct deliver_arg *d = arg;

	hca_engine_deliver(d->e, in, d->now);
}

static void run_timers(struct hca_engine *e, uint64_t now)
{
	struct hca_qp *qp;

	if (atomic_load_explicit(&e->next_timer, memory_order_relaxed) > now)
		return;
	if (alarm_due(e, now))
		hca_gsi_timer(e->adapter, now);
	while ((qp = timer_due(e, now))) {
		lock_take(&qp->lock);
		if (qp->deadline && qp->deadline <= now) {
			qp->deadline = 0;
			qp->transport->timer(qp, now);
			touch(e, qp);
		}
		hca_engine_arm(e, qp);
		lock_drop(&qp->lock);
	}
}

static void publish_stats(struct hca_engine *e)
{
	struct hca_adapter_counters *c = e->adapter->count;
	const struct link_stats *s = &e->link->stats;

	c->rx_packets = s->rx_packets;
	c->rx_bytes = s->rx_bytes;
	c->bad_icrc = s->bad_icrc;
	c->bad_length = s->bad_length;
	c->tx_errors = s->tx_errors;
	c->handed_over = s->handed_over;
}

int hca_engine_drive(struct hca_engine *e)
{
	bool asked;

	return hca_engine_drive_asked(e, &asked);
}

int hca_engine_drive_asked(struct hca_engine *e, bool *asked)
{
	struct deliver_arg d = {.e = e};
	int n = 0, cancel;
	bool woken;

	*asked = false;
	if (!e->link)
		return -1;
	cancel = cancel_off();
	if (!lock_try(&e->drive)) {
		cancel_restore(cancel);
		return -1;
	}
	if (e->link) {
		d.now = hca_engine_now(e);
		woken = atomic_load_explicit(&e->woken, memory_order_relaxed) &&
			atomic_exchange(&e->woken, false);
		n = e->link->ops->receive(e->link, woken ? 0 : DRIVE_FRAMES, deliver, &d);
		run_timers(e, d.now);
		if (atomic_load_explicit(&e->holding, memory_order_relaxed))
			release_held(e, d.now);
		if (atomic_load_explicit(&e->deferring, memory_order_relaxed))
			touch_deferred(e);
		if (!list_empty(&e->touched))
			run_touched(e, d.now);
		if (atomic_load_explicit(&e->released, memory_order_relaxed) &&
			atomic_exchange(&e->released, false))
			sweep_waiters(e, d.now);
		if (n)
			publish_stats(e);
		*asked = e->asked;
		e->asked = false;
	}
	lock_drop(&e->drive);
	cancel_restore(cancel);
	return n;
}

/* Drive lock held. */
static void send_held(struct hca_engine *e)
{
	uint64_t now = hca_engine_now(e);

	if (!e->link)
		return;
	list_for_each(n, &e->held)
	{
		container_of(n, struct hca_qp, held_node)->answer_at = 1; /* long ago */
	}
	release_held(e, now);
	touch_deferred(e);
	run_touched(e, now);
}

void hca_engine_let_go(struct hca_engine *e)
{
	int cancel;

	if (!hca_engine_owes(e))
		return;
	cancel = cancel_off();
	lock_take(&e->drive);
	send_held(e);
	lock_drop(&e->drive);
	cancel_restore(cancel);
}

/* No lock is taken: exit() may have been called by whoever holds it, in a signal handler. */
void hca_engine_at_exit(struct hca_engine *e)
{
	enum { TRIES = 40, WAIT_NS = 50 * 1000 };
	struct timespec ts = {.tv_nsec = WAIT_NS};

	for (int i = 0; i < TRIES && e->running && hca_engine_owes(e); i++) {
		hca_engine_wake_helper(e);
		nanosleep(&ts, NULL);
	}
}

void hca_engine_quiesce(struct hca_engine *e)
{
	lock_take(&e->drive);
	lock_drop(&e->drive);
}

void hca_engine_forget(struct hca_engine *e, struct hca_qp *qp)
{
	lock_take(&e->drive);
	list_del(&qp->touched_node);
	list_del(&qp->held_node);
	lock_take(&e->defer_lock);
	list_del(&qp->deferred_node);
	lock_drop(&e->defer_lock);
	lock_take(&e->timer_lock);
	if (qp->timer_pos >= 0)
		heap_remove(e, qp);
	heap_publish(e);
	lock_drop(&e->timer_lock);
	lock_drop(&e->drive);
}
