/* SPDX-License-Identifier: MIT */
/*
 * RDMA port spaces, shared by all processes of a user in a network namespace: claims that lie behind the
 * records of the processes in one file (host/process.h).
 *
 * It is read and written by system calls, never mapped (host/runfile.h): each process knows its own claims
 * itself and enters them again when the file is removed, emptied or filled with anything else. Who finds it
 * new asks the others to (slots_ask_to_look), and waits a moment for them.
 *
 * Byte 0 of it is locked by who changes the table. What a crash leaves is seen to be nobody's, and is dropped
 * by the next claim it is in the way of. A process that gets the slot of a dead one drops what that one left
 * before it says that it is there. Not real TCP ports: those are other programs'.
 */
#ifndef HOST_PORTS_H
#define HOST_PORTS_H

#include "base/export.h"
#include "host/slot.h"
#include "host/ports_table.h"

struct host_ports;

/* Enters this process, whose counters have this segment (host/registry.h): 0 or -errno. */
int host_ports_open(struct host_ports **out, uint16_t udp_port, uint32_t slot, int32_t segment);
/* Gives up whatever this process still has claimed, and its record. */
void host_ports_close(struct host_ports *p);
/* After fork, in the child: everything stays the parent's, and nothing is freed. */
void host_ports_abandon(struct host_ports *p);

/*
 * Claims a port; fills c->port when it is 0 with one of the host's range for that. 0, -EADDRINUSE or
 * -EADDRNOTAVAIL as Linux's rdma_cm says them, -ENOSPC. Any thread; may wait for other processes, at most
 * about two seconds.
 */
EXPORTED int host_ports_claim(struct host_ports *p, struct host_port_claim *c, host_port_id *id);
/* The claim listens from now on; 0 or, when it was shared with others, their -EADDRINUSE or -EADDRNOTAVAIL.
 */
EXPORTED int host_ports_listen(struct host_ports *p, host_port_id id);
/* Gives a claim back; 0 is none. Never waits. */
EXPORTED void host_ports_release(struct host_ports *p, host_port_id id);

/*
 * The slot of the process that listens for requests to this address and port; 0: nobody; -EAGAIN: the file is
 * lost: host_ports_look(), and ask again. Never waits.
 */
int host_ports_owner(struct host_ports *p, uint16_t ps, const uint8_t dgid[16], uint16_t port);
/* The slots of all processes that listen. */
void host_ports_listeners(struct host_ports *p, struct slots *slots);
/*
 * Makes sure that our record and claims are in the file that others will find. `asked`: by another process
 * that asks everybody; else the others are asked too, if the file turns out to be new. May wait, as a claim
 * does.
 */
void host_ports_look(struct host_ports *p, bool asked);

#endif
