/* SPDX-License-Identifier: MIT */
/*
 * librdmacm's calls before there is a connection manager: each fails as the library fails, so that a
 * program that can do without (or was told not to use it) runs.
 */
#include "front/stubs.h"

/* clang-format off */
#define CM_NAMES(X)					\
	X(stub_minus_one, rdma_accept)			\
	X(stub_minus_one, rdma_ack_cm_event)		\
	X(stub_minus_one, rdma_bind_addr)		\
	X(stub_minus_one, rdma_connect)			\
	X(stub_minus_one, rdma_create_ep)		\
	X(stub_minus_one, rdma_create_id)		\
	X(stub_minus_one, rdma_create_qp)		\
	X(stub_minus_one, rdma_create_qp_ex)		\
	X(stub_minus_one, rdma_create_srq)		\
	X(stub_minus_one, rdma_create_srq_ex)		\
	X(stub_nothing,	  rdma_destroy_ep)		\
	X(stub_nothing,	  rdma_destroy_event_channel)	\
	X(stub_minus_one, rdma_destroy_id)		\
	X(stub_nothing,	  rdma_destroy_qp)		\
	X(stub_nothing,	  rdma_destroy_srq)		\
	X(stub_minus_one, rdma_disconnect)		\
	X(stub_minus_one, rdma_establish)		\
	X(stub_nothing,	  rdma_free_devices)		\
	X(stub_nothing,	  rdma_freeaddrinfo)		\
	X(stub_minus_one, rdma_get_cm_event)		\
	X(stub_zero,	  rdma_get_dst_port)		\
	X(stub_minus_one, rdma_get_remote_ece)		\
	X(stub_minus_one, rdma_get_request)		\
	X(stub_zero,	  rdma_get_src_port)		\
	X(stub_minus_one, rdma_getaddrinfo)		\
	X(stub_minus_one, rdma_init_qp_attr)		\
	X(stub_minus_one, rdma_join_multicast)		\
	X(stub_minus_one, rdma_join_multicast_ex)	\
	X(stub_minus_one, rdma_leave_multicast)		\
	X(stub_minus_one, rdma_listen)			\
	X(stub_minus_one, rdma_migrate_id)		\
	X(stub_minus_one, rdma_notify)			\
	X(stub_minus_one, rdma_query_addrinfo)		\
	X(stub_minus_one, rdma_reject)			\
	X(stub_minus_one, rdma_reject_ece)		\
	X(stub_minus_one, rdma_resolve_addr)		\
	X(stub_minus_one, rdma_resolve_addrinfo)	\
	X(stub_minus_one, rdma_resolve_route)		\
	X(stub_minus_one, rdma_set_local_ece)		\
	X(stub_minus_one, rdma_set_option)		\
	X(stub_minus_one, rdma_write_cm_event)

#define RSOCKET_NAMES(X)				\
	X(stub_minus_one, raccept)			\
	X(stub_minus_one, rbind)			\
	X(stub_minus_one, rclose)			\
	X(stub_minus_one, rconnect)			\
	X(stub_minus_one, rfcntl)			\
	X(stub_minus_one, rgetpeername)			\
	X(stub_minus_one, rgetsockname)			\
	X(stub_minus_one, rgetsockopt)			\
	X(stub_minus_one, riomap)			\
	X(stub_minus_one, riounmap)			\
	X(stub_minus_one, riowrite)			\
	X(stub_minus_one, rlisten)			\
	X(stub_minus_one, rpoll)			\
	X(stub_minus_one, rread)			\
	X(stub_minus_one, rreadv)			\
	X(stub_minus_one, rrecv)			\
	X(stub_minus_one, rrecvfrom)			\
	X(stub_minus_one, rrecvmsg)			\
	X(stub_minus_one, rselect)			\
	X(stub_minus_one, rsend)			\
	X(stub_minus_one, rsendmsg)			\
	X(stub_minus_one, rsendto)			\
	X(stub_minus_one, rsetsockopt)			\
	X(stub_minus_one, rshutdown)			\
	X(stub_minus_one, rsocket)			\
	X(stub_minus_one, rwrite)			\
	X(stub_minus_one, rwritev)
/* clang-format on */

CM_NAMES(ALIAS)
RSOCKET_NAMES(ALIAS)
