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
	SMI_QPN = 0, /* subnet management */
	GSI_QPN = 1, /* all other management */
};

enum { /* management classes */
	MAD_CLASS_SUBN = 0x01,
	MAD_CLASS_SA = 0x03,
	MAD_CLASS_PERF = 0x04,
	MAD_CLASS_CM = 0x07,
	MAD_CLASS_SUBN_DIRECTED = 0x81,
};

enum { /* methods */
	MAD_METHOD_GET = 0x01,
	MAD_METHOD_SET = 0x02,
	MAD_METHOD_SEND = 0x03,
	MAD_METHOD_TRAP = 0x05,
	MAD_METHOD_TRAP_REPRESS = 0x07,
	MAD_METHOD_RESPONSE = 0x80, /* this bit makes one of a request */
	MAD_METHOD_GET_RESP = 0x81,
};

/* Bits 4 to 2 of the status say what was wrong with a request (IBA 13.4.7). */
enum {
	MAD_STATUS_OK = 0x0000,
	MAD_STATUS_BAD_VERSION = 0x0004,
	MAD_STATUS_NO_METHOD = 0x0008,
	MAD_STATUS_NO_ATTRIBUTE = 0x000c, /* or not with this method */
	MAD_STATUS_BAD_FIELD = 0x001c,
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
