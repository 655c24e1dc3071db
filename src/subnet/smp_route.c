/* SPDX-License-Identifier: MIT */
/*
 * One step of a directed route. The hop pointer says where in the route a packet is:
 *
 *   out (D = 0)                                            back (D = 1)
 *   0          at its beginning: by InitialPath[1]         0          behind the directed part: here
 *   1 … n-1    at a switch on the way                      1          at the beginning: here, or on by LID
 *   n          at the end: here, or on by LID              2 … n      at a switch on the way
 *   n + 1      behind the directed part: here              n + 1      at the end: by ReturnPath[n]
 *
 * n is the hop count; 0 is a route that never leaves the node. DrSLID and DrDLID other than permissive stand
 * for a part by LID in front of the directed one, and behind it.
 */
#include "subnet/smp_route.h"

#include "wire/lrh.h"
#include "wire/smp.h"

static enum smp_step leave_by(unsigned port, const struct smp_at *at, struct smp_next *next)
{
	if (!port || port > at->nports || (!at->is_switch && port != at->in))
		return SMP_DROP;
	next->out = (uint8_t)port;
	return SMP_LEAVES;
}

static enum smp_step end_of_directed_part(uint16_t lid, const struct smp_at *at, struct smp_next *next)
{
	if (lid == LID_PERMISSIVE)
		return SMP_HERE;
	next->lid = lid;
	return at->is_switch || at->may_begin ? SMP_BY_LID : SMP_DROP;
}

/* C14-9 */
static enum smp_step step_out(uint8_t *smp, const struct smp_at *at, struct smp_next *next)
{
	unsigned ptr = smp[SMP_HOP_PTR], count = smp[SMP_HOP_COUNT];
	bool on_the_way = ptr && ptr < count;

	if (ptr == count + 1)
		return SMP_HERE;
	if (ptr > count || (!ptr && count && !at->may_begin) || (on_the_way && !at->is_switch))
		return SMP_DROP;
	if (ptr)
		smp[SMP_RETURN_PATH + ptr] = at->in;
	smp[SMP_HOP_PTR]++;
	if (ptr == count)
		return end_of_directed_part(get_be16(smp + SMP_DR_DLID), at, next);
	return leave_by(smp[SMP_INITIAL_PATH + ptr + 1], at, next);
}

/* C14-13 */
static enum smp_step step_back(uint8_t *smp, const struct smp_at *at, struct smp_next *next)
{
	unsigned ptr = smp[SMP_HOP_PTR], count = smp[SMP_HOP_COUNT];

	if (!ptr)
		return SMP_HERE;
	if (ptr > count + 1 || (ptr == count + 1 && count && !at->may_begin) ||
		(ptr > 1 && ptr <= count && !at->is_switch))
		return SMP_DROP;
	smp[SMP_HOP_PTR]--;
	if (ptr == 1)
		return end_of_directed_part(get_be16(smp + SMP_DR_SLID), at, next);
	return leave_by(smp[SMP_RETURN_PATH + ptr - 1], at, next);
}

enum smp_step smp_route(uint8_t *smp, const struct smp_at *at, struct smp_next *next)
{
	if (smp[SMP_HOP_COUNT] >= SMP_PATH_LEN || smp[SMP_HOP_PTR] > SMP_PATH_LEN)
		return SMP_DROP;
	return smp_is_returning(smp) ? step_back(smp, at, next) : step_out(smp, at, next);
}
