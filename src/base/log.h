/* SPDX-License-Identifier: MIT */
/*
 * Messages to the user on stderr, chosen by ANYRDMA_LOG (error, warn, info, debug; default warn).
 * Log once, where the cause is known, in words the user can act on.
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

enum log_level { LOG_NONE, LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

extern int log_level __attribute__((visibility("hidden"))); /* each library has its own */

void log_init(void);
void log_write(enum log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_at(level, ...)                                                                                   \
	do {                                                                                                 \
		if (__builtin_expect((level) <= log_level, 0))                                               \
			log_write(level, __VA_ARGS__);                                                       \
	} while (0)
#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_at(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_DEBUG, __VA_ARGS__)

#endif
