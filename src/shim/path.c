/* SPDX-License-Identifier: MIT */
/* The path shim: libanyrdma-path.so, loaded in front of libc by `anyrdma run`.
 *
 * Some programs do not ask libibverbs about a device, they look at the kernel's files: UCX wants
 * /dev/infiniband/uverbsN to be a character device, NCCL reads GID types in /sys/class/infiniband.
 * The shim stands in front of the libc functions that take a path and turns those few prefixes to the
 * tree that sysfs/sysfs.c writes. Calls inside libc cannot be caught, so each public entry is here.
 *
 * What is kept:
 *  - A path of any other kind costs a comparison of a few bytes and a jump; no state, no lock.
 *  - The tree is looked up anew for each redirected call (a handful of system calls), since a process
 *    may change its user or network namespace; nothing to go stale, nothing to guard.
 *  - Where there is no tree the call goes through as it was; errno is the original function's.
 *  - What the original may do in a signal handler this may do too: the next function is found when the
 *    library is loaded, and nothing here allocates. */
#include "host/rundir.h"
#include "shim/next.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* From the kernel's place to the place below the tree's root. */
static const struct {
	const char *prefix;
	const char *place;
} places[] = {
	{"/sys/class/infiniband", "/class/infiniband"},
	{"/sys/class/infiniband_verbs", "/class/infiniband_verbs"},
	{"/sys/class/infiniband_mad", "/class/infiniband_mad"},
	{"/dev/infiniband", "/dev/infiniband"},
};

#define UVERBS "/uverbs"

/* What follows the prefix in path ("" or "/..."), or NULL. A slash stands for any number of them. */
static const char *after_prefix(const char *path, const char *prefix)
{
	while (*prefix) {
		if (*path++ != *prefix)
			return NULL;
		if (*prefix++ == '/')
			while (*path == '/')
				path++;
	}
	return !*path || *path == '/' ? path : NULL;
}

/* The row of places that path falls under, with what follows its prefix, or -1. */
__attribute__((noinline)) static int find_place(const char *path, const char **rest)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		*rest = after_prefix(path, places[i].prefix);
		if (*rest)
			return i;
	}
	return -1;
}

/* What every call pays: a look at two bytes, and for /sys and /dev at the others. */
static inline bool ours(const char *path)
{
	const char *rest;

	return path && path[0] == '/' && (path[1] == 's' || path[1] == 'd' || path[1] == '/') &&
	       find_place(path, &rest) >= 0;
}

static bool exists(const char *path)
{
	return !syscall(SYS_faccessat, AT_FDCWD, path, F_OK);
}

static bool append(char *buf, size_t *at, const char *s)
{
	size_t n = strlen(s);

	if (n >= PATH_MAX - *at)
		return false;
	memcpy(buf + *at, s, n + 1);
	*at += n;
	return true;
}

char *secure_getenv(const char *name); /* stdlib.h has prototypes of what is defined below */

/* Where the tree is: on a host of a fabric its own (`anyrdma run --host` says where), else the user's. */
static bool find_tree(char *buf, size_t *at)
{
	const char *own = secure_getenv("ANYRDMA_TREE");

	*at = 0;
	if (own && *own == '/')
		return append(buf, at, own);
	if (host_rundir_find(buf, PATH_MAX))
		return false;
	*at = strlen(buf);
	return append(buf, at, "/sys");
}

/* The path in the tree, written to buf, or the path itself when there is no tree. */
static const char *translate(const char *path, char *buf)
{
	const char *rest;
	int i = find_place(path, &rest);
	size_t root, at;

	if (!find_tree(buf, &at))
		return path;
	root = at;
	if (!append(buf, &at, "/class") || !exists(buf))
		return path;
	at = root;
	if (!append(buf, &at, places[i].place) || !append(buf, &at, rest))
		return path;
	/* The tree has a link here, for listings; lstat() must see a device too. */
	if (!strncmp(buf + root, "/dev/infiniband" UVERBS, strlen("/dev/infiniband" UVERBS)) && exists(buf))
		return "/dev/null";
	return buf;
}

static const char *redirect(const char *path, char *buf)
{
	int saved = errno;

	path = translate(path, buf);
	errno = saved;
	return path;
}

/* The functions. A row: result type, result when libc has no such function, name, parameters, arguments;
 * the parameter to redirect is called path. Types are the ABI's, not the headers' (void * for buffers):
 * the names are given in assembler so that no prototype, redirection or nonnull attribute gets between. */
#define PATH_FUNCTIONS(X)                                                                                    \
	X(int, -1, __open_2, (const char *path, int flags), (path, flags))                                   \
	X(int, -1, __open64_2, (const char *path, int flags), (path, flags))                                 \
	X(int, -1, __openat_2, (int at, const char *path, int flags), (at, path, flags))                     \
	X(int, -1, __openat64_2, (int at, const char *path, int flags), (at, path, flags))                   \
	X(void *, NULL, fopen, (const char *path, const char *mode), (path, mode))                           \
	X(void *, NULL, fopen64, (const char *path, const char *mode), (path, mode))                         \
	X(void *, NULL, opendir, (const char *path), (path))                                                 \
	X(int, -1, scandir, (const char *path, void *list, void *filter, void *order),                       \
		(path, list, filter, order))                                                                 \
	X(int, -1, scandir64, (const char *path, void *list, void *filter, void *order),                     \
		(path, list, filter, order))                                                                 \
	X(int, -1, stat, (const char *path, void *st), (path, st))                                           \
	X(int, -1, stat64, (const char *path, void *st), (path, st))                                         \
	X(int, -1, lstat, (const char *path, void *st), (path, st))                                          \
	X(int, -1, lstat64, (const char *path, void *st), (path, st))                                        \
	X(int, -1, fstatat, (int at, const char *path, void *st, int flags), (at, path, st, flags))          \
	X(int, -1, fstatat64, (int at, const char *path, void *st, int flags), (at, path, st, flags))        \
	X(int, -1, statx, (int at, const char *path, int flags, unsigned mask, void *stx),                   \
		(at, path, flags, mask, stx))                                                                \
	X(int, -1, __xstat, (int ver, const char *path, void *st), (ver, path, st))                          \
	X(int, -1, __xstat64, (int ver, const char *path, void *st), (ver, path, st))                        \
	X(int, -1, __lxstat, (int ver, const char *path, void *st), (ver, path, st))                         \
	X(int, -1, __lxstat64, (int ver, const char *path, void *st), (ver, path, st))                       \
	X(int, -1, __fxstatat, (int ver, int at, const char *path, void *st, int flags),                     \
		(ver, at, path, st, flags))                                                                  \
	X(int, -1, __fxstatat64, (int ver, int at, const char *path, void *st, int flags),                   \
		(ver, at, path, st, flags))                                                                  \
	X(int, -1, access, (const char *path, int mode), (path, mode))                                       \
	X(int, -1, eaccess, (const char *path, int mode), (path, mode))                                      \
	X(int, -1, euidaccess, (const char *path, int mode), (path, mode))                                   \
	X(int, -1, faccessat, (int at, const char *path, int mode, int flags), (at, path, mode, flags))      \
	X(ssize_t, -1, readlink, (const char *path, char *buf, size_t len), (path, buf, len))                \
	X(ssize_t, -1, readlinkat, (int at, const char *path, char *buf, size_t len), (at, path, buf, len))  \
	X(ssize_t, -1, __readlink_chk, (const char *path, char *buf, size_t len, size_t size),               \
		(path, buf, len, size))                                                                      \
	X(ssize_t, -1, __readlinkat_chk, (int at, const char *path, char *buf, size_t len, size_t size),     \
		(at, path, buf, len, size))                                                                  \
	X(char *, NULL, realpath, (const char *path, char *buf), (path, buf))                                \
	X(char *, NULL, __realpath_chk, (const char *path, char *buf, size_t size), (path, buf, size))       \
	X(char *, NULL, canonicalize_file_name, (const char *path), (path))                                  \
	X(ssize_t, -1, getxattr, (const char *path, const char *name, void *buf, size_t len),                \
		(path, name, buf, len))                                                                      \
	X(ssize_t, -1, lgetxattr, (const char *path, const char *name, void *buf, size_t len),               \
		(path, name, buf, len))                                                                      \
	X(ssize_t, -1, listxattr, (const char *path, char *buf, size_t len), (path, buf, len))               \
	X(ssize_t, -1, llistxattr, (const char *path, char *buf, size_t len), (path, buf, len))              \
	X(int, -1, chdir, (const char *path), (path))

/* Those with an optional last argument. */
#define OPEN_FUNCTIONS(X)                                                                                    \
	X(open, (const char *path, int flags, ...), (path, flags, mode))                                     \
	X(open64, (const char *path, int flags, ...), (path, flags, mode))                                   \
	X(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))                       \
	X(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))

#define CALL(fail, name, args) (NEXT(name) ? NEXT(name) args : (errno = ENOSYS, fail))

/* The buffer is in a function of its own, so that other paths do not pay for its stack. */
#define DEFINE(ret, fail, name, params, args)                                                                \
	static ret(*next_##name) params;                                                                     \
	__attribute__((noinline)) static ret name##_ours params                                              \
	{                                                                                                    \
		char place[PATH_MAX];                                                                        \
                                                                                                             \
		path = redirect(path, place);                                                                \
		return CALL(fail, name, args);                                                               \
	}                                                                                                    \
	EXPORT ret shim_##name params __asm__(#name);                                                        \
	EXPORT ret shim_##name params                                                                        \
	{                                                                                                    \
		if (__builtin_expect(ours(path), 0))                                                         \
			return name##_ours args;                                                             \
		return CALL(fail, name, args);                                                               \
	}
PATH_FUNCTIONS(DEFINE)

#define DEFINE_OPEN(name, params, args)                                                                      \
	static int(*next_##name) params;                                                                     \
	__attribute__((noinline)) static int name##_ours params                                              \
	{                                                                                                    \
		char place[PATH_MAX];                                                                        \
		mode_t mode;                                                                                 \
		va_list ap;                                                                                  \
                                                                                                             \
		va_start(ap, flags);                                                                         \
		mode = va_arg(ap, mode_t);                                                                   \
		va_end(ap);                                                                                  \
		path = redirect(path, place);                                                                \
		return CALL(-1, name, args);                                                                 \
	}                                                                                                    \
	EXPORT int shim_##name params __asm__(#name);                                                        \
	EXPORT int shim_##name params                                                                        \
	{                                                                                                    \
		mode_t mode = 0;                                                                             \
		va_list ap;                                                                                  \
                                                                                                             \
		if (__OPEN_NEEDS_MODE(flags)) {                                                              \
			va_start(ap, flags);                                                                 \
			mode = va_arg(ap, mode_t);                                                           \
			va_end(ap);                                                                          \
		}                                                                                            \
		if (__builtin_expect(ours(path), 0))                                                         \
			return name##_ours args;                                                             \
		return CALL(-1, name, args);                                                                 \
	}
OPEN_FUNCTIONS(DEFINE_OPEN)

#define RESOLVE(ret, fail, name, params, args) (void)NEXT(name);
#define RESOLVE_OPEN(name, params, args)       (void)NEXT(name);

__attribute__((constructor)) static void shim_init(void)
{
	PATH_FUNCTIONS(RESOLVE)
	OPEN_FUNCTIONS(RESOLVE_OPEN)
}
