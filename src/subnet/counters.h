/* SPDX-License-Identifier: MIT */
/* The counters of a port for those who look from outside the subnet, not by its performance manager. */
#ifndef SUBNET_COUNTERS_H
#define SUBNET_COUNTERS_H

#include "subnet/model.h"
#include "subnet/pma.h"

/* What was counted since subnet_start(), never reset; data in words of four bytes. */
uint64_t subnet_counted(const struct subnet_port *p, enum port_counter which);
/* Before one looks: what programs sent past the switches is counted, too. */
void subnet_take_tallies(struct subnet *s);

/* So much went past the switches, from this port to that LID by the tables as they are: as if it had not. */
struct subnet_traffic {
	uint64_t packets, words;
	uint8_t sl;
};
void subnet_count(struct subnet_port *from, uint16_t dlid, const struct subnet_traffic *t);

#endif
