/* SPDX-License-Identifier: MIT */
/* The rows of the list of probes, for those who turn what was told into text. */
#ifndef OBSERVE_ROW_H
#define OBSERVE_ROW_H

#include "observe/probe.h"

#include <stddef.h>

enum { FIELDS_MAX = 6 };

struct probe_row {
	const char *name;
	enum log_level level;
	const char *text;
	struct probe_field {
		const char *name;
		enum probe_field_type type;
	} field[FIELDS_MAX + 1]; /* ends with FIELD_END */
};

extern const struct probe_row probe_rows[PROBE_COUNT];

/* Both give the length of what they wrote, which ends with a 0 and was cut where it did not fit. */
/* In the words of the row's text. */
size_t probe_in_words(enum probe p, const void *values, char *buf, size_t size);
/* Its name and all fields: QP_STATE qpn=0x000801 from=RTR to=RTS */
size_t probe_in_fields(enum probe p, const void *values, char *buf, size_t size);

#endif
