/* SPDX-License-Identifier: MIT */
#include "hca/export.h"

#include "hca/adapter.h"
#include "hca/board.h"
#include "hca/mr.h"

#include <errno.h>

_Static_assert((int)HCA_FILES == (int)BOARD_FILES, "each has its place");

/* ---- files; a->lock held ---- */
static bool same_file(const struct shared_file *a, const struct shared_file *b)
{
	return a->dev == b->dev && a->inode == b->inode && a->fd == b->fd;
}

/* The place that it has or gets; -1: all are taken. */
static int file_place(struct hca_files *files, const struct shared_file *f)
{
	int place = -1;

	for (int i = 0; i < HCA_FILES; i++) {
		if (files->place[i].users && same_file(&files->place[i].file, f))
			return i;
		if (place < 0 && !files->place[i].users)
			place = i;
	}
	return place;
}

static uint16_t file_get(struct hca_adapter *a, const struct shared_file *f)
{
	int i = file_place(&a->files, f);

	if (i < 0)
		return 0;
	if (!a->files.place[i].users++) {
		a->files.place[i].file = *f;
		hca_board_show_file(a, (unsigned)i, f);
	}
	return (uint16_t)(i + 1);
}

static void file_put(struct hca_adapter *a, uint16_t number)
{
	if (number && !--a->files.place[number - 1].users)
		hca_board_show_file(a, number - 1u, NULL);
}

void hca_export_show_files(struct hca_adapter *a)
{
	for (unsigned i = 0; i < HCA_FILES; i++) {
		if (a->files.place[i].users)
			hca_board_show_file(a, i, &a->files.place[i].file);
	}
}

/*
 * ---- other regions on pages that move (map) ----
 * Peers write to the edges of a region by the kernel's hand, which takes hold of a page first. A page that is
 * moved just then would keep nothing of it. So while pages move, regions that share them are not shown.
 */
struct overlap {
	struct hca_adapter *a;
	uintptr_t from, to;
	void (*act)(struct hca_adapter *a, const struct hca_key *k);
	unsigned n;
};

static void if_overlaps(void *arg, void *value)
{
	struct overlap *o = arg;
	const struct hca_key *k = value;
	uintptr_t start = (uintptr_t)k->host;

	if (k->kind != KEY_MR || start >= o->to || start + k->length <= o->from)
		return;
	o->n++;
	o->act(o->a, k);
}

static void hide(struct hca_adapter *a, const struct hca_key *k)
{
	hca_board_hide_key(a, k->key);
}

static unsigned others_on(struct hca_adapter *a, const void *addr, size_t length,
	void (*act)(struct hca_adapter *a, const struct hca_key *k))
{
	struct overlap o = {.a = a, .from = (uintptr_t)addr, .to = (uintptr_t)addr + length, .act = act};

	lock_take(&a->lock);
	idmap_each(&a->keys, if_overlaps, &o);
	lock_drop(&a->lock);
	return o.n;
}

static void set_aside(struct hca_adapter *a, const void *addr, size_t length)
{
	if (others_on(a, addr, length, hide))
		hca_engine_quiesce(&a->engine);
}

/* ---- regions ---- */
static void export_run(struct hca_adapter *a, struct hca_export *x, const struct shared_file *f)
{
	lock_take(&a->lock);
	x->file = file_get(a, f);
	lock_drop(&a->lock);
}

static void move(struct hca_adapter *a, struct hca_export *x, void *addr, size_t len)
{
	struct shared_file f;
	int fd;

	set_aside(a, addr, len);
	x->share = share_take(addr, len, &x->run);
	others_on(a, addr, len, hca_board_show_key);
	if (!x->share)
		return;
	fd = share_file_get();
	if (fd >= 0 && shared_file_of(fd, &f))
		export_run(a, x, &f);
	if (fd >= 0)
		share_file_put();
}

void hca_export_begin(struct hca_adapter *a, struct hca_export *x, void *addr, size_t len, unsigned access)
{
	const unsigned remote = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	struct shared_file f;
	uint64_t off;

	*x = (struct hca_export){.file = 0};
	if (a->local < HCA_LOCAL_COPY || !len)
		return;
	if (shareable_find(addr, len, &f, &off)) {
		x->run = (struct share_run){(uintptr_t)addr, off, len};
		export_run(a, x, &f);
	} else if (a->local == HCA_LOCAL_MAP && (access & remote)) {
		move(a, x, addr, len);
	}
}

void hca_export_file(
	struct hca_adapter *a, struct hca_export *x, void *addr, size_t len, int fd, uint64_t off)
{
	struct shared_file f;

	*x = (struct hca_export){.file = 0};
	if (a->local < HCA_LOCAL_COPY || !len || !shared_file_of(fd, &f))
		return;
	x->run = (struct share_run){(uintptr_t)addr, off, len};
	export_run(a, x, &f);
}

static int move_back(struct hca_adapter *a, struct share *share, void *addr, size_t len)
{
	int err;

	set_aside(a, addr, len);
	err = share_drop(share);
	others_on(a, addr, len, hca_board_show_key);
	return err;
}

int hca_export_end(struct hca_adapter *a, struct hca_export *x, void *addr, size_t len)
{
	int err = x->share ? move_back(a, x->share, addr, len) : 0;

	if (err)
		return err;
	if (x->file) {
		lock_take(&a->lock);
		file_put(a, x->file);
		lock_drop(&a->lock);
	}
	*x = (struct hca_export){.file = 0};
	return 0;
}
