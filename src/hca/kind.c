/* SPDX-License-Identifier: MIT */
#include "hca/kind.h"

#include "hca/service.h"

const struct hca_kind_info hca_kinds[HCA_KINDS] = {
	[HCA_ROCE] = {"roce", "1: CA", HCA_FRAMES, IBV_NODE_CA, IBV_TRANSPORT_IB, IBV_GID_TYPE_ROCE_V2,
		SERVICE_RC | SERVICE_UC | SERVICE_UD, true},
	[HCA_IWARP] = {"iwarp", "4: RNIC", HCA_STREAMS, IBV_NODE_RNIC, IBV_TRANSPORT_IWARP, IBV_GID_TYPE_IB,
		SERVICE_RC, false},
	[HCA_INFINIBAND] = {"ib", "1: CA", HCA_FRAMES, IBV_NODE_CA, IBV_TRANSPORT_IB, IBV_GID_TYPE_IB,
		SERVICE_RC | SERVICE_UC | SERVICE_UD, true},
};
