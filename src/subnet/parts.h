/* SPDX-License-Identifier: MIT */
/*
 * What the parts of the subnet share with each other; nobody else looks in here. Attributes lie in three
 * places: what programs may know in the fabric's table (subnet_port.shared), what every port has in
 * port_regs, what only the end ports have (an adapter's port, a switch's port 0), where management ends, in
 * port_agent.
 *
 *   start.c    everything is plugged in            link.c   states of ports, cables
 *   run.c      packets and time come in
 *   forward.c  from port to port                   fault.c  what cables do to packets
 *   crc.c      CRCs, where they are checked
 *   deliver.c  what ends here: who takes it        smp_route.c  directed routes
 *   sma.c, sma_port.c, mkey.c, pma.c, trap.c       the agents of a node
 *   sm.c, sm_route.c, sm_mft.c                     the built-in subnet manager, and behind it the SA: sa*.c
 */
#ifndef SUBNET_PARTS_H
#define SUBNET_PARTS_H

#include "base/list.h"
#include "fabric/shared.h"
#include "subnet/model.h"
#include "subnet/packet.h"
#include "subnet/pma.h"
#include "wire/notice.h"
#include "wire/smp.h"

enum {
	SUBNET_NAMES = 4096,
	SUBNET_VL_CAP = 4,   /* eight data VLs */
	SUBNET_VL_ARB = 8,   /* entries of each priority */
	SUBNET_TIMEOUT = 18, /* 1.07 s, as OpenSM sets it */
	SUBNET_RESP_TIME = 16,
	SUBNET_HELD_MAX = 65536, /* packets that cables delay, of the whole subnet */
	TRAP_SLOTS = 7,
	SUBNET_VENDOR = 0x02616e, /* not a real one's: OpenSM asks Mellanox's for attributes of their own */
};
#define SUBNET_NEVER UINT64_MAX

/* A trap that is told to the subnet manager again and again, until it says that it has heard. */
struct trap_slot {
	bool pending;
	uint64_t tid, due;
	uint64_t sent; /* when it was last; 0: not yet, or heard since */
	uint8_t notice[NOTICE_LEN];
};

struct port_agent {
	struct subnet_port *port;
	uint64_t mkey, lease_due; /* SUBNET_NEVER: no lease is running out */
	uint16_t mkey_lease, mkey_violations, pkey_violations, qkey_violations;
	uint8_t mkey_protect;
	struct trap_slot trap[TRAP_SLOTS];
	uint64_t tid, gate; /* no trap before this */
	struct list timed;  /* on subnet.timed while any of its times is set */
};

struct port_regs {
	struct port_agent *agent; /* of the end port; a switch's ports share that of port 0 */
	uint8_t down_default, width_enabled, speed_enabled, speed_ext_enabled;
	uint8_t vl_high_limit, vl_stall, hoq_life, init_type;
	uint8_t phy_threshold, overrun_threshold, phy_errors;
	uint8_t vl_arb[2][2 * SUBNET_VL_ARB]; /* low, high: VL and weight */
	bool watched;
	struct subnet_fault fault;
	uint64_t random; /* what the fates of its packets are drawn from */
	struct pma_counters count;
};

struct subnet_switch {
	uint32_t index; /* in the fabric's table */
	uint8_t life_time, default_port, default_mcast_primary, default_mcast_other;
	bool state_change;
	uint16_t *mft; /* [position of 16 ports][SUBNET_MLIDS] */
};

struct subnet {
	struct subnet_ops ops;
	void *arg;
	uint64_t seed;
	bool crcs; /* packets have them, checked at each hop */
	struct subnet_node **node;
	unsigned nnodes, room;
	struct subnet_node *name[SUBNET_NAMES]; /* by the hash of their names */
	struct fabric_counts count;             /* of what was added */

	/* from subnet_start() on */
	struct fabric_table *table;
	void *own_table;
	struct port_regs *regs;
	struct port_agent *agents;
	struct subnet_switch *switches;
	uint16_t *mfts;
	uint64_t now, deadline;
	uint64_t moved;    /* links that came up or fell by themselves, for the built-in subnet manager */
	struct list timed; /* of port_agent */
	struct list held;  /* of fault.c: packets that cables delay, the first due first */
	unsigned nheld;
	unsigned depth; /* calls from outside that are running: those who are told of a packet may send one */
	unsigned copies; /* of the packet being replicated to a group, that may still be made */
};

static inline bool is_switch(const struct subnet_node *n)
{
	return n->type == SUBNET_SWITCH;
}

/*
 * Around each call from outside. Before a store into the fabric's table comes table_changes(); the epoch is
 * even again when the call is over.
 */
static inline void enter(struct subnet *s, uint64_t now)
{
	s->depth++;
	s->now = now;
}

static inline void take_tallies(struct subnet *s)
{
	if (s->ops.tallies)
		s->ops.tallies(s->arg);
}

/* What went by the table as it is, is counted before. */
static inline void table_changes(struct subnet *s)
{
	if (!(s->table->epoch & 1))
		take_tallies(s);
	fabric_change_begin(s->table);
}

static inline void leave(struct subnet *s)
{
	if (!--s->depth)
		fabric_change_end(s->table);
}

static inline void set_deadline(struct subnet *s, uint64_t due)
{
	if (due < s->deadline)
		s->deadline = due;
}

static inline void tell_changed(struct subnet_port *p, enum subnet_change what)
{
	struct subnet *s = p->node->subnet;

	if (s->ops.changed)
		s->ops.changed(s->arg, p, what);
}

/* The port that a packet which came in by `in` ends at. */
static inline struct subnet_port *end_port(struct subnet_port *in)
{
	return is_switch(in->node) ? &in->node->port[0] : in;
}

/* ---- start.c ---- */
void subnet_stop(struct subnet *s); /* frees what subnet_start() got */

/* ---- run.c ---- */
/* An end port sends a packet of its own, or sends one on: NULL, or the port it leaves by. */
struct subnet_port *originate(struct subnet *s, struct subnet_port *from, struct packet *p);

/* ---- forward.c ---- */
/* Moves a packet from a port over its cable, and further, until it ends. out may be NULL: it has ended. */
void forward_travel(struct subnet *s, struct subnet_port *out, struct packet *p);
/* The same for a packet that has left by this port before, and was delayed by the cable. */
void forward_land(struct subnet *s, struct subnet_port *out, struct packet *p);
/* A switch finds the port for a packet that came in by one of its ports: NULL when it ended there. */
struct subnet_port *forward_relay(struct subnet *s, struct subnet_port *in, struct packet *p);
/* A port that need not look for another one: an adapter's. NULL: it may not send it. */
struct subnet_port *forward_send(
	struct subnet *s, struct subnet_port *out, unsigned in_num, struct packet *p);

/* ---- deliver.c ---- */
/*
 * A packet ends at a port of this node. NULL, or the packet has been made an answer, which leaves by the port
 * that is returned.
 */
struct subnet_port *deliver(struct subnet *s, struct subnet_port *in, struct packet *p);
/* A directed route goes on, begins or ends here. */
struct subnet_port *deliver_directed(
	struct subnet *s, struct subnet_port *in, struct packet *p, bool from_here);

/* ---- crc.c ---- */
/* A packet leaves by a port: its ICRC is made when it begins here, its VCRC anew. */
void crc_leave(struct packet *p);
/* Whether the VCRC of what came over a cable is right. */
bool crc_vcrc_is_right(const struct packet *p);
/*
 * A packet that came in by this port ends here. False: its ICRC is wrong, and that has been counted. Whatever
 * is made of it begins here.
 */
bool crc_end(struct subnet_port *in, struct packet *p);

/* ---- fault.c ---- */
enum fate { FATE_PASSES, FATE_LOST, FATE_DAMAGED, FATE_HELD };
enum fate fault_fate(struct subnet *s, struct subnet_port *out, const struct packet *p);
void fault_expire(struct subnet *s);
void fault_close(struct subnet *s);

/* ---- link.c ---- */
void link_init(struct subnet_port *p); /* as it comes out of the factory, with the cable that is there */
/* What SubnSet(PortInfo) asks for: whether it may, and doing it. Zero: no change. */
bool link_may_set(const struct subnet_port *p, unsigned state, unsigned phys);
void link_set(struct subnet_port *p, unsigned state, unsigned phys);
/* The cable at this port trains, if both its ends can. */
void link_train(struct subnet_port *p);

/* ---- sma.c, sma_port.c, mkey.c ---- */
enum sma_verdict { SMA_NOT_OURS, SMA_ANSWERED, SMA_SILENT };
/* A packet of subnet management that came in by this port. Answered: it has become the answer. */
enum sma_verdict sma_handle(struct subnet *s, struct subnet_port *in, const struct packet *p, uint8_t *smp);
/*
 * What a request of this method would do and find at an end port, without one and without an M_Key: for who
 * manages from inside. data: the attribute of a Set; what there is then. A MAD's status.
 */
uint16_t sma_do(
	struct subnet_port *end, uint8_t method, uint16_t attr, uint32_t mod, uint8_t data[SMP_DATA_LEN]);
void sma_get_port_info(struct subnet_port *at, uint64_t mkey_given, uint8_t *data);
uint16_t sma_set_port_info(struct subnet_port *at, uint32_t mod, const uint8_t *data);
/* Whether the SMA may act on it. False: it says nothing, and the violation has been counted and told. */
bool mkey_allows(struct subnet *s, struct port_agent *a, const struct packet *p, const uint8_t *smp);
void mkey_expire(struct subnet *s, struct port_agent *a);

/* ---- trap.c ---- */
void trap_link_state(struct subnet_port *sw0);
void trap_link_integrity(struct subnet_port *p);
void trap_local_changes(struct subnet_port *end, uint16_t flags);
void trap_bad_mkey(struct port_agent *a, const struct packet *p, const uint8_t *smp);
void trap_bad_key(struct subnet_port *end, enum trap_number which, const struct packet *p); /* 257, 258 */
void trap_switch_bad_pkey(struct subnet_port *p, const struct packet *packet);
void trap_repress(struct port_agent *a, const uint8_t *smp);
/* The oldest one that has not been heard; false: none. */
bool trap_first(const struct port_agent *a, uint8_t notice[NOTICE_LEN]);
void trap_expire(struct subnet *s, struct port_agent *a);
/* Sees that subnet_expire() looks at an agent by then. */
void agent_arm(struct subnet *s, struct port_agent *a, uint64_t due);

#endif
