/* SPDX-License-Identifier: MIT */
/* Where a batch of large frames ends: where a piece does that a link sends as one. */
#include "base/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { BTH = 12, RETH = 16 };

static struct frame_batch b;

static void add(uint32_t len)
{
	b.nframes++;
	frame_batch_note(&b, len);
}

/* As many of them as a batch takes, whose first frames are there. */
static unsigned fill(uint32_t len)
{
	while (b.nframes < FRAME_BATCH_MAX && !frame_batch_ends(&b, len))
		add(len);
	return b.nframes;
}

static void ends_where_a_piece_does(void **state)
{
	b = (struct frame_batch){0};
	assert_int_equal(fill(BTH + 1024), 62);
	b = (struct frame_batch){0};
	assert_int_equal(fill(BTH + 4096), 60);
	/* A FIRST and one MIDDLE are a piece of their own. */
	b = (struct frame_batch){0};
	add(BTH + RETH + 1024);
	add(BTH + 1024);
	assert_int_equal(fill(BTH + 1024), 64);
}

static void small_frames_fill_a_batch(void **state)
{
	b = (struct frame_batch){0};
	for (unsigned i = 0; i < FRAME_BATCH_MAX; i++) {
		assert_false(frame_batch_ends(&b, BTH + i % 3 * 4));
		add(BTH + i % 3 * 4);
	}
}

static void room_is_what_is_left_of_a_piece(void **state)
{
	b = (struct frame_batch){0};
	assert_int_equal(frame_batch_room(&b, BTH + 4096), 15);
	add(BTH + 4096);
	assert_int_equal(frame_batch_room(&b, BTH + 4096), 14);
	add(BTH + 100); /* shorter: the last of this piece */
	assert_int_equal(frame_batch_room(&b, BTH + 4096), 15);
	b.nframes = FRAME_BATCH_MAX - 2;
	assert_int_equal(frame_batch_room(&b, BTH + 4096), 2);
	/* In a new one nothing was noted yet. */
	add(BTH + 4096);
	frame_batch_begin(&b);
	assert_int_equal(frame_batch_room(&b, BTH + 4096), 15);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_where_a_piece_does),
		cmocka_unit_test(small_frames_fill_a_batch),
		cmocka_unit_test(room_is_what_is_left_of_a_piece),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
