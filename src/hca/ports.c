/* SPDX-License-Identifier: MIT */
#include "hca/ports.h"

#include "base/cancel.h"
#include "base/log.h"
#include "base/random.h"
#include "base/runfile.h"
#include "base/slot.h"
#include "hca/ports_own.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	LOCK_WAIT_MS = 2000,
	ENTER_WAIT_MS = 50, /* for others to come into a new file */
	TABLE_LOCK = 0,     /* slot 0 is no process */
};

struct hca_ports {
	struct runfile file;
	uint32_t slot;
	uint16_t udp_port;
	uint16_t low, high;        /* ports for who does not care */
	struct ports_own own;      /* what we have claimed */
	struct ports_table *table; /* the file as it was when it was locked */
	struct ports_header was;   /* its header */
	int cancel;                /* of the thread that has the table */
	pthread_mutex_t mutex;     /* guards the table; with the file's lock, which does not keep our own
				      threads apart */
};

static size_t room_for(uint32_t entries)
{
	return offsetof(struct ports_table, entry[0]) + entries * sizeof(struct ports_entry);
}

static void nap(void)
{
	struct timespec ms = {.tv_nsec = 1000000};

	nanosleep(&ms, NULL);
}

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
	return slot != TABLE_LOCK && (fcntl(p->file.fd, F_OFD_GETLK, &l) || l.l_type != F_UNLCK);
}

/* ---- the file and our copy of it ---- */
/* How many entries the file has room for. */
static uint32_t entries_in(const struct hca_ports *p)
{
	struct stat st;

	if (fstat(p->file.fd, &st) || st.st_size < (off_t)room_for(0))
		return 0;
	st.st_size -= (off_t)room_for(0);
	return st.st_size / 32 < PORTS_MAX ? (uint32_t)(st.st_size / 32) : PORTS_MAX;
}

/* Room for that many entries now: a full file system is noticed by who claims. */
static int make_room(struct hca_ports *p, uint32_t entries)
{
	return entries > entries_in(p) ? -posix_fallocate(p->file.fd, 0, (off_t)room_for(entries)) : 0;
}

static void read_table(struct hca_ports *p)
{
	struct ports_table *t = p->table;

	runfile_read(&p->file, 0, &t->h, sizeof(t->h));
	if (ports_header_is_whole(&t->h, entries_in(p))) {
		runfile_read(&p->file, room_for(0), t->entry, t->h.used * sizeof(t->entry[0]));
		memset(t->changed, 0, sizeof(t->changed));
		p->was = t->h;
		return;
	}
	make_room(p, PORTS_STEP);
	ports_table_clear(t);
	memset(&p->was, 0, sizeof(p->was));
}

/* Writes what was changed. Entries of others that live are theirs to write, at any time, without the lock. */
static int write_table(struct hca_ports *p)
{
	struct ports_table *t = p->table;
	int err = 0;

	if (memcmp(&p->was, &t->h, sizeof(t->h)))
		err = runfile_write(&p->file, 0, &t->h, sizeof(t->h));
	p->was = t->h;
	for (uint32_t i = 0; i < PORTS_MAX && !err; i++) {
		if (!t->changed[i / 64]) {
			i |= 63;
			continue;
		}
		if (t->changed[i / 64] >> i % 64 & 1)
			err = runfile_write(&p->file, room_for(i), &t->entry[i], sizeof(t->entry[i]));
	}
	memset(t->changed, 0, sizeof(t->changed));
	return err;
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

/* ---- claims that the file has lost ---- */
static int add_to_table(struct hca_ports *p, const struct hca_port_claim *c, hca_port_id *id)
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

static bool is_in_table(struct hca_ports *p, hca_port_id at)
{
	uint32_t i = (uint32_t)at - 1;
	struct hca_port_claim c;
	hca_port_id now;

	return i < ports_table_count(p->table) && ports_table_get(p->table, i, &c, &now) && now == at &&
	       c.slot == p->slot;
}

/*
 * Enters what we have claimed, where it is missing, whatever others have claimed meanwhile: programs live by
 * it. Table locked.
 */
static void enter_own(struct hca_ports *p)
{
	lock_take(&p->own.lock);
	for (uint32_t i = 0; i < p->own.count; i++) {
		struct ports_own_claim *own = &p->own.claims[i];
		hca_port_id at;

		if (own->at && !is_in_table(p, own->at) && !add_to_table(p, &own->claim, &at))
			own->at = at;
	}
	p->table->h.present[p->slot] = 1;
	write_table(p);
	lock_drop(&p->own.lock);
}

/* Locks and reads the file that is there now. Waits, but not for ever: who holds the lock may be stopped. */
static bool lock_table(struct hca_ports *p)
{
	int cancel = cancel_off();
	bool locked = false;

	pthread_mutex_lock(&p->mutex);
	p->cancel = cancel;
	if (runfile_renew(&p->file, room_for(PORTS_STEP)))
		lock_byte(p->file.fd, p->slot, F_WRLCK);
	for (int ms = 0; ms < LOCK_WAIT_MS && !locked; ms++) {
		locked = !lock_byte(p->file.fd, TABLE_LOCK, F_WRLCK);
		if (!locked)
			nap();
	}
	if (!locked)
		log_warn("a stopped process holds the lock of the RDMA ports: going on without");
	read_table(p);
	return locked;
}

static void unlock_table(struct hca_ports *p, bool locked)
{
	int cancel = p->cancel;

	if (locked)
		lock_byte(p->file.fd, TABLE_LOCK, F_UNLCK);
	pthread_mutex_unlock(&p->mutex);
	cancel_restore(cancel);
}

/* ---- a file that is new, while there are processes ---- */
static struct slots slots_absent(const struct hca_ports *p, struct slots of)
{
	struct ports_header h;

	runfile_read(&p->file, 0, &h, sizeof(h));
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		if (h.present[slot])
			slots_del(&of, slot);
	}
	return of;
}

/* Asks all who have a slot to enter their claims, and waits for them; not for long: anybody can bind a name.
 */
static void gather(struct hca_ports *p)
{
	struct slots missing = slots_alive(p->udp_port);

	missing = slots_absent(p, missing);
	slots_ask_to_look(p->udp_port, &missing);
	for (int ms = 0; ms < ENTER_WAIT_MS && slots_count(&missing); ms++) {
		nap();
		missing = slots_absent(p, missing);
	}
}

/* A locked table in which our claims are, and those of all others. */
static bool take_lock(struct hca_ports *p)
{
	bool locked = lock_table(p);

	enter_own(p);
	if (p->table->h.formed)
		return locked;
	unlock_table(p, locked);
	gather(p);
	locked = lock_table(p);
	p->table->h.formed = 1;
	enter_own(p);
	return locked;
}

static int drop_lock(struct hca_ports *p, bool locked)
{
	int err = write_table(p);

	unlock_table(p, locked);
	return err;
}

void hca_ports_look(struct hca_ports *p, bool asked)
{
	bool locked;

	if (!p)
		return;
	locked = asked ? lock_table(p) : take_lock(p);
	enter_own(p);
	drop_lock(p, locked);
}

/* ---- opening and closing ---- */
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
	char name[32];
	bool locked;
	int err = -ENOMEM;

	if (!p)
		return err;
	p->table = calloc(1, sizeof(*p->table));
	if (!p->table)
		goto free_p;
	p->slot = slot;
	p->udp_port = udp_port;
	snprintf(name, sizeof(name), "ports-%u", udp_port);
	err = runfile_open(&p->file, name, room_for(PORTS_STEP));
	if (err)
		goto free_p;
	read_range(p);
	ports_own_init(&p->own);
	pthread_mutex_init(&p->mutex, NULL);
	locked = lock_table(p);
	bury(p, slot); /* who had it before us */
	bury(p, 0);
	err = lock_byte(p->file.fd, slot, F_WRLCK);
	if (!err)
		err = drop_lock(p, locked);
	else
		unlock_table(p, locked);
	if (err)
		goto close_file;
	locked = take_lock(p);
	drop_lock(p, locked);
	*out = p;
	return 0;

close_file:
	runfile_close(&p->file);
free_p:
	free(p->table);
	free(p);
	return err;
}

void hca_ports_close(struct hca_ports *p)
{
	bool locked;

	if (!p)
		return;
	locked = lock_table(p);
	bury(p, p->slot);
	p->table->h.present[p->slot] = 0;
	drop_lock(p, locked);
	pthread_mutex_destroy(&p->mutex);
	hca_ports_abandon(p);
}

void hca_ports_abandon(struct hca_ports *p)
{
	if (!p)
		return;
	runfile_close(&p->file);
	ports_own_fini(&p->own);
	free(p->table);
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

int hca_ports_claim(struct hca_ports *p, struct hca_port_claim *c, hca_port_id *id)
{
	bool locked = take_lock(p), any = !c->port;
	hca_port_id at = 0;
	int err, written;

	c->slot = (uint16_t)p->slot;
	err = any ? pick_port(p, c) : ports_table_allows(p->table, c, 0, c->reuse, is_alive, p);
	if (!err)
		err = add_to_table(p, c, &at);
	if (!err) {
		*id = ports_own_add(&p->own, c, at);
		err = *id ? 0 : -ENOMEM;
	}
	if (err)
		ports_table_drop(p->table, at, p->slot);
	written = drop_lock(p, locked);
	if (!err && written) {
		err = written;
		hca_ports_release(p, *id);
	}
	if (err && any)
		c->port = 0;
	return err;
}

int hca_ports_listen(struct hca_ports *p, hca_port_id id)
{
	bool locked = take_lock(p);
	struct ports_own_claim *own;
	int err = -EINVAL;

	lock_take(&p->own.lock);
	own = ports_own_find(&p->own, id);
	/* Who shares a port cannot listen on it, nor share it while he listens. */
	if (own)
		err = own->claim.reuse
			      ? ports_table_allows(p->table, &own->claim, own->at, false, is_alive, p)
			      : 0;
	if (!err && !ports_table_listen(p->table, own->at))
		err = -EINVAL;
	if (!err) {
		own->claim.listening = true;
		own->claim.reuse = false;
	}
	lock_drop(&p->own.lock);
	drop_lock(p, locked);
	return err;
}

/* Without the table's lock, which may have to be waited for: while we live the entry is ours alone. */
static void free_entry(struct hca_ports *p, hca_port_id at)
{
	uint32_t i = (uint32_t)at - 1;
	struct hca_port_claim c;
	struct ports_entry e;
	hca_port_id now;

	runfile_read(&p->file, room_for(i), &e, sizeof(e));
	if (!ports_entry_get(&e, i, &c, &now) || now != at || c.slot != p->slot)
		return;
	ports_entry_free(&e);
	runfile_write(&p->file, room_for(i), &e.head, sizeof(e.head));
}

void hca_ports_release(struct hca_ports *p, hca_port_id id)
{
	int cancel = cancel_off();
	hca_port_id at = ports_own_remove(&p->own, id);

	if (at)
		free_entry(p, at);
	cancel_restore(cancel);
}

/* ---- whom a request is for ---- */
enum { AT_ONCE = 128 }; /* entries read by one call */

/* The header, if it can be believed. */
static bool read_header(struct hca_ports *p, struct ports_header *h)
{
	runfile_read(&p->file, 0, h, offsetof(struct ports_header, present));
	return ports_header_is_whole(h, entries_in(p)) && h->formed;
}

/* What was read may have been half of two claims: it is there if it is there twice. */
static bool is_still(struct hca_ports *p, uint32_t i, const struct ports_entry *e)
{
	struct ports_entry again;

	runfile_read(&p->file, room_for(i), &again, sizeof(again));
	return !memcmp(e, &again, sizeof(again));
}

int hca_ports_owner(struct hca_ports *p, uint16_t ps, const uint8_t dgid[16], uint16_t port)
{
	struct ports_entry e[AT_ONCE];
	struct hca_port_claim c;
	struct ports_header h;
	hca_port_id id;

	if (!p)
		return 0;
	if (!read_header(p, &h))
		return -EAGAIN;
	for (uint32_t i = 0; i < h.used; i++) {
		if (i % AT_ONCE == 0)
			runfile_read(&p->file, room_for(i), e, sizeof(e));
		if (ports_entry_listens(&e[i % AT_ONCE], ps, dgid, port) && is_still(p, i, &e[i % AT_ONCE]))
			return ports_entry_get(&e[i % AT_ONCE], i, &c, &id) ? c.slot : 0;
	}
	return 0;
}

void hca_ports_listeners(struct hca_ports *p, struct slots *slots)
{
	struct ports_entry e[AT_ONCE];
	struct ports_header h;

	memset(slots, 0, sizeof(*slots));
	if (!p || !read_header(p, &h))
		return;
	for (uint32_t i = 0; i < h.used; i++) {
		struct hca_port_claim c;
		hca_port_id id;

		if (i % AT_ONCE == 0)
			runfile_read(&p->file, room_for(i), e, sizeof(e));
		if (ports_entry_get(&e[i % AT_ONCE], i, &c, &id) && c.listening)
			slots_add(slots, c.slot);
	}
}
