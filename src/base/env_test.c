/* SPDX-License-Identifier: MIT */
#include "base/env.h"

#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static char said[400]; /* by env_value() on stderr */

static int64_t value(enum env v)
{
	FILE *f = tmpfile();
	int err = dup(STDERR_FILENO);
	int64_t got;
	ssize_t n;

	dup2(fileno(f), STDERR_FILENO);
	got = env_value(v);
	dup2(err, STDERR_FILENO);
	close(err);
	n = pread(fileno(f), said, sizeof(said) - 1, 0);
	assert_true(n >= 0);
	said[n] = 0;
	fclose(f);
	return got;
}

static int64_t value_given(enum env v, const char *name, const char *text)
{
	setenv(name, text, 1);
	env_forget();
	return value(v);
}

static int forget(void **state)
{
	env_quiet = false;
	clearenv();
	env_forget();
	return 0;
}

static void unset_is_the_default(void **state)
{
	assert_int_equal(value(ANYRDMA_LOCAL), 2);
	assert_int_equal(value(ANYRDMA_PORT), 4791);
	assert_int_equal(value(ANYRDMA_IWARP), 0);
	assert_int_equal(value(ANYRDMA_SOCKETS), ENV_UNSET);
	assert_int_equal(value_given(ANYRDMA_LOCAL, "ANYRDMA_LOCAL", ""), 2);
	assert_string_equal(said, "");
	assert_null(env_text(ANYRDMA_DIR));
}

static void values_are_what_was_given(void **state)
{
	assert_int_equal(value_given(ANYRDMA_LOCAL, "ANYRDMA_LOCAL", "off"), 0);
	assert_int_equal(value_given(ANYRDMA_LOCAL, "ANYRDMA_LOCAL", "map"), 3);
	assert_int_equal(value_given(ANYRDMA_LOG, "ANYRDMA_LOG", "debug"), LOG_DEBUG);
	assert_int_equal(value_given(ANYRDMA_PORT, "ANYRDMA_PORT", "65535"), 65535);
	assert_int_equal(value_given(ANYRDMA_IWARP, "ANYRDMA_IWARP", "crc,mss"), 1 | 1 << 8);
	assert_string_equal(said, "");
}

static void bad_values_are_told_of_with_those_allowed(void **state)
{
	static const struct {
		enum env v;
		const char *name, *given, *words;
		int64_t value;
	} rows[] = {
		{ANYRDMA_LOCAL, "ANYRDMA_LOCAL", "cop",
			"ANYRDMA_LOCAL=cop is not one of off, ring, copy, map: using copy\n", 2},
		{ANYRDMA_LOCAL, "ANYRDMA_LOCAL", "off, ring", "is not one of off, ring, copy, map", 2},
		{ANYRDMA_PORT, "ANYRDMA_PORT", "65536",
			"ANYRDMA_PORT=65536 is not a number from 1 to 65535: using 4791\n", 4791},
		{ANYRDMA_PORT, "ANYRDMA_PORT", "0", "is not a number", 4791},
		{ANYRDMA_PORT, "ANYRDMA_PORT", "80x", "is not a number", 4791},
		{ANYRDMA_PORT, "ANYRDMA_PORT", "99999999999999999999", "is not a number", 4791},
		{ANYRDMA_SOCKETS, "ANYRDMA_SOCKETS", "tcp", "is not one of stream, dgram, all: ignored\n",
			ENV_UNSET},
		{ANYRDMA_IWARP, "ANYRDMA_IWARP", "crc,cre,,mpa1,",
			"ANYRDMA_IWARP=crc,cre,,mpa1,: each must be one of crc, markers, ", 1 | 1 << 2},
	};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		assert_int_equal(value_given(rows[i].v, rows[i].name, rows[i].given), rows[i].value);
		if (!strstr(said, rows[i].words))
			fail_msg("%s=%s: %s", rows[i].name, rows[i].given, said);
		assert_int_equal(value(rows[i].v), rows[i].value);
		assert_string_equal(said, ""); /* once */
	}
}

static void who_is_quiet_tells_nothing(void **state)
{
	env_quiet = true;
	assert_int_equal(value_given(ANYRDMA_LOG, "ANYRDMA_LOG", "loud"), LOG_WARN);
	assert_string_equal(said, "");
}

static void each_is_read_once(void **state)
{
	const char *dir;

	setenv("ANYRDMA_DIR", "/one", 1);
	setenv("ANYRDMA_PORT", "1", 1);
	dir = env_text(ANYRDMA_DIR);
	assert_string_equal(dir, "/one");
	assert_int_equal(value(ANYRDMA_PORT), 1);
	setenv("ANYRDMA_DIR", "/two", 1);
	setenv("ANYRDMA_PORT", "2", 1);
	assert_ptr_equal(env_text(ANYRDMA_DIR), dir);
	assert_string_equal(dir, "/one");
	assert_int_equal(value(ANYRDMA_PORT), 1);
	env_forget();
	assert_string_equal(env_text(ANYRDMA_DIR), "/two");
	assert_int_equal(value(ANYRDMA_PORT), 2);
}

static void long_texts_are_cut(void **state)
{
	char text[5000];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	setenv("ANYRDMA_DEVICES", text, 1);
	assert_int_equal(strlen(env_text(ANYRDMA_DEVICES)), 4095);
	setenv("ANYRDMA_DEVICES", "lo", 1);
	env_forget();
	assert_string_equal(env_text(ANYRDMA_DEVICES), "lo");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(unset_is_the_default, forget),
		cmocka_unit_test_setup(values_are_what_was_given, forget),
		cmocka_unit_test_setup(bad_values_are_told_of_with_those_allowed, forget),
		cmocka_unit_test_setup(who_is_quiet_tells_nothing, forget),
		cmocka_unit_test_setup(each_is_read_once, forget),
		cmocka_unit_test_setup(long_texts_are_cut, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
