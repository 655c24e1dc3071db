/* SPDX-License-Identifier: MIT */
/* Frames through shared memory. Who is there to take them is peers.c's business. */
#include "local/channel.h"

#include "base/fence.h"
#include "base/guard.h"
#include "base/list.h"
#include "base/log.h"
#include "base/memfile.h"
#include "local/channel_parts.h"
#include "local/handshake.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct local_channel *of(struct link *link)
{
	return container_of(link, struct local_channel, link);
}

/* ---- sending ---- */
struct put {
	struct ring_tx *tx;
	int path;
	const uint32_t *ack;
	const struct frame_out *f;
	const struct iovec *iov;
	unsigned left;
	enum ring_put how;
};

static void put_frames(void *arg)
{
	struct put *p = arg;

	do
		p->how = ring_put(p->tx, p->path, p->f, p->iov + p->f->iov_first, p->ack);
	while (p->how == RING_PUT && --p->left && p->f++);
}

/* w->lock held, it is up. 0, or -errno: then it goes over UDP. */
static int put_all(struct local_channel *c, struct local_writer *w, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov, unsigned n)
{
	struct local_reader *reverse = atomic_load_explicit(&w->reverse, memory_order_acquire);
	struct put p = {.tx = &w->tx, .path = ring_path_to(&w->tx, dest), .f = f, .iov = iov, .left = n};
	uint32_t ack;
	bool there = true;

	assert_locked(&w->lock);
	if (reverse) {
		ack = atomic_load_explicit(&reverse->rx.done, memory_order_acquire);
		p.ack = &ack;
	}
	/* A payload that is not there any more: the rest is not sent, and a timer tells. */
	if (n == 1 && f->own)
		put_frames(&p);
	else
		there = guard_run(put_frames, &p);
	if (there && p.how == RING_UNFIT)
		return -EMSGSIZE;
	if (!there || p.how == RING_FULL)
		atomic_fetch_add(&c->tx_lost, 1);
	else if (reverse)
		atomic_store_explicit(&reverse->piggybacked, ack, memory_order_relaxed);
	local_credit_wake(c, w);
	return 0;
}

static int put(struct local_channel *c, struct local_writer *w, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov, unsigned n)
{
	int err;

	lock_take(&w->lock);
	err = w->state == WRITER_UP ? put_all(c, w, dest, f, iov, n) : -ENOTCONN;
	lock_drop(&w->lock);
	return err;
}

int local_channel_put(struct local_channel *c, uint32_t slot, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);

	return w ? put(c, w, dest, f, iov, 1) : -ENOTCONN;
}

void local_channel_ack_aside(struct local_channel *c, uint32_t slot)
{
	unsigned readers = atomic_load_explicit(&c->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&c->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP && r->slot == slot)
			ring_publish_aside(&r->rx);
	}
}

static int channel_send(struct link *link, const struct frame_batch *b)
{
	struct local_channel *c = of(link);
	struct local_writer *w = atomic_load_explicit(&c->writer[b->slot], memory_order_acquire);

	if (w && w->state == WRITER_UP && !put(c, w, &b->dest, b->frame, b->iov, b->nframes))
		return 0;
	local_channel_ack_aside(c, b->slot);
	return c->wire->ops->send(c->wire, b);
}

/* ---- receiving ---- */
static bool may_come(void *arg, const struct ring_path *p)
{
	const struct local_reader *r = arg;
	struct local_channel *c = r->channel;
	struct frame_dest path;

	if (!c->trust.may_come)
		return c->ours(c->ours_arg, p->sgid) && c->ours(c->ours_arg, p->dgid);
	memcpy(&path, p, FRAME_ADDRESS);
	path.grh = p->grh;
	return c->trust.may_come(c->trust.arg, r->home, &path);
}

/*
 * Its paths are looked at again when the answer may be another one. What a process left when it ended still
 * counts as from its host, unless another process has its slot by now.
 */
static void recheck_paths(struct local_channel *c, struct local_reader *r)
{
	uint64_t now = c->trust.epoch(c->trust.arg);
	uint32_t home;

	if (now == r->epoch)
		return;
	r->epoch = now;
	ring_recheck_paths(&r->rx);
	home = c->trust.home(c->trust.arg, r->slot, r->pid);
	if (home || c->trust.is_anothers(c->trust.arg, r->slot, r->pid))
		r->home = home;
}

/* And the process that gets our frames may not be the one that they are for any more. */
static void recheck_writers(struct local_channel *c)
{
	unsigned made = atomic_load_explicit(&c->nmade, memory_order_acquire);
	uint64_t now = c->trust.epoch(c->trust.arg);

	if (now == c->epoch)
		return;
	c->epoch = now;
	for (unsigned i = 0; i < made; i++) {
		struct local_writer *w = atomic_load_explicit(&c->made[i], memory_order_acquire);

		if (w)
			local_writer_recheck(c, w);
	}
}

void local_channel_took(const struct frame_in *in, bool executed)
{
	if (in->from)
		ring_took(&((struct local_reader *)in->from)->rx, executed);
}

bool local_channel_ahead(const struct frame_in *in, uint32_t i, struct frame_ahead *out)
{
	return in->from && ring_ahead(&((struct local_reader *)in->from)->rx, i, out);
}

static int take_frames(
	struct local_channel *c, struct local_reader *r, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum {
		BURST_BYTES = 256 << 10
	}; /* of what goes by reference: the sender waits for the acknowledge */
	struct frame_in in;
	uint64_t by_ref = 0;
	int n = 0, got;

	if (c->trust.epoch)
		recheck_paths(c, r);
	if (!r->reverse && !local_reader_find_reverse(c, r))
		max = 0;
	local_credit_check(c, r);
	if (local_credit_expects_reply(r) && max)
		max = 1;
	while ((unsigned)n < max && by_ref < BURST_BYTES && (got = ring_take(&r->rx, &in, may_come, r))) {
		n++;
		/* What we sent before comes first: a reply must not overtake it. */
		if (r->rx.ack != r->acked)
			local_credit_take(c, r, arg);
		if (got < 0) {
			c->bad++;
			ring_took(&r->rx, false);
			continue;
		}
		c->rx_packets++;
		c->rx_bytes += in.len;
		in.from = r;
		in.slot = r->verified || r->home ? r->slot : 0;
		if (in.by_ref)
			by_ref += in.ref_len;
		deliver(arg, &in);
		if (r->rx.done != r->rx.next)
			ring_took(&r->rx, false);
	}
	if (n)
		local_credit_end_burst(c, r);
	return n;
}

/* Nobody deals with its socket any more, and nothing is left. */
static void reader_free(struct local_reader *r)
{
	struct local_reader *self = r;

	if (r->reverse)
		atomic_compare_exchange_strong(&r->reverse->reverse, &self, NULL);
	if (r->begun)
		memfile_vacate(r->rx.ring, sizeof(struct ring));
	atomic_store(&r->state, READER_FREE);
}

static int receive_rings(struct local_channel *c, unsigned max, link_deliver_fn *deliver, void *arg)
{
	unsigned readers = atomic_load_explicit(&c->nreaders, memory_order_acquire);
	int n = 0;

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&c->reader[i], memory_order_relaxed);
		enum local_reader_state state = atomic_load_explicit(&r->state, memory_order_acquire);
		int got = 0;

		if (state == READER_UP || (state == READER_GONE && r->begun))
			got = take_frames(c, r, max, deliver, arg);
		if (state == READER_GONE && !got)
			reader_free(r);
		n += got;
	}
	return n;
}

/* What is counted is counted over both ways. */
static void sum_up(struct local_channel *c)
{
	struct link_stats *s = &c->link.stats;

	c->unsummed = false;
	*s = c->wire->stats;
	s->rx_packets += c->rx_packets;
	s->rx_bytes += c->rx_bytes;
	s->bad_length += c->bad;
	s->tx_errors += atomic_load_explicit(&c->tx_lost, memory_order_relaxed);
}

static inline bool has_ack(struct local_channel *c)
{
	unsigned made = atomic_load_explicit(&c->nmade, memory_order_acquire);

	for (unsigned i = 0; i < made; i++) {
		struct local_writer *w = atomic_load_explicit(&c->made[i], memory_order_acquire);

		if (w && local_credit_is_acked(w))
			return true;
	}
	return false;
}

struct from_wire {
	struct local_channel *channel;
	link_deliver_fn *deliver;
	void *arg;
};

/* Acknowledges that were written before it left are taken before it: see local_channel_ack_aside(). */
static void deliver_from_wire(void *arg, const struct frame_in *in)
{
	struct from_wire *f = arg;

	if (has_ack(f->channel))
		local_credit_collect(f->channel, f->arg);
	f->deliver(f->arg, in);
}

/* A wire that tells by a look whether something is there is looked at each time. */
static bool wire_waits(struct local_channel *c)
{
	return c->wire_waits && c->wire_waits(c->wire);
}

static int channel_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg)
{
	struct local_channel *c = of(link);
	enum { WIRE_EVERY = 8, QUIET = 64, LONG_QUIET = 1024, ATTEND_EVERY = 64, SUM_EVERY = 16, MOST = 256 };
	enum { DOUBT_EVERY = 256 };
	struct from_wire f = {c, deliver, arg};
	int n, wire = 0;

	c->polls++;
	if (local_channel_has_wanted(c))
		local_peers_ask_wanted(c);
	if (!max || c->polls % ATTEND_EVERY == 0)
		local_peers_attend(c, true);
	if (c->polls % DOUBT_EVERY == 0)
		guard_doubt();
	if (c->trust.epoch)
		recheck_writers(c);
	n = receive_rings(c, max ? max : MOST, deliver, arg) + local_credit_collect(c, arg);
	/* A look at the sockets is a system call, worth several small messages. Where the wire has been quiet
	 * and there are rings to look at, it is taken now and then. */
	if (!max || c->quiet < QUIET || !atomic_load_explicit(&c->nreaders, memory_order_relaxed) ||
		c->polls % (c->quiet < LONG_QUIET ? WIRE_EVERY : 8 * WIRE_EVERY) == 0 || wire_waits(c)) {
		wire = c->wire->ops->receive(c->wire, max, deliver_from_wire, &f);
		c->quiet = wire ? 0 : c->quiet + 1;
	}
	c->unsummed |= n > 0;
	if (wire || (c->unsummed && (!n || c->polls % SUM_EVERY == 0)))
		sum_up(c);
	return n + wire;
}

/* ---- sleeping ---- */
/* A frame; or its writer is gone, and with it the bell: what it left is taken before anybody sleeps. */
static inline bool has_something(const struct local_reader *r, enum local_reader_state state)
{
	return state == READER_GONE || (state == READER_UP && ring_waiting(&r->rx));
}

static inline bool has_deferred(const struct local_reader *r, enum local_reader_state state)
{
	return state == READER_UP && local_credit_is_deferred(r);
}

/* Who polls comes here each time. */
bool local_channel_is_quiet(struct local_channel *c)
{
	unsigned readers = atomic_load_explicit(&c->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&c->reader[i], memory_order_relaxed);
		enum local_reader_state state = atomic_load_explicit(&r->state, memory_order_acquire);

		if (has_something(r, state) || has_deferred(r, state))
			return false;
	}
	return readers && !has_ack(c) && !wire_waits(c);
}

bool local_channel_has_deferred(struct local_channel *c)
{
	unsigned readers = atomic_load_explicit(&c->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&c->reader[i], memory_order_relaxed);

		if (has_deferred(r, atomic_load_explicit(&r->state, memory_order_acquire)))
			return true;
	}
	return false;
}

void local_channel_flush_deferred(struct local_channel *c)
{

	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP)
			local_credit_flush(c, r);
	}
}

/* What is deferred is no reason not to sleep: see local_channel_has_deferred(). */
static bool nothing_waits(struct local_channel *c)
{
	unsigned readers = atomic_load_explicit(&c->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&c->reader[i], memory_order_relaxed);

		if (has_something(r, atomic_load_explicit(&r->state, memory_order_acquire)))
			return false;
	}
	return !has_ack(c);
}

bool local_channel_sleep(struct local_channel *c)
{

	atomic_fetch_add(&c->bell->asleep, 1);
	/* Nobody has a ring to a process without peers: a new one connects to a socket first. */
	if (c->bell->heavy && (atomic_load(&c->nreaders) || atomic_load(&c->nmade)))
		fence_heavy();
	else
		fence_full();
	return nothing_waits(c);
}

void local_channel_at_exit(struct local_channel *c)
{
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		/* No bell: our sockets end in a moment. */
		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP)
			ring_publish_aside(&r->rx);
	}
}

void local_channel_woke(struct local_channel *c)
{
	atomic_fetch_sub(&c->bell->asleep, 1);
	atomic_fetch_add(&c->bell->wakes, 1);
}

/* ---- acting on what another process shows ---- */
const struct local_process *local_channel_enter(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);

	if (!w)
		return NULL;
	lock_take(&w->act);
	if (w->state != WRITER_UP || !w->there.export) {
		lock_drop(&w->act);
		return NULL;
	}
	/* Said before we look: whoever unexports what we look at waits for us then, or we do not find it. */
	atomic_fetch_add(&w->tx.ring->acting, 1);
	return &w->there;
}

void local_channel_leave(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = c->writer[slot];

	tsan_left(c);
	/* Nobody else writes it; a locked instruction would wait for what we wrote into others' caches. */
	atomic_store_explicit(&w->tx.ring->acting,
		atomic_load_explicit(&w->tx.ring->acting, memory_order_relaxed) + 1, memory_order_release);
	lock_drop(&w->act);
}

bool local_channel_is_up(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);

	return w && w->state == WRITER_UP;
}

bool local_channel_is_paired(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);
	struct local_reader *r = w ? atomic_load(&w->reverse) : NULL;

	return r && atomic_load(&r->state) == READER_UP;
}

/* ---- the rest is the wire's ---- */
static int channel_fds(struct link *link, int fds[4])
{
	struct local_channel *c = of(link);
	int n = c->wire->ops->fds(c->wire, fds);

	fds[n++] = c->ep_fd;
	return n;
}

static int channel_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct link *wire = of(link)->wire;

	return wire->ops->hand_over(wire, slot, in, wait);
}

static void channel_interfaces_changed(struct link *link)
{
	struct link *wire = of(link)->wire;

	if (wire->ops->interfaces_changed)
		wire->ops->interfaces_changed(wire);
}

static int channel_mcast(struct link *link, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	struct link *wire = of(link)->wire;

	return wire->ops->mcast(wire, mgid, ifindex, join);
}

static void channel_close(struct link *link)
{
	struct local_channel *c = of(link);

	local_peers_close(c);
	c->wire->ops->close(c->wire);
	free(c);
}

/* The memory is not there in a child (MADV_DONTFORK). */
static void channel_abandon(struct link *link)
{
	struct local_channel *c = of(link);

	for (unsigned i = 0; i < QPN_SLOTS; i++) {
		if (!c->writer[i])
			continue;
		if (c->writer[i]->end.fd >= 0)
			close(c->writer[i]->end.fd);
		if (c->writer[i]->process.fd >= 0)
			close(c->writer[i]->process.fd);
	}
	for (unsigned i = 0; i < c->nreaders; i++) {
		if (c->reader[i]->end.fd >= 0)
			close(c->reader[i]->end.fd);
	}
	close(c->listener.fd);
	close(c->ep_fd);
	close(c->bell_fd);
	if (c->export_fd >= 0)
		close(c->export_fd);
	if (c->spare_fd >= 0)
		close(c->spare_fd);
	c->wire->ops->abandon(c->wire);
}

static const struct link_ops channel_ops = {
	.send = channel_send,
	.receive = channel_receive,
	.fds = channel_fds,
	.hand_over = channel_hand_over,
	.mcast = channel_mcast,
	.interfaces_changed = channel_interfaces_changed,
	.close = channel_close,
	.abandon = channel_abandon,
};

struct link *local_channel_link(struct local_channel *c)
{
	return &c->link;
}

struct link *local_channel_wire(struct local_channel *c)
{
	return c->wire;
}

void local_channel_set_events(struct local_channel *c, const struct local_channel_events *events)
{
	c->events = *events;
}

void local_channel_set_trust(struct local_channel *c, const struct local_channel_trust *trust)
{
	c->trust = *trust;
}

uint64_t local_channel_identity(const struct local_channel *c)
{
	return c->bell->identity;
}

int local_channel_open(struct local_channel **out, struct link *wire, uint16_t port, uint32_t slot,
	local_channel_ours_fn *ours, void *arg, size_t size, void **export)
{
	struct local_channel *c = calloc(1, sizeof(*c));
	int err;

	if (!c)
		return -ENOMEM;
	c->wire = wire;
	c->wire_waits = wire->ops->waits;
	c->port = port;
	c->slot = slot;
	c->ours = ours;
	c->ours_arg = arg;
	c->export_size = size;
	err = local_peers_open(c);
	if (err) {
		free(c);
		return err;
	}
	*export = c->export;
	c->link.ops = &channel_ops;
	c->link.rcvbuf = wire->rcvbuf;
	*out = c;
	return 0;
}
