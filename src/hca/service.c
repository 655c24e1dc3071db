/* SPDX-License-Identifier: MIT */
#include "hca/service.h"

#include "wire/ibt.h"

static const struct hca_service services[] = {
	/* bit, column, opcodes, reliable, connected */
	[IBV_QPT_RC] = {SERVICE_RC, 0, IBT_RC, true, true},
	[IBV_QPT_UC] = {SERVICE_UC, 1, IBT_UC, false, true},
	[IBV_QPT_UD] = {SERVICE_UD, 2, IBT_UD, false, false},
};

const struct hca_service *hca_service_of(enum ibv_qp_type type)
{
	bool known = (unsigned)type < sizeof(services) / sizeof(services[0]) && services[type].bit;

	return known ? &services[type] : NULL;
}
