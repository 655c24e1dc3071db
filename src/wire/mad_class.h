/* SPDX-License-Identifier: MIT */
/* Which MADs somebody takes: those of one class and version, by method (IBA volume 1, 13.4.4). */
#ifndef WIRE_MAD_CLASS_H
#define WIRE_MAD_CLASS_H

#include "wire/mad.h"

#include <stdbool.h>
#include <stdint.h>

struct mad_class {
	uint8_t mgmt_class, class_version;
	uint64_t methods[2]; /* bit m of the 128: method m. A response (bit 7 of its method) is in no mask. */
};

static inline bool mad_class_has(const struct mad_class *c, const struct mad_hdr *h)
{
	return h->base_version == MAD_BASE_VERSION && c->mgmt_class == h->mgmt_class &&
	       c->class_version == h->class_version && h->method < 128 &&
	       c->methods[h->method / 64] >> h->method % 64 & 1;
}

/* Whether some MAD would be for both. */
static inline bool mad_class_overlaps(const struct mad_class *a, const struct mad_class *b)
{
	return a->mgmt_class == b->mgmt_class && a->class_version == b->class_version &&
	       ((a->methods[0] & b->methods[0]) || (a->methods[1] & b->methods[1]));
}

#endif
