/* SPDX-License-Identifier: MIT */
/*
 * What many queue pairs cost, which perftest does not tell: time to create and connect one, memory of one,
 * and whether a message gets dearer with the number of idle ones.
 *
 *      qps DEVICE GID_INDEX N
 *
 * Makes N RC queue pairs of depth 128, each connected to a partner of the same process (a lone one to
 * itself), then writes 8 bytes over the first again and again. One thread drives both ends, so the time of a
 * message is all the work that it makes and nobody's sleep. Prints one line of JSON.
 */
#include "common.h"

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { DEPTH = 128, MESSAGES = 20000, WARM = 2000, SIZE = 8 };

struct bench {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	union ibv_gid gid;
	struct ibv_port_attr port;
	uint8_t gid_index;
	unsigned n;
	struct ibv_qp **qp;
	char memory[64];
};

/* Bytes of memory that this process holds and nobody else does. */
static double private_bytes(void)
{
	FILE *f = fopen("/proc/self/smaps_rollup", "r");
	char line[128];
	double sum = 0, kib;

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Private_Clean: %lf", &kib) == 1 ||
			sscanf(line, "Private_Dirty: %lf", &kib) == 1)
			sum += kib * 1024;
	if (f)
		fclose(f);
	return sum;
}

static void open_device(struct bench *b, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (struct ibv_device **d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			b->ctx = ibv_open_device(*d);
	must(b->ctx != NULL, name);
	ibv_free_device_list(list);
	must(!ibv_query_gid(b->ctx, 1, b->gid_index, &b->gid), "ibv_query_gid");
	must(!ibv_query_port(b->ctx, 1, &b->port), "ibv_query_port");
	must((b->pd = ibv_alloc_pd(b->ctx)) != NULL, "ibv_alloc_pd");
	must((b->cq = ibv_create_cq(b->ctx, DEPTH, NULL, NULL, 0)) != NULL, "ibv_create_cq");
	b->mr = ibv_reg_mr(
		b->pd, b->memory, sizeof(b->memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	must(b->mr != NULL, "ibv_reg_mr");
}

static struct ibv_qp *create(struct bench *b)
{
	struct ibv_qp_init_attr a = {.send_cq = b->cq,
		.recv_cq = b->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(b->pd, &a);

	must(qp != NULL, "ibv_create_qp");
	return qp;
}

static void connect_to(struct bench *b, struct ibv_qp *qp, uint32_t partner)
{
	struct ibv_qp_attr init = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = b->port.active_mtu,
		.dest_qp_num = partner,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = b->gid, .sgid_index = b->gid_index, .hop_limit = 64}}};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};

	must(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"INIT");
	must(!ibv_modify_qp(qp, &rtr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		"RTR");
	must(!ibv_modify_qp(qp, &rts,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC),
		"RTS");
}

/* 0 and 1 are partners, 2 and 3, and so on; an odd one out has itself. */
static void connect_all(struct bench *b)
{
	for (unsigned i = 0; i < b->n; i++)
		b->qp[i] = create(b);
	for (unsigned i = 0; i < b->n; i++)
		connect_to(b, b->qp[i], b->qp[(i ^ 1) < b->n ? i ^ 1 : i]->qp_num);
}

static void write_once(struct bench *b)
{
	struct ibv_sge sge = {.addr = (uintptr_t)b->memory, .length = SIZE, .lkey = b->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.opcode = IBV_WR_RDMA_WRITE,
			.send_flags = IBV_SEND_SIGNALED,
			.sg_list = &sge,
			.num_sge = 1,
			.wr.rdma = {.remote_addr = (uintptr_t)b->memory + SIZE, .rkey = b->mr->rkey}};
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};

	must(!ibv_post_send(b->qp[0], &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(b->cq, 1, &wc))
		;
	must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* The median: what disturbs now and then is not the cost. */
static double message_us(struct bench *b)
{
	static double took[MESSAGES];

	for (unsigned i = 0; i < WARM; i++)
		write_once(b);
	for (unsigned i = 0; i < MESSAGES; i++) {
		double start = now_us();

		write_once(b);
		took[i] = now_us() - start;
	}
	qsort(took, MESSAGES, sizeof(took[0]), by_value);
	return took[MESSAGES / 2];
}

int main(int argc, char **argv)
{
	struct bench b = {.n = argc == 4 ? (unsigned)atoi(argv[3]) : 0};
	double start, connected, before, after;

	if (!b.n) {
		fprintf(stderr, "usage: qps DEVICE GID_INDEX N\n");
		return 2;
	}
	b.gid_index = (uint8_t)atoi(argv[2]);
	b.qp = calloc(b.n, sizeof(*b.qp));
	must(b.qp != NULL, "calloc");
	open_device(&b, argv[1]);
	connect_to(&b, create(&b), 0); /* the first one starts the adapter */
	before = private_bytes();
	start = now_us();
	connect_all(&b);
	connected = now_us();
	after = private_bytes();
	printf("{\"message_us\": %.3f, \"qp_kib\": %.2f, \"connect_us\": %.2f}\n", message_us(&b),
		(after - before) / 1024 / b.n, (connected - start) / b.n);
	return 0;
}
