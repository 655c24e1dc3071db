/* SPDX-License-Identifier: MIT */
#include "fabric/client.h"

#include "base/cred.h"
#include "base/env.h"
#include "base/fd.h"
#include "host/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define PREFIX "fabric-"

void fabric_where(struct fabric_where *w, const char *ca, uint32_t port)
{
	const char *host = env_text(ANYRDMA_HOST);

	*w = (struct fabric_where){.port = port};
	snprintf(w->host, sizeof(w->host), "%s", host ? host : "");
	snprintf(w->ca, sizeof(w->ca), "%s", ca ? ca : "");
}

/* The directory is ours alone, but the run directory may have been given to us by a program's environment. */
static bool is_ours(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) && user_is_us(&cred);
}

/* The path may be too long for a socket's name: by way of the directory's descriptor it is not. */
static int connect_below(int at, const struct fabric_socket *to)
{
	const struct timeval patience = {to->patience_ms / 1000, to->patience_ms % 1000 * 1000};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = fd_above_stdio(socket(AF_UNIX, to->type | SOCK_CLOEXEC, 0)), err;

	if (fd < 0)
		return -errno;
	snprintf(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d/%s", at, to->name);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	err = connect(fd, (struct sockaddr *)&addr, sizeof(addr)) ? -errno : is_ours(fd) ? 0 : -EPERM;
	if (err) {
		close(fd);
		return err;
	}
	return fd;
}

static int connect_to(const char *run, const char *name, const struct fabric_socket *to)
{
	char dir[PATH_MAX];
	int at, fd;

	if (strchr(name, '/') ||
		(size_t)snprintf(dir, sizeof(dir), "%s/" PREFIX "%s", run, name) >= sizeof(dir))
		return -ENOENT;
	at = fd_above_stdio(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (at < 0)
		return -errno;
	fd = connect_below(at, to);
	close(at);
	return fd;
}

static int is_fabric(const struct dirent *e)
{
	return !strncmp(e->d_name, PREFIX, strlen(PREFIX)) &&
	       strlen(e->d_name) < strlen(PREFIX) + FABRIC_NAME;
}

/*
 * The only one that is up, else that with the name of the tool's default. Up is one that somebody answers
 * for: a killed one leaves its directory.
 */
static int connect_to_ours(const char *run, char name[FABRIC_NAME], const struct fabric_socket *to)
{
	struct dirent **list;
	int n = scandir(run, &list, is_fabric, NULL), only = -ENOENT;
	unsigned up = 0;

	for (int i = 0; i < n; i++) {
		const char *found = list[i]->d_name + strlen(PREFIX);
		int fd = connect_to(run, found, to);

		if (fd >= 0 && up++) {
			close(fd);
		} else if (fd >= 0) {
			only = fd;
			snprintf(name, FABRIC_NAME, "%s", found);
		}
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	if (up == 1)
		return only;
	if (up)
		close(only);
	snprintf(name, FABRIC_NAME, "default");
	return connect_to(run, name, to);
}

int fabric_connect(char name[FABRIC_NAME])
{
	return fabric_connect_to(
		name, &(struct fabric_socket){"umad", SOCK_STREAM, .patience_ms = FABRIC_PATIENCE_MS});
}

int fabric_connect_to(char name[FABRIC_NAME], const struct fabric_socket *to)
{
	const char *wanted = env_text(ANYRDMA_FABRIC);
	char run[PATH_MAX];
	int fd;

	if (host_rundir_find(run, sizeof(run)))
		return -ENOENT;
	if (!*name && wanted && (size_t)snprintf(name, FABRIC_NAME, "%s", wanted) >= FABRIC_NAME)
		return -ENOENT;
	fd = *name ? connect_to(run, name, to) : connect_to_ours(run, name, to);
	return fd == -ECONNREFUSED ? -ENOENT : fd;
}

/* ---- questions ---- */
static int write_all(int fd, const void *data, size_t len)
{
	for (const char *at = data; len;) {
		ssize_t n = send(fd, at, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_all(int fd, void *data, size_t len)
{
	for (char *at = data; len;) {
		ssize_t n = recv(fd, at, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return !n ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
		at += n;
		len -= (size_t)n;
	}
	return 0;
}

int fabric_ask_over(
	int fd, enum fabric_umad_type type, const void *request, size_t len, void *answer, size_t room)
{
	struct fabric_msg m = {(uint32_t)len, FABRIC_UMAD_VERSION, (uint16_t)type};
	struct fabric_done done;
	int err = write_all(fd, &m, sizeof(m));

	if (!err)
		err = write_all(fd, request, len);
	if (!err)
		err = read_all(fd, &m, sizeof(m));
	if (err)
		return err;
	if (m.type != type || m.len < sizeof(done) || m.len > room)
		return -EPROTO;
	err = read_all(fd, answer, m.len);
	if (err)
		return err;
	memcpy(&done, answer, sizeof(done));
	return done.error ? -done.error : (int)m.len;
}

int fabric_ask(const char *fabric, enum fabric_umad_type type, const void *request, size_t len, void *answer,
	size_t room)
{
	char name[FABRIC_NAME] = "";
	int fd, n;

	if (fabric)
		snprintf(name, sizeof(name), "%s", fabric);
	fd = fabric_connect(name);
	if (fd < 0)
		return fd;
	n = fabric_ask_over(fd, type, request, len, answer, room);
	close(fd);
	return n;
}
