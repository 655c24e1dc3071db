/* SPDX-License-Identifier: MIT */
#include "fabric/trunk.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	struct trunk_ring *ring;
	struct trunk_tx tx;
	struct trunk_rx rx;
};

static struct pair make(void)
{
	struct pair p = {.ring = aligned_alloc(4096, sizeof(*p.ring))};

	memset(p.ring, 0, sizeof(*p.ring));
	p.tx.ring = p.rx.ring = p.ring;
	return p;
}

static bool put(struct pair *p, uint16_t dlid, uint32_t len)
{
	struct trunk_packet head = {.dlid = dlid}, *to = trunk_reserve(&p->tx, len);

	if (!to)
		return false;
	memset(to + 1, dlid & 0xff, len);
	trunk_commit(&p->tx, &head, len);
	return true;
}

static void take(struct pair *p, uint16_t dlid, uint32_t len)
{
	struct trunk_packet t;
	uint8_t *bytes;

	assert_int_equal(trunk_take(&p->rx, &t, &bytes), 1);
	assert_int_equal(t.dlid, dlid);
	assert_int_equal(t.len, len);
	for (uint32_t i = 0; i < len; i++)
		assert_int_equal(bytes[i], dlid & 0xff);
	trunk_done(&p->rx);
}

static void packets_come_out_as_they_went_in(void **state)
{
	struct pair p = make();
	uint64_t seed = 1, in = 0, out = 0;
	uint32_t len[64];

	for (unsigned round = 0; round < 20000; round++) {
		uint32_t n = (uint32_t)(random_seeded(&seed) % (TRUNK_BYTES_MAX + 1));

		if (in - out < 64 && (random_seeded(&seed) & 3)) {
			assert_true(put(&p, (uint16_t)in, n));
			len[in++ % 64] = n;
		} else if (out != in) {
			take(&p, (uint16_t)out, len[out % 64]);
			out++;
		}
	}
	free(p.ring);
}

static void full_ring_takes_no_more_until_one_is_taken(void **state)
{
	struct pair p = make();
	uint32_t n = 0;

	while (put(&p, 7, 4096))
		n++;
	assert_int_equal(n, TRUNK_DATA / (4096 + TRUNK_LINE));
	take(&p, 7, 4096);
	assert_true(put(&p, 7, 4096) || put(&p, 7, 4096 - 2 * TRUNK_LINE));
	assert_null(trunk_reserve(&p.tx, TRUNK_BYTES_MAX + 1));
	free(p.ring);
}

static void who_sleeps_is_rung_once(void **state)
{
	struct pair p = make();

	assert_false(trunk_must_ring(&p.tx));
	assert_true(trunk_sleep(&p.rx));
	put(&p, 1, 12);
	assert_true(trunk_must_ring(&p.tx));
	assert_false(trunk_must_ring(&p.tx));
	assert_false(trunk_sleep(&p.rx));
	free(p.ring);
}

/* The other side is a program: whatever it writes, what is read lies in the ring, and it comes to an end. */
static void nonsense_in_the_ring_is_survived(void **state)
{
	struct pair p = make();
	uint64_t seed = 1;

	for (unsigned round = 0; round < 3000; round++) {
		struct trunk_packet t;
		uint8_t *bytes;
		int got = 1;

		for (unsigned i = 0; i < TRUNK_DATA; i += TRUNK_LINE * 16)
			((struct trunk_packet *)(p.ring->data + i))->len =
				(uint32_t)(random_seeded(&seed) >> (random_seeded(&seed) & 63));
		p.rx.tail &= ~(uint64_t)(TRUNK_LINE - 1);
		atomic_store(&p.ring->head, p.rx.tail + random_seeded(&seed) % (3 * TRUNK_DATA));
		for (unsigned i = 0; i < TRUNK_DATA / TRUNK_LINE && got == 1; i++) {
			got = trunk_take(&p.rx, &t, &bytes);
			if (got != 1)
				break;
			assert_true(bytes >= p.ring->data && t.len <= TRUNK_BYTES_MAX);
			assert_true(bytes + t.len <= p.ring->data + TRUNK_DATA);
			trunk_done(&p.rx);
		}
		assert_true(got <= 0);
	}
	free(p.ring);
}

static void reader_that_lies_about_its_place_gets_nothing(void **state)
{
	struct pair p = make();

	while (put(&p, 7, 4096))
		;
	atomic_store(&p.ring->tail, UINT64_MAX - 5);
	assert_false(put(&p, 7, 4096));
	free(p.ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(packets_come_out_as_they_went_in),
		cmocka_unit_test(full_ring_takes_no_more_until_one_is_taken),
		cmocka_unit_test(who_sleeps_is_rung_once),
		cmocka_unit_test(nonsense_in_the_ring_is_survived),
		cmocka_unit_test(reader_that_lies_about_its_place_gets_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
