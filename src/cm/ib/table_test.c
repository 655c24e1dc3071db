/* SPDX-License-Identifier: MIT */
#include "cm/ib/conn.h"
#include "wire/qpn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { N = 300 };

static struct cm_conn conn[N];
static const uint8_t here[16] = {[15] = 1}, there[16] = {[15] = 2};

/* Connection i: ids and QP number from i, every third one of a datagram service. */
static void fill(struct cm_table *t)
{
	for (uint32_t i = 0; i < N; i++) {
		conn[i] = (struct cm_conn){.local_id = 1000 + i, .remote_id = i / 3, .remote_qpn = i};
		conn[i].sidr = i % 3 == 0;
		memcpy(conn[i].path.remote, i % 3 == 1 ? here : there, 16);
		for (int index = CM_BY_LOCAL; index <= CM_BY_QPN; index++)
			cm_table_add(t, (enum cm_index)index, &conn[i]);
	}
}

static void check(const struct cm_table *t, uint32_t i, bool in)
{
	struct cm_conn *c = in ? &conn[i] : NULL;
	const uint8_t *gid = conn[i].path.remote;
	uint64_t id = conn[i].remote_id | (conn[i].sidr ? CM_ID_SIDR : 0);

	assert_ptr_equal(cm_table_find(t, CM_BY_LOCAL, 1000 + i, NULL), c);
	assert_ptr_equal(cm_table_find(t, CM_BY_REMOTE, id, gid), c);
	assert_ptr_equal(cm_table_find(t, CM_BY_QPN, i, gid), c);
	assert_null(cm_table_find(t, CM_BY_QPN, i, gid == here ? there : (const uint8_t[16]){9}));
	assert_null(cm_table_find(t, CM_BY_SERVICE, i, NULL));
}

/* The same however long the chains are. */
static void connections_are_found_by_each_of_their_names_until_they_leave(void **state)
{
	static const uint32_t sizes[] = {1, 16, 512};

	for (unsigned s = 0; s < 3; s++) {
		struct cm_link *buckets[CM_INDEXES * 512] = {0};
		struct cm_table t;

		cm_table_init(&t, buckets, sizes[s], 42);
		fill(&t);
		for (uint32_t i = 0; i < N; i++)
			check(&t, i, true);
		for (uint32_t i = 0; i < N; i += 2)
			cm_table_remove(&t, &conn[i]);
		for (uint32_t i = 0; i < N; i++)
			check(&t, i, i % 2);
		for (uint32_t i = 0; i < N; i++)
			cm_table_remove(&t, &conn[i]); /* harmless for those that have left */
		for (int index = 0; index < CM_INDEXES; index++)
			assert_int_equal(t.count[index], 0);
	}
}

static void ids_carry_the_slot_of_their_process(void **state)
{
	assert_int_equal(comm_id_slot(comm_id_make(511, UINT32_MAX)), 511);
	assert_int_equal(comm_id_make(511, UINT32_MAX), UINT32_MAX);
	assert_int_equal(comm_id_slot(comm_id_make(3, 0x12345678)), 3);
	assert_int_equal(comm_id_make(0, UINT32_MAX), 0x7fffff);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_are_found_by_each_of_their_names_until_they_leave),
		cmocka_unit_test(ids_carry_the_slot_of_their_process),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
