/* SPDX-License-Identifier: MIT */
/* Which addresses and ports an id may have, what a wrong one is called, and what becomes of options. */
#include "world.h"

#include "../surroundings.h"

#include <infiniband/sa.h>
#include <linux/capability.h>
#include <sys/syscall.h>

static struct sockaddr_in6 loopback6(__be16 port)
{
	return (struct sockaddr_in6){
		.sin6_family = AF_INET6, .sin6_port = port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
}

static struct sockaddr_in any4(__be16 port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = port};
}

static struct sockaddr_in6 any6(__be16 port)
{
	return (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = port};
}

static struct rdma_cm_id *new_id(enum rdma_port_space ps)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(w.channel, &id, NULL, ps), 0);
	return id;
}

static void set(struct rdma_cm_id *id, int option, int value)
{
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, option, &value, sizeof(value)), 0);
}

static void set_byte(struct rdma_cm_id *id, int option, uint8_t value)
{
	assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, option, &value, 1), 0);
}

/* 0 or errno */
static int bound(struct rdma_cm_id *id, void *addr)
{
	return rdma_bind_addr(id, addr) ? errno : 0;
}

/* Binds an id of its own to it: 0 or errno. */
static int tried(enum rdma_port_space ps, void *addr)
{
	struct rdma_cm_id *id = new_id(ps);
	int err = bound(id, addr);

	destroy(&id);
	return err;
}

static void each_port_space_has_ports_of_its_own(void **state)
{
	static const enum rdma_port_space spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB};
	struct sockaddr_in sa = loopback(0);

	for (unsigned i = 0; i < 4; i++) {
		struct rdma_cm_id *id = new_id(spaces[i]);
		struct sockaddr_in free_one = loopback(0);

		assert_int_equal(bound(id, &free_one), 0);
		assert_int_not_equal(rdma_get_src_port(id), 0);
		if (!i)
			sa.sin_port = rdma_get_src_port(id);
		else
			assert_int_equal(tried(spaces[i], &sa), 0);
		/* Linux has no device for this address; libfabric asks so for all there are. */
		assert_int_equal(!id->verbs, spaces[i] == RDMA_PS_TCP);
		if (spaces[i] == RDMA_PS_TCP)
			assert_int_equal(rdma_listen(id, 1), 0);
		assert_non_null(id->verbs);
		assert_int_equal(id->port_num, 1);
		destroy(&id);
	}
}

static void a_wildcard_has_no_device_yet(void **state)
{
	struct rdma_cm_id *id = new_id(RDMA_PS_TCP);
	struct sockaddr_in6 sa = any6(0);

	assert_int_equal(bound(id, &sa), 0);
	assert_null(id->verbs);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	destroy(&id);
}

static void what_cannot_be_bound_is_said_as_linux_says_it(void **state)
{
	struct sockaddr_in taken = loopback(rdma_get_src_port(w.listener)), foreign = loopback(0);
	struct sockaddr_in wildcard = any4(taken.sin_port);
	struct sockaddr_in6 no_scope = any6(0);
	struct sockaddr_storage strange = {.ss_family = 27}; /* AF_IB */
	struct rdma_cm_id *id = new_id(RDMA_PS_TCP);

	foreign.sin_addr.s_addr = htonl(0xc0000201);
	assert_int_equal(inet_pton(AF_INET6, "fe80::1", &no_scope.sin6_addr), 1);
	assert_int_equal(tried(RDMA_PS_TCP, &taken), EADDRINUSE);
	assert_int_equal(tried(RDMA_PS_TCP, &wildcard), EADDRNOTAVAIL);
	assert_int_equal(tried(RDMA_PS_TCP, &foreign), EADDRNOTAVAIL);
	assert_int_equal(tried(RDMA_PS_TCP, &no_scope), EINVAL);
	assert_int_equal(tried(RDMA_PS_TCP, &strange), EAFNOSUPPORT);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&strange, 1000), -1);
	assert_int_equal(errno, EAFNOSUPPORT);
	foreign.sin_port = htons(7174);
	assert_int_equal(
		rdma_resolve_addr(id, (struct sockaddr *)&foreign, (struct sockaddr *)&taken, 1000), -1);
	assert_int_equal(errno, EADDRNOTAVAIL);
	destroy(&id);
	assert_int_equal(rdma_create_id(w.channel, &id, NULL, 0x4711), -1);
	assert_int_equal(errno, EINVAL);
}

/* Root in a test environment has the privilege; without it a low port is refused. */
static void low_ports_are_for_the_privileged(void **state)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct had[2], less[2];
	struct sockaddr_in sa = loopback(htons(911));
	FILE *f = fopen("/proc/sys/net/ipv4/ip_unprivileged_port_start", "r");
	int start = 1024;

	if (f) {
		assert_int_equal(fscanf(f, "%d", &start), 1);
		fclose(f);
	}
	assert_int_equal(syscall(SYS_capget, &head, had), 0);
	memcpy(less, had, sizeof(less));
	less[0].effective &= ~(1u << CAP_NET_BIND_SERVICE);
	assert_int_equal(syscall(SYS_capset, &head, less), 0);
	assert_int_equal(tried(RDMA_PS_TCP, &sa), start > 911 ? EACCES : 0);
	assert_int_equal(syscall(SYS_capset, &head, had), 0);
	if (had[0].effective & 1u << CAP_NET_BIND_SERVICE)
		assert_int_equal(tried(RDMA_PS_TCP, &sa), 0);
}

static void who_both_want_to_share_may_but_not_listen(void **state)
{
	struct rdma_cm_id *a = new_id(RDMA_PS_TCP), *b = new_id(RDMA_PS_TCP);
	struct sockaddr_in sa = loopback(0);

	set(a, RDMA_OPTION_ID_REUSEADDR, 1);
	assert_int_equal(bound(a, &sa), 0);
	sa.sin_port = rdma_get_src_port(a);
	assert_int_equal(tried(RDMA_PS_TCP, &sa), EADDRINUSE);
	set(b, RDMA_OPTION_ID_REUSEADDR, 1);
	assert_int_equal(bound(b, &sa), 0);
	assert_int_equal(rdma_listen(a, 1), -1);
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(rdma_listen(b, 1), -1);
	destroy(&a);
	assert_int_equal(rdma_listen(b, 1), 0);
	destroy(&b);
}

/* Both must say that they want only theirs. */
static void a_wildcard_of_one_family_leaves_the_other(void **state)
{
	struct rdma_cm_id *six = new_id(RDMA_PS_TCP), *four = new_id(RDMA_PS_TCP);
	struct sockaddr_in6 sa6 = any6(0);
	struct sockaddr_in sa4 = any4(0);

	set(six, RDMA_OPTION_ID_AFONLY, 1);
	assert_int_equal(bound(six, &sa6), 0);
	sa4.sin_port = rdma_get_src_port(six);
	assert_int_equal(tried(RDMA_PS_TCP, &sa4), EADDRNOTAVAIL);
	set(four, RDMA_OPTION_ID_AFONLY, 1);
	assert_int_equal(bound(four, &sa4), 0);
	assert_int_equal(rdma_listen(six, 1), 0);
	assert_int_equal(rdma_listen(four, 1), 0);
	destroy(&four);
	resolve_to(sa4.sin_port); /* IPv4: the listener of IPv6 only is not meant */
	make_qp(w.client);
	assert_int_equal(rdma_connect(w.client, NULL), 0);
	expect(RDMA_CM_EVENT_REJECTED, w.client);
	assert_int_equal(w.last.status, 8);
	destroy(&six);
}

static void the_program_chooses_where_it_comes_from(void **state)
{
	struct sockaddr_in6 from = loopback6(0), to;
	struct rdma_cm_id *listener, *id;

	if (!surroundings_ipv6())
		skip_because("there is no IPv6 here");
	listener = new_id(RDMA_PS_TCP);
	id = new_id(RDMA_PS_TCP);
	assert_int_equal(bound(listener, &from), 0);
	assert_int_equal(rdma_listen(listener, 0), 0);
	to = loopback6(rdma_get_src_port(listener));
	assert_int_equal(rdma_resolve_addr(id, (struct sockaddr *)&from, (struct sockaddr *)&to, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, id);
	assert_memory_equal(&id->route.addr.src_sin6.sin6_addr, &from.sin6_addr, 16);
	assert_int_not_equal(rdma_get_src_port(id), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 1000), -1); /* once is enough */
	assert_int_equal(errno, EINVAL);
	destroy(&id);
	destroy(&listener);
}

static struct ibv_qp_attr attributes_of(struct ibv_qp *qp)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_TIMEOUT | IBV_QP_AV, &init), 0);
	return attr;
}

/* The other side learns both by the REQ. */
static void options_reach_both_queue_pairs(void **state)
{
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));
	struct ibv_qp_attr client, server;

	w.client = new_id(RDMA_PS_TCP);
	set_byte(w.client, RDMA_OPTION_ID_TOS, 0x68);
	set_byte(w.client, RDMA_OPTION_ID_ACK_TIMEOUT, 19);
	assert_int_equal(rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, w.client);
	assert_int_equal(rdma_resolve_route(w.client, 1000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, w.client);
	assert_int_equal(w.client->route.path_rec->traffic_class, 0x68);
	make_qp(w.client);
	assert_int_equal(rdma_connect(w.client, NULL), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	make_qp(w.server);
	assert_int_equal(rdma_accept(w.server, NULL), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.client);
	client = attributes_of(w.client->qp);
	server = attributes_of(w.server->qp);
	assert_int_equal(client.ah_attr.grh.traffic_class, 0x68);
	assert_int_equal(server.ah_attr.grh.traffic_class, 0x68);
	assert_int_equal(client.timeout, 19);
	assert_int_equal(server.timeout, 19);
}

/* Too late for the REQ, in time for the queue pair of this side. */
static void a_timeout_may_be_chosen_until_the_connect(void **state)
{
	resolve_to(rdma_get_src_port(w.listener));
	make_qp(w.client);
	set_byte(w.client, RDMA_OPTION_ID_ACK_TIMEOUT, 21);
	assert_int_equal(rdma_connect(w.client, NULL), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	make_qp(w.server);
	set_byte(w.server, RDMA_OPTION_ID_ACK_TIMEOUT, 20);
	assert_int_equal(rdma_accept(w.server, NULL), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.client);
	assert_int_equal(attributes_of(w.client->qp).timeout, 21);
	assert_int_equal(attributes_of(w.server->qp).timeout, 20);
}

static void the_program_may_bring_a_path(void **state)
{
	struct sockaddr_in to = loopback(rdma_get_src_port(w.listener));
	struct ibv_path_data path = {
		.flags = IBV_PATH_FLAG_GMP | IBV_PATH_FLAG_PRIMARY | IBV_PATH_FLAG_BIDIRECTIONAL,
		.path = {.tclass = 0x20, .mtu = 2 << 6 | IBV_MTU_512, .packetlifetime = 2 << 6 | 17},
	};

	w.client = new_id(RDMA_PS_TCP);
	assert_int_equal(
		rdma_set_option(w.client, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(rdma_resolve_addr(w.client, NULL, (struct sockaddr *)&to, 1000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, w.client);
	assert_int_equal(rdma_set_option(w.client, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, 7), -1);
	assert_int_equal(
		rdma_set_option(w.client, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &path, sizeof(path)), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, w.client);
	assert_int_equal(w.client->route.path_rec->mtu, IBV_MTU_512);
	assert_int_equal(w.client->route.path_rec->traffic_class, 0x20);
	make_qp(w.client);
	assert_int_equal(rdma_connect(w.client, NULL), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(each_port_space_has_ports_of_its_own),
		TEST(a_wildcard_has_no_device_yet),
		TEST(what_cannot_be_bound_is_said_as_linux_says_it),
		TEST(low_ports_are_for_the_privileged),
		TEST(who_both_want_to_share_may_but_not_listen),
		TEST(a_wildcard_of_one_family_leaves_the_other),
		TEST(the_program_chooses_where_it_comes_from),
		TEST(options_reach_both_queue_pairs),
		TEST(a_timeout_may_be_chosen_until_the_connect),
		TEST(the_program_may_bring_a_path),
	};

	if (argc == 2)
		cmocka_set_skip_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
