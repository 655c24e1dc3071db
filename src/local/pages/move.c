/* SPDX-License-Identifier: MIT */
#include "local/pages/move.h"

#include "local/pages/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	STEP = 2 << 20, /* a huge page, or the time of a copy of that: a fraction of a millisecond */
	STEP_PAGES = STEP / MEMORY_PAGE,
	EMPTY_STEP = 1 << 30, /* of memory that nobody has touched */
	SIDE = 256 << 20,     /* of private pages to be: address space, of which a program may have little */
};

/* One move: what it copies, and how it knows that there is nothing to copy. */
struct move {
	struct freeze *freeze;
	char *at; /* where the program has it */
	size_t len;
	uint64_t off;
	int pagemap; /* onto the file: who tells which pages are there */
	char *side;  /* back: the private pages to be */
	int prot;
	bool (*is_hole)(struct move *m, size_t from, size_t len);
	int (*copy)(struct move *m, size_t from, size_t len);
	bool (*replace)(struct move *m, size_t from, size_t len);
};

/* ---- onto the file ---- */
/* Bit 63: it is there; bit 62: it is swapped out. */
static bool is_there(uint64_t entry)
{
	return entry >> 62;
}

/* Up to a step of pages; what cannot be known counts as there. */
static void look(struct move *m, size_t from, size_t len, uint64_t entry[STEP_PAGES])
{
	size_t n = len / MEMORY_PAGE * sizeof(entry[0]);
	off_t place = (off_t)((uintptr_t)(m->at + from) / MEMORY_PAGE * sizeof(entry[0]));

	if (pread(m->pagemap, entry, n, place) != (ssize_t)n)
		memset(entry, 0xff, n);
}

static bool untouched(struct move *m, size_t from, size_t len)
{
	uint64_t entry[STEP_PAGES];
	bool there = false;

	for (size_t done = 0; done < len && !there; done += STEP) {
		size_t part = len - done < STEP ? len - done : STEP;

		look(m, from + done, part, entry);
		for (size_t i = 0; i < part / MEMORY_PAGE; i++)
			there |= is_there(entry[i]);
	}
	return !there;
}

/* A page of the program's: what of it is allocated is not our business. */
__attribute__((no_sanitize("address", "thread"))) static bool is_zero(const char *page)
{
	const uint64_t *word = (const uint64_t *)page;
	size_t i = 0;

	while (i < MEMORY_PAGE / sizeof(*word) && !word[i])
		i++;
	return i == MEMORY_PAGE / sizeof(*word);
}

/* The freezer's marks on pages that are not there look as if they were swapped out. */
static void see_through_marks(struct move *m, size_t from, uint64_t *entry, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (entry[i] >> 62 == 1 && is_zero(m->at + from + i * MEMORY_PAGE))
			entry[i] = 0;
	}
}

/* Only what is there: what is not, the file has as well. */
static int copy_onto(struct move *m, size_t from, size_t len)
{
	uint64_t entry[STEP_PAGES];
	size_t n = len / MEMORY_PAGE;
	int err = 0;

	look(m, from, len, entry);
	see_through_marks(m, from, entry, n);
	for (size_t i = 0, k; i < n && !err; i = k) {
		for (k = i; k < n && is_there(entry[k]) == is_there(entry[i]); k++)
			;
		if (is_there(entry[i]))
			err = memory_put(m->off + from + i * MEMORY_PAGE, m->at + from + i * MEMORY_PAGE,
				(k - i) * MEMORY_PAGE);
	}
	return err;
}

/*
 * By the bare call: for sanitizers it is the program's own memory still. A child of a bare clone() must not
 * find it: it would share it with us (share.c gives others a copy).
 */
static bool map_file(struct move *m, size_t from, size_t len)
{
	long p = syscall(SYS_mmap, m->at + from, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		memory_file(), (off_t)(m->off + from));

	return p != -1 && !madvise(m->at + from, len, MADV_DONTFORK);
}

/* ---- back ---- */
bool move_pages(void *from, size_t len, void *to)
{
	return syscall(SYS_mremap, from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to) != -1;
}

static bool hole(struct move *m, size_t from, size_t len)
{
	return memory_is_hole(m->off + from, len);
}

static int copy_back(struct move *m, size_t from, size_t len)
{
	return memory_get(m->off + from, m->side + from, len);
}

/* What the file has of it goes at once: there is never much twice. */
static bool map_private(struct move *m, size_t from, size_t len)
{
	if (mprotect(m->side + from, len, m->prot) || !move_pages(m->side + from, len, m->at + from))
		return false;
	memory_punch(m->off + from, len);
	return true;
}

/* ---- both ---- */
/* The next step ends where a huge page does, or goes as far as nothing is there. */
static size_t step(struct move *m, size_t from, bool *empty)
{
	size_t left = m->len - from, n = STEP - (uintptr_t)(m->at + from) % STEP;

	n = n < left ? n : left;
	*empty = m->is_hole(m, from, n);
	while (*empty && n < left && n < EMPTY_STEP) {
		size_t more = left - n < STEP ? left - n : STEP;

		if (!m->is_hole(m, from + n, more))
			break;
		n += more;
	}
	return n;
}

static int one_step(struct move *m, size_t from, size_t len, bool empty)
{
	int err = freeze_begin(m->freeze, m->at + from, len, empty);

	if (err)
		return err;
	/* Somebody may have come in between. */
	if (empty && !m->is_hole(m, from, len))
		err = -EAGAIN;
	if (!err && !empty)
		err = m->copy(m, from, len);
	if (!err && !m->replace(m, from, len))
		err = -errno;
	freeze_end(m->freeze, m->at + from, len, !err);
	return err;
}

static size_t run(struct move *m, int *err)
{
	size_t done = 0;

	for (*err = 0; done < m->len && !*err;) {
		bool empty;
		size_t n = step(m, done, &empty);

		*err = one_step(m, done, n, empty);
		if (*err == -EAGAIN && empty)
			*err = 0; /* once more, and then not as a hole */
		else if (!*err)
			done += n;
	}
	return done;
}

size_t move_onto_file(struct freeze *f, char *at, size_t len, uint64_t off, int *err)
{
	struct move m = {.freeze = f,
		.at = at,
		.len = len,
		.off = off,
		.is_hole = untouched,
		.copy = copy_onto,
		.replace = map_file};
	size_t done;

	m.pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (m.pagemap < 0) {
		*err = -errno;
		return 0;
	}
	done = run(&m, err);
	close(m.pagemap);
	return done;
}

static size_t chunk_back(struct move m, int *err)
{
	size_t done;

	m.side =
		mmap(NULL, m.len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m.side == MAP_FAILED) {
		*err = -errno;
		return 0;
	}
	done = run(&m, err);
	if (done < m.len)
		munmap(m.side + done, m.len - done);
	return done;
}

size_t move_back(struct freeze *f, char *at, size_t len, uint64_t off, int prot, int *err)
{
	size_t done = 0;

	for (*err = 0; done < len && !*err;)
		done += chunk_back((struct move){.freeze = f,
					   .at = at + done,
					   .len = len - done < SIDE ? len - done : SIDE,
					   .off = off + done,
					   .prot = prot,
					   .is_hole = hole,
					   .copy = copy_back,
					   .replace = map_private},
			err);
	return done;
}
