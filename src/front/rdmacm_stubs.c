/* SPDX-License-Identifier: MIT */
/*
 * librdmacm's calls that are not there: each fails as the library fails, so that a program that can do
 * without runs.
 */
#include "front/stubs.h"

/* clang-format off */
#define CM_NAMES(X)					\
	X(stub_minus_one, rdma_query_addrinfo)		\
	X(stub_minus_one, rdma_resolve_addrinfo)	\
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
