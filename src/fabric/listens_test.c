/* SPDX-License-Identifier: MIT */
/* What a fabric is told of listeners: all of it, in the end, whatever room there is. */
#include "fabric/listens.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int fd[2];

static int begin(void **state)
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd);
}

static int end(void **state)
{
	close(fd[0]);
	close(fd[1]);
	return 0;
}

static int change(struct fabric_listens *l, uint64_t service, bool on)
{
	const struct cm_listen what = {.service_id = service, .v4 = true};

	return fabric_listens_change(l, &what, on);
}

/* The next word: its type and service; 0: there is none. */
static int heard(uint64_t *service)
{
	struct attach_listen m;

	if (recv(fd[1], &m, sizeof(m), 0) != (ssize_t)sizeof(m))
		return 0;
	assert_int_equal(m.families, ATTACH_V4);
	*service = m.service_id;
	return m.type;
}

static void each_is_told_once(void **state)
{
	struct fabric_listens l = {0};
	uint64_t service;

	assert_int_equal(change(&l, 5, true), 0);
	fabric_listens_tell(&l, fd[0]);
	fabric_listens_tell(&l, fd[0]);
	assert_int_equal(heard(&service), ATTACH_LISTEN);
	assert_int_equal(service, 5);
	assert_int_equal(heard(&service), 0);
	change(&l, 5, false);
	change(&l, 5, true); /* the fabric must hear it in this order */
	fabric_listens_tell(&l, fd[0]);
	assert_int_equal(heard(&service), ATTACH_UNLISTEN);
	assert_int_equal(heard(&service), ATTACH_LISTEN);
	change(&l, 6, true);
	change(&l, 6, false); /* it never heard of it */
	fabric_listens_tell(&l, fd[0]);
	assert_int_equal(heard(&service), 0);
	fabric_listens_fini(&l);
}

static void what_finds_no_room_is_told_later(void **state)
{
	struct fabric_listens l = {0};
	unsigned n = 0;
	uint64_t service;

	for (unsigned i = 0; i < ATTACH_LISTENERS; i++)
		assert_int_equal(change(&l, i, true), 0);
	assert_int_equal(change(&l, ATTACH_LISTENERS, true), -ENOSPC);
	for (unsigned before = ~0u; before != n;) {
		before = n;
		fabric_listens_tell(&l, fd[0]);
		for (; heard(&service); n++)
			assert_int_equal(service, n);
	}
	assert_int_equal(n, ATTACH_LISTENERS);
	fabric_listens_fini(&l);
}

static void another_fabric_is_told_all_of_it(void **state)
{
	struct fabric_listens l = {0};
	uint64_t service;

	change(&l, 5, true);
	change(&l, 6, true);
	fabric_listens_tell(&l, fd[0]);
	change(&l, 5, false);
	assert_true(heard(&service) && heard(&service));
	fabric_listens_again(&l);
	fabric_listens_tell(&l, fd[0]);
	assert_int_equal(heard(&service), ATTACH_LISTEN);
	assert_int_equal(service, 6);
	assert_int_equal(heard(&service), 0);
	fabric_listens_fini(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(each_is_told_once, begin, end),
		cmocka_unit_test_setup_teardown(what_finds_no_room_is_told_later, begin, end),
		cmocka_unit_test_setup_teardown(another_fabric_is_told_all_of_it, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
