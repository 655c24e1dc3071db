/* SPDX-License-Identifier: MIT */
#include "rsocket/device_test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct device device;

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- queues ---- */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	for (; wr; wr = wr->next) {
		must(device.sends < DEVICE_QUEUE); /* nobody posts more than it asked room for */
		device.posted(wr);
		device.send[device.sends++] = wr->wr_id;
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	for (; wr; wr = wr->next) {
		struct device_receive r = {.wr_id = wr->wr_id};

		must(device.receives < DEVICE_QUEUE && wr->num_sge <= 1);
		if (wr->num_sge)
			r.sge = wr->sg_list[0];
		device.receive[device.receives++] = r;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int most, struct ibv_wc *wc)
{
	unsigned n = (unsigned)most < device.completions ? (unsigned)most : device.completions;

	memcpy(wc, device.completion, n * sizeof(*wc));
	device.completions -= n;
	memmove(device.completion, device.completion + n, device.completions * sizeof(*wc));
	return (int)n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	return 0;
}

void device_reset(enum ibv_transport_type transport, void (*posted)(const struct ibv_send_wr *wr))
{
	memset(&device, 0, sizeof(device));
	device.posted = posted;
	device.device.transport_type = transport;
	device.verbs.device = &device.device;
	device.verbs.ops.post_send = post_send;
	device.verbs.ops.post_recv = post_recv;
	device.verbs.ops.poll_cq = poll_cq;
	device.verbs.ops.req_notify_cq = req_notify_cq;
	device.qp.context = device.cq.context = &device.verbs;
	device.id.verbs = &device.verbs;
	device.id.pd = device.qp.pd = &device.pd;
	device.channel.fd = -1;
}

static bool complete(const struct ibv_wc *wc)
{
	if (device.completions == DEVICE_QUEUE)
		return false;
	device.completion[device.completions++] = *wc;
	return true;
}

bool device_complete_send(enum ibv_wc_status status)
{
	struct ibv_wc wc = {.wr_id = device.send[0], .status = status};

	if (!device.sends || !complete(&wc))
		return false;
	device.sends--;
	memmove(device.send, device.send + 1, device.sends * sizeof(device.send[0]));
	return true;
}

bool device_complete_receive(const struct ibv_wc *wc, const void *bytes)
{
	struct device_receive r = device.receive[0];
	struct ibv_wc done = *wc;

	done.wr_id = r.wr_id;
	if (!device.receives || !complete(&done))
		return false;
	device.receives--;
	memmove(device.receive, device.receive + 1, device.receives * sizeof(r));
	if (r.sge.length)
		memcpy((void *)(uintptr_t)r.sge.addr, bytes,
			wc->byte_len < r.sge.length ? wc->byte_len : r.sge.length);
	return true;
}

/* ---- what rsockets call of libibverbs and librdmacm ---- */
int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = (struct ibv_device_attr){.max_qp_wr = DEVICE_QUEUE};
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	return &device.channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	return 0;
}

struct ibv_cq *ibv_create_cq(
	struct ibv_context *context, int n, void *cq_context, struct ibv_comp_channel *channel, int vector)
{
	return &device.cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	*mr = (struct ibv_mr){.pd = pd, .addr = addr, .length = length, .lkey = 1, .rkey = 2};
	return mr;
}

struct ibv_mr *ibv_reg_mr_iova2(
	struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return ibv_reg_mr(pd, addr, length, (int)access);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	must(attr->cap.max_send_wr <= DEVICE_QUEUE && attr->cap.max_recv_wr <= DEVICE_QUEUE);
	id->qp = &device.qp;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	id->qp = NULL;
}

/* No other one: where a datagram rsocket wants the way to a peer, there is none. */
int rdma_create_id(
	struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, enum rdma_port_space ps)
{
	errno = ENOMEM;
	return -1;
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id)
{
	return 0;
}

/* What no test comes to. */
__attribute__((used)) static void never(void)
{
	abort();
}

#define NEVER(name) __asm__(".globl " #name "\n.set " #name ", never\n");
NEVER(ibv_create_ah)
NEVER(ibv_destroy_ah)
NEVER(ibv_get_cq_event)
NEVER(ibv_query_gid)
NEVER(ibv_query_port)
NEVER(rdma_accept)
NEVER(rdma_ack_cm_event)
NEVER(rdma_bind_addr)
NEVER(rdma_connect)
NEVER(rdma_create_event_channel)
NEVER(rdma_destroy_event_channel)
NEVER(rdma_get_cm_event)
NEVER(rdma_listen)
NEVER(rdma_migrate_id)
NEVER(rdma_reject)
NEVER(rdma_resolve_addr)
NEVER(rdma_resolve_route)
NEVER(rdma_set_option)
NEVER(rsock_sleep)
