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
/* clang-format on */

CM_NAMES(ALIAS)
