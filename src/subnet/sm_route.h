/* SPDX-License-Identifier: MIT */
/*
 * Which way packets go: from every switch towards one, by up/down routing (Autonet's up* / down*). All cables
 * between switches get a direction, and no path goes up once it has gone down: so packets that wait for each
 * other cannot do so in a circle. Where several ports are equally good, those who are behind the far switch
 * share them.
 *
 * Directions are those of a tree when the description is one (hosts below, and every two of their switches
 * meet above), and otherwise by distance from one switch of the most cables, which always leaves a path. In a
 * tree with cables cut two switches may be left without one; they take the shortest that there is. Switches
 * that never meet above, such as the spines, reach each other in this way, too: management only.
 *
 * A function of the description and of the cables that work, without history: the same ones give the same
 * tables.
 */
#ifndef SUBNET_SM_ROUTE_H
#define SUBNET_SM_ROUTE_H

#include "subnet/model.h"

struct sm_routes;

/* Of a subnet that has been started. NULL: no memory. */
struct sm_routes *sm_routes_open(struct subnet *s);
void sm_routes_close(struct sm_routes *r);

/* Looks which cables work. */
void sm_routes_read(struct sm_routes *r);

/* From here on sm_routes_port() is about packets to this switch, by its index among them. */
void sm_routes_to(struct sm_routes *r, uint32_t dest);
/*
 * The port by which switch `at` sends to what is behind dest, or dest itself: FABRIC_NO_PORT when there is no
 * path, and at dest. `spread` is a number of the one who is behind it: it chooses among equal ports.
 */
uint8_t sm_routes_port(const struct sm_routes *r, uint32_t at, uint32_t spread);

/*
 * A spanning tree of the switches around one, for groups. parent_port: for each switch of it the port towards
 * the root. That of the root itself, and those that are not connected with it, are left as they are.
 */
void sm_routes_tree(struct sm_routes *r, uint32_t root, uint8_t *parent_port);

struct subnet_node *sm_routes_switch(const struct sm_routes *r, uint32_t index);

#endif
