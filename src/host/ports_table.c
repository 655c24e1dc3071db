/* SPDX-License-Identifier: MIT */
#include "host/ports_table.h"

#include "base/gid.h"
#include "wire/qpn.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

enum { MAGIC = 0x70726f63 };

/*
 * The word:  generation(18) | used listening reuse afonly v6 (5) | slot(9) | port space(16) | port(16)
 */
enum { AT_PORT = 0, AT_PS = 16, AT_SLOT = 32, AT_FLAGS = 41, AT_GENERATION = 46 };
#define V6        (1ull << AT_FLAGS)
#define AFONLY    (2ull << AT_FLAGS)
#define REUSE     (4ull << AT_FLAGS)
#define LISTENING (8ull << AT_FLAGS)
#define USED      (16ull << AT_FLAGS)

static_assert(sizeof(struct ports_entry) == 32, "it lies in a file");
static_assert(offsetof(struct ports_table, processes) == 0, "readers look for them there");
static_assert(QPN_SLOTS == 1 << (AT_FLAGS - AT_SLOT), "a slot fits");

static void mark(struct ports_table *t, uint32_t i)
{
	t->changed[i / 64] |= 1ull << i % 64;
}

static uint64_t pack(const struct host_port_claim *c)
{
	return USED | (uint64_t)c->port << AT_PORT | (uint64_t)c->ps << AT_PS |
	       (uint64_t)(c->slot % QPN_SLOTS) << AT_SLOT | (c->v6 ? V6 : 0) | (c->afonly ? AFONLY : 0) |
	       (c->reuse ? REUSE : 0) | (c->listening ? LISTENING : 0);
}

static struct host_port_claim unpack(uint64_t head)
{
	return (struct host_port_claim){
		.port = (uint16_t)(head >> AT_PORT),
		.ps = (uint16_t)(head >> AT_PS),
		.slot = head >> AT_SLOT & (QPN_SLOTS - 1),
		.v6 = head & V6,
		.afonly = head & AFONLY,
		.reuse = head & REUSE,
		.listening = head & LISTENING,
	};
}

static host_port_id id_of(uint32_t i, uint64_t head)
{
	return head >> AT_GENERATION << 32 | (i + 1);
}

/* The entry with this name, and its word; NULL when it is another claim's by now. */
static struct ports_entry *find(struct ports_table *t, host_port_id id, uint64_t *head)
{
	uint32_t i = (uint32_t)id - 1;

	if (i >= PORTS_MAX)
		return NULL;
	*head = t->entry[i].head;
	return *head & USED && id_of(i, *head) == id ? &t->entry[i] : NULL;
}

bool ports_header_is_whole(const struct ports_header *h, uint32_t entries)
{
	return h->magic == MAGIC && h->used <= PORTS_MAX && h->used <= entries;
}

void ports_table_clear(struct ports_table *t)
{
	memset(t->entry, 0, ports_table_count(t) * sizeof(t->entry[0]));
	memset(t->changed, 0, sizeof(t->changed));
	memset(&t->h, 0, sizeof(t->h));
	t->h.magic = MAGIC;
}

uint32_t ports_table_count(const struct ports_table *t)
{
	return t->h.used < PORTS_MAX ? t->h.used : PORTS_MAX;
}

bool ports_entry_get(const struct ports_entry *e, uint32_t i, struct host_port_claim *c, host_port_id *id)
{
	if (!(e->head & USED))
		return false;
	*c = unpack(e->head);
	memcpy(c->addr, e->addr, 16);
	c->host = e->host;
	*id = id_of(i, e->head);
	return true;
}

bool ports_table_get(const struct ports_table *t, uint32_t i, struct host_port_claim *c, host_port_id *id)
{
	return ports_entry_get(&t->entry[i], i, c, id);
}

/* ---- the rules ---- */
static bool is_any(const struct host_port_claim *c)
{
	static const uint8_t zero[16];

	return !memcmp(c->addr, zero, 16);
}

int ports_conflict(const struct host_port_claim *a, const struct host_port_claim *b, bool reuse)
{
	if (a->ps != b->ps || a->port != b->port || a->host != b->host)
		return 0;
	if (reuse && b->reuse)
		return 0;
	if (a->afonly && b->afonly && a->v6 != b->v6)
		return 0;
	if (is_any(a) || is_any(b))
		return -EADDRNOTAVAIL;
	return a->v6 == b->v6 && !memcmp(a->addr, b->addr, 16) ? -EADDRINUSE : 0;
}

int ports_table_allows(struct ports_table *t, const struct host_port_claim *c, host_port_id self, bool reuse,
	bool (*alive)(void *arg, uint32_t slot), void *arg)
{
	uint64_t space = pack(c) & UINT32_MAX;
	uint32_t n = ports_table_count(t);

	for (uint32_t i = 0; i < n; i++) {
		struct host_port_claim other;
		host_port_id id;
		int err;

		if ((t->entry[i].head & UINT32_MAX) != space || !ports_table_get(t, i, &other, &id) ||
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
		uint64_t head = t->entry[i].head;
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
static bool is_for(const struct host_port_claim *c, const uint8_t dgid[16], bool v6)
{
	if (is_any(c))
		return !c->afonly || c->v6 == v6;
	return c->v6 == v6 && !memcmp(c->addr, dgid, 16);
}

bool ports_entry_listens(const struct ports_entry *e, uint16_t ps, const uint8_t dgid[16], uint16_t port)
{
	struct host_port_claim c;
	host_port_id id;

	return (e->head & UINT32_MAX) == ((uint32_t)ps << AT_PS | port) && ports_entry_get(e, 0, &c, &id) &&
	       !c.host && c.listening && is_for(&c, dgid, !gid_is_v4(dgid));
}

uint32_t ports_table_owner(const struct ports_table *t, uint16_t ps, const uint8_t dgid[16], uint16_t port)
{
	uint32_t n = ports_table_count(t);

	for (uint32_t i = 0; i < n; i++) {
		if (ports_entry_listens(&t->entry[i], ps, dgid, port))
			return unpack(t->entry[i].head).slot;
	}
	return 0;
}

/* ---- changing it ---- */
host_port_id ports_table_add(struct ports_table *t, const struct host_port_claim *c, uint32_t room)
{
	uint32_t n = ports_table_count(t);

	for (uint32_t i = 0; i < room && i < PORTS_MAX; i++) {
		struct ports_entry *e = &t->entry[i];

		if (i < n && e->head & USED)
			continue;
		if (i >= n)
			t->h.used = i + 1;
		e->head = pack(c) | ((e->head >> AT_GENERATION) + 1) << AT_GENERATION;
		memcpy(e->addr, c->addr, 16);
		e->pid = (uint32_t)getpid();
		e->host = c->host;
		mark(t, i);
		return id_of(i, e->head);
	}
	return 0;
}

bool ports_table_listen(struct ports_table *t, host_port_id id)
{
	uint64_t head;
	struct ports_entry *e = find(t, id, &head);

	if (!e)
		return false;
	e->head = (head | LISTENING) & ~REUSE;
	mark(t, (uint32_t)id - 1);
	return true;
}

void ports_entry_free(struct ports_entry *e)
{
	e->head = e->head >> AT_GENERATION << AT_GENERATION;
}

void ports_table_drop(struct ports_table *t, host_port_id id, uint32_t slot)
{
	uint64_t head;
	struct ports_entry *e = find(t, id, &head);

	if (!e || unpack(head).slot != slot)
		return;
	ports_entry_free(e);
	mark(t, (uint32_t)id - 1);
}

void ports_table_trim(struct ports_table *t)
{
	uint32_t n = ports_table_count(t);

	while (n && !(t->entry[n - 1].head & USED))
		n--;
	t->h.used = n;
}
