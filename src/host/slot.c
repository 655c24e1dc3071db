/* SPDX-License-Identifier: MIT */
#include "host/slot.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/cred.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static const char look[8] = "look";

unsigned slots_count(const struct slots *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < SLOT_WORDS; i++)
		n += (unsigned)__builtin_popcountll(s->bits[i]);
	return n;
}

socklen_t slot_address(struct sockaddr_un *sa, uint16_t port, uint32_t slot)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(
				   sa->sun_path + 1, sizeof(sa->sun_path) - 1, "anyrdma/%u/%u", port, slot));
}

int slot_claim(uint16_t port, uint32_t *slot)
{
	uint32_t first = random_u32();
	struct timeval wait = {.tv_usec = SLOT_SEND_MS * 1000};
	int one = 1, fd = fd_above_stdio(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	for (uint32_t i = 0; i < SLOTS - 2; i++) {
		struct sockaddr_un sa;

		*slot = 1 + (first + i) % (SLOTS - 2);
		if (!bind(fd, (struct sockaddr *)&sa, slot_address(&sa, port, *slot)))
			return fd;
	}
	log_error("all %d process slots of UDP port %u are in use on this host", SLOTS - 2, port);
	close(fd);
	return -EUSERS;
}

/* ---- who is there ---- */
static bool is_bound(int fd, uint16_t port, uint32_t slot)
{
	struct sockaddr_un sa;
	socklen_t len = slot_address(&sa, port, slot);

	return !connect(fd, (struct sockaddr *)&sa, len) || errno != ECONNREFUSED;
}

bool slot_is_alive(uint16_t port, uint32_t slot)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool alive = fd < 0 || is_bound(fd, port, slot);

	if (fd >= 0)
		close(fd);
	return alive;
}

struct slots slots_alive(uint16_t port)
{
	struct slots s = {{0}};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (uint32_t slot = 1; fd >= 0 && slot < SLOTS - 1; slot++) {
		if (is_bound(fd, port, slot))
			slots_add(&s, slot);
	}
	if (fd >= 0)
		close(fd);
	return s;
}

/* ---- LOOK ---- */
void slots_ask_to_look(uint16_t port, const struct slots *whom)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	for (uint32_t slot = 1; fd >= 0 && slot < SLOTS - 1; slot++) {
		struct sockaddr_un sa;

		if (slots_has(whom, slot))
			sendto(fd, look, sizeof(look), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&sa,
				slot_address(&sa, port, slot));
	}
	if (fd >= 0)
		close(fd);
}

bool slot_is_look(const void *datagram, size_t len)
{
	return len == sizeof(look) && !memcmp(datagram, look, sizeof(look));
}

/* ---- receiving ---- */
static bool is_trusted(struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct ucred cred;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&cred, CMSG_DATA(c), sizeof(cred));
		return user_is_us(&cred) || cred.uid == 0;
	}
	return false;
}

ssize_t slot_receive(int fd, void *buf, size_t size)
{
	char control[CMSG_SPACE(sizeof(struct ucred))];
	struct iovec iov = {buf, size};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	ssize_t len = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (len < 0)
		return -errno;
	return m.msg_flags & MSG_TRUNC || !is_trusted(&m) ? 0 : len;
}
