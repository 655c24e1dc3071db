/* SPDX-License-Identifier: MIT */
/*
 * anyrdma-fabricd: a subnet, as a process. It owns the subnet (src/subnet) and the loop; its parts each open
 * a socket or a file in the fabric's directory and hang themselves into the loop. One thread, so no locks.
 *
 * A part is a pair of functions, NAME_open() and NAME_close(), and a pointer in struct fabricd which is its
 * own. What the subnet has to tell goes to every part that wants it, by subnet_ops of main.c.
 */
#ifndef FABRICD_FABRICD_H
#define FABRICD_FABRICD_H

#include "fabricd/loop.h"
#include "subnet/model.h"
#include "subnet/topo.h"
#include "wire/mad.h"

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

struct packet;
struct attach;
struct capture;
struct console;
struct ibmad_addr;
struct manager;
struct trees;
struct umad;

struct fabricd {
	char name[SUBNET_NAME];
	char dir[PATH_MAX]; /* <run dir>/fabric-<name>, mode 0700: sockets, trees, logs */
	struct loop *loop;
	struct subnet *subnet;
	struct topo topo;        /* hosts: topo_host(&d->topo, "node3") */
	struct loop_timer timer; /* of the subnet's deadline */
	uint64_t started;
	int signals;
	unsigned next_host; /* for `--host auto` */
	const char *tool;   /* the path of `anyrdma` */
	bool sm_auto;       /* the built-in subnet manager is wanted */
	bool until_unused;  /* it ends with its last user */
	int users;          /* the FIFO that they hold; -1 */

	pid_t sm;      /* 0: none that we started */
	int sm_status; /* of the last one; -1: it is running, or there was none */
	char sm_host[SUBNET_NAME];
	bool leaving; /* the fabric ends with it */
	struct loop_timer patience;

	int table_fd; /* of the table that programs map */
	struct attach *attach;
	struct capture *capture;
	struct console *console;
	struct manager *manager; /* NULL: there is none */
	struct trees *trees;
	struct umad *umad;
};

/*
 * A listening Unix socket `name` in the fabric's directory, non-blocking, of the given type (SOCK_STREAM or
 * SOCK_SEQPACKET). The path is written to the log when it cannot be. Descriptor or -errno.
 */
int fabricd_listen(struct fabricd *d, const char *name, int type);
/* The next connection of our own user, non-blocking; others are hung up on. -EAGAIN: no more. */
int fabricd_accept(int listener);

/* ---- attach.c, trunk.c: the socket `attach` for programs with devices, and their packets ---- */
int attach_open(struct fabricd *d); /* 0 or -errno, logged */
void attach_close(struct fabricd *d);
/* Says who is attached, and what became of packets that did not arrive; nothing when there is nothing to say.
 */
void attach_describe(const struct fabricd *d, FILE *out);
/* Memory for the table of the fabric, which programs can map; NULL: none. */
void *attach_table(struct fabricd *d, size_t len);
void attach_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what);
/* Counts what programs have sent past the switches by now. */
void attach_take_tallies(struct fabricd *d);
/* A MAD that reached QP1 of an adapter: true, it was a program's. */
bool gsi_arrived(struct fabricd *d, struct subnet_port *at, const struct packet *p);
/*
 * The connection manager's answer to what is no program's: nobody listens, or the program has ended. Soon
 * after the fabric began, one that was there before may be about to attach again: who speaks to it repeats
 * that.
 */
enum { GSI_RETURN_NS = 1000 * 1000 * 1000 };
bool gsi_refuse(const struct fabricd *d, const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN], uint64_t now);
/* What reached an adapter for a program's queue pairs, or a group's. */
void trunk_arrived(struct fabricd *d, struct subnet_port *at, const struct packet *p);

/* ---- umad.c: the socket `umad` for libibumad, QP0 and QP1 of all adapters ---- */
int umad_open(struct fabricd *d); /* 0 or -errno, logged */
void umad_close(struct fabricd *d);
/* What reached a port and was neither the SMA's nor the PMA's business. */
void umad_arrived(struct fabricd *d, struct subnet_port *at, const struct packet *p);
void umad_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what);

/* ---- trees.c: per host, the files a machine would have in /sys and /dev, in <dir>/host-<name>/sys/ ---- */
int trees_open(struct fabricd *d);
void trees_close(struct fabricd *d);
/* Writes the tree of a host unless it is there, and keeps it up to date from now on. 0 or -errno. */
int trees_need(struct fabricd *d, struct topo_host *h);
/*
 * The file whose openers make a port an SM's (IsSM): watched, so it must be opened where this says. hca:
 * index in the host; port from 1. 0, -ENOENT no such port, -ENAMETOOLONG. Calls trees_need().
 */
int trees_issm_path(
	struct fabricd *d, struct topo_host *h, unsigned hca, unsigned port, char *buf, size_t len);
/* The directory of a host's files, with class/ and dev/ in it. Calls trees_need(). 0 or -errno. */
int trees_path(struct fabricd *d, struct topo_host *h, char *buf, size_t len);
/* Whether somebody has the file of a port open. */
bool trees_issm_held(const struct fabricd *d, const struct subnet_port *port);
/* Of how many ports it is open now. */
unsigned trees_issms_held(const struct fabricd *d);
void trees_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what);
/* Notes which issm files were opened and closed by now; the loop does it, too, in its turn. */
void trees_read(struct fabricd *d);

/* ---- capture.c: pcapng files of what passes on links ---- */
int capture_open(struct fabricd *d);
void capture_close(struct fabricd *d);
void capture_seen(struct fabricd *d, struct subnet_port *from, const struct packet *p);

/* Begins a file: what leaves by these ports, or by all. 0 or -errno; -ENXIO: the path is no regular file. */
int capture_start(struct fabricd *d, const char *path, struct subnet_port *const *ports, unsigned nports);
/* Ends it: how many packets were written, or -ESRCH when there is none, -EIO when some were not. */
long capture_stop(struct fabricd *d);
/* The file that is being written, or NULL. */
const char *capture_path(const struct fabricd *d, uint64_t *packets);

/* ---- manager.c: the built-in subnet manager ---- */
int manager_open(struct fabricd *d);
void manager_close(struct fabricd *d);
/* A port has its first issm file open, or its last one closed. */
void manager_issm(struct fabricd *d, bool open);
/* Before what a program says is done: has another manager come? */
void manager_look(struct fabricd *d);
void manager_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what);
/* A MAD that no agent of the port wanted: true, it was for the manager. */
bool manager_arrived(struct fabricd *d, struct subnet_port *at, unsigned qp, const struct ibmad_addr *from,
	const uint8_t *mad);
/* Where it is the master, or NULL; whether another one has begun to manage since it made way. */
const struct subnet_port *manager_home(const struct fabricd *d);
bool manager_is_relieved(const struct fabricd *d);

/* ---- users.c: a fabric that nobody brought up by name ends with those who use it ---- */
int users_open(struct fabricd *d);
void users_close(struct fabricd *d);

/* ---- sm.c: a subnet manager that we started, `opensm` ---- */
int sm_start(struct fabricd *d, const char *host, char *const *words, unsigned nwords); /* -EALREADY */
int sm_stop(struct fabricd *d); /* -ESRCH: there is none */
void sm_reap(struct fabricd *d);
/* Ends the loop, when it has gone: it asks us for things while it does. A second later at the latest. */
void sm_leave(struct fabricd *d);
void sm_close(struct fabricd *d); /* ends it at once */

/* ---- console.c: the socket `console` for `anyrdma fabric` ---- */
int console_open(struct fabricd *d);
void console_close(struct fabricd *d);

#endif
