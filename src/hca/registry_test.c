/* SPDX-License-Identifier: MIT */
#include "hca/registry.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

static void a_name_says_slot_and_process(void **state)
{
	uint32_t slot, pid;
	char name[40];

	hca_registry_name(name, sizeof(name), 17, 4242);
	assert_string_equal(name, "adapter-17-4242");
	assert_true(hca_registry_name_parse(name, &slot, &pid));
	assert_int_equal(slot, 17);
	assert_int_equal(pid, 4242);
}

static void other_names_are_nobodys(void **state)
{
	static const char *const names[] = {"", "adapter", "adapter-", "adapter-1", "adapter-1-",
		"adapter--1", "adapter-1-2x", "adapter-1-2-3", "adapter-01-2", "adapter-1- 2", "adapter-+1-2",
		"adapter-4294967296-1", "adapter-1-99999999999999999999999", "Adapter-1-2", "group-4791"};
	uint32_t slot, pid;

	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		assert_false(hca_registry_name_parse(names[i], &slot, &pid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_name_says_slot_and_process),
		cmocka_unit_test(other_names_are_nobodys),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
