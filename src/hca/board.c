/* SPDX-License-Identifier: MIT */
#include "hca/board.h"

#include "hca/adapter.h"
#include "hca/mr.h"
#include "hca/qp.h"

#include <string.h>

/* The first of the places that an id may have in a table of n. */
static unsigned home(uint32_t id, unsigned n)
{
	return (id * 0x9e3779b1u >> 8) % (n / BOARD_WAYS) * BOARD_WAYS;
}

/*
 * Both kinds of entry begin with a sequence number and an id. Writing: odd, contents, even. Entries are whole
 * lines of plain words; what a reader copies while they change is thrown away.
 */
struct entry {
	_Atomic uint32_t seq, id;
	uint64_t rest[7];
};

static struct entry *find(const struct entry *table, unsigned n, uint32_t id)
{
	const struct entry *e = table + home(id, n);

	for (unsigned i = 0; i < BOARD_WAYS; i++) {
		if (atomic_load_explicit(&e[i].id, memory_order_relaxed) == id)
			return (struct entry *)&e[i];
	}
	return NULL;
}

/* The place that the id has or could have. */
static struct entry *place(struct entry *table, unsigned n, uint32_t id)
{
	struct entry *e = find(table, n, id);

	if (e)
		return e;
	e = table + home(id, n);
	for (unsigned i = 0; i < BOARD_WAYS; i++) {
		if (!atomic_load_explicit(&e[i].id, memory_order_relaxed))
			return &e[i];
	}
	return NULL;
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
		if (!(seq & 1) && atomic_load_explicit(&e->seq, memory_order_relaxed) == seq)
			return out->id == id;
	}
	return false; /* it changes all the time, or its owner died in the middle */
}

static bool look(const struct entry *table, unsigned n, uint32_t id, void *out)
{
	const struct entry *e = id ? find(table, n, id) : NULL;

	return e && read_entry(e, id, out);
}

/* Writes the entry, or (NULL) takes it away. */
static void set(struct hca_adapter *a, struct entry *table, unsigned n, uint32_t id, const void *entry)
{
	static const uint64_t nothing[7];
	struct entry *e;

	lock_take(&a->board_lock);
	e = entry ? place(table, n, id) : find(table, n, id);
	if (e)
		write_entry(e, entry ? id : 0, entry ? ((const struct entry *)entry)->rest : nothing);
	atomic_fetch_add(&a->board->changes, 1); /* last: who has seen it looks anew */
	lock_drop(&a->board_lock);
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
		.access = k->access,
		.iova = k->iova,
		.length = k->length,
		.host = (uintptr_t)k->host,
		.map_host = k->run.start,
		.map_off = k->run.off,
		.map_len = k->run.len};

	if (a->board && k->kind == KEY_MR)
		set(a, (struct entry *)a->board->key, BOARD_KEYS, k->key, &e);
}

void hca_board_hide_key(struct hca_adapter *a, uint32_t key)
{
	if (a->board)
		set(a, (struct entry *)a->board->key, BOARD_KEYS, key, NULL);
}

bool hca_board_find_key(const struct hca_board *b, uint32_t key, struct hca_board_key *out)
{
	return look((const struct entry *)b->key, BOARD_KEYS, key, out);
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
		.access = qp->attr.qp_access_flags};

	qp->seen.number = 0; /* its peer may be another one now */
	if (!qp->attr.max_dest_rd_atomic)
		e.access &= ~(unsigned)(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC); /* refused */
	if (!a->board || hca_qp_type(qp) != IBV_QPT_RC)
		return;
	memcpy(e.peer_gid, qp->dest.dgid, 16);
	memcpy(e.gid, qp->dest.sgid, 16);
	set(a, (struct entry *)a->board->qp, BOARD_QPS, hca_qpn(qp), takes_requests(qp) ? &e : NULL);
}

bool hca_board_find_qp(const struct hca_board *b, uint32_t qpn, struct hca_board_qp *out)
{
	return look((const struct entry *)b->qp, BOARD_QPS, qpn, out);
}
