/* SPDX-License-Identifier: MIT */
/*
 * Long messages between two processes, of which a peer on this host fetches the bytes itself: lengths,
 * pieces, kinds of request, a receiver that is not ready or does not fit, memory that goes away. All of it is
 * as with any other message.
 */
#include "fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 400000, ROOM = 512 << 10, LOCAL = IBV_ACCESS_LOCAL_WRITE };

/* ---- a stream of messages that both ends know ---- */
enum { MESSAGES = 400, DEPTH = 8, SMALL = 100 };

static const enum ibv_wr_opcode kinds[] = {
	IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE};

struct message {
	enum ibv_wr_opcode op;
	uint32_t len, cut[2]; /* where its pieces end */
	size_t off;
};

static struct message message(uint32_t n)
{
	uint32_t seed = n * 2654435761u + 1;
	struct message m = {.op = kinds[vt_random(&seed) % ARRAY_LEN(kinds)]};

	m.len = vt_random(&seed) % 4 ? vt_random(&seed) % MOST : vt_random(&seed) % SMALL;
	if (n % 5 == 0)
		m.len = (1 + vt_random(&seed) % 60) * 4096;
	m.off = n % 2 ? 0 : vt_random(&seed) % 5000;
	m.cut[0] = m.len && vt_random(&seed) % 2 ? vt_random(&seed) % m.len : 0;
	m.cut[1] = m.cut[0] + vt_random(&seed) % (m.len - m.cut[0] + 1);
	return m;
}

static void send_message(struct vt_ep *a, uint32_t n, const struct vt_addr *to)
{
	struct message m = message(n);
	uint32_t place = n % DEPTH;
	size_t at = place * (size_t)ROOM + m.off;
	struct ibv_sge sge[] = {vt_sge(a, at, m.cut[0]), vt_sge(a, at + m.cut[0], m.cut[1] - m.cut[0]),
		vt_sge(a, at + m.cut[1], m.len - m.cut[1])};
	struct ibv_send_wr wr = {.wr_id = n,
		.opcode = m.op,
		.sg_list = m.cut[1] ? sge : sge + 2,
		.num_sge = m.cut[1] ? 3 : 1,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = n};
	struct ibv_send_wr *bad;

	vt_fill(a->buf + at, m.len, n);
	wr.wr.rdma.remote_addr = to->addr + place * (size_t)ROOM;
	wr.wr.rdma.rkey = to->rkey;
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
}

static bool takes_receive(uint32_t n)
{
	return message(n).op != IBV_WR_RDMA_WRITE;
}

/* Receives one by one; a WRITE is looked at when what follows it has come. */
static void role_receiver(struct vt *t, int fd)
{
	struct vt_ep *b = vt_ep(t, .len = (size_t)DEPTH * ROOM);
	struct vt_addr peer;

	vt_meet(b, fd, NULL, &peer);
	for (uint32_t n = 0; n < MESSAGES; n++) {
		if (takes_receive(n))
			vt_recv(b, n, (size_t)(n % DEPTH) * ROOM, ROOM);
		if (n % DEPTH < DEPTH - 1)
			continue;
		vt_tell(fd, "", 1);
		for (uint32_t k = n + 1 - DEPTH; k <= n; k++) {
			struct message m = message(k);
			struct ibv_wc wc;

			if (!takes_receive(k))
				continue;
			wc = vt_ok(b, k);
			assert_int_equal(wc.byte_len, m.len);
			if (m.op != IBV_WR_SEND)
				assert_int_equal(wc.imm_data, k);
			vt_check(b->buf + (k % DEPTH) * (size_t)ROOM, m.len, k);
		}
		vt_hear(fd, &(char){0}, 1);
		for (uint32_t k = n + 1 - DEPTH; k <= n; k++)
			vt_check(b->buf + (k % DEPTH) * (size_t)ROOM, message(k).len, k);
	}
	vt_hear(fd, &(char){0}, 1);
}

/* Whether its first byte lies on anyrdma's memory file. */
static bool is_mapped(const void *p)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[300];
	bool found = false;

	while (fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if (strstr(line, "anyrdma-memory") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			found |= start <= (uintptr_t)p && end > (uintptr_t)p;
	}
	fclose(f);
	return found;
}

static void every_length_and_kind_arrives(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = (size_t)DEPTH * ROOM, .access = LOCAL);
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "receiver");
	vt_meet(a, p.fd, NULL, &peer);
	for (uint32_t n = 0; n < MESSAGES; n += DEPTH) {
		vt_hear(p.fd, &(char){0}, 1);
		for (uint32_t k = n; k < n + DEPTH; k++)
			send_message(a, k, &peer);
		for (uint32_t k = n; k < n + DEPTH; k++)
			vt_ok(a, k);
		vt_tell(p.fd, "", 1);
	}
	/* A region that nobody may reach is mapped by peers all the same once much was sent from it. */
	assert_false(is_mapped(a->buf)); /* sending moves nothing, in no mode */
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- a queue of messages, all there before the first is fetched ---- */
enum { QUEUED = 48, QUEUES = 8, PLACE = 48 << 10 };

/* Some go with the bytes, some without; some are one behind the other for the whole room of a receive. */
static uint32_t queued_len(uint32_t n)
{
	uint32_t seed = n * 40503u + 7;

	if (vt_random(&seed) % 6 == 0)
		return vt_random(&seed) % SMALL;
	return n % 3 ? 2048 + vt_random(&seed) % (PLACE - 2048) : PLACE;
}

/* A receive for each, of room of its own, that is in two pieces now and then. */
static void post_receives(struct vt_ep *b)
{
	memset(b->buf, 0xee, (size_t)QUEUED * PLACE);
	for (uint32_t n = 0; n < QUEUED; n++) {
		size_t at = (size_t)n * PLACE;
		struct ibv_sge sge[] = {
			vt_sge(b, at, PLACE / 3), vt_sge(b, at + PLACE / 3, PLACE - PLACE / 3)};
		struct ibv_recv_wr wr = {.wr_id = n, .sg_list = sge, .num_sge = 2}, *bad;

		if (n % 7 == 3)
			assert_int_equal(ibv_post_recv(b->qp, &wr, &bad), 0);
		else
			vt_recv(b, n, at, PLACE);
	}
}

static void role_queue(struct vt *t, int fd)
{
	struct vt_ep *b = vt_ep(t, .len = (size_t)QUEUED * PLACE);
	struct vt_addr peer;

	vt_meet(b, fd, NULL, &peer);
	for (uint32_t q = 0; q < QUEUES; q++) {
		post_receives(b);
		vt_tell(fd, "", 1);
		for (uint32_t n = 0; n < QUEUED; n++) {
			uint32_t len = queued_len(q * QUEUED + n);
			const uint8_t *at = b->buf + (size_t)n * PLACE;

			assert_int_equal(vt_ok(b, n).byte_len, len);
			vt_check(at, len, q * QUEUED + n);
			vt_check_all(at + len, PLACE - len, 0xee);
		}
	}
	vt_hear(fd, &(char){0}, 1);
}

static void post_queue(struct vt_ep *a, uint32_t q)
{
	struct ibv_send_wr wr[QUEUED], *bad;
	struct ibv_sge sge[QUEUED];

	for (uint32_t n = 0; n < QUEUED; n++) {
		sge[n] = vt_sge(a, (size_t)n * PLACE, queued_len(q * QUEUED + n));
		vt_fill(a->buf + (size_t)n * PLACE, sge[n].length, q * QUEUED + n);
		wr[n] = (struct ibv_send_wr){.wr_id = n,
			.next = n + 1 < QUEUED ? &wr[n + 1] : NULL,
			.opcode = n % 4 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM,
			.sg_list = &sge[n],
			.num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED};
	}
	assert_int_equal(ibv_post_send(a->qp, wr, &bad), 0);
}

/* Each comes into its own receive, and not a byte more than it has. */
static void queue_of_messages_arrives_in_order(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = (size_t)QUEUED * PLACE, .access = LOCAL);
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "queue");
	vt_meet(a, p.fd, NULL, &peer);
	for (uint32_t q = 0; q < QUEUES; q++) {
		vt_hear(p.fd, &(char){0}, 1);
		post_queue(a, q);
		for (uint32_t n = 0; n < QUEUED; n++)
			vt_ok(a, n);
	}
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- receivers that are not ready ---- */
enum { BURST = 6 };

static void role_late(struct vt *t, int fd)
{
	struct vt_ep *b = vt_ep(t, .len = (size_t)BURST * ROOM);
	struct vt_addr peer;

	vt_meet(b, fd, NULL, &peer);
	for (uint32_t n = 0; n < BURST; n++) {
		/* Nothing is posted while the first comes; then one at a time. */
		vt_hear(fd, &(char){0}, 1);
		for (double until = vt_now() + 0.01; vt_now() < until;)
			vt_cq_is_empty(b);
		vt_recv(b, n, n * (size_t)ROOM, ROOM);
		assert_int_equal(vt_ok(b, n).byte_len, MOST - n);
		vt_check(b->buf + n * (size_t)ROOM, MOST - n, n);
		vt_tell(fd, "", 1);
	}
}

static void receiver_that_is_not_ready_is_waited_for(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = (size_t)BURST * ROOM, .access = LOCAL);
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "late");
	vt_meet(a, p.fd, NULL, &peer);
	for (uint32_t n = 0; n < BURST; n++) {
		vt_fill(a->buf + n * (size_t)ROOM, MOST - n, n);
		vt_post(a, .op = IBV_WR_SEND, .id = n, .off = n * (size_t)ROOM, .len = MOST - n);
	}
	for (uint32_t n = 0; n < BURST; n++) {
		vt_tell(p.fd, "", 1);
		vt_ok(a, n);
		vt_hear(p.fd, &(char){0}, 1);
	}
	vt_peer_finish(&p);
}

/* ---- receives that do not fit; both ends in one process ---- */
static void pair(struct vt *t, struct vt_ep **a, struct vt_ep **b, uint8_t rnr_retry)
{
	struct vt_conn c = vt_conn(t);

	*a = vt_ep(t, .len = 2 * ROOM, .access = LOCAL);
	*b = vt_ep(t, .len = 2 * ROOM, .access = LOCAL);
	c.rnr_retry = rnr_retry;
	vt_connect(*a, *b, &c);
}

static void receive_that_is_too_short_ends_both(void **state)
{
	struct vt_ep *a, *b;

	pair(*state, &a, &b, 7);
	vt_recv(b, 1, 0, MOST);
	vt_recv(b, 2, 0, MOST - 1);
	vt_recv(b, 3, 0, MOST);
	for (uint64_t id = 1; id <= 3; id++)
		vt_post(a, .op = IBV_WR_SEND, .id = id, .len = MOST);
	vt_ok(b, 1);
	vt_expect(b, 2, IBV_WC_LOC_LEN_ERR);
	vt_expect(b, 3, IBV_WC_WR_FLUSH_ERR);
	vt_ok(a, 1);
	if (vt_can("ACK"))
		vt_expect(a, 2, IBV_WC_REM_INV_REQ_ERR);
}

static void nobody_ready_for_ever_is_an_error(void **state)
{
	struct vt_ep *a, *b;

	vt_need("MODIFY"); /* an end of its own words for it elsewhere */
	pair(*state, &a, &b, 1);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = MOST);
	vt_expect(a, 1, IBV_WC_RNR_RETRY_EXC_ERR);
}

static void receive_in_memory_that_is_gone_is_an_error(void **state)
{
	struct vt_ep *a, *b;
	struct ibv_mr *mr;
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;

	pair(*state, &a, &b, 7);
	mr = ibv_reg_mr(b->pd, b->buf, ROOM, LOCAL);
	sge = (struct ibv_sge){(uintptr_t)b->buf, ROOM, mr->lkey};
	assert_int_equal(ibv_post_recv(b->qp, &wr, &bad), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = MOST);
	vt_expect(b, 1, IBV_WC_LOC_PROT_ERR);
	if (vt_can("ACK"))
		vt_expect(a, 1, IBV_WC_REM_OP_ERR);
}

/* ---- a source that is taken away ---- */
/* Either all of it was fetched before, or it was not sent; other bytes are never seen. */
static void source_taken_away_is_never_half_there(void **state)
{
	struct vt *t = *state;

	for (uint32_t round = 0; round < 24; round++) {
		struct vt_ep *a, *b;
		struct ibv_mr *mr;
		struct ibv_wc got, sent;

		pair(t, &a, &b, 7);
		/* Known to the peer, and where peers can map it; or not. */
		mr = ibv_reg_mr(a->pd, a->buf, ROOM, round % 3 ? (int)VT_ALL_ACCESS : LOCAL);
		vt_fill(a->buf, MOST, round);
		vt_recv(b, 1, 0, ROOM);
		vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = MOST, .lkey = mr->lkey);
		if (round % 2)
			usleep(round * 3);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		memset(a->buf, 0xee, MOST);
		sent = vt_wait(a);
		if (sent.status == IBV_WC_SUCCESS) {
			assert_int_equal(vt_ok(b, 1).byte_len, MOST);
			vt_check(b->buf, MOST, round);
		} else {
			assert_int_equal(sent.status, IBV_WC_LOC_PROT_ERR);
			while (ibv_poll_cq(b->cq, 1, &got) && got.status == IBV_WC_SUCCESS)
				fail_msg("received, but not sent");
		}
		vt_ep_close(a);
		vt_ep_close(b);
	}
}

/* ---- a sender that dies ---- */
static void role_sender(struct vt *t, int fd)
{
	struct vt_ep *a = vt_ep(t, .len = (size_t)DEPTH * ROOM, .access = LOCAL);
	struct vt_addr peer;

	vt_meet(a, fd, NULL, &peer);
	for (uint32_t n = 0; n < DEPTH; n++)
		memset(a->buf + n * (size_t)ROOM, (int)n + 1, ROOM);
	for (uint32_t n = 0;; n++) {
		if (n >= DEPTH)
			vt_ok(a, n - DEPTH);
		vt_post(a, .op = IBV_WR_SEND, .id = n, .off = n % DEPTH * (size_t)ROOM, .len = ROOM);
	}
}

/* What was received before is whole, and the next one finds a clean house. */
static void sender_killed_in_mid_copy_leaves_whole_messages(void **state)
{
	struct vt *t = *state;

	for (uint32_t round = 0; round < 6; round++) {
		struct vt_ep *b = vt_ep(t, .len = (size_t)DEPTH * ROOM);
		struct vt_addr peer;
		struct vt_peer p;
		struct ibv_wc wc;

		vt_peer_start(&p, "sender");
		vt_meet(b, p.fd, NULL, &peer);
		for (uint32_t n = 0; n < 40 + round * 7; n++) {
			if (n >= DEPTH) {
				vt_ok(b, n - DEPTH);
				vt_check_all(
					b->buf + n % DEPTH * (size_t)ROOM, ROOM, (uint8_t)(n % DEPTH + 1));
				memset(b->buf + n % DEPTH * (size_t)ROOM, 0, ROOM);
			}
			vt_recv(b, n, n % DEPTH * (size_t)ROOM, ROOM);
		}
		vt_peer_kill(&p);
		while (ibv_poll_cq(b->cq, 1, &wc) > 0) {
			if (vt_by_cm(t) && wc.status == IBV_WC_WR_FLUSH_ERR)
				break; /* it knows of the death */
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			vt_check_all(b->buf + wc.wr_id % DEPTH * (size_t)ROOM, ROOM,
				(uint8_t)(wc.wr_id % DEPTH + 1));
		}
		vt_ep_close(b);
	}
}

/* ---- a sender that flushes ---- */
static void role_stopped(struct vt *t, int fd)
{
	struct vt_ep *b = vt_ep(t, .len = (size_t)DEPTH * ROOM);
	struct vt_addr peer;
	struct ibv_wc wc;
	char go;

	vt_meet(b, fd, NULL, &peer);
	for (uint32_t n = 0; n < DEPTH; n++)
		vt_recv(b, n, n * (size_t)ROOM, ROOM);
	vt_tell(fd, "r", 1);
	assert_int_equal(read(fd, &go, 1), 1);
	for (double until = vt_now() + 0.2; vt_now() < until;) {
		if (ibv_poll_cq(b->cq, 1, &wc) > 0 && wc.status == IBV_WC_SUCCESS)
			vt_check_all(b->buf + wc.wr_id * (size_t)ROOM, ROOM, 0xaa);
	}
}

/* What is flushed is the program's again, even if the receiver has not come to it yet. */
static void what_is_flushed_is_not_fetched(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = ROOM, .access = LOCAL);
	struct vt_addr peer;
	struct vt_peer p;
	char ready;

	memset(a->buf, 0xaa, ROOM);
	vt_peer_start(&p, "stopped");
	vt_meet(a, p.fd, NULL, &peer);
	assert_int_equal(read(p.fd, &ready, 1), 1);
	kill(p.pid, SIGSTOP);
	assert_int_equal(waitpid(p.pid, NULL, WUNTRACED), p.pid); /* not in the middle of a copy */
	for (uint32_t n = 0; n < DEPTH; n++)
		vt_post(a, .op = IBV_WR_SEND, .id = n, .len = ROOM);
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_ERR), 0);
	for (uint32_t n = 0; n < DEPTH; n++)
		vt_wait(a);
	memset(a->buf, 0x55, ROOM);
	kill(p.pid, SIGCONT);
	vt_tell(p.fd, "g", 1);
	vt_peer_finish(&p);
	vt_ep_close(a);
}

/* ---- a sender that resets its queue pair while the receiver sleeps ---- */
/* Says the first byte of what comes after it was told to go on; 0: nothing came. */
static void role_sleeper(struct vt *t, int fd)
{
	struct vt_ep *b = vt_ep(t, .len = ROOM);
	struct vt_addr peer;
	struct ibv_wc wc;
	char byte = 0;
	int got = 0;

	vt_meet(b, fd, NULL, &peer);
	vt_recv(b, 1, 0, ROOM);
	vt_ok(b, 1);
	vt_recv(b, 2, 0, ROOM);
	vt_tell(fd, &byte, 1);
	vt_hear(fd, &byte, 1);
	for (double until = vt_now() + 0.2; !got && vt_now() < until;)
		got = ibv_poll_cq(b->cq, 1, &wc);
	byte = got && wc.status == IBV_WC_SUCCESS ? (char)b->buf[0] : 0;
	vt_tell(fd, &byte, 1);
}

static void connect_anew(struct vt_ep *a, const struct vt_addr *to)
{
	assert_int_equal(vt_modify_state(a->qp, IBV_QPS_RESET), 0);
	memset(a->buf, 'S', ROOM); /* the program's again */
	vt_init(a, NULL);
	vt_rtr(a, to, NULL);
	vt_rts(a, NULL);
}

static void what_was_reset_is_not_fetched(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = ROOM);
	struct vt_addr peer;
	struct vt_peer p;
	char byte;

	vt_need("MODIFY");
	vt_peer_start(&p, "sleeper");
	vt_meet(a, p.fd, NULL, &peer);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = ROOM);
	vt_ok(a, 1);
	vt_hear(p.fd, &byte, 1);
	assert_int_equal(kill(p.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(p.pid, NULL, WUNTRACED), p.pid);
	memset(a->buf, 'A', ROOM);
	vt_post(a, .op = IBV_WR_SEND, .id = 2, .len = ROOM);
	connect_anew(a, &peer);
	assert_int_equal(kill(p.pid, SIGCONT), 0);
	vt_tell(p.fd, &byte, 1);
	vt_hear(p.fd, &byte, 1);
	assert_int_not_equal(byte, 'S');
	vt_peer_finish(&p);
}

static const struct vt_role roles[] = {
	{"receiver", role_receiver},
	{"queue", role_queue},
	{"stopped", role_stopped},
	{"sleeper", role_sleeper},
	{"late", role_late},
	{"sender", role_sender},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(every_length_and_kind_arrives),
	VT_TEST(queue_of_messages_arrives_in_order),
	VT_TEST(what_is_flushed_is_not_fetched),
	VT_TEST(what_was_reset_is_not_fetched),
	VT_TEST(receiver_that_is_not_ready_is_waited_for),
	VT_TEST(receive_that_is_too_short_ends_both),
	VT_TEST(nobody_ready_for_ever_is_an_error),
	VT_TEST(receive_in_memory_that_is_gone_is_an_error),
	VT_TEST(source_taken_away_is_never_half_there),
	VT_TEST(sender_killed_in_mid_copy_leaves_whole_messages),
};

VT_MAIN("large", tests, roles)
