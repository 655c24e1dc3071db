/* SPDX-License-Identifier: MIT */
#include "world.h"

#include <dirent.h>

struct world w;

struct sockaddr_in loopback(__be16 port)
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

void expect(enum rdma_cm_event_type type, struct rdma_cm_id *id)
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

int setup(void **state)
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

void destroy(struct rdma_cm_id **id)
{
	if (!*id)
		return;
	if ((*id)->qp)
		rdma_destroy_qp(*id);
	assert_int_equal(rdma_destroy_id(*id), 0);
	*id = NULL;
}

int teardown(void **state)
{
	destroy(&w.client);
	destroy(&w.server);
	destroy(&w.listener);
	assert_int_equal(ibv_destroy_cq(w.cq), 0);
	assert_int_equal(ibv_dealloc_pd(w.pd), 0);
	rdma_destroy_event_channel(w.channel);
	return 0;
}

void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = w.cq,
		.recv_cq = w.cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
	};

	assert_int_equal(rdma_create_qp(id, w.pd, &attr), 0);
}

void resolve_to(__be16 port)
{
	struct sockaddr_in to = loopback(port);

	assert_int_equal(rdma_create_id(w.channel, &w.client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, w.client);
	assert_int_equal(rdma_resolve_route(w.client, 1000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, w.client);
}

void resolve(void)
{
	resolve_to(rdma_get_src_port(w.listener));
}

void ask(const char *priv)
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

void connect_both(void)
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

void disconnect_both(void)
{
	assert_int_equal(rdma_disconnect(w.client), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.server);
	assert_int_equal(rdma_disconnect(w.server), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.client);
}

void cycle(void)
{
	connect_both();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	disconnect_both();
	destroy(&w.client);
	destroy(&w.server);
}

int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}
