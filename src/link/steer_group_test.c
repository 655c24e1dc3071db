/* SPDX-License-Identifier: MIT */
#include "link/steer.h"
#include "link/steer_group.h"

#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static struct steer_group *group_of(uint32_t n)
{
	struct steer_group *g = calloc(1, sizeof(*g));

	steer_group_check(g);
	for (uint32_t i = 0; i < n; i++)
		assert_true(steer_group_add(g, 100 + i));
	return g;
}

static void last_takes_the_index_of_who_left(void **state)
{
	struct steer_group *g = group_of(3);

	steer_group_remove(g, 0);
	assert_int_equal(steer_group_count(g), 2);
	assert_int_equal(g->member[0], 102);
	assert_int_equal(g->member[1], 101);
	assert_false(steer_group_has(g, 100));
	free(g);
}

static void tell(struct steer_group *g, uint32_t slot, uint16_t index)
{
	uint8_t pkt[INDEX_LEN] = {OPCODE_INDEX};

	int i = steer_group_find(g, slot);

	put_be16(pkt + INDEX_OFF, index);
	put_be64(pkt + NONCE_OFF, g->nonce);
	g->answer[i] = steer_group_answer(g, (uint32_t)i, pkt, sizeof(pkt));
}

static void members_sit_where_they_told(void **state)
{
	struct steer_group *g = group_of(4);

	g->nonce = 0x123456789;
	tell(g, 100, 2);
	tell(g, 102, 0);
	tell(g, 103, 60000); /* nonsense: as good as silent */
	assert_int_equal(steer_group_told(g), 2);
	steer_group_sort(g);
	assert_int_equal(g->member[0], 102);
	assert_int_equal(g->member[1], 101);
	assert_int_equal(g->member[2], 100);
	assert_int_equal(g->member[3], 103);
	free(g);
}

/* Stopped while all others entered a new file: it sits where it sat. */
static void an_index_may_be_that_of_someone_unknown(void **state)
{
	struct steer_group *g = group_of(2);
	struct sock_filter code[STEER_CODE];

	g->nonce = 0x123456789;
	tell(g, 100, 1);
	tell(g, 101, 5); /* nobody's, so the kernel gave it to anybody */
	tell(g, 101, 2);
	tell(g, 101, 6);
	steer_group_sort(g);
	assert_int_equal(steer_group_count(g), 3);
	assert_int_equal(steer_group_known(g), 2);
	assert_int_equal(g->member[0], STEER_UNKNOWN);
	assert_int_equal(g->member[1], 100);
	assert_int_equal(g->member[2], 101);
	assert_false(steer_group_has(g, STEER_UNKNOWN)); /* its name is anybody's */
	assert_int_equal(steer_group_program(g, code), 7 + 2 * 2);
	free(g);
}

/* An emptied or cut off file is nobody's group. */
static void a_damaged_file_is_seen(void **state)
{
	static const size_t lengths[] = {0, 4, 8, sizeof(uint64_t) * 3, offsetof(struct steer_group, member),
		offsetof(struct steer_group, member) + 3 * sizeof(uint32_t)};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct steer_group *g = group_of(4);

		g->formed = true;
		assert_true(steer_group_check(g));
		memset((uint8_t *)g + lengths[i], 0, sizeof(*g) - lengths[i]);
		steer_group_check(g);
		assert_int_equal(steer_group_count(g), 0);
		assert_false(g->formed); /* everybody is asked to come in again */
		free(g);
	}
}

/* Who holds the lock may be stopped: then the file is used as it is. */
static void a_torn_file_leads_nobody_out_of_bounds(void **state)
{
	struct steer_group *g = malloc(sizeof(*g)); /* exact, for the address sanitizer */
	struct sock_filter *code = malloc(STEER_CODE * sizeof(*code));

	memset(g, 0xff, sizeof(*g));
	assert_int_equal(steer_group_count(g), STEER_SLOTS);
	assert_int_equal(steer_group_program(g, code), STEER_CODE);
	assert_false(steer_group_add(g, 7));
	assert_false(steer_group_has(g, 7));
	steer_group_sort(g);
	steer_group_remove(g, 0xffffffff);
	steer_group_check(g);
	assert_int_equal(steer_group_count(g), 0);
	free(code);
	free(g);
}

static void handed_over_frames_are_whole(void **state)
{
	uint8_t datagram[200] = {0};
	struct frame_in in;

	for (size_t len = 0; len <= sizeof(datagram); len++)
		assert_false(steer_hand_parse(datagram, len, &in)); /* the length it tells is 0 */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(last_takes_the_index_of_who_left),
		cmocka_unit_test(members_sit_where_they_told),
		cmocka_unit_test(an_index_may_be_that_of_someone_unknown),
		cmocka_unit_test(a_damaged_file_is_seen),
		cmocka_unit_test(a_torn_file_leads_nobody_out_of_bounds),
		cmocka_unit_test(handed_over_frames_are_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
