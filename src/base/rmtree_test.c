/* SPDX-License-Identifier: MIT */
#include "base/rmtree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static int at;

static void file(const char *path)
{
	int fd = openat(at, path, O_CREAT | O_WRONLY, 0600);

	assert_true(fd >= 0);
	close(fd);
}

static void directory(const char *path)
{
	assert_int_equal(mkdirat(at, path, 0700), 0);
}

static int is_there(const char *path)
{
	return !faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW);
}

static int setup(void **state)
{
	char dir[] = "/tmp/anyrdma-rmtree.XXXXXX";

	*state = mkdtemp(dir) ? realpath(dir, NULL) : NULL;
	at = *state ? open(*state, O_RDONLY | O_DIRECTORY) : -1;
	return at < 0;
}

static int teardown(void **state)
{
	close(at);
	rmtree(AT_FDCWD, *state);
	free(*state);
	return 0;
}

static void all_below_is_gone(void **state)
{
	directory("tree");
	directory("tree/a");
	directory("tree/a/b");
	file("tree/one");
	file("tree/.two");
	file("tree/a/b/three");
	rmtree(at, "tree");
	assert_false(is_there("tree"));
}

static void links_go_and_what_they_lead_to_stays(void **state)
{
	directory("kept");
	file("kept/file");
	directory("tree");
	assert_int_equal(symlinkat("../kept", at, "tree/link"), 0);
	assert_int_equal(symlinkat("kept", at, "itself"), 0);
	rmtree(at, "tree");
	rmtree(at, "itself");
	assert_false(is_there("tree"));
	assert_true(is_there("kept/file"));
	assert_true(is_there("itself"));
}

static void what_is_too_deep_is_not_ours(void **state)
{
	char path[2 * 20 + 1] = "";

	for (unsigned i = 0; i < sizeof(path) / 2; i++) {
		path[2 * i] = 'd';
		path[2 * i + 1] = '\0';
		directory(path);
		path[2 * i + 1] = i + 1 < sizeof(path) / 2 ? '/' : '\0';
	}
	rmtree(at, "d");
	assert_true(is_there("d"));
	rmtree(at, "d/d/d/d/d/d/d/d/d/d");
	rmtree(at, "d");
	assert_false(is_there("d"));
}

static void what_is_not_there_is_no_error(void **state)
{
	file("file");
	rmtree(at, "nothing");
	rmtree(at, "file");
	assert_true(is_there("file")); /* it is no directory */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(all_below_is_gone),
		TEST(links_go_and_what_they_lead_to_stays),
		TEST(what_is_too_deep_is_not_ours),
		TEST(what_is_not_there_is_no_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
