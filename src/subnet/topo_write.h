/* SPDX-License-Identifier: MIT */
/* Writes a subnet as ibnetdiscover would; topo_parse() makes the same subnet of it, GUIDs and names included.
 */
#ifndef SUBNET_TOPO_WRITE_H
#define SUBNET_TOPO_WRITE_H

#include "subnet/topo.h"

/* The text, for the caller to free, with its length; NULL: no memory. */
char *topo_write(const struct subnet *s, const struct topo *t, size_t *len);

/* "4xHDR": what a link can do at best. */
const char *topo_link_name(const struct subnet_link_caps *caps, char buf[16]);

#endif
