/* SPDX-License-Identifier: MIT */
/*
 * What libibverbs.so.1 must export and no program here needs an answer from:
 * - verbs that a software adapter does not offer, in the nodes a program may ask for;
 * - the IBVERBS_1.0 names, whose structures differ from today's (nothing in Debian 12 asks for them);
 * - the private interface between rdma-core's libibverbs and its vendor drivers. perftest, libfabric and
 *   UCX are linked to libmlx5 and libefa, which refuse to load without it. They register as drivers in
 *   their constructors, are ignored, and then find that our devices are not theirs.
 *   The node's number follows rdma-core's releases (34: 34 to 56, 57, 59, 64); each node gets every name.
 */
#include <stdbool.h>
#include "front/stubs.h"

/* clang-format off */
#define PUBLIC_NAMES(X)								\
	X(stub_nothing,	ibv_register_driver,		"@IBVERBS_1.1")		\
	X(stub_zero,	ibv_dontfork_range,		"@@IBVERBS_1.1")	\
	X(stub_zero,	ibv_dofork_range,		"@@IBVERBS_1.1")	\
	X(stub_errno,	ibv_resolve_eth_l2_from_gid,	"@@IBVERBS_1.1")	\
	X(stub_null,	ibv_import_device,		"@@IBVERBS_1.10")	\
	X(stub_null,	ibv_import_mr,			"@@IBVERBS_1.10")	\
	X(stub_null,	ibv_import_pd,			"@@IBVERBS_1.10")	\
	X(stub_errno,	ibv_query_ece,			"@@IBVERBS_1.10")	\
	X(stub_errno,	ibv_set_ece,			"@@IBVERBS_1.10")	\
	X(stub_nothing,	ibv_unimport_mr,		"@@IBVERBS_1.10")	\
	X(stub_nothing,	ibv_unimport_pd,		"@@IBVERBS_1.10")	\
	X(stub_null,	ibv_import_dm,			"@@IBVERBS_1.13")	\
	X(stub_nothing,	ibv_unimport_dm,		"@@IBVERBS_1.13")	\
	X(stub_null,	ibv_alloc_dmah,			"@@IBVERBS_1.15")	\
	X(stub_errno,	ibv_dealloc_dmah,		"@@IBVERBS_1.15")	\
	X(stub_null,	ibv_reg_mr_ex,			"@@IBVERBS_1.15")	\
	X(stub_minus_one, ibv_dm_export_dmabuf_fd,	"@@IBVERBS_1.16")	\
	X(stub_errno,	ibv_query_port_speed,		"@@IBVERBS_1.16")	\
	X(stub_null,	ibv_alloc_buf,			"@@IBVERBS_1.17")	\
	X(stub_nothing,	ibv_free_buf,			"@@IBVERBS_1.17")	\
	X(stub_null,	ibv_reg_buf_mr,			"@@IBVERBS_1.17")

#define VERBS_1_0_NAMES(X, v)							\
	X(stub_nothing,	ibv_ack_async_event, v)					\
	X(stub_nothing,	ibv_ack_cq_events, v)					\
	X(stub_null,	ibv_alloc_pd, v)					\
	X(stub_errno,	ibv_attach_mcast, v)					\
	X(stub_errno,	ibv_close_device, v)					\
	X(stub_null,	ibv_create_ah, v)					\
	X(stub_null,	ibv_create_cq, v)					\
	X(stub_null,	ibv_create_qp, v)					\
	X(stub_null,	ibv_create_srq, v)					\
	X(stub_errno,	ibv_dealloc_pd, v)					\
	X(stub_errno,	ibv_dereg_mr, v)					\
	X(stub_errno,	ibv_destroy_ah, v)					\
	X(stub_errno,	ibv_destroy_cq, v)					\
	X(stub_errno,	ibv_destroy_qp, v)					\
	X(stub_errno,	ibv_destroy_srq, v)					\
	X(stub_errno,	ibv_detach_mcast, v)					\
	X(stub_nothing,	ibv_free_device_list, v)				\
	X(stub_minus_one, ibv_get_async_event, v)				\
	X(stub_minus_one, ibv_get_cq_event, v)					\
	X(stub_zero,	ibv_get_device_guid, v)					\
	X(stub_null,	ibv_get_device_list, v)					\
	X(stub_null,	ibv_get_device_name, v)					\
	X(stub_errno,	ibv_modify_qp, v)					\
	X(stub_errno,	ibv_modify_srq, v)					\
	X(stub_null,	ibv_open_device, v)					\
	X(stub_errno,	ibv_query_device, v)					\
	X(stub_minus_one, ibv_query_gid, v)					\
	X(stub_minus_one, ibv_query_pkey, v)					\
	X(stub_errno,	ibv_query_port, v)					\
	X(stub_errno,	ibv_query_qp, v)					\
	X(stub_errno,	ibv_query_srq, v)					\
	X(stub_null,	ibv_reg_mr, v)						\
	X(stub_errno,	ibv_resize_cq, v)

#define PRIVATE_NAMES(X, v)							\
	X(same_number,	__ioctl_final_num_attrs, v)				\
	X(stub_nothing,	__verbs_log, v)						\
	X(stub_null,	_verbs_init_and_alloc_context, v)			\
	X(stub_errno,	execute_ioctl, v)					\
	X(stub_errno,	ibv_cmd_advise_mr, v)					\
	X(stub_errno,	ibv_cmd_alloc_dm, v)					\
	X(stub_errno,	ibv_cmd_alloc_dmah, v)					\
	X(stub_errno,	ibv_cmd_alloc_mw, v)					\
	X(stub_errno,	ibv_cmd_alloc_pd, v)					\
	X(stub_errno,	ibv_cmd_attach_mcast, v)				\
	X(stub_errno,	ibv_cmd_close_xrcd, v)					\
	X(stub_errno,	ibv_cmd_create_ah, v)					\
	X(stub_errno,	ibv_cmd_create_counters, v)				\
	X(stub_errno,	ibv_cmd_create_cq, v)					\
	X(stub_errno,	ibv_cmd_create_cq_ex, v)				\
	X(stub_errno,	ibv_cmd_create_cq_ex2, v)				\
	X(stub_errno,	ibv_cmd_create_flow, v)					\
	X(stub_errno,	ibv_cmd_create_flow_action_esp, v)			\
	X(stub_errno,	ibv_cmd_create_qp, v)					\
	X(stub_errno,	ibv_cmd_create_qp_ex, v)				\
	X(stub_errno,	ibv_cmd_create_qp_ex2, v)				\
	X(stub_errno,	ibv_cmd_create_rwq_ind_table, v)			\
	X(stub_errno,	ibv_cmd_create_srq, v)					\
	X(stub_errno,	ibv_cmd_create_srq_ex, v)				\
	X(stub_errno,	ibv_cmd_create_wq, v)					\
	X(stub_errno,	ibv_cmd_dealloc_mw, v)					\
	X(stub_errno,	ibv_cmd_dealloc_pd, v)					\
	X(stub_errno,	ibv_cmd_dereg_mr, v)					\
	X(stub_errno,	ibv_cmd_destroy_ah, v)					\
	X(stub_errno,	ibv_cmd_destroy_counters, v)				\
	X(stub_errno,	ibv_cmd_destroy_cq, v)					\
	X(stub_errno,	ibv_cmd_destroy_flow, v)				\
	X(stub_errno,	ibv_cmd_destroy_flow_action, v)				\
	X(stub_errno,	ibv_cmd_destroy_qp, v)					\
	X(stub_errno,	ibv_cmd_destroy_rwq_ind_table, v)			\
	X(stub_errno,	ibv_cmd_destroy_srq, v)					\
	X(stub_errno,	ibv_cmd_destroy_wq, v)					\
	X(stub_errno,	ibv_cmd_detach_mcast, v)				\
	X(stub_minus_one, ibv_cmd_export_dmabuf_fd, v)				\
	X(stub_errno,	ibv_cmd_free_dm, v)					\
	X(stub_errno,	ibv_cmd_free_dmah, v)					\
	X(stub_errno,	ibv_cmd_get_context, v)					\
	X(stub_errno,	ibv_cmd_modify_cq, v)					\
	X(stub_errno,	ibv_cmd_modify_flow_action_esp, v)			\
	X(stub_errno,	ibv_cmd_modify_qp, v)					\
	X(stub_errno,	ibv_cmd_modify_qp_ex, v)				\
	X(stub_errno,	ibv_cmd_modify_srq, v)					\
	X(stub_errno,	ibv_cmd_modify_wq, v)					\
	X(stub_errno,	ibv_cmd_open_qp, v)					\
	X(stub_errno,	ibv_cmd_open_xrcd, v)					\
	X(stub_minus_one, ibv_cmd_poll_cq, v)					\
	X(stub_errno,	ibv_cmd_post_recv, v)					\
	X(stub_errno,	ibv_cmd_post_send, v)					\
	X(stub_errno,	ibv_cmd_post_srq_recv, v)				\
	X(stub_errno,	ibv_cmd_query_context, v)				\
	X(stub_errno,	ibv_cmd_query_device_any, v)				\
	X(stub_errno,	ibv_cmd_query_mr, v)					\
	X(stub_errno,	ibv_cmd_query_port, v)					\
	X(stub_errno,	ibv_cmd_query_port_speed, v)				\
	X(stub_errno,	ibv_cmd_query_qp, v)					\
	X(stub_errno,	ibv_cmd_query_srq, v)					\
	X(stub_errno,	ibv_cmd_read_counters, v)				\
	X(stub_errno,	ibv_cmd_reg_dm_mr, v)					\
	X(stub_errno,	ibv_cmd_reg_dmabuf_mr, v)				\
	X(stub_errno,	ibv_cmd_reg_mr, v)					\
	X(stub_errno,	ibv_cmd_reg_mr_ex, v)					\
	X(stub_errno,	ibv_cmd_req_notify_cq, v)				\
	X(stub_errno,	ibv_cmd_rereg_mr, v)					\
	X(stub_errno,	ibv_cmd_resize_cq, v)					\
	X(stub_null,	ibv_dmabuf_heap_alloc, v)				\
	X(stub_null,	ibv_dmabuf_heap_cc_shared_init, v)			\
	X(stub_nothing,	ibv_dmabuf_heap_destroy, v)				\
	X(stub_nothing,	ibv_dmabuf_heap_free, v)				\
	X(stub_minus_one, ibv_read_ibdev_sysfs_file, v)				\
	X(unknown_name,	ibv_wr_opcode_str, v)					\
	X(disassociate,	verbs_allow_disassociate_destroy, v)			\
	X(stub_nothing,	verbs_init_cq, v)					\
	X(stub_null,	verbs_open_device, v)					\
	X(stub_nothing,	verbs_set_ops, v)					\
	X(stub_nothing,	verbs_uninit_context, v)
/* clang-format on */

/* The number of attributes to make room for: none of ours are added to the caller's. */
unsigned int same_number(unsigned int num_attrs)
{
	return num_attrs;
}

const char *unknown_name(void)
{
	return "unknown";
}

bool disassociate;

/* The real function belongs to another file and has IBVERBS_PRIVATE_34; the newer nodes come through here. */
int ibv_query_gid_type(void *context, uint8_t port_num, unsigned int index, void *type);
int query_gid_type(void *context, uint8_t port_num, unsigned int index, void *type)
{
	return ibv_query_gid_type(context, port_num, index, type);
}

PUBLIC_NAMES(SYMVER)
VERBS_1_0_NAMES(SYMVER, "@IBVERBS_1.0")

PRIVATE_NAMES(SYMVER, "@@IBVERBS_PRIVATE_34")
SYMVER(stub_nothing, verbs_register_driver_34, "@@IBVERBS_PRIVATE_34")

#define NEWER_PRIVATE_NODE(number)                                                                           \
	PRIVATE_NAMES(SYMVER, "@IBVERBS_PRIVATE_" #number)                                                   \
	SYMVER(query_gid_type, ibv_query_gid_type, "@IBVERBS_PRIVATE_" #number)                              \
	SYMVER(stub_nothing, verbs_register_driver_##number, "@@IBVERBS_PRIVATE_" #number)

NEWER_PRIVATE_NODE(57)
NEWER_PRIVATE_NODE(59)
NEWER_PRIVATE_NODE(64)
