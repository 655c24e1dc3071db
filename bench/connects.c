/* SPDX-License-Identifier: MIT */
/*
 * What it takes to connect, by rdma_cm and by TCP alike.
 *
 *      connects serve rdma|tcp ADDRESS PORT
 *      connects ask rdma|tcp ADDRESS PORT N
 *
 * Connects N times, one after the other: from an address to a connection that the server's program has
 * accepted, which over TCP is said by a byte from it. Then, over TCP, N connections at once; over RDMA cmtime
 * does that. Prints one line of JSON: the median of the first, the rate of the second. A server of RDMA
 * connections holds the TCP port too, so that it can be seen to be ready.
 */
#include "common.h"
#include "listen.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int by_value(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return d < 0 ? -1 : d > 0;
}

/* ---- TCP ---- */
static void tcp_serve(const struct sockaddr_in *at)
{
	for (int fd = tcp_listen(at);;) {
		int c = accept(fd, NULL, NULL);

		must(c >= 0 && write(c, "", 1) == 1, "accept");
		close(c);
	}
}

static int tcp_connect(const struct sockaddr_in *to)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	must(fd >= 0 && !connect(fd, (const struct sockaddr *)to, sizeof(*to)), "connect");
	return fd;
}

static void tcp_wait(int fd)
{
	char byte;

	must(read(fd, &byte, 1) == 1, "read");
}

static double tcp_one(const struct sockaddr_in *to)
{
	double begin = now_us(), end;
	int fd = tcp_connect(to);

	tcp_wait(fd);
	end = now_us();
	close(fd);
	return end - begin;
}

static double tcp_per_second(const struct sockaddr_in *to, unsigned n)
{
	int *fd = calloc(n, sizeof(*fd));
	double begin = now_us(), end;

	must(fd != NULL, "calloc");
	for (unsigned i = 0; i < n; i++)
		fd[i] = tcp_connect(to);
	for (unsigned i = 0; i < n; i++)
		tcp_wait(fd[i]);
	end = now_us();
	for (unsigned i = 0; i < n; i++)
		close(fd[i]);
	free(fd);
	return n / ((end - begin) / 1e6);
}

/* ---- RDMA ---- */
static struct ibv_cq *cq;

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
	};

	if (!cq)
		cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	attr.send_cq = attr.recv_cq = cq;
	must(cq && !rdma_create_qp(id, NULL, &attr), "rdma_create_qp");
}

static void drop(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	must(!rdma_destroy_id(id), "rdma_destroy_id");
}

static enum rdma_cm_event_type next(struct rdma_event_channel *channel, struct rdma_cm_id **id)
{
	enum rdma_cm_event_type type;
	struct rdma_cm_event *e;

	must(!rdma_get_cm_event(channel, &e), "rdma_get_cm_event");
	type = e->event;
	*id = e->id;
	rdma_ack_cm_event(e);
	return type;
}

static void rdma_serve(struct sockaddr_in *at)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener, *id;

	must(channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) &&
			!rdma_bind_addr(listener, (struct sockaddr *)at) && !rdma_listen(listener, 1024),
		"rdma_listen");
	tcp_listen_anywhere(at->sin_port);
	for (;;) {
		switch (next(channel, &id)) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			make_qp(id);
			must(!rdma_accept(id, NULL), "rdma_accept");
			break;
		case RDMA_CM_EVENT_DISCONNECTED:
			rdma_disconnect(id);
			drop(id);
			break;
		default:
			break;
		}
	}
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_id *id;
	enum rdma_cm_event_type got;

	do
		got = next(channel, &id);
	while (got == RDMA_CM_EVENT_TIMEWAIT_EXIT);
	if (got != type) {
		fprintf(stderr, "%s\n", rdma_event_str(got));
		exit(1);
	}
}

static double rdma_one(struct sockaddr_in *to)
{
	static struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	double begin, end;

	if (!channel)
		channel = rdma_create_event_channel();
	must(channel != NULL, "rdma_create_event_channel");
	begin = now_us();
	must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) &&
			!rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 2000),
		"rdma_resolve_addr");
	expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	must(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
	expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	must(!rdma_connect(id, NULL), "rdma_connect");
	expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	end = now_us();
	must(!rdma_disconnect(id), "rdma_disconnect");
	expect(channel, RDMA_CM_EVENT_DISCONNECTED);
	drop(id);
	return end - begin;
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int tcp = argc > 2 && !strcmp(argv[2], "tcp");
	unsigned n = argc > 5 ? (unsigned)atoi(argv[5]) : 0;
	double *took = calloc(n + 1, sizeof(*took));

	if (argc < 5 || !took || inet_pton(AF_INET, argv[3], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons((uint16_t)atoi(argv[4]));
	if (!strcmp(argv[1], "serve") && tcp)
		tcp_serve(&at);
	else if (!strcmp(argv[1], "serve"))
		rdma_serve(&at);
	for (unsigned i = 0; i < n; i++)
		took[i] = tcp ? tcp_one(&at) : rdma_one(&at);
	qsort(took, n, sizeof(*took), by_value);
	printf("{\"one_us\": %.1f", took[n / 2]);
	if (tcp)
		printf(", \"per_second\": %.0f", tcp_per_second(&at, n));
	printf("}\n");
	free(took);
	return 0;
}
