/* SPDX-License-Identifier: MIT */
/* Building a subnet, and bringing one of a thousand nodes up. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "subnet/stage_test.h"

#include "fabric/walk.h"

#include <errno.h>
#include <sys/resource.h>
#include <time.h>

static void names_ports_and_cables_are_checked(void **state)
{
	struct subnet_node *a, *b, *sw;
	char name[SUBNET_NAME + 1];
	struct stage t;

	stage_open(&t, 1);
	memset(name, 'x', SUBNET_NAME);
	name[SUBNET_NAME] = 0;
	a = subnet_add(t.s, SUBNET_CA, 2, "a");
	assert_non_null(a);
	assert_null(subnet_add(t.s, SUBNET_CA, 1, "a"));
	assert_int_equal(errno, EEXIST);
	assert_null(subnet_add(t.s, SUBNET_CA, 0, "b"));
	assert_int_equal(errno, EINVAL);
	assert_null(subnet_add(t.s, SUBNET_SWITCH, 255, "b"));
	assert_null(subnet_add(t.s, SUBNET_CA, 1, ""));
	assert_null(subnet_add(t.s, SUBNET_CA, 1, name));
	assert_int_equal(errno, EINVAL);
	b = subnet_add(t.s, SUBNET_CA, 1, name + 1);
	sw = subnet_add(t.s, SUBNET_SWITCH, 2, "sw");
	assert_true(b && sw && subnet_nodes(t.s) == 3);
	assert_ptr_equal(subnet_find(t.s, name + 1), b);
	assert_null(subnet_find(t.s, "c"));
	assert_null(subnet_port(a, 0));
	assert_null(subnet_port(a, 3));
	assert_non_null(subnet_port(sw, 0));

	assert_int_equal(subnet_join(subnet_port(a, 1), subnet_port(a, 1)), -EINVAL);
	assert_int_equal(subnet_join(subnet_port(a, 1), subnet_port(sw, 0)), -EINVAL);
	assert_int_equal(subnet_join(subnet_port(a, 1), subnet_port(sw, 1)), 0);
	assert_int_equal(subnet_join(subnet_port(b, 1), subnet_port(sw, 1)), -EBUSY);
	assert_int_equal(subnet_cut(subnet_port(a, 2), 0), -ENOTCONN);
	assert_int_equal(subnet_set_guid(a, 0), -EINVAL);
	assert_int_equal(a->guid, 0x02616e0000000100);
	assert_int_equal(subnet_port(a, 2)->guid, 0x02616e0000000102);
	assert_int_equal(subnet_port(sw, 2)->guid, sw->guid);
	assert_int_equal(subnet_start(t.s, 1), 0);
	assert_null(subnet_add(t.s, SUBNET_CA, 1, "late"));
	stage_close(&t);
}

/* k-ary, three levels: k pods of k/2 edge and k/2 aggregation switches, k*k/4 cores, k*k*k/4 hosts. */
static void add_fat_tree(struct stage *t, unsigned k)
{
	struct subnet_node *edge[16], *aggr[16], *core[64], *host;
	unsigned half = k / 2;
	char name[24];

	for (unsigned c = 0; c < half * half; c++) {
		snprintf(name, sizeof(name), "core%u", c);
		core[c] = subnet_add(t->s, SUBNET_SWITCH, k, name);
	}
	for (unsigned pod = 0; pod < k; pod++) {
		for (unsigned i = 0; i < half; i++) {
			snprintf(name, sizeof(name), "edge%u-%u", pod, i);
			edge[i] = subnet_add(t->s, SUBNET_SWITCH, k, name);
			snprintf(name, sizeof(name), "aggr%u-%u", pod, i);
			aggr[i] = subnet_add(t->s, SUBNET_SWITCH, k, name);
			for (unsigned h = 0; h < half; h++) {
				snprintf(name, sizeof(name), "host%u-%u-%u", pod, i, h);
				host = subnet_add(t->s, SUBNET_CA, 1, name);
				assert_false(subnet_join(subnet_port(host, 1), subnet_port(edge[i], h + 1)));
				assert_false(subnet_join(subnet_port(aggr[i], half + h + 1),
					subnet_port(core[i * half + h], pod + 1)));
			}
		}
		for (unsigned e = 0; e < half; e++)
			for (unsigned i = 0; i < half; i++)
				assert_false(subnet_join(
					subnet_port(edge[e], half + i + 1), subnet_port(aggr[i], e + 1)));
	}
}

static void fat_tree_of_1344_nodes_comes_up(void **state)
{
	const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 100};
	struct subnet_port *sm, *far;
	struct timespec from, to;
	struct rusage use;
	struct walk w;
	struct stage t;

	stage_open(&t, 1);
	add_fat_tree(&t, 16);
	assert_int_equal(subnet_nodes(t.s), 1344);
	assert_int_equal(subnet_start(t.s, t.now), 0);
	sm = stage_port(&t, "host0-0-0", 1);
	far = stage_port(&t, "host15-7-7", 1);
	clock_gettime(CLOCK_MONOTONIC, &from);
	stage_bring_up(&t, sm);
	clock_gettime(CLOCK_MONOTONIC, &to);
	getrusage(RUSAGE_SELF, &use);
	print_message("%u SMPs, %u hops, %ld ms with the manager's own work, %ld KiB\n", t.sent, t.seen,
		(to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000, use.ru_maxrss);
	for (unsigned i = 0; i < subnet_nodes(t.s); i++)
		for (unsigned k = 1; k <= subnet_node(t.s, i)->nports; k++)
			assert_int_equal(subnet_port(subnet_node(t.s, i), k)->shared->state, PORT_ACTIVE);
	for (unsigned i = 0; i < subnet_nodes(t.s); i++) {
		struct subnet_node *n = subnet_node(t.s, i);
		uint32_t end = subnet_end_port(subnet_port(n, 1))->index;

		if (end == sm->index)
			continue;
		assert_int_equal(fabric_walk(subnet_table(t.s), sm->index, (uint16_t)(i + 1), &what, &w),
			WALK_ARRIVED);
		assert_int_equal(w.port, end);
		assert_true(w.hops <= 5 && w.plain);
	}
	t.seen = 0;
	assert_true(stage_data(&t, sm, far->shared->lid, PKEY_DEFAULT, 0, 100));
	assert_ptr_equal(t.at, far);
	assert_int_equal(t.seen, 6);
	stage_close(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_ports_and_cables_are_checked),
		cmocka_unit_test(fat_tree_of_1344_nodes_comes_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
