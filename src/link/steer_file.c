/* SPDX-License-Identifier: MIT */
/* The file of who sits where (steer_group.h): reading, locking, and finding out what it should say. */
#include "link/steer_parts.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "host/rundir.h"
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
	INDEX_WAIT_MS = 50,
	ENTER_WAIT_MS = 50, /* for others to come into a new file */
};

static void nap(void)
{
	struct timespec half_ms = {.tv_nsec = 500000};

	nanosleep(&half_ms, NULL);
}

/* ---- the program ---- */
void steer_attach(struct steer *s, struct steer_group *g)
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
	if (env_text(ANYRDMA_DIR))
		log_error("ANYRDMA_DIR must be yours, no link, and writable by nobody else (%s)",
			strerror(-err));
	else
		log_error("no run directory: neither /dev/shm/anyrdma-%d nor /tmp/anyrdma-%d can be ours "
			  "alone (%s); "
			  "set ANYRDMA_DIR to a directory of your own",
			(int)geteuid(), (int)geteuid(), strerror(-err));
}

int steer_file_open(struct steer *s)
{
	char path[256], name[32];
	int err = host_rundir(path, sizeof(path));

	if (err) {
		say_no_directory(err);
		return err;
	}
	snprintf(name, sizeof(name), "group-%u", s->port);
	err = runfile_open(&s->file, name, sizeof(struct steer_group));
	if (err)
		log_error("cannot open %s/%s: %s", path, name,
			err == -ENOSPC ? "its file system is full: make room there, or set ANYRDMA_DIR"
				       : fd_reason(-err));
	return err;
}

void steer_file_read(const struct steer *s, struct steer_group *g)
{
	runfile_read(&s->file, 0, g, sizeof(*g));
}

/* All but the answers, which are their members' to write. */
void steer_file_write(struct steer *s, const struct steer_group *g)
{
	int err = runfile_write(&s->file, 0, g, offsetof(struct steer_group, answer));

	if (err)
		log_warn("cannot write down who shares UDP port %u: %s", s->port, strerror(-err));
}

/*
 * Locks the file that is there now, and reads it. Waits, but not for ever: who holds the lock may be stopped.
 */
bool steer_file_lock(struct steer *s, unsigned wait_ms, struct steer_group *g)
{
	uint64_t until = clock_ms() + wait_ms;

	if (wait_ms == STEER_LOCK_MS)
		pthread_mutex_lock(&s->mutex);
	else if (pthread_mutex_trylock(&s->mutex))
		return false;
	runfile_renew(&s->file, sizeof(*g));
	while (flock(s->file.fd, LOCK_EX | LOCK_NB)) {
		if (clock_ms() >= until) {
			if (wait_ms == STEER_LOCK_MS)
				log_warn("a stopped process holds the lock of UDP port %u: continuing "
					 "without it",
					s->port);
			pthread_mutex_unlock(&s->mutex);
			return false;
		}
		nap();
	}
	steer_file_read(s, g);
	steer_group_check(g);
	return true;
}

void steer_file_unlock(struct steer *s)
{
	flock(s->file.fd, LOCK_UN);
	pthread_mutex_unlock(&s->mutex);
}

unsigned steer_remove_dead(struct steer *s, struct steer_group *g)
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
static void ask_indexes(struct steer *s, uint64_t nonce, uint32_t indexes)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(s->port)};
	uint8_t pkt[INDEX_LEN] = {OPCODE_INDEX};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return;
	to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	put_be64(pkt + NONCE_OFF, nonce);
	for (uint32_t i = 0; i < indexes && i < STEER_SLOTS; i++) {
		put_be16(pkt + INDEX_OFF, (uint16_t)i);
		sendto(fd, pkt, sizeof(pkt), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
	}
	close(fd);
}

/* Takes INDEX packets off our own socket while we wait: the helper may be the one that waits here. */
static void read_own_index(struct steer *s)
{
	for (unsigned i = 0; i < STEER_SLOTS; i++) {
		uint8_t pkt[64];
		ssize_t n = recv(s->fd4, pkt, sizeof(pkt), MSG_DONTWAIT | MSG_PEEK);

		if (n < INDEX_LEN || pkt[0] != OPCODE_INDEX)
			return;
		n = recv(s->fd4, pkt, sizeof(pkt), MSG_DONTWAIT);
		if (n >= INDEX_LEN)
			steer_index_reply(s, pkt, (uint32_t)n);
	}
}

/* Returns whether everyone answered. */
bool steer_find_indexes(struct steer *s, struct steer_group *g)
{
	uint64_t until = clock_ms() + INDEX_WAIT_MS;
	struct slots others = strangers(s, g);
	uint32_t known = steer_group_known(g), told;

	do
		random_bytes(&g->nonce, sizeof(g->nonce));
	while (g->nonce <= STEER_SLOTS);
	memset(g->answer, 0, sizeof(g->answer));
	runfile_write(&s->file, 0, g, sizeof(*g));
	ask_indexes(s, g->nonce, known + slots_count(&others));
	for (;;) {
		read_own_index(s);
		runfile_read(&s->file, offsetof(struct steer_group, answer), g->answer, sizeof(g->answer));
		told = steer_group_told(g);
		if (told >= known || clock_ms() >= until)
			break;
		nap();
	}
	log_info("UDP port %u: %u of %u processes answered with their index", s->port, told, known);
	steer_group_sort(g);
	return told >= known;
}

void steer_index_reply(struct steer *s, const uint8_t *pkt, uint32_t len)
{
	struct steer_group g;
	uint64_t answer;
	int i;

	runfile_read(&s->file, offsetof(struct steer_group, nonce), &g.nonce, sizeof(g.nonce));
	if (len < INDEX_LEN || get_be64(pkt + NONCE_OFF) != g.nonce)
		return; /* anybody's */
	steer_file_read(s, &g);
	i = steer_group_find(&g, s->slot);
	if (i < 0)
		return;
	answer = steer_group_answer(&g, (uint32_t)i, pkt, len);
	runfile_write(
		&s->file, offsetof(struct steer_group, answer[0]) + 8 * (size_t)i, &answer, sizeof(answer));
}

/* ---- a file that is new, while there are processes ---- */
/* Asks those who have a slot to enter, and waits for them; not for long: anybody can bind their names. */
void steer_gather(struct steer *s, struct steer_group *g)
{
	uint64_t until = clock_ms() + ENTER_WAIT_MS;
	struct slots missing = strangers(s, g);
	unsigned n = slots_count(&missing);

	slots_ask_to_look(s->port, &missing);
	while (slots_count(&missing) && clock_ms() < until) {
		nap();
		steer_file_read(s, g);
		for (uint32_t slot = 1; slot < STEER_SLOTS; slot++) {
			if (steer_group_has(g, slot) || slots_has(&g->arriving, slot))
				slots_del(&missing, slot);
		}
	}
	if (n)
		log_info("UDP port %u: the group's file is new; %u of %u who have a slot entered it", s->port,
			n - slots_count(&missing), n);
	if (slots_count(&missing))
		log_warn("UDP port %u: %u other programs have it and are not in our run directory: packets "
			 "may reach "
			 "the wrong ones. Give all the same ANYRDMA_DIR, or these another ANYRDMA_PORT",
			s->port, slots_count(&missing));
}
