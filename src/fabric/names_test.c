/* SPDX-License-Identifier: MIT */
#include "fabric/names.h"

#include "base/gid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HOSTS = 2, IPS = 3 };

static void v4(uint8_t last, uint8_t addr[16])
{
	gid_of_v4((const uint8_t[]){10, 47, 0, last}, addr);
}

/* node1 has 10.47.0.1 at port 5 and 10.47.0.2 at port 6; node2 has fd00::2 at port 7. */
static struct fabric_names *make(void)
{
	struct fabric_names *n = fabric_names_init(calloc(1, fabric_names_size(HOSTS, IPS)), HOSTS, IPS);

	for (uint32_t i = 0; i < HOSTS; i++)
		snprintf(fabric_names_host(n, i)->name, FABRIC_NAME, "node%u", i + 1);
	for (uint32_t i = 0; i < IPS; i++) {
		struct fabric_ip *ip = fabric_names_ip(n, i);

		v4((uint8_t)(i + 1), ip->addr);
		ip->port = 5 + i;
		ip->host = i / 2;
	}
	memcpy(fabric_names_ip(n, 2)->addr, (const uint8_t[16]){0xfd, [15] = 2}, 16);
	return n;
}

static void addresses_are_found_by_what_has_them(void **state)
{
	struct fabric_names *n = make();
	uint8_t addr[16];

	v4(2, addr);
	assert_int_equal(fabric_names_find(n, addr)->port, 6);
	v4(3, addr);
	assert_null(fabric_names_find(n, addr));
	assert_int_equal(fabric_names_of_port(n, 6, false)->addr[15], 2);
	assert_null(fabric_names_of_port(n, 6, true));
	assert_int_equal(fabric_names_of_host(n, "node1", false)->port, 5);
	assert_int_equal(fabric_names_of_host(n, "node2", true)->port, 7);
	assert_null(fabric_names_of_host(n, "node2", false));
	assert_null(fabric_names_of_host(n, "node", true));
	assert_null(fabric_names_host(n, HOSTS));
	assert_null(fabric_names_ip(n, IPS));
	free(n);
}

static void what_is_shorter_than_it_says_is_not_believed(void **state)
{
	struct fabric_names *n = make();
	size_t size = fabric_names_size(HOSTS, IPS);

	assert_true(fabric_names_are_whole(n, size));
	assert_false(fabric_names_are_whole(n, size - 1));
	assert_false(fabric_names_are_whole(n, 8));
	n->nips = UINT32_MAX;
	assert_false(fabric_names_are_whole(n, size));
	n->nips = IPS;
	n->version++;
	assert_false(fabric_names_are_whole(n, size));
	free(n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_found_by_what_has_them),
		cmocka_unit_test(what_is_shorter_than_it_says_is_not_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
