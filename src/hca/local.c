/* SPDX-License-Identifier: MIT */
#include "hca/local.h"

#include "base/log.h"

#include <stdlib.h>
#include <string.h>

enum hca_local hca_local_wanted(void)
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
