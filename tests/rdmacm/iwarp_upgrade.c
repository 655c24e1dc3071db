/* SPDX-License-Identifier: MIT */
/*
 * A peer that says it is on this host, so that the connection could go through shared memory
 * (iwarp/local_upgrade.c), and is not, lies, or goes away.
 */
#include "iwarp.h"

#include "world.h"

#include "base/gid.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

enum { MEET = 64, MEET_OK = 8, MEET_QPN = 12, MEET_PSN = 16, MEET_NUMBER = 24 };

/* Asks so, and hears who we are. The listener's end is `server`. */
static int claimant(struct rdma_cm_id *listener, struct rdma_cm_id **server, uint8_t word[MEET])
{
	uint8_t req[20] = "MPA ID Req Frame\5\1\0\0", reply[20];
	int fd = iw_stranger(rdma_get_src_port(listener), req, sizeof(req));

	*server = iw_asked(listener);
	iw_give_qp(*server);
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
void who_is_not_here_is_not_believed(void **state)
{
	static void (*const spoil[])(uint8_t *) = {
		spoil_number, spoil_slot, spoil_qpn, spoil_address, spoil_port};
	struct rdma_cm_id *listener = iw_listen(8), *server;
	uint8_t word[MEET];
	int fd;

	for (unsigned i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
		fd = claimant(listener, &server, word);
		mirror(word);
		spoil[i](word);
		assert_int_equal(send(fd, word, MEET, 0), MEET);
		assert_int_equal(recv(fd, word, MEET, MSG_WAITALL), MEET);
		assert_int_equal(word[MEET_OK], 0);
		iw_next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
		close(fd);
		iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
		iw_end(server);
	}
	iw_once(listener);
	iw_end(listener);
}

/* A process of this very user, which knows the number, may lie; the stream has nothing to carry then. */
void bytes_behind_the_upgrade_end_it(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8), *server;
	uint8_t word[MEET];
	int fd;

	fd = claimant(listener, &server, word);
	mirror(word);
	assert_int_equal(send(fd, word, MEET, 0), MEET);
	assert_int_equal(recv(fd, word, MEET, MSG_WAITALL), MEET);
	assert_int_equal(word[MEET_OK], 1);
	iw_next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(send(fd, "x", 1, 0), 1);
	iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	assert_true(iw_hung_up(fd));
	close(fd);
	iw_end(server);
	iw_end(listener);
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

	while (!ibv_poll_cq(iw_cq, 1, &wc))
		;
	return wc;
}

/* Even one that knows all numbers is not the peer, which is in the ring. */
void who_speaks_by_udp_is_not_heard(void **state)
{
	enum { LOOKS = 20000 };
	struct rdma_cm_id *listener = iw_listen(8), *server;
	static char buf[8] = "ring";
	struct ibv_mr *mr = ibv_reg_mr(iw_pd, buf, sizeof(buf), IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge own = {(uintptr_t)buf, 4, mr->lkey}, got = {(uintptr_t)buf + 4, 4, mr->lkey};
	struct ibv_recv_wr recv_wr = {.sg_list = &got, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send_wr = {.opcode = IBV_WR_SEND, .sg_list = &own, .num_sge = 1}, *bad_send;
	struct ibv_wc wc;
	uint8_t word[MEET];
	int fd, early = 0;

	fd = claimant(listener, &server, word);
	mirror(word); /* its peer is itself, then, with the same number in both directions */
	assert_int_equal(send(fd, word, MEET, 0), MEET);
	iw_next(server->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(ibv_post_recv(server->qp, &recv_wr, &bad_recv), 0);
	say_by_udp(get_be32(word + MEET_QPN), get_be32(word + MEET_PSN), "wire");
	for (int i = 0; i < LOOKS && !early; i++)
		early = ibv_poll_cq(iw_cq, 1, &wc);
	assert_int_equal(early, 0);
	assert_int_equal(ibv_post_send(server->qp, &send_wr, &bad_send), 0);
	wc = polled();
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV);
	assert_memory_equal(buf + 4, "ring", 4);
	close(fd);
	iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
	iw_end(server);
	iw_end(listener);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

void who_talks_nonsense_instead_or_goes_is_let_go(void **state)
{
	static const size_t said[] = {0, 1, MEET - 1, MEET};
	struct rdma_cm_id *listener = iw_listen(8), *server;
	uint8_t word[MEET];
	int fd;

	for (unsigned i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
		fd = claimant(listener, &server, word);

		memset(word, 0x5a, MEET);
		if (said[i])
			assert_int_equal(send(fd, word, said[i], 0), said[i]);
		if (said[i] < MEET)
			close(fd);
		iw_next(server->channel, RDMA_CM_EVENT_ESTABLISHED); /* an error would end many a server */
		iw_next(server->channel, RDMA_CM_EVENT_DISCONNECTED);
		if (said[i] == MEET) {
			assert_true(iw_hung_up(fd));
			close(fd);
		}
		iw_end(server);
	}
	/* Nor is the program held up that does not wait for it. */
	fd = claimant(listener, &server, word);
	iw_end(server);
	assert_true(iw_hung_up(fd));
	close(fd);
	iw_once(listener);
	iw_end(listener);
}
