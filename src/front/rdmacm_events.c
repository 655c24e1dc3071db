/* SPDX-License-Identifier: MIT */
/* The calls about event channels and events. */
#include "front/rdmacm_front.h"

#include "base/cancel.h"
#include "cm/event.h"
#include "cm/service.h"

struct rdma_event_channel *rdma_create_event_channel(void)
{
	CANCEL_SAFE;
	struct rcm_channel *ch;
	struct rcm *cm;
	int err = rcm_get(&cm);

	if (!err)
		err = rcm_channel_new(&ch);
	return rdmacm_result(err) ? NULL : &ch->pub;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	CANCEL_SAFE;

	rcm_channel_free(rcm_channel(channel));
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	return rdmacm_result(channel && event ? rcm_event_take(rcm_channel(channel), event) : -EINVAL);
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	CANCEL_SAFE;

	if (!event)
		return rdmacm_result(-EINVAL);
	rcm_event_ack(rcm_event(event));
	return 0;
}
