/* SPDX-License-Identifier: MIT */
/*
 * A line for each probe: ANYRDMA_TRACE, a list with commas of names, in which * and ? stand for letters
 * (QP_STATE,CM_*), and of at most one file, which begins with a slash. Without names all are told, without a
 * file on stderr.
 *
 *	1763445600.123456789 anyrdma[4711] QP_STATE qpn=0x000801 from=RTR to=RTS
 *
 * The time is that of tcpdump -tt. The file is opened for each line: a program may close all descriptors it
 * did not open, and a number that was ours may be its own file's by then. A line is one write to a file that
 * is appended to, so that several programs, and their children, can share it.
 */
#include "observe/row.h"

#include "base/env.h"
#include "base/fd.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The next item of the list, at most so long that it fits; false: there is none. */
static bool next_item(const char **list, char *item, size_t size)
{
	size_t n = strcspn(*list, ",");

	if (!**list)
		return false;
	snprintf(item, size, "%.*s", (int)n, *list);
	*list += n + ((*list)[n] == ',');
	return true;
}

static bool is_name(const char *item)
{
	return *item && *item != '/';
}

static bool is_known(const char *item)
{
	for (unsigned p = 0; p < PROBE_COUNT; p++) {
		if (!fnmatch(item, probe_rows[p].name, 0))
			return true;
	}
	return false;
}

static bool start(void)
{
	const char *list = env_text(ANYRDMA_TRACE);
	char item[64];

	if (!list)
		return false;
	while (!env_quiet && next_item(&list, item, sizeof(item))) {
		if (is_name(item) && !is_known(item))
			log_warn("ANYRDMA_TRACE: there is no probe %s; anyrdma(1) has their names", item);
	}
	return true;
}

static bool wants(enum probe p)
{
	const char *list = env_text(ANYRDMA_TRACE);
	bool any = false;
	char item[64];

	while (list && next_item(&list, item, sizeof(item))) {
		if (is_name(item) && !fnmatch(item, probe_rows[p].name, 0))
			return true;
		any |= is_name(item);
	}
	return !any;
}

/* -1: there is none, or it cannot be opened. */
static int open_file(void)
{
	const char *list = env_text(ANYRDMA_TRACE);
	char item[4096];

	while (list && next_item(&list, item, sizeof(item))) {
		if (*item == '/')
			return fd_above_stdio((int)syscall(SYS_openat, AT_FDCWD, item,
				O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
	}
	return -1;
}

static void tell(enum probe p, const void *values)
{
	struct timespec now;
	char line[500];
	size_t n;
	int fd;

	clock_gettime(CLOCK_REALTIME, &now);
	n = (size_t)snprintf(line, sizeof(line), "%lld.%09ld anyrdma[%d] ", (long long)now.tv_sec,
		now.tv_nsec, (int)getpid());
	n += probe_in_fields(p, values, line + n, sizeof(line) - n - 1);
	line[n++] = '\n';
	/* System calls, which are no place to be cancelled, and which the shim does not see. */
	fd = open_file();
	if (syscall(SYS_write, fd < 0 ? STDERR_FILENO : fd, line, n) < 0) {
		/* nobody reads it */
	}
	if (fd >= 0)
		syscall(SYS_close, fd);
}

const struct probe_subscriber probe_to_trace = {.start = start, .wants = wants, .tell = tell};
