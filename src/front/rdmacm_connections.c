/* SPDX-License-Identifier: MIT */
/* The calls about connections and multicast groups. */
#include "front/rdmacm_front.h"

#include "base/cancel.h"
#include "cm/connect.h"
#include "cm/event.h"
#include "cm/listen.h"
#include "cm/mcast.h"
#include "wire/cm_msg.h"

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_listen(rcm_id(id), backlog));
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	CANCEL_SAFE;
	int err = rcm_connect(rcm_id(id), p);

	CANCEL_WAITS;
	return rdmacm_result(err ? err : rcm_complete(rcm_id(id)));
}

int rdma_establish(struct rdma_cm_id *id)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_establish(rcm_id(id)));
}

/* Datagrams have nothing to wait for. */
int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *p)
{
	CANCEL_SAFE;
	int err = rcm_accept(rcm_id(id), p);

	CANCEL_WAITS;
	return rdmacm_result(err || rcm_is_ud(rcm_id(id)) ? err : rcm_complete(rcm_id(id)));
}

int rdma_reject(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_reject(rcm_id(id), CM_REJ_CONSUMER, private_data, private_data_len));
}

int rdma_reject_ece(struct rdma_cm_id *id, const void *private_data, uint8_t private_data_len)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_reject(rcm_id(id), CM_REJ_VENDOR_OPTION, private_data, private_data_len));
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	CANCEL_SAFE;
	int err = rcm_disconnect(rcm_id(id));

	CANCEL_WAITS;
	return rdmacm_result(err ? err : rcm_complete(rcm_id(id)));
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	CANCEL_SAFE;

	return rdmacm_result(rcm_notify(rcm_id(id), event));
}

/* ---- groups ---- */
int rdma_join_multicast(struct rdma_cm_id *id, struct sockaddr *addr, void *context)
{
	CANCEL_SAFE;
	int err = rcm_group_join(rcm_id(id), addr, false, context);

	CANCEL_WAITS;
	return rdmacm_result(err ? err : rcm_complete(rcm_id(id)));
}

int rdma_join_multicast_ex(struct rdma_cm_id *id, struct rdma_cm_join_mc_attr_ex *attr, void *context)
{
	CANCEL_SAFE;
	int err;

	if (attr->comp_mask >= RDMA_CM_JOIN_MC_ATTR_RESERVED ||
		!(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_ADDRESS) ||
		!(attr->comp_mask & RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS) ||
		attr->join_flags >= RDMA_MC_JOIN_FLAG_RESERVED)
		return rdmacm_result(-ENOTSUP);
	err = rcm_group_join(
		rcm_id(id), attr->addr, attr->join_flags == RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER, context);
	CANCEL_WAITS;
	return rdmacm_result(err ? err : rcm_complete(rcm_id(id)));
}

int rdma_leave_multicast(struct rdma_cm_id *id, struct sockaddr *addr)
{
	CANCEL_SAFE;

	return rdmacm_result(addr ? rcm_group_leave(rcm_id(id), addr) : -EINVAL);
}
