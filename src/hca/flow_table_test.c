/* SPDX-License-Identifier: MIT */
#include "hca/flow_table.h"

#include "hca/flow.h"

#include <pthread.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { PEERS = 100000, SLOT = 7 };

/* 10.x.y.z, as the hosts of one network are. */
static void gid_of(unsigned i, uint8_t gid[16])
{
	memset(gid, 0, 16);
	gid[10] = gid[11] = 0xff;
	gid[12] = 10;
	gid[13] = (uint8_t)(i >> 16);
	gid[14] = (uint8_t)(i >> 8);
	gid[15] = (uint8_t)i;
}

static struct hca_flow *find(struct hca_flow_table *t, unsigned i)
{
	uint8_t gid[16];

	gid_of(i, gid);
	return hca_flow_table_get(t, gid, SLOT);
}

/* As hca_adapter_flow(). */
static struct hca_flow *get(struct hca_flow_table *t, unsigned i)
{
	struct hca_flow *f = find(t, i);
	uint8_t gid[16];

	if (f)
		return f;
	gid_of(i, gid);
	f = hca_flow_table_add(t, gid, SLOT, false, 0);
	assert_non_null(f);
	return f;
}

static void use_once(struct hca_flow_table *t, unsigned i)
{
	hca_flow_table_put(t, get(t, i));
}

static bool is_there(struct hca_flow_table *t, unsigned i)
{
	struct hca_flow *f = find(t, i);

	hca_flow_table_put(t, f);
	return f;
}

static unsigned longest_chain(const struct hca_flow_table *t)
{
	unsigned longest = 0;

	for (unsigned i = 0; i < FLOW_BUCKETS; i++) {
		unsigned n = 0;

		for (const struct hca_flow *f = t->bucket[i]; f; f = f->next)
			n++;
		longest = n > longest ? n : longest;
	}
	return longest;
}

static void a_hundred_thousand_peers_leave_a_bounded_table(void **state)
{
	struct hca_flow_table t;

	assert_int_equal(hca_flow_table_init(&t), 0);
	for (unsigned i = 0; i < PEERS; i++) {
		use_once(&t, i);
		assert_true(t.count <= FLOW_IDLE_MAX + 1);
	}
	assert_int_equal(t.count, FLOW_IDLE_MAX);
	assert_true(longest_chain(&t) <= 16);
	hca_flow_table_fini(&t);
}

static void the_oldest_idle_one_is_let_go_first(void **state)
{
	struct hca_flow_table t;

	assert_int_equal(hca_flow_table_init(&t), 0);
	for (unsigned i = 0; i < FLOW_IDLE_MAX; i++)
		use_once(&t, i);
	use_once(&t, 0); /* used again: 1 is the oldest now */
	use_once(&t, PEERS);
	assert_true(is_there(&t, 0));
	assert_false(is_there(&t, 1));
	assert_true(is_there(&t, 2));
	hca_flow_table_fini(&t);
}

static void one_in_use_is_never_let_go(void **state)
{
	struct hca_flow_table t;
	struct hca_flow *f;

	assert_int_equal(hca_flow_table_init(&t), 0);
	assert_int_equal(hca_flow_table_reserve(&t), 0);
	f = get(&t, 1);
	assert_ptr_equal(hca_flow_table_hold(&t, f), f);
	hca_flow_table_put(&t, f);
	f->window = 12345;
	for (unsigned i = 2; i < 3 * FLOW_IDLE_MAX; i++)
		use_once(&t, i);
	assert_int_equal(t.count, FLOW_IDLE_MAX + 1);
	assert_int_equal(f->window, 12345);
	hca_flow_table_put(&t, f);
	assert_int_equal(t.count, FLOW_IDLE_MAX);
	assert_true(is_there(&t, 1)); /* it idles since just now */
	hca_flow_table_fini(&t);
}

static void one_that_was_let_go_begins_anew(void **state)
{
	struct hca_flow_table t;
	struct hca_flow *f;

	assert_int_equal(hca_flow_table_init(&t), 0);
	f = get(&t, 1);
	f->window = 12345;
	hca_flow_table_put(&t, f);
	f = get(&t, 1);
	assert_int_equal(f->window, 12345); /* an idle one remembers */
	hca_flow_table_put(&t, f);
	for (unsigned i = 2; i < 2 * FLOW_IDLE_MAX; i++)
		use_once(&t, i);
	assert_false(is_there(&t, 1));
	f = get(&t, 1);
	assert_int_equal(f->window, FLOW_WINDOW);
	assert_int_equal(f->in_flight, 0);
	hca_flow_table_put(&t, f);
	hca_flow_table_fini(&t);
}

/* Who is first makes it. */
static void two_that_make_the_same_flow_share_one(void **state)
{
	struct hca_flow_table t;
	struct hca_flow *first;
	uint8_t gid[16];

	assert_int_equal(hca_flow_table_init(&t), 0);
	first = get(&t, 1);
	gid_of(1, gid);
	assert_ptr_equal(hca_flow_table_add(&t, gid, SLOT, false, 0), first);
	assert_int_equal(first->users, 2);
	assert_int_equal(t.count, 1);
	hca_flow_table_put(&t, first);
	hca_flow_table_put(&t, first);
	assert_int_equal(t.nidle, 1);
	hca_flow_table_fini(&t);
}

/* As many as there are queue pairs, and a window that was learnt is worth less than a place. */
static void there_is_room_for_each_queue_pair(void **state)
{
	enum { QPS = 200 };
	struct hca_flow_table t;
	uint8_t gid[16];

	assert_int_equal(hca_flow_table_init(&t), 0);
	for (unsigned i = 0; i < QPS; i++)
		assert_int_equal(hca_flow_table_reserve(&t), 0);
	for (unsigned i = 0; i < FLOW_IDLE_MAX; i++)
		use_once(&t, PEERS + i);
	for (unsigned i = 0; i < QPS; i++)
		get(&t, i);
	assert_true(is_there(&t, PEERS)); /* none of those that idle had to go */
	for (unsigned i = QPS; i < t.room; i++)
		get(&t, i);
	assert_int_equal(t.nidle, 0);
	gid_of(PEERS, gid);
	assert_null(hca_flow_table_add(&t, gid, SLOT, false, 0)); /* nobody can hold so many */
	for (unsigned i = 0; i < QPS; i++)
		hca_flow_table_unreserve(&t);
	for (unsigned i = 0, room = t.room; i < QPS; i++) {
		assert_int_equal(hca_flow_table_reserve(&t), 0);
		assert_int_equal(t.room, room);
	}
	hca_flow_table_fini(&t);
}

static void a_walk_meets_all_that_are_in_use(void **state)
{
	struct hca_flow_table t;
	struct hca_flow *used[10];
	unsigned met = 0;

	assert_int_equal(hca_flow_table_init(&t), 0);
	for (unsigned i = 0; i < 100; i++)
		use_once(&t, 1000 + i);
	for (unsigned i = 0; i < 10; i++)
		used[i] = get(&t, i);
	for (struct hca_flow *f = NULL; (f = hca_flow_table_next(&t, f)); met++) {
		assert_ptr_equal(f, used[met]);
		hca_flow_table_put(&t, used[met]); /* its queue pair is destroyed meanwhile */
	}
	assert_int_equal(met, 10);
	assert_int_equal(t.nidle, 110);
	assert_null(hca_flow_table_next(&t, NULL));
	hca_flow_table_fini(&t);
}

static struct hca_flow_table common;

/* Holds a few flows at a time, of more peers than are kept. */
static void *use_many(void *arg)
{
	struct hca_flow *held[4] = {NULL};
	unsigned seed = (unsigned)(uintptr_t)arg;

	for (unsigned i = 0; i < 20000; i++) {
		seed = seed * 1103515245 + 12345;
		hca_flow_table_put(&common, held[i % 4]);
		held[i % 4] = get(&common, seed >> 8 & (4 * FLOW_IDLE_MAX - 1));
		lock_take(&held[i % 4]->lock); /* it is not gone */
		held[i % 4]->sent++;
		lock_drop(&held[i % 4]->lock);
	}
	for (unsigned i = 0; i < 4; i++)
		hca_flow_table_put(&common, held[i]);
	return NULL;
}

static void *walk(void *arg)
{
	for (unsigned i = 0; i < 2000; i++) {
		for (struct hca_flow *f = NULL; (f = hca_flow_table_next(&common, f));)
			assert_true(f->slot == SLOT);
	}
	return NULL;
}

static void threads_use_and_walk_it_at_once(void **state)
{
	pthread_t thread[4];

	assert_int_equal(hca_flow_table_init(&common), 0);
	for (uintptr_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, i ? use_many : walk, (void *)i), 0);
	for (unsigned i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	assert_true(list_empty(&common.used));
	assert_int_equal(common.count, FLOW_IDLE_MAX);
	assert_int_equal(common.nidle, FLOW_IDLE_MAX);
	hca_flow_table_fini(&common);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_hundred_thousand_peers_leave_a_bounded_table),
		cmocka_unit_test(the_oldest_idle_one_is_let_go_first),
		cmocka_unit_test(one_in_use_is_never_let_go),
		cmocka_unit_test(one_that_was_let_go_begins_anew),
		cmocka_unit_test(two_that_make_the_same_flow_share_one),
		cmocka_unit_test(there_is_room_for_each_queue_pair),
		cmocka_unit_test(a_walk_meets_all_that_are_in_use),
		cmocka_unit_test(threads_use_and_walk_it_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
