/* SPDX-License-Identifier: MIT */
#include "local/ring.h"

#include "wire/ibt.h"

#include <string.h>

enum { LINE = 64, AHEAD = 8 };

void ring_tx_init(struct ring_tx *t, struct ring *r)
{
	t->ring = r;
	t->head = 0;
	atomic_store_explicit(&t->taken, 0, memory_order_relaxed);
	t->data_head = t->data_tail = 0;
	t->npaths = 0;
	r->magic = RING_MAGIC;
	r->version = RING_VERSION;
}

void ring_rx_init(struct ring_rx *x, struct ring *r)
{
	atomic_store_explicit(&x->ring, r, memory_order_relaxed);
	atomic_store_explicit(&x->next, 0, memory_order_relaxed);
	atomic_store_explicit(&x->done, 0, memory_order_relaxed);
	x->published = x->ack = 0;
	memset(x->refused, 0, sizeof(x->refused));
	x->allowed = 0;
}

bool ring_is_one(const struct ring *r)
{
	return r->magic == RING_MAGIC && r->version == RING_VERSION;
}

/* ---- writing ---- */
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

int ring_path_to(struct ring_tx *t, const struct frame_dest *d)
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
	p->sl = d->sl;
	p->has_grh = d->has_grh;
	p->slid = d->slid;
	p->dlid = d->dlid;
	p->flow_label = d->flow_label;
	p->grh = d->grh;
	t->path[t->npaths] = *d;
	return (int)t->npaths++;
}

/* The BTH as it was written a moment ago, by words; what is behind the headers is nobody's. */
static void put_headers(uint8_t *to, const struct frame_out *f)
{
	memcpy(to, f->hdr, 8);
	memcpy(to + 8, f->hdr + 8, 4);
	if (f->hdr_len > BTH_LEN)
		memcpy(to + BTH_LEN, f->hdr + BTH_LEN, RING_BYTES - BTH_LEN);
}

static void put_payload(uint8_t *to, const struct frame_out *f, const struct iovec *iov)
{
	/* The usual small one, without calls. */
	if (f->iov_count == 1 && f->payload_len == 8) {
		memcpy(to, iov->iov_base, 8);
		return;
	}
	for (unsigned k = 0; k < f->iov_count; k++) {
		memcpy(to, iov[k].iov_base, iov[k].iov_len);
		to += iov[k].iov_len;
	}
	memset(to, 0, f->pad);
}

enum ring_put ring_put(
	struct ring_tx *t, int path, const struct frame_out *f, const struct iovec *iov, const uint32_t *ack)
{
	struct ring_slot *s = &t->ring->slot[t->head % RING_SLOTS];
	uint32_t len = f->payload_len + f->pad, off = 0,
		 waiting = t->head - atomic_load_explicit(&t->taken, memory_order_relaxed);
	bool apart = f->hdr_len + len > RING_BYTES;

	if (path < 0 || f->hdr_len > RING_BYTES || len > RING_PAYLOAD_MAX)
		return RING_UNFIT;
	if (waiting >= RING_SLOTS || (apart && !find_room(t, len, &off)))
		return RING_FULL;
	/* Others have these lines: they are fetched while we go on. */
	__builtin_prefetch(&t->ring->slot[(t->head + AHEAD) % RING_SLOTS], 1);
	put_headers(s->bytes, f);
	put_payload(apart ? t->ring->data + off : s->bytes + f->hdr_len, f, iov);
	s->ack = ack ? *ack : 0;
	s->place = off | (uint32_t)f->by_ref << RING_BY_REF_SHIFT;
	s->len = (uint16_t)len;
	s->hdr_len = f->hdr_len;
	s->path = (uint8_t)(path | (ack ? RING_ACK : 0));
	t->sent[t->head % RING_SLOTS].note = (struct ring_note){f->cookie, f->psn, false};
	t->sent[t->head % RING_SLOTS].data_end = t->data_head;
	t->head++;
	atomic_store_explicit(&s->stamp, t->head, memory_order_release);
	return RING_PUT;
}

static bool was_refused(const struct ring *r, uint32_t i)
{
	return atomic_load_explicit(&r->refused[i % RING_SLOTS / 64], memory_order_relaxed) >> i % 64 & 1;
}

/* Adds a note to n others, or puts it in the place of the last one when it says the same and more. */
static int add_note(struct ring_note *out, int n, const struct ring_note *note)
{
	if (!n || out[n - 1].cookie != note->cookie || out[n - 1].refused != note->refused)
		n++;
	out[n - 1] = *note;
	return n;
}

int ring_collect(struct ring_tx *t, uint32_t taken, struct ring_note *out, unsigned max)
{
	uint32_t i = atomic_load_explicit(&t->taken, memory_order_relaxed);
	int n = 0;

	if (i - taken <= RING_SLOTS)
		return 0; /* acknowledged before, in the other way */
	if (taken - i > t->head - i)
		return -1;
	for (; i != taken && (unsigned)n < max; i++) {
		struct ring_note note = t->sent[i % RING_SLOTS].note;

		note.refused = was_refused(t->ring, i);
		if (note.cookie)
			n = add_note(out, n, &note);
		t->data_tail = t->sent[i % RING_SLOTS].data_end;
	}
	atomic_store_explicit(&t->taken, i, memory_order_relaxed);
	/* Nothing is on its way: begin again where the caches are warm. */
	if (i == t->head)
		t->data_head = t->data_tail = 0;
	return n;
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

static uint32_t off_of(const struct ring_slot *s)
{
	return s->place & ((1u << RING_BY_REF_SHIFT) - 1);
}

static bool is_sound(const struct ring_slot *s)
{
	if (s->hdr_len < BTH_LEN || s->hdr_len > RING_BYTES || s->path >= RING_PATHS)
		return false;
	return s->hdr_len + s->len <= RING_BYTES ||
	       (s->len <= RING_PAYLOAD_MAX && off_of(s) <= (uint32_t)RING_DATA - s->len);
}

/* Copies the list of places; false: it is none. */
static bool take_refs(struct ring_rx *x, struct frame_in *in)
{
	const uint8_t *from = in->payload_ext ? in->payload_ext : in->bytes + in->head_len;
	uint32_t size = in->len - in->head_len;

	in->nrefs = (uint8_t)(size / sizeof(x->refs[0]));
	if (!size || size > sizeof(x->refs) || size % sizeof(x->refs[0]))
		return false;
	memcpy(x->refs, from, size);
	in->refs = x->refs;
	in->ref_len = 0;
	for (unsigned i = 0; i < in->nrefs; i++)
		in->ref_len += x->refs[i].len;
	return true;
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
	if (s->path & RING_ACK)
		x->ack = s->ack;
	s->path &= (uint8_t)~RING_ACK;
	if (!is_sound(s) || !may_use(x, s->path, allow, arg))
		return -1;
	p = &x->path[s->path];
	memcpy(in->sgid, p, FRAME_ADDRESS); /* all of it, which lies there in the same order */
	in->grh = &p->grh;
	in->handed = false;
	in->local = true;
	in->place = next;
	in->bytes = s->bytes;
	in->len = s->hdr_len + s->len;
	in->head_len = s->hdr_len;
	in->payload_ext = in->len > RING_BYTES ? x->ring->data + off_of(s) : NULL;
	in->by_ref = (uint8_t)(s->place >> RING_BY_REF_SHIFT);
	return !in->by_ref || take_refs(x, in) ? 1 : -1;
}

bool ring_ahead(const struct ring_rx *x, uint32_t i, struct frame_ahead *out)
{
	uint32_t at = atomic_load_explicit(&x->next, memory_order_relaxed) + i;
	const struct ring_slot *there = &x->ring->slot[at % RING_SLOTS];
	struct ring_slot s;

	if (atomic_load_explicit(&there->stamp, memory_order_acquire) != at + 1)
		return false;
	memcpy(&s, there, sizeof(s));
	s.path &= (uint8_t)~RING_ACK;
	if (!is_sound(&s) || s.path != x->slot.path || !(s.place >> RING_BY_REF_SHIFT) ||
		s.len != sizeof(out->ref) || s.hdr_len + s.len > RING_BYTES)
		return false;
	out->dqpn = bth_dqpn(s.bytes);
	out->opcode = bth_opcode(s.bytes);
	memcpy(&out->ref, s.bytes + s.hdr_len, sizeof(out->ref));
	return true;
}

void ring_took(struct ring_rx *x, bool executed)
{
	uint32_t next = atomic_load_explicit(&x->next, memory_order_relaxed), i = (next - 1) % RING_SLOTS;
	uint64_t bit = 1ull << i % 64, *word = &x->refused[i / 64];

	if (!(*word & bit) != executed) {
		*word ^= bit;
		atomic_store_explicit(&x->ring->refused[i / 64], *word, memory_order_relaxed);
	}
	atomic_store_explicit(&x->done, next, memory_order_release);
}

void ring_publish(struct ring_rx *x)
{
	x->published = atomic_load_explicit(&x->done, memory_order_relaxed);
	atomic_store_explicit(&x->ring->taken, x->published, memory_order_release);
}

void ring_publish_aside(struct ring_rx *x)
{
	uint32_t done = atomic_load_explicit(&x->done, memory_order_acquire),
		 taken = atomic_load_explicit(&x->ring->taken, memory_order_relaxed);

	while ((int32_t)(done - taken) > 0 && !atomic_compare_exchange_weak_explicit(&x->ring->taken, &taken,
						      done, memory_order_release, memory_order_relaxed))
		;
}
