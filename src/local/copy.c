/* SPDX-License-Identifier: MIT */
#include "local/copy.h"

#include "base/fence.h"
#include "base/guard.h"

#include <string.h>

/* Up to eight bytes of one aligned word. */
static void store(char *to, const char *from, size_t len)
{
	uint64_t word;

	if (len == 8) {
		memcpy(&word, from, 8);
		__atomic_store_n((uint64_t *)to, word, __ATOMIC_RELEASE);
		return;
	}
	for (size_t i = 0; i < len; i++)
		__atomic_store_n(to + i, from[i], __ATOMIC_RELEASE);
}

/* All but the last line first, since whole lines are copied fastest, then that, and of that the last word. */
static void write_piece(char *to, const char *from, size_t len)
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
	store(to + done, from + done, len - done);
}

static void write_all(void *arg)
{
	const struct local_job *job = arg;
	char *to = job->at;

	for (unsigned i = 0; i < job->n; i++) {
		write_piece(to, job->own[i].iov_base, job->own[i].iov_len);
		to += job->own[i].iov_len;
	}
}

static void read_all(void *arg)
{
	const struct local_job *job = arg;
	const char *from = job->at;

	for (unsigned i = 0; i < job->n; i++) {
		memcpy(job->own[i].iov_base, from, job->own[i].iov_len);
		from += job->own[i].iov_len;
	}
	fence_acquire(); /* the next one reads later */
}

static void place_all(void *arg)
{
	const struct local_job *job = arg;
	const char *from = job->at;

	for (unsigned i = 0; i < job->n; i++) {
		write_piece(job->own[i].iov_base, from, job->own[i].iov_len);
		from += job->own[i].iov_len;
	}
}

bool local_place(const struct local_job *job)
{
	return guard_run(place_all, (void *)job);
}

bool local_write(const struct local_job *job)
{
	return guard_run(write_all, (void *)job);
}

bool local_read(const struct local_job *job)
{
	return guard_run(read_all, (void *)job);
}

/* ---- atomics ---- */
struct op {
	const struct local_job *job;
	uint64_t original;
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
		o->original = __atomic_fetch_add(at, w->remote.compare_add, __ATOMIC_SEQ_CST);
	else
		__atomic_compare_exchange_n(
			at, &o->original, w->remote.swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
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

bool local_atomic(const struct local_job *job)
{
	struct op o = {.job = job};

	if ((uintptr_t)job->at % 8 || !guard_run(touch, &o) || !guard_run(execute, &o))
		return false;
	guard_run(put_down, &o); /* if it is gone since: nobody waits for it */
	return true;
}
