/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int log_level = LOG_WARN;

static const char *const level_name[] = {"none", "error", "warn", "info", "debug"};

void log_init(void)
{
	const char *want = getenv("ANYRDMA_LOG");

	if (!want || !*want)
		return;
	for (int i = LOG_NONE; i <= LOG_DEBUG; i++) {
		if (!strcmp(want, level_name[i])) {
			log_level = i;
			return;
		}
	}
	log_warn("ANYRDMA_LOG=%s is not one of none, error, warn, info, debug: using warn", want);
}

void log_write(enum log_level level, const char *fmt, ...)
{
	char line[512];
	int saved = errno, n, m;
	va_list ap;

	n = snprintf(line, sizeof(line), "anyrdma[%d] %s: ", (int)getpid(), level_name[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n += m < (int)sizeof(line) - n - 2 ? m : (int)sizeof(line) - n - 2;
	line[n++] = '\n';
	/* One write per line, so that lines of several processes do not mix. */
	if (syscall(SYS_write, STDERR_FILENO, line, (size_t)n) < 0) { /* no place to be cancelled */
		/* nobody reads stderr: nothing more to say */
	}
	errno = saved;
}
