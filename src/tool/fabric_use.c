/* SPDX-License-Identifier: MIT */
/*
 * anyrdma run --fabric: a fabric for as long as somebody runs on it. Who uses it holds the FIFO `users` in
 * its directory open for writing (fabricd/users.c). That descriptor is not closed on exec: the program has
 * it, and its children, and gives it back by ending.
 */
#include "tool/fabric.h"
#include "tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { OUT_OF_THE_WAY = 200 }; /* programs expect to get the low numbers */

/* Without `users` it was brought up by name, or is about to end, its last user gone. */
static bool stays(const struct fabric_ref *f)
{
	char gone[PATH_MAX + 16];

	snprintf(gone, sizeof(gone), "%s/users.gone", f->dir);
	return access(gone, F_OK) && fabric_is_up(f->dir);
}

int fabric_hold(const struct fabric_ref *f)
{
	char path[PATH_MAX + 8];
	int fd, high;

	snprintf(path, sizeof(path), "%s/users", f->dir);
	fd = open(path, O_WRONLY | O_NONBLOCK | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT && stays(f) ? 0 : -ENXIO;
	high = fcntl(fd, F_DUPFD, OUT_OF_THE_WAY);
	if (high >= 0)
		close(fd);
	return 0;
}

/* Of several that begin at once, one brings it up: they come one after the other. */
static int take_turn(const struct fabric_ref *f)
{
	char run[PATH_MAX];
	int fd;

	snprintf(run, sizeof(run), "%.*s", (int)(strrchr(f->dir, '/') - f->dir), f->dir);
	fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		flock(fd, LOCK_EX);
	return fd;
}

static int bring_up(const char *topology, struct fabric_ref *f)
{
	char *up[] = {"up", "--quiet", "--until-unused", (char *)topology, NULL};

	return fabric_up_as(topology ? 4 : 3, up, f) ? -1 : 0;
}

int fabric_use(const char *topology)
{
	enum { TRIES = 500 }; /* 5 s, for one that ends to get out of the way */
	struct fabric_ref f;
	int err = -1, turn = -1;

	for (int i = 0; err && i < TRIES; i++) {
		if (fabric_find(NULL, &f))
			break;
		if (f.others)
			return fabric_find_up(NULL, &f); /* which one is meant? */
		if (turn < 0)
			turn = take_turn(&f);
		err = -1;
		if (!f.up && fabric_find(NULL, &f))
			break;
		if (!f.up && bring_up(topology, &f))
			break;
		err = fabric_hold(&f);
		if (err)
			usleep(10000);
	}
	if (turn >= 0)
		close(turn);
	if (err == -ENXIO)
		tool_warn("the fabric '%s' does not end; its log is %s/fabricd.log", f.name, f.dir);
	return err ? -1 : 0;
}
