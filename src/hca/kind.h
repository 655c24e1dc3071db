/* SPDX-License-Identifier: MIT */
/*
 * The kinds of device, a row each: what programs are told of them, and what their queue pairs can do. A kind
 * has a provider (hca/provider.h), which moves its bytes. RoCE and InfiniBand have the same, over other
 * links: a process is on a network or on a fabric, never on both.
 */
#ifndef HCA_KIND_H
#define HCA_KIND_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

enum hca_kind { HCA_ROCE, HCA_IWARP, HCA_INFINIBAND, HCA_KINDS };
enum hca_carrier { HCA_FRAMES, HCA_STREAMS, HCA_CARRIERS };

struct hca_kind_info {
	const char *name;      /* what device names begin with, and ANYRDMA_DEVICES may say */
	const char *node_desc; /* as sysfs has it */
	enum hca_carrier carrier;
	enum ibv_node_type node_type;
	enum ibv_transport_type transport_type;
	enum ibv_gid_type gid_type;
	uint8_t services; /* SERVICE_* */
	/*
	 * Queue pairs are connected by modify, along a path with attributes of its own. Else a connection
	 * manager of the provider does that, and they begin in INIT: an RNIC has no state before it.
	 */
	bool by_modify;
};

extern const struct hca_kind_info hca_kinds[HCA_KINDS];

#endif
