/* SPDX-License-Identifier: MIT */
/* The log has the probes of its level, in words (ANYRDMA_LOG). */
#include "observe/row.h"

static bool wants(enum probe p)
{
	return probe_rows[p].level != LOG_NONE && (int)probe_rows[p].level <= log_level;
}

static void tell(enum probe p, const void *values)
{
	char words[400];

	probe_in_words(p, values, words, sizeof(words));
	log_write(probe_rows[p].level, "%s", words);
}

const struct probe_subscriber probe_to_log = {.wants = wants, .tell = tell};
