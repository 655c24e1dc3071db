/* SPDX-License-Identifier: MIT */
/*
 * librdmacm over iWARP, whose ports are TCP ports and whose requests are MPA's: what is different there, and
 * strangers at the port who speak something else, or nothing. Each id has a channel of its own, since the
 * order of events is each end's own.
 */
#include "world.h"

#include "base/gid.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static struct ibv_pd *pd;
static struct ibv_cq *cq;

static struct rdma_cm_id *new_id(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	assert_non_null(ch);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

static void end(struct rdma_cm_id *id)
{
	struct rdma_event_channel *ch = id->channel;

	if (id->qp)
		rdma_destroy_qp(id);
	assert_int_equal(rdma_destroy_id(id), 0);
	rdma_destroy_event_channel(ch);
}

/* The next event of a channel, which must be this one, in w.last. */
static void next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
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

static struct rdma_cm_id *listen_with(int backlog)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_in any = loopback(0);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, backlog), 0);
	assert_int_equal(id->verbs->device->transport_type, IBV_TRANSPORT_IWARP);
	if (!pd) {
		pd = ibv_alloc_pd(id->verbs);
		cq = ibv_create_cq(id->verbs, 64, NULL, NULL, 0);
	}
	return id;
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};

	assert_int_equal(rdma_create_qp(id, pd, &attr), 0);
}

static struct rdma_cm_id *connect_by(const void *to, const void *priv, uint8_t len)
{
	struct rdma_conn_param p = {.private_data = priv,
		.private_data_len = len,
		.responder_resources = 3,
		.initiator_depth = 5};
	struct rdma_cm_id *id = new_id();

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)to, 1000), 0);
	next(id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	next(id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	give_qp(id);
	assert_int_equal(rdma_connect(id, &p), 0);
	return id;
}

static struct rdma_cm_id *connect_to(__be16 port, const void *priv, uint8_t len)
{
	struct sockaddr_in to = loopback(port);

	return connect_by(&to, priv, len);
}

/* The request that comes next, on a channel of its own. */
static struct rdma_cm_id *asked(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *id;

	next(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	id = w.last.id;
	assert_int_equal(rdma_migrate_id(id, rdma_create_event_channel()), 0);
	return id;
}

static void accepted(struct rdma_cm_id *server, struct rdma_cm_id *client)
{
	give_qp(server);
	assert_int_equal(rdma_accept(server, NULL), 0);
	next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	next(client->channel, RDMA_CM_EVENT_ESTABLISHED);
}

static void once(struct rdma_cm_id *listener)
{
	struct rdma_cm_id *client = connect_to(rdma_get_src_port(listener), "x", 1),
			  *server = asked(listener);

	accepted(server, client);
	assert_int_equal(rdma_disconnect(client), 0);
	next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	next(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	end(client);
	end(server);
}

static void private_data_has_its_length(void **state)
{
	struct rdma_cm_id *listener = listen_with(8), *client, *server;
	uint8_t data[255];
	struct rdma_conn_param p = {.private_data = data, .private_data_len = 255, .responder_resources = 2};

	for (int i = 0; i < 255; i++)
		data[i] = (uint8_t)i;
	client = connect_to(rdma_get_src_port(listener), data, 255);
	server = asked(listener);
	assert_int_equal(w.last.param.conn.private_data_len, 255);
	assert_memory_equal(w.priv, data, 255);
	assert_int_equal(w.last.param.conn.responder_resources, 5);
	assert_int_equal(w.last.param.conn.initiator_depth, 3);
	assert_int_equal(rdma_get_dst_port(server) != 0, 1);
	give_qp(server);
	assert_int_equal(rdma_accept(server, &p), 0);
	next(client->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(w.last.param.conn.private_data_len, 255);
	assert_memory_equal(w.priv, data, 255);
	assert_int_equal(w.last.param.conn.initiator_depth, 2);
	/* The port is TCP's, on both ends the same. */
	assert_int_equal(rdma_get_src_port(client), rdma_get_dst_port(server));
	end(client);
	end(server);
	end(listener);
}

static void rejection_brings_its_data(void **state)
{
	struct rdma_cm_id *listener = listen_with(8),
			  *client = connect_to(rdma_get_src_port(listener), NULL, 0),
			  *server = asked(listener);

	assert_int_equal(w.last.param.conn.private_data_len, 0);
	assert_int_equal(rdma_reject(server, "not today", 9), 0);
	next(client->channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(w.last.status, -ECONNREFUSED);
	assert_int_equal(w.last.param.conn.private_data_len, 9);
	assert_memory_equal(w.priv, "not today", 9);
	end(client);
	end(server);
	end(listener);
}

static void nobody_listens(void **state)
{
	struct rdma_cm_id *listener = listen_with(8), *client;
	__be16 port = rdma_get_src_port(listener);

	end(listener);
	client = connect_to(port, NULL, 0);
	next(client->channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(w.last.status, -ECONNREFUSED);
	end(client);
}

/* An IPv4 address written as an IPv6 one: tried again like any other. */
static void nobody_listens_at_a_mapped_address(void **state)
{
	struct rdma_cm_id *listener = listen_with(8), *client;
	struct sockaddr_in6 to = {.sin6_family = AF_INET6, .sin6_port = rdma_get_src_port(listener)};

	assert_int_equal(inet_pton(AF_INET6, "::ffff:127.0.0.1", &to.sin6_addr), 1);
	end(listener);
	client = connect_by(&to, NULL, 0);
	next(client->channel, RDMA_CM_EVENT_REJECTED);
	assert_int_equal(w.last.status, -ECONNREFUSED);
	end(client);
}

static void request_nobody_answers_ends_with_its_id(void **state)
{
	struct rdma_cm_id *listener = listen_with(8),
			  *client = connect_to(rdma_get_src_port(listener), NULL, 0),
			  *server = asked(listener);

	end(server);
	next(client->channel, RDMA_CM_EVENT_REJECTED);
	end(client);
	client = connect_to(rdma_get_src_port(listener), NULL, 0);
	end(listener); /* with the request in its queue, or on the way there */
	next(client->channel, RDMA_CM_EVENT_REJECTED);
	end(client);
}

static void full_backlog_loses_nobody(void **state)
{
	enum { CLIENTS = 12 };
	struct rdma_cm_id *listener = listen_with(2), *client[CLIENTS], *server;

	for (int i = 0; i < CLIENTS; i++)
		client[i] = connect_to(rdma_get_src_port(listener), &i, sizeof(i));
	for (int i = 0; i < CLIENTS; i++) {
		int who;

		server = asked(listener);
		memcpy(&who, w.priv, sizeof(who));
		accepted(server, client[who]);
		end(server);
	}
	for (int i = 0; i < CLIENTS; i++) {
		next(client[i]->channel, RDMA_CM_EVENT_DISCONNECTED);
		end(client[i]);
	}
	end(listener);
}

static void either_end_may_disconnect_or_go(void **state)
{
	struct rdma_cm_id *listener = listen_with(8);

	for (int how = 0; how < 4; how++) {
		struct rdma_cm_id *client = connect_to(rdma_get_src_port(listener), "x", 1),
				  *server = asked(listener);
		struct rdma_cm_id *first = how % 2 ? client : server, *other = how % 2 ? server : client;

		accepted(server, client);
		if (how < 2) {
			assert_int_equal(rdma_disconnect(first), 0);
			next(first->channel, RDMA_CM_EVENT_DISCONNECTED);
			assert_int_equal(rdma_disconnect(first), 0); /* nothing to say any more */
		} else {
			end(first);
		}
		next(other->channel, RDMA_CM_EVENT_DISCONNECTED);
		if (how < 2)
			end(first);
		end(other);
	}
	end(listener);
}

static void many_connects_leave_nothing(void **state)
{
	struct rdma_cm_id *listener = listen_with(8);
	int before;

	once(listener);
	before = open_files();
	for (int i = 0; i < 300; i++)
		once(listener);
	assert_int_equal(open_files(), before);
	end(listener);
}

/* ---- strangers ---- */
static int stranger(__be16 port, const void *bytes, size_t len)
{
	struct sockaddr_in to = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
	if (len)
		assert_int_equal(send(fd, bytes, len, 0), len);
	return fd;
}

static bool hung_up(int fd)
{
	char byte;
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 15000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

static void strangers_are_sent_away_and_others_served(void **state)
{
	static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	uint8_t reply[20] = "MPA ID Rep Frame\0\1\0\0", long_one[20] = "MPA ID Req Frame\0\1\xff\xff",
		half[20] = "MPA ID Req Frame\0\1\0\x10";
	struct rdma_cm_id *listener = listen_with(8);
	__be16 port = rdma_get_src_port(listener);
	int silent = stranger(port, "", 0), begun = stranger(port, half, 7),
	    waiting = stranger(port, half, 20);
	int fd[] = {stranger(port, http, sizeof(http) - 1), stranger(port, reply, 20),
		stranger(port, long_one, 20)};

	for (int i = 0; i < 10; i++)
		once(listener);
	for (unsigned i = 0; i < 3; i++) {
		assert_true(hung_up(fd[i]));
		close(fd[i]);
	}
	close(begun);
	once(listener);
	/* Who says nothing is sent away after ten seconds. */
	assert_true(hung_up(silent));
	assert_true(hung_up(waiting));
	close(silent);
	close(waiting);
	end(listener);
}

/* Those who say nothing get a quarter of the program's descriptors; who comes takes the place of the oldest.
 */
static void silent_crowd_keeps_nobody_out(void **state)
{
	enum { CROWD = 400, QUARTER = 300 };
	struct rdma_cm_id *listener = listen_with(128);
	struct rlimit all, some;
	int silent[CROWD], before;

	once(listener);
	before = open_files();
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	some = (struct rlimit){4 * QUARTER, all.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &some), 0);
	for (unsigned i = 0; i < CROWD; i++)
		silent[i] = stranger(rdma_get_src_port(listener), "", 0);
	once(listener); /* it came behind them, so all of them have been let in */
	assert_in_range(open_files() - before, CROWD, CROWD + QUARTER);
	assert_true(hung_up(silent[0]));
	for (unsigned i = 0; i < CROWD; i++)
		close(silent[i]);
	end(listener);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
}

static uint64_t empty_polls(void)
{
	struct timespec began, ended;
	struct ibv_wc wc;

	clock_gettime(CLOCK_MONOTONIC, &began);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	return (uint64_t)(ended.tv_sec - began.tv_sec) * 1000000000 + (uint64_t)ended.tv_nsec -
	       (uint64_t)began.tv_nsec;
}

/* The quickest of many: others have the machine, too. */
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
static void silent_crowd_slows_nobody_down(void **state)
{
	enum { CROWD = 2500 };
	struct rdma_cm_id *listener, *client, *server;
	struct rlimit all, many;
	static int silent[CROWD];
	uint64_t alone;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	many = (struct rlimit){all.rlim_max, all.rlim_max};
	if (SANITIZED || many.rlim_cur < 5 * CROWD || setrlimit(RLIMIT_NOFILE, &many))
		skip();
	listener = listen_with(4096);
	client = connect_to(rdma_get_src_port(listener), "x", 1);
	server = asked(listener);
	accepted(server, client);
	alone = quickest(0);
	for (unsigned i = 0; i < CROWD; i++)
		silent[i] = stranger(rdma_get_src_port(listener), "", 0);
	once(listener);
	assert_in_range(quickest(2 * alone), 0, 2 * alone);
	for (unsigned i = 0; i < CROWD; i++)
		close(silent[i]);
	end(client);
	end(server);
	end(listener);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
}

/* More private data than a program can be told of; the peer is a stranger by its own code. */
static void longest_private_data_is_cut(void **state)
{
	struct rdma_cm_id *listener = listen_with(8), *server;
	uint8_t req[20 + 512] = "MPA ID Req Frame\0\1\2\0", answer[20];
	int fd;

	memset(req + 20, 0x5a, 512);
	fd = stranger(rdma_get_src_port(listener), req, sizeof(req));
	server = asked(listener);
	assert_int_equal(w.last.param.conn.private_data_len, 255);
	give_qp(server);
	assert_int_equal(rdma_accept(server, NULL), 0);
	next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(recv(fd, answer, 20, MSG_WAITALL), 20);
	assert_memory_equal(answer, "MPA ID Rep Frame\0\1\0\0", 20);
	close(fd);
	next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	end(server);
	end(listener);
}

/* A WRITE of no bytes, which is what a peer says first, and nothing it ever reads. */
static int deaf_stranger(struct rdma_cm_id *listener, struct rdma_cm_id **server)
{
	static const uint8_t req[40] = "MPA ID Req Frame\0\1\0\0\0\x0e\xc1\x40\0\0\0\1";
	int fd = stranger(rdma_get_src_port(listener), req, sizeof(req));

	*server = asked(listener);
	give_qp(*server);
	assert_int_equal(rdma_accept(*server, NULL), 0);
	next((*server)->channel, RDMA_CM_EVENT_ESTABLISHED);
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
	while (wait && !ibv_poll_cq(cq, 1, &wc))
		;
}

/* A peer that reads nothing, as one that is stopped in a debugger, keeps nobody for longer than a few
 * seconds. */
static void stuck_peer_does_not_hold_the_end(void **state)
{
	enum { MUCH = 64 << 20 };
	struct rdma_cm_id *listener = listen_with(8), *server;
	struct timespec began, ended;
	int fd = deaf_stranger(listener, &server);
	struct ibv_mr *mr = ibv_reg_mr(pd, calloc(1, MUCH), MUCH, IBV_ACCESS_LOCAL_WRITE);
	void *much = mr->addr;

	write_and_wait(server, mr, 8, true);
	write_and_wait(server, mr, MUCH, false); /* the socket has no more room now */
	clock_gettime(CLOCK_MONOTONIC, &began);
	assert_int_equal(rdma_disconnect(server), 0);
	next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	assert_in_range(ended.tv_sec - began.tv_sec, 0, 30); /* TCP itself would take 57 */
	assert_int_equal(ibv_dereg_mr(mr), 0);
	free(much);
	close(fd);
	end(server);
	end(listener);
}

/* ---- one that says it is on this host, and could go through shared memory ---- */
enum { MEET = 64, MEET_OK = 8, MEET_QPN = 12, MEET_PSN = 16, MEET_NUMBER = 24 };

/* Asks so, and hears who we are. The listener's end is `server`. */
static int claimant(struct rdma_cm_id *listener, struct rdma_cm_id **server, uint8_t word[MEET])
{
	uint8_t req[20] = "MPA ID Req Frame\5\1\0\0", reply[20];
	int fd = stranger(rdma_get_src_port(listener), req, sizeof(req));

	*server = asked(listener);
	give_qp(*server);
	assert_int_equal(rdma_accept(*server, NULL), 0);
	assert_int_equal(recv(fd, reply, sizeof(reply), MSG_WAITALL), sizeof(reply));
	assert_memory_equal(reply, "MPA ID Rep Frame\6\1\0\0", sizeof(reply));
	assert_int_equal(recv(fd, word, MEET, MSG_WAITALL), MEET);
	assert_memory_equal(word, "anyrdma\1\1", 9);
	return fd;
}

/* As the other end would say it: ports and addresses the other way round. */
static void mirror(uint8_t word[MEET])
{
	uint8_t in[MEET];

	memcpy(in, word, MEET);
	memcpy(word + 20, in + 22, 2);
	memcpy(word + 22, in + 20, 2);
	memcpy(word + 32, in + 48, 16);
	memcpy(word + 48, in + 32, 16);
}

static void spoil_number(uint8_t word[MEET])
{
	word[MEET_NUMBER] ^= 1;
}

static void spoil_slot(uint8_t word[MEET])
{
	word[MEET_QPN + 1] ^= 0xff;
}

static void spoil_qpn(uint8_t word[MEET])
{
	word[MEET_QPN] = 1;
}

static void spoil_address(uint8_t word[MEET])
{
	word[63] ^= 1;
}

static void spoil_port(uint8_t word[MEET])
{
	word[20] ^= 1;
}

/* It hears no, and has a plain connection. */
static void who_is_not_here_is_not_believed(void **state)
{
	static void (*const spoil[])(uint8_t *) = {
		spoil_number, spoil_slot, spoil_qpn, spoil_address, spoil_port};
	struct rdma_cm_id *listener = listen_with(8), *server;
	uint8_t word[MEET];
	int fd;

	for (unsigned i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
		fd = claimant(listener, &server, word);
		mirror(word);
		spoil[i](word);
		assert_int_equal(send(fd, word, MEET, 0), MEET);
		assert_int_equal(recv(fd, word, MEET, MSG_WAITALL), MEET);
		assert_int_equal(word[MEET_OK], 0);
		next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
		close(fd);
		next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
		end(server);
	}
	once(listener);
	end(listener);
}

/* A process of this very user, which knows the number, may lie; the stream has nothing to carry then. */
static void bytes_behind_the_upgrade_end_it(void **state)
{
	struct rdma_cm_id *listener = listen_with(8), *server;
	uint8_t word[MEET];
	int fd;

	fd = claimant(listener, &server, word);
	mirror(word);
	assert_int_equal(send(fd, word, MEET, 0), MEET);
	assert_int_equal(recv(fd, word, MEET, MSG_WAITALL), MEET);
	assert_int_equal(word[MEET_OK], 1);
	next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(send(fd, "x", 1, 0), 1);
	next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_true(hung_up(fd));
	close(fd);
	end(server);
	end(listener);
}

/* A packet of RoCE's, as any user of this host can send one from an address of ours. */
static void say_by_udp(uint32_t qpn, uint32_t psn, const char word[4])
{
	struct sockaddr_in to = loopback(htons(ROCE_UDP_PORT)), from = loopback(0);
	socklen_t len = sizeof(from);
	struct icrc_flow flow = {.dport = ROCE_UDP_PORT};
	uint8_t pkt[BTH_LEN + 4 + ICRC_LEN];
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&from, &len), 0);
	flow.sport = ntohs(from.sin_port);
	gid_of_v4(&from.sin_addr, flow.src);
	gid_of_v4(&to.sin_addr, flow.dst);
	bth_put(pkt, IBT_RC | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, qpn, false, psn);
	memcpy(pkt + BTH_LEN, word, 4);
	icrc_put(pkt + BTH_LEN + 4, icrc_packet(&flow, pkt, BTH_LEN + 4, 0));
	assert_int_equal(sendto(fd, pkt, sizeof(pkt), 0, (struct sockaddr *)&to, sizeof(to)), sizeof(pkt));
	close(fd);
}

static struct ibv_wc polled(void)
{
	struct ibv_wc wc;

	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc;
}

/* Even one that knows all numbers is not the peer, which is in the ring. */
static void who_speaks_by_udp_is_not_heard(void **state)
{
	enum { LOOKS = 20000 };
	struct rdma_cm_id *listener = listen_with(8), *server;
	static char buf[8] = "ring";
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge own = {(uintptr_t)buf, 4, mr->lkey}, got = {(uintptr_t)buf + 4, 4, mr->lkey};
	struct ibv_recv_wr recv_wr = {.sg_list = &got, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send_wr = {.opcode = IBV_WR_SEND, .sg_list = &own, .num_sge = 1}, *bad_send;
	struct ibv_wc wc;
	uint8_t word[MEET];
	int fd, early = 0;

	fd = claimant(listener, &server, word);
	mirror(word); /* its peer is itself, then, with the same number in both directions */
	assert_int_equal(send(fd, word, MEET, 0), MEET);
	next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ibv_post_recv(server->qp, &recv_wr, &bad_recv), 0);
	say_by_udp(get_be32(word + MEET_QPN), get_be32(word + MEET_PSN), "wire");
	for (int i = 0; i < LOOKS && !early; i++)
		early = ibv_poll_cq(cq, 1, &wc);
	assert_int_equal(early, 0);
	assert_int_equal(ibv_post_send(server->qp, &send_wr, &bad_send), 0);
	wc = polled();
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_memory_equal(buf + 4, "ring", 4);
	close(fd);
	next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	end(server);
	end(listener);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void who_talks_nonsense_instead_or_goes_is_let_go(void **state)
{
	static const size_t said[] = {0, 1, MEET - 1, MEET};
	struct rdma_cm_id *listener = listen_with(8), *server;
	uint8_t word[MEET];
	int fd;

	for (unsigned i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		fd = claimant(listener, &server, word);

		memset(word, 0x5a, MEET);
		if (said[i])
			assert_int_equal(send(fd, word, said[i], 0), said[i]);
		if (said[i] < MEET)
			close(fd);
		next(server->channel, RDMA_CM_EVENT_ESTABLISHED); /* an error would end many a server */
		next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
		if (said[i] == MEET) {
			assert_true(hung_up(fd));
			close(fd);
		}
		end(server);
	}
	/* Nor is the program held up that does not wait for it. */
	fd = claimant(listener, &server, word);
	end(server);
	assert_true(hung_up(fd));
	close(fd);
	once(listener);
	end(listener);
}

struct deed {
	void (*act)(void *arg);
	void *arg;
};

/* It ends as another program, so that nobody looks for leaks in it: what the parent's threads held is lost
 * there. */
static void *do_and_exec(void *arg)
{
	struct deed *d = arg;

	d->act(d->arg);
	execlp("true", "true", NULL);
	_exit(127);
}

/*
 * What a child does for itself must end well. In a thread, since the copy of the running test that the child
 * is would otherwise catch a failing assertion and go on with the parent's tests.
 */
static void in_child(void (*act)(void *arg), void *arg)
{
	struct deed deed = {act, arg};
	pthread_t thread;
	int status;
	pid_t pid;

	if (!FORKS_WELL)
		skip();
	pid = fork();
	if (!pid) {
		pd = NULL;
		if (!pthread_create(&thread, NULL, do_and_exec, &deed))
			pthread_join(thread, NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void connect_once(void *arg)
{
	struct rdma_cm_id *listener = listen_with(8);

	once(listener);
	end(listener);
}

static void child_begins_anew(void **state)
{
	struct rdma_cm_id *listener = listen_with(8),
			  *client = connect_to(rdma_get_src_port(listener), "x", 1),
			  *server = asked(listener);

	accepted(server, client);
	in_child(connect_once, NULL);
	/* The child's end is not the end of what it inherited. */
	assert_int_equal(rdma_disconnect(server), 0);
	next(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	end(client);
	end(server);
	once(listener);
	end(listener);
}

/* ---- no UDP ---- */
/* Before the child looks at its devices. */
static void with_roce(void)
{
	setenv("ANYRDMA_DEVICES", "iwarp_lo,roce_lo", 1);
}

static void no_roce(int err)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	struct ibv_pd *own_pd;

	assert_string_equal(list[1]->name, "roce_lo"); /* with_roce() */
	ctx = ibv_open_device(list[1]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	own_pd = ibv_alloc_pd(ctx);
	attr.send_cq = attr.recv_cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	errno = 0;
	assert_null(ibv_create_qp(own_pd, &attr));
	assert_int_equal(errno, err);
	ibv_destroy_cq(attr.send_cq);
	ibv_dealloc_pd(own_pd);
	ibv_close_device(ctx);
}

/* Another program has the port, or another user. */
static void with_taken_port(void *arg)
{
	char port[8];

	snprintf(port, sizeof(port), "%u", *(unsigned *)arg);
	setenv("ANYRDMA_PORT", port, 1);
	with_roce();
	connect_once(NULL);
	no_roce(EADDRINUSE);
}

static void taken_udp_port_is_no_obstacle(void **state)
{
	struct sockaddr_in sa = loopback(0);
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	unsigned port;

	assert_int_equal(bind(fd, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	port = ntohs(sa.sin_port);
	in_child(with_taken_port, &port);
	close(fd);
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
		end(listen_with(1));
	for (int i = 0; i < OTHERS; i++)
		close(other[i]);
}

/* A sandbox, say. */
static void without_udp(void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 3, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
	assert_int_equal(socket(AF_INET, SOCK_DGRAM, 0), -1);
	with_roce();
	connect_once(NULL);
	no_roce(EPERM);
}

static void refused_udp_is_no_obstacle(void **state)
{
	in_child(without_udp, NULL);
}

struct list_row {
	const char *list;
	enum ibv_transport_type first;
};

static void with_list(void *arg)
{
	const struct list_row *row = arg;
	struct sockaddr_in any = loopback(0);
	struct rdma_cm_id *id;
	struct ibv_device **list;

	setenv("ANYRDMA_DEVICES", row->list, 1);
	id = new_id();
	list = ibv_get_device_list(NULL);
	assert_int_equal(list[0]->transport_type, row->first);
	ibv_free_device_list(list);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	assert_int_equal(id->verbs->device->transport_type, row->first);
	end(id);
}

/* Each in a process of its own: the list is read once. */
static void users_list_decides(void **state)
{
	static struct list_row rows[] = {{"", IBV_TRANSPORT_IB}, {"roce,iwarp", IBV_TRANSPORT_IB},
		{"iwarp,roce", IBV_TRANSPORT_IWARP}, {"iwarp_lo,lo", IBV_TRANSPORT_IWARP},
		{"lo", IBV_TRANSPORT_IB}, {"iwarp", IBV_TRANSPORT_IWARP}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		in_child(with_list, &rows[i]);
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
