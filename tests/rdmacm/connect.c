/* SPDX-License-Identifier: MIT */
/*
 * Connecting and disconnecting: both ends are ids of one process that share an event channel, so that every
 * event is seen, in its order.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { CYCLES = 5000 };

/* A sanitizer keeps what is freed. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MEMORY_IS_OURS = 0 };
#else
enum { MEMORY_IS_OURS = 1 };
#endif

/* What the private data field of each message holds for the program. */
enum { REQ_PRIV = 56, REP_PRIV = 196, REJ_PRIV = 148 };

static struct world {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *client, *server;
	struct rdma_cm_event last; /* as taken; its private data copied */
	uint8_t priv[256];
	struct ibv_pd *pd;
	struct ibv_cq *cq;
} w;

static struct sockaddr_in loopback(__be16 port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void take_event(void)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(w.channel, &e), 0);
	w.last = *e;
	if (e->event != RDMA_CM_EVENT_MULTICAST_JOIN && e->param.conn.private_data_len)
		memcpy(w.priv, e->param.conn.private_data, e->param.conn.private_data_len);
	assert_int_equal(rdma_ack_cm_event(e), 0);
}

/* Takes the next event, which must be this one. TIMEWAIT ends when it ends, between any two others. */
static void expect(enum rdma_cm_event_type type, struct rdma_cm_id *id)
{
	const struct rdma_cm_event *e = &w.last;

	do
		take_event();
	while (e->event == RDMA_CM_EVENT_TIMEWAIT_EXIT && type != RDMA_CM_EVENT_TIMEWAIT_EXIT);
	if (e->event != type)
		print_message("%s (%d) in the place of %s\n", rdma_event_str(e->event), e->status,
			rdma_event_str(type));
	assert_int_equal(e->event, type);
	if (id)
		assert_ptr_equal(e->id, id);
}

static int setup(void **state)
{
	struct sockaddr_in any = loopback(0);

	memset(&w, 0, sizeof(w));
	w.channel = rdma_create_event_channel();
	assert_non_null(w.channel);
	assert_int_equal(rdma_create_id(w.channel, &w.listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(w.listener, (struct sockaddr *)&any), 0);
	assert_int_not_equal(rdma_get_src_port(w.listener), 0);
	assert_int_equal(rdma_listen(w.listener, 8), 0);
	w.pd = ibv_alloc_pd(w.listener->verbs);
	w.cq = ibv_create_cq(w.listener->verbs, 16, NULL, NULL, 0);
	assert_non_null(w.pd);
	assert_non_null(w.cq);
	return 0;
}

static void destroy(struct rdma_cm_id **id)
{
	if (!*id)
		return;
	if ((*id)->qp)
		rdma_destroy_qp(*id);
	assert_int_equal(rdma_destroy_id(*id), 0);
	*id = NULL;
}

static int teardown(void **state)
{
	destroy(&w.client);
	destroy(&w.server);
	destroy(&w.listener);
	assert_int_equal(ibv_destroy_cq(w.cq), 0);
	assert_int_equal(ibv_dealloc_pd(w.pd), 0);
	rdma_destroy_event_channel(w.channel);
	return 0;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = w.cq,
		.recv_cq = w.cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	assert_int_equal(rdma_create_qp(id, w.pd, &attr), 0);
}

static void resolve(void)
{
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));

	assert_int_equal(rdma_create_id(w.channel, &w.client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, w.client);
	assert_int_equal(rdma_resolve_route(w.client, 1000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, w.client);
}

/* Up to the request at the server. */
static void ask(const char *priv)
{
	struct rdma_conn_param param = {
		.private_data = priv,
		.private_data_len = (uint8_t)strlen(priv),
		.responder_resources = 3,
		.initiator_depth = 5,
		.retry_count = 7,
		.rnr_retry_count = 6,
	};

	resolve();
	make_qp(w.client);
	assert_int_equal(rdma_connect(w.client, &param), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	assert_ptr_equal(w.last.listen_id, w.listener);
}

static void connect_both(void)
{
	struct rdma_conn_param param = {.private_data = "yes",
		.private_data_len = 4,
		.responder_resources = 5,
		.initiator_depth = 3,
		.rnr_retry_count = 6};

	ask("may I?");
	make_qp(w.server);
	assert_int_equal(rdma_accept(w.server, &param), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.client);
}

static void disconnect_both(void)
{
	assert_int_equal(rdma_disconnect(w.client), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.server);
	assert_int_equal(rdma_disconnect(w.server), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.client);
}

/* ---- the tests ---- */
static void both_ends_learn_the_others_parameters(void **state)
{
	ask("may I?");
	assert_string_equal((char *)w.priv, "may I?");
	assert_int_equal(w.last.param.conn.private_data_len, REQ_PRIV);
	assert_int_equal(w.last.param.conn.responder_resources, 5);
	assert_int_equal(w.last.param.conn.initiator_depth, 3);
	assert_int_equal(w.last.param.conn.retry_count, 7);
	assert_int_equal(w.last.param.conn.rnr_retry_count, 6);
	assert_int_equal(w.last.param.conn.qp_num, w.client->qp->qp_num);
	assert_ptr_equal(w.server->verbs, w.listener->verbs);
	assert_int_equal(rdma_get_dst_port(w.server), rdma_get_src_port(w.client));
	assert_int_equal(rdma_get_src_port(w.server), rdma_get_dst_port(w.client));
	destroy(&w.client);
	destroy(&w.server);
	connect_both();
	assert_string_equal((char *)w.priv, "yes");
	assert_int_equal(w.last.param.conn.private_data_len, REP_PRIV);
	assert_int_equal(w.last.param.conn.qp_num, w.server->qp->qp_num);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	assert_int_equal(w.client->qp->state, IBV_QPS_RTS);
	assert_int_equal(w.server->qp->state, IBV_QPS_RTS);
	disconnect_both();
	assert_int_equal(w.client->qp->state, IBV_QPS_ERR);
	assert_int_equal(w.server->qp->state, IBV_QPS_ERR);
	expect(RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	expect(RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
}

static void a_rejection_carries_its_reason_and_data(void **state)
{
	ask("may I?");
	assert_int_equal(rdma_reject(w.server, "no", 3), 0);
	expect(RDMA_CM_EVENT_REJECTED, w.client);
	assert_int_equal(w.last.status, 28);
	assert_int_equal(w.last.param.conn.private_data_len, REJ_PRIV);
	assert_string_equal((char *)w.priv, "no");
}

static void without_a_qp_the_program_establishes(void **state)
{
	struct rdma_conn_param param = {.qp_num = 4711, .responder_resources = 1, .initiator_depth = 1};

	resolve();
	assert_int_equal(rdma_connect(w.client, &param), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	assert_int_equal(w.last.param.conn.qp_num, 4711);
	param.qp_num = 4712;
	assert_int_equal(rdma_accept(w.server, &param), 0);
	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, w.client);
	assert_int_equal(w.last.param.conn.qp_num, 4712);
	assert_int_equal(rdma_establish(w.client), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
}

static void a_channel_may_be_nonblocking(void **state)
{
	struct rdma_cm_event *e;

	assert_int_equal(fcntl(w.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(w.channel, &e), -1);
	assert_int_equal(errno, EAGAIN);
}

static void calls_out_of_place_are_refused(void **state)
{
	struct sockaddr_in taken = loopback(rdma_get_src_port(w.listener));
	struct rdma_conn_param param = {.private_data_len = REQ_PRIV + 1, .private_data = w.priv};

	assert_int_equal(rdma_create_id(w.channel, &w.server, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(w.server, (struct sockaddr *)&taken), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rdma_resolve_route(w.server, 1000), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_connect(w.server, NULL), -1);
	assert_int_equal(rdma_accept(w.server, NULL), -1);
	assert_int_equal(rdma_disconnect(w.server), -1);
	resolve();
	assert_int_equal(rdma_connect(w.client, &param), -1); /* more than a REQ holds */
	assert_int_equal(errno, EINVAL);
}

static void requests_nobody_takes_end_with_the_listener(void **state)
{
	struct rdma_conn_param param = {.qp_num = 4711};

	resolve();
	assert_int_equal(rdma_connect(w.client, &param), 0);
	/* Its request is in the queue, or on its way, or will not be refused before somebody knocks again. */
	assert_int_equal(rdma_migrate_id(w.listener, NULL), 0);
	destroy(&w.listener);
	assert_int_equal(rdma_create_id(w.channel, &w.listener, NULL, RDMA_PS_TCP), 0);
	expect(RDMA_CM_EVENT_REJECTED, w.client);
}

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static long resident_kib(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	long pages = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*d %ld", &pages), 1);
	fclose(f);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void cycle(void)
{
	connect_both();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	disconnect_both();
	destroy(&w.client);
	destroy(&w.server);
}

/* Connections in TIMEWAIT are remembered for half a second: that much may grow. */
static void thousands_of_connects_leave_nothing(void **state)
{
	long before;
	int files;

	for (int i = 0; i < CYCLES / 5; i++)
		cycle();
	before = resident_kib();
	files = open_files();
	for (int i = 0; i < CYCLES; i++)
		cycle();
	assert_int_equal(open_files(), files);
	if (MEMORY_IS_OURS)
		assert_true(resident_kib() - before < 8 * 1024);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(both_ends_learn_the_others_parameters),
		TEST(a_rejection_carries_its_reason_and_data),
		TEST(without_a_qp_the_program_establishes),
		TEST(a_channel_may_be_nonblocking),
		TEST(calls_out_of_place_are_refused),
		TEST(requests_nobody_takes_end_with_the_listener),
		TEST(thousands_of_connects_leave_nothing),
	};

	alarm(100);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
