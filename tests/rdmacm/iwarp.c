/* SPDX-License-Identifier: MIT */
/*
 * librdmacm over iWARP, whose ports are TCP ports and whose requests are MPA's: what is different there
 * between two ids of one program. Each id has a channel of its own, since the order of events is each end's
 * own.
 */
#include "iwarp.h"

#include "world.h"

struct ibv_pd *iw_pd;
struct ibv_cq *iw_cq;

struct rdma_cm_id *iw_new_id(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	assert_non_null(ch);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

void iw_end(struct rdma_cm_id *id)
{
	struct rdma_event_channel *ch = id->channel;

	if (id->qp)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

/* The next event of a channel, which must be this one, in w.last. */
void iw_next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(ch, &e), 0);
	if (e->event != type)
		print_message("%s (%d) in the place of %s\n", rdma_event_str(e->event), e->status,
			rdma_event_str(type));
	assert_int_equal(e->event, type);
	w.last = *e;
	if (e->param.conn.private_data_len)
		memcpy(w.priv, e->param.conn.private_data, e->param.conn.private_data_len);
	rdma_ack_cm_event(e);
}

struct rdma_cm_id *iw_listen(int backlog)
{
	struct rdma_cm_id *id = iw_new_id();
	struct sockaddr_in any = loopback(0);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	assert_int_equal(id->verbs->device->transport_type, IBV_TRANSPORT_IWARP);
	if (!iw_pd) {
		iw_pd = ibv_alloc_pd(id->verbs);
		iw_cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
	}
	return id;
}

void iw_give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.send_cq = iw_cq,
		.recv_cq = iw_cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	assert_int_equal(rdma_create_qp(id, iw_pd, &attr), 0);
}

static struct rdma_cm_id *connect_by(const void *to, const void *priv, uint8_t len)
{
	struct rdma_conn_param p = {.private_data = priv,
		.private_data_len = len,
		.responder_resources = 3,
		.initiator_depth = 5};
	struct rdma_cm_id *id = iw_new_id();

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 1000), 0);
	iw_next(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	iw_next(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	iw_give_qp(id);
	assert_int_equal(rdma_connect(id, &p), 0);
	return id;
}

struct rdma_cm_id *iw_connect_to(__be16 port, const void *priv, uint8_t len)
{
	struct sockaddr_in to = loopback(port);

	return connect_by(&to, priv, len);
}

/* The request that comes next, on a channel of its own. */
struct rdma_cm_id *iw_asked(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;

	iw_next(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = w.last.id;
	assert_int_equal(rdma_migrate_id(id, rdma_create_event_channel()), 0);
	return id;
}

void iw_accepted(struct rdma_cm_id *server, struct rdma_cm_id *client)
{
	iw_give_qp(server);
	assert_int_equal(rdma_accept(server, NULL), 0);
	iw_next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	iw_next(client->channel, RDMA_CM_EVENT_ESTABLISHED);
}

void iw_once(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *client = iw_connect_to(rdma_get_src_port(listener), "x", 1),
			  *server = iw_asked(listener);

	iw_accepted(server, client);
	assert_int_equal(rdma_disconnect(client), 0);
	iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	iw_next(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	iw_end(client);
	iw_end(server);
}

static void private_data_has_its_length(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8), *client, *server;
	uint8_t data[255];
	struct rdma_conn_param p = {.private_data = data, .private_data_len = 255, .responder_resources = 2};

	for (int i = 0; i < 255; i++)
		data[i] = (uint8_t)i;
	client = iw_connect_to(rdma_get_src_port(listener), data, 255);
	server = iw_asked(listener);
	assert_int_equal(w.last.param.conn.private_data_len, 255);
	assert_memory_equal(w.priv, data, 255);
	assert_int_equal(w.last.param.conn.responder_resources, 5);
	assert_int_equal(w.last.param.conn.initiator_depth, 3);
	assert_int_equal(rdma_get_dst_port(server) != 0, 1);
	iw_give_qp(server);
	assert_int_equal(rdma_accept(server, &p), 0);
	iw_next(client->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(w.last.param.conn.private_data_len, 255);
	assert_memory_equal(w.priv, data, 255);
	assert_int_equal(w.last.param.conn.initiator_depth, 2);
	/* The port is TCP's, on both ends the same. */
	assert_int_equal(rdma_get_src_port(client), rdma_get_dst_port(server));
	iw_end(client);
	iw_end(server);
	iw_end(listener);
}

static void rejection_brings_its_data(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8),
			  *client = iw_connect_to(rdma_get_src_port(listener), NULL, 0),
			  *server = iw_asked(listener);

	assert_int_equal(w.last.param.conn.private_data_len, 0);
	assert_int_equal(rdma_reject(server, "not today", 9), 0);
	iw_next(client->channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(w.last.status, -ECONNREFUSED);
	assert_int_equal(w.last.param.conn.private_data_len, 9);
	assert_memory_equal(w.priv, "not today", 9);
	iw_end(client);
	iw_end(server);
	iw_end(listener);
}

static void nobody_listens(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8), *client;
	__be16 port = rdma_get_src_port(listener);

	iw_end(listener);
	client = iw_connect_to(port, NULL, 0);
	iw_next(client->channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(w.last.status, -ECONNREFUSED);
	iw_end(client);
}

/* An IPv4 address written as an IPv6 one: tried again like any other. */
static void nobody_listens_at_a_mapped_address(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8), *client;
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = rdma_get_src_port(listener)};

	assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr), 1);
	iw_end(listener);
	client = connect_by(&to, NULL, 0);
	iw_next(client->channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(w.last.status, -ECONNREFUSED);
	iw_end(client);
}

static void request_nobody_answers_ends_with_its_id(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8),
			  *client = iw_connect_to(rdma_get_src_port(listener), NULL, 0),
			  *server = iw_asked(listener);

	iw_end(server);
	iw_next(client->channel, RDMA_CM_EVENT_REJECTED);
	iw_end(client);
	client = iw_connect_to(rdma_get_src_port(listener), NULL, 0);
	iw_end(listener); /* with the request in its queue, or on the way there */
	iw_next(client->channel, RDMA_CM_EVENT_REJECTED);
	iw_end(client);
}

static void full_backlog_loses_nobody(void **state)
{
	enum { CLIENTS = 12 };
	struct rdma_cm_id *listener = iw_listen(2), *client[CLIENTS], *server;

	for (int i = 0; i < CLIENTS; i++)
		client[i] = iw_connect_to(rdma_get_src_port(listener), &i, sizeof(i));
	for (int i = 0; i < CLIENTS; i++) {
		int who;

		server = iw_asked(listener);
		memcpy(&who, w.priv, sizeof(who));
		iw_accepted(server, client[who]);
		iw_end(server);
	}
	for (int i = 0; i < CLIENTS; i++) {
		iw_next(client[i]->channel, RDMA_CM_EVENT_DISCONNECTED);
		iw_end(client[i]);
	}
	iw_end(listener);
}

static void either_end_may_disconnect_or_go(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8);

	for (int how = 0; how < 4; how++) {
		struct rdma_cm_id *client = iw_connect_to(rdma_get_src_port(listener), "x", 1),
				  *server = iw_asked(listener);
		struct rdma_cm_id *first = how % 2 ? client : server, *other = how % 2 ? server : client;

		iw_accepted(server, client);
		if (how < 2) {
			assert_int_equal(rdma_disconnect(first), 0);
			iw_next(first->channel, RDMA_CM_EVENT_DISCONNECTED);
			assert_int_equal(rdma_disconnect(first), 0); /* nothing to say any more */
		} else {
			iw_end(first);
		}
		iw_next(other->channel, RDMA_CM_EVENT_DISCONNECTED);
		if (how < 2)
			iw_end(first);
		iw_end(other);
	}
	iw_end(listener);
}

static void many_connects_leave_nothing(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8);
	int before;

	iw_once(listener);
	before = open_files();
	for (int i = 0; i < 300; i++)
		iw_once(listener);
	assert_int_equal(open_files(), before);
	iw_end(listener);
}

/* A listener that leaves the choice to us gets a port that TCP has, too. */
static void ports_of_others_are_not_chosen(void **state)
{
	enum { OTHERS = 800, LISTENERS = 400 };
	static int other[OTHERS];

	for (int i = 0; i < OTHERS; i++) {
		struct sockaddr_in sa = loopback(0);

		other[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		assert_int_equal(bind(other[i], (struct sockaddr *)&sa, sizeof(sa)), 0);
	}
	for (int i = 0; i < LISTENERS; i++)
		iw_end(iw_listen(1));
	for (int i = 0; i < OTHERS; i++)
		close(other[i]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(private_data_has_its_length),
		cmocka_unit_test(rejection_brings_its_data),
		cmocka_unit_test(nobody_listens),
		cmocka_unit_test(nobody_listens_at_a_mapped_address),
		cmocka_unit_test(request_nobody_answers_ends_with_its_id),
		cmocka_unit_test(full_backlog_loses_nobody),
		cmocka_unit_test(either_end_may_disconnect_or_go),
		cmocka_unit_test(many_connects_leave_nothing),
		cmocka_unit_test(child_begins_anew),
		cmocka_unit_test(taken_udp_port_is_no_obstacle),
		cmocka_unit_test(ports_of_others_are_not_chosen),
		cmocka_unit_test(refused_udp_is_no_obstacle),
		cmocka_unit_test(users_list_decides),
	};
	const struct CMUnitTest of_neighbours[] = {
		cmocka_unit_test(who_is_not_here_is_not_believed),
		cmocka_unit_test(bytes_behind_the_upgrade_end_it),
		cmocka_unit_test(who_speaks_by_udp_is_not_heard),
		cmocka_unit_test(who_talks_nonsense_instead_or_goes_is_let_go),
	};
	/* By TCP, whatever this host has. */
	const struct CMUnitTest of_strangers[] = {
		cmocka_unit_test(strangers_are_sent_away_and_others_served),
		cmocka_unit_test(silent_crowd_keeps_nobody_out),
		cmocka_unit_test(silent_crowd_slows_nobody_down),
		cmocka_unit_test(longest_private_data_is_cut),
		cmocka_unit_test(stuck_peer_does_not_hold_the_end),
	};
	int failed;

	if (argc == 2)
		cmocka_set_skip_filter(argv[1]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	return failed + (getenv("ANYRDMA_LOCAL") ? cmocka_run_group_tests(of_strangers, NULL, NULL)
						 : cmocka_run_group_tests(of_neighbours, NULL, NULL));
}
