/* SPDX-License-Identifier: MIT */
/* Management datagrams: the common header (IBA volume 1, 13.4.2). Always 256 bytes, header included. */
#ifndef WIRE_MAD_H
#define WIRE_MAD_H

#include "base/bytes.h"

#include <stdint.h>

enum {
	MAD_LEN = 256,
	MAD_HDR_LEN = 24,
	MAD_BASE_VERSION = 1,
	MAD_CLASS_CM = 7,
	MAD_METHOD_SEND = 3,
	GSI_QPN = 1,
};
#define GSI_QKEY 0x80010000u

struct mad_hdr {
	uint8_t base_version, mgmt_class, class_version, method;
	uint16_t status, class_specific;
	uint64_t tid;
	uint16_t attr;
	uint32_t attr_mod;
};

static inline struct mad_hdr mad_hdr_get(const uint8_t *p)
{
	return (struct mad_hdr){p[0], p[1], p[2], p[3], get_be16(p + 4), get_be16(p + 6), get_be64(p + 8),
		get_be16(p + 16), get_be32(p + 20)};
}

static inline void mad_hdr_put(uint8_t *p, const struct mad_hdr *h)
{
	p[0] = h->base_version;
	p[1] = h->mgmt_class;
	p[2] = h->class_version;
	p[3] = h->method;
	put_be16(p + 4, h->status);
	put_be16(p + 6, h->class_specific);
	put_be64(p + 8, h->tid);
	put_be16(p + 16, h->attr);
	put_be16(p + 18, 0);
	put_be32(p + 20, h->attr_mod);
}

#endif
