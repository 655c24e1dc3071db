/* SPDX-License-Identifier: MIT */
/*
 * Draws a subnet, for people: as lines of text and as an SVG picture. Pure functions of the subnet. Nodes lie
 * in rows, hosts at the bottom, each switch in the row that is as far up as it is from the nearest host.
 * Small subnets are shown cable by cable, large ones by their rows.
 */
#ifndef SUBNET_MAP_H
#define SUBNET_MAP_H

#include "subnet/model.h"

struct map_style {
	bool utf8;
	unsigned columns; /* of the terminal */
};

enum { MAP_LEVELS = 16, MAP_SMALL = 40 /* nodes whose cables are all shown */ };

/* Which row each node is in, by its index: hosts 0, switches 1 and up. */
struct map_levels {
	uint8_t *of;
	unsigned rows; /* at most MAP_LEVELS */
	unsigned count[MAP_LEVELS];
};

/* The text, for the caller to free; NULL: no memory. */
char *map_text(const struct subnet *s, const struct map_style *style, size_t *len);
char *map_svg(const struct subnet *s, const char *title, size_t *len);

/* false: no memory. free(l->of) afterwards. */
bool map_levels(const struct subnet *s, struct map_levels *l);

#endif
