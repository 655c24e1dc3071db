/* SPDX-License-Identifier: MIT */
/*
 * How long a connection stands still when its path fails.
 *
 *      outage serve ADDRESS PORT
 *      outage ask ADDRESS PORT SECONDS
 *
 * Connects by rdma_cm and then writes nothing to the peer, again and again: each WRITE of no bytes is
 * complete when the peer's acknowledge is back, and needs no memory there. Prints one line of JSON: how many
 * there were, the median of their times, and the longest. A server holds the TCP port too, so that it can be
 * seen to be ready.
 */
#include "common.h"
#include "listen.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEPT = 1 << 22 }; /* times; what comes later still counts for the longest */

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};

	attr.send_cq = attr.recv_cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	must(attr.send_cq && !rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void serve(struct sockaddr_in *at)
{
	struct rdma_cm_id *listener, *id;

	must(!rdma_create_id(NULL, &listener, NULL, RDMA_PS_TCP) &&
			!rdma_bind_addr(listener, (struct sockaddr *)at) && !rdma_listen(listener, 1),
		"rdma_listen");
	tcp_listen_anywhere(at->sin_port);
	must(!rdma_get_request(listener, &id), "rdma_get_request");
	make_qp(id);
	must(!rdma_accept(id, NULL), "rdma_accept");
	for (;;)
		pause();
}

static struct rdma_cm_id *connect_to(struct sockaddr_in *to)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	struct rdma_cm_id *id;

	must(!rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) &&
			!rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 2000) &&
			!rdma_resolve_route(id, 2000),
		"rdma_resolve");
	make_qp(id);
	must(!rdma_connect(id, &param), "rdma_connect");
	return id;
}

/* Microseconds of one WRITE, from posting it to its completion. */
static double write_nothing(struct rdma_cm_id *id)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	double begin = now_us();
	struct ibv_wc wc;

	must(!ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
	while (!ibv_poll_cq(id->qp->send_cq, 1, &wc))
		;
	if (wc.status != IBV_WC_SUCCESS) {
		fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
		exit(1);
	}
	return now_us() - begin;
}

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

static void ask(struct sockaddr_in *to, double seconds)
{
	double *took = calloc(KEPT, sizeof(*took)), longest = 0, end;
	struct rdma_cm_id *id = connect_to(to);
	size_t n = 0;

	must(took != NULL, "calloc");
	write_nothing(id);
	for (end = now_us() + seconds * 1e6; now_us() < end; n++) {
		double us = write_nothing(id);

		took[n % KEPT] = us;
		if (us > longest)
			longest = us;
	}
	if (n > KEPT)
		n = KEPT;
	qsort(took, n, sizeof(*took), by_value);
	printf("{\"messages\": %zu, \"median_us\": %.2f, \"longest_ms\": %.2f}\n", n, took[n / 2],
		longest / 1e3);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};

	if (argc < 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[3]));
	if (!strcmp(argv[1], "serve"))
		serve(&at);
	if (argc < 5)
		return 2;
	ask(&at, atof(argv[4]));
	return 0;
}
