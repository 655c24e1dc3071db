/* SPDX-License-Identifier: MIT */
/*
 * A device without a network, in the place of libibverbs and librdmacm: what an rsocket posts is queued here,
 * and the test decides what completes, how, and with which bytes.
 */
#ifndef RSOCKET_DEVICE_TEST_H
#define RSOCKET_DEVICE_TEST_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>

enum { DEVICE_QUEUE = 64 };

/* A posted receive, with the only scatter element that rsockets give one; length 0: none. */
struct device_receive {
	uint64_t wr_id;
	struct ibv_sge sge;
};

struct device {
	struct rdma_cm_id id; /* with a queue pair when there is one */
	struct ibv_context verbs;
	struct ibv_device device;
	struct ibv_pd pd;
	struct ibv_qp qp;
	struct ibv_cq cq;
	struct ibv_comp_channel channel;
	void (*posted)(const struct ibv_send_wr *wr); /* sees every send request before it is queued */
	uint64_t send[DEVICE_QUEUE];                  /* wr_ids, the oldest first */
	struct device_receive receive[DEVICE_QUEUE];  /* likewise */
	struct ibv_wc completion[DEVICE_QUEUE];       /* for ibv_poll_cq() */
	unsigned sends, receives, completions;
};

extern struct device device;

/* A new one, with nothing in its queues. */
void device_reset(enum ibv_transport_type transport, void (*posted)(const struct ibv_send_wr *wr));
/* The oldest send completes. false: there is none, or the completion queue is full. */
bool device_complete_send(enum ibv_wc_status status);
/*
 * The oldest receive completes as `wc` says, but for its wr_id. bytes: what the peer sent with it, of
 * wc->byte_len, as far as there is room. false: the peer has to wait.
 */
bool device_complete_receive(const struct ibv_wc *wc, const void *bytes);

#endif
