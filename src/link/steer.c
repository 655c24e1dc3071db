/* SPDX-License-Identifier: MIT */
#include "link/steer_parts.h"

#include "base/bytes.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/rundir.h"
#include "link/steer_group.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	PLACE_WAIT_MS = 50,
	ENTER_WAIT_MS = 50, /* for others to come into a new file */
	REPAIR_EVERY_MS = 20,
	SILENT_FOR_MS = 1000,
	LOCK_WAIT_MS = 2000,
	LOOK_LOCK_MS = 10, /* while packets wait */
};

uint64_t steer_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap(void)
{
	struct timespec half_ms = {.tv_nsec = 500000};

	nanosleep(&half_ms, NULL);
}

/* ---- the program ---- */
static void attach(struct steer *s, struct steer_group *g)
{
	struct sock_filter code[STEER_CODE];
	struct sock_fprog prog;

	memset(&prog, 0, sizeof(prog)); /* the kernel is handed its padding too */
	prog.len = (unsigned short)steer_group_program(g, code);
	prog.filter = code;
	for (int i = 0; i < 2; i++) {
		int fd = i ? s->fd6 : s->fd4;

		if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog)))
			log_warn("cannot steer packets between processes (%s): they will be handed over, "
				 "slowly",
				strerror(errno));
	}
	g->order = STEER_ATTACHED;
}

/* ---- the group file ---- */
static void say_no_directory(int err)
{
	if (secure_getenv("ANYRDMA_DIR"))
		log_error("ANYRDMA_DIR must be yours, no link, and writable by nobody else (%s)",
			strerror(-err));
	else
		log_error("no run directory: neither /dev/shm/anyrdma-%d nor /tmp/anyrdma-%d can be ours "
			  "alone (%s); "
			  "set ANYRDMA_DIR to a directory of your own",
			(int)geteuid(), (int)geteuid(), strerror(-err));
}

static int group_open(struct steer *s)
{
	char path[256], name[32];
	int err = base_rundir(path, sizeof(path));

	if (err) {
		say_no_directory(err);
		return err;
	}
	snprintf(name, sizeof(name), "group-%u", s->port);
	err = runfile_open(&s->file, name, sizeof(struct steer_group));
	if (err)
		log_error("cannot open %s/%s: %s", path, name, fd_reason(-err));
	return err;
}

static void group_read(const struct steer *s, struct steer_group *g)
{
	runfile_read(&s->file, 0, g, sizeof(*g));
}

/* All but the answers, which are their members' to write. */
static void group_write(struct steer *s, const struct steer_group *g)
{
	int err = runfile_write(&s->file, 0, g, offsetof(struct steer_group, answer));

	if (err)
		log_warn("cannot write down who shares UDP port %u: %s", s->port, strerror(-err));
}

/*
 * Locks the file that is there now, and reads it. Waits, but not for ever: who holds the lock may be stopped.
 */
static bool group_lock(struct steer *s, unsigned wait_ms, struct steer_group *g)
{
	uint64_t until = steer_now_ms() + wait_ms;

	if (wait_ms == LOCK_WAIT_MS)
		pthread_mutex_lock(&s->mutex);
	else if (pthread_mutex_trylock(&s->mutex))
		return false;
	runfile_renew(&s->file, sizeof(*g));
	while (flock(s->file.fd, LOCK_EX | LOCK_NB)) {
		if (steer_now_ms() >= until) {
			if (wait_ms == LOCK_WAIT_MS)
				log_warn("a stopped process holds the lock of UDP port %u: going on without",
					s->port);
			pthread_mutex_unlock(&s->mutex);
			return false;
		}
		nap();
	}
	group_read(s, g);
	steer_group_check(g);
	return true;
}

static void group_unlock(struct steer *s)
{
	flock(s->file.fd, LOCK_UN);
	pthread_mutex_unlock(&s->mutex);
}

static unsigned remove_dead(struct steer *s, struct steer_group *g)
{
	unsigned dead = 0;

	for (uint32_t i = 0; i < steer_group_count(g);) {
		uint32_t slot = g->member[i];

		if (slot == STEER_UNKNOWN || slot == s->slot || slot_is_alive(s->port, slot)) {
			i++;
		} else {
			steer_group_remove(g, i);
			dead++;
		}
	}
	return dead;
}

/* Those who have a slot, as far as names tell, and are not in the file. */
static struct slots strangers(struct steer *s, const struct steer_group *g)
{
	struct slots alive = slots_alive(s->port);

	slots_del(&alive, s->slot);
	for (uint32_t slot = 1; slot < STEER_SLOTS; slot++) {
		if (steer_group_has(g, slot) || slots_has(&g->arriving, slot))
			slots_del(&alive, slot);
	}
	return alive;
}

/* ---- asking who sits where ---- */
static void ask_places(struct steer *s, uint64_t nonce, uint32_t places)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(s->port)};
	uint8_t pkt[PLACE_LEN] = {OPCODE_PLACE};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	put_be64(pkt + NONCE_OFF, nonce);
	for (uint32_t i = 0; i < places && i < STEER_SLOTS; i++) {
		put_be16(pkt + PLACE_OFF, (uint16_t)i);
		sendto(fd, pkt, sizeof(pkt), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
	}
	close(fd);
}

/* Takes PLACE packets off our own socket while we wait: the helper may be the one that waits here. */
static void read_own_place(struct steer *s)
{
	for (unsigned i = 0; i < STEER_SLOTS; i++) {
		uint8_t pkt[64];
		ssize_t n = recv(s->fd4, pkt, sizeof(pkt), MSG_DONTWAIT | MSG_PEEK);

		if (n < PLACE_LEN || pkt[0] != OPCODE_PLACE)
			return;
		n = recv(s->fd4, pkt, sizeof(pkt), MSG_DONTWAIT);
		if (n >= PLACE_LEN)
			steer_placed(s, pkt, (uint32_t)n);
	}
}

/* Returns whether everyone answered. */
static bool find_places(struct steer *s, struct steer_group *g)
{
	uint64_t until = steer_now_ms() + PLACE_WAIT_MS;
	struct slots others = strangers(s, g);
	uint32_t known = steer_group_known(g), told;

	do
		random_bytes(&g->nonce, sizeof(g->nonce));
	while (g->nonce <= STEER_SLOTS);
	memset(g->answer, 0, sizeof(g->answer));
	runfile_write(&s->file, 0, g, sizeof(*g));
	ask_places(s, g->nonce, known + slots_count(&others));
	for (;;) {
		read_own_place(s);
		runfile_read(&s->file, offsetof(struct steer_group, answer), g->answer, sizeof(g->answer));
		told = steer_group_told(g);
		if (told >= known || steer_now_ms() >= until)
			break;
		nap();
	}
	log_info("UDP port %u: %u of %u processes told their place", s->port, told, known);
	steer_group_sort(g);
	return told >= known;
}

void steer_placed(struct steer *s, const uint8_t *pkt, uint32_t len)
{
	struct steer_group g;
	uint64_t answer;
	int i;

	runfile_read(&s->file, offsetof(struct steer_group, nonce), &g.nonce, sizeof(g.nonce));
	if (len < PLACE_LEN || get_be64(pkt + NONCE_OFF) != g.nonce)
		return; /* anybody's */
	group_read(s, &g);
	i = steer_group_find(&g, s->slot);
	if (i < 0)
		return;
	answer = steer_group_answer(&g, (uint32_t)i, pkt, len);
	runfile_write(
		&s->file, offsetof(struct steer_group, answer[0]) + 8 * (size_t)i, &answer, sizeof(answer));
}

/* ---- a file that is new, while there are processes ---- */
/* Asks those who have a slot to enter, and waits for them; not for long: anybody can bind their names. */
static void gather(struct steer *s, struct steer_group *g)
{
	uint64_t until = steer_now_ms() + ENTER_WAIT_MS;
	struct slots missing = strangers(s, g);
	unsigned n = slots_count(&missing);

	slots_ask_to_look(s->port, &missing);
	while (slots_count(&missing) && steer_now_ms() < until) {
		nap();
		group_read(s, g);
		for (uint32_t slot = 1; slot < STEER_SLOTS; slot++) {
			if (steer_group_has(g, slot) || slots_has(&g->arriving, slot))
				slots_del(&missing, slot);
		}
	}
	if (n)
		log_info("UDP port %u: the group's file is new; %u of %u who have a slot entered it", s->port,
			n - slots_count(&missing), n);
}

/* When the file is new: all others are in it. */
static void form_group(struct steer *s)
{
	struct steer_group g;

	if (!group_lock(s, LOCK_WAIT_MS, &g))
		return;
	if (!g.formed) {
		slots_add(&g.arriving, s->slot);
		group_write(s, &g);
	}
	group_unlock(s);
	if (!g.formed)
		gather(s, &g);
}

void steer_look(struct steer *s, bool asked)
{
	struct steer_group g;
	bool form;

	if (s->on_look)
		s->on_look(s->on_look_arg);
	if (!group_lock(s, LOOK_LOCK_MS, &g))
		return; /* who asks will ask again, when he misses us */
	form = !asked && !g.formed;
	if (!steer_group_has(&g, s->slot) && steer_group_add(&g, s->slot))
		g.order = STEER_MIXED;
	g.formed |= form;
	group_write(s, &g);
	group_unlock(s);
	if (form)
		gather(s, &g);
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

/* Takes the last place of the kernel's group, and writes that down. */
static int take_place(struct steer *s)
{
	struct steer_group g;
	bool locked = group_lock(s, LOCK_WAIT_MS, &g);
	unsigned dead;
	int err;

	if (!locked) {
		group_read(s, &g);
		steer_group_check(&g);
	}
	slots_del(&g.arriving, s->slot);
	if (steer_group_has(&g, s->slot)) /* a dead process had the same slot */
		steer_group_remove(&g, (uint32_t)steer_group_find(&g, s->slot));
	dead = remove_dead(s, &g);
	err = bind_port(s->fd4, AF_INET, s->port);
	if (!err && s->fd6 >= 0)
		err = bind_port(s->fd6, AF_INET6, s->port);
	if (!err) {
		bool mixed = g.order == STEER_MIXED;

		steer_group_add(&g, s->slot);
		if (!mixed)
			attach(s, &g);
		if (dead > 1 || mixed) {
			find_places(s, &g);
			attach(s, &g);
		}
	}
	g.formed = true;
	group_write(s, &g);
	if (locked)
		group_unlock(s);
	return err;
}

int steer_join(struct steer *s, uint16_t port, int fd4, int fd6)
{
	int err;

	s->port = port;
	s->fd4 = fd4;
	s->fd6 = fd6;
	s->on_look = NULL;
	atomic_init(&s->repaired_at, 0);
	atomic_init(&s->missed_at, 0);
	atomic_init(&s->in_vain_at, 0);
	pthread_mutex_init(&s->mutex, NULL);
	err = group_open(s);
	if (err)
		return err;
	s->hand_fd = slot_claim(port, &s->slot);
	if (s->hand_fd < 0) {
		err = s->hand_fd;
		goto close_file;
	}
	form_group(s);
	err = take_place(s);
	if (!err)
		return 0;
	close(s->hand_fd);
close_file:
	runfile_close(&s->file);
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
	struct steer_group g;
	bool locked = group_lock(s, LOCK_WAIT_MS, &g);
	int i = locked ? steer_group_find(&g, s->slot) : -1;

	if (i >= 0) {
		steer_group_remove(&g, (uint32_t)i);
		if (g.order == STEER_ATTACHED)
			g.order = STEER_KNOWN; /* only a member can attach a program, and we close first: no
						  packet may be ours */
		group_write(s, &g);
	}
	close_sockets(s);
	if (locked)
		group_unlock(s);
	runfile_close(&s->file);
	pthread_mutex_destroy(&s->mutex);
}

void steer_abandon(struct steer *s)
{
	close_sockets(s);
	runfile_close(&s->file);
}

/* ---- when something is wrong ---- */
/* Whether it is time again; of many threads, one is told so. */
static bool is_due(_Atomic uint64_t *last_at, uint64_t now)
{
	uint64_t last = atomic_load(last_at);

	return now >= last + REPAIR_EVERY_MS && atomic_compare_exchange_strong(last_at, &last, now);
}

void steer_misled(struct steer *s)
{
	uint64_t now = steer_now_ms();
	struct steer_group g;
	unsigned dead;

	if (!is_due(&s->repaired_at, now))
		return;
	if (!group_lock(s, 0, &g))
		return; /* somebody is at it, and may be waiting for our answer */
	dead = remove_dead(s, &g);
	if (!steer_group_has(&g, s->slot) && steer_group_add(&g, s->slot))
		g.order = STEER_MIXED;
	if ((dead > 1 || g.order == STEER_MIXED || (!dead && g.order == STEER_ATTACHED)) &&
		!find_places(s, &g))
		atomic_store(&s->repaired_at,
			now + SILENT_FOR_MS); /* somebody is stopped: do not ask all the time */
	attach(s, &g);
	group_write(s, &g);
	group_unlock(s);
}

/*
 * A frame names a slot that is in no file: nobody's, or that of a process which was stopped when everybody
 * entered a new one, or we are those who look into an old one.
 */
static void missed(struct steer *s, uint32_t slot)
{
	struct slots one = {{0}};

	if (!slot || slot >= STEER_UNKNOWN || !is_due(&s->missed_at, steer_now_ms()))
		return;
	steer_look(s, false);
	slots_add(&one, slot);
	slots_ask_to_look(s->port, &one);
}

static bool is_in_file(const struct steer *s, uint32_t slot)
{
	struct steer_group g;

	group_read(s, &g);
	return steer_group_has(&g, slot);
}

bool steer_is_member(struct steer *s, uint32_t slot)
{
	if (is_in_file(s, slot))
		return true;
	missed(s, slot);
	return is_in_file(s, slot);
}
