/* SPDX-License-Identifier: MIT */
/* Unix sockets in the fabric's directory, for processes of our own user. */
#include "fabricd/fabricd.h"

#include "base/cred.h"
#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 128 };

/*
 * A descriptor kept for the day when there is none left: it is given up to take the newcomer in and hang up
 * on it. Otherwise the listener would stay readable, and the loop would spin.
 */
static int spare = -1;

static void keep_spare(void)
{
	if (spare < 0)
		spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void turn_away(int listener)
{
	if (spare >= 0)
		close(fd_take(&spare));
	close(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	keep_spare();
}

/*
 * The directory's path may be longer than a socket's may be: the name is given by way of a descriptor of the
 * directory, and is then short whatever the path.
 */
static int bind_in(const char *dir, const char *name, int fd)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), err = 0;

	if (at < 0)
		return -errno;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/%s", at, name);
	unlinkat(at, name, 0); /* of one that was killed; the lock says that it is gone */
	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || listen(fd, BACKLOG))
		err = -errno;
	close(at);
	return err;
}

int fabricd_listen(struct fabricd *d, const char *name, int type)
{
	int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int err = fd < 0 ? -errno : bind_in(d->dir, name, fd);

	keep_spare();
	if (!err)
		return fd;
	log_error("%s/%s cannot be opened: %s", d->dir, name, strerror(-err));
	if (fd >= 0)
		close(fd);
	return err;
}

int fabricd_accept(int listener)
{
	for (;;) {
		int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		socklen_t len = sizeof(struct ucred);
		struct ucred cred;

		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0 && (errno == EMFILE || errno == ENFILE)) {
			log_warn("no descriptors are left: a program was turned away");
			turn_away(listener);
			return -EAGAIN;
		}
		if (fd < 0)
			return -errno;
		if (!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && user_is_us(&cred))
			return fd;
		log_warn("a process of user %u was turned away", cred.uid);
		close(fd);
	}
}
