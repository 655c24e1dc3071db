/* SPDX-License-Identifier: MIT */
/*
 * Device memory (ibv_alloc_dm), which perftest does not use: requests of one process into the device memory
 * of another, each on a core of its own.
 *
 *      dm DEVICE GID_INDEX write|read SIZE COUNT
 *
 * The requests are posted in rows of DEPTH, each row completed by its last; the target takes no part. Prints
 * one line of JSON: gbps, and us, the median time of a single request from posting to its completion.
 */
#include "common.h"

#include <infiniband/verbs.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	DEPTH = 64,
	SINGLES = 2000,
	RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
};

/* What one end has to know of the other. */
struct name {
	union ibv_gid gid;
	uint32_t qpn, rkey;
};

struct end {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_dm *dm;
	struct ibv_mr *mr, *dm_mr; /* ordinary memory; device memory */
	struct ibv_port_attr port;
	uint8_t gid_index;
	enum ibv_wr_opcode opcode;
	uint32_t size;
	char *memory;
	struct name name, peer;
};

static void pin(int nth)
{
	cpu_set_t all, one;

	sched_getaffinity(0, sizeof(all), &all);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all) || nth--)
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		sched_setaffinity(0, sizeof(one), &one);
	}
}

static void open_device(struct end *e, const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (struct ibv_device **d = list; d && *d; d++)
		if (!strcmp(ibv_get_device_name(*d), name))
			e->ctx = ibv_open_device(*d);
	must(e->ctx != NULL, name);
	ibv_free_device_list(list);
	must(!ibv_query_gid(e->ctx, 1, e->gid_index, &e->name.gid), "ibv_query_gid");
	must(!ibv_query_port(e->ctx, 1, &e->port), "ibv_query_port");
	must((e->pd = ibv_alloc_pd(e->ctx)) != NULL, "ibv_alloc_pd");
	must((e->cq = ibv_create_cq(e->ctx, 2 * DEPTH, NULL, NULL, 0)) != NULL, "ibv_create_cq");
}

static void take_memory(struct end *e)
{
	struct ibv_alloc_dm_attr a = {.length = e->size};

	must(!posix_memalign((void **)&e->memory, 4096, e->size), "posix_memalign");
	memset(e->memory, 1, e->size);
	must((e->mr = ibv_reg_mr(e->pd, e->memory, e->size, IBV_ACCESS_LOCAL_WRITE)) != NULL, "ibv_reg_mr");
	must((e->dm = ibv_alloc_dm(e->ctx, &a)) != NULL, "ibv_alloc_dm");
	e->dm_mr = ibv_reg_dm_mr(e->pd, e->dm, 0, e->size, RIGHTS | IBV_ACCESS_ZERO_BASED);
	must(e->dm_mr != NULL, "ibv_reg_dm_mr");
	must(!ibv_memcpy_to_dm(e->dm, 0, e->memory, e->size), "ibv_memcpy_to_dm");
	e->name.rkey = e->dm_mr->rkey;
}

static void create(struct end *e)
{
	struct ibv_qp_init_attr a = {.send_cq = e->cq,
		.recv_cq = e->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2 * DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	must((e->qp = ibv_create_qp(e->pd, &a)) != NULL, "ibv_create_qp");
	e->name.qpn = e->qp->qp_num;
}

static void connect_to(struct end *e)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = e->port.active_mtu,
		.dest_qp_num = e->peer.qpn,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = e->peer.gid, .sgid_index = e->gid_index, .hop_limit = 64}}};
	struct ibv_qp_attr rts = {
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16};

	must(!ibv_modify_qp(
		     e->qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS),
		"INIT");
	must(!ibv_modify_qp(e->qp, &rtr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER),
		"RTR");
	must(!ibv_modify_qp(e->qp, &rts,
		     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			     IBV_QP_MAX_QP_RD_ATOMIC),
		"RTS");
}

/* Both tell, then both hear; also that the other is that far. */
static void swap(int fd, const void *mine, void *theirs, size_t len)
{
	must(write(fd, mine, len) == (ssize_t)len && read(fd, theirs, len) == (ssize_t)len, "the other end");
}

static void open_end(struct end *e, const char *device, int fd)
{
	char told = 0, heard;

	open_device(e, device);
	take_memory(e);
	create(e);
	swap(fd, &e->name, &e->peer, sizeof(e->name));
	connect_to(e);
	swap(fd, &told, &heard, 1);
}

/* Posts n and waits for the last of them. */
static void request(struct end *e, unsigned n)
{
	struct ibv_sge sge = {.addr = (uintptr_t)e->memory, .length = e->size, .lkey = e->mr->lkey};
	struct ibv_send_wr *bad,
		wr = {.opcode = e->opcode, .sg_list = &sge, .num_sge = 1, .wr.rdma = {.rkey = e->peer.rkey}};
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};

	for (unsigned i = 1; i <= n; i++) {
		wr.send_flags = i == n ? IBV_SEND_SIGNALED : 0;
		must(!ibv_post_send(e->qp, &wr, &bad), "ibv_post_send");
	}
	while (!ibv_poll_cq(e->cq, 1, &wc))
		;
	must(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double single_us(struct end *e)
{
	static double took[SINGLES];

	for (unsigned i = 0; i < SINGLES; i++) {
		double start = now_us();

		request(e, 1);
		took[i] = now_us() - start;
	}
	qsort(took, SINGLES, sizeof(took[0]), by_value);
	return took[SINGLES / 2];
}

static void measure(struct end *e, unsigned count)
{
	unsigned rows = count / DEPTH + 1;
	double us = single_us(e), start = now_us(), took;

	for (unsigned i = 0; i < rows; i++)
		request(e, DEPTH);
	took = now_us() - start;
	printf("{\"gbps\": %.3f, \"us\": %.4f}\n", (double)rows * DEPTH * e->size * 8 / took / 1e3, us);
}

int main(int argc, char **argv)
{
	struct end e = {.size = argc == 6 ? (uint32_t)atoi(argv[4]) : 0};
	char done = 0, heard;
	int fds[2];
	pid_t child;

	if (!e.size) {
		fprintf(stderr, "usage: dm DEVICE GID_INDEX write|read SIZE COUNT\n");
		return 2;
	}
	e.gid_index = (uint8_t)atoi(argv[2]);
	e.opcode = strcmp(argv[3], "read") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	must(!socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "socketpair");
	must((child = fork()) >= 0, "fork");
	if (!child)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	pin(!child);
	close(fds[!child]);
	open_end(&e, argv[1], fds[!!child]);
	if (child)
		measure(&e, (unsigned)atoi(argv[5]));
	swap(fds[!!child], &done, &heard, 1);
	if (child)
		waitpid(child, NULL, 0);
	return 0;
}
