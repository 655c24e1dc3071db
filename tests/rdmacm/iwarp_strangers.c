/* SPDX-License-Identifier: MIT */
/* Peers at the port of a listener who speak something else, slowly, or not at all. */
#include "iwarp.h"

#include "world.h"

#include <poll.h>
#include <sys/resource.h>

int iw_stranger(__be16 port, const void *bytes, size_t len)
{
	struct sockaddr_in to = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	if (len)
		assert_int_equal(send(fd, bytes, len, 0), len);
	return fd;
}

bool iw_hung_up(int fd)
{
	char byte;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 15000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

void strangers_are_sent_away_and_others_served(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	uint8_t reply[20] = "MPA ID Rep Frame\0\1\0\0", long_one[20] = "MPA ID Req Frame\0\1\xff\xff",
		half[20] = "MPA ID Req Frame\0\1\0\x10";
	struct rdma_cm_id *listener = iw_listen(8);
	__be16 port = rdma_get_src_port(listener);
	int silent = iw_stranger(port, "", 0), begun = iw_stranger(port, half, 7),
	    waiting = iw_stranger(port, half, 20);
	int fd[] = {iw_stranger(port, http, sizeof(http) - 1), iw_stranger(port, reply, 20),
		iw_stranger(port, long_one, 20)};

	for (int i = 0; i < 10; i++)
		iw_once(listener);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(iw_hung_up(fd[i]));
		close(fd[i]);
	}
	close(begun);
	iw_once(listener);
	/* Who says nothing is sent away after ten seconds. */
	assert_true(iw_hung_up(silent));
	assert_true(iw_hung_up(waiting));
	close(silent);
	close(waiting);
	iw_end(listener);
}

/* Those who say nothing get a quarter of the program's descriptors; who comes takes the place of the oldest.
 */
void silent_crowd_keeps_nobody_out(void **state)
{
	enum { CROWD = 400, QUARTER = 300 };
	struct rdma_cm_id *listener = iw_listen(128);
	struct rlimit all, some;
	int silent[CROWD], before;

	iw_once(listener);
	before = open_files();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	some = (struct rlimit){4 * QUARTER, all.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &some), 0);
	for (unsigned i = 0; i < CROWD; i++)
		silent[i] = iw_stranger(rdma_get_src_port(listener), "", 0);
	iw_once(listener); /* it came behind them, so all of them have been let in */
	assert_in_range(open_files() - before, CROWD, CROWD + QUARTER);
	assert_true(iw_hung_up(silent[0]));
	for (unsigned i = 0; i < CROWD; i++)
		close(silent[i]);
	iw_end(listener);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
}

/* What the processor did for us: on a busy machine a thousand polls may not fit between two turns of others.
 */
static uint64_t empty_polls(void)
{
	struct timespec began, ended;
	struct ibv_wc wc;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(iw_cq, 1, &wc), 0);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
	return (uint64_t)(ended.tv_sec - began.tv_sec) * 1000000000 + (uint64_t)ended.tv_nsec -
	       (uint64_t)began.tv_nsec;
}

/* The quickest of many: others have its caches, too. */
static uint64_t quickest(uint64_t enough)
{
	uint64_t best = UINT64_MAX;

	for (int i = 0; i < 100 && best > enough; i++) {
		uint64_t now = empty_polls();

		best = now < best ? now : best;
	}
	return best;
}

/* Whoever polls a connection does not walk past those that say nothing. */
void silent_crowd_slows_nobody_down(void **state)
{
	enum { CROWD = 2500 };
	struct rdma_cm_id *listener, *client, *server;
	struct rlimit all, many;
	static int silent[CROWD];
	uint64_t alone;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	many = (struct rlimit){all.rlim_max, all.rlim_max};
	if (SANITIZED)
		skip_because("measures time");
	if (many.rlim_cur < 5 * CROWD || setrlimit(RLIMIT_NOFILE, &many))
		skip_because("this process may not open as many descriptors");
	listener = iw_listen(4096);
	client = iw_connect_to(rdma_get_src_port(listener), "x", 1);
	server = iw_asked(listener);
	iw_accepted(server, client);
	alone = quickest(0);
	for (unsigned i = 0; i < CROWD; i++)
		silent[i] = iw_stranger(rdma_get_src_port(listener), "", 0);
	iw_once(listener);
	assert_in_range(quickest(2 * alone), 0, 2 * alone);
	for (unsigned i = 0; i < CROWD; i++)
		close(silent[i]);
	iw_end(client);
	iw_end(server);
	iw_end(listener);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
}

/* More private data than a program can be told of; the peer is a stranger by its own code. */
void longest_private_data_is_cut(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8), *server;
	uint8_t req[20 + 512] = "MPA ID Req Frame\0\1\2\0", answer[20];
	int fd;

	memset(req + 20, 0x5a, 512);
	fd = iw_stranger(rdma_get_src_port(listener), req, sizeof(req));
	server = iw_asked(listener);
	assert_int_equal(w.last.param.conn.private_data_len, 255);
	iw_give_qp(server);
	assert_int_equal(rdma_accept(server, NULL), 0);
	iw_next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(recv(fd, answer, 20, MSG_WAITALL), 20);
	assert_memory_equal(answer, "MPA ID Rep Frame\0\1\0\0", 20);
	close(fd);
	iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	iw_end(server);
	iw_end(listener);
}

/* A WRITE of no bytes, which is what a peer says first, and nothing it ever reads. */
static int deaf_stranger(struct rdma_cm_id *listener, struct rdma_cm_id **server)
{
	static const uint8_t req[40] = "MPA ID Req Frame\0\1\0\0\0\x0e\xc1\x40\0\0\0\1";
	int fd = iw_stranger(rdma_get_src_port(listener), req, sizeof(req));

	*server = iw_asked(listener);
	iw_give_qp(*server);
	assert_int_equal(rdma_accept(*server, NULL), 0);
	iw_next((*server)->channel, RDMA_CM_EVENT_ESTABLISHED);
	return fd;
}

static void write_and_wait(struct rdma_cm_id *id, struct ibv_mr *mr, uint32_t len, bool wait)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, len, mr->lkey};
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma.rkey = 1},
			   *bad;
	struct ibv_wc wc;

	assert_int_equal(ibv_post_send(id->qp, &wr, &bad), 0);
	while (wait && !ibv_poll_cq(iw_cq, 1, &wc))
		;
}

/* A peer that reads nothing, as one that is stopped in a debugger, keeps nobody for longer than a few
 * seconds. */
void stuck_peer_does_not_hold_the_end(void **state)
{
	enum { MUCH = 64 << 20 };
	struct rdma_cm_id *listener = iw_listen(8), *server;
	struct timespec began, ended;
	int fd = deaf_stranger(listener, &server);
	struct ibv_mr *mr = ibv_reg_mr(iw_pd, calloc(1, MUCH), MUCH, IBV_ACCESS_LOCAL_WRITE);
	void *much = mr->addr;

	write_and_wait(server, mr, 8, true);
	write_and_wait(server, mr, MUCH, false); /* the socket has no more room now */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &began);
	assert_int_equal(rdma_disconnect(server), 0);
	iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
	assert_in_range(ended.tv_sec - began.tv_sec, 0, 30); /* TCP itself would take 57 */
	assert_int_equal(ibv_dereg_mr(mr), 0);
	free(much);
	close(fd);
	iw_end(server);
	iw_end(listener);
}
