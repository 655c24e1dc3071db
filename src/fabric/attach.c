/* SPDX-License-Identifier: MIT */
/* A program comes to its fabric. */
#include "fabric/attach.h"

#include "base/env.h"
#include "base/fd.h"
#include "base/memfile.h"
#include "fabric/client.h"
#include "fabric/names.h"
#include "fabric/shared.h"
#include "fabric/trunk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum { FD_TABLE, FD_NAMES, FD_TRUNK, FDS };

bool fabric_is_ours(void)
{
	const char *host = env_text(ANYRDMA_HOST);

	return host && *host;
}

/* ---- coming ---- */
/* False: this process may not open as many. */
static bool take_fds(struct msghdr *m, int fd[FDS])
{
	bool all = !(m->msg_flags & MSG_CTRUNC);
	unsigned kept = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		size_t n = c->cmsg_len < CMSG_LEN(0) ? 0 : (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		for (size_t i = 0; c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && i < n; i++) {
			int came;

			memcpy(&came, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (kept == FDS)
				close(came);
			else if ((fd[kept++] = fd_above_stdio(came)) < 0)
				all = false;
		}
	}
	return all;
}

static int receive_welcome(int sock, struct attach_welcome *w, int fd[FDS])
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS * sizeof(int))];
	struct iovec iov = {w, sizeof(*w)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t n;

	do
		n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (!n)
		return -ECONNRESET;
	if (!take_fds(&m, fd))
		return -EMFILE;
	if (n != (ssize_t)sizeof(*w) || w->magic != ATTACH_MAGIC || w->version != ATTACH_VERSION ||
		w->nhcas > FABRIC_CAS)
		return -EPROTO;
	for (uint32_t i = 0; i < w->nhcas; i++) {
		w->hca[i].name[FABRIC_CA_NAME - 1] = '\0';
		if (w->hca[i].nports > FABRIC_CA_PORTS)
			return -EPROTO;
	}
	w->tree[sizeof(w->tree) - 1] = '\0';
	return -w->error;
}

static int say_hello(int sock, uint32_t slot)
{
	struct attach_hello h = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION, .slot = slot};

	snprintf(h.host, sizeof(h.host), "%s", env_text(ANYRDMA_HOST) ? env_text(ANYRDMA_HOST) : "");
	return send(sock, &h, sizeof(h), MSG_NOSIGNAL) == (ssize_t)sizeof(h) ? 0 : -errno;
}

static int map(struct fabric_attachment *a, const int fd[FDS], bool trunk)
{
	a->table = memfile_map(fd[FD_TABLE], a->welcome.table_size, PROT_READ, NULL);
	if (!a->table || a->table->magic != FABRIC_MAGIC || a->table->version != FABRIC_VERSION ||
		a->table->size != a->welcome.table_size)
		return -EPROTO;
	a->names = memfile_map(fd[FD_NAMES], a->welcome.names_size, PROT_READ, NULL);
	if (!a->names || !fabric_names_are_whole(a->names, a->welcome.names_size))
		return -EPROTO;
	if (trunk)
		a->trunk = memfile_map(fd[FD_TRUNK], sizeof(*a->trunk), PROT_READ | PROT_WRITE, NULL);
	return trunk && !a->trunk ? -EPROTO : 0;
}

int fabric_attach(struct fabric_attachment *a, uint32_t slot, unsigned patience_ms)
{
	const struct fabric_socket to = {"attach", SOCK_SEQPACKET, patience_ms};
	char name[FABRIC_NAME] = "";
	int fd[FDS] = {-1, -1, -1}, err;

	*a = (struct fabric_attachment){.fd = -1};
	a->fd = fabric_connect_to(name, &to);
	if (a->fd < 0)
		return a->fd;
	err = say_hello(a->fd, slot);
	if (!err)
		err = receive_welcome(a->fd, &a->welcome, fd);
	if (!err)
		err = map(a, fd, slot);
	for (unsigned i = 0; i < FDS; i++)
		if (fd[i] >= 0)
			close(fd[i]);
	if (err)
		fabric_detach(a);
	return err;
}

void fabric_detach(struct fabric_attachment *a)
{
	if (a->table)
		munmap((void *)(uintptr_t)a->table, a->welcome.table_size);
	if (a->names)
		munmap((void *)(uintptr_t)a->names, a->welcome.names_size);
	if (a->trunk)
		munmap(a->trunk, sizeof(*a->trunk));
	if (a->fd >= 0)
		close(fd_take(&a->fd));
	a->table = NULL;
	a->names = NULL;
	a->trunk = NULL;
}

/* ---- being told ---- */
bool fabric_is_timer(int fd)
{
	struct itimerspec left;

	return !timerfd_gettime(fd, &left);
}

bool fabric_timer_rang(int fd)
{
	uint64_t ticks;

	return read(fd, &ticks, sizeof(ticks)) == (ssize_t)sizeof(ticks);
}

/* Rings when it is time to look for the fabric again. */
static int make_timer(void)
{
	const struct itimerspec every = {
		{.tv_nsec = FABRIC_RETRY_MS * 1000000}, {.tv_nsec = FABRIC_RETRY_MS * 1000000}};
	int timer = fd_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));

	if (timer >= 0)
		timerfd_settime(timer, 0, &every, NULL);
	return timer >= 0 ? timer : -errno;
}

/* The new one has the number of the old one, which others sleep on. */
static void replace(int fd, int by)
{
	if (by < 0)
		return;
	dup3(by, fd, O_CLOEXEC);
	close(by);
}

bool fabric_read_news(int fd, bool *gone)
{
	enum { AT_ONCE = 64 };
	uint8_t bytes[16];
	bool changed = false;
	ssize_t n = 1;

	*gone = false;
	for (int i = 0; i < AT_ONCE && n > 0; i++) {
		n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
		changed |= n == 1 && bytes[0] == ATTACH_CHANGED;
	}
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return changed;
	*gone = true;
	replace(fd, make_timer());
	return true;
}

void fabric_ring(int fd)
{
	static const uint8_t ring = ATTACH_RING;

	/* Full: then the other one has enough to wake up for. Gone: that is noticed elsewhere. */
	(void)!send(fd, &ring, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* ---- watching ---- */
static int attach_to_watch(unsigned patience_ms)
{
	struct fabric_attachment a;
	int err = fabric_attach(&a, 0, patience_ms), fd = a.fd;

	a.fd = -1;
	if (!err)
		fabric_detach(&a);
	return err ? err : fd;
}

int fabric_watch(void)
{
	int fd = attach_to_watch(FABRIC_PATIENCE_MS);

	return fd >= 0 ? fd : make_timer();
}

void fabric_watch_drain(int fd)
{
	bool gone;

	if (!fabric_is_timer(fd))
		fabric_read_news(fd, &gone);
	else if (fabric_timer_rang(fd))
		replace(fd, attach_to_watch(FABRIC_RETRY_MS));
}
