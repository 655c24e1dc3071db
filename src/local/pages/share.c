/* SPDX-License-Identifier: MIT */
#include "local/pages/share.h"

#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "local/pages/file.h"
#include "local/pages/freeze.h"
#include "local/pages/maps.h"
#include "local/pages/move.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	MAX_PIECES = 8192, /* a piece splits the program's mappings, of which it may have 65,530 */
	MAX_AREAS = 50000, /* then it has too many already */
	TRANSIENT = 3,     /* how often a region comes and goes before it stays where it is */
};

/* What was moved at once. `gone`: in a child, it is the parent's. */
struct piece {
	struct list node;
	uint64_t off;
	size_t len;
	unsigned users;
	bool gone;
};

struct share {
	uintptr_t start;
	size_t len;
	size_t n, room;
	struct piece **piece;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list pieces = {&pieces, &pieces};
static unsigned npieces;
static unsigned holders; /* of the file */

/* ---- whom it does not pay for ---- */
/* A region that is registered for every message would be copied twice for each: peers copy it once. */
static struct {
	uintptr_t start;
	size_t len;
	unsigned times;
} recent[64];

static unsigned *times_of(uintptr_t start, size_t len)
{
	unsigned i = (unsigned)(start / MEMORY_PAGE * 0x9e3779b1u >> 16) % 64;

	if (recent[i].start != start || recent[i].len != len) {
		recent[i].start = start;
		recent[i].len = len;
		recent[i].times = 0;
	}
	return &recent[i].times;
}

/* Strict accounting: a page of a file that cannot be had is a signal, of private memory it was paid before.
 */
static bool accounts_strictly(void)
{
	FILE *f = fopen("/proc/sys/vm/overcommit_memory", "re");
	int c = f ? fgetc(f) : '0';

	if (f)
		fclose(f);
	return c == '2';
}

/* ---- locked memory stays locked ---- */
static unsigned long locked_kib(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	unsigned long n = 0;
	char line[128];

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "VmLck: %lu", &n) != 1)
		;
	if (f)
		fclose(f);
	return n;
}

static void keep_locked(unsigned long before, void *at, size_t len)
{
	if (before && len && locked_kib() < before)
		mlock(at, len);
}

/* ---- pieces; lock held ---- */
/* Room for one more; before the piece is there, since afterwards there is no way back. */
static bool has_room(struct share *s)
{
	size_t room = s->room ? 2 * s->room : 4;
	struct piece **p;

	if (s->n < s->room)
		return true;
	p = realloc(s->piece, room * sizeof(*p));
	if (!p)
		return false;
	s->piece = p;
	s->room = room;
	return true;
}

static bool holds(const struct share *s, const struct piece *p)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->piece[i] == p)
			return true;
	}
	return false;
}

static void hold(struct share *s, struct piece *p)
{
	p->users++;
	s->piece[s->n++] = p;
}

/* Moves an area, or as much of it as can be. */
static struct piece *piece_new(struct freeze *f, struct area *a, int *err)
{
	struct piece *p = npieces < MAX_PIECES ? calloc(1, sizeof(*p)) : NULL;
	unsigned long locked = locked_kib();

	if (!p) {
		*err = -ENOMEM;
		return NULL;
	}
	a->off = p->off = memory_part(a->end - a->start);
	p->len = move_onto_file(f, (char *)a->start, a->end - a->start, p->off, err);
	keep_locked(locked, (void *)a->start, p->len);
	a->end = a->start + p->len;
	if (!p->len) {
		free(p);
		return NULL;
	}
	npieces++;
	list_add_tail(&pieces, &p->node);
	return p;
}

static bool meets(const struct piece *p, const struct area *a)
{
	return a->off < p->off + p->len && p->off < a->off + (a->end - a->start);
}

/* Another region has it on the file already. */
static bool hold_known(struct share *s, const struct area *a)
{
	list_for_each(n, &pieces)
	{
		struct piece *p = container_of(n, struct piece, node);

		if (!meets(p, a) || holds(s, p))
			continue;
		if (!has_room(s))
			return false;
		hold(s, p);
	}
	return true;
}

static void close_unused(void)
{
	if (!npieces && !holders)
		memory_forget();
}

static void forget(struct piece *p)
{
	list_del(&p->node);
	free(p);
	npieces--;
}

/* Where the program has it, or parts of it: it may have moved or unmapped some. */
static int bring_back(struct freeze *f, const struct piece *p, const struct areas *all)
{
	int err = 0;

	for (size_t i = 0; i < all->n && !err; i++) {
		struct area a = all->area[i];
		unsigned long locked;
		size_t done;

		if (!memory_has(&a) || !meets(p, &a))
			continue;
		if (a.off < p->off) {
			a.start += p->off - a.off;
			a.off = p->off;
		}
		if (a.off + (a.end - a.start) > p->off + p->len)
			a.end = a.start + (p->off + p->len - a.off);
		locked = locked_kib();
		done = move_back(f, (char *)a.start, a.end - a.start, a.off, a.prot, &err);
		keep_locked(locked, (void *)a.start, done);
	}
	return err;
}

/* ---- regions ---- */
struct taking {
	struct freeze freeze;
	bool ready; /* freeze is open */
	struct share *share;
	struct share_run run, longest;
	const char *why; /* not */
	int err;
};

static void add_run(struct taking *t, const struct area *a)
{
	size_t len = a->end - a->start;

	if (t->run.len && t->run.start + t->run.len == a->start && t->run.off + t->run.len == a->off)
		t->run.len += len;
	else
		t->run = (struct share_run){a->start, a->off, len};
	if (t->run.len > t->longest.len)
		t->longest = t->run;
}

/* Not without userfaultfd, also while there is no other thread: there may be some when the pages have to go
 * back. */
static void take_plain(struct taking *t, struct area *a)
{
	struct piece *p;

	if (!t->ready) {
		t->err = freeze_open(&t->freeze);
		if (t->err) {
			t->why = "other threads cannot be held back meanwhile";
			return;
		}
		t->ready = true;
	}
	p = has_room(t->share) ? piece_new(&t->freeze, a, &t->err) : NULL;
	if (t->err)
		t->why = "the kernel refuses";
	if (!p)
		return;
	hold(t->share, p);
	add_run(t, a);
}

static void take_area(struct taking *t, struct area *a)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	if (a->start >= a->end)
		return;
	if (memory_has(a)) {
		if (hold_known(t->share, a))
			add_run(t, a);
	} else if (!a->plain || (here >= a->start && here < a->end)) {
		t->why = "it is a stack, a file, shared, read-only or of huge pages";
	} else {
		take_plain(t, a);
	}
}

static const char *cannot(uintptr_t start, size_t len, const struct areas *a)
{
	int fd;

	if (a->all > MAX_AREAS)
		return "this process has too many mappings";
	if (*times_of(start, len) >= TRANSIENT)
		return "it comes and goes";
	if (accounts_strictly())
		return "this host accounts for memory strictly";
	if (maps_pinned())
		return "io_uring holds memory of this process";
	fd = memory_file();
	return fd < 0 ? fd_reason(-fd) : NULL;
}

static void take(struct taking *t, uintptr_t start, uintptr_t end)
{
	struct areas a;

	t->err = areas_read(&a, start, end);
	if (!t->err)
		t->why = cannot(start, end - start, &a);
	if (!t->err && !t->why) {
		t->share = calloc(1, sizeof(*t->share));
		for (size_t i = 0; t->share && i < a.n && !t->err; i++)
			take_area(t, &a.area[i]);
	}
	areas_free(&a);
	if (t->ready)
		freeze_close(&t->freeze);
	if (t->share) {
		t->share->start = start;
		t->share->len = end - start;
	}
}

static void share_free(struct share *s)
{
	free(s->piece);
	free(s);
}

static void say_why(const struct taking *t, size_t len)
{
	log_info("region of %zu bytes: peers cannot map %s of it: %s%s%s", len,
		t->longest.len ? "all" : "anything", t->why ? t->why : "no memory", t->err ? ", " : "",
		t->err ? fd_reason(-t->err) : "");
}

struct share *share_take(void *addr, size_t len, struct share_run *run)
{
	uintptr_t start = ((uintptr_t)addr + MEMORY_PAGE - 1) & ~(uintptr_t)(MEMORY_PAGE - 1);
	uintptr_t end = ((uintptr_t)addr + len) & ~(uintptr_t)(MEMORY_PAGE - 1);
	struct taking t = {.why = NULL};

	if (start < end) {
		pthread_mutex_lock(&lock);
		take(&t, start, end);
		pthread_mutex_unlock(&lock);
	}
	if (start < end && (t.why || t.err))
		say_why(&t, len);
	*run = t.longest;
	if (t.share && !t.share->n) {
		share_free(t.share);
		t.share = NULL;
	}
	return t.share;
}

/* What nobody holds any more; all or nothing of a piece, which stays on the file otherwise. */
static int bring_all_back(struct share *s)
{
	struct freeze f;
	struct areas all;
	int err = areas_read(&all, 0, UINTPTR_MAX);

	if (!err)
		err = freeze_open(&f);
	if (err == -EPERM && maps_threads() == 1)
		err = 0; /* forbidden since they were moved, and nobody is there to be held back */
	if (!err) {
		for (size_t i = 0; i < s->n && !err; i++) {
			struct piece *p = s->piece[i];

			if (p->users)
				continue;
			err = bring_back(&f, p, &all);
			if (err)
				break;
			memory_punch(p->off, p->len);
			s->piece[i--] = s->piece[--s->n];
			forget(p);
		}
		freeze_close(&f);
	}
	areas_free(&all);
	return err;
}

static void count_users(struct share *s, int by, bool *last, bool *gone)
{
	for (size_t i = 0; i < s->n; i++) {
		s->piece[i]->users += (unsigned)by;
		*last |= !s->piece[i]->users;
		*gone |= s->piece[i]->gone;
	}
}

int share_drop(struct share *s)
{
	bool last = false, gone = false;
	int err = 0;

	if (!s)
		return 0;
	pthread_mutex_lock(&lock);
	count_users(s, -1, &last, &gone);
	if (!gone && last) {
		err = bring_all_back(s);
		if (err)
			count_users(s, 1, &last, &gone);
		else
			++*times_of(s->start, s->len);
		close_unused();
	}
	pthread_mutex_unlock(&lock);
	if (!err)
		share_free(s);
	return err;
}

int share_file_get(void)
{
	int fd;

	pthread_mutex_lock(&lock);
	fd = memory_file();
	if (fd >= 0)
		holders++;
	pthread_mutex_unlock(&lock);
	return fd;
}

void share_file_put(void)
{
	pthread_mutex_lock(&lock);
	holders--;
	close_unused();
	pthread_mutex_unlock(&lock);
}

/* ---- fork ---- */
/*
 * A child has private copies of what the parent has on the file, as the kernel itself copies pinned pages for
 * it. They are made before, beside the pages, and the child puts them in their place, where it has nothing
 * (MADV_DONTFORK).
 */
static struct areas at_fork;

static void copy_aside(struct area *a)
{
	size_t len = a->end - a->start;
	void *side =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (side != MAP_FAILED && memory_get(a->off, side, len)) {
		munmap(side, len);
		side = MAP_FAILED;
	}
	if (side == MAP_FAILED)
		log_error("no memory to copy %zu registered bytes for a child", len);
	a->off = side == MAP_FAILED ? 0 : (uintptr_t)side; /* from here on */
}

/* Leaves in `a` only what lies on the file. */
static void keep_ours(struct areas *a)
{
	size_t n = 0;

	for (size_t i = 0; i < a->n; i++) {
		if (memory_has(&a->area[i]))
			a->area[n++] = a->area[i];
	}
	a->n = n;
}

void share_fork_prepare(void)
{
	pthread_mutex_lock(&lock);
	if (list_empty(&pieces))
		return;
	areas_free(&at_fork); /* a child's own, of the fork that made it */
	if (areas_read(&at_fork, 0, UINTPTR_MAX))
		log_error("a child will not have the registered memory");
	keep_ours(&at_fork);
	for (size_t i = 0; i < at_fork.n; i++)
		copy_aside(&at_fork.area[i]);
}

void share_fork_parent(void)
{
	for (size_t i = 0; i < at_fork.n; i++) {
		struct area *a = &at_fork.area[i];

		if (a->off)
			munmap((void *)(uintptr_t)a->off, a->end - a->start);
	}
	areas_free(&at_fork);
	pthread_mutex_unlock(&lock);
}

void share_fork_child(void)
{
	for (size_t i = 0; i < at_fork.n; i++) {
		struct area *a = &at_fork.area[i];
		size_t len = a->end - a->start;
		void *side = (void *)(uintptr_t)a->off;

		if (side)
			move_pages(side, len, (void *)a->start);
		if (side && a->prot != (PROT_READ | PROT_WRITE))
			mprotect((void *)a->start, len, a->prot);
	}
	for (struct list *n; (n = list_pop(&pieces));)
		container_of(n, struct piece, node)->gone = true;
	npieces = holders = 0;
	memory_forget();
	at_fork.n = 0;
	pthread_mutex_unlock(&lock);
}
