/* SPDX-License-Identifier: MIT */
#include "hca/board.h"

#include "hca/adapter.h"
#include "hca/mr.h"
#include "hca/qp.h"
#include "local/pages/shareable.h"

#include <string.h>

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
	unsigned sets = (t->n << 2 * level) / BOARD_WAYS;
	struct entry *e = t->entry + BOARD_ENTRIES(t->n, level) + (of * 0x9e3779b1u >> 8) % sets * BOARD_WAYS;

	for (unsigned i = 0; i < BOARD_WAYS; i++) {
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

static struct table keys_of(const struct hca_board *b)
{
	return (struct table){
		(struct entry *)b->key, BOARD_KEYS, levels_in_use(&b->key_levels, BOARD_KEY_LEVELS)};
}

static struct table qps_of(const struct hca_board *b)
{
	return (struct table){
		(struct entry *)b->qp, BOARD_QPS, levels_in_use(&b->qp_levels, BOARD_QP_LEVELS)};
}

static const uint64_t nothing[7];

/* Writes the entry, or (NULL) takes it away. board_lock held. */
static void set(struct table *t, unsigned most, _Atomic uint32_t *levels, uint32_t id, const void *entry)
{
	struct entry *e = entry ? place(t, id, most) : find(t, id);

	if (e)
		write_entry(e, entry ? id : 0, entry ? ((const struct entry *)entry)->rest : nothing);
	atomic_store_explicit(levels, t->levels, memory_order_release);
}

/* Last: who has seen it looks anew. */
static void changed(struct hca_adapter *a)
{
	atomic_fetch_add(&a->board->changes, 1);
	lock_drop(&a->board_lock);
}

static void set_key(struct hca_adapter *a, uint32_t key, const void *entry)
{
	struct table t;

	lock_take(&a->board_lock);
	t = keys_of(a->board);
	set(&t, BOARD_KEY_LEVELS, &a->board->key_levels, key, entry);
	changed(a);
}

static void set_qp(struct hca_adapter *a, uint32_t qpn, const void *entry)
{
	struct table t;

	lock_take(&a->board_lock);
	t = qps_of(a->board);
	set(&t, BOARD_QP_LEVELS, &a->board->qp_levels, qpn, entry);
	changed(a);
}

void hca_board_begin(struct hca_adapter *a)
{
	pthread_mutexattr_t attr;

	if (!a->board)
		return;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&a->board->life, &attr);
	pthread_mutexattr_destroy(&attr);
	pthread_mutex_lock(&a->board->life);
}

void hca_board_end(struct hca_adapter *a)
{
	if (a->board)
		pthread_mutex_unlock(&a->board->life);
}

/* ---- keys ---- */
void hca_board_show_key(struct hca_adapter *a, const struct hca_key *k)
{
	struct hca_board_key e = {.pd = k->pd->number,
		.access = (uint16_t)k->access, /* the rights; what is optional lies above */
		.file = k->exported.file,
		.iova = k->iova,
		.length = k->length,
		.host = (uintptr_t)k->host,
		.map_host = k->exported.run.start,
		.map_off = k->exported.run.off,
		.map_len = k->exported.run.len};

	if (a->board && k->kind == KEY_MR)
		set_key(a, k->key, &e);
}

void hca_board_hide_key(struct hca_adapter *a, uint32_t key)
{
	if (a->board)
		set_key(a, key, NULL);
}

bool hca_board_find_key(const struct hca_board *b, uint32_t key, struct hca_board_key *out)
{
	struct table t = keys_of(b);

	return look(&t, key, out);
}

/* ---- files ---- */
void hca_board_show_file(struct hca_adapter *a, unsigned place, const struct shared_file *f)
{
	struct hca_board_file e = {.fd = 0};

	if (!a->board)
		return;
	if (f) {
		e.fd = f->fd;
		e.dev = f->dev;
		e.inode = f->inode;
	}
	lock_take(&a->board_lock);
	write_entry((struct entry *)&a->board->file[place], f ? place + 1 : 0,
		((const struct entry *)(const void *)&e)->rest);
	changed(a);
}

bool hca_board_find_file(const struct hca_board *b, uint16_t number, struct shared_file *out)
{
	struct hca_board_file e;

	if (!number || number > BOARD_FILES ||
		!read_entry((const struct entry *)&b->file[number - 1], number, (struct entry *)&e))
		return false;
	*out = (struct shared_file){.fd = e.fd, .dev = e.dev, .inode = e.inode};
	return true;
}

/* ---- QPs ---- */
/* In RTR the first request raises an event: the responder has to see that one. */
static bool takes_requests(const struct hca_qp *qp)
{
	enum ibv_qp_state s = hca_qp_state(qp);

	return qp->dest.local &&
	       (s == IBV_QPS_RTS || s == IBV_QPS_SQD || (s == IBV_QPS_RTR && qp->comm_est_raised));
}

void hca_board_show_qp(struct hca_adapter *a, struct hca_qp *qp)
{
	struct hca_board_qp e = {.peer_qpn = qp->attr.dest_qp_num,
		.peer_psn = qp->attr.rq_psn,
		.pd = qp->pd->number,
		.access = qp->attr.qp_access_flags,
		.life = qp->generation};

	assert_locked(&qp->lock);
	qp->seen.number = 0; /* its peer may be another one now */
	if (!qp->attr.max_dest_rd_atomic)
		e.access &= ~(unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC); /* refused */
	if (!a->board || !qp->service.reliable)
		return;
	memcpy(e.peer_gid, qp->dest.dgid, 16);
	memcpy(e.gid, qp->dest.sgid, 16);
	set_qp(a, hca_qpn(qp), takes_requests(qp) ? &e : NULL);
}

bool hca_board_find_qp(const struct hca_board *b, uint32_t qpn, struct hca_board_qp *out)
{
	struct table t = qps_of(b);

	return look(&t, qpn, out);
}
