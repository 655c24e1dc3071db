/* SPDX-License-Identifier: MIT */
#include "local/export/export.h"

#include "local/pages/shareable.h"

/*
 * All kinds of entry begin with a sequence number and an id. Writing: odd, contents, even. Entries are whole
 * lines of plain words; what a reader copies while they change is thrown away.
 */
struct entry {
	_Atomic uint32_t seq, id;
	uint64_t rest[7];
};

/* A table of `levels`, of which the first has `n` entries. */
struct table {
	struct entry *entry;
	unsigned n, levels;
};

/* The entry with this id among the places that `of` may have in a level. */
static struct entry *find_in(const struct table *t, unsigned level, uint32_t of, uint32_t id)
{
	unsigned sets = (t->n << 2 * level) / EXPORT_WAYS;
	struct entry *e =
		t->entry + EXPORT_ENTRIES(t->n, level) + (of * 0x9e3779b1u >> 8) % sets * EXPORT_WAYS;

	for (unsigned i = 0; i < EXPORT_WAYS; i++) {
		if (atomic_load_explicit(&e[i].id, memory_order_relaxed) == id)
			return &e[i];
	}
	return NULL;
}

static struct entry *find(const struct table *t, uint32_t id)
{
	struct entry *e = NULL;

	for (unsigned level = 0; level < t->levels && !e; level++)
		e = find_in(t, level, id, id);
	return e;
}

/* The place that the id has or could have; more levels are taken into use for it, up to `most`. */
static struct entry *place(struct table *t, uint32_t id, unsigned most)
{
	struct entry *e = find(t, id);

	for (unsigned level = 0; level < most && !e; level++) {
		e = find_in(t, level, id, 0);
		if (e && t->levels <= level)
			t->levels = level + 1;
	}
	return e;
}

static void write_entry(struct entry *e, uint32_t id, const uint64_t rest[7])
{
	uint32_t seq = atomic_load_explicit(&e->seq, memory_order_relaxed);

	/* Who sees any of the new contents also sees that they are new. */
	atomic_store_explicit(&e->seq, seq + 1, memory_order_relaxed);
	atomic_store_explicit(&e->id, id, memory_order_release);
	for (unsigned i = 0; i < 7; i++)
		__atomic_store_n(&e->rest[i], rest[i], __ATOMIC_RELEASE);
	atomic_store_explicit(&e->seq, seq + 2, memory_order_release);
}

static bool read_entry(const struct entry *e, uint32_t id, struct entry *out)
{
	enum { TRIES = 100 };

	for (int i = 0; i < TRIES; i++) {
		uint32_t seq = atomic_load_explicit(&e->seq, memory_order_acquire);

		for (unsigned k = 0; k < 7; k++)
			out->rest[k] = __atomic_load_n(&e->rest[k], __ATOMIC_ACQUIRE);
		out->id = atomic_load_explicit(&e->id, memory_order_acquire);
		if (!(seq & 1) && atomic_load_explicit(&e->seq, memory_order_relaxed) == seq) {
			atomic_store_explicit(&out->seq, seq, memory_order_relaxed);
			return out->id == id;
		}
	}
	return false; /* it changes all the time, or its owner died in the middle */
}

static bool look(const struct table *t, uint32_t id, void *out)
{
	const struct entry *e = id ? find(t, id) : NULL;

	return e && read_entry(e, id, out);
}

static unsigned levels_in_use(const _Atomic uint32_t *levels, unsigned most)
{
	unsigned n = atomic_load_explicit(levels, memory_order_acquire);

	return n < most ? n : most; /* it may be another's, who says what it likes */
}

static struct table keys_of(const struct local_export *b)
{
	return (struct table){
		(struct entry *)b->key, EXPORT_KEYS, levels_in_use(&b->key_levels, EXPORT_KEY_LEVELS)};
}

static struct table qps_of(const struct local_export *b)
{
	return (struct table){
		(struct entry *)b->qp, EXPORT_QPS, levels_in_use(&b->qp_levels, EXPORT_QP_LEVELS)};
}

static const uint64_t nothing[7];

/* Writes the entry, or (NULL) takes it away. x->lock held. */
static void set(struct table *t, unsigned most, _Atomic uint32_t *levels, uint32_t id, const void *entry)
{
	struct entry *e = entry ? place(t, id, most) : find(t, id);

	if (e)
		write_entry(e, entry ? id : 0, entry ? ((const struct entry *)entry)->rest : nothing);
	atomic_store_explicit(levels, t->levels, memory_order_release);
}

/* Last: who has seen it looks anew. */
static void changed(struct local_exporter *x)
{
	atomic_fetch_add(&x->table->changes, 1);
	lock_drop(&x->lock);
}

void local_export_begin(struct local_exporter *x)
{
	pthread_mutexattr_t attr;

	if (!x->table)
		return;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&x->table->life, &attr);
	pthread_mutexattr_destroy(&attr);
	pthread_mutex_lock(&x->table->life);
}

void local_export_end(struct local_exporter *x)
{
	if (x->table)
		pthread_mutex_unlock(&x->table->life);
}

/* ---- keys ---- */
void local_export_set_key(struct local_exporter *x, uint32_t key, const struct local_export_key *k)
{
	struct table t;

	if (!x->table)
		return;
	lock_take(&x->lock);
	t = keys_of(x->table);
	set(&t, EXPORT_KEY_LEVELS, &x->table->key_levels, key, k);
	changed(x);
}

bool local_export_find_key(const struct local_export *b, uint32_t key, struct local_export_key *out)
{
	struct table t = keys_of(b);

	return look(&t, key, out);
}

/* ---- files ---- */
void local_export_set_file(struct local_exporter *x, unsigned place, const struct shared_file *f)
{
	struct local_export_file e = {.fd = 0};

	if (!x->table)
		return;
	if (f) {
		e.fd = f->fd;
		e.dev = f->dev;
		e.inode = f->inode;
	}
	lock_take(&x->lock);
	write_entry((struct entry *)&x->table->file[place], f ? place + 1 : 0,
		((const struct entry *)(const void *)&e)->rest);
	changed(x);
}

bool local_export_find_file(const struct local_export *b, uint16_t number, struct shared_file *out)
{
	struct local_export_file e;

	if (!number || number > EXPORT_FILES ||
		!read_entry((const struct entry *)&b->file[number - 1], number, (struct entry *)&e))
		return false;
	*out = (struct shared_file){.fd = e.fd, .dev = e.dev, .inode = e.inode};
	return true;
}

/* ---- QPs ---- */
void local_export_set_qp(struct local_exporter *x, uint32_t qpn, const struct local_export_qp *qp)
{
	struct table t;

	if (!x->table)
		return;
	lock_take(&x->lock);
	t = qps_of(x->table);
	set(&t, EXPORT_QP_LEVELS, &x->table->qp_levels, qpn, qp);
	changed(x);
}

bool local_export_find_qp(const struct local_export *b, uint32_t qpn, struct local_export_qp *out)
{
	struct table t = qps_of(b);

	return look(&t, qpn, out);
}
