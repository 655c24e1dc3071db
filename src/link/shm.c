/* SPDX-License-Identifier: MIT */
/* Frames by memory. Who is there to take them is shm_meet.c's business. */
#include "link/shm.h"

#include "base/fence.h"
#include "base/guard.h"
#include "base/log.h"
#include "link/meet.h"
#include "link/shm_parts.h"
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
static int put_all(struct shm_link *l, struct shm_writer *w, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov, unsigned n)
{
	struct shm_reader *reverse = atomic_load_explicit(&w->reverse, memory_order_acquire);
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
	link_shm_wake(l, w);
	return 0;
}

static int put(struct shm_link *l, struct shm_writer *w, const struct frame_dest *dest,
	const struct frame_out *f, const struct iovec *iov, unsigned n)
{
	int err;

	lock_take(&w->lock);
	err = w->state == SHM_UP ? put_all(l, w, dest, f, iov, n) : -ENOTCONN;
	lock_drop(&w->lock);
	return err;
}

static int shm_put(struct link *link, uint32_t slot, const struct frame_dest *dest, const struct frame_out *f,
	const struct iovec *iov)
{
	struct shm_link *l = (struct shm_link *)link;
	struct shm_writer *w = atomic_load_explicit(&l->writer[slot], memory_order_acquire);

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
static void tell_aside(struct shm_link *l, uint32_t slot)
{
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct shm_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP && r->slot == slot)
			ring_publish_aside(&r->rx);
	}
}

static int shm_send(struct link *link, const struct frame_batch *b)
{
	struct shm_link *l = (struct shm_link *)link;
	struct shm_writer *w = NULL;

	if (b->dest.local && b->nframes)
		w = atomic_load_explicit(&l->writer[slot_of(b)], memory_order_acquire);
	if (w && w->state == SHM_UP && !put(l, w, &b->dest, b->frame, b->iov, b->nframes))
		return 0;
	if (b->nframes)
		tell_aside(l, slot_of(b));
	return l->wire->ops->send(l->wire, b);
}

/* ---- receiving ---- */
static bool may_come(void *arg, const struct ring_path *p)
{
	struct shm_link *l = arg;

	return l->ours(l->ours_arg, p->sgid) && l->ours(l->ours_arg, p->dgid);
}

static void shm_took(struct link *link, const struct frame_in *in, bool executed)
{
	if (in->from)
		ring_took(&((struct shm_reader *)in->from)->rx, executed);
}

static bool shm_ahead(struct link *link, const struct frame_in *in, uint32_t i, struct frame_ahead *out)
{
	(void)link;
	return in->from && ring_ahead(&((struct shm_reader *)in->from)->rx, i, out);
}

static int take_frames(
	struct shm_link *l, struct shm_reader *r, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum { ROW_BYTES = 256 << 10 }; /* of what goes by reference: the sender waits for the word */
	struct frame_in in;
	uint64_t by_ref = 0;
	int n = 0, got;

	if (!r->reverse)
		link_shm_find_twin(l, r);
	link_shm_told(l, r);
	if (link_shm_is_asked(r))
		max = 1;
	while ((unsigned)n < max && by_ref < ROW_BYTES && (got = ring_take(&r->rx, &in, may_come, l))) {
		n++;
		/* What we sent before comes first: a reply must not overtake it. */
		if (r->rx.told != r->heard)
			link_shm_hear(l, r, arg);
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
		link_shm_tell(l, r);
	return n;
}

/* Nobody deals with its socket any more, and nothing is left. */
static void reader_free(struct shm_reader *r)
{
	struct shm_reader *self = r;

	if (r->reverse)
		atomic_compare_exchange_strong(&r->reverse->reverse, &self, NULL);
	if (r->begun)
		meet_vacate(r->rx.ring, sizeof(struct ring));
	atomic_store(&r->state, READER_FREE);
}

static int receive_rings(struct shm_link *l, unsigned max, link_deliver_fn *deliver, void *arg)
{
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);
	int n = 0;

	for (unsigned i = 0; i < readers; i++) {
		struct shm_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);
		enum shm_reader_state state = atomic_load_explicit(&r->state, memory_order_acquire);
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
static void sum_up(struct shm_link *l)
{
	struct link_stats *s = &l->link.stats;

	l->unsummed = false;
	*s = l->wire->stats;
	s->rx_packets += l->rx_packets;
	s->rx_bytes += l->rx_bytes;
	s->bad_length += l->bad;
	s->tx_errors += atomic_load_explicit(&l->tx_lost, memory_order_relaxed);
}

static bool is_told(struct shm_link *l)
{
	unsigned made = atomic_load_explicit(&l->nmade, memory_order_acquire);

	for (unsigned i = 0; i < made; i++) {
		struct shm_writer *w = atomic_load_explicit(&l->made[i], memory_order_acquire);

		if (w && link_shm_is_told(w))
			return true;
	}
	return false;
}

struct from_wire {
	struct shm_link *link;
	link_deliver_fn *deliver;
	void *arg;
};

/* What was told before it left is heard before it: see tell_aside(). */
static void deliver_from_wire(void *arg, const struct frame_in *in)
{
	struct from_wire *f = arg;

	if (is_told(f->link))
		link_shm_collect(f->link, f->arg);
	f->deliver(f->arg, in);
}

static int shm_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum { WIRE_EVERY = 8, QUIET = 64, LONG_QUIET = 1024, ATTEND_EVERY = 64, SUM_EVERY = 16, MOST = 256 };
	enum { DOUBT_EVERY = 256 };
	struct shm_link *l = (struct shm_link *)link;
	struct from_wire f = {l, deliver, arg};
	int n, wire = 0;

	l->polls++;
	if (!max || l->polls % ATTEND_EVERY == 0)
		link_shm_attend(l, true);
	if (l->polls % DOUBT_EVERY == 0)
		guard_doubt();
	n = receive_rings(l, max ? max : MOST, deliver, arg) + link_shm_collect(l, arg);
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
static bool shm_quiet(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct shm_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP &&
			(ring_waiting(&r->rx) || link_shm_holds(r)))
			return false;
	}
	return readers && !is_told(l);
}

static bool shm_holds(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct shm_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP && link_shm_holds(r))
			return true;
	}
	return false;
}

static void shm_let_go(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

	for (unsigned i = 0; i < l->nreaders; i++) {
		struct shm_reader *r = l->reader[i];

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP)
			link_shm_let_go(l, r);
	}
}

/* What is held back is no reason not to sleep: see link_ops.holds. */
static bool nothing_waits(struct shm_link *l)
{
	unsigned readers = atomic_load_explicit(&l->nreaders, memory_order_acquire);

	for (unsigned i = 0; i < readers; i++) {
		struct shm_reader *r = atomic_load_explicit(&l->reader[i], memory_order_relaxed);

		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP &&
			ring_waiting(&r->rx))
			return false;
	}
	return !is_told(l);
}

static bool shm_sleep(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

	atomic_fetch_add(&l->bell->asleep, 1);
	/* Who has met nobody is in nobody's way: whoever comes knocks at a socket first. */
	if (l->bell->heavy && (atomic_load(&l->nreaders) || atomic_load(&l->nmade)))
		fence_heavy();
	else
		fence_full();
	return nothing_waits(l);
}

static void shm_part(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

	for (unsigned i = 0; i < l->nreaders; i++) {
		struct shm_reader *r = l->reader[i];

		/* No bell: our sockets end in a moment. */
		if (atomic_load_explicit(&r->state, memory_order_acquire) == READER_UP)
			ring_publish_aside(&r->rx);
	}
}

static void shm_woke(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

	atomic_fetch_sub(&l->bell->asleep, 1);
	atomic_fetch_add(&l->bell->wakes, 1);
}

/* ---- acting on what another process shows ---- */
static const struct link_there *shm_enter(struct link *link, uint32_t slot)
{
	struct shm_link *l = (struct shm_link *)link;
	struct shm_writer *w = atomic_load_explicit(&l->writer[slot], memory_order_acquire);

	if (!w)
		return NULL;
	lock_take(&w->act);
	if (w->state != SHM_UP || !w->there.export) {
		lock_drop(&w->act);
		return NULL;
	}
	/* Said before we look: who takes away what we look at then waits for us, or we do not find it. */
	atomic_fetch_add(&w->tx.ring->acting, 1);
	return &w->there;
}

static void shm_leave(struct link *link, uint32_t slot)
{
	struct shm_writer *w = ((struct shm_link *)link)->writer[slot];

	/* Nobody else writes it; a locked instruction would wait for what we wrote into others' caches. */
	atomic_store_explicit(&w->tx.ring->acting,
		atomic_load_explicit(&w->tx.ring->acting, memory_order_relaxed) + 1, memory_order_release);
	lock_drop(&w->act);
}

static bool shm_carries(struct link *link, uint32_t slot)
{
	struct shm_writer *w =
		atomic_load_explicit(&((struct shm_link *)link)->writer[slot], memory_order_acquire);

	return w && w->state == SHM_UP;
}

static bool shm_paired(struct link *link, uint32_t slot)
{
	struct shm_writer *w =
		atomic_load_explicit(&((struct shm_link *)link)->writer[slot], memory_order_acquire);
	struct shm_reader *r = w ? atomic_load(&w->reverse) : NULL;

	return r && atomic_load(&r->state) == READER_UP;
}

/* ---- the rest is the wire's ---- */
static int shm_fds(struct link *link, int fds[4])
{
	struct shm_link *l = (struct shm_link *)link;
	int n = l->wire->ops->fds(l->wire, fds);

	fds[n++] = l->ep_fd;
	return n;
}

static int shm_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct link *wire = ((struct shm_link *)link)->wire;

	return wire->ops->hand_over(wire, slot, in, wait);
}

static void shm_interfaces_changed(struct link *link)
{
	struct link *wire = ((struct shm_link *)link)->wire;

	if (wire->ops->interfaces_changed)
		wire->ops->interfaces_changed(wire);
}

static int shm_mcast(struct link *link, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	struct link *wire = ((struct shm_link *)link)->wire;

	return wire->ops->mcast(wire, mgid, ifindex, join);
}

static void shm_close(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

	link_shm_meet_close(l);
	l->wire->ops->close(l->wire);
	free(l);
}

/* The memory is not there in a child (MADV_DONTFORK). */
static void shm_abandon(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

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

static const struct link_ops shm_ops = {
	.send = shm_send,
	.put = shm_put,
	.took = shm_took,
	.ahead = shm_ahead,
	.receive = shm_receive,
	.fds = shm_fds,
	.reach = link_shm_reach,
	.meet = link_shm_meet,
	.carries = shm_carries,
	.paired = shm_paired,
	.sleep = shm_sleep,
	.woke = shm_woke,
	.holds = shm_holds,
	.let_go = shm_let_go,
	.part = shm_part,
	.quiet = shm_quiet,
	.enter = shm_enter,
	.leave = shm_leave,
	.settle = link_shm_settle,
	.hand_over = shm_hand_over,
	.mcast = shm_mcast,
	.interfaces_changed = shm_interfaces_changed,
	.close = shm_close,
	.abandon = shm_abandon,
};

int link_shm_open(struct link **out, struct link *wire, uint16_t port, uint32_t slot, link_shm_ours_fn *ours,
	void *arg, size_t size, void **export)
{
	struct shm_link *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	l->wire = wire;
	l->port = port;
	l->slot = slot;
	l->ours = ours;
	l->ours_arg = arg;
	l->export_size = size;
	err = link_shm_meet_open(l);
	if (err) {
		free(l);
		return err;
	}
	*export = l->export;
	l->link.ops = &shm_ops;
	l->link.rcvbuf = wire->rcvbuf;
	l->link.who = l->bell->who;
	*out = &l->link;
	return 0;
}
