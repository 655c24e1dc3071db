/* SPDX-License-Identifier: MIT */
/*
 * A fabric that `anyrdma run --fabric` brought up ends with its last user. Each holds the FIFO `users` open
 * for writing, which its program inherits, and what that starts; the kernel tells us when the last one has
 * closed it, however that ended. A program that starts just then must not find a fabric that is about to
 * end: so the FIFO's name is removed first, and put back if one has opened it meanwhile.
 */
#include "fabricd/fabricd.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

static void paths(const struct fabricd *d, char name[PATH_MAX], char aside[PATH_MAX])
{
	snprintf(name, PATH_MAX, "%.*s/users", PATH_MAX - 16, d->dir);
	snprintf(aside, PATH_MAX, "%.*s/users.gone", PATH_MAX - 16, d->dir);
}

static bool is_used(const struct fabricd *d)
{
	struct pollfd p = {.fd = d->users};

	return !(poll(&p, 1, 0) == 1 && p.revents & POLLHUP);
}

static void on_last_user(void *arg, uint32_t events)
{
	struct fabricd *d = arg;
	char name[PATH_MAX], aside[PATH_MAX], waste[4096];

	/* Nobody has a reason to write. Who does so without end is read from in our turns. */
	(void)!read(d->users, waste, sizeof(waste));
	if (is_used(d))
		return;
	paths(d, name, aside);
	if (!rename(name, aside) && is_used(d) && !rename(aside, name))
		return;
	log_info("the last user is gone, and so is the fabric");
	loop_stop(d->loop);
}

int users_open(struct fabricd *d)
{
	char name[PATH_MAX], aside[PATH_MAX];

	if (!d->until_unused)
		return 0;
	paths(d, name, aside);
	if (mkfifo(name, 0600) && errno != EEXIST)
		return -errno;
	d->users = open(name, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
	return d->users < 0 ? -errno : loop_add(d->loop, d->users, EPOLLIN, on_last_user, d);
}

void users_close(struct fabricd *d)
{
	if (d->users < 0)
		return;
	loop_remove(d->loop, d->users);
	close(d->users);
	d->users = -1;
}
