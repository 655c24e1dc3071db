/* SPDX-License-Identifier: MIT */
#include "subnet/counters.h"
#include "subnet/parts.h"

uint64_t subnet_counted(const struct subnet_port *p, enum port_counter which)
{
	return p->regs && which < CNT_COUNT ? p->regs->count.total[which] : 0;
}
