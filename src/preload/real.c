/* SPDX-License-Identifier: MIT */
#include "preload/real.h"

#include <dlfcn.h>

struct real_functions real_functions;

/* Two threads that do this at once find the same. */
void real_find(void)
{
#define FIND(ret, name, params)                                                                              \
	real_functions.name = (__typeof__(real_functions.name))dlsym(RTLD_NEXT, #name);
	REAL_FUNCTIONS(FIND)
#undef FIND
	__atomic_store_n(&real_functions.found, true, __ATOMIC_RELEASE);
}
