/* SPDX-License-Identifier: MIT */
/* Frames by memory. Who is there to take them is peers.c's business. */
#include "local/channel.h"

#include "base/fence.h"
#include "base/guard.h"
#include "base/log.h"
#include "local/channel_parts.h"
#include "local/handshake.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- sending ---- */
struct put {
	struct ring_tx *tx;
	int path;
	const uint32_t *told;
	const struct frame_out *f;
	const struct iovec *iov;
	unsigned left;
	enum ring_put how;
};

static void put_frames(void *arg)
{
	struct put *p = arg;

	do
		p->how = ring_put(p->tx, p->path, p->f, p->iov + p->f->iov_first, p->told);
	while (p->how == RING_PUT && --p->left && p->f++);
}

/* w->lock held, it is up. 0, or -errno: then it goes by the wire. */
static int put_all(struct local_channel *l, struct local_writer *w, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov, unsigned n)
{
	struct local_reader *reverse = atomic_load_explicit(&w->reverse, memory_order_acquire);
	struct put p = {.tx = &w->tx, .path = ring_path_to(&w->tx, dest), .f = f, .iov = iov, .left = n};
	uint32_t told;
	bool there = true;

	assert_locked(&w->lock);
	if (reverse) {
		told = atomic_load_explicit(&reverse->rx.done, memory_order_acquire);
		p.told = &told;
	}
	/* A payload that is not there any more: the rest is not sent, and a timer tells. */
	if (n == 1 && f->own)
		put_frames(&p);
	else
		there = guard_run(put_frames, &p);
	if (there && p.how == RING_UNFIT)
		return -EMSGSIZE;
	if (!there || p.how == RING_FULL)
		atomic_fetch_add(&l->tx_lost, 1);
	else if (reverse)
		atomic_store_explicit(&reverse->piggybacked, told, memory_order_relaxed);
	local_channel_wake(l, w);
	return 0;
}

static int put(struct local_channel *l, struct local_writer *w, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov, unsigned n)
{
	int err;

	lock_take(&w->lock);
	err = w->state == WRITER_UP ? put_all(l, w, dest, f, iov, n) : -ENOTCONN;
	lock_drop(&w->lock);
	return err;
}

static int channel_put(struct link *link, uint32_t slot, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov)
{
	struct local_channel *l = (struct local_channel *)link;
	struct local_writer *w = atomic_load_explicit(&l->writer[slot], memory_order_acquire);

	return w ? put(l, w, dest, f, iov, 1) : -ENOTCONN;
}

/* The process that all frames of a batch are for; 0: there is no one such. */
static uint32_t slot_of(const struct frame_batch *b)
{
	uint32_t slot = qpn_slot(bth_dqpn(b->frame[0].hdr));

	for (unsigned i = 1; i < b->nframes; i++) {
		if (qpn_slot(bth_dqpn(b->frame[i].hdr)) != slot)
			return 0;
	}
	return slot;
}

/*
 * What goes by the wire carries no word of how far we are with what comes by memory, and may be the answer to
 * that: said before, so that the other one can know that it was heard before it has the answer.
 */
static void tell_aside(struct local_channel *l, uint32_t slot)
{
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP && r->slot == slot)
			ring_publish_aside(&r->rx);
	}
}

static int channel_send(struct link *link, const struct frame_batch *b)
{
	struct local_channel *l = (struct local_channel *)link;
	struct local_writer *w = NULL;

	if (b->dest.local && b->nframes)
		w = atomic_load_explicit(&l->writer[slot_of(b)], memory_order_acquire);
	if (w && w->state == WRITER_UP && !put(l, w, &b->dest, b->frame, b->iov, b->nframes))
		return 0;
	if (b->nframes)
		tell_aside(l, slot_of(b));
	return l->wire->ops->send(l->wire, b);
}

/* ---- receiving ---- */
static bool may_come(void *arg, const struct ring_path *p)
{
	struct local_channel *l = arg;

	return l->ours(l->ours_arg, p->sgid) && l->ours(l->ours_arg, p->dgid);
}

static void channel_took(struct link *link, const struct frame_in *in, bool executed)
{
	if (in->from)
		ring_took(&((struct local_reader *)in->from)->rx, executed);
}

static bool channel_ahead(struct link *link, const struct frame_in *in, uint32_t i, struct frame_ahead *out)
{
	(void)link;
	return in->from && ring_ahead(&((struct local_reader *)in->from)->rx, i, out);
}

static int take_frames(
	struct local_channel *l, struct local_reader *r, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum { ROW_BYTES = 256 << 10 }; /* of what goes by reference: the sender waits for the word */
	struct frame_in in;
	uint64_t by_ref = 0;
	int n = 0, got;

	if (!r->reverse)
		local_channel_find_twin(l, r);
	local_channel_told(l, r);
	if (local_channel_is_asked(r))
		max = 1;
	while ((unsigned)n < max && by_ref < ROW_BYTES && (got = ring_take(&r->rx, &in, may_come, l))) {
		n++;
		/* What we sent before comes first: a reply must not overtake it. */
		if (r->rx.told != r->heard)
			local_channel_hear(l, r, arg);
		/* Only what is for our own QPs: QP1 and groups go by the wire. */
		if (got < 0 || qpn_slot(bth_dqpn(in.bytes)) != l->slot) {
			l->bad++;
			ring_took(&r->rx, false);
			continue;
		}
		l->rx_packets++;
		l->rx_bytes += in.len;
		in.from = r;
		in.slot = r->verified ? r->slot : 0;
		if (in.by_ref)
			by_ref += in.ref_len;
		deliver(arg, &in);
		if (r->rx.done != r->rx.next)
			ring_took(&r->rx, false);
	}
	if (n)
		local_channel_tell(l, r);
	return n;
}

/* Nobody deals with its socket any more, and nothing is left. */
static void reader_free(struct local_reader *r)
{
	struct local_reader *self = r;

	if (r->reverse)
		atomic_compare_exchange_strong(&r->reverse->reverse, &self, NULL);
	if (r->begun)
		handshake_vacate(r->rx.ring, sizeof(struct ring));
	atomic_store(&r->state, READER_FREE);
}

static int receive_rings(struct local_channel *l, unsigned max, link_deliver_fn *deliver, void *arg)
{
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);
	int n = 0;

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);
		enum local_reader_state state = atomic_load_explicit(&r->state, memory_order_acquire);
		int got = 0;

		if (state == READER_UP || (state == READER_GONE && r->begun))
			got = take_frames(l, r, max, deliver, arg);
		if (state == READER_GONE && !got)
			reader_free(r);
		n += got;
	}
	return n;
}

/* What is counted is counted over both ways. */
static void sum_up(struct local_channel *l)
{
	struct link_stats *s = &l->link.stats;

	l->unsummed = false;
	*s = l->wire->stats;
	s->rx_packets += l->rx_packets;
	s->rx_bytes += l->rx_bytes;
	s->bad_length += l->bad;
	s->tx_errors += atomic_load_explicit(&l->tx_lost, memory_order_relaxed);
}

static bool is_told(struct local_channel *l)
{
	unsigned made = atomic_load_explicit(&l->nmade, memory_order_acquire);

	for (unsigned i = 0; i < made; i++) {
		struct local_writer *w = atomic_load_explicit(&l->made[i], memory_order_acquire);

		if (w && local_channel_is_told(w))
			return true;
	}
	return false;
}

struct from_wire {
	struct local_channel *link;
	link_deliver_fn *deliver;
	void *arg;
};

/* What was told before it left is heard before it: see tell_aside(). */
static void deliver_from_wire(void *arg, const struct frame_in *in)
{
	struct from_wire *f = arg;

	if (is_told(f->link))
		local_channel_collect(f->link, f->arg);
	f->deliver(f->arg, in);
}

static int channel_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum { WIRE_EVERY = 8, QUIET = 64, LONG_QUIET = 1024, ATTEND_EVERY = 64, SUM_EVERY = 16, MOST = 256 };
	enum { DOUBT_EVERY = 256 };
	struct local_channel *l = (struct local_channel *)link;
	struct from_wire f = {l, deliver, arg};
	int n, wire = 0;

	l->polls++;
	if (!max || l->polls % ATTEND_EVERY == 0)
		local_channel_attend(l, true);
	if (l->polls % DOUBT_EVERY == 0)
		guard_doubt();
	n = receive_rings(l, max ? max : MOST, deliver, arg) + local_channel_collect(l, arg);
	/* A look at the sockets is a system call, worth several small messages. Where the wire has been quiet
	 * and there are rings to look at, it is taken now and then. */
	if (!max || l->quiet < QUIET || !atomic_load_explicit(&l->nreaders, memory_order_relaxed) ||
		l->polls % (l->quiet < LONG_QUIET ? WIRE_EVERY : 8 * WIRE_EVERY) == 0) {
		wire = l->wire->ops->receive(l->wire, max, deliver_from_wire, &f);
		l->quiet = wire ? 0 : l->quiet + 1;
	}
	l->unsummed |= n > 0;
	if (wire || (l->unsummed && (!n || l->polls % SUM_EVERY == 0)))
		sum_up(l);
	return n + wire;
}

/* ---- sleeping ---- */
static bool channel_quiet(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP &&
			(ring_waiting(&r->rx) || local_channel_holds(r)))
			return false;
	}
	return readers && !is_told(l);
}

static bool channel_holds(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP &&
			local_channel_holds(r))
			return true;
	}
	return false;
}

static void channel_let_go(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;

	for (unsigned i = 0; i < l->nreaders; i++) {
		struct local_reader *r = l->reader[i];

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP)
			local_channel_let_go(l, r);
	}
}

/* What is held back is no reason not to sleep: see link_ops.holds. */
static bool nothing_waits(struct local_channel *l)
{
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct local_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP &&
			ring_waiting(&r->rx))
			return false;
	}
	return !is_told(l);
}

static bool channel_sleep(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;

	atomic_fetch_add(&l->bell->asleep, 1);
	/* Who has met nobody is in nobody's way: whoever comes knocks at a socket first. */
	if (l->bell->heavy && (atomic_load(&l->nreaders) || atomic_load(&l->nmade)))
		fence_heavy();
	else
		fence_full();
	return nothing_waits(l);
}

static void channel_part(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;

	for (unsigned i = 0; i < l->nreaders; i++) {
		struct local_reader *r = l->reader[i];

		/* No bell: our sockets end in a moment. */
		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP)
			ring_publish_aside(&r->rx);
	}
}

static void channel_woke(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;

	atomic_fetch_sub(&l->bell->asleep, 1);
	atomic_fetch_add(&l->bell->wakes, 1);
}

/* ---- acting on what another process shows ---- */
static const struct link_there *channel_enter(struct link *link, uint32_t slot)
{
	struct local_channel *l = (struct local_channel *)link;
	struct local_writer *w = atomic_load_explicit(&l->writer[slot], memory_order_acquire);

	if (!w)
		return NULL;
	lock_take(&w->act);
	if (w->state != WRITER_UP || !w->there.export) {
		lock_drop(&w->act);
		return NULL;
	}
	/* Said before we look: who takes away what we look at then waits for us, or we do not find it. */
	atomic_fetch_add(&w->tx.ring->acting, 1);
	return &w->there;
}

static void channel_leave(struct link *link, uint32_t slot)
{
	struct local_writer *w = ((struct local_channel *)link)->writer[slot];

	/* Nobody else writes it; a locked instruction would wait for what we wrote into others' caches. */
	atomic_store_explicit(&w->tx.ring->acting,
		atomic_load_explicit(&w->tx.ring->acting, memory_order_relaxed) + 1, memory_order_release);
	lock_drop(&w->act);
}

static bool channel_carries(struct link *link, uint32_t slot)
{
	struct local_writer *w =
		atomic_load_explicit(&((struct local_channel *)link)->writer[slot], memory_order_acquire);

	return w && w->state == WRITER_UP;
}

static bool channel_paired(struct link *link, uint32_t slot)
{
	struct local_writer *w =
		atomic_load_explicit(&((struct local_channel *)link)->writer[slot], memory_order_acquire);
	struct local_reader *r = w ? atomic_load(&w->reverse) : NULL;

	return r && atomic_load(&r->state) == READER_UP;
}

/* ---- the rest is the wire's ---- */
static int channel_fds(struct link *link, int fds[4])
{
	struct local_channel *l = (struct local_channel *)link;
	int n = l->wire->ops->fds(l->wire, fds);

	fds[n++] = l->ep_fd;
	return n;
}

static int channel_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct link *wire = ((struct local_channel *)link)->wire;

	return wire->ops->hand_over(wire, slot, in, wait);
}

static void channel_interfaces_changed(struct link *link)
{
	struct link *wire = ((struct local_channel *)link)->wire;

	if (wire->ops->interfaces_changed)
		wire->ops->interfaces_changed(wire);
}

static int channel_mcast(struct link *link, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	struct link *wire = ((struct local_channel *)link)->wire;

	return wire->ops->mcast(wire, mgid, ifindex, join);
}

static void channel_close(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;

	local_channel_peers_close(l);
	l->wire->ops->close(l->wire);
	free(l);
}

/* The memory is not there in a child (MADV_DONTFORK). */
static void channel_abandon(struct link *link)
{
	struct local_channel *l = (struct local_channel *)link;

	for (unsigned i = 0; i < QPN_SLOTS; i++) {
		if (!l->writer[i])
			continue;
		if (l->writer[i]->end.fd >= 0)
			close(l->writer[i]->end.fd);
		if (l->writer[i]->process.fd >= 0)
			close(l->writer[i]->process.fd);
	}
	for (unsigned i = 0; i < l->nreaders; i++) {
		if (l->reader[i]->end.fd >= 0)
			close(l->reader[i]->end.fd);
	}
	close(l->listener.fd);
	close(l->ep_fd);
	close(l->bell_fd);
	if (l->export_fd >= 0)
		close(l->export_fd);
	if (l->spare_fd >= 0)
		close(l->spare_fd);
	l->wire->ops->abandon(l->wire);
}

static const struct link_ops channel_ops = {
	.send = channel_send,
	.put = channel_put,
	.took = channel_took,
	.ahead = channel_ahead,
	.receive = channel_receive,
	.fds = channel_fds,
	.reach = local_channel_reach,
	.meet = local_channel_meet,
	.carries = channel_carries,
	.paired = channel_paired,
	.sleep = channel_sleep,
	.woke = channel_woke,
	.holds = channel_holds,
	.let_go = channel_let_go,
	.part = channel_part,
	.quiet = channel_quiet,
	.enter = channel_enter,
	.leave = channel_leave,
	.settle = local_channel_settle,
	.hand_over = channel_hand_over,
	.mcast = channel_mcast,
	.interfaces_changed = channel_interfaces_changed,
	.close = channel_close,
	.abandon = channel_abandon,
};

int local_channel_open(struct link **out, struct link *wire, uint16_t port, uint32_t slot,
	local_channel_ours_fn *ours, void *arg, size_t size, void **export)
{
	struct local_channel *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	l->wire = wire;
	l->port = port;
	l->slot = slot;
	l->ours = ours;
	l->ours_arg = arg;
	l->export_size = size;
	err = local_channel_peers_open(l);
	if (err) {
		free(l);
		return err;
	}
	*export = l->export;
	l->link.ops = &channel_ops;
	l->link.rcvbuf = wire->rcvbuf;
	l->link.who = l->bell->who;
	*out = &l->link;
	return 0;
}
