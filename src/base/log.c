/* SPDX-License-Identifier: MIT */
#include "base/log.h"

#include "base/env.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int log_level = LOG_WARN;

static const char *const level_name[] = {"none", "error", "warn", "info", "debug"};

void log_init(void)
{
	log_level = (int)env_value(ANYRDMA_LOG);
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
