/* SPDX-License-Identifier: MIT */
/* Fetching from a peer, which here is this process by way of its own file and the kernel; and from a liar. */
#include "local/fetch.h"

#include "base/guard.h"
#include "base/random.h"
#include "local/pages/file.h"
#include "local/pages/share.h"
#include "local/pages/window.h"
#include "tests/skip.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { PAGE = 4096, LEN = 8 * PAGE, KEY = 77 };

struct stage {
	struct local_export *export;
	struct local_export_key *entry;
	struct windows windows;
	struct local_peer peer;
	_Atomic uint32_t revoked;
	struct local_seen seen;
	char *source;
	struct share *share;
	char to[LEN];
};

/* One region whose pages but the first and the last lie on the file. */
static int make(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));
	struct shared_file file;
	struct share_run run;

	guard_install();
	s->export = aligned_alloc(64, sizeof(*s->export));
	memset(s->export, 0, sizeof(*s->export));
	s->export->life.__data.__lock = getpid();
	s->source = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < LEN; i++)
		s->source[i] = (char)(i * 7 + i / 100);
	windows_init(&s->windows);
	s->share = share_take(s->source + 100, LEN - 200, &run);
	assert_true(shared_file_of(share_file_get(), &file));
	s->export->file[0] =
		(struct local_export_file){.id = 1, .fd = file.fd, .dev = file.dev, .inode = file.inode};
	s->export->key_levels = 1;
	/* Found wherever one looks for it. */
	for (unsigned i = 0; i < EXPORT_KEYS; i += EXPORT_WAYS) {
		s->entry = &s->export->key[i];
		*s->entry = (struct local_export_key){.key = KEY,
			.iova = (uintptr_t)s->source,
			.length = LEN,
			.host = (uintptr_t)s->source,
			.file = 1,
			.map_host = run.start,
			.map_off = run.off,
			.map_len = run.len};
	}
	s->peer = (struct local_peer){.export = s->export,
		.number = 1,
		.windows = &s->windows,
		.revoked = &s->revoked,
		.pid = getpid()};
	*state = s;
	return 0;
}

static int unmake(void **state)
{
	struct stage *s = *state;

	windows_fini(&s->windows); /* they look like places that the program has it at */
	assert_int_equal(share_drop(s->share), 0);
	share_file_put();
	free(s->export); /* the source stays: what comes and goes at one place is not shared in the end */
	free(s);
	return 0;
}

static struct frame_ref ref(const struct stage *s, uint32_t off, uint32_t len)
{
	return (struct frame_ref){(uintptr_t)s->source + off, len, KEY};
}

static enum local_act fetch(
	struct stage *s, const struct frame_ref *refs, unsigned n, uint32_t off, uint32_t len)
{
	struct iovec to[2] = {{s->to, 1000}, {s->to + 1000, LEN - 1000}};

	memset(s->to, 0, LEN);
	return local_fetch(&s->seen, &s->peer, &(struct local_source){refs, n, off, len}, to, 2);
}

static void change(struct stage *s, void (*to)(struct local_export_key *k, uint64_t by), uint64_t by)
{
	for (unsigned i = 0; i < EXPORT_KEYS; i += EXPORT_WAYS)
		to(&s->export->key[i], by);
	s->export->changes++;
}

/* ---- tests ---- */
static void every_part_of_it_comes(void **state)
{
	struct stage *s = *state;
	uint64_t seed = 3;

	for (int i = 0; i < 2000; i++) {
		uint32_t a = random_seeded(&seed) % LEN, b = random_seeded(&seed) % (LEN - a + 1),
			 off = random_seeded(&seed) % (b + 1), len = random_seeded(&seed) % (b - off + 1);
		struct frame_ref r = ref(s, a, b);

		s->peer.self = i % 3 == 0;
		assert_int_equal(fetch(s, &r, 1, off, len), LOCAL_DONE);
		assert_memory_equal(s->to, s->source + a + off, len);
	}
}

static void pieces_come_in_their_order(void **state)
{
	struct stage *s = *state;
	struct frame_ref r[] = {ref(s, 20000, 300), ref(s, 5, 0), ref(s, 10, 3000), ref(s, LEN - 7, 7)};

	assert_int_equal(fetch(s, r, 4, 100, 3207), LOCAL_DONE);
	assert_memory_equal(s->to, s->source + 20100, 200);
	assert_memory_equal(s->to + 200, s->source + 10, 3000);
	assert_memory_equal(s->to + 3200, s->source + LEN - 7, 7);
	assert_int_equal(fetch(s, r, 4, 100, 3208), LOCAL_DECLINED); /* more than there is */
}

static void nothing_beyond_the_region(void **state)
{
	struct stage *s = *state;
	struct frame_ref bad[] = {ref(s, 0, LEN + 1), ref(s, LEN, 1), ref(s, (uint32_t)-1, 1), ref(s, 1, ~0u),
		{(uintptr_t)s->source - 1, 2, KEY}, {0, 1, KEY}, {~0ull, 8, KEY},
		{(uintptr_t)s->source, 8, KEY + 1}, {(uintptr_t)s->source, 8, 0}};

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(fetch(s, &bad[i], 1, 0, bad[i].len), LOCAL_DECLINED);
}

static void hide(struct local_export_key *k, uint64_t by)
{
	k->key = (uint32_t)by;
}

static void nothing_of_what_was_taken_away(void **state)
{
	struct stage *s = *state;
	struct frame_ref r = ref(s, 0, LEN);

	assert_int_equal(fetch(s, &r, 1, 0, LEN), LOCAL_DONE);
	change(s, hide, 0);
	assert_int_equal(fetch(s, &r, 1, 0, LEN), LOCAL_DECLINED);
	change(s, hide, KEY);
	assert_int_equal(fetch(s, &r, 1, 0, LEN), LOCAL_DONE);
	s->export->life.__data.__lock = 0; /* its owner is gone */
	assert_int_equal(fetch(s, &r, 1, 0, LEN), LOCAL_DECLINED);
}

static void shift_file(struct local_export_key *k, uint64_t by)
{
	k->map_off = by;
	k->map_len = ~0ull >> 1;
	k->map_host = k->host;
}

static void shift_host(struct local_export_key *k, uint64_t by)
{
	k->host = by;
	k->map_len = 0;
}

/* An export that says anything makes it fail, or brings bytes of its own process: no more. */
static void liar_harms_nobody(void **state)
{
	static const uint64_t anywhere[] = {0, 1, 1ull << 20, (1ull << 30) - 100, 1ull << 61,
		(1ull << 62) - 4096, (1ull << 62) - 1, 1ull << 62, 1ull << 63, ~0ull - 4095, ~0ull};
	struct stage *s = *state;
	struct frame_ref r = ref(s, 0, LEN);

	for (unsigned i = 0; i < sizeof(anywhere) / sizeof(anywhere[0]); i++) {
		change(s, shift_file, anywhere[i]);
		fetch(s, &r, 1, 0, LEN);
	}
	for (unsigned i = 0; i < sizeof(anywhere) / sizeof(anywhere[0]); i++) {
		change(s, shift_host, anywhere[i]);
		assert_int_equal(fetch(s, &r, 1, 0, LEN), LOCAL_DECLINED);
	}
}

static void grow(struct local_export_key *k, uint64_t by)
{
	k->length += by;
	k->map_len += by;
}

static void move_on(struct local_export_key *k, uint64_t by)
{
	k->map_off += by;
}

static char *mapped_at(struct stage *s, uint64_t off)
{
	uint32_t len = PAGE;

	assert_true(local_look(&s->seen, &s->peer, KEY));
	return local_mapped(&s->seen, &s->peer, (uintptr_t)s->source + off, &len);
}

/* What is said anew under an old version does not stretch a window, nor give it to other memory. */
static void window_is_for_what_was_said(void **state)
{
	struct stage *s = *state;
	struct frame_ref middle = ref(s, PAGE, LEN - 2 * PAGE);

	assert_int_equal(fetch(s, &middle, 1, 0, LEN - 2 * PAGE), LOCAL_DONE);
	assert_non_null(mapped_at(s, PAGE));
	change(s, grow, 1ull << 40);
	assert_null(mapped_at(s, PAGE));
	assert_null(mapped_at(s, 1ull << 35));
	change(s, grow, -(1ull << 40));
	assert_int_equal(fetch(s, &middle, 1, 0, LEN - 2 * PAGE), LOCAL_DONE);
	assert_non_null(mapped_at(s, PAGE));
	change(s, move_on, PAGE);
	assert_null(mapped_at(s, PAGE));
}

/* The first access to a page is the kernel's, who finds it for its owner. */
static void what_the_kernel_has_touched_is_mapped(void **state)
{
	struct stage *s = *state;
	struct frame_ref all = ref(s, 0, LEN), middle = ref(s, PAGE, LEN - 2 * PAGE);
	uint32_t len = PAGE;

	if (!s->share)
		skip_because("the kernel refuses userfaultfd: nothing is mapped");
	assert_int_equal(fetch(s, &middle, 1, 0, PAGE), LOCAL_DONE);
	assert_non_null(local_mapped(&s->seen, &s->peer, (uintptr_t)s->source + PAGE, &len));
	len = PAGE;
	assert_null(local_mapped(&s->seen, &s->peer, (uintptr_t)s->source + 2 * PAGE, &len));
	assert_int_equal(fetch(s, &middle, 1, 0, LEN - 2 * PAGE), LOCAL_DONE);
	s->peer.pid = 0;
	assert_int_equal(fetch(s, &all, 1, 0, LEN), LOCAL_DECLINED);
	assert_int_equal(fetch(s, &middle, 1, 0, LEN - 2 * PAGE), LOCAL_DONE);
	assert_memory_equal(s->to, s->source + PAGE, LEN - 2 * PAGE);
}

/* By the kernel, or out of what is mapped: what it read may have been changed since. */
static void who_was_cut_off_fetches_nothing(void **state)
{
	struct stage *s = *state;
	struct frame_ref all = ref(s, 0, LEN), middle = ref(s, PAGE, LEN - 2 * PAGE);

	assert_int_equal(fetch(s, &all, 1, 0, LEN), LOCAL_DONE);
	s->revoked = 1;
	assert_int_equal(fetch(s, &all, 1, 0, LEN), LOCAL_DECLINED);
	assert_int_equal(fetch(s, &middle, 1, 0, LEN - 2 * PAGE), LOCAL_DECLINED);
}

static void leave_file(struct local_export_key *k, uint64_t by)
{
	k->file = (uint32_t)by;
}

static bool fetch_row(struct stage *s, const struct frame_ref *refs, unsigned n)
{
	struct iovec to[LOCAL_ROW];
	char *at = s->to;

	memset(s->to, 0, LEN);
	for (unsigned i = 0; i < n; at += refs[i++].len)
		to[i] = (struct iovec){at, refs[i].len};
	return local_fetch_row(&s->seen, &s->peer, refs, to, n);
}

/* Several messages at once: all of them, or it fails; and only what the kernel alone can fetch. */
static void row_comes_as_a_whole(void **state)
{
	struct stage *s = *state;
	struct frame_ref r[LOCAL_ROW], bad[LOCAL_ROW];
	uint32_t at = 0;

	for (uint32_t i = 0; i < LOCAL_ROW; i++)
		r[i] = bad[i] = ref(s, 3000 * i + i, 100 * i + 1);
	assert_false(fetch_row(s, r, LOCAL_ROW)); /* what is mapped goes by itself */
	change(s, leave_file, 0);
	assert_true(fetch_row(s, r, LOCAL_ROW));
	for (uint32_t i = 0; i < LOCAL_ROW; at += r[i++].len)
		assert_memory_equal(s->to + at, s->source + 3000 * i + i, r[i].len);
	bad[LOCAL_ROW - 1] = ref(s, LEN, 1);
	assert_false(fetch_row(s, bad, LOCAL_ROW));
	bad[LOCAL_ROW - 1] = (struct frame_ref){(uintptr_t)s->source, 8, KEY + 1};
	assert_false(fetch_row(s, bad, LOCAL_ROW));
	munmap(s->source + 4 * PAGE, PAGE);
	assert_false(fetch_row(s, r, LOCAL_ROW));
	assert_true(fetch_row(s, r, 2));
	s->revoked = 1;
	assert_false(fetch_row(s, r, 2));
}

#define T(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(every_part_of_it_comes),
		T(pieces_come_in_their_order),
		T(nothing_beyond_the_region),
		T(nothing_of_what_was_taken_away),
		T(liar_harms_nobody),
		T(window_is_for_what_was_said),
		T(what_the_kernel_has_touched_is_mapped),
		T(who_was_cut_off_fetches_nothing),
		T(row_comes_as_a_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
