/* SPDX-License-Identifier: MIT */
#include "hca/local.h"

#include "base/log.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static enum hca_local wanted = HCA_LOCAL_OFF;

static void ask(void)
{
	static const char *const names[] = {"off", "ring", "copy", "map"};
	const char *v = getenv("ANYRDMA_LOCAL");

	if (!v || !*v)
		return;
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!strcmp(v, names[i])) {
			wanted = (enum hca_local)i;
			return;
		}
	}
	log_warn("ANYRDMA_LOCAL=%s is none of map, copy, ring and off: off", v);
}

enum hca_local hca_local_wanted(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, ask);
	return wanted;
}
