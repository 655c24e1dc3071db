/* SPDX-License-Identifier: MIT */
#include "observe/row.h"

#include "base/env.h"
#include "host/counters.h"

#include <infiniband/verbs.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- a subscriber that remembers ---- */
static unsigned told;
static enum probe last;
static struct probe_QP_STATE seen;

static bool wants_qp_state(enum probe p)
{
	return p == PROBE_QP_STATE;
}

static void remember(enum probe p, const void *values)
{
	told++;
	last = p;
	memcpy(&seen, values, sizeof(seen));
	errno = ENOTTY;
}

static const struct probe_subscriber witness = {.wants = wants_qp_state, .tell = remember};

static uint32_t evaluated(void)
{
	static uint32_t n;

	return ++n;
}

static void nothing_is_evaluated_when_nobody_listens(void **state)
{
	uint32_t before = evaluated();

	PROBE(QP_STATE, .qpn = evaluated());
	assert_int_equal(evaluated(), before + 1);
	assert_int_equal(told, 0);
}

static void who_subscribed_is_told_what_it_wants(void **state)
{
	told = 0;
	probe_subscribe(&witness);
	errno = EAGAIN;
	PROBE(QP_STATE, .qpn = 5, .from = IBV_QPS_RTR, .to = IBV_QPS_RTS);
	assert_int_equal(errno, EAGAIN);
	PROBE(ACK_TIMEOUT, .qpn = 5);
	assert_int_equal(told, 1);
	assert_int_equal(last, PROBE_QP_STATE);
	assert_int_equal(seen.qpn, 5);
	assert_int_equal(seen.to, IBV_QPS_RTS);
	probe_unsubscribe(&witness);
	PROBE(QP_STATE, .qpn = 6);
	assert_int_equal(told, 1);
}

static unsigned timeouts;

static bool wants_timeouts(enum probe p)
{
	return p == PROBE_ACK_TIMEOUT;
}

static void count_timeouts(enum probe p, const void *values)
{
	timeouts++;
}

static void each_is_told_what_it_wants(void **state)
{
	static const struct probe_subscriber other = {.wants = wants_timeouts, .tell = count_timeouts};

	told = 0;
	probe_subscribe(&witness);
	probe_subscribe(&other);
	PROBE(QP_STATE, .qpn = 1);
	assert_int_equal(timeouts, 0);
	PROBE(ACK_TIMEOUT, .qpn = 1);
	assert_int_equal(timeouts, 1);
	assert_int_equal(told, 1);
	probe_unsubscribe(&other);
	probe_unsubscribe(&witness);
}

static void there_is_room_for_eight(void **state)
{
	static struct probe_subscriber many[9];

	told = 0;
	for (int i = 0; i < 9; i++) {
		many[i] = witness;
		probe_subscribe(&many[i]);
		probe_subscribe(&many[i]); /* again is once */
	}
	PROBE(QP_STATE, .qpn = 1);
	assert_int_equal(told, 8);
	for (int i = 0; i < 9; i++)
		probe_unsubscribe(&many[i]);
	PROBE(QP_STATE, .qpn = 1);
	assert_int_equal(told, 8);
}

/* ---- text ---- */
static void fields_are_shown_by_name(void **state)
{
	struct probe_VERDICT v = {.qpn = 0x801, .opcode = 0x04, .psn = 0x12, .verdict = "what it is"};
	char s[200];

	probe_in_fields(PROBE_VERDICT, &v, s, sizeof(s));
	assert_string_equal(
		s, "VERDICT qpn=0x000801 opcode=\"RC SEND_ONLY\" psn=0x000012 verdict=\"what it is\"");
}

static void words_have_the_names_of_verbs(void **state)
{
	struct probe_QP_STATE v = {.qpn = 0x801, .from = IBV_QPS_RTR, .to = IBV_QPS_RTS};
	struct probe_WR_FAILED f = {.qpn = 1, .status = IBV_WC_RETRY_EXC_ERR};
	char s[200];

	assert_int_equal(probe_in_words(PROBE_QP_STATE, &v, s, sizeof(s)), strlen("QP 0x000801: RTR -> RTS"));
	assert_string_equal(s, "QP 0x000801: RTR -> RTS");
	probe_in_words(PROBE_WR_FAILED, &f, s, sizeof(s));
	assert_string_equal(s, "QP 0x000001: a request failed: RETRY_EXC_ERR");
	f.status = 250; /* which has none */
	probe_in_words(PROBE_WR_FAILED, &f, s, sizeof(s));
	assert_string_equal(s, "QP 0x000001: a request failed: 250");
}

static void what_does_not_fit_is_cut(void **state)
{
	struct probe_MPA_ERROR v = {.error = "a long story"};
	char s[12];

	assert_int_equal(probe_in_words(PROBE_MPA_ERROR, &v, s, sizeof(s)), 11);
	assert_string_equal(s, "MPA: a long");
	assert_int_equal(probe_in_fields(PROBE_MPA_ERROR, &v, s, sizeof(s)), 11);
	assert_string_equal(s, "MPA_ERROR e");
}

/* Words name fields of their row; what the log has has words. */
static void every_row_makes_sense(void **state)
{
	for (unsigned p = 0; p < PROBE_COUNT; p++) {
		const struct probe_row *row = &probe_rows[p];

		assert_int_equal(row->level != LOG_NONE, row->text != NULL);
		for (const char *s = row->text; s && (s = strchr(s, '{')); s++) {
			size_t n = strcspn(s + 1, "}");
			bool found = false;

			for (unsigned i = 0; row->field[i].type != FIELD_END; i++)
				found |= strlen(row->field[i].name) == n &&
					 !strncmp(s + 1, row->field[i].name, n);
			if (!found)
				fail_msg("%s: no field %.*s", row->name, (int)n, s + 1);
		}
	}
}

/* ---- the log, the trace ---- */
/* What is said on stderr, of a change of state and a timeout too. */
static const char *said(void)
{
	static char text[1000];
	FILE *f = tmpfile();
	int err = dup(STDERR_FILENO);
	ssize_t n;

	dup2(fileno(f), STDERR_FILENO);
	probe_init();
	PROBE(QP_STATE, .qpn = 0x801, .from = IBV_QPS_INIT, .to = IBV_QPS_RTR);
	PROBE(ACK_TIMEOUT, .qpn = 0x801, .psn = 3);
	dup2(err, STDERR_FILENO);
	close(err);
	n = pread(fileno(f), text, sizeof(text) - 1, 0);
	assert_true(n >= 0);
	text[n] = 0;
	fclose(f);
	return text;
}

static const char *logged(int level)
{
	log_level = level;
	return said();
}

static void log_has_the_probes_of_its_level(void **state)
{
	assert_non_null(strstr(logged(LOG_DEBUG), " debug: QP 0x000801: INIT -> RTR\n"));
	assert_null(strstr(logged(LOG_DEBUG), "000003"));
	assert_string_equal(logged(LOG_WARN), "");
}

static const char *traced(const char *list)
{
	setenv("ANYRDMA_TRACE", list, 1);
	env_forget();
	return said();
}

static int untraced(void **state)
{
	return strcmp(traced(""), "");
}

#define STATE_LINE   "] QP_STATE qpn=0x000801 from=INIT to=RTR\n"
#define TIMEOUT_LINE "] ACK_TIMEOUT qpn=0x000801 psn=0x000003\n"

static void trace_has_the_probes_it_names(void **state)
{
	const char *s = traced("QP_*,CQE");

	assert_non_null(strstr(s, STATE_LINE));
	assert_null(strstr(s, "ACK_TIMEOUT"));
	assert_null(strstr(traced("CQE"), "QP_STATE"));
	assert_non_null(strstr(traced("*"), TIMEOUT_LINE));
	assert_non_null(strstr(traced("QP_STAT"), "there is no probe QP_STAT;"));
}

static void trace_goes_to_a_file(void **state)
{
	char dir[] = "/tmp/probe-test-XXXXXX", file[64], link[64], list[100], text[400] = "";
	FILE *f;

	assert_non_null(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/file", dir);
	snprintf(link, sizeof(link), "%s/link", dir);
	snprintf(list, sizeof(list), "ACK_TIMEOUT,%s", file);
	assert_string_equal(traced(list), "");
	assert_string_equal(traced(file), ""); /* all of them */
	f = fopen(file, "r");
	assert_non_null(f);
	assert_true(fread(text, 1, sizeof(text) - 1, f) > 0);
	fclose(f);
	assert_int_equal(strncmp(strchr(text, ']'), TIMEOUT_LINE, strlen(TIMEOUT_LINE)), 0);
	assert_non_null(strstr(text, STATE_LINE));
	unlink(file);
	/* What somebody else may have put there is not followed. */
	assert_int_equal(symlink(file, link), 0);
	assert_non_null(strstr(traced(link), STATE_LINE));
	assert_int_equal(access(file, F_OK), -1);
	unlink(link);
	rmdir(dir);
}

/* ---- counters ---- */
static void probes_count_for_queue_pair_and_adapter(void **state)
{
	struct host_qp_counters qp = {0};
	struct host_adapter_counters adapter = {0};

	host_count_qp_RETRANSMIT(&qp);
	host_count_qp_DROP(&qp);
	host_count_qp_DROP(&qp);
	host_count_qp_FRAME_TX(&qp); /* sums are not its business */
	host_count_adapter_MAD_TX(&adapter);
	assert_int_equal(qp.retransmits, 1);
	assert_int_equal(qp.dropped, 2);
	assert_int_equal(qp.tx_packets, 0);
	assert_int_equal(adapter.mads_sent, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_evaluated_when_nobody_listens),
		cmocka_unit_test(who_subscribed_is_told_what_it_wants),
		cmocka_unit_test(each_is_told_what_it_wants),
		cmocka_unit_test(there_is_room_for_eight),
		cmocka_unit_test(fields_are_shown_by_name),
		cmocka_unit_test(words_have_the_names_of_verbs),
		cmocka_unit_test(what_does_not_fit_is_cut),
		cmocka_unit_test(every_row_makes_sense),
		cmocka_unit_test(log_has_the_probes_of_its_level),
		cmocka_unit_test_teardown(trace_has_the_probes_it_names, untraced),
		cmocka_unit_test_teardown(trace_goes_to_a_file, untraced),
		cmocka_unit_test(probes_count_for_queue_pair_and_adapter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
