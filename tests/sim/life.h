/* SPDX-License-Identifier: MIT */
/* Births and deaths: of worlds, adapters, and the queue pairs of a connection. */
#ifndef TESTS_SIM_LIFE_H
#define TESTS_SIM_LIFE_H

#include "model.h"

/* What the network of a seed does, and what the test itself does in it. */
struct weather {
	struct sim_rules rules;
	bool calm;        /* does nothing, and must cost no retransmission */
	bool naughty;     /* some requests are wrong */
	unsigned timeout; /* an exponent that suits the delays */
	uint64_t pause_max;
	uint64_t cut_at;   /* when a node is cut off for good; 0: never */
	unsigned troubles; /* see trouble.c */
};

void life_world_init(struct model *m, uint64_t seed, const struct weather *w);
void life_world_fini(struct model *m);

/* The steps of which these consist: drawing what a node and a connection shall have; making it. */
void life_site_init(struct model *m, unsigned node);
void life_conn_init(struct model *m, struct conn *c, const struct weather *w);
void life_site_open(struct model *m, unsigned node);
void life_site_close(struct model *m, unsigned node);
void life_side_birth(struct model *m, struct side *s);

/* Destroys the queue pair, whatever it is doing; its memory windows and regions go too. */
void life_bury(struct model *m, struct side *s);
/* Both ends anew; what is left of them is buried and looked at. */
void life_rebirth(struct model *m, struct conn *c);
/* A node goes down with all it has, or comes back with nothing. */
void life_node_dies(struct model *m, unsigned node);
void life_node_returns(struct model *m, unsigned node);

/* Counted over all queue pairs. */
struct life_total {
	unsigned long long requests, packets, retransmits, direct, rebirths, deaths;
};
extern struct life_total life_total;
/* There is no UD, of which nobody knows the order where a path changes. */
extern bool life_connected;

#endif
