/* SPDX-License-Identifier: MIT */
#include "subnet/topo_make.h"
#include "subnet/topo_write.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

static const struct subnet_ops nobody;

static unsigned count(const struct subnet *s, enum subnet_node_type type)
{
	unsigned n = 0;

	for (unsigned i = 0; i < subnet_nodes(s); i++)
		n += subnet_node(s, i)->type == type;
	return n;
}

static unsigned cables(const struct subnet *s)
{
	unsigned ends = 0;

	for (unsigned i = 0; i < subnet_nodes(s); i++)
		for (unsigned p = 1; p <= subnet_node(s, i)->nports; p++)
			ends += subnet_port(subnet_node(s, i), p)->peer != NULL;
	return ends / 2;
}

/* How many nodes can be reached from the first one. */
static unsigned reached(const struct subnet *s)
{
	unsigned n = subnet_nodes(s), head = 0, tail = 1;
	const struct subnet_node **queue = calloc(n, sizeof(*queue));
	uint8_t *seen = calloc(n, 1);

	queue[0] = subnet_node(s, 0);
	seen[0] = 1;
	for (; head < tail; head++)
		for (unsigned p = 1; p <= queue[head]->nports; p++) {
			const struct subnet_port *peer = queue[head]->port[p].peer;

			if (peer && !seen[peer->node->index]++)
				queue[tail++] = peer->node;
		}
	free(queue);
	free(seen);
	return tail;
}

static void counts_are_those_of_the_book(void **state)
{
	static const struct {
		const char *spec;
		unsigned hca_ports, switches, hosts, cables;
	} rows[] = {
		{"pair", 1, 0, 2, 1},
		{"pair", 2, 0, 2, 2},
		{"star:4", 1, 1, 4, 4},
		{"star:127", 2, 1, 127, 254},
		{"ring:6", 1, 6, 6, 12},
		{"fat-tree:2", 1, 5, 2, 6},
		{"fat-tree:4", 1, 20, 16, 48},
		{"fat-tree:16", 1, 320, 1024, 3072},
		{"tree:4,2,8", 1, 6, 32, 40},
		{"torus:3x3", 1, 9, 9, 27},
		{"torus:2x2", 1, 4, 4, 8},
		{"torus:3x4x5", 1, 60, 60, 240},
		{"dragonfly:4,2,2", 1, 36, 72, 54 + 36 + 72},
		{"dragonfly:1,3,1", 1, 4, 4, 6 + 4},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct subnet *s = subnet_open(&nobody, NULL, 1);
		char err[TOPO_ERROR] = "";

		if (topo_make(s, rows[i].spec, rows[i].hca_ports, err))
			fail_msg("%s: %s", rows[i].spec, err);
		assert_int_equal(count(s, SUBNET_SWITCH), rows[i].switches);
		assert_int_equal(count(s, SUBNET_CA), rows[i].hosts);
		assert_int_equal(cables(s), rows[i].cables);
		assert_int_equal(reached(s), subnet_nodes(s));
		subnet_close(s);
	}
}

/* Between any two groups of a dragonfly there is exactly one cable. */
static void groups_of_a_dragonfly_all_meet(void **state)
{
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	enum { A = 3, GROUPS = 7 };
	unsigned between[GROUPS][GROUPS] = {{0}};
	char err[TOPO_ERROR];

	assert_int_equal(topo_make(s, "dragonfly:3,2,1", 1, err), 0);
	for (unsigned i = 0; i < A * GROUPS; i++)
		for (unsigned p = 1; p <= subnet_node(s, i)->nports; p++) {
			const struct subnet_port *peer = subnet_node(s, i)->port[p].peer;

			if (peer->node->type == SUBNET_SWITCH)
				between[i / A][peer->node->index / A]++;
		}
	for (unsigned i = 0; i < GROUPS; i++)
		for (unsigned k = 0; k < GROUPS; k++)
			assert_int_equal(between[i][k], i == k ? A * (A - 1) : 1);
	subnet_close(s);
}

static void what_cannot_be_is_refused_in_words(void **state)
{
	static const char *const specs[] = {"star", "star:", "star:0", "star:255", "star:x", "star:4,4",
		"ring:2", "fat-tree:3", "fat-tree:200", "fat-tree:99999999999999999999", "tree:1,2",
		"tree:300,300,300", "torus:3", "torus:1x3", "torus:3x3x3x3", "torus:65535x65535x65535",
		"dragonfly:0,1,1", "dragonfly:65535,65535,65535", "pair:2", "mesh:4", "", "star:4 "};

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		struct subnet *s = subnet_open(&nobody, NULL, 1);
		char err[TOPO_ERROR] = "";

		assert_int_equal(topo_make(s, specs[i], 1, err), -EINVAL);
		assert_true(*err);
		subnet_close(s);
	}
}

static void hosts_get_addresses_in_order(void **state)
{
	static const uint8_t net[16] = {[10] = 0xff, 0xff, 10, 47, 0, 0},
			     third[16] = {[10] = 0xff, 0xff, 10, 47, 0, 3};
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	struct topo t = {0};
	char err[TOPO_ERROR];

	assert_int_equal(topo_make(s, "star:4", 1, err), 0);
	assert_int_equal(topo_complete(&t, s), 0);
	assert_int_equal(t.nhosts, 4);
	assert_int_equal(topo_add_ip(&t, subnet_port(subnet_find(s, "node4"), 1), third, 112), 0);
	assert_int_equal(topo_number(&t, net, 96 + 16), 0);
	assert_int_equal(t.nips, 4);
	assert_int_equal(t.ip[3].addr[15], 4); /* 3 was taken */
	assert_ptr_equal(t.ip[3].port->node, subnet_find(s, "node3"));
	assert_int_equal(topo_number(&t, net, 96 + 16), 0);
	assert_int_equal(t.nips, 4);
	t.nips = 0;
	assert_int_equal(topo_number(&t, net, 96 + 30), -ENOSPC);
	assert_ptr_equal(topo_host_of(&t, subnet_find(s, "node2")), topo_host(&t, "node2"));
	assert_int_equal(topo_add_hca(&t, "other", subnet_find(s, "node2")), -EBUSY);
	topo_fini(&t);
	subnet_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_those_of_the_book),
		cmocka_unit_test(groups_of_a_dragonfly_all_meet),
		cmocka_unit_test(what_cannot_be_is_refused_in_words),
		cmocka_unit_test(hosts_get_addresses_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
