/* SPDX-License-Identifier: MIT */
/*
 * Which process a MAD on QP1 concerns. Answers of the connection manager carry the id that the process they
 * are for drew itself, with its slot in it (wire/qpn.h); requests carry a service id, which is a port space
 * and a port, whose listener is in the port file. A MAD may claim anything: the worst it gets is to another
 * of our own processes, which looks at it as it would at any.
 */
#include "hca/adapter.h"
#include "hca/ports.h"
#include "wire/qpn.h"

#include "base/bytes.h"

#include <string.h>

/* MAD header (IBA 13.4.3): base version, class, class version, method, status, TID at 8, attribute id at 16.
 */
enum { MAD_ATTRIBUTE = 16, MAD_BODY = 24, CM_CLASS = 0x07, CM_VERSION = 2 };

/* Messages of the CM (IBA 12.6): which field says whom one is for, and where it lies in the body. */
enum field { NONE, SERVICE_ID, COMM_ID };
enum { REQ = 0x10, MRA, REJ, REP, RTU, DREQ, DREP, SIDR_REQ, SIDR_REP, LAP, APR, CM_END };

static const struct {
	enum field field;
	uint8_t at;
} messages[CM_END - REQ] = {
	[REQ - REQ] = {SERVICE_ID, 8},
	[MRA - REQ] = {COMM_ID, 4},
	[REJ - REQ] = {COMM_ID, 4},
	[REP - REQ] = {COMM_ID, 4},
	[RTU - REQ] = {COMM_ID, 4},
	[DREQ - REQ] = {COMM_ID, 4},
	[DREP - REQ] = {COMM_ID, 4},
	[SIDR_REQ - REQ] = {SERVICE_ID, 8},
	[SIDR_REP - REQ] = {COMM_ID, 0},
	[LAP - REQ] = {COMM_ID, 4},
	[APR - REQ] = {COMM_ID, 4},
};

/* The attribute of a CM message; 0: it is none. */
static unsigned cm_message(const uint8_t *mad)
{
	unsigned attribute = get_be16(mad + MAD_ATTRIBUTE);

	if (mad[0] != 1 || mad[1] != CM_CLASS || mad[2] != CM_VERSION)
		return 0;
	return attribute >= REQ && attribute < CM_END ? attribute : 0;
}

enum hca_gsi_whom hca_gsi_route(
	struct hca_adapter *a, const uint8_t mad[HCA_MAD_LEN], const uint8_t dgid[16], uint32_t *slot)
{
	unsigned message = cm_message(mad);
	const uint8_t *field;
	uint64_t service;

	if (!message)
		return GSI_NOBODY;
	field = mad + MAD_BODY + messages[message - REQ].at;
	if (messages[message - REQ].field == COMM_ID) {
		/* Who gives up before an answer came does not know our id (IBA 12.6.7.2: reason Timeout). */
		if (message == REJ && !get_be32(field))
			return GSI_LISTENERS;
		*slot = comm_id_slot(get_be32(field));
	} else {
		service = get_be64(field);
		*slot = service >> 32 ? 0
				      : hca_ports_owner(
						a->ports, (uint16_t)(service >> 16), dgid, (uint16_t)service);
	}
	return *slot ? GSI_SLOT : GSI_NOBODY;
}

bool hca_gsi_refuse(const uint8_t mad[HCA_MAD_LEN], uint8_t answer[HCA_MAD_LEN])
{
	enum { REASON_SERVICE_ID = 8, SIDR_UNSUPPORTED = 1 };
	const uint8_t *request = mad + MAD_BODY;
	uint8_t *body = answer + MAD_BODY;
	unsigned message = cm_message(mad);

	memset(answer, 0, HCA_MAD_LEN);
	memcpy(answer, mad, MAD_BODY);
	if (message == REQ) {
		put_be16(answer + MAD_ATTRIBUTE, REJ);
		memcpy(body + 4, request, 4);
		put_be16(body + 10, REASON_SERVICE_ID);
		return true;
	}
	if (message == SIDR_REQ) {
		put_be16(answer + MAD_ATTRIBUTE, SIDR_REP);
		memcpy(body, request, 4);
		body[4] = SIDR_UNSUPPORTED;
		memcpy(body + 12, request + 8, 8);
		return true;
	}
	return false;
}
