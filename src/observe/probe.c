/* SPDX-License-Identifier: MIT */
#include "observe/probe.h"

#include <errno.h>
#include <stddef.h>

/* Who is told. A new subscriber is a file of its own, and a line here. */
static const struct probe_subscriber *const table[] = {
	&probe_to_log,
	&probe_to_trace,
};

enum { SUBSCRIBERS = 8 }; /* bits in probe_subscribed[] */

static const struct probe_subscriber *subscribers[SUBSCRIBERS];
uint8_t probe_subscribed[PROBE_COUNT];

static int place_of(const struct probe_subscriber *s)
{
	for (int i = 0; i < SUBSCRIBERS; i++) {
		if (subscribers[i] == s)
			return i;
	}
	return -1;
}

void probe_unsubscribe(const struct probe_subscriber *s)
{
	int place = place_of(s);

	if (place < 0)
		return;
	for (unsigned p = 0; p < PROBE_COUNT; p++)
		probe_subscribed[p] &= (uint8_t) ~(1u << place);
	subscribers[place] = NULL;
}

void probe_subscribe(const struct probe_subscriber *s)
{
	int place;

	probe_unsubscribe(s);
	place = place_of(NULL);
	if (place < 0 || (s->start && !s->start()))
		return;
	subscribers[place] = s;
	for (unsigned p = 0; p < PROBE_COUNT; p++)
		probe_subscribed[p] |= (uint8_t)(s->wants((enum probe)p) << place);
}

void probe_init(void)
{
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		probe_subscribe(table[i]);
}

void probe_tell(enum probe p, const void *values)
{
	int saved = errno;

	for (unsigned i = 0; i < SUBSCRIBERS; i++) {
		if (probe_subscribed[p] >> i & 1)
			subscribers[i]->tell(p, values);
	}
	errno = saved;
}
