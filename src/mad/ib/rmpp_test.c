/* SPDX-License-Identifier: MIT */
#include "mad/ib/rmpp.h"

#include "base/random.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>

enum { SA = 3, SA_HDR = 56, SA_DATA = 200, GET_TABLE_RESP = 0x92, LIMIT = 1 << 20 };

/* A message of an SA with len bytes of data that are all different enough. */
static uint8_t *make(size_t len)
{
	uint8_t *msg = calloc(1, SA_HDR + len);

	msg[0] = 1;
	msg[1] = SA;
	msg[2] = 2;
	msg[3] = GET_TABLE_RESP;
	put_be64(msg + 8, 0x0000000100000002);
	msg[26] = 0xf8 | RMPP_ACTIVE;
	for (size_t i = 0; i < len; i++)
		msg[SA_HDR + i] = (uint8_t)(i * 7 + i / SA_DATA);
	return msg;
}

static void segments_are_as_the_specification_has_them(void **state)
{
	uint8_t *msg = make(450), mad[MAD_LEN], ack[MAD_LEN] = {0};
	struct rmpp_send s;
	struct rmpp_hdr h;
	enum rmpp_status why;

	rmpp_send_init(&s, msg, SA_HDR + 450);
	assert_int_equal(s.segments, 3);
	assert_true(rmpp_send_next(&s, mad));
	h = rmpp_hdr_get(mad);
	assert_true(h.version == 1 && h.type == RMPP_DATA && h.segment == 1);
	assert_int_equal(h.flags, RMPP_ACTIVE | RMPP_FIRST);
	assert_int_equal(h.length, 3 * 220 - 150);
	assert_int_equal(mad[26] & 0xf8, 0xf8); /* the response time is the sender's */
	assert_memory_equal(mad + SA_HDR, msg + SA_HDR, SA_DATA);
	assert_false(rmpp_send_next(&s, mad)); /* until there is an ACK */

	ack[0] = 1;
	rmpp_hdr_put(ack, &(struct rmpp_hdr){1, RMPP_ACK, RMPP_ACTIVE, 0, 1, 65});
	assert_int_equal(rmpp_send_ack(&s, ack, &why), RMPP_ACK_NEW);
	assert_true(rmpp_send_next(&s, mad));
	h = rmpp_hdr_get(mad);
	assert_true(h.flags == RMPP_ACTIVE && h.segment == 2);
	assert_true(rmpp_send_next(&s, mad));
	h = rmpp_hdr_get(mad);
	assert_true(h.flags == (RMPP_ACTIVE | RMPP_LAST) && h.length == 220 - 150);
	assert_memory_equal(mad + SA_HDR, msg + SA_HDR + 400, 50);
	assert_false(rmpp_send_next(&s, mad));
	rmpp_hdr_put(ack, &(struct rmpp_hdr){1, RMPP_ACK, RMPP_ACTIVE, 0, 3, 65});
	assert_int_equal(rmpp_send_ack(&s, ack, &why), RMPP_ACK_ALL);
	free(msg);
}

static void a_single_segment_is_first_and_last(void **state)
{
	uint8_t *msg = make(112), mad[MAD_LEN], ack[MAD_LEN];
	struct rmpp_send s;
	struct rmpp_recv r = {0};
	enum rmpp_status why;
	struct rmpp_hdr h;

	rmpp_send_init(&s, msg, SA_HDR + 112);
	assert_true(rmpp_send_next(&s, mad));
	h = rmpp_hdr_get(mad);
	assert_int_equal(h.flags, RMPP_ACTIVE | RMPP_FIRST | RMPP_LAST);
	assert_int_equal(h.length, 20 + 112);
	assert_int_equal(rmpp_recv_data(&r, mad, LIMIT, &why), RMPP_TOOK_ALL);
	assert_int_equal(r.len, SA_HDR + 112);
	assert_memory_equal(r.msg + SA_HDR, msg + SA_HDR, 112);
	rmpp_recv_ack(&r, mad, ack);
	assert_int_equal(ack[3], GET_TABLE_RESP ^ 0x80);
	assert_int_equal(rmpp_send_ack(&s, ack, &why), RMPP_ACK_ALL);
	assert_int_equal(rmpp_recv_data(&r, mad, LIMIT, &why), RMPP_TOOK_ACK); /* our ACK was lost */
	rmpp_recv_fini(&r);
	free(msg);
}

static void a_message_without_data_is_one_segment(void **state)
{
	uint8_t *msg = make(0), mad[MAD_LEN];
	struct rmpp_send s;
	struct rmpp_recv r = {0};
	enum rmpp_status why;

	rmpp_send_init(&s, msg, SA_HDR);
	assert_true(rmpp_send_next(&s, mad));
	assert_int_equal(rmpp_recv_data(&r, mad, LIMIT, &why), RMPP_TOOK_ALL);
	assert_int_equal(r.len, SA_HDR);
	rmpp_recv_fini(&r);
	free(msg);
}

static void wrong_segments_are_refused(void **state)
{
	static const struct {
		struct rmpp_hdr h;
		enum rmpp_status why;
	} wrong[] = {
		{{1, RMPP_DATA, RMPP_ACTIVE, 0, 1, 0}, RMPP_BAD_SEGMENT},
		{{1, RMPP_DATA, RMPP_ACTIVE | RMPP_FIRST, 0, 2, 0}, RMPP_BAD_SEGMENT},
		{{1, RMPP_DATA, RMPP_ACTIVE, 0, 0, 0}, RMPP_BAD_SEGMENT},
		{{1, RMPP_DATA, RMPP_ACTIVE | RMPP_FIRST, 3, 1, 0}, RMPP_BAD_STATUS},
	};
	uint8_t mad[MAD_LEN] = {1, SA, 2, GET_TABLE_RESP};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct rmpp_recv r = {0};
		enum rmpp_status why;

		rmpp_hdr_put(mad, &wrong[i].h);
		assert_int_equal(rmpp_recv_data(&r, mad, LIMIT, &why), RMPP_TOOK_NOT);
		assert_int_equal(why, wrong[i].why);
		rmpp_recv_fini(&r);
	}
}

static void nothing_comes_behind_the_last_segment(void **state)
{
	static const struct rmpp_hdr h[] = {{1, RMPP_DATA, RMPP_ACTIVE | RMPP_FIRST, 0, 1, 220},
		{1, RMPP_DATA, RMPP_ACTIVE | RMPP_LAST, 0, 3, 220}, {1, RMPP_DATA, RMPP_ACTIVE, 0, 4, 220}};
	uint8_t mad[MAD_LEN] = {1, SA, 2, GET_TABLE_RESP};
	struct rmpp_recv r = {0};
	enum rmpp_status why;

	for (unsigned i = 0; i < 3; i++) {
		rmpp_hdr_put(mad, &h[i]);
		assert_int_equal(rmpp_recv_data(&r, mad, LIMIT, &why) == RMPP_TOOK_NOT, i == 2);
	}
	assert_int_equal(why, RMPP_BAD_SEGMENT);
	rmpp_recv_fini(&r);
}

static void wrong_acks_end_the_message(void **state)
{
	static const struct {
		struct rmpp_hdr h;
		enum rmpp_status why;
	} wrong[] = {
		{{1, RMPP_ACK, RMPP_ACTIVE, 0, 2, 65}, RMPP_SEGMENT_TOO_BIG}, /* never sent */
		{{1, RMPP_ACK, RMPP_ACTIVE, 0, 99, 120}, RMPP_SEGMENT_TOO_BIG},
		{{1, RMPP_ACK, RMPP_ACTIVE, 0, 1, 0}, RMPP_WINDOW_TOO_SMALL},
		{{1, RMPP_ACK, RMPP_ACTIVE, 7, 1, 65}, RMPP_BAD_STATUS},
	};
	uint8_t *msg = make(4000), mad[MAD_LEN], ack[MAD_LEN] = {1, SA, 2, GET_TABLE_RESP ^ 0x80};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct rmpp_send s;
		enum rmpp_status why = 0;

		rmpp_send_init(&s, msg, SA_HDR + 4000);
		assert_true(rmpp_send_next(&s, mad));
		rmpp_hdr_put(ack, &wrong[i].h);
		assert_int_equal(rmpp_send_ack(&s, ack, &why), RMPP_ACK_WRONG);
		assert_int_equal(why, wrong[i].why);
	}
	free(msg);
}

static void a_message_that_is_too_long_is_stopped(void **state)
{
	uint8_t mad[MAD_LEN] = {1, SA, 2, GET_TABLE_RESP}, refusal[MAD_LEN];
	struct rmpp_recv r = {0};
	enum rmpp_status why;
	enum rmpp_took how = RMPP_TOOK;

	for (uint32_t n = 1; how != RMPP_TOOK_NOT; n++) {
		rmpp_hdr_put(mad,
			&(struct rmpp_hdr){1, RMPP_DATA, RMPP_ACTIVE | (n == 1 ? RMPP_FIRST : 0), 0, n, 220});
		how = rmpp_recv_data(&r, mad, 10000, &why);
		assert_true(n <= 50 && r.size <= 10000);
	}
	assert_int_equal(why, RMPP_NO_RESOURCES);
	rmpp_refuse(mad, why, refusal);
	assert_int_equal(rmpp_hdr_get(refusal).type, RMPP_STOP);
	rmpp_recv_fini(&r);
}

/* ---- over a line that loses, doubles and reorders, from a seed ---- */
enum { LINE = 256 };
struct line {
	uint8_t mad[LINE][MAD_LEN];
	unsigned count;
};

static void put(struct line *l, const uint8_t *mad, uint64_t *seed)
{
	unsigned copies = random_seeded(seed) % 10 == 0 ? 0 : random_seeded(seed) % 10 == 0 ? 2 : 1;

	for (; copies && l->count < LINE; copies--) {
		unsigned at =
			random_seeded(seed) % 4 ? l->count : (unsigned)(random_seeded(seed) % (l->count + 1));

		memmove(l->mad[at + 1 < LINE ? at + 1 : at], l->mad[at], (size_t)(LINE - at - 1) * MAD_LEN);
		memcpy(l->mad[at], mad, MAD_LEN);
		l->count++;
	}
}

static bool take(struct line *l, uint8_t *mad)
{
	if (!l->count)
		return false;
	memcpy(mad, l->mad[0], MAD_LEN);
	memmove(l->mad[0], l->mad[1], (size_t)--l->count * MAD_LEN);
	return true;
}

#define CHECK(what)                                                                                          \
	do {                                                                                                 \
		if (!(what))                                                                                 \
			fail_msg("seed %u: " #what, (unsigned)number);                                       \
	} while (0)

static void transfer(size_t len, const uint64_t number)
{
	uint64_t seed = number;
	static struct line there, back;
	uint8_t *msg = make(len), mad[MAD_LEN], ack[MAD_LEN];
	struct rmpp_send s;
	struct rmpp_recv r = {0};
	enum rmpp_status why;
	unsigned complete = 0, rounds = 0;
	bool all = false;

	there.count = back.count = 0;
	rmpp_send_init(&s, msg, SA_HDR + len);
	while (!all) {
		CHECK(rounds++ < 10000);
		while (rmpp_send_next(&s, mad))
			put(&there, mad, &seed);
		while (take(&there, mad)) {
			enum rmpp_took how = rmpp_recv_data(&r, mad, LIMIT, &why);

			CHECK(how != RMPP_TOOK_NOT);
			complete += how == RMPP_TOOK_ALL;
			if (how == RMPP_TOOK)
				continue;
			rmpp_recv_ack(&r, mad, ack);
			put(&back, ack, &seed);
		}
		while (!all && take(&back, ack)) {
			enum rmpp_acked how = rmpp_send_ack(&s, ack, &why);

			CHECK(how != RMPP_ACK_WRONG);
			all = how == RMPP_ACK_ALL;
		}
		if (!all && s.sent == (s.window < s.segments ? s.window : s.segments))
			rmpp_send_again(&s); /* two seconds passed */
	}
	CHECK(complete == 1);
	CHECK(r.len == SA_HDR + len);
	CHECK(!memcmp(r.msg + SA_HDR, msg + SA_HDR, len));
	rmpp_recv_fini(&r);
	free(msg);
}

static void messages_arrive_whole_and_once_over_a_bad_line(void **state)
{
	for (uint64_t seed = 1; seed <= 300; seed++) {
		uint64_t draw = seed;
		size_t len = random_seeded(&draw) % (seed % 10 ? 5000 : 100000);

		transfer(len, seed);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(segments_are_as_the_specification_has_them),
		cmocka_unit_test(a_single_segment_is_first_and_last),
		cmocka_unit_test(a_message_without_data_is_one_segment),
		cmocka_unit_test(wrong_segments_are_refused),
		cmocka_unit_test(nothing_comes_behind_the_last_segment),
		cmocka_unit_test(wrong_acks_end_the_message),
		cmocka_unit_test(a_message_that_is_too_long_is_stopped),
		cmocka_unit_test(messages_arrive_whole_and_once_over_a_bad_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
