/* SPDX-License-Identifier: MIT */
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

void random_bytes(void *buf, size_t len)
{
	char *p = buf;

	while (len) {
		ssize_t n = syscall(
			SYS_getrandom, p, len, 0); /* libc's may be cancelled: keys are drawn under locks */

		if (n < 0) {
			if (errno == EINTR)
				continue;
			abort(); /* no random source: a guessable key is worse than no program */
		}
		p += n;
		len -= (size_t)n;
	}
}
