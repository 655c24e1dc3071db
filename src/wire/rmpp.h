/* SPDX-License-Identifier: MIT */
/*
 * RMPP: messages longer than a MAD, in segments (IBA volume 1, 13.6). Its header lies behind the common one:
 *
 *	24 version, type, response time (5 bits) and flags (3), status
 *	28 segment number
 *	32 payload length (DATA: of the message in the first segment, of the segment in the last), or the last
 *	   segment that the receiver has room for (ACK)
 *
 * The payload length counts 220 bytes for a segment: the class's own header, which each segment repeats, too.
 */
#ifndef WIRE_RMPP_H
#define WIRE_RMPP_H

#include "wire/mad.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	RMPP_HDR_END = 36,
	RMPP_PAYLOAD = MAD_LEN - RMPP_HDR_END, /* of a segment: 220 */
	RMPP_VERSION = 1,
};

enum rmpp_type { RMPP_DATA = 1, RMPP_ACK, RMPP_STOP, RMPP_ABORT };
enum rmpp_flag { RMPP_ACTIVE = 1, RMPP_FIRST = 2, RMPP_LAST = 4 };

enum rmpp_status { /* of STOP: the first; of ABORT: the others (IBA table 190) */
	RMPP_NO_RESOURCES = 1,
	RMPP_TOO_LONG = 118, /* it took too long */
	RMPP_BAD_LENGTH = 119,
	RMPP_BAD_SEGMENT = 120,
	RMPP_BAD_TYPE = 121,
	RMPP_WINDOW_TOO_SMALL = 122,
	RMPP_SEGMENT_TOO_BIG = 123,
	RMPP_BAD_STATUS = 124,
	RMPP_BAD_VERSION = 125,
};

struct rmpp_hdr {
	uint8_t version, type, flags, status;
	uint32_t segment, length; /* length: NewWindowLast in an ACK */
};

static inline struct rmpp_hdr rmpp_hdr_get(const uint8_t *mad)
{
	return (struct rmpp_hdr){
		mad[24], mad[25], mad[26] & 7, mad[27], get_be32(mad + 28), get_be32(mad + 32)};
}

/* The response time, in the same byte as the flags, stays. */
static inline void rmpp_hdr_put(uint8_t *mad, const struct rmpp_hdr *h)
{
	mad[24] = h->version;
	mad[25] = h->type;
	mad[26] = (uint8_t)((mad[26] & ~7) | h->flags);
	mad[27] = h->status;
	put_be32(mad + 28, h->segment);
	put_be32(mad + 32, h->length);
}

static inline bool mad_is_vendor2(uint8_t mgmt_class)
{
	return mgmt_class >= 0x30 && mgmt_class <= 0x4f;
}

/* Classes whose MADs have an RMPP header: SubnAdm, DevMgt, DevAdm, BIS, and vendors' with an OUI. */
static inline bool rmpp_class(uint8_t mgmt_class)
{
	return mgmt_class == 0x03 || mgmt_class == 0x06 || mgmt_class == 0x10 || mgmt_class == 0x12 ||
	       mad_is_vendor2(mgmt_class);
}

/* Where the data of a MAD of this class begins; what is before is repeated in each segment. */
static inline size_t rmpp_data_offset(uint8_t mgmt_class)
{
	if (mgmt_class == 0x03)
		return 56;
	if (mad_is_vendor2(mgmt_class))
		return 40;
	return rmpp_class(mgmt_class) ? 64 : MAD_HDR_LEN;
}

static inline bool rmpp_is_active(const uint8_t *mad)
{
	return rmpp_class(mad[1]) && mad[26] & RMPP_ACTIVE;
}

#endif
