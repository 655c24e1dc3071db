/* SPDX-License-Identifier: MIT */
/*
 * rsockets against a peer that is none: it connects by rdma_cm and says what it likes. Each lie ends that
 * connection with an error, and nothing else.
 */
#include "rsocket.h"

#include <endian.h>
#include <rdma/rdma_verbs.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { CONN_LEN = 40, CREDITS = 2, FLAGS = 1, IOMAP_SIZE = 7, SGL_LENGTH = 20, DATA_LENGTH = 36 };

struct rsocket_world w;

/* The liar: an id with a queue pair, and memory that the rsocket writes to. */
static struct peer {
	struct rdma_cm_id *id, *listener;
	struct ibv_mr *mr;
	bool deaf; /* posts no receives */
	char memory[8192];
	uint8_t conn[CONN_LEN], theirs[CONN_LEN];
} liar;

static uint64_t be64_at(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return be64toh(v);
}

static uint32_t be32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return be32toh(v);
}

static void put32(uint8_t *p, uint32_t v)
{
	v = htobe32(v);
	memcpy(p, &v, sizeof(v));
}

/* Honest connection data: slots at the beginning of the memory, the data behind. */
static void describe(void)
{
	uint64_t slots = htobe64((uintptr_t)liar.memory), data = htobe64((uintptr_t)liar.memory + 4096);

	memset(liar.conn, 0, CONN_LEN);
	liar.conn[0] = 1;
	liar.conn[FLAGS] = 2;
	liar.conn[CREDITS] = 1;
	memcpy(liar.conn + 8, &slots, 8);
	put32(liar.conn + 16, liar.mr->rkey);
	put32(liar.conn + SGL_LENGTH, 2);
	memcpy(liar.conn + 24, &data, 8);
	put32(liar.conn + 32, liar.mr->rkey);
	put32(liar.conn + DATA_LENGTH, 4096);
}

static struct rdma_conn_param param(void)
{
	return (struct rdma_conn_param){.private_data = liar.conn,
		.private_data_len = CONN_LEN,
		.retry_count = 7,
		.rnr_retry_count = 7};
}

static void make_ready(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 64,
			.max_recv_wr = 64,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = 64}};
	struct ibv_recv_wr wr = {0}, *bad;

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
	for (int i = 0; i < 64 && !liar.deaf; i++)
		assert_int_equal(ibv_post_recv(id->qp, &wr, &bad), 0);
	liar.mr = rdma_reg_write(id, liar.memory, sizeof(liar.memory));
	assert_non_null(liar.mr);
	describe();
}

/* An id of the liar's that has only to connect. */
static void prepare(void)
{
	assert_int_equal(rdma_create_id(NULL, &liar.id, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_resolve_addr(liar.id, NULL, (struct sockaddr *)&w.address, 2000), 0);
	assert_int_equal(rdma_resolve_route(liar.id, 2000), 0);
	make_ready(liar.id);
}

static int meet(void)
{
	struct rdma_conn_param p = param();
	int ret = rdma_connect(liar.id, &p);

	if (!ret) {
		memcpy(liar.theirs, liar.id->event->param.conn.private_data, CONN_LEN);
		w.server = raccept(w.listener, NULL, NULL);
		assert_true(w.server >= 0);
	}
	return ret;
}

static int setup(void **state)
{
	memset(&liar, 0, sizeof(liar));
	return rsocket_setup(state);
}

static void drop_liar(void)
{
	if (!liar.id)
		return;
	rdma_destroy_qp(liar.id);
	rdma_dereg_mr(liar.mr);
	rdma_destroy_id(liar.id);
	liar.id = NULL;
}

static int teardown(void **state)
{
	drop_liar();
	if (liar.listener)
		rdma_destroy_id(liar.listener);
	return rsocket_teardown(state);
}

/* Writes into the rsocket's memory, and says something. */
static void say(uint32_t msg, const void *data, uint32_t len, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge = {.addr = (uintptr_t)data, .length = len};
	struct ibv_send_wr wr = {
		.sg_list = &sge,
		.num_sge = len != 0,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = len ? IBV_SEND_INLINE : 0,
		.imm_data = htobe32(msg),
		.wr.rdma = {.remote_addr = addr, .rkey = rkey},
	};
	struct ibv_send_wr *bad;

	assert_int_equal(ibv_post_send(liar.id->qp, &wr, &bad), 0);
}

static void say_data(uint32_t msg, const char *data, uint32_t len)
{
	say(msg, data, len, be64_at(liar.theirs + 24), be32_at(liar.theirs + 32));
}

static void others_are_served(void)
{
	int client = connect_to(&w.address), server = raccept(w.listener, NULL, NULL);
	char c;

	assert_true(server >= 0);
	assert_int_equal(rsend(client, "x", 1, 0), 1);
	assert_int_equal(rrecv(server, &c, 1, 0), 1);
	rclose(client);
	rclose(server);
}

/* ---- a peer that keeps to the rules, to begin with ---- */
static void an_honest_stranger_is_understood(void **state)
{
	char buf[16];

	prepare();
	assert_int_equal(meet(), 0);
	say_data(5, "hello", 5);
	assert_int_equal(rrecv(w.server, buf, 16, 0), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(rsend(w.server, "there", 5, 0), 5);
	say(7u << 29, NULL, 0, 0, 0); /* DISCONNECT */
	assert_int_equal(rrecv(w.server, buf, 16, 0), 0);
	assert_memory_equal(liar.memory + 4096, "there", 5);
}

/* ---- connection data ---- */
static void refused(void)
{
	assert_int_equal(meet(), -1);
	assert_int_equal(errno, ECONNREFUSED);
	drop_liar();
	others_are_served();
}

static void another_version_is_refused(void **state)
{
	prepare();
	liar.conn[0] = 9;
	refused();
}

static void no_slots_are_refused(void **state)
{
	prepare();
	put32(liar.conn + SGL_LENGTH, 0);
	refused();
}

/* It can only be its own memory that we would write to: the queue pair says no, and that is the end. */
static void nonsense_addresses_end_the_connection(void **state)
{
	char c;

	prepare();
	memset(liar.conn + 8, 0xff, 32); /* addresses, keys, lengths */
	liar.conn[IOMAP_SIZE] = 0xff;
	assert_int_equal(meet(), 0);
	while (rsend(w.server, "x", 1, 0) == 1)
		;
	assert_int_equal(errno, ECONNRESET);
	assert_int_equal(rrecv(w.server, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	assert_true(events_of(w.server, POLLIN, 0) & POLLERR);
	drop_liar();
	others_are_served();
}

static void no_credits_and_no_grant_are_only_silence(void **state)
{
	prepare();
	liar.conn[CREDITS] = 0;
	put32(liar.conn + DATA_LENGTH, 0);
	assert_int_equal(meet(), 0);
	assert_int_equal(rsend(w.server, "x", 1, MSG_DONTWAIT), -1);
	assert_int_equal(errno, EAGAIN);
	drop_liar();
	others_are_served();
}

static void *serve_lies(void *arg)
{
	struct rdma_conn_param p;

	assert_int_equal(rdma_get_request(liar.listener, &liar.id), 0);
	make_ready(liar.id);
	memset(liar.conn, 0xee, CONN_LEN);
	p = param();
	rdma_accept(liar.id, &p);
	return NULL;
}

static void an_answer_that_is_none_fails_the_connect(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int s = rsocket(AF_INET, SOCK_STREAM, 0);
	pthread_t t;

	assert_int_equal(rdma_create_id(NULL, &liar.listener, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(liar.listener, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(liar.listener, 1), 0);
	a.sin_port = rdma_get_src_port(liar.listener);
	pthread_create(&t, NULL, serve_lies, NULL);
	assert_int_equal(rconnect(s, (struct sockaddr *)&a, sizeof(a)), -1);
	assert_int_equal(errno, EPROTO);
	pthread_join(t, NULL);
	assert_int_equal(rclose(s), 0);
}

/* ---- messages ---- */
static void breaks(uint32_t msg, const char *data, uint32_t len)
{
	char buf[64];

	setup(NULL);
	prepare();
	assert_int_equal(meet(), 0);
	say_data(3, "abc", 3);
	say_data(msg, data, len);
	assert_int_equal(rrecv(w.server, buf, 3, MSG_WAITALL), 3); /* what was right before */
	assert_int_equal(rrecv(w.server, buf, sizeof(buf), 0), -1);
	assert_int_equal(errno, EPROTO);
	assert_true(events_of(w.server, POLLIN | POLLOUT, 0) & POLLERR);
	assert_int_equal(rsend(w.server, "x", 1, 0), -1);
	assert_int_equal(error_of(w.server), EPROTO);
	drop_liar();
	others_are_served();
	teardown(NULL);
}

static void messages_no_rsocket_sends_end_the_connection(void **state)
{
	static const char sixteen[24];

	breaks(0x1fffffff, NULL, 0);     /* more bytes than there are */
	breaks(65536 - 3 + 1, NULL, 0);  /* one more than is granted */
	breaks(5, "four", 4);            /* not what was written */
	breaks(1u << 29 | 4, "more", 4); /* unknown kinds */
	breaks(2u << 29 | 4, "more", 4);
	breaks(3u << 29 | 4, "more", 4);
	breaks(5u << 29, NULL, 0);
	breaks(4u << 29 | 5, sixteen, 15); /* a grant that is none */
	breaks(6u << 29 | 1, sixteen, 24); /* a mapping beyond the table */
	breaks(6u << 29 | 0x1fffffff, sixteen, 24);
}

static void grants_without_end_end_the_connection(void **state)
{
	uint64_t grant[2] = {(uintptr_t)liar.memory, (uint64_t)4096 << 32};
	char c;

	prepare();
	assert_int_equal(meet(), 0);
	for (int i = 0; i < 4; i++)
		say(4u << 29 | 100, grant, 16, be64_at(liar.theirs + 8) + (uint64_t)((i + 1) % 2) * 16,
			be32_at(liar.theirs + 16));
	assert_int_equal(rrecv(w.server, &c, 1, 0), -1);
	assert_int_equal(errno, EPROTO);
}

/* Beyond the memory that was offered the adapter says no. */
static void writing_beyond_the_ring_is_refused_by_the_adapter(void **state)
{
	char c;

	prepare();
	assert_int_equal(meet(), 0);
	say(16, "0123456789abcdef", 16, be64_at(liar.theirs + 24) + (1 << 20), be32_at(liar.theirs + 32));
	assert_int_equal(rrecv(w.server, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
	drop_liar();
	others_are_served();
}

/* A mapping may point anywhere, and change at any time: riowrite copies it first. */
static void a_mapping_of_nonsense_ends_the_connection(void **state)
{
	uint64_t entry[3] = {1000, ~0ull << 12, 0xffffffffull << 32};
	char c;

	prepare();
	assert_int_equal(meet(), 0);
	say(6u << 29, entry, 24, be64_at(liar.theirs + 8) + 32, be32_at(liar.theirs + 16));
	say_data(1, "m", 1);
	assert_int_equal(rrecv(w.server, &c, 1, 0), 1);
	assert_int_equal(riowrite(w.server, "data", 4, 999, 0), 0);
	assert_int_equal(riowrite(w.server, "data", 4, 2000, 0), 4);
	assert_int_equal(rrecv(w.server, &c, 1, 0), -1);
	assert_int_equal(errno, ECONNRESET);
}

/* Its adapter says "not ready" for ever. */
static void who_does_not_receive_cannot_keep_us_from_closing(void **state)
{
	struct linger one_second = {.l_onoff = 1, .l_linger = 1};

	liar.deaf = true;
	prepare();
	assert_int_equal(meet(), 0);
	assert_int_equal(rsetsockopt(w.server, SOL_SOCKET, SO_LINGER, &one_second, sizeof(one_second)), 0);
	assert_int_equal(rsend(w.server, "x", 1, 0), 1);
	assert_int_equal(rclose(w.server), 0);
	w.server = -1;
	liar.deaf = false;
	drop_liar();
	others_are_served();
}

/* ---- a network that loses the RTU: the library sends by the calls below ---- */
static atomic_bool lose_rtu;

static bool is_lost(const struct msghdr *m)
{
	enum { MAD = 12 + 8, CLASS = MAD + 1, ATTR = MAD + 16, HEAD = ATTR + 2 };
	uint8_t head[HEAD];
	size_t have = 0;

	for (size_t i = 0; i < m->msg_iovlen && have < HEAD; i++) {
		size_t len = m->msg_iov[i].iov_len < HEAD - have ? m->msg_iov[i].iov_len : HEAD - have;

		memcpy(head + have, m->msg_iov[i].iov_base, len);
		have += len;
	}
	return lose_rtu && have == HEAD && head[CLASS] == 7 && !head[ATTR] && head[ATTR + 1] == 0x14;
}

__attribute__((visibility("default"))) ssize_t sendmsg(int fd, const struct msghdr *m, int flags)
{
	return is_lost(m) ? 0 : syscall(SYS_sendmsg, fd, m, flags);
}

__attribute__((visibility("default"))) int sendmmsg(int fd, struct mmsghdr *m, unsigned n, int flags)
{
	unsigned before = 0;

	while (before < n && !is_lost(&m[before].msg_hdr))
		before++;
	return before ? (int)syscall(SYS_sendmmsg, fd, m, before, flags) : 1;
}

/* What it sent was acknowledged, and then it went: that is a connection. */
static void who_goes_before_its_rtu_came_is_still_heard(void **state)
{
	struct rdma_conn_param p;
	struct ibv_wc wc;
	char buf[16];

	prepare();
	p = param();
	lose_rtu = true;
	assert_int_equal(rdma_connect(liar.id, &p), 0);
	memcpy(liar.theirs, liar.id->event->param.conn.private_data, CONN_LEN);
	say_data(5, "hello", 5);
	assert_int_equal(rdma_get_send_comp(liar.id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(events_of(w.listener, POLLIN, 0), 0);
	assert_int_equal(rdma_disconnect(liar.id), 0);
	assert_true(events_of(w.listener, POLLIN, 20000) & POLLIN);
	lose_rtu = false;
	w.server = raccept(w.listener, NULL, NULL);
	assert_true(w.server >= 0);
	assert_int_equal(rrecv(w.server, buf, sizeof(buf), 0), 5);
	assert_memory_equal(buf, "hello", 5);
	assert_int_equal(rrecv(w.server, buf, sizeof(buf), 0), 0);
}

#define LIAR_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		LIAR_TEST(an_honest_stranger_is_understood),
		LIAR_TEST(another_version_is_refused),
		LIAR_TEST(no_slots_are_refused),
		LIAR_TEST(nonsense_addresses_end_the_connection),
		LIAR_TEST(no_credits_and_no_grant_are_only_silence),
		LIAR_TEST(an_answer_that_is_none_fails_the_connect),
		cmocka_unit_test(messages_no_rsocket_sends_end_the_connection),
		LIAR_TEST(grants_without_end_end_the_connection),
		LIAR_TEST(writing_beyond_the_ring_is_refused_by_the_adapter),
		LIAR_TEST(a_mapping_of_nonsense_ends_the_connection),
		LIAR_TEST(who_does_not_receive_cannot_keep_us_from_closing),
		LIAR_TEST(who_goes_before_its_rtu_came_is_still_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
