/* SPDX-License-Identifier: MIT */
#include "base/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 16 };

static bool is_directory_itself(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static void remove_below(int at, const char *name, unsigned depth)
{
	int fd = depth ? openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (!dir) {
		if (fd >= 0)
			close(fd);
		return;
	}
	while ((e = readdir(dir)))
		if (!is_directory_itself(e->d_name) && unlinkat(fd, e->d_name, 0) &&
			(errno == EISDIR || errno == EPERM))
			remove_below(fd, e->d_name, depth - 1);
	closedir(dir);
	unlinkat(at, name, AT_REMOVEDIR);
}

void rmtree(int at, const char *name)
{
	remove_below(at, name, DEPTH);
}
