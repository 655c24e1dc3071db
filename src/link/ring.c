/* SPDX-License-Identifier: MIT */
#include "link/ring.h"

#include "wire/ibt.h"

#include <string.h>

enum { LINE = 64 };

void ring_tx_init(struct ring_tx *t, struct ring *r)
{
	t->ring = r;
	t->head = t->taken = 0;
	t->data_head = t->data_tail = 0;
	t->npaths = 0;
	r->magic = RING_MAGIC;
	r->version = RING_VERSION;
}

void ring_rx_init(struct ring_rx *x, struct ring *r)
{
	atomic_store_explicit(&x->ring, r, memory_order_relaxed);
	atomic_store_explicit(&x->next, 0, memory_order_relaxed);
	x->allowed = 0;
}

bool ring_is_one(const struct ring *r)
{
	return r->magic == RING_MAGIC && r->version == RING_VERSION;
}

/* ---- writing ---- */
/* Takes back what the reader is done with; false: it says what cannot be. */
static bool reclaim(struct ring_tx *t)
{
	uint32_t taken = atomic_load_explicit(&t->ring->taken, memory_order_acquire);

	if (taken - t->taken > t->head - t->taken)
		return false;
	if (taken != t->taken)
		t->data_tail = t->data_end[(taken - 1) % RING_SLOTS];
	t->taken = taken;
	/* Nothing is on its way: begin again where the caches are warm. */
	if (taken == t->head)
		t->data_head = t->data_tail = 0;
	return true;
}

/* Room for len bytes in one piece, at *off; false: there is none. */
static bool find_room(struct ring_tx *t, uint32_t len, uint32_t *off)
{
	uint64_t at = t->data_head;

	if (at % RING_DATA + len > RING_DATA)
		at += RING_DATA - at % RING_DATA;
	if (at + len - t->data_tail > RING_DATA)
		return false;
	*off = (uint32_t)(at % RING_DATA);
	t->data_head = at + ((len + LINE - 1) & ~(uint32_t)(LINE - 1));
	return true;
}

/* The number of the path to this destination; -1: there are too many. */
static int find_path(struct ring_tx *t, const struct frame_dest *d)
{
	struct ring_path *p;

	for (unsigned i = 0; i < t->npaths; i++) {
		if (frame_dest_same(&t->path[i], d))
			return (int)i;
	}
	if (t->npaths == RING_PATHS)
		return -1;
	p = &t->ring->path[t->npaths];
	memcpy(p->sgid, d->sgid, 16);
	memcpy(p->dgid, d->dgid, 16);
	p->ifindex = d->ifindex;
	p->tclass = d->tclass;
	p->hop_limit = d->hop_limit;
	t->path[t->npaths] = *d;
	return (int)t->npaths++;
}

static void put_payload(uint8_t *to, const struct frame_out *f, const struct iovec *iov)
{
	for (unsigned k = 0; k < f->iov_count; k++) {
		memcpy(to, iov[k].iov_base, iov[k].iov_len);
		to += iov[k].iov_len;
	}
	memset(to, 0, f->pad);
}

enum ring_put ring_put(struct ring_tx *t, const struct frame_batch *b, unsigned i)
{
	struct ring_slot *s = &t->ring->slot[t->head % RING_SLOTS];
	const struct frame_out *f = &b->frame[i];
	uint32_t len = f->payload_len + f->pad, off = 0;
	bool apart = f->hdr_len + len > RING_BYTES;
	int path = find_path(t, &b->dest);

	if (path < 0 || f->hdr_len > RING_BYTES || len > RING_PAYLOAD_MAX)
		return RING_UNFIT;
	/* The reader's line is only looked at when it has to be, or may have room where it is warm. */
	if ((apart || t->head - t->taken >= RING_SLOTS / 2) && !reclaim(t))
		return RING_BROKEN;
	if (t->head - t->taken >= RING_SLOTS || (apart && !find_room(t, len, &off)))
		return RING_FULL;
	memcpy(s->bytes, f->hdr, f->hdr_len);
	put_payload(apart ? t->ring->data + off : s->bytes + f->hdr_len, f, b->iov + f->iov_first);
	s->off = off;
	s->len = (uint16_t)len;
	s->hdr_len = f->hdr_len;
	s->path = (uint8_t)path;
	t->data_end[t->head % RING_SLOTS] = t->data_head;
	t->head++;
	atomic_store_explicit(&s->stamp, t->head, memory_order_release);
	return RING_PUT;
}

/* ---- reading ---- */
/* Looked at until it may be used, then no more: an address may be new. */
static bool may_use(struct ring_rx *x, unsigned path, ring_path_fn *allow, void *arg)
{
	uint64_t bit = 1ull << path;

	if (x->allowed & bit)
		return true;
	memcpy(&x->path[path], &x->ring->path[path], sizeof(x->path[path]));
	if (!allow(arg, &x->path[path]))
		return false;
	x->allowed |= bit;
	return true;
}

static bool is_sound(const struct ring_slot *s)
{
	if (s->hdr_len < BTH_LEN || s->hdr_len > RING_BYTES || s->path >= RING_PATHS)
		return false;
	return s->hdr_len + s->len <= RING_BYTES ||
	       (s->len <= RING_PAYLOAD_MAX && s->off <= (uint32_t)RING_DATA - s->len);
}

int ring_take(struct ring_rx *x, struct frame_in *in, ring_path_fn *allow, void *arg)
{
	uint32_t next = atomic_load_explicit(&x->next, memory_order_relaxed);
	struct ring_slot *s = &x->slot;
	const struct ring_path *p;

	if (!ring_waiting(x))
		return 0;
	memcpy(s, &x->ring->slot[next % RING_SLOTS], sizeof(*s));
	atomic_store_explicit(&x->next, next + 1, memory_order_relaxed);
	if (!is_sound(s) || !may_use(x, s->path, allow, arg))
		return -1;
	p = &x->path[s->path];
	memcpy(in->sgid, p->sgid, 16);
	memcpy(in->dgid, p->dgid, 16);
	in->ifindex = p->ifindex;
	in->tclass = p->tclass;
	in->hop_limit = p->hop_limit;
	in->handed = false;
	in->local = true;
	in->bytes = s->bytes;
	in->len = s->hdr_len + s->len;
	in->head_len = s->hdr_len;
	in->apart = in->len > RING_BYTES ? x->ring->data + s->off : NULL;
	return 1;
}

void ring_done(struct ring_rx *x)
{
	atomic_store_explicit(
		&x->ring->taken, atomic_load_explicit(&x->next, memory_order_relaxed), memory_order_release);
}
