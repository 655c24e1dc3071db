/* SPDX-License-Identifier: MIT */
/* What the files of the built-in subnet manager and its SA know of each other: sm*.c, sa*.c. */
#ifndef SUBNET_SM_PARTS_H
#define SUBNET_SM_PARTS_H

#include "subnet/parts.h"
#include "subnet/sm.h"
#include "subnet/sa.h"
#include "subnet/sm_route.h"

enum {
	SA_ANSWER_MAX = 32 << 20, /* bytes */
	SA_GROUPS = SUBNET_MLIDS,
	SA_MEMBERS = 1 << 16, /* of all groups */
	SA_SERVICES = 4096,
	SA_INFORMS = 4096,
	SA_REPORTS = 4096, /* that wait to be fetched */
};

struct sa_group {
	struct list node;
	struct sa_member what; /* no port, no JoinState */
	struct list members;
	bool well_known; /* there without members, too */
};

struct sa_group_member {
	struct list node;
	struct subnet_port *end;
	uint8_t gid[16], join; /* enum sa_join, any of them */
};

struct sa_state {
	struct list groups, services, informs, reports;
	unsigned ngroups, nmembers, nservices, ninforms, nreports;
	uint64_t mgids, tid; /* made up so far */
	uint8_t *answer;
	size_t room, len; /* of it */
};

struct subnet_sm {
	struct subnet *s;
	struct subnet_port *home;
	bool master, fresh; /* fresh: it has become the master, and has not set everything up yet */
	uint64_t seen;      /* of subnet.moved */
	uint32_t sweeps;
	struct sm_routes *routes;
	struct subnet_port *
		*end; /* all end ports, adapters' first; the index of one is what routes spread by */
	unsigned nends;
	uint16_t top;        /* the highest LID */
	uint32_t *lid_owner; /* by LID: index in end[] + 1, 0: nobody's */
	bool *kept;          /* by the same index: of sm_lids.c */
	uint8_t *columns;    /* [switches][64]: a block of their forwarding tables */
	uint8_t *parent;     /* [switches]: of sm_mft.c, as the next two: the port to the root of a tree */
	bool *in_tree;
	uint16_t (*ports)[16]; /* of a group, 16 to a word */
	bool *there;           /* by the index in end[]: subscribers know that it is */
	struct sa_state sa;
};

/* A link that is up, to a port that can hear us. */
static inline bool sm_link_up(const struct subnet_port *p)
{
	return p->num && p->peer && p->shared->phys == PHYS_LINK_UP && p->peer->shared->phys == PHYS_LINK_UP;
}

/* The switch that an end port is behind, or is; NULL: none. */
static inline struct subnet_node *sm_switch_of(const struct subnet_port *end)
{
	if (is_switch(end->node))
		return end->node;
	return sm_link_up(end) && is_switch(end->peer->node) ? end->peer->node : NULL;
}

/* ---- sm.c ---- */
/* The attribute SMInfo: 24 bytes. */
void sm_info_put(const struct subnet_sm *m, uint8_t *data);

/* ---- sm_lids.c ---- */
/* Gives LIDs to all end ports that work: lid_owner and top are right afterwards. */
void sm_assign_lids(struct subnet_sm *m);

/* ---- sm_tables.c ---- */
/* Forwarding tables of all switches. */
void sm_write_routes(struct subnet_sm *m);

/* ---- sm_mft.c ---- */
/* Multicast forwarding tables of a group: all that is in them of its MLID is replaced. */
void sm_write_group(struct subnet_sm *m, const struct sa_group *g);
void sm_clear_group(struct subnet_sm *m, uint16_t mlid);

/* ---- sa.c ---- */
struct sa_request {
	struct subnet_sm *m;
	struct mad_hdr h;
	uint64_t mask, now;
	const uint8_t *data;            /* SA_RECORD_MAX bytes */
	bool trusted;                   /* it has the SM_Key: it is told who is in which group */
	struct subnet_port *asker;      /* NULL: nobody we know */
	const struct sa_record *record; /* of the attribute */
	unsigned found;
};

/* A record for the answer: all of them, or those that match. False: no more fits. */
bool sa_add(struct sa_request *r, const uint8_t *record);
bool sa_add_match(struct sa_request *r, const uint8_t *record);

/* All records of all end ports that are there; `one` has those of one, and says whether they fit. */
uint16_t sa_of_all(struct sa_request *r, bool (*one)(struct sa_request *, struct subnet_port *));

/* The end port that a GID or a LID is of; NULL: nobody's. */
struct subnet_port *sm_port_of_gid(const struct subnet_sm *m, const uint8_t gid[16]);
struct subnet_port *sm_port_of_lid(const struct subnet_sm *m, uint16_t lid);
void sm_gid(const struct subnet_port *end, uint8_t gid[16]);

/* A switch, or a port whose cable works; and has a LID. */
static inline bool sm_is_there(const struct subnet_port *end)
{
	return end->shared->lid && (is_switch(end->node) || sm_link_up(end));
}

/* ---- what each attribute does: a status ---- */
uint16_t sa_get_paths(struct sa_request *r);  /* sa_path.c */
uint16_t sa_get_sl2vls(struct sa_request *r); /* sa_tables.c */
uint16_t sa_get_lfts(struct sa_request *r);
uint16_t sa_get_mfts(struct sa_request *r);
uint16_t sa_get_guids(struct sa_request *r);
uint16_t sa_get_pkeys(struct sa_request *r);
uint16_t sa_get_vl_arbs(struct sa_request *r);
uint16_t sa_get_members(struct sa_request *r); /* sa_group.c */
uint16_t sa_set_member(struct sa_request *r);
uint16_t sa_delete_member(struct sa_request *r);
uint16_t sa_get_services(struct sa_request *r); /* sa_service.c */
uint16_t sa_set_service(struct sa_request *r);
uint16_t sa_delete_service(struct sa_request *r);
uint16_t sa_set_inform(struct sa_request *r); /* sa_report.c */

/* ---- sa_path.c ---- */
/* Whether a value is as a selector wants it; what is greater than asked for is made smaller. */
bool sa_select(
	uint64_t mask, unsigned selector_bit, uint8_t asked, uint8_t *value, unsigned (*order)(uint8_t));
bool sa_select_rate(uint64_t mask, unsigned selector_bit, uint8_t asked, uint8_t *rate);
unsigned sa_order_plain(uint8_t code);
/* What a port's link carries, in tenths of a Gb/s. */
unsigned sm_port_rate(const struct subnet_port *p);

/* ---- sa_group.c ---- */
bool sa_groups_init(struct subnet_sm *m); /* with the broadcast group; false: no memory */
void sa_groups_forget(struct subnet_sm *m);
/* After a sweep: who is not there any more is no member, and the tables are written anew. */
void sa_groups_sweep(struct subnet_sm *m);

/* ---- sa_service.c ---- */
void sa_services_forget(struct subnet_sm *m);

/* ---- sa_report.c ---- */
void sa_reports_forget(struct subnet_sm *m);
/* Something that subscribers are told of: a notice as a trap has it. */
void sa_report(struct subnet_sm *m, const uint8_t notice[NOTICE_LEN]);
/* Traps 64 to 67, which the manager raises itself: a GID, or a group's, has come or gone. */
void sa_report_gid(struct subnet_sm *m, enum trap_number which, const uint8_t gid[16]);
/* Who has come and gone since the last sweep. */
void sa_report_ports(struct subnet_sm *m);

#endif
