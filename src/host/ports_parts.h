/* SPDX-License-Identifier: MIT */
/* The inside of the port spaces, for their parts: ports.c claims and looks up, ports_file.c keeps the file.
 */
#ifndef HOST_PORTS_PARTS_H
#define HOST_PORTS_PARTS_H

#include "host/runfile.h"
#include "host/slot.h"
#include "host/ports.h"
#include "host/ports_own.h"

#include <pthread.h>
#include <stddef.h>

enum { PORTS_HEADER_AT = offsetof(struct ports_table, h) };

struct host_ports {
	struct runfile file;
	uint32_t slot;
	uint16_t udp_port;
	struct host_process self;  /* our record, as it should be */
	uint16_t low, high;        /* ports for who does not care */
	struct ports_own own;      /* what we have claimed */
	struct ports_table *table; /* the file as it was when it was locked */
	struct ports_header was;   /* its header */
	int cancel;                /* of the thread that has the table */
	pthread_mutex_t mutex;     /* guards the table; with the file's lock, which does not keep our own
				      threads apart */
};

/* How much of the file so many entries need; where the next one lies. */
size_t ports_room(uint32_t entries);
/* How many entries the file has room for. */
uint32_t ports_entries(const struct host_ports *p);
/* Whether the process of a slot lives; arg: the ports. */
bool ports_is_alive(void *arg, uint32_t slot);

/*
 * Locks and reads the file that is there now. Waits, but not for ever: who holds the lock may be stopped;
 * what is returned is for unlocking. take_lock: our claims are in it, and those of all others too. drop_lock:
 * what was changed is written: 0 or -errno.
 */
bool ports_lock_table(struct host_ports *p);
void ports_unlock_table(struct host_ports *p, bool locked);
bool ports_take_lock(struct host_ports *p);
int ports_drop_lock(struct host_ports *p, bool locked);

/* ---- with a locked table ---- */
/* Drops the claims of the dead, or those of one slot. */
void ports_reap(struct host_ports *p, uint32_t only);
/* Enters a claim: 0 or -errno. */
int ports_add(struct host_ports *p, const struct host_port_claim *c, host_port_id *id);
/* Enters our record and what we have claimed, where it is missing. */
void ports_enter_own(struct host_ports *p);
/* Writes a record in the place of ours. */
void ports_write_record(struct host_ports *p, const struct host_process *r);

#endif
