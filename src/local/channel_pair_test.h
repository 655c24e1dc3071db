/* SPDX-License-Identifier: MIT */
/* Ends of the channel in one process, over a wire that only counts, for its tests. */
#ifndef LOCAL_CHANNEL_PAIR_TEST_H
#define LOCAL_CHANNEL_PAIR_TEST_H

#include "base/log.h"
#include "local/channel.h"
#include "wire/ibt.h"
#include "wire/qpn.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { HERE = 3, THERE = 7, PATIENCE_MS = 20000, EXPORT = 8192 };

static uint16_t port; /* only a name here; our process's own */

/* ---- a wire ---- */
struct wire {
	struct link link;
	unsigned sent;
	void (*looks)(link_deliver_fn *deliver, void *arg); /* what may be there by now */
};

static inline int wire_send(struct link *l, const struct frame_batch *b)
{
	((struct wire *)l)->sent += b->nframes;
	return 0;
}

static inline int wire_receive(struct link *l, unsigned max, link_deliver_fn *deliver, void *arg)
{
	struct wire *w = (struct wire *)l;

	if (w->looks)
		w->looks(deliver, arg);
	return 0;
}

static inline int wire_fds(struct link *l, int fds[4])
{
	return 0;
}

static inline void wire_close(struct link *l)
{
	free(l);
}

static const struct link_ops wire_ops = {.send = wire_send,
	.receive = wire_receive,
	.fds = wire_fds,
	.close = wire_close,
	.abandon = wire_close};

static inline bool ours(void *arg, const uint8_t gid[16])
{
	return gid[0] == 1;
}

struct host {
	struct local_channel *channel;
	struct link *link;
	struct wire *wire;
	void *export;
	uint32_t next; /* PSN expected */
	unsigned got;
	unsigned executed; /* of what it sent, as it was told */
};

static inline struct host open_host(uint32_t slot)
{
	struct host h = {.wire = calloc(1, sizeof(struct wire))};

	h.wire->link.ops = &wire_ops;
	assert_int_equal(
		local_channel_open(&h.channel, &h.wire->link, port, slot, ours, NULL, EXPORT, &h.export), 0);
	h.link = local_channel_link(h.channel);
	return h;
}

static inline void close_host(struct host *h)
{
	h->link->ops->close(h->link);
}

/* ---- frames whose contents follow from their number ---- */
static inline uint32_t len_of(uint32_t n)
{
	return n * 2654435761u % 5 ? n % 48 : n * 2246822519u % 4097;
}

static inline void fill(uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < len_of(n); i++)
		p[i] = (uint8_t)(n + i * 5);
}

static bool by_wire; /* what is sent: its QP was late, and knows no other way */

static inline int send_noted(struct host *h, uint32_t slot, uint32_t n, uint32_t note)
{
	static struct frame_batch b;
	static uint8_t payload[4096];
	struct frame_out *f = &b.frame[0];
	uint32_t len = len_of(n);

	fill(payload, n);
	b.dest.sgid[0] = b.dest.dgid[0] = 1;
	b.slot = slot;
	b.nframes = b.niov = 1;
	*f = (struct frame_out){.hdr_len = BTH_LEN,
		.pad = (uint8_t)(-len & 3),
		.iov_count = 1,
		.payload_len = len,
		.cookie = note};
	bth_put(f->hdr, IBT_RC | OP_SEND_ONLY, false, f->pad, PKEY_DEFAULT, slot << QPN_SLOT_SHIFT | 5, false,
		n & PSN_MASK);
	b.iov[0] = (struct iovec){payload, len};
	if (!by_wire)
		return h->link->ops->send(h->link, &b);
	local_channel_ack_aside(h->channel, slot);
	return h->wire->link.ops->send(&h->wire->link, &b);
}

static inline int send_one(struct host *h, uint32_t slot, uint32_t n)
{
	return send_noted(h, slot, n, 0);
}

static inline void check(void *arg, const struct frame_in *in)
{
	static uint8_t payload[4096];
	struct host *h = arg;
	uint32_t n = h->next;

	fill(payload, n);
	assert_true(in->local);
	assert_int_equal(bth_psn(in->bytes), n & PSN_MASK);
	assert_int_equal(in->len, BTH_LEN + ((len_of(n) + 3) & ~3u));
	assert_memory_equal(in->payload_ext ? in->payload_ext : in->bytes + BTH_LEN, payload, len_of(n));
	h->next++;
	h->got++;
}

static inline int receive(struct host *h)
{
	return h->link->ops->receive(h->link, 0, check, h);
}

/* In the background: who receives asks. */
static inline bool ask(struct host *from, uint32_t slot)
{
	local_channel_want(from->channel, slot);
	receive(from);
	return local_channel_is_up(from->channel, slot);
}

static inline bool reach(struct host *from, uint32_t slot, struct host *to)
{
	struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; i < PATIENCE_MS && !ask(from, slot); i++) {
		if (to)
			receive(to);
		nanosleep(&ms, NULL);
	}
	/* The ring the other way, the proofs, the exports: a few words more. */
	for (int i = 0; i < 6 && to; i++) {
		receive(to);
		receive(from);
	}
	return local_channel_is_up(from->channel, slot);
}

/* The doorbell is the descriptor behind the wire's. */
static inline bool rung(struct host *h)
{
	int fds[4], n = h->link->ops->fds(h->link, fds);
	struct pollfd p = {.fd = fds[n - 1], .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

#endif
