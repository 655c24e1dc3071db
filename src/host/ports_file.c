/* SPDX-License-Identifier: MIT */
/* The file of all claims (ports.h): locking, our copy of it, and what is done when it was lost. */
#include "host/ports_parts.h"

#include "base/cancel.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
	LOCK_WAIT_MS = 2000,
	ENTER_WAIT_MS = 50, /* for others to come into a new file */
	TABLE_LOCK = 0,     /* slot 0 is no process */
};

size_t ports_room(uint32_t entries)
{
	return offsetof(struct ports_table, entry[0]) + entries * sizeof(struct ports_entry);
}

static void nap(void)
{
	struct timespec ms = {.tv_nsec = 1000000};

	nanosleep(&ms, NULL);
}

bool ports_is_alive(void *arg, uint32_t slot)
{
	struct host_ports *p = arg;

	return slot == p->slot || (slot != TABLE_LOCK && host_process_is_alive(p->file.fd, slot));
}

/* ---- the file and our copy of it ---- */
/* How many entries the file has room for. */
uint32_t ports_entries(const struct host_ports *p)
{
	struct stat st;

	if (fstat(p->file.fd, &st) || st.st_size < (off_t)ports_room(0))
		return 0;
	st.st_size -= (off_t)ports_room(0);
	return st.st_size / 32 < PORTS_MAX ? (uint32_t)(st.st_size / 32) : PORTS_MAX;
}

/* Room for that many entries now: a full file system is noticed by who claims. */
static int make_room(struct host_ports *p, uint32_t entries)
{
	return entries > ports_entries(p) ? -posix_fallocate(p->file.fd, 0, (off_t)ports_room(entries)) : 0;
}

static void read_table(struct host_ports *p)
{
	static const struct host_processes nobody;
	struct ports_table *t = p->table;

	runfile_read(&p->file, PORTS_HEADER_AT, &t->h, sizeof(t->h));
	if (ports_header_is_whole(&t->h, ports_entries(p))) {
		runfile_read(&p->file, ports_room(0), t->entry, t->h.used * sizeof(t->entry[0]));
		memset(t->changed, 0, sizeof(t->changed));
		p->was = t->h;
		return;
	}
	make_room(p, PORTS_STEP);
	ports_table_clear(t);
	memset(&p->was, 0, sizeof(p->was));
	runfile_write(&p->file, 0, &nobody, sizeof(nobody)); /* all have to enter again */
}

/* Writes what was changed. Entries of others that live are theirs to write, at any time, without the lock. */
static int write_table(struct host_ports *p)
{
	struct ports_table *t = p->table;
	int err = 0;

	if (memcmp(&p->was, &t->h, sizeof(t->h)))
		err = runfile_write(&p->file, PORTS_HEADER_AT, &t->h, sizeof(t->h));
	p->was = t->h;
	for (uint32_t i = 0; i < PORTS_MAX && !err; i++) {
		if (!t->changed[i / 64]) {
			i |= 63;
			continue;
		}
		if (t->changed[i / 64] >> i % 64 & 1)
			err = runfile_write(&p->file, ports_room(i), &t->entry[i], sizeof(t->entry[i]));
	}
	memset(t->changed, 0, sizeof(t->changed));
	return err;
}

/* ---- what is left over ---- */
/* Drops the claims of the dead, or those of one slot. */
void ports_reap(struct host_ports *p, uint32_t only)
{
	enum { UNKNOWN, ALIVE, DEAD } fate[QPN_SLOTS] = {UNKNOWN};
	uint32_t n = ports_table_count(p->table);

	for (uint32_t i = 0; i < n; i++) {
		struct host_port_claim c;
		host_port_id id;

		if (!ports_table_get(p->table, i, &c, &id))
			continue;
		if (fate[c.slot] == UNKNOWN)
			fate[c.slot] = (only ? c.slot != only : ports_is_alive(p, c.slot)) ? ALIVE : DEAD;
		if (fate[c.slot] == DEAD)
			ports_table_drop(p->table, id, c.slot);
	}
	ports_table_trim(p->table);
}

/* ---- claims that the file has lost ---- */
int ports_add(struct host_ports *p, const struct host_port_claim *c, host_port_id *id)
{
	uint32_t room;
	int err;

	ports_table_trim(p->table);
	room = (ports_table_count(p->table) / PORTS_STEP + 1) * PORTS_STEP;
	if (room > PORTS_MAX) {
		ports_reap(p, 0);
		room = PORTS_MAX;
	}
	err = make_room(p, room);
	if (err)
		return err;
	*id = ports_table_add(p->table, c, room);
	return *id ? 0 : -ENOSPC;
}

static bool is_in_table(struct host_ports *p, host_port_id at)
{
	uint32_t i = (uint32_t)at - 1;
	struct host_port_claim c;
	host_port_id now;

	return i < ports_table_count(p->table) && ports_table_get(p->table, i, &c, &now) && now == at &&
	       c.slot == p->slot;
}

void ports_write_record(struct host_ports *p, const struct host_process *r)
{
	runfile_write(&p->file, host_process_at(p->slot), r, sizeof(*r));
}

/*
 * Enters what we have claimed, where it is missing, whatever others have claimed meanwhile: programs live by
 * it. Table locked.
 */
void ports_enter_own(struct host_ports *p)
{
	struct host_process there;

	lock_take(&p->own.lock);
	for (uint32_t i = 0; i < p->own.count; i++) {
		struct ports_own_claim *own = &p->own.claims[i];
		host_port_id at;

		if (own->at && !is_in_table(p, own->at) && !ports_add(p, &own->claim, &at))
			own->at = at;
	}
	write_table(p);
	runfile_read(&p->file, host_process_at(p->slot), &there, sizeof(there));
	if (memcmp(&there, &p->self, sizeof(there)))
		ports_write_record(p, &p->self);
	lock_drop(&p->own.lock);
}

/* Locks and reads the file that is there now. Waits, but not for ever: who holds the lock may be stopped. */
bool ports_lock_table(struct host_ports *p)
{
	int cancel = cancel_off();
	bool locked = false;

	pthread_mutex_lock(&p->mutex);
	p->cancel = cancel;
	if (runfile_renew(&p->file, ports_room(PORTS_STEP)))
		host_process_lock(p->file.fd, p->slot, F_WRLCK);
	for (int ms = 0; ms < LOCK_WAIT_MS && !locked; ms++) {
		locked = !host_process_lock(p->file.fd, TABLE_LOCK, F_WRLCK);
		if (!locked)
			nap();
	}
	if (!locked)
		log_warn("a stopped process holds the lock of the RDMA ports: continuing without it");
	read_table(p);
	return locked;
}

void ports_unlock_table(struct host_ports *p, bool locked)
{
	int cancel = p->cancel;

	if (locked)
		host_process_lock(p->file.fd, TABLE_LOCK, F_UNLCK);
	pthread_mutex_unlock(&p->mutex);
	cancel_restore(cancel);
}

/* ---- a file that is new, while there are processes ---- */
static struct slots slots_absent(const struct host_ports *p, struct slots of)
{
	struct host_processes all;

	runfile_read(&p->file, 0, &all, sizeof(all));
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		if (all.of[slot].version == PROCESS_VERSION)
			slots_del(&of, slot);
	}
	return of;
}

/* Asks all who have a slot to enter their claims, and waits for them; not for long: anybody can bind a name.
 */
static void gather(struct host_ports *p)
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
bool ports_take_lock(struct host_ports *p)
{
	bool locked = ports_lock_table(p);

	ports_enter_own(p);
	if (p->table->h.formed)
		return locked;
	ports_unlock_table(p, locked);
	gather(p);
	locked = ports_lock_table(p);
	p->table->h.formed = 1;
	ports_enter_own(p);
	return locked;
}

int ports_drop_lock(struct host_ports *p, bool locked)
{
	int err = write_table(p);

	ports_unlock_table(p, locked);
	return err;
}
