/* SPDX-License-Identifier: MIT */
#include "hca/ports.h"

#include "base/fd.h"
#include "base/log.h"
#include "base/random.h"
#include "base/rundir.h"
#include "wire/qpn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { LOCK_WAIT_MS = 2000, TABLE_LOCK = 0 /* slot 0 is no process */ };

struct hca_ports {
	int fd;
	uint32_t slot;
	uint16_t low, high; /* ports for who does not care */
	uint32_t room;      /* entries there is space for */
	struct ports_table *table;
	pthread_mutex_t mutex; /* with the file's lock, which does not keep our own threads apart */
};

/* ---- locks: a byte each, gone with the process ---- */
static int lock_byte(int fd, uint32_t byte, short type)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &l) ? -errno : 0;
}

static bool is_alive(void *arg, uint32_t slot)
{
	struct hca_ports *p = arg;
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};

	if (slot == p->slot)
		return true;
	return slot != TABLE_LOCK && (fcntl(p->fd, F_OFD_GETLK, &l) || l.l_type != F_UNLCK);
}

/* Waits, but not for ever: who holds the lock may be stopped. Single claims are atomic without it. */
static bool take_lock(struct hca_ports *p)
{
	bool locked = false;

	pthread_mutex_lock(&p->mutex);
	for (int ms = 0; ms < LOCK_WAIT_MS && !locked; ms++) {
		struct timespec t = {.tv_nsec = 1000000};

		locked = !lock_byte(p->fd, TABLE_LOCK, F_WRLCK);
		if (!locked)
			nanosleep(&t, NULL);
	}
	if (!locked)
		log_warn("a stopped process holds the lock of the RDMA ports: going on without");
	ports_table_check(p->table);
	return locked;
}

static void drop_lock(struct hca_ports *p, bool locked)
{
	if (locked)
		lock_byte(p->fd, TABLE_LOCK, F_UNLCK);
	pthread_mutex_unlock(&p->mutex);
}

/* ---- what is left over ---- */
/* Drops the claims of the dead, or those of one slot. */
static void bury(struct hca_ports *p, uint32_t only)
{
	enum { UNKNOWN, ALIVE, DEAD } fate[QPN_SLOTS] = {UNKNOWN};
	uint32_t n = ports_table_count(p->table);

	for (uint32_t i = 0; i < n; i++) {
		struct hca_port_claim c;
		hca_port_id id;

		if (!ports_table_get(p->table, i, &c, &id))
			continue;
		if (fate[c.slot] == UNKNOWN)
			fate[c.slot] = (only ? c.slot != only : is_alive(p, c.slot)) ? ALIVE : DEAD;
		if (fate[c.slot] == DEAD)
			ports_table_drop(p->table, id, c.slot);
	}
	ports_table_trim(p->table);
}

/* ---- the file ---- */
/* Room for that many entries now: a full file system must not be noticed by a SIGBUS later. */
static int make_room(struct hca_ports *p, uint32_t entries)
{
	int err = 0;

	if (entries > p->room)
		err = -posix_fallocate(p->fd, 0, (off_t)offsetof(struct ports_table, entry[entries]));
	if (!err && entries > p->room)
		p->room = entries;
	return err;
}

static int map_file(struct hca_ports *p, uint16_t udp_port)
{
	char path[256];
	int err = base_rundir(path, sizeof(path) - 16);

	if (err)
		return err;
	snprintf(path + strlen(path), 16, "/ports-%u", udp_port);
	p->fd = fd_above_stdio(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
	if (p->fd < 0)
		return -errno;
	err = ftruncate(p->fd, sizeof(*p->table)) ? -errno : make_room(p, PORTS_STEP);
	if (!err) {
		p->table = mmap(NULL, sizeof(*p->table), PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
		err = p->table == MAP_FAILED ? -errno : 0;
	}
	if (err)
		close(p->fd);
	return err;
}

static void read_range(struct hca_ports *p)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (!f || fscanf(f, "%hu %hu", &p->low, &p->high) != 2 || p->low > p->high) {
		p->low = 32768;
		p->high = 60999;
	}
	if (f)
		fclose(f);
}

int hca_ports_open(struct hca_ports **out, uint16_t udp_port, uint32_t slot)
{
	struct hca_ports *p = calloc(1, sizeof(*p));
	bool locked;
	int err;

	if (!p)
		return -ENOMEM;
	p->slot = slot;
	err = map_file(p, udp_port);
	if (err)
		goto free_p;
	read_range(p);
	pthread_mutex_init(&p->mutex, NULL);
	locked = take_lock(p);
	bury(p, slot); /* who had it before us */
	bury(p, 0);
	err = lock_byte(p->fd, slot, F_WRLCK);
	drop_lock(p, locked);
	if (err)
		goto unmap;
	*out = p;
	return 0;

unmap:
	munmap(p->table, sizeof(*p->table));
	close(p->fd);
free_p:
	free(p);
	return err;
}

void hca_ports_close(struct hca_ports *p)
{
	bool locked;

	if (!p)
		return;
	locked = take_lock(p);
	bury(p, p->slot);
	drop_lock(p, locked);
	munmap(p->table, sizeof(*p->table));
	close(p->fd);
	pthread_mutex_destroy(&p->mutex);
	free(p);
}

void hca_ports_abandon(struct hca_ports *p)
{
	if (!p)
		return;
	munmap(p->table, sizeof(*p->table));
	close(p->fd);
	free(p);
}

/* ---- claims ---- */
static int pick_port(struct hca_ports *p, struct hca_port_claim *c)
{
	uint32_t start = random_u32();

	c->port = ports_table_pick(p->table, c->ps, p->low, p->high, start);
	if (!c->port) {
		bury(p, 0);
		c->port = ports_table_pick(p->table, c->ps, p->low, p->high, start);
	}
	return c->port ? 0 : -EADDRNOTAVAIL;
}

static int add(struct hca_ports *p, const struct hca_port_claim *c, hca_port_id *id)
{
	uint32_t room;
	int err;

	ports_table_trim(p->table);
	room = (ports_table_count(p->table) / PORTS_STEP + 1) * PORTS_STEP;
	if (room > PORTS_MAX) {
		bury(p, 0);
		room = PORTS_MAX;
	}
	err = make_room(p, room);
	if (err)
		return err;
	*id = ports_table_add(p->table, c, room);
	return *id ? 0 : -ENOSPC;
}

int hca_ports_claim(struct hca_ports *p, struct hca_port_claim *c, hca_port_id *id)
{
	bool locked = take_lock(p), any = !c->port;
	int err;

	c->slot = (uint16_t)p->slot;
	err = any ? pick_port(p, c) : ports_table_allows(p->table, c, 0, c->reuse, is_alive, p);
	if (!err)
		err = add(p, c, id);
	if (err && any)
		c->port = 0;
	drop_lock(p, locked);
	return err;
}

static bool get_claim(struct hca_ports *p, hca_port_id id, struct hca_port_claim *c)
{
	hca_port_id now;
	uint32_t i = (uint32_t)id - 1;

	return i < PORTS_MAX && ports_table_get(p->table, i, c, &now) && now == id && c->slot == p->slot;
}

int hca_ports_listen(struct hca_ports *p, hca_port_id id)
{
	bool locked = take_lock(p);
	struct hca_port_claim c;
	int err = get_claim(p, id, &c) ? 0 : -EINVAL;

	/* Who shares a port cannot listen on it, nor share it while he listens. */
	if (!err && c.reuse)
		err = ports_table_allows(p->table, &c, id, false, is_alive, p);
	if (!err && !ports_table_listen(p->table, id))
		err = -EINVAL;
	drop_lock(p, locked);
	return err;
}

void hca_ports_release(struct hca_ports *p, hca_port_id id)
{
	ports_table_drop(p->table, id, p->slot);
}

uint32_t hca_ports_owner(struct hca_ports *p, uint16_t ps, const uint8_t dgid[16], uint16_t port)
{
	return p ? ports_table_owner(p->table, ps, dgid, port) : 0;
}

void hca_ports_listeners(struct hca_ports *p, uint64_t slots[8])
{
	uint32_t n = p ? ports_table_count(p->table) : 0;

	memset(slots, 0, 8 * sizeof(*slots));
	for (uint32_t i = 0; i < n; i++) {
		struct hca_port_claim c;
		hca_port_id id;

		if (ports_table_get(p->table, i, &c, &id) && c.listening)
			slots[c.slot / 64] |= 1ull << c.slot % 64;
	}
}
