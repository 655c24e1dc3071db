/* SPDX-License-Identifier: MIT */
#include "link/steer.h"

#include "base/bytes.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/rundir.h"
#include "base/user.h"
#include "link/steer_group.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	PLACE_WAIT_MS = 50,
	REPAIR_EVERY_MS = 20,
	SILENT_FOR_MS = 1000,
	LOCK_WAIT_MS = 2000,
	HAND_WAIT_MS = 4, /* for room in another process's socket */
	IN_VAIN_MS = 20,  /* after which it is tried again */
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- slots: abstract Unix names ---- */
static socklen_t slot_name(struct sockaddr_un *sa, uint16_t port, uint32_t slot)
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			   (size_t)snprintf(
				   sa->sun_path + 1, sizeof(sa->sun_path) - 1, "anyrdma/%u/%u", port, slot));
}

static bool slot_alive(uint16_t port, uint32_t slot)
{
	struct sockaddr_un sa;
	socklen_t len = slot_name(&sa, port, slot);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool alive = fd < 0 || connect(fd, (struct sockaddr *)&sa, len) == 0 || errno != ECONNREFUSED;

	if (fd >= 0)
		close(fd);
	return alive;
}

int steer_slot_claim(uint16_t port, uint32_t *slot)
{
	uint32_t first = random_u32();
	struct timeval wait = {.tv_usec = HAND_WAIT_MS * 1000};
	int one = 1, fd = fd_above_stdio(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
	setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &one, sizeof(one));
	/* Slot 0 holds QP0 and QP1, the last one the multicast QPN. */
	for (uint32_t i = 0; i < STEER_SLOTS - 2; i++) {
		struct sockaddr_un sa;

		*slot = 1 + (first + i) % (STEER_SLOTS - 2);
		if (!bind(fd, (struct sockaddr *)&sa, slot_name(&sa, port, *slot)))
			return fd;
	}
	log_error("all %d process slots of UDP port %u are in use on this host", STEER_SLOTS - 2, port);
	close(fd);
	return -EUSERS;
}

/* ---- the program ---- */
static void attach(struct steer *s)
{
	struct sock_filter code[STEER_CODE];
	struct sock_fprog prog;

	memset(&prog, 0, sizeof(prog)); /* the kernel is handed its padding too */
	prog.len = (unsigned short)steer_group_program(s->group, code);
	prog.filter = code;
	for (int i = 0; i < 2; i++) {
		int fd = i ? s->fd6 : s->fd4;

		if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog)))
			log_warn("cannot steer packets between processes (%s): they will be handed over, "
				 "slowly",
				strerror(errno));
	}
	s->group->stale = 0;
}

/* ---- the group file ---- */
static int group_open(struct steer *s)
{
	char path[256];
	size_t n;
	int err = base_rundir(path, sizeof(path));

	if (err && secure_getenv("ANYRDMA_DIR")) {
		log_error("ANYRDMA_DIR must be yours, no link, and writable by nobody else (%s)",
			strerror(-err));
		return err;
	}
	if (err) {
		log_error("no run directory: neither /dev/shm/anyrdma-%d nor /tmp/anyrdma-%d can be ours "
			  "alone (%s); "
			  "set ANYRDMA_DIR to a directory of your own",
			(int)geteuid(), (int)geteuid(), strerror(-err));
		return err;
	}
	n = strlen(path);
	snprintf(path + n, sizeof(path) - n, "/group-%u", s->port);
	s->file_fd = fd_above_stdio(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	/* Room for all of it now: a full file system must not be noticed by a SIGBUS later. */
	err = s->file_fd < 0 ? -errno : -posix_fallocate(s->file_fd, 0, sizeof(struct steer_group));
	if (err) {
		log_error("cannot open %s: %s", path, fd_reason(-err));
		goto close_file;
	}
	s->group = mmap(NULL, sizeof(*s->group), PROT_READ | PROT_WRITE, MAP_SHARED, s->file_fd, 0);
	if (s->group != MAP_FAILED)
		return 0;
	err = -errno;
close_file:
	if (s->file_fd >= 0)
		close(s->file_fd);
	return err;
}

/* Waits, but not for ever: who holds the lock may be stopped. */
static bool group_lock(struct steer *s, bool wait)
{
	uint64_t until = now_ms() + (wait ? LOCK_WAIT_MS : 0);

	if (wait)
		pthread_mutex_lock(&s->mutex);
	else if (pthread_mutex_trylock(&s->mutex))
		return false;
	while (flock(s->file_fd, LOCK_EX | LOCK_NB)) {
		struct timespec ms = {.tv_nsec = 1000000};

		if (now_ms() >= until) {
			if (wait)
				log_warn("a stopped process holds the lock of UDP port %u: going on without",
					s->port);
			pthread_mutex_unlock(&s->mutex);
			return false;
		}
		nanosleep(&ms, NULL);
	}
	steer_group_check(s->group);
	return true;
}

static void group_unlock(struct steer *s)
{
	flock(s->file_fd, LOCK_UN);
	pthread_mutex_unlock(&s->mutex);
}

static unsigned bury_dead(struct steer *s)
{
	struct steer_group *g = s->group;
	unsigned dead = 0;

	for (uint32_t i = 0; i < steer_group_count(g);) {
		uint32_t slot = g->member[i].slot;

		if (slot == s->slot || slot_alive(s->port, slot)) {
			i++;
		} else {
			steer_group_remove(g, i);
			dead++;
		}
	}
	return dead;
}

/* ---- asking who sits where ---- */
static void ask_places(struct steer *s, uint32_t places)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(s->port)};
	uint8_t pkt[PLACE_LEN] = {OPCODE_PLACE};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	put_be64(pkt + NONCE_OFF, s->group->nonce);
	for (uint32_t i = 0; i < places; i++) {
		put_be16(pkt + PLACE_OFF, (uint16_t)i);
		sendto(fd, pkt, sizeof(pkt), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
	}
	close(fd);
}

/* Takes PLACE packets off our own socket while we wait: the helper may be the one that waits here. */
static void read_own_place(struct steer *s)
{
	uint8_t pkt[64];
	ssize_t n = recv(s->fd4, pkt, sizeof(pkt), MSG_DONTWAIT | MSG_PEEK);

	if (n < PLACE_LEN || pkt[0] != OPCODE_PLACE)
		return;
	n = recv(s->fd4, pkt, sizeof(pkt), MSG_DONTWAIT);
	if (n >= PLACE_LEN)
		steer_placed(s, pkt, (uint32_t)n);
}

/* Returns whether everyone answered. */
static bool find_places(struct steer *s)
{
	struct steer_group *g = s->group;
	uint64_t until = now_ms() + PLACE_WAIT_MS, nonce;
	uint32_t n = steer_group_count(g), told;

	do
		random_bytes(&nonce, sizeof(nonce));
	while (nonce <= STEER_SLOTS);
	atomic_store(&g->nonce, nonce);
	for (uint32_t i = 0; i < n; i++)
		atomic_store(&g->member[i].answer, 0);
	ask_places(s, n);
	for (;;) {
		struct timespec ms = {.tv_nsec = 500000};

		read_own_place(s);
		told = steer_group_told(g);
		if (told >= n || now_ms() >= until)
			break;
		nanosleep(&ms, NULL);
	}
	log_info("UDP port %u: %u of %u processes told their place", s->port, told, n);
	steer_group_sort(g);
	return told >= n;
}

void steer_placed(struct steer *s, const uint8_t *pkt, uint32_t len)
{
	steer_group_placed(s->group, s->slot, pkt, len);
}

/* ---- joining and leaving ---- */
static int bind_port(int fd, int family, uint16_t port)
{
	struct sockaddr_in a4 = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};

	if (family == AF_INET)
		return bind(fd, (struct sockaddr *)&a4, sizeof(a4)) ? -errno : 0;
	return bind(fd, (struct sockaddr *)&a6, sizeof(a6)) ? -errno : 0;
}

int steer_join(struct steer *s, uint16_t port, int fd4, int fd6)
{
	struct steer_group *g;
	unsigned dead;
	bool locked;
	int err;

	s->port = port;
	s->fd4 = fd4;
	s->fd6 = fd6;
	atomic_init(&s->repaired_at, 0);
	atomic_init(&s->in_vain_at, 0);
	pthread_mutex_init(&s->mutex, NULL);
	err = group_open(s);
	if (err)
		return err;
	g = s->group;
	locked = group_lock(s, true);
	dead = bury_dead(s); /* before we have a slot: a dead process may have had the same */
	s->hand_fd = steer_slot_claim(port, &s->slot);
	if (s->hand_fd < 0) {
		err = s->hand_fd;
		goto unlock;
	}
	err = bind_port(fd4, AF_INET, port);
	if (!err && fd6 >= 0)
		err = bind_port(fd6, AF_INET6, port);
	if (err) {
		close(s->hand_fd);
		goto unlock;
	}
	steer_group_add(g, s->slot);
	attach(s);
	if (dead > 1) {
		find_places(s);
		attach(s);
	}
	if (locked)
		group_unlock(s);
	return 0;

unlock:
	if (locked)
		group_unlock(s);
	munmap(s->group, sizeof(*s->group));
	close(s->file_fd);
	return err;
}

static void close_sockets(struct steer *s)
{
	close(s->fd4);
	if (s->fd6 >= 0)
		close(s->fd6);
	close(s->hand_fd);
}

void steer_leave(struct steer *s)
{
	struct steer_group *g = s->group;
	bool locked;

	locked = group_lock(s, true);
	for (uint32_t i = 0; locked && i < steer_group_count(g); i++) {
		if (g->member[i].slot == s->slot) {
			steer_group_remove(g, i);
			g->stale = 1; /* only a member can attach a program, and we close first: no packet may
					 be ours */
			break;
		}
	}
	close_sockets(s);
	if (locked)
		group_unlock(s);
	munmap(s->group, sizeof(*s->group));
	close(s->file_fd);
	pthread_mutex_destroy(&s->mutex);
}

void steer_abandon(struct steer *s)
{
	close_sockets(s);
	munmap(s->group, sizeof(*s->group));
	close(s->file_fd);
}

void steer_misled(struct steer *s)
{
	uint64_t last = atomic_load(&s->repaired_at), now = now_ms();
	unsigned dead;

	if (now < last + REPAIR_EVERY_MS || !atomic_compare_exchange_strong(&s->repaired_at, &last, now))
		return;
	if (!group_lock(s, false))
		return; /* somebody is at it, and may be waiting for our answer */
	dead = bury_dead(s);
	if ((dead > 1 || (!dead && !s->group->stale)) && !find_places(s))
		atomic_store(&s->repaired_at,
			now + SILENT_FOR_MS); /* somebody is stopped: do not ask all the time */
	attach(s);
	group_unlock(s);
}

/* ---- packets that landed wrong ---- */
struct hand {
	uint8_t sgid[16], dgid[16];
	uint32_t ifindex, len;
	uint8_t tclass, hop_limit;
};

bool steer_is_member(const struct steer *s, uint32_t slot)
{
	return steer_group_has(s->group, slot);
}

/* A Unix socket holds ten datagrams where nobody raised net.unix.max_dgram_qlen: bursts have to wait. */
static int send_waiting(struct steer *s, const struct msghdr *m)
{
	uint64_t last = atomic_load(&s->in_vain_at);

	if (last && now_ms() < last + IN_VAIN_MS)
		return -EAGAIN;
	if (sendmsg(s->hand_fd, m, MSG_NOSIGNAL) >= 0)
		return 0;
	if (errno != EAGAIN)
		return -errno;
	atomic_store(&s->in_vain_at, now_ms());
	return -EAGAIN;
}

int steer_hand_over(struct steer *s, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct hand h = {
		.ifindex = in->ifindex, .len = in->len, .tclass = in->tclass, .hop_limit = in->hop_limit};
	struct iovec iov[2] = {{&h, sizeof(h)}, {(void *)in->bytes, in->len}};
	struct sockaddr_un sa;
	struct msghdr m = {.msg_name = &sa,
		.msg_namelen = slot_name(&sa, s->port, slot),
		.msg_iov = iov,
		.msg_iovlen = 2};

	memcpy(h.sgid, in->sgid, 16);
	memcpy(h.dgid, in->dgid, 16);
	if (sendmsg(s->hand_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return wait && errno == EAGAIN ? send_waiting(s, &m) : -errno;
}

static bool same_user(const struct msghdr *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR((struct msghdr *)m, c)) {
		struct ucred cred;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS)
			continue;
		memcpy(&cred, CMSG_DATA(c), sizeof(cred));
		return user_is_us(&cred) || cred.uid == 0;
	}
	return false;
}

bool steer_hand_parse(const uint8_t *datagram, size_t len, struct frame_in *in)
{
	struct hand h;

	if (len < sizeof(h) + BTH_LEN)
		return false;
	memcpy(&h, datagram, sizeof(h));
	if (h.len != len - sizeof(h))
		return false;
	*in = (struct frame_in){.bytes = datagram + sizeof(h),
		.len = h.len,
		.ifindex = h.ifindex,
		.tclass = h.tclass,
		.hop_limit = h.hop_limit,
		.handed = true};
	memcpy(in->sgid, h.sgid, 16);
	memcpy(in->dgid, h.dgid, 16);
	return true;
}

int steer_receive(struct steer *s, unsigned max, void (*deliver)(void *, const struct frame_in *), void *arg)
{
	unsigned n = 0;

	for (; n < max; n++) {
		uint8_t datagram[sizeof(struct hand) + 8192];
		char control[CMSG_SPACE(sizeof(struct ucred))];
		struct iovec iov = {datagram, sizeof(datagram)};
		struct msghdr m = {.msg_iov = &iov,
			.msg_iovlen = 1,
			.msg_control = control,
			.msg_controllen = sizeof(control)};
		ssize_t len = recvmsg(s->hand_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct frame_in in;

		if (len < 0)
			break;
		if (!(m.msg_flags & MSG_TRUNC) && same_user(&m) &&
			steer_hand_parse(datagram, (size_t)len, &in))
			deliver(arg, &in);
	}
	return (int)n;
}
