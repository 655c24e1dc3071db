/* SPDX-License-Identifier: MIT */
/*
 * Topologies that a word describes:
 *
 *   pair                      two hosts, back to back
 *   star:N                    N hosts at one switch
 *   ring:N                    N switches in a ring, a host at each
 *   fat-tree:K                k-ary, three levels: K pods, 5K²/4 switches, K³/4 hosts
 *   tree:LEAVES,SPINES,HOSTS  two levels: HOSTS at each leaf, a cable from each leaf to each spine
 *   torus:XxY[xZ]             a switch at each point, a host at each
 *   dragonfly:A,H,P           groups of A switches, each with H cables to other groups and P hosts; A·H+1
 * groups
 *
 * Hosts are called node1, node2, …; switches S1, … or by their level: leaf, spine, edge, agg, core.
 */
#ifndef SUBNET_TOPO_MAKE_H
#define SUBNET_TOPO_MAKE_H

#include "subnet/topo.h"

/* Whether this is such a word rather than the name of a file. */
bool topo_is_spec(const char *spec);

/*
 * Adds the nodes and cables of a topology to an empty subnet. hca_ports: ports of each adapter, all of them
 * cabled. 0; -EINVAL with a sentence in err; -ENOMEM.
 */
int topo_make(struct subnet *s, const char *spec, unsigned hca_ports, char err[TOPO_ERROR]);

#endif
