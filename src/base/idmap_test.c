/* SPDX-License-Identifier: MIT */
#include "base/idmap.h"

#include "base/random.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

/* The value of an id is its own address, so to speak: a reader can tell a wrong one. */
static void *value_of(uint32_t id)
{
	return (void *)(uintptr_t)(id * 16ull + 8);
}

static void what_was_added_is_found_until_it_is_deleted(void **state)
{
	uint64_t seed = 1;
	uint32_t id[5000];
	struct idmap m;

	assert_int_equal(idmap_init(&m), 0);
	for (int i = 0; i < 5000; i++) {
		id[i] = (uint32_t)random_seeded(&seed) | 1;
		if (idmap_add(&m, id[i], value_of(id[i])) == -EEXIST)
			id[i] = 0;
	}
	for (int i = 0; i < 5000; i += 2)
		idmap_del(&m, id[i]);
	for (int i = 0; i < 5000; i++) {
		if (id[i])
			assert_ptr_equal(idmap_get(&m, id[i]), i % 2 ? value_of(id[i]) : NULL);
	}
	idmap_fini(&m);
}

static void id_is_taken_once(void **state)
{
	struct idmap m;

	assert_int_equal(idmap_init(&m), 0);
	assert_int_equal(idmap_add(&m, 7, &m), 0);
	assert_int_equal(idmap_add(&m, 7, &m), -EEXIST);
	assert_int_equal(idmap_add(&m, 0, &m), -EEXIST);
	idmap_del(&m, 8);
	idmap_del(&m, 7);
	assert_int_equal(idmap_add(&m, 7, &m), 0);
	idmap_fini(&m);
}

static void coming_and_going_does_not_wear_it_out(void **state)
{
	uint64_t seed = 2;
	struct idmap m;
	uint32_t size;

	assert_int_equal(idmap_init(&m), 0);
	size = m.table->mask;
	for (int i = 0; i < 100000; i++) {
		uint32_t id = (uint32_t)random_seeded(&seed) | 1;

		assert_int_equal(idmap_add(&m, id, &m), 0);
		idmap_del(&m, id);
	}
	assert_int_equal(m.table->mask, size);
	idmap_fini(&m);
}

struct shared {
	struct idmap m;
	_Atomic bool stop;
};

static void *reader(void *arg)
{
	struct shared *s = arg;

	while (!s->stop) {
		for (uint32_t id = 1; id < 64; id++) {
			void *v = idmap_get(&s->m, id);

			if (v && v != value_of(id))
				return s; /* somebody else's value */
			if (id % 2 && !v)
				return s; /* one that is never deleted was missed */
		}
	}
	return NULL;
}

static void readers_see_the_truth_beside_a_writer(void **state)
{
	struct shared s = {.stop = false};
	pthread_t t;
	void *wrong;

	assert_int_equal(idmap_init(&s.m), 0);
	for (uint32_t id = 1; id < 64; id += 2)
		assert_int_equal(idmap_add(&s.m, id, value_of(id)), 0);
	assert_int_equal(pthread_create(&t, NULL, reader, &s), 0);
	for (int round = 0; round < 20000; round++) {
		uint32_t id = 2 + (uint32_t)round * 2 % 2000;

		if (idmap_add(&s.m, id, value_of(id)) == -EEXIST)
			idmap_del(&s.m, id);
	}
	s.stop = true;
	pthread_join(t, &wrong);
	assert_null(wrong);
	idmap_fini(&s.m);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_found_until_it_is_deleted),
		cmocka_unit_test(id_is_taken_once),
		cmocka_unit_test(coming_and_going_does_not_wear_it_out),
		cmocka_unit_test(readers_see_the_truth_beside_a_writer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
