/* SPDX-License-Identifier: MIT */
#include "fabric/trunk.h"

#include "base/fence.h"

#include <stddef.h>
#include <string.h>

static uint32_t room_of(uint32_t len)
{
	return (uint32_t)sizeof(struct trunk_packet) + ((len + TRUNK_LINE - 1) & ~(uint32_t)(TRUNK_LINE - 1));
}

/* ---- writing ---- */
static bool has_room(struct trunk_tx *t, uint32_t bytes)
{
	if (t->head + bytes - t->tail <= TRUNK_DATA)
		return true;
	t->tail = atomic_load_explicit(&t->ring->tail, memory_order_acquire);
	return t->head - t->tail <= TRUNK_DATA && t->head + bytes - t->tail <= TRUNK_DATA;
}

struct trunk_packet *trunk_reserve(struct trunk_tx *t, uint32_t len)
{
	uint32_t size = room_of(len), at = (uint32_t)(t->head % TRUNK_DATA), skip = 0;

	if (at + size > TRUNK_DATA)
		skip = TRUNK_DATA - at;
	if (len > TRUNK_BYTES_MAX || !has_room(t, skip + size))
		return NULL;
	if (skip) {
		((struct trunk_packet *)(t->ring->data + at))->len = TRUNK_SKIP;
		t->head += skip;
	}
	return (struct trunk_packet *)(t->ring->data + t->head % TRUNK_DATA);
}

void trunk_commit(struct trunk_tx *t, const struct trunk_packet *p, uint32_t len)
{
	struct trunk_packet *to = (struct trunk_packet *)(t->ring->data + t->head % TRUNK_DATA);

	*to = *p;
	to->len = len;
	t->head += room_of(len);
	atomic_store_explicit(&t->ring->head, t->head, memory_order_release);
}

bool trunk_must_ring(struct trunk_tx *t)
{
	fence_full(); /* the head before the look: a reader says that it sleeps before it looks at the head */
	return atomic_load_explicit(&t->ring->asleep, memory_order_relaxed) &&
	       atomic_exchange_explicit(&t->ring->asleep, 0, memory_order_relaxed);
}

/* ---- reading ---- */
static bool is_sound(uint64_t tail, uint64_t head, uint32_t len)
{
	uint32_t at = (uint32_t)(tail % TRUNK_DATA);

	return len <= TRUNK_BYTES_MAX && at + room_of(len) <= TRUNK_DATA && tail + room_of(len) <= head;
}

int trunk_take(struct trunk_rx *r, struct trunk_packet *p, uint8_t **bytes)
{
	uint64_t head = atomic_load_explicit(&r->ring->head, memory_order_acquire),
		 tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	uint32_t at = (uint32_t)(tail % TRUNK_DATA);

	if (head == tail)
		return 0;
	if (head - tail > TRUNK_DATA || head % TRUNK_LINE)
		return -1;
	memcpy(p, r->ring->data + at, sizeof(*p));
	if (p->len == TRUNK_SKIP && at) {
		tail += TRUNK_DATA - at;
		if (head - tail > TRUNK_DATA || head == tail)
			return -1;
		memcpy(p, r->ring->data, sizeof(*p));
	}
	if (!is_sound(tail, head, p->len))
		return -1;
	atomic_store_explicit(&r->tail, tail, memory_order_relaxed);
	*bytes = r->ring->data + tail % TRUNK_DATA + sizeof(*p);
	r->taken = room_of(p->len);
	return 1;
}

void trunk_done(struct trunk_rx *r)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed) + r->taken;

	atomic_store_explicit(&r->tail, tail, memory_order_relaxed);
	atomic_store_explicit(&r->ring->tail, tail, memory_order_release);
}

bool trunk_sleep(struct trunk_rx *r)
{
	atomic_store_explicit(&r->ring->asleep, 1, memory_order_relaxed);
	fence_full();
	return !trunk_has_packet(r);
}
