/* SPDX-License-Identifier: MIT */
/*
 * Which process a MAD on QP1 concerns. Answers of the connection manager carry the id that the process they
 * are for drew itself, with its slot in it (wire/qpn.h); requests carry a service id, which is a port space
 * and a port, whose listener is in the port file. A MAD may claim anything: the worst it gets is to another
 * of our own processes, which looks at it as it would at any.
 */
#include "hca/adapter.h"
#include "hca/ports.h"
#include "wire/cm_msg.h"

enum hca_gsi_whom hca_gsi_route(
	struct hca_adapter *a, const uint8_t mad[MAD_LEN], const uint8_t dgid[16], uint32_t *slot)
{
	uint64_t service;
	int owner = cm_owner(mad, MAD_LEN, &service);

	if (owner == CM_OWNER_NONE)
		return GSI_NOBODY;
	if (owner == CM_OWNER_ANY)
		return GSI_LISTENERS;
	*slot = (uint32_t)owner;
	if (owner == CM_OWNER_SERVICE)
		*slot = service >> 32 ? 0
				      : hca_ports_owner(a->ports, (uint16_t)cm_service_space(service), dgid,
						cm_service_port(service));
	return *slot ? GSI_SLOT : GSI_NOBODY;
}

bool hca_gsi_refuse(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN])
{
	struct cm_msg m, no;

	if (!cm_msg_parse(mad, MAD_LEN, &m))
		return false;
	no = (struct cm_msg){.tid = m.tid};
	if (m.attr == CM_REQ) {
		no.attr = CM_REJ;
		no.remote_id = m.local_id;
		no.rej.about = CM_ABOUT_REQ;
		no.rej.reason = CM_REJ_INVALID_SERVICE_ID;
	} else if (m.attr == CM_SIDR_REQ) {
		no.attr = CM_SIDR_REP;
		no.local_id = m.local_id;
		no.sidr_rep.status = CM_SIDR_UNSUPPORTED;
		no.sidr_rep.service_id = m.sidr_req.service_id;
	} else {
		return false;
	}
	cm_msg_pack(&no, answer);
	return true;
}
