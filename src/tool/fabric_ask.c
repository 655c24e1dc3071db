/* SPDX-License-Identifier: MIT */
/* Finding fabrics of this user, and talking to one by its console. */
#include "tool/fabric.h"
#include "tool/tool.h"

#include "base/env.h"
#include "host/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX "fabric-"

static bool good_name(const char *name)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

	return *name && strlen(name) < 48 && strspn(name, plain) == strlen(name);
}

bool fabric_is_up(const char *dir)
{
	char path[PATH_MAX + 8];
	int fd;
	bool held;

	snprintf(path, sizeof(path), "%s/lock", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	held = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
	close(fd);
	return held;
}

/* How many fabrics are up, and the name of one of them. */
static unsigned fabrics_up(const char *run, char *name, size_t len)
{
	unsigned found = 0;
	struct dirent *e;
	DIR *d = opendir(run);

	while (d && (e = readdir(d))) {
		char path[PATH_MAX];

		if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) || !good_name(e->d_name + strlen(PREFIX)) ||
			(size_t)snprintf(path, sizeof(path), "%s/%s", run, e->d_name) >= sizeof(path) ||
			!fabric_is_up(path))
			continue;
		found++;
		snprintf(name, len, "%s", e->d_name + strlen(PREFIX));
	}
	if (d)
		closedir(d);
	return found;
}

int fabric_find(const char *name, struct fabric_ref *f)
{
	char run[PATH_MAX - 128];
	unsigned up = 0;
	bool asked = name;
	int err = host_rundir(run, sizeof(run));

	if (err) {
		tool_warn("the directory for running programs cannot be used (%s); ANYRDMA_DIR names another "
			  "one",
			strerror(-err));
		return -1;
	}
	if (!name)
		name = env_text(ANYRDMA_FABRIC);
	if (name && (*name || asked) && !good_name(name)) {
		tool_warn("'%s' is no name for a fabric: letters, digits, '-' and '_', at most 47", name);
		return -1;
	}
	if (name && *name)
		snprintf(f->name, sizeof(f->name), "%s", name);
	else if ((up = fabrics_up(run, f->name, sizeof(f->name))) != 1)
		snprintf(f->name, sizeof(f->name), "%s", FABRIC_DEFAULT);
	snprintf(f->dir, sizeof(f->dir), "%s/" PREFIX "%s", run, f->name);
	f->up = fabric_is_up(f->dir);
	f->others = up > 1 && !f->up;
	return 0;
}

int fabric_find_up(const char *name, struct fabric_ref *f)
{
	if (fabric_find(name, f))
		return -1;
	if (f->others)
		tool_warn("several fabrics are up; --name NAME or ANYRDMA_FABRIC says which one is meant");
	else if (!f->up)
		tool_warn("there is no fabric '%s' that is up; `anyrdma fabric up` starts one", f->name);
	return f->up ? 0 : -1;
}

/* A fabric that is stopped or hangs: whoever asks is told so after a while. */
static void set_patience(int fd)
{
	static const struct timeval patience = {.tv_sec = 30};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

/* The path may be too long for a socket's name: by way of the directory's descriptor it is not. */
static int connect_to(const char *dir)
{
	struct sockaddr_un sa = {.sun_family = AF_UNIX};
	int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC), fd, err = 0;

	if (at < 0)
		return -errno;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "/proc/self/fd/%d/console", at);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0)
		set_patience(fd);
	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		err = -errno;
	close(at);
	if (err && fd >= 0)
		close(fd);
	return err ? err : fd;
}

static bool send_all(int fd, const char *p, size_t len)
{
	while (len) {
		ssize_t n = send(fd, p, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		p += n;
		len -= (size_t)n;
	}
	return true;
}

/* All that comes, with a zero behind it; for the caller to free. */
static char *read_all(int fd)
{
	size_t len = 0, room = 4096;
	char *buf = malloc(room);

	for (;;) {
		ssize_t n;

		if (buf && len + 1 == room) {
			char *more = realloc(buf, room *= 2);

			if (!more)
				free(buf);
			buf = more;
		}
		n = buf ? recv(fd, buf + len, room - 1 - len, 0) : 0;
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	if (buf)
		buf[len] = '\0';
	return buf;
}

/* One that comes up, or ends, has a lock and nobody who answers: it is one or the other soon. */
static int reach(const struct fabric_ref *f)
{
	enum { TRIES = 3000 }; /* 30 s */
	int fd = connect_to(f->dir);

	for (int i = 0; i < TRIES && (fd == -ENOENT || fd == -ECONNREFUSED) && fabric_is_up(f->dir); i++) {
		usleep(10000);
		fd = connect_to(f->dir);
	}
	return fd;
}

bool fabric_stays(const struct fabric_ref *f)
{
	int fd = reach(f);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || fabric_is_up(f->dir);
}

char *fabric_ask(const struct fabric_ref *f, const char *const *words)
{
	char *answer = NULL, *text;
	int fd = reach(f);
	bool sent = fd >= 0;

	for (; *words && sent; words++)
		sent = send_all(fd, *words, strlen(*words) + 1);
	if (sent && !shutdown(fd, SHUT_WR))
		answer = read_all(fd);
	if (fd >= 0)
		close(fd);
	text = answer ? strchr(answer, '\n') : NULL;
	if (!text) {
		if (fd < 0 && !fabric_is_up(f->dir))
			tool_warn("the fabric '%s' has just ended", f->name);
		else
			tool_warn("the fabric '%s' does not answer; its log is %s/fabricd.log", f->name,
				f->dir);
		free(answer);
		return NULL;
	}
	*text++ = '\0';
	if (strcmp(answer, "ok")) {
		text[strcspn(text, "\n")] = '\0';
		tool_warn("%s", text);
		free(answer);
		return NULL;
	}
	memmove(answer, text, strlen(text) + 1);
	return answer;
}

int fabric_enter(const char *fabric, const char *host)
{
	struct fabric_ref f;
	char *answer, *path;

	if (fabric_find_up(fabric, &f))
		return -1;
	answer = fabric_ask(&f, (const char *const[]){"tree", host, NULL});
	path = answer ? strchr(answer, '\n') : NULL;
	if (!path) {
		free(answer);
		return -1;
	}
	*path++ = '\0';
	path[strcspn(path, "\n")] = '\0';
	setenv("ANYRDMA_FABRIC", f.name, 1);
	setenv("ANYRDMA_HOST", answer, 1);
	setenv("ANYRDMA_TREE", path, 1);
	free(answer);
	return 0;
}
