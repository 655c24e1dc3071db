/* SPDX-License-Identifier: MIT */
/*
 * Reads a description of a subnet in the format that ibnetdiscover writes and ibsim reads:
 *
 *   vendid=0x2c9                             vendid devid sysimgguid switchguid caguid rtguid: of the next
 * node switchguid=0x0002c90000000010 Switch  8 "S-0002c90000000010"           # "leaf1" enhanced port 0 lid 3
 * lmc 0 [1]     "H-0002c90000000020"[1](2c90000000021)    # "node1" lid 4 4xHDR [2] "S-0002c90000000030"[5]
 * w=2 s=4 e=1       (ibsim: as PortInfo encodes them)
 *
 *   Ca      2 "H-0002c90000000020"           # "node1"     (also Hca, and Rt for a router)
 *   [1](2c90000000021)  "S-0002c90000000010"[1]       # lid 4 lmc 0 "leaf1" lid 3 4xHDR
 *
 * An empty line ends a node; what follows a # is a comment, but for the description of a node and the width
 * and speed of a link. A cable may be named at one end or at both. A node is called by its description where
 * its name is nothing but its GUID and no other node is described so. Lines of our own, which ibsim skips:
 *
 *   @host node1 "Hca1" "Hca2"                adapters of one host; others are hosts by themselves
 *   @ip "Hca1"[1] 10.0.0.1/24
 *   @fault "Switch1"[3] loss=1% delay=50us   as `anyrdma fabric inject` takes it
 *   @site "Switch2" WHERE
 *
 * `width=`, `speed=` and `extspeed=` are ibsim's, of all nodes that follow. Its `include`, `do` and `module`
 * are refused: nothing is opened or executed on behalf of a description.
 */
#ifndef SUBNET_TOPO_PARSE_H
#define SUBNET_TOPO_PARSE_H

#include "subnet/topo.h"

/*
 * Adds what the text describes to an empty subnet. 0; -EINVAL with a sentence in err that begins with the
 * line; -ENOMEM. After a failure the subnet is of no use.
 */
int topo_parse(struct subnet *s, struct topo *t, const char *text, size_t len, char err[TOPO_ERROR]);

#endif
