/* SPDX-License-Identifier: MIT */
/* Connecting and disconnecting. */
#include "world.h"

#include <fcntl.h>

enum { CYCLES = 5000 };

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
	/* Its request is in the queue, or on its way, or will not be refused before somebody asks again. */
	assert_int_equal(rdma_migrate_id(w.listener, NULL), 0);
	destroy(&w.listener);
	assert_int_equal(rdma_create_id(w.channel, &w.listener, NULL, RDMA_PS_TCP), 0);
	expect(RDMA_CM_EVENT_REJECTED, w.client);
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
	if (!SANITIZED)
		assert_true(resident_kib() - before < 8 * 1024);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(both_ends_learn_the_others_parameters),
		TEST(a_rejection_carries_its_reason_and_data),
		TEST(without_a_qp_the_program_establishes),
		TEST(a_channel_may_be_nonblocking),
		TEST(calls_out_of_place_are_refused),
		TEST(requests_nobody_takes_end_with_the_listener),
		TEST(thousands_of_connects_leave_nothing),
	};

	if (argc == 2)
		cmocka_set_skip_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
