/* SPDX-License-Identifier: MIT */
/* Joining, leaving, and finding back to each other. */
#include "link/steer_parts.h"

#include "base/clock.h"

#include "link/steer_group.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	REPAIR_EVERY_MS = 20,
	SILENT_FOR_MS = 1000,
	LOOK_LOCK_MS = 10, /* while packets wait */
};

/* When the file is new: all others are in it. */
static void form_group(struct steer *s)
{
	struct steer_group g;

	if (!steer_file_lock(s, STEER_LOCK_MS, &g))
		return;
	if (!g.formed) {
		slots_add(&g.arriving, s->slot);
		steer_file_write(s, &g);
	}
	steer_file_unlock(s);
	if (!g.formed)
		steer_gather(s, &g);
}

void steer_look(struct steer *s, bool asked)
{
	struct steer_group g;
	bool form;

	if (s->on_look)
		s->on_look(s->on_look_arg);
	if (!steer_file_lock(s, LOOK_LOCK_MS, &g))
		return; /* who asks will ask again, when he misses us */
	form = !asked && !g.formed;
	if (!steer_group_has(&g, s->slot) && steer_group_add(&g, s->slot))
		g.order = STEER_MIXED;
	g.formed |= form;
	steer_file_write(s, &g);
	steer_file_unlock(s);
	if (form)
		steer_gather(s, &g);
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

/* Takes the last index of the kernel's group, and writes that down. */
static int take_index(struct steer *s)
{
	struct steer_group g;
	bool locked = steer_file_lock(s, STEER_LOCK_MS, &g);
	unsigned dead;
	int err;

	if (!locked) {
		steer_file_read(s, &g);
		steer_group_check(&g);
	}
	slots_del(&g.arriving, s->slot);
	if (steer_group_has(&g, s->slot)) /* a dead process had the same slot */
		steer_group_remove(&g, (uint32_t)steer_group_find(&g, s->slot));
	dead = steer_remove_dead(s, &g);
	err = bind_port(s->fd4, AF_INET, s->port);
	if (!err && s->fd6 >= 0)
		err = bind_port(s->fd6, AF_INET6, s->port);
	if (!err) {
		bool mixed = g.order == STEER_MIXED;

		steer_group_add(&g, s->slot);
		if (!mixed)
			steer_attach(s, &g);
		if (dead > 1 || mixed) {
			steer_find_indexes(s, &g);
			steer_attach(s, &g);
		}
	}
	g.formed = true;
	steer_file_write(s, &g);
	if (locked)
		steer_file_unlock(s);
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
	err = steer_file_open(s);
	if (err)
		return err;
	s->hand_fd = slot_claim(port, &s->slot);
	if (s->hand_fd < 0) {
		err = s->hand_fd;
		goto close_file;
	}
	form_group(s);
	err = take_index(s);
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
	bool locked = steer_file_lock(s, STEER_LOCK_MS, &g);
	int i = locked ? steer_group_find(&g, s->slot) : -1;

	if (i >= 0) {
		steer_group_remove(&g, (uint32_t)i);
		if (g.order == STEER_ATTACHED)
			g.order = STEER_KNOWN; /* only a member can attach a program, and we close first: no
						  packet may be ours */
		steer_file_write(s, &g);
	}
	close_sockets(s);
	if (locked)
		steer_file_unlock(s);
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

void steer_misdelivered(struct steer *s)
{
	uint64_t now = clock_ms();
	struct steer_group g;
	unsigned dead;

	if (!is_due(&s->repaired_at, now))
		return;
	if (!steer_file_lock(s, 0, &g))
		return; /* somebody is at it, and may be waiting for our answer */
	dead = steer_remove_dead(s, &g);
	if (!steer_group_has(&g, s->slot) && steer_group_add(&g, s->slot))
		g.order = STEER_MIXED;
	if ((dead > 1 || g.order == STEER_MIXED || (!dead && g.order == STEER_ATTACHED)) &&
		!steer_find_indexes(s, &g))
		atomic_store(&s->repaired_at,
			now + SILENT_FOR_MS); /* somebody is stopped: do not ask all the time */
	steer_attach(s, &g);
	steer_file_write(s, &g);
	steer_file_unlock(s);
}

/*
 * A frame names a slot that is in no file: nobody's, or that of a process which was stopped when everybody
 * entered a new one, or we are those who look into an old one.
 */
static void missed(struct steer *s, uint32_t slot)
{
	struct slots one = {{0}};

	if (!slot || slot >= STEER_UNKNOWN || !is_due(&s->missed_at, clock_ms()))
		return;
	steer_look(s, false);
	slots_add(&one, slot);
	slots_ask_to_look(s->port, &one);
}

static bool is_in_file(const struct steer *s, uint32_t slot)
{
	struct steer_group g;

	steer_file_read(s, &g);
	return steer_group_has(&g, slot);
}

bool steer_is_member(struct steer *s, uint32_t slot)
{
	if (is_in_file(s, slot))
		return true;
	missed(s, slot);
	return is_in_file(s, slot);
}
