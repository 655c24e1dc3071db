/* SPDX-License-Identifier: MIT */
#include "hca/local.h"

#include "base/log.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

static enum hca_local asked_for(void)
{
	static const char *const names[] = {"off", "ring", "copy", "map"};
	const char *v = getenv("ANYRDMA_LOCAL");

	if (!v || !*v)
		return HCA_LOCAL_COPY;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(v, names[i]))
			return (enum hca_local)i;
	}
	log_warn("ANYRDMA_LOCAL=%s is none of map, copy, ring and off: copy, as by default", v);
	return HCA_LOCAL_COPY;
}

/* A program that must not be looked into by others of its user, who could else map what it registers. */
static bool is_closed(void)
{
	return prctl(PR_GET_DUMPABLE) != 1;
}

enum hca_local hca_local_wanted(void)
{
	enum hca_local asked = asked_for();

	if (asked <= HCA_LOCAL_RING || !is_closed())
		return asked;
	log_info("no memory is shown to other processes: this one may not be looked into (PR_SET_DUMPABLE)");
	return HCA_LOCAL_RING;
}
