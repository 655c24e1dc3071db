/* SPDX-License-Identifier: MIT */
#include "fabric/link.h"

#include "base/fd.h"
#include "base/guard.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/memfile.h"
#include "fabric/attach.h"
#include "fabric/client.h"
#include "fabric/listens.h"
#include "fabric/shared.h"
#include "fabric/trunk.h"
#include "host/slot.h"
#include "wire/ibt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RCVBUF = TRUNK_DATA / 4, ATTEND_EVERY = 64, MOST = 256, ALL = TRUNK_DATA / (2 * TRUNK_LINE) };

/* `lock` guards what is sent with; the rest is the receiving thread's. */
struct fabric_link {
	struct link link;
	struct lock lock;
	struct fabric_attachment at;
	const struct fabric_table *_Atomic *table; /* for others: see fabric_link_open() */
	struct tally_pool *tallies;
	bool gone; /* the fabric is, and at.fd becomes a timer */
	bool told; /* that it wrote nonsense */
	struct trunk_tx tx;
	struct trunk_rx rx;
	uint32_t slot;
	int slot_fd;
	struct trunk_ring *_Atomic coming; /* that of rx, for who only looks */
	struct fabric_listens listens;
	unsigned polls;
	_Atomic unsigned sleepers;
	_Atomic uint64_t tx_lost;
};

static struct fabric_link *of(struct link *l)
{
	return (struct fabric_link *)l;
}

static void begin(struct fabric_link *l)
{
	munmap((void *)(uintptr_t)l->at.names, l->at.welcome.names_size); /* those of the devices do */
	l->at.names = NULL;
	l->tx = (struct trunk_tx){.ring = &l->at.trunk->to_fabric};
	l->rx = (struct trunk_rx){.ring = &l->at.trunk->to_program};
	l->gone = false;
	atomic_store(&l->coming, l->rx.ring);
	tally_pool_begin(l->tallies, &l->at.trunk->tallies); /* before paths are clear by its table */
	atomic_store(l->table, l->at.table);
}

/* ---- sending ---- */
struct put {
	const struct frame_out *f;
	const struct iovec *iov;
	uint8_t *to;
};

static void put_bytes(void *arg)
{
	const struct put *p = arg;
	uint8_t *to = p->to;

	memcpy(to, p->f->hdr, p->f->hdr_len);
	to += p->f->hdr_len;
	for (unsigned i = 0; i < p->f->iov_count; i++) {
		memcpy(to, p->iov[i].iov_base, p->iov[i].iov_len);
		to += p->iov[i].iov_len;
	}
	memset(to, 0, p->f->pad);
}

/* A payload that is not there any more is not sent: a timer tells. */
static bool put_frame(struct fabric_link *l, const struct trunk_packet *head, const struct frame_batch *b,
	const struct frame_out *f)
{
	uint32_t len = frame_len(f);
	struct trunk_packet *to = trunk_reserve(&l->tx, len);
	struct put p = {f, b->iov + f->iov_first, NULL};

	if (!to)
		return false;
	p.to = (uint8_t *)(to + 1);
	if (!guard_run(put_bytes, &p))
		return false;
	trunk_commit(&l->tx, head, len);
	return true;
}

static int fabric_send(struct link *link, const struct frame_batch *b)
{
	struct fabric_link *l = of(link);
	struct trunk_packet head = {.port = b->dest.ifindex - 1,
		.slid = b->dest.slid,
		.dlid = b->dest.dlid,
		.sl = b->dest.sl,
		.has_grh = b->dest.has_grh,
		.tclass = b->dest.tclass,
		.hop_limit = b->dest.hop_limit,
		.flow_label = b->dest.flow_label,
		.grh = b->dest.grh};

	lock_take(&l->lock);
	for (unsigned i = 0; i < b->nframes; i++)
		if (l->gone || !put_frame(l, &head, b, &b->frame[i]))
			atomic_fetch_add_explicit(&l->tx_lost, 1, memory_order_relaxed);
	if (!l->gone && trunk_must_ring(&l->tx))
		fabric_ring(l->at.fd);
	lock_drop(&l->lock);
	return 0;
}

/* ---- the fabric's end and return ---- */
/* Somebody may be reading there: zeroes from now on, for as long as the process lives. */
static void vacate(const void *at, size_t size)
{
	if (at)
		memfile_vacate((void *)(uintptr_t)at, size);
}

static void lose(struct fabric_link *l)
{
	lock_take(&l->lock);
	l->gone = true;
	atomic_store(l->table, &fabric_none);
	vacate(l->at.table, l->at.welcome.table_size);
	l->at.table = NULL;
	lock_drop(&l->lock);
}

/* Its ring cannot be used any more: hangs up, and attaches again as if the fabric had ended. */
static void distrust(struct fabric_link *l)
{
	if (!l->told)
		log_warn("the fabric wrote nonsense into its ring of packets: attaching again");
	l->told = true;
	lose(l);
	shutdown(l->at.fd, SHUT_RDWR);
	l->polls = 0;
}

static void reattach(struct fabric_link *l)
{
	struct fabric_attachment again;

	if (fabric_attach(&again, l->slot, FABRIC_RETRY_MS))
		return;
	lock_take(&l->lock);
	dup3(again.fd, l->at.fd, O_CLOEXEC);
	close(again.fd);
	again.fd = l->at.fd;
	vacate(l->at.trunk, sizeof(*l->at.trunk));
	l->at = again;
	begin(l);
	fabric_listens_again(&l->listens);
	fabric_listens_tell(&l->listens, l->at.fd);
	lock_drop(&l->lock);
	if (l->link.look)
		l->link.look(l->link.look_arg);
	log_info("attached to the fabric again");
}

/* What found no room before. */
static void tell_listens(struct fabric_link *l)
{
	lock_take(&l->lock);
	fabric_listens_tell(&l->listens, l->at.fd);
	lock_drop(&l->lock);
}

/* A thread that polls comes here often: it tries again no sooner than one that sleeps until the timer. */
static void attend_fabric(struct fabric_link *l)
{
	bool gone;

	if (l->gone && fabric_is_timer(l->at.fd)) {
		if (fabric_timer_rang(l->at.fd))
			reattach(l);
		return;
	}
	fabric_read_news(l->at.fd, &gone);
	if (gone)
		lose(l);
	else
		tell_listens(l);
}

static void attend(struct fabric_link *l)
{
	enum { AT_ONCE = 64 };
	bool look = false;

	attend_fabric(l);
	for (int i = 0; i < AT_ONCE; i++) {
		uint8_t datagram[64];
		ssize_t len = slot_receive(l->slot_fd, datagram, sizeof(datagram));

		if (len < 0)
			break;
		look |= slot_is_look(datagram, (size_t)len);
	}
	if (look && l->link.look)
		l->link.look(l->link.look_arg);
}

/* ---- receiving ---- */
static void deliver_packet(
	const struct trunk_packet *t, const uint8_t *bytes, link_deliver_fn *deliver, void *arg)
{
	struct frame_in in = {.bytes = bytes,
		.len = t->len,
		.ifindex = t->port + 1,
		.tclass = t->tclass,
		.hop_limit = t->hop_limit,
		.sl = t->sl,
		.slid = t->slid,
		.dlid = t->dlid,
		.flow_label = t->flow_label,
		.has_grh = t->has_grh,
		.handed = bth_dqpn(bytes) == QP_GSI, /* the fabric knows whose it is */
		.grh = &t->grh};

	gid_of_lid(t->slid, in.sgid);
	if (t->has_grh && gid_is_mcast(t->grh.dgid))
		memcpy(in.dgid, t->grh.dgid, 16);
	else
		gid_of_lid(t->dlid, in.dgid);
	deliver(arg, &in);
}

/* What is there; 0: that was all, 1: no more at once, -1: nonsense. */
static int take_packets(
	struct fabric_link *l, unsigned most, link_deliver_fn *deliver, void *arg, unsigned *n)
{
	struct link_stats *s = &l->link.stats;
	struct trunk_packet t;
	uint8_t *bytes;
	int took = 1;

	for (unsigned i = 0; i < most && !l->gone && (took = trunk_take(&l->rx, &t, &bytes)) > 0; i++) {
		++*n;
		s->rx_packets++;
		s->rx_bytes += t.len;
		if (t.len >= 12 && t.slid)
			deliver_packet(&t, bytes, deliver, arg);
		else
			s->bad_length++;
		trunk_done(&l->rx);
	}
	return took;
}

/*
 * The ring has one flag that says "asleep", and the fabric wakes only once for it. A thread that polls may
 * have taken the wake-up of those that sleep: so it takes all packets there are, and sets the flag again for
 * them. False: something came meanwhile.
 */
static bool leave_to_sleepers(struct fabric_link *l)
{
	return l->gone || !atomic_load(&l->sleepers) || trunk_sleep(&l->rx);
}

static int fabric_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg)
{
	struct fabric_link *l = of(link);
	unsigned n = 0, most;
	int took;

	if (!max || l->polls++ % ATTEND_EVERY == 0)
		attend(l);
	/* Behind attend(), which may have heard the bell of one who has gone to sleep since we came. */
	most = atomic_load(&l->sleepers) ? ALL : max ? max : MOST;
	do
		took = take_packets(l, most, deliver, arg, &n);
	while (took >= 0 && !leave_to_sleepers(l) && n < most);
	if (took < 0)
		distrust(l);
	link->stats.tx_errors = atomic_load_explicit(&l->tx_lost, memory_order_relaxed);
	return (int)n;
}

static bool fabric_waits(struct link *link)
{
	struct trunk_ring *r = atomic_load_explicit(&of(link)->coming, memory_order_relaxed);

	return atomic_load_explicit(&r->head, memory_order_acquire) !=
	       atomic_load_explicit(&r->tail, memory_order_relaxed);
}

static bool fabric_sleep(struct link *link)
{
	struct fabric_link *l = of(link);
	bool nothing;

	atomic_fetch_add(&l->sleepers, 1);
	lock_take(&l->lock); /* the rings may be others the next moment */
	nothing = l->gone || trunk_sleep(&l->rx);
	lock_drop(&l->lock);
	return nothing;
}

static void fabric_woke(struct link *link)
{
	atomic_fetch_sub(&of(link)->sleepers, 1);
}

static int fabric_fds(struct link *link, int fds[4])
{
	fds[0] = of(link)->at.fd;
	fds[1] = of(link)->slot_fd;
	return 2;
}

/* ---- the rest ---- */
static int fabric_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait)
{
	return -ESRCH; /* the fabric has routed it */
}

/* The fabric gives a host's programs what came for groups; queue pairs that are attached take it. */
static int fabric_mcast(struct link *link, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	return 0;
}

static int fabric_listen(struct link *link, const struct cm_listen *what, bool on)
{
	struct fabric_link *l = of(link);
	int err;

	lock_take(&l->lock);
	err = fabric_listens_change(&l->listens, what, on);
	if (!err && !l->gone)
		fabric_listens_tell(&l->listens, l->at.fd);
	lock_drop(&l->lock);
	return err;
}

static void fabric_abandon(struct link *link)
{
	atomic_store(of(link)->table, &fabric_none); /* it is not there in a child */
	close(of(link)->at.fd);
	close(of(link)->slot_fd);
}

static void fabric_close(struct link *link)
{
	struct fabric_link *l = of(link);

	atomic_store(l->table, &fabric_none);
	tally_pool_end(l->tallies);
	fabric_detach(&l->at);
	close(l->slot_fd);
	fabric_listens_fini(&l->listens);
	lock_fini(&l->lock);
	free(l);
}

static const struct link_ops fabric_ops = {
	.send = fabric_send,
	.receive = fabric_receive,
	.fds = fabric_fds,
	.hand_over = fabric_hand_over,
	.mcast = fabric_mcast,
	.waits = fabric_waits,
	.listen = fabric_listen,
	.sleep = fabric_sleep,
	.woke = fabric_woke,
	.close = fabric_close,
	.abandon = fabric_abandon,
};

int fabric_link_open(struct link **out, uint16_t port, uint32_t *slot,
	const struct fabric_table *_Atomic *table, struct tally_pool *tallies)
{
	struct fabric_link *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	guard_install();
	l->link.ops = &fabric_ops;
	l->link.rcvbuf = RCVBUF;
	l->table = table;
	l->tallies = tallies;
	lock_init(&l->lock);
	l->slot_fd = slot_claim(port, slot);
	err = l->slot_fd < 0 ? l->slot_fd : fabric_attach(&l->at, *slot, FABRIC_PATIENCE_MS);
	if (err) {
		if (l->slot_fd >= 0)
			close(l->slot_fd);
		lock_fini(&l->lock);
		free(l);
		return err;
	}
	l->slot = *slot;
	begin(l);
	*out = &l->link;
	return 0;
}
