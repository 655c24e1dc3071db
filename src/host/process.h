/* SPDX-License-Identifier: MIT */
/*
 * The processes of a user that share a UDP port, a record each by slot, in a file of the run directory called
 * processes-<UDP port>. Behind the records are their claims of RDMA ports (host/ports.h), whose code opens
 * the file and enters our record; here is what those who look at others need, too.
 *
 * Byte n of the file is locked by the process of slot n for as long as it lives: a crash lets go of it, and
 * nobody but this user can hold it. That is how it is known whose records and claims are those of the dead.
 * Nothing else in the file is believed without bounds. It may be removed, emptied or overwritten at any time
 * (host/runfile.h); its processes then enter themselves again.
 */
#ifndef HOST_PROCESS_H
#define HOST_PROCESS_H

#include "wire/qpn.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROCESS_VERSION = 1 };

struct host_process {
	uint32_t version; /* PROCESS_VERSION: it has entered itself and all its claims */
	uint32_t pid;
	int32_t segment; /* its counters (host/registry.h); -1: they cannot be read */
	uint32_t reserved;
	char comm[16];
};

/* All of them, as the file begins. The first is nobody's: its byte is the lock of the claims. */
struct host_processes {
	struct host_process of[QPN_SLOTS];
};

/* The name of the file. */
void host_process_file(char *buf, size_t len, uint16_t udp_port);
/* Where a record lies in the file. */
size_t host_process_at(uint32_t slot);
/* Locks or unlocks (F_WRLCK, F_UNLCK) a byte of the file: 0 or -errno. Never waits. */
int host_process_lock(int fd, uint32_t slot, short type);
/* Whether another process has the byte of a slot locked. */
bool host_process_is_alive(int fd, uint32_t slot);

/* Calls for each process of this user in this network namespace that lives and has entered itself. */
void host_processes_each(void (*fn)(void *arg, uint32_t slot, const struct host_process *p), void *arg);
/*
 * Asks those who have a slot of this port and no record, which somebody may have removed, to enter themselves
 * (slots_ask_to_look), and waits so long at most: anybody can bind a slot's name and stay silent.
 */
void host_processes_ask(uint16_t udp_port, unsigned wait_ms);

#endif
