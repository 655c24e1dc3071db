/* SPDX-License-Identifier: MIT */
/* The functions that the shim stands in front of: libc's, or those of the next shim. */
#ifndef SHIM_NEXT_H
#define SHIM_NEXT_H

#include <dlfcn.h>

/* The oldest version of libc's symbols, for those that are only there for old programs. */
#if defined(__x86_64__)
#define LIBC_BASE "GLIBC_2.2.5"
#elif defined(__aarch64__) || defined(__powerpc64__)
#define LIBC_BASE "GLIBC_2.17"
#elif defined(__riscv)
#define LIBC_BASE "GLIBC_2.27"
#else
#define LIBC_BASE "GLIBC_2.0"
#endif

__attribute__((noinline)) static void *find_next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	return f ? f : dlvsym(RTLD_NEXT, name, LIBC_BASE);
}

#define EXPORT __attribute__((visibility("default")))

/* next_NAME: libc's (or the next shim's) function. Filled at load time; a call from an even earlier
 * constructor finds it itself, and two threads that do so find the same. */
#define NEXT(name)                                                                                           \
	({                                                                                                   \
		__typeof__(next_##name) f_ = __atomic_load_n(&next_##name, __ATOMIC_RELAXED);                \
		if (__builtin_expect(!f_, 0)) {                                                              \
			f_ = (__typeof__(next_##name))find_next(#name);                                      \
			__atomic_store_n(&next_##name, f_, __ATOMIC_RELAXED);                                \
		}                                                                                            \
		f_;                                                                                          \
	})

#endif
