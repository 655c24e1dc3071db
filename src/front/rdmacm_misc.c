/* SPDX-License-Identifier: MIT */
/*
 * librdmacm calls that need no connection manager.
 */
#include <errno.h>
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

/* Callers loop over the number before they look at the list. */
struct ibv_context **rdma_get_devices(int *num_devices)
{
	if (num_devices)
		*num_devices = 0;
	errno = EOPNOTSUPP;
	return NULL;
}

/* What the stock library says where the kernel has no rdma_cm: programs that can do without it stay quiet. */
struct rdma_event_channel *rdma_create_event_channel(void)
{
	errno = ENODEV;
	return NULL;
}
