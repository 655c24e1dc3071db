/* SPDX-License-Identifier: MIT */
/* The counters of a port for those who look from outside the subnet, not by its performance manager. */
#ifndef SUBNET_COUNTERS_H
#define SUBNET_COUNTERS_H

#include "subnet/model.h"
#include "subnet/pma.h"

/* What was counted since subnet_start(), never reset; data in words of four bytes. */
uint64_t subnet_counted(const struct subnet_port *p, enum port_counter which);

#endif
