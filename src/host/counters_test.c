/* SPDX-License-Identifier: MIT */
#include "host/counters.h"

#include "base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <setjmp.h>
#include <unistd.h>
#include <cmocka.h>

/* What one of the two says on stderr. */
static const char *said(const struct host_qp_counters *qp, const struct host_adapter_counters *adapter)
{
	static char text[600];
	FILE *f = tmpfile();
	int err = dup(STDERR_FILENO);
	ssize_t n;

	dup2(fileno(f), STDERR_FILENO);
	if (qp)
		host_counters_log_qp(qp);
	else
		host_counters_log_adapter(adapter);
	dup2(err, STDERR_FILENO);
	close(err);
	n = pread(fileno(f), text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	fclose(f);
	return text;
}

static void what_is_not_0_is_told(void **state)
{
	struct host_qp_counters qp = {.qpn = 0x1234, .tx_packets = 5, .wrong_peer = 7};
	struct host_adapter_counters adapter = {.bad_icrc = 1};

	log_level = LOG_INFO;
	assert_non_null(strstr(said(&qp, NULL), "QP 0x001234 counters: tx_packets=5 wrong_peer=7\n"));
	assert_non_null(strstr(said(NULL, &adapter), "adapter counters: bad_icrc=1\n"));
	adapter.bad_icrc = 0;
	assert_non_null(strstr(said(NULL, &adapter), "adapter counters: none\n"));
}

static void large_numbers_fit(void **state)
{
	struct host_qp_counters qp;

	log_level = LOG_INFO;
	memset(&qp, 0xff, sizeof(qp));
	assert_non_null(strstr(said(&qp, NULL), "tx_packets=18446744073709551615"));
}

static void nothing_is_told_unasked(void **state)
{
	struct host_qp_counters qp = {.tx_packets = 5};

	log_level = LOG_WARN;
	assert_string_equal(said(&qp, NULL), "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_not_0_is_told),
		cmocka_unit_test(large_numbers_fit),
		cmocka_unit_test(nothing_is_told_unasked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
