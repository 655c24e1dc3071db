/* SPDX-License-Identifier: MIT */
#include "hca/ports_table.h"

#include "base/gid.h"
#include "wire/qpn.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 0x706f7274 };

/*
 * The word:  generation(18) | used listening reuse afonly v6 (5) | slot(9) | port space(16) | port(16)
 */
enum { AT_PORT = 0, AT_PS = 16, AT_SLOT = 32, AT_FLAGS = 41, AT_GENERATION = 46 };
#define V6        (1ull << AT_FLAGS)
#define AFONLY    (2ull << AT_FLAGS)
#define REUSE     (4ull << AT_FLAGS)
#define LISTENING (8ull << AT_FLAGS)
#define USED      (16ull << AT_FLAGS)

static_assert(sizeof(struct ports_entry) == 32, "entries lie in a file");
static_assert(QPN_SLOTS == 1 << (AT_FLAGS - AT_SLOT), "a slot fits");

static uint64_t pack(const struct hca_port_claim *c)
{
	return USED | (uint64_t)c->port << AT_PORT | (uint64_t)c->ps << AT_PS |
	       (uint64_t)(c->slot % QPN_SLOTS) << AT_SLOT | (c->v6 ? V6 : 0) | (c->afonly ? AFONLY : 0) |
	       (c->reuse ? REUSE : 0) | (c->listening ? LISTENING : 0);
}

static struct hca_port_claim unpack(uint64_t head)
{
	return (struct hca_port_claim){
		.port = (uint16_t)(head >> AT_PORT),
		.ps = (uint16_t)(head >> AT_PS),
		.slot = head >> AT_SLOT & (QPN_SLOTS - 1),
		.v6 = head & V6,
		.afonly = head & AFONLY,
		.reuse = head & REUSE,
		.listening = head & LISTENING,
	};
}

static hca_port_id id_of(uint32_t i, uint64_t head)
{
	return head >> AT_GENERATION << 32 | (i + 1);
}

/* The entry with this name, and its word; NULL when it is another claim's by now. */
static struct ports_entry *find(struct ports_table *t, hca_port_id id, uint64_t *head)
{
	uint32_t i = (uint32_t)id - 1;

	if (i >= PORTS_MAX)
		return NULL;
	*head = atomic_load(&t->entry[i].head);
	return *head & USED && id_of(i, *head) == id ? &t->entry[i] : NULL;
}

void ports_table_check(struct ports_table *t)
{
	uint32_t n = atomic_load(&t->magic) ? PORTS_MAX : ports_table_count(t); /* none: a new file */

	if (atomic_load(&t->magic) == MAGIC && atomic_load(&t->used) <= PORTS_MAX)
		return;
	for (uint32_t i = 0; i < n; i++)
		atomic_store(&t->entry[i].head, 0);
	atomic_store(&t->used, 0);
	atomic_store(&t->magic, MAGIC);
}

uint32_t ports_table_count(const struct ports_table *t)
{
	uint32_t n = atomic_load_explicit(&t->used, memory_order_acquire);

	return n < PORTS_MAX ? n : PORTS_MAX;
}

static uint64_t head_of(const struct ports_table *t, uint32_t i)
{
	return atomic_load_explicit(&t->entry[i].head, memory_order_acquire);
}

/* The address that goes with this word; false: the claim was changed meanwhile. */
static bool read_addr(const struct ports_entry *e, uint64_t head, uint8_t addr[16])
{
	uint64_t a[2] = {atomic_load(&e->addr[0]), atomic_load(&e->addr[1])};

	memcpy(addr, a, sizeof(a));
	return atomic_load(&e->head) == head;
}

bool ports_table_get(const struct ports_table *t, uint32_t i, struct hca_port_claim *c, hca_port_id *id)
{
	uint64_t head = head_of(t, i);

	if (!(head & USED))
		return false;
	*c = unpack(head);
	*id = id_of(i, head);
	return read_addr(&t->entry[i], head, c->addr);
}

/* ---- the rules ---- */
static bool is_any(const struct hca_port_claim *c)
{
	static const uint8_t zero[16];

	return !memcmp(c->addr, zero, 16);
}

int ports_conflict(const struct hca_port_claim *a, const struct hca_port_claim *b, bool reuse)
{
	if (a->ps != b->ps || a->port != b->port)
		return 0;
	if (reuse && b->reuse)
		return 0;
	if (a->afonly && b->afonly && a->v6 != b->v6)
		return 0;
	if (is_any(a) || is_any(b))
		return -EADDRNOTAVAIL;
	return a->v6 == b->v6 && !memcmp(a->addr, b->addr, 16) ? -EADDRINUSE : 0;
}

int ports_table_allows(struct ports_table *t, const struct hca_port_claim *c, hca_port_id self, bool reuse,
	bool (*alive)(void *arg, uint32_t slot), void *arg)
{
	uint64_t space = pack(c) & UINT32_MAX;
	uint32_t n = ports_table_count(t);

	for (uint32_t i = 0; i < n; i++) {
		struct hca_port_claim other;
		hca_port_id id;
		int err;

		if ((head_of(t, i) & UINT32_MAX) != space || !ports_table_get(t, i, &other, &id) ||
			id == self)
			continue;
		err = ports_conflict(c, &other, reuse);
		if (!err)
			continue;
		if (alive(arg, other.slot))
			return err;
		ports_table_drop(t, id, other.slot);
	}
	return 0;
}

uint16_t ports_table_pick(
	const struct ports_table *t, uint16_t ps, uint16_t low, uint16_t high, uint32_t start)
{
	uint64_t taken[65536 / 64] = {0};
	uint32_t n = ports_table_count(t), range = high >= low ? high - low + 1u : 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t head = head_of(t, i);
		uint16_t port = (uint16_t)(head >> AT_PORT);

		if (head & USED && (uint16_t)(head >> AT_PS) == ps)
			taken[port / 64] |= 1ull << port % 64;
	}
	taken[0] |= 1; /* no port */
	for (uint32_t i = 0; i < range; i++) {
		uint16_t port = (uint16_t)(low + (start % range + i) % range);

		if (!(taken[port / 64] >> port % 64 & 1))
			return port;
	}
	return 0;
}

/* A request to this address, of this family, is the claim's. */
static bool is_for(const struct hca_port_claim *c, const uint8_t dgid[16], bool v6)
{
	if (is_any(c))
		return !c->afonly || c->v6 == v6;
	return c->v6 == v6 && !memcmp(c->addr, dgid, 16);
}

uint32_t ports_table_owner(const struct ports_table *t, uint16_t ps, const uint8_t dgid[16], uint16_t port)
{
	bool v6 = !gid_is_v4(dgid);
	uint32_t n = ports_table_count(t);

	for (uint32_t i = 0; i < n; i++) {
		struct hca_port_claim c;
		hca_port_id id;

		if ((head_of(t, i) & UINT32_MAX) == ((uint32_t)ps << AT_PS | port) &&
			ports_table_get(t, i, &c, &id) && c.listening && is_for(&c, dgid, v6))
			return c.slot;
	}
	return 0;
}

/* ---- changing it ---- */
/* Takes a free entry; false: somebody was faster. */
static bool take(struct ports_entry *e, const struct hca_port_claim *c, uint64_t head)
{
	uint64_t next = pack(c) | ((head >> AT_GENERATION) + 1) << AT_GENERATION, a[2];

	if (head & USED)
		return false;
	memcpy(a, c->addr, sizeof(a));
	atomic_store(&e->addr[0], a[0]);
	atomic_store(&e->addr[1], a[1]);
	atomic_store(&e->pid, (uint64_t)getpid());
	return atomic_compare_exchange_strong(&e->head, &head, next);
}

hca_port_id ports_table_add(struct ports_table *t, const struct hca_port_claim *c, uint32_t room)
{
	uint32_t n = ports_table_count(t);

	for (uint32_t i = 0; i < room && i < PORTS_MAX; i++) {
		if (i >= n)
			atomic_store(&t->used, i + 1); /* before: too high is no harm */
		if (take(&t->entry[i], c, atomic_load(&t->entry[i].head)))
			return id_of(i, atomic_load(&t->entry[i].head));
	}
	return 0;
}

bool ports_table_listen(struct ports_table *t, hca_port_id id)
{
	uint64_t head;
	struct ports_entry *e = find(t, id, &head);

	return e && atomic_compare_exchange_strong(&e->head, &head, (head | LISTENING) & ~REUSE);
}

void ports_table_drop(struct ports_table *t, hca_port_id id, uint32_t slot)
{
	uint64_t head;
	struct ports_entry *e = find(t, id, &head);

	if (e && unpack(head).slot == slot)
		atomic_compare_exchange_strong(&e->head, &head, head >> AT_GENERATION << AT_GENERATION);
}

void ports_table_trim(struct ports_table *t)
{
	uint32_t n = ports_table_count(t);

	while (n && !(head_of(t, n - 1) & USED))
		n--;
	atomic_store(&t->used, n);
}
