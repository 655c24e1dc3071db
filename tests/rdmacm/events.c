/* SPDX-License-Identifier: MIT */
/* Events and ids: who waits for whom, what moves where, threads, children, synchronous ids. */
#include "world.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_verbs.h>
#include <semaphore.h>
#include <sys/wait.h>

static struct rdma_conn_param no_qp = {.qp_num = 4711, .responder_resources = 1, .initiator_depth = 1};

static struct rdma_cm_event *next(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(channel, &e), 0);
	assert_int_equal(e->event, type);
	return e;
}

/* ---- disconnecting ---- */
static void both_disconnect_at_once(void **state)
{
	connect_both();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	assert_int_equal(rdma_disconnect(w.client), 0);
	assert_int_equal(rdma_disconnect(w.server), 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, NULL);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.last.id == w.client ? w.server : w.client);
	assert_int_equal(rdma_disconnect(w.client), 0); /* again: nothing to say */
	expect(RDMA_CM_EVENT_TIMEWAIT_EXIT, NULL);
	expect(RDMA_CM_EVENT_TIMEWAIT_EXIT, w.last.id == w.client ? w.server : w.client);
}

static void an_id_that_is_destroyed_disconnects(void **state)
{
	connect_both();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	destroy(&w.client);
	expect(RDMA_CM_EVENT_DISCONNECTED, w.server);
}

/* ---- acknowledges ---- */
static void *acknowledge_later(void *event)
{
	usleep(50 * 1000);
	w.priv[0] = 1;
	assert_int_equal(rdma_ack_cm_event(event), 0);
	return NULL;
}

static void destroying_waits_for_acknowledges(void **state)
{
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));
	struct rdma_cm_id *id;
	pthread_t thread;

	assert_int_equal(rdma_create_id(w.channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	assert_int_equal(pthread_create(&thread, NULL, acknowledge_later,
				 next(w.channel, RDMA_CM_EVENT_ADDR_RESOLVED)),
		0);
	assert_int_equal(rdma_destroy_id(id), 0);
	assert_int_equal(w.priv[0], 1);
	pthread_join(thread, NULL);
}

static void events_move_with_their_id(void **state)
{
	struct rdma_event_channel *other = rdma_create_event_channel();
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));
	struct rdma_cm_event *e;

	assert_non_null(other);
	assert_int_equal(rdma_create_id(w.channel, &w.client, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 1000), 0);
	assert_int_equal(rdma_migrate_id(w.client, other), 0); /* with its event in the queue */
	assert_int_equal(fcntl(w.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(rdma_get_cm_event(w.channel, &e), -1);
	assert_int_equal(errno, EAGAIN);
	e = next(other, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_ptr_equal(e->id, w.client);
	rdma_ack_cm_event(e);
	assert_int_equal(rdma_migrate_id(w.client, w.channel), 0);
	rdma_destroy_event_channel(other);
}

/* ---- many ---- */
/* Takes events of the channel until so many requests have come; refuses each. */
static void refuse(struct rdma_event_channel *channel, int requests)
{
	while (requests--) {
		struct rdma_cm_event *e = next(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = e->id;

		rdma_ack_cm_event(e);
		destroy(&id);
	}
}

/* Whose request finds no room asks again. A request to another listener, behind them, says that all have
 * come. */
static void a_full_backlog_loses_nobody(void **state)
{
	struct rdma_event_channel *narrow = rdma_create_event_channel();
	struct rdma_cm_id *id[4], *listener;
	struct sockaddr_in sa = loopback(0);

	assert_int_equal(rdma_create_id(narrow, &listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(listener, (struct sockaddr *)&sa), 0);
	assert_int_equal(rdma_listen(listener, 1), 0);
	for (int i = 0; i < 4; i++) {
		resolve_to(rdma_get_src_port(i < 3 ? listener : w.listener));
		id[i] = w.client;
	}
	for (uint32_t i = 0; i < 4; i++) {
		struct rdma_conn_param param = {.qp_num = 4711 + i};

		assert_int_equal(rdma_connect(id[i], &param), 0);
	}
	refuse(w.channel, 1);
	refuse(narrow, 3);
	for (int i = 0; i < 4; i++)
		expect(RDMA_CM_EVENT_REJECTED, NULL);
	for (int i = 0; i < 4; i++)
		destroy(&id[i]);
	w.client = NULL;
	destroy(&listener);
	rdma_destroy_event_channel(narrow);
}

enum { THREADS = 4, EACH = 25 };

static void *take_some(void *count)
{
	for (int i = 0; i < EACH; i++) {
		struct rdma_cm_event *e;

		if (rdma_get_cm_event(w.channel, &e))
			break;
		*(int *)count += e->event == RDMA_CM_EVENT_ADDR_RESOLVED;
		rdma_ack_cm_event(e);
	}
	return NULL;
}

static void threads_share_a_channel(void **state)
{
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));
	struct rdma_cm_id *id[THREADS * EACH];
	pthread_t thread[THREADS];
	int got[THREADS] = {0};

	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, take_some, &got[i]), 0);
	for (int i = 0; i < THREADS * EACH; i++) {
		assert_int_equal(rdma_create_id(w.channel, &id[i], NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(id[i], NULL, (struct sockaddr *)&to, 1000), 0);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(got[i], EACH);
	}
	for (int i = 0; i < THREADS * EACH; i++)
		destroy(&id[i]);
}

/* ---- children ---- */
/* The parent's ids are not the child's: what it does to them does nothing, and it has its own. */
static void a_child_begins_anew(void **state)
{
	struct rdma_cm_id *mine;
	int status;
	pid_t pid;

	if (!FORKS_WELL)
		skip_because("needs a child, which the thread sanitizer does not follow");
	connect_both();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		alarm(100);
		if (rdma_destroy_id(w.client) || rdma_destroy_id(w.listener))
			_exit(1);
		w.client = w.server = NULL;
		w.channel = rdma_create_event_channel();
		if (!w.channel || rdma_create_id(w.channel, &mine, NULL, RDMA_PS_TCP) ||
			rdma_destroy_id(mine))
			_exit(2);
		if (SANITIZED)
			_exit(0);
		exit(0); /* with all that happens at exit */
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	disconnect_both(); /* and nobody has done so before */
}

/* ---- synchronous ids ---- */
static struct rdma_addrinfo *lookup(int flags, const char *service)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *res;

	assert_int_equal(rdma_getaddrinfo("127.0.0.1", service, &hints, &res), 0);
	return res;
}

static struct ibv_qp_init_attr small_qp(void)
{
	return (struct ibv_qp_init_attr){
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
}

static void *serve_one(void *listener)
{
	struct rdma_cm_id *id;

	if (rdma_get_request(listener, &id) || rdma_accept(id, NULL))
		return NULL;
	rdma_disconnect(id);
	rdma_destroy_ep(id);
	return listener;
}

static void endpoints_connect(void **state)
{
	struct rdma_addrinfo *res = lookup(RAI_PASSIVE, "17174");
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_cm_id *listener, *id;
	pthread_t thread;
	void *served;

	assert_int_equal(rdma_create_ep(&listener, res, NULL, &attr), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	rdma_freeaddrinfo(res);
	assert_int_equal(pthread_create(&thread, NULL, serve_one, listener), 0);
	res = lookup(0, "17174");
	attr = small_qp();
	assert_int_equal(rdma_create_ep(&id, res, NULL, &attr), 0);
	assert_non_null(id->qp);
	assert_non_null(id->send_cq);
	assert_non_null(id->recv_cq_channel);
	assert_int_equal(rdma_connect(id, NULL), 0);
	rdma_disconnect(id);
	pthread_join(thread, &served);
	assert_ptr_equal(served, listener);
	rdma_destroy_ep(id);
	rdma_destroy_ep(listener);
	rdma_freeaddrinfo(res);
}

static void what_goes_wrong_with_endpoints_has_a_name(void **state)
{
	struct rdma_addrinfo *res = lookup(RAI_NUMERICHOST, "17175"), hints = {.ai_flags = RAI_NUMERICHOST},
			     *none;
	struct ibv_qp_init_attr attr = small_qp();
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_ep(&id, res, NULL, &attr), 0);
	assert_int_equal(rdma_connect(id, NULL), -1); /* nobody listens */
	assert_int_equal(errno, ECONNREFUSED);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(res);
	assert_int_equal(rdma_create_ep(&id, NULL, NULL, &attr), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_not_equal(rdma_getaddrinfo("no.such.host.invalid", "1", &hints, &none), 0);
	assert_int_equal(rdma_getaddrinfo(NULL, NULL, NULL, &none), -1);
	assert_int_equal(rdma_get_request(w.listener, &id), -1); /* not a synchronous one */
	assert_int_equal(errno, EINVAL);
}

/* ---- extended connection establishment ---- */
static void both_sides_learn_the_others_ece(void **state)
{
	struct ibv_ece ece = {.vendor_id = 0x15b3, .options = 0x12345678}, got, none = {0};
	struct rdma_conn_param answer = no_qp;

	resolve();
	assert_int_equal(rdma_set_local_ece(w.client, &none), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_set_local_ece(w.client, &ece), 0);
	assert_int_equal(rdma_connect(w.client, &no_qp), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	assert_int_equal(rdma_get_remote_ece(w.server, &got), 0);
	assert_int_equal(got.vendor_id, 0x15b3);
	assert_int_equal(got.options, 0x12345678);
	ece.options = 9;
	answer.qp_num++; /* the same number from the same host would be a stale connection */
	assert_int_equal(rdma_set_local_ece(w.server, &ece), 0);
	assert_int_equal(rdma_accept(w.server, &answer), 0);
	expect(RDMA_CM_EVENT_CONNECT_RESPONSE, w.client);
	assert_int_equal(rdma_get_remote_ece(w.client, &got), 0);
	assert_int_equal(got.options, 9);
	assert_int_equal(rdma_reject_ece(w.client, NULL, 0), 0);
	expect(RDMA_CM_EVENT_REJECTED, w.server);
	assert_int_equal(w.last.status, 35); /* vendor option not supported */
}

static void moving_to_where_it_is_moves_nothing(void **state)
{
	struct sockaddr_in group = {.sin_family = AF_INET}, here = loopback(0);
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(w.channel, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&here), 0);
	for (uint32_t i = 1; i <= 3; i++) {
		group.sin_addr.s_addr = htonl(0xef010100 + i);
		assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
	}
	assert_int_equal(rdma_migrate_id(id, w.channel), 0);
	for (int i = 0; i < 3; i++)
		expect(RDMA_CM_EVENT_MULTICAST_JOIN, id);
	rdma_destroy_id(id);
}

/* The client has given up when the listener moves: its REJ goes where the request goes. */
static void what_a_request_has_heard_moves_with_the_listener(void **state)
{
	struct rdma_conn_param param = {.qp_num = 77, .retry_count = 7};
	struct rdma_event_channel *old = w.channel, *new = rdma_create_event_channel();
	struct pollfd p = {.fd = old->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	resolve();
	assert_int_equal(rdma_connect(w.client, &param), 0);
	assert_int_equal(poll(&p, 1, -1), 1);
	destroy(&w.client);
	usleep(100 * 1000); /* its REJ may come later than this: then there is nothing to see */
	assert_int_equal(rdma_migrate_id(w.listener, new), 0);
	assert_int_equal(poll(&p, 1, 0), 0);
	assert_int_equal(rdma_get_cm_event(new, &e), 0);
	assert_int_equal(e->event, RDMA_CM_EVENT_CONNECT_REQUEST);
	w.server = e->id;
	rdma_ack_cm_event(e);
	destroy(&w.server);
	assert_int_equal(rdma_migrate_id(w.listener, old), 0);
	rdma_destroy_event_channel(new);
}

static void *acknowledge_all(void *arg)
{
	struct rdma_cm_event *e;

	while (!rdma_get_cm_event(arg, &e)) {
		int last = e->event == RDMA_CM_EVENT_MULTICAST_JOIN;

		rdma_ack_cm_event(e);
		if (last)
			break;
	}
	return NULL;
}

/* An event is dropped with its id at the moment at which another thread reads it. */
static void ids_end_beside_a_thread_that_takes_events(void **state)
{
	struct sockaddr_in group = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xef010101)};
	struct sockaddr_in here = loopback(0), to = loopback(htons(7));
	struct rdma_cm_id *id;
	pthread_t taker;

	pthread_create(&taker, NULL, acknowledge_all, w.channel);
	for (int i = 0; i < 50000; i++) {
		assert_int_equal(rdma_create_id(w.channel, &id, NULL, RDMA_PS_TCP), 0);
		assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
		for (volatile int spin = rand() % 3000; spin > 0; spin--)
			;
		rdma_destroy_id(id);
	}
	assert_int_equal(rdma_create_id(w.channel, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&here), 0);
	assert_int_equal(rdma_join_multicast(id, (struct sockaddr *)&group, NULL), 0);
	pthread_join(taker, NULL);
	rdma_destroy_id(id);
}

/* As rping's: with the event that ends the program it goes back to wait for more, while the channel goes. */
static struct {
	struct rdma_event_channel *channel;
	sem_t has_event, may_go_on;
	int fd;    /* the channel's, for when it is gone */
	int error; /* of the last call */
} back;

static void take_one(void)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(back.channel, &e), 0);
	assert_int_equal(rdma_ack_cm_event(e), 0);
	sem_post(&back.has_event);
}

static void *take_and_look_again(void *arg)
{
	struct rdma_cm_event *e;

	take_one();
	sem_wait(&back.may_go_on);
	fcntl(back.channel->fd, F_SETFL, O_NONBLOCK);
	back.error = rdma_get_cm_event(back.channel, &e) ? errno : 0;
	return NULL;
}

static void *take_and_wait_again(void *arg)
{
	struct rdma_cm_event *e;

	take_one();
	rdma_get_cm_event(back.channel, &e);
	return NULL;
}

/* Destroys the channel when the thread has had its event. */
static pthread_t end_beside(void *(*thread)(void *))
{
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));
	struct rdma_cm_id *id;
	pthread_t taker;

	sem_init(&back.has_event, 0, 0);
	sem_init(&back.may_go_on, 0, 0);
	back.channel = rdma_create_event_channel();
	back.fd = back.channel->fd;
	assert_int_equal(pthread_create(&taker, NULL, thread, NULL), 0);
	assert_int_equal(rdma_create_id(back.channel, &id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), 0);
	sem_wait(&back.has_event);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(back.channel);
	return taker;
}

static void a_channel_stays_for_who_comes_back(void **state)
{
	pthread_t taker = end_beside(take_and_look_again);

	sem_post(&back.may_go_on);
	pthread_join(taker, NULL);
	assert_int_equal(back.error, EAGAIN);
	assert_int_equal(fcntl(back.fd, F_GETFD), -1);
}

static void a_channel_stays_for_who_waits(void **state)
{
	pthread_t taker = end_beside(take_and_wait_again);

	assert_int_not_equal(fcntl(back.fd, F_GETFD), -1);
	pthread_cancel(taker);
	pthread_join(taker, NULL);
	assert_int_equal(fcntl(back.fd, F_GETFD), -1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(both_disconnect_at_once),
		TEST(an_id_that_is_destroyed_disconnects),
		TEST(destroying_waits_for_acknowledges),
		TEST(events_move_with_their_id),
		TEST(moving_to_where_it_is_moves_nothing),
		TEST(what_a_request_has_heard_moves_with_the_listener),
		TEST(ids_end_beside_a_thread_that_takes_events),
		TEST(a_channel_stays_for_who_comes_back),
		TEST(a_channel_stays_for_who_waits),
		TEST(a_full_backlog_loses_nobody),
		TEST(threads_share_a_channel),
		TEST(a_child_begins_anew),
		TEST(endpoints_connect),
		TEST(what_goes_wrong_with_endpoints_has_a_name),
		TEST(both_sides_learn_the_others_ece),
	};

	if (argc == 2)
		cmocka_set_skip_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
