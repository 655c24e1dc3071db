/* SPDX-License-Identifier: MIT */
/*
 * What strangers' programs do not try of rdma_cm on a fabric (on_fabric.sh): ours is the first host, and a
 * child on another does what it is told. Last, the fabric dies.
 */
#include "world.h"

#include <endian.h>
#include <fcntl.h>
#include <infiniband/ib.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum { PORT = 7300, CM_IP = 36 };

/* ---- addresses ---- */
static struct sockaddr_in any(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
}

static uint64_t service_id(enum rdma_port_space ps, uint16_t port)
{
	return (uint64_t)ps << 16 | port;
}

static struct sockaddr_ib by_gid(const union ibv_gid *gid, uint64_t service)
{
	struct sockaddr_ib sib = {.sib_family = AF_IB,
		.sib_pkey = htobe16(UINT16_MAX),
		.sib_sid = htobe64(service),
		.sib_sid_mask = htobe64(UINT64_MAX)};

	memcpy(&sib.sib_addr, gid, 16);
	return sib;
}

static union ibv_gid own_gid(void)
{
	struct ibv_context **all = rdma_get_devices(NULL);
	union ibv_gid gid;

	assert_non_null(all);
	assert_int_equal(ibv_query_gid(all[0], 1, 0, &gid), 0);
	rdma_free_devices(all);
	return gid;
}

static struct rdma_cm_id *new_id(void)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(w.channel, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

/* ---- the other host ---- */
struct order {
	union ibv_gid gid;
	uint64_t service;
	uint8_t priv[CM_IP];
};

static int other = -1; /* -1: none */
static pid_t child;

/* Asks by GID, with private data of its own; what became of it. */
static enum rdma_cm_event_type ask_by_gid(const struct order *o)
{
	struct sockaddr_ib to = by_gid(&o->gid, o->service);
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	struct rdma_conn_param param = {.private_data = o->priv, .private_data_len = CM_IP};
	enum rdma_cm_event_type end;
	struct rdma_cm_event *e;

	w.client = new_id();
	if (rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 5000))
		return RDMA_CM_EVENT_ADDR_ERROR;
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, w.client);
	rdma_resolve_route(w.client, 5000);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, w.client);
	attr.send_cq = attr.recv_cq = ibv_create_cq(w.client->verbs, 4, NULL, NULL, 0);
	assert_int_equal(rdma_create_qp(w.client, NULL, &attr), 0);
	assert_int_equal(rdma_connect(w.client, &param), 0);
	assert_int_equal(rdma_get_cm_event(w.channel, &e), 0);
	end = e->event;
	rdma_ack_cm_event(e);
	destroy(&w.client);
	return end;
}

static void obey(int fd)
{
	struct order o;

	setenv("ANYRDMA_HOST", getenv("RDMACM_OTHER_HOST"), 1);
	w.channel = rdma_create_event_channel();
	while (read(fd, &o, sizeof(o)) == (ssize_t)sizeof(o)) {
		int end = (int)ask_by_gid(&o);

		if (write(fd, &end, sizeof(end)) != (ssize_t)sizeof(end))
			break;
	}
	_exit(0);
}

static int begin(void **state)
{
	int fd[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd))
		return -1;
	child = fork();
	if (!child) {
		close(fd[0]);
		obey(fd[1]);
	}
	close(fd[1]);
	other = fd[0];
	w.channel = rdma_create_event_channel();
	return w.channel ? 0 : -1;
}

static int end(void **state)
{
	kill(child, SIGKILL);
	close(other);
	waitpid(child, NULL, 0);
	rdma_destroy_event_channel(w.channel);
	return 0;
}

static void order(uint64_t service, const uint8_t priv[CM_IP])
{
	struct order o = {.gid = own_gid(), .service = service};

	memcpy(o.priv, priv, CM_IP);
	assert_int_equal(write(other, &o, sizeof(o)), sizeof(o));
}

static void outcome(enum rdma_cm_event_type wanted)
{
	int was;

	assert_int_equal(read(other, &was, sizeof(was)), sizeof(was));
	assert_int_equal(was, wanted);
}

/* ---- who may come ---- */
/* As a request by IP says it: from whose address, to which. */
static void say_ip(uint8_t priv[CM_IP], const char *from, const char *to)
{
	memset(priv, 0, CM_IP);
	priv[1] = 4 << 4;
	assert_int_equal(inet_pton(AF_INET, from, priv + 16), 1);
	assert_int_equal(inet_pton(AF_INET, to, priv + 32), 1);
}

/* Until the other host knows what became of it: a request is looked at when the program takes its events. */
static void nobody_asks(void)
{
	struct pollfd p[] = {{other, POLLIN, 0}, {w.channel->fd, POLLIN, 0}};
	int flags = fcntl(w.channel->fd, F_GETFL);
	struct rdma_cm_event *e;

	fcntl(w.channel->fd, F_SETFL, flags | O_NONBLOCK);
	do {
		assert_true(poll(p, 2, -1) > 0);
		assert_int_equal(rdma_get_cm_event(w.channel, &e), -1);
	} while (!p[0].revents);
	fcntl(w.channel->fd, F_SETFL, flags);
}

static void loopback_is_for_this_host_alone(void **state)
{
	struct sockaddr_in lo = loopback(htons(PORT));
	uint8_t priv[CM_IP];

	w.listener = new_id();
	assert_int_equal(rdma_bind_addr(w.listener, (struct sockaddr *)&lo), 0);
	assert_int_equal(rdma_listen(w.listener, 4), 0);
	say_ip(priv, getenv("RDMACM_OTHER_IP"), "127.0.0.1");
	order(service_id(RDMA_PS_TCP, PORT), priv);
	nobody_asks();
	outcome(RDMA_CM_EVENT_REJECTED);
	destroy(&w.listener);
}

static void nobody_asks_in_anothers_name(void **state)
{
	struct sockaddr_in here = any(PORT);
	uint8_t priv[CM_IP];

	w.listener = new_id();
	assert_int_equal(rdma_bind_addr(w.listener, (struct sockaddr *)&here), 0);
	assert_int_equal(rdma_listen(w.listener, 4), 0);
	say_ip(priv, getenv("RDMACM_OWN_IP"), getenv("RDMACM_OWN_IP"));
	order(service_id(RDMA_PS_TCP, PORT), priv);
	nobody_asks();
	outcome(RDMA_CM_EVENT_REJECTED);
	say_ip(priv, "10.47.0.77", getenv("RDMACM_OWN_IP")); /* no host's */
	order(service_id(RDMA_PS_TCP, PORT), priv);
	nobody_asks();
	outcome(RDMA_CM_EVENT_REJECTED);
	destroy(&w.listener);
}

/* ---- service ids ---- */
/* Bound to this service of our port: its own then, 0: it is refused. */
static uint64_t bound_to(enum rdma_port_space ps, uint64_t service, uint64_t mask)
{
	union ibv_gid gid = own_gid();
	struct sockaddr_ib sib = by_gid(&gid, service);
	uint64_t is = 0;

	sib.sib_sid_mask = htobe64(mask);
	assert_int_equal(rdma_create_id(w.channel, &w.client, NULL, ps), 0);
	if (!rdma_bind_addr(w.client, (struct sockaddr *)&sib))
		is = be64toh(((struct sockaddr_ib *)rdma_get_local_addr(w.client))->sib_sid);
	else
		assert_int_equal(errno, EPROTONOSUPPORT);
	destroy(&w.client);
	return is;
}

static void service_is_the_one_that_it_says(void **state)
{
	const uint64_t tcp = service_id(RDMA_PS_TCP, PORT), udp = service_id(RDMA_PS_UDP, PORT);

	assert_int_equal(bound_to(RDMA_PS_TCP, tcp, UINT64_MAX), tcp);
	assert_int_equal(bound_to(RDMA_PS_IB, tcp, UINT64_MAX), tcp);
	assert_int_equal(bound_to(RDMA_PS_IB, udp, UINT64_MAX), udp);
	assert_int_equal(bound_to(RDMA_PS_TCP, udp, UINT64_MAX), 0);
	assert_int_equal(bound_to(RDMA_PS_IB, 7, UINT64_MAX), 0);
	assert_int_equal(bound_to(RDMA_PS_TCP, udp, RDMA_IB_IP_PORT_MASK), tcp);
	assert_int_equal(bound_to(RDMA_PS_TCP, udp, 0) >> 16, RDMA_PS_TCP);
	assert_int_not_equal(bound_to(RDMA_PS_TCP, udp, 0), tcp); /* a port is chosen */
}

/* ---- a fabric that is away ---- */
static void kill_fabric(void)
{
	struct ibv_context **all;

	kill(atoi(getenv("RDMACM_FABRIC")), SIGKILL);
	do { /* whoever looks at devices sees that it is gone */
		struct ibv_port_attr port;

		all = rdma_get_devices(NULL);
		assert_int_equal(ibv_query_port(all[0], 1, &port), 0);
		rdma_free_devices(all);
		ibv_free_device_list(ibv_get_device_list(NULL));
		if (port.state != IBV_PORT_ACTIVE)
			break;
	} while (true);
}

/* Takes connections, and says nothing. */
static int mute_fabric(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_int_equal(chdir(getenv("RDMACM_FABRIC_DIR")), 0);
	unlink("attach");
	strcpy(at.sun_path, "attach");
	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 100), 0);
	return fd;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void nobody_waits_for_a_fabric_that_is_away(void **state)
{
	union ibv_gid gid = own_gid();
	struct sockaddr_ib to = by_gid(&gid, service_id(RDMA_PS_TCP, PORT));
	struct sockaddr_in here = any(PORT);
	double before;
	int mute;

	w.listener = new_id();
	assert_int_equal(rdma_bind_addr(w.listener, (struct sockaddr *)&here), 0);
	w.client = new_id();
	assert_int_equal(rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 5000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, w.client);
	kill_fabric();

	/* a port of its host is taken all the same */
	w.server = new_id();
	assert_int_equal(rdma_bind_addr(w.server, (struct sockaddr *)&here), -1);
	assert_int_equal(errno, EADDRNOTAVAIL);

	/* who asks for a device waits ten seconds for an answer; a question has its own time */
	mute = mute_fabric();
	before = seconds();
	assert_int_equal(rdma_resolve_route(w.client, 100), 0);
	expect(RDMA_CM_EVENT_ROUTE_ERROR, w.client);
	assert_int_equal(w.last.status, -ETIMEDOUT);
	assert_true(seconds() - before < 5);
	close(mute);
	destroy(&w.server);
	destroy(&w.client);
	destroy(&w.listener);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loopback_is_for_this_host_alone),
		cmocka_unit_test(nobody_asks_in_anothers_name),
		cmocka_unit_test(service_is_the_one_that_it_says),
		cmocka_unit_test(nobody_waits_for_a_fabric_that_is_away), /* it dies: the last */
	};

	mallopt(M_PERTURB, 0xa5); /* who looks at what was freed does not find it */
	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, begin, end);
}
