/* SPDX-License-Identifier: MIT */
#include "local/copy.h"

#include "base/fence.h"
#include "base/guard.h"
#include "local/revocable.h"
#include "local/walk.h"

#include <string.h>

/* ---- all of it, in the order in which it goes ---- */
typedef void part_fn(struct local_job *job, char *at, char *own, size_t len);

static inline void each_part(struct local_job *job, part_fn *fn)
{
	char *at = job->at;

	if (job->n == 1 && walk_turns(job->back, job->len)) {
		struct walk_piece w[WALK_PIECES];
		unsigned n = walk_back(job->len, w);

		for (unsigned i = 0; i < n; i++)
			fn(job, at + w[i].off, (char *)job->own[0].iov_base + w[i].off, w[i].len);
		return;
	}
	for (unsigned i = 0; i < job->n; i++) {
		fn(job, at, job->own[i].iov_base, job->own[i].iov_len);
		at += job->own[i].iov_len;
	}
}

/* ---- into the peer's memory: as long as it lets us ---- */
/* Up to eight bytes of one aligned word. */
static bool store(const _Atomic uint32_t *revoked, char *to, const char *from, size_t len)
{
	uint64_t word;

	if (len == 8) {
		memcpy(&word, from, 8);
		return revocable_store(revoked, (uint64_t *)to, word);
	}
	for (size_t i = 0; i < len; i++) {
		if (!revocable_store_byte(revoked, to + i, from[i]))
			return false;
	}
	return true;
}

/* All but the last word first. */
static bool write_piece(const _Atomic uint32_t *revoked, char *to, const char *from, size_t len)
{
	size_t word = ((uintptr_t)to + len - 1) % 8 + 1;

	if (word >= len)
		return store(revoked, to, from, len);
	return revocable_copy(revoked, to, from, len - word) &&
	       store(revoked, to + len - word, from + len - word, word);
}

static void write_part(struct local_job *job, char *at, char *own, size_t len)
{
	if (job->allowed)
		job->allowed = write_piece(job->revoked, at, own, len);
}

static void write_all(void *arg)
{
	each_part(arg, write_part);
}

/* ---- out of it ---- */
static void read_part(struct local_job *job, char *at, char *own, size_t len)
{
	(void)job;
	memcpy(own, at, len);
}

static void read_all(void *arg)
{
	each_part(arg, read_part);
	fence_acquire(); /* the next one reads later */
}

/* All but the last line first, since whole lines are copied fastest, then that, and of that the last word. */
static void place_piece(char *to, const char *from, size_t len)
{
	size_t line = ((uintptr_t)to + len - 1) % 64 + 1, word = ((uintptr_t)to + len - 1) % 8 + 1, done = 0;

	if (line < len) {
		done = len - line;
		memcpy(to, from, done);
	}
	if (word < len - done) {
		memcpy(to + done, from + done, len - word - done);
		done = len - word;
	}
	for (; done < len; done++)
		__atomic_store_n(to + done, from[done], __ATOMIC_RELEASE);
}

static void place_part(struct local_job *job, char *at, char *own, size_t len)
{
	(void)job;
	place_piece(own, at, len);
}

static void place_all(void *arg)
{
	each_part(arg, place_part);
}

bool local_place(struct local_job *job)
{
	return guard_run(place_all, job);
}

bool local_write(struct local_job *job)
{
	job->allowed = true;
	return guard_run(write_all, job) && job->allowed;
}

bool local_read(struct local_job *job)
{
	return guard_run(read_all, job);
}

/* ---- atomics ---- */
struct op {
	const struct local_job *job;
	uint64_t original;
	bool allowed;
};

/* Whether the result can be put down, before anything has happened. */
static void touch(void *arg)
{
	const struct local_job *job = ((struct op *)arg)->job;

	for (unsigned i = 0; i < job->n; i++) {
		char *first = job->own[i].iov_base;

		__atomic_fetch_or(first, 0, __ATOMIC_RELAXED);
		__atomic_fetch_or(first + job->own[i].iov_len - 1, 0, __ATOMIC_RELAXED);
	}
}

static void execute(void *arg)
{
	struct op *o = arg;
	const struct hca_send_wqe *w = o->job->wqe;
	uint64_t *at = (uint64_t *)o->job->at;

	o->original = w->remote.compare_add;
	if (w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		o->allowed = revocable_fetch_add(o->job->revoked, at, w->remote.compare_add, &o->original);
	else
		o->allowed = revocable_compare_swap(o->job->revoked, at, &o->original, w->remote.swap);
}

static void put_down(void *arg)
{
	struct op *o = arg;
	const char *from = (char *)&o->original;

	for (unsigned i = 0; i < o->job->n; i++) {
		memcpy(o->job->own[i].iov_base, from, o->job->own[i].iov_len);
		from += o->job->own[i].iov_len;
	}
}

bool local_atomic(struct local_job *job)
{
	struct op o = {.job = job};

	if ((uintptr_t)job->at % 8 || !guard_run(touch, &o) || !guard_run(execute, &o) || !o.allowed)
		return false;
	guard_run(put_down, &o); /* if it is gone since: nobody waits for it */
	return true;
}
