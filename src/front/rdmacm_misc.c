/* SPDX-License-Identifier: MIT */
/*
 * librdmacm calls that need no connection manager.
 */
#include <rdma/rdma_cma.h>

/* clang-format off */
#define CM_EVENTS(X) \
	X(ADDR_RESOLVED) X(ADDR_ERROR) X(ROUTE_RESOLVED) X(ROUTE_ERROR) X(CONNECT_REQUEST) \
	X(CONNECT_RESPONSE) X(CONNECT_ERROR) X(UNREACHABLE) X(REJECTED) X(ESTABLISHED) X(DISCONNECTED) \
	X(DEVICE_REMOVAL) X(MULTICAST_JOIN) X(MULTICAST_ERROR) X(ADDR_CHANGE) X(TIMEWAIT_EXIT)
/* clang-format on */

const char *rdma_event_str(enum rdma_cm_event_type event)
{
#define NAME(event) [RDMA_CM_EVENT_##event] = "RDMA_CM_EVENT_" #event,
	static const char *const names[] = {CM_EVENTS(NAME)};
#undef NAME

	if ((size_t)event >= sizeof(names) / sizeof(*names))
		return "UNKNOWN EVENT";
	return names[event];
}
