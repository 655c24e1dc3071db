/* SPDX-License-Identifier: MIT */
/*
 * Subnet administration: what clients ask the subnet manager for (IBA volume 1, 15.2). Records of one kind,
 * as many as match the components that a question names by a bit each.
 *
 *    0  MAD header (24)
 *   24  RMPP header (12)            wire/rmpp.h
 *   36  SM_Key(64)
 *   44  AttributeOffset(16)         from one record to the next, in units of eight bytes
 *   48  ComponentMask(64)
 *   56  data                        of a table: records one after the other
 */
#ifndef WIRE_SA_H
#define WIRE_SA_H

#include "wire/mad.h"

#include <stdbool.h>
#include <stddef.h>

enum {
	SA_CLASS_VERSION = 2,
	SA_SM_KEY = 36,
	SA_ATTR_OFFSET = 44,
	SA_MASK = 48,
	SA_DATA = 56,
	SA_RECORD_MAX = MAD_LEN - SA_DATA,
};

enum sa_method { /* besides Get, Set and their answers */
	SA_REPORT = 0x06,
	SA_GET_TABLE = 0x12,
	SA_GET_TABLE_RESP = 0x92,
	SA_GET_TRACE_TABLE = 0x13,
	SA_GET_MULTI = 0x14,
	SA_DELETE = 0x15,
	SA_DELETE_RESP = 0x95,
};

enum sa_attr {
	SA_CLASS_PORT_INFO = 0x0001,
	SA_NOTICE = 0x0002,
	SA_INFORM_INFO = 0x0003,
	SA_NODE = 0x0011,
	SA_PORT_INFO = 0x0012,
	SA_SL2VL = 0x0013,
	SA_SWITCH_INFO = 0x0014,
	SA_LFT = 0x0015,
	SA_MFT = 0x0017,
	SA_SM_INFO = 0x0018,
	SA_LINK = 0x0020,
	SA_GUID_INFO = 0x0030,
	SA_SERVICE = 0x0031,
	SA_PKEY_TABLE = 0x0033,
	SA_PATH = 0x0035,
	SA_VL_ARB = 0x0036,
	SA_MC_MEMBER = 0x0038,
};

enum sa_status { /* of this class: the upper byte of the status */
	SA_NO_RESOURCES = 0x0100,
	SA_INVALID = 0x0200,
	SA_NO_RECORDS = 0x0300,
	SA_TOO_MANY = 0x0400,
	SA_INVALID_GID = 0x0500,
	SA_FEW_COMPONENTS = 0x0600,
	SA_DENIED = 0x0700,
};

/* ---- records and their components ---- */
struct sa_field { /* bits of a record, the first being the highest of byte 0; none: reserved, and not compared
		   */
	uint16_t at, bits;
};

struct sa_record {
	uint16_t attr, len; /* bytes */
	uint8_t nfields;
	const struct sa_field *field; /* by the bit of the component mask */
};

/* What there is of an attribute; NULL: it is none of ours. */
const struct sa_record *sa_record(uint16_t attr);

/* Whether a record is as a question wants it, in all components that the mask names. */
bool sa_matches(const struct sa_record *r, uint64_t mask, const uint8_t *question, const uint8_t *record);

/* Records of a table begin at multiples of eight bytes. */
static inline size_t sa_stride(const struct sa_record *r)
{
	return (r->len + 7u) & ~7u;
}

/* ---- PathRecord ---- */
enum sa_path_bit {
	PATH_DGID = 1 << 2,
	PATH_SGID = 1 << 3,
	PATH_DLID = 1 << 4,
	PATH_SLID = 1 << 5,
	PATH_RAW = 1 << 6,
	PATH_REVERSIBLE = 1 << 11,
	PATH_NUMB = 1 << 12,
	PATH_PKEY = 1 << 13,
	PATH_SL = 1 << 15,
	PATH_MTU_SELECTOR = 1 << 16,
	PATH_MTU = 1 << 17,
	PATH_RATE_SELECTOR = 1 << 18,
	PATH_RATE = 1 << 19,
	PATH_LIFE_SELECTOR = 1 << 20,
	PATH_LIFE = 1 << 21,
};

enum sa_selector {
	SA_GREATER,
	SA_LESS,
	SA_EXACTLY,
	SA_LARGEST
}; /* of MTU, rate and lifetime: two bits before them */

struct sa_path {
	uint8_t dgid[16], sgid[16];
	uint16_t dlid, slid;
	uint32_t flow_label;
	uint8_t hop_limit, tclass, numb;
	bool raw, reversible;
	uint16_t pkey, qos_class;
	uint8_t sl, mtu, rate, life; /* these three with their selectors, in the upper two bits */
	uint8_t preference;
};

struct sa_path sa_path_get(const uint8_t *p);
void sa_path_put(uint8_t *p, const struct sa_path *r);

/* ---- MCMemberRecord ---- */
enum sa_member_bit {
	MEMBER_MGID = 1 << 0,
	MEMBER_PORT_GID = 1 << 1,
	MEMBER_QKEY = 1 << 2,
	MEMBER_MLID = 1 << 3,
	MEMBER_MTU_SELECTOR = 1 << 4,
	MEMBER_MTU = 1 << 5,
	MEMBER_TCLASS = 1 << 6,
	MEMBER_PKEY = 1 << 7,
	MEMBER_RATE_SELECTOR = 1 << 8,
	MEMBER_RATE = 1 << 9,
	MEMBER_LIFE_SELECTOR = 1 << 10,
	MEMBER_LIFE = 1 << 11,
	MEMBER_SL = 1 << 12,
	MEMBER_FLOW_LABEL = 1 << 13,
	MEMBER_HOP_LIMIT = 1 << 14,
	MEMBER_SCOPE = 1 << 15,
	MEMBER_JOIN_STATE = 1 << 16,
	MEMBER_PROXY = 1 << 17,
};

enum sa_join { JOIN_FULL = 1, JOIN_NON = 2, JOIN_SEND_ONLY = 4 };

struct sa_member {
	uint8_t mgid[16], port_gid[16];
	uint32_t qkey;
	uint16_t mlid, pkey;
	uint8_t mtu, rate, life; /* with their selectors, in the upper two bits */
	uint8_t tclass, sl, hop_limit, scope, join;
	uint32_t flow_label;
	bool proxy;
};

struct sa_member sa_member_get(const uint8_t *p);
void sa_member_put(uint8_t *p, const struct sa_member *m);

/* ---- InformInfo ---- */
struct sa_inform {
	uint8_t gid[16];
	uint16_t lid_begin, lid_end;
	bool generic, subscribe;
	uint16_t type, trap;
	uint32_t qpn;
	uint8_t resp_time;
	uint32_t producer;
};

struct sa_inform sa_inform_get(const uint8_t *p);

/* ---- ServiceRecord ---- */
enum { SERVICE_ID = 0, SERVICE_GID = 8, SERVICE_PKEY = 24, SERVICE_LEASE = 28, SERVICE_KEY = 32 };
enum sa_service_bit { SERVICE_HAS_ID = 1 << 0, SERVICE_HAS_GID = 1 << 1 };

/* ---- rates ---- */
/* The code of a rate in tenths of a Gb/s: the greatest that is not above it. 0: below them all. */
uint8_t sa_rate_of(unsigned tenths);
/* Tenths of a Gb/s; 0: no such code. */
unsigned sa_rate_tenths(uint8_t code);

#endif
