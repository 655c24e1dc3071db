/* SPDX-License-Identifier: MIT */
/* What single events must lead to at an adapter whose iWARP connections go over a TCP in memory. */
#include "iwarp/port.h"
#include "link/tcp.h"
#include "sim_tcp.h"
#include "sim_world.h"

#include "base/gid.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { PORT = 7000, SMALL = 16 /* bytes: less than a reply */, ROUNDS_MOST = 100 };

static struct {
	struct sim_world w;
	struct choices c;
	uint64_t now;
	struct iwarp_conn *asks; /* its request was told */
} t;

static struct hca_adapter *adapter(void)
{
	return &t.w.node[0].adapter;
}

static bool tell(struct iwarp_conn *c, const struct iwarp_conn_event *e)
{
	if (e->type == IWARP_CONN_REQUEST)
		t.asks = c;
	return true;
}

static bool has_work(void)
{
	struct iwarp_port *p = iwarp_port_in(adapter());

	return sim_tcp_ready(p->epfd) || !list_empty(&adapter()->engine.runnable) ||
	       atomic_load(&p->tidy_wanted) || adapter()->engine.next_timer <= t.now;
}

/* The node does what there is to do, which comes to an end. */
static void drive(void)
{
	for (unsigned rounds = 0; has_work(); rounds++) {
		assert_in_range(rounds, 0, ROUNDS_MOST);
		atomic_fetch_or(&adapter()->engine.woken, iwarp_port_in(adapter())->provider.bit);
		hca_engine_drive(&adapter()->engine);
	}
}

static void wait_for(uint64_t ns)
{
	uint64_t until = t.now + ns;

	do {
		uint64_t next = sim_tcp_next();

		t.now = next > t.now && next < until ? next : until;
		sim_clock_set(t.w.net, t.now);
		sim_tcp_run();
		drive();
	} while (t.now < until);
}

static int open_world(void **state)
{
	static const struct sim_tcp_rules rules = {.delay = SIM_US, .buffer = SMALL, .mss = 1000};

	memset(&t, 0, sizeof(t));
	t.now = 1000;
	sim_tcp_open(&rules, &t.c, &t.now);
	sim_world_init(&t.w, 1, 1, false);
	sim_clock_set(t.w.net, t.now);
	t.w.node[0].dev.kind = HCA_IWARP;
	return iwarp_port_open(adapter());
}

static int close_world(void **state)
{
	sim_world_fini(&t.w);
	return !sim_tcp_close();
}

/* A stranger that speaks MPA's first revision, at the node's own address. */
static int connect_stranger(void)
{
	struct sockaddr_storage from = {0}, to = {0};
	int fd;

	gid_to_sockaddr(t.w.node[0].gid, 0, 0, &from);
	gid_to_sockaddr(t.w.node[0].gid, PORT, 0, &to);
	fd = link_tcp_connect((struct sockaddr *)&from, (struct sockaddr *)&to, 0);
	assert_true(fd >= 0);
	wait_for(SIM_MS);
	assert_int_equal(link_tcp_connected(fd, &from), 0);
	return fd;
}

static void say(int fd, const char *bytes, size_t len)
{
	while (len) {
		struct iovec iov = {(void *)bytes, len};
		ssize_t n = link_tcp_send(fd, &iov, 1);

		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
		wait_for(SIM_MS);
	}
}

/* It reads nothing and says that nothing more comes: who answers waits for room, without a look at that. */
static void reply_without_room_waits_for_it_alone(void **state)
{
	struct iwarp_conn *listener = iwarp_conn_new(adapter(), tell, NULL, NULL);
	struct hca_cq *cq = sim_cq(&t.w.node[0], 16);
	struct sim_qp_opts o = sim_qp_opts(cq);
	struct hca_qp *qp = sim_qp(&t.w.node[0], &o);
	struct iwarp_conn_param param = {.qpn = hca_qpn(qp), .ird = 1, .ord = 1};
	struct sockaddr_storage at = {0};
	int fd;

	gid_to_sockaddr(t.w.node[0].gid, PORT, 0, &at);
	assert_int_equal(iwarp_conn_listen(adapter(), listener, (struct sockaddr *)&at, true, 16), 0);
	fd = connect_stranger();
	say(fd, "MPA ID Req Frame\x40\x01\x00\x00", 20);
	assert_non_null(t.asks);
	link_tcp_finish(fd);
	wait_for(SIM_MS);
	assert_int_equal(iwarp_conn_accept(adapter(), t.asks, &param), 0);
	wait_for(SIM_S);
	close(fd);
	iwarp_conn_close(t.asks);
	iwarp_conn_close(listener);
	wait_for(200 * SIM_S);
	assert_int_equal(hca_qp_destroy(qp), 0);
	hca_cq_destroy(cq);
	wait_for(10 * SIM_S);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			reply_without_room_waits_for_it_alone, open_world, close_world),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
