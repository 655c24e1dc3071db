/* SPDX-License-Identifier: MIT */
/*
 * A subnet of InfiniBand nodes: what there is, and how it is cabled. No I/O, no clock, no threads: time and
 * packets come in, packets and events go out through struct subnet_ops, so that unit tests, fuzzers and the
 * simulation drive a thousand nodes from a seed in one process. One thread at a time.
 *
 * A description (topo_make.h, topo_parse.h) adds nodes and cables; subnet_start() then plugs everything in:
 * links train, ports go to INIT and wait for a subnet manager.
 */
#ifndef SUBNET_MODEL_H
#define SUBNET_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fabric_port;
struct fabric_table;
struct packet;
struct port_regs;
struct subnet;
struct subnet_node;
struct subnet_switch;

enum {
	SUBNET_NAME = 64,       /* bytes of a name or node description, its end included */
	SUBNET_MAX_PORTS = 254, /* of a node; 255 says "all" or "none" on the wire */
	SUBNET_MLIDS = 1024     /* groups that a switch forwards, from LID_MCAST on */
};

enum subnet_node_type { SUBNET_CA = 1, SUBNET_SWITCH = 2, SUBNET_ROUTER = 3 }; /* NodeInfo.NodeType */

/* What a cable and its two ends can do, as PortInfo encodes it. */
struct subnet_link_caps {
	uint8_t width;     /* LinkWidthSupported: 1 1x, 2 4x, 4 8x, 8 12x, 16 2x */
	uint8_t speed;     /* LinkSpeedSupported: 1 SDR, 2 DDR, 4 QDR */
	uint8_t speed_ext; /* LinkSpeedExtSupported: 1 FDR, 2 EDR, 4 HDR, 8 NDR */
	uint8_t mtu;       /* enum ibv_mtu */
};

/* What a cable does to packets, each drawn from the subnet's seed: the same seed gives the same fates. */
struct subnet_fault {
	uint32_t loss, corrupt, duplicate; /* of a million packets */
	uint64_t delay;                    /* nanoseconds */
};

struct subnet_port {
	struct subnet_node *node;
	struct subnet_port *peer; /* the other end of the cable; NULL: nothing is plugged in */
	uint8_t num;              /* 0: a switch's own port */
	bool cut;                 /* the cable is there and does not conduct */
	uint64_t guid;
	struct subnet_link_caps caps;
	uint32_t index; /* among all ports of the subnet; an adapter's port 0 has none */
	struct fabric_port
		*shared;        /* what programs may know of it, from subnet_start() on (fabric/shared.h) */
	struct port_regs *regs; /* the rest of its attributes and its counters (parts.h) */
};

struct subnet_node {
	struct subnet *subnet;
	enum subnet_node_type type;
	unsigned nports;          /* external ones */
	struct subnet_port *port; /* [0] a switch's own (unused for others), [1] to [nports] */
	char id[SUBNET_NAME];     /* its name in a description: unique */
	char desc[SUBNET_NAME + 1];
	uint64_t guid, sys_guid;
	uint32_t vendor_id, device_id, revision;
	struct subnet_switch *sw; /* NULL: not a switch */
	uint32_t index;           /* among all nodes */
	struct subnet_node *next; /* of those with the same hash of their names */
};

enum subnet_change { /* becomes verbs events and files of the device tree */
	SUBNET_PORT_STATE,
	SUBNET_LID_CHANGED,
	SUBNET_SM_CHANGED,
	SUBNET_PKEYS_CHANGED,
	SUBNET_GUIDS_CHANGED,
	SUBNET_REREGISTER,
};

struct subnet_ops {
	/*
	 * A packet has reached a CA port, or the own port of a switch, and the SMA and PMA did not want it.
	 * It is there for as long as the call lasts. Answers may be injected from here.
	 */
	void (*arrived)(void *arg, struct subnet_port *at, const struct packet *p);
	/* A packet leaves by this port: for captures. NULL: nobody looks. */
	void (*seen)(void *arg, struct subnet_port *from, const struct packet *p);
	void (*changed)(void *arg, struct subnet_port *at, enum subnet_change what);
	/*
	 * Somebody looks at counters, or the routes are about to change: what programs sent past the switches
	 * by now is to be counted (subnet_count(), counters.h). NULL: nobody does.
	 */
	void (*tallies)(void *arg);
	/*
	 * Zeroed memory for the fabric's table, which lives until subnet_close(); NULL is no memory. No such
	 * function: the subnet has its own.
	 */
	void *(*table)(void *arg, size_t len);
};

/* ---- making one ---- */
/* seed: of faults. NULL: no memory. */
struct subnet *subnet_open(const struct subnet_ops *ops, void *arg, uint64_t seed);
void subnet_close(struct subnet *s);

/*
 * Adds a node with a name nobody has yet. GUIDs are 0x02616e, site, node and port, until the caller sets
 * others (subnet_set_guid); caps are 4x, up to HDR, MTU 4096, until the caller sets others. NULL with errno:
 * EEXIST the name, EINVAL ports or name, ENOSPC too many nodes or ports, ENOMEM.
 */
struct subnet_node *subnet_add(struct subnet *s, enum subnet_node_type type, unsigned nports, const char *id);
/* Plugs a cable in at both ends: 0; -EBUSY one of them has one; -EINVAL a port with itself or port 0. */
int subnet_join(struct subnet_port *a, struct subnet_port *b);
/* Sets a node's GUID, and those of its ports by counting up from it: 0, or -EINVAL for 0. */
int subnet_set_guid(struct subnet_node *n, uint64_t guid);

/*
 * From its start on packets have their CRCs on every cable, and who takes them checks them (crc.c). No port
 * is plain then. Before subnet_start().
 */
void subnet_check_crcs(struct subnet *s);
bool subnet_checks_crcs(const struct subnet *s);

/* Everything is plugged in now. Descriptions are not changed any more. 0, -ENOMEM, or -EALREADY. */
int subnet_start(struct subnet *s, uint64_t now);

/* ---- looking ---- */
unsigned subnet_nodes(const struct subnet *s);
struct subnet_node *subnet_node(const struct subnet *s, unsigned index);
struct subnet_node *subnet_find(const struct subnet *s, const char *id);
/* NULL: it has no such port. */
struct subnet_port *subnet_port(const struct subnet_node *n, unsigned num);
/* What programs are shown; NULL before subnet_start(). */
struct fabric_table *subnet_table(const struct subnet *s);
/* Whether a switch copies what is for this group (its LID) to a port of its own; 0 is the switch itself. */
bool subnet_in_group(const struct subnet_node *sw, uint16_t mlid, unsigned num);
/* Where the management of a port lives: the port itself, or port 0 of a switch. */
struct subnet_port *subnet_end_port(struct subnet_port *p);

/* ---- running ---- */
/*
 * A host sends a packet by its port, or a switch by its own; it is judged like any other. When this returns,
 * it has arrived, was dropped or is a copy that waits: its bytes may have been changed and are the caller's
 * again.
 */
void subnet_inject(struct subnet *s, struct subnet_port *from, struct packet *p, uint64_t now);
/* When subnet_expire() wants to be called next (traps, leases, delayed packets); UINT64_MAX: not at all. */
uint64_t subnet_deadline(const struct subnet *s);
void subnet_expire(struct subnet *s, uint64_t now);

/* Cuts and mends the cable at this port: -ENOTCONN when there is none, -EALREADY when it is so already. */
int subnet_cut(struct subnet_port *p, uint64_t now);
int subnet_mend(struct subnet_port *p, uint64_t now);

/*
 * What the cable at this port does to packets from now on, in both directions: -ENOTCONN when there is none,
 * -EINVAL for more than a million of a million. All zero: nothing. A port with faults, or whose packets
 * somebody watches or checks, is not plain: programs send through the subnet then.
 */
int subnet_set_fault(struct subnet_port *p, const struct subnet_fault *f);
int subnet_set_watched(struct subnet_port *p, bool watched);

/*
 * The host changes what it says of an end port: capability bits (IsSM when a subnet manager binds, in the
 * place of those in `mask`), or of its node, whose description is cut to 64 bytes. Both raise trap 144.
 */
void subnet_set_capability(struct subnet_port *end, uint32_t mask, uint32_t bits, uint64_t now);
void subnet_set_description(struct subnet_node *n, const char *desc, uint64_t now);

/*
 * A host found a key in a packet that it does not have (QP layer): counted, and told by trap 257 or 258. The
 * subnet itself looks at those of QP1.
 */
void subnet_bad_pkey(struct subnet_port *end, const struct packet *p, uint64_t now);
void subnet_bad_qkey(struct subnet_port *end, const struct packet *p, uint64_t now);

#endif
