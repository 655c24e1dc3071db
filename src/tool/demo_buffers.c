/* SPDX-License-Identifier: MIT */
/*
 * They have names, unlike memory from memfd_create(): perftest opens its buffer by name (--mmap), and closes
 * it once it is mapped. So they are removed at the end, however that comes.
 */
#include "tool/demo_buffers.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20 }; /* perftest's, twice 64 KiB, and room */

static char paths[2][PATH_MAX];

static int make(const char *dir, char *path)
{
	int fd, err;

	snprintf(path, PATH_MAX, "%s/anyrdma-demo-%d-XXXXXX", dir, (int)getpid());
	fd = mkstemp(path);
	if (fd < 0) {
		err = -errno;
		*path = '\0';
		return err;
	}
	err = ftruncate(fd, BUFFER_BYTES) ? -errno : 0;
	close(fd);
	return err;
}

static int make_both(const char *dir)
{
	int err = make(dir, paths[0]);

	if (!err)
		err = make(dir, paths[1]);
	if (err)
		demo_buffers_remove();
	return err;
}

int demo_buffers_make(void)
{
	return make_both("/dev/shm") ? make_both("/tmp") : 0;
}

void demo_buffers_remove(void)
{
	for (int i = 0; i < 2; i++) {
		if (*paths[i])
			unlink(paths[i]);
		*paths[i] = '\0';
	}
}

const char *demo_buffer(bool client)
{
	return paths[client];
}
