/* SPDX-License-Identifier: MIT */
/*
 * Groups of datagram ids, with real traffic. multicast IP4 IP6: addresses of an interface that has multicast,
 * which the loopback has not for IPv6. All members are of one process: what one sends comes back to the
 * others by the kernel's own copy of what leaves the interface.
 */
#include "world.h"

#include <rdma/rdma_verbs.h>

static struct {
	int family;
	struct sockaddr_storage local, group;
} net;

enum { GRH = 40, LEN = 64, RECEIVES = 8, MAX_MEMBERS = 3 };

struct member {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
	uint8_t buf[RECEIVES + 1][256]; /* the last to send from */
};

static struct member members[MAX_MEMBERS];
static struct rdma_event_channel *channel;

static void parse(const char *text, struct sockaddr_storage *out)
{
	out->ss_family = (sa_family_t)net.family;
	if (net.family == AF_INET)
		assert_int_equal(inet_pton(AF_INET, text, &((struct sockaddr_in *)out)->sin_addr), 1);
	else
		assert_int_equal(inet_pton(AF_INET6, text, &((struct sockaddr_in6 *)out)->sin6_addr), 1);
}

/* ---- members ---- */
static void open_member(struct member *m)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
	};

	assert_int_equal(rdma_create_id(channel, &m->id, m, RDMA_PS_UDP), 0);
	assert_int_equal(rdma_bind_addr(m->id, (struct sockaddr *)&net.local), 0);
	assert_int_equal(rdma_create_qp(m->id, NULL, &attr), 0);
	m->mr = rdma_reg_msgs(m->id, m->buf, sizeof(m->buf));
	assert_non_null(m->mr);
	for (int i = 0; i < RECEIVES; i++)
		assert_int_equal(rdma_post_recv(m->id, m->buf[i], m->buf[i], sizeof(m->buf[i]), m->mr), 0);
}

static void close_member(struct member *m)
{
	if (m->ah)
		ibv_destroy_ah(m->ah);
	rdma_destroy_qp(m->id);
	rdma_dereg_mr(m->mr);
	assert_int_equal(rdma_destroy_id(m->id), 0);
	memset(m, 0, sizeof(*m));
}

static int setup_members(void **state)
{
	channel = rdma_create_event_channel();
	assert_non_null(channel);
	for (int i = 0; i < MAX_MEMBERS; i++)
		open_member(&members[i]);
	return 0;
}

static int close_members(void **state)
{
	for (int i = 0; i < MAX_MEMBERS; i++)
		close_member(&members[i]);
	rdma_destroy_event_channel(channel);
	return 0;
}

/* ---- joining ---- */
static void expect_join(struct member *m)
{
	struct rdma_cm_event *e;

	assert_int_equal(rdma_get_cm_event(channel, &e), 0);
	assert_int_equal(e->event, RDMA_CM_EVENT_MULTICAST_JOIN);
	assert_int_equal(e->status, 0);
	assert_ptr_equal(e->id, m->id);
	assert_ptr_equal(e->param.ud.private_data, m);
	m->qpn = e->param.ud.qp_num;
	m->qkey = e->param.ud.qkey;
	assert_int_equal(m->qpn, 0xffffff);
	if (!m->ah)
		m->ah = ibv_create_ah(m->id->pd, &e->param.ud.ah_attr);
	assert_non_null(m->ah);
	assert_int_equal(rdma_ack_cm_event(e), 0);
}

static void join(struct member *m)
{
	assert_int_equal(rdma_join_multicast(m->id, (struct sockaddr *)&net.group, m), 0);
	expect_join(m);
}

static void join_as(struct member *m, enum rdma_cm_mc_join_flags flags)
{
	struct rdma_cm_join_mc_attr_ex attr = {
		.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
		.join_flags = flags,
		.addr = (struct sockaddr *)&net.group,
	};

	assert_int_equal(rdma_join_multicast_ex(m->id, &attr, m), 0);
	expect_join(m);
}

static int leave(struct member *m)
{
	return rdma_leave_multicast(m->id, (struct sockaddr *)&net.group) ? errno : 0;
}

/* ---- traffic ---- */
static void send_to_group(struct member *m, const char *text)
{
	struct ibv_wc wc;

	strcpy((char *)m->buf[RECEIVES], text);
	assert_int_equal(rdma_post_ud_send(
				 m->id, NULL, m->buf[RECEIVES], LEN, m->mr, IBV_SEND_SIGNALED, m->ah, m->qpn),
		0);
	assert_int_equal(rdma_get_send_comp(m->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

static void hears(struct member *m, const char *text)
{
	struct ibv_wc wc;

	assert_int_equal(rdma_get_recv_comp(m->id, &wc), 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.byte_len, GRH + LEN);
	assert_string_equal((char *)(uintptr_t)wc.wr_id + GRH, text);
}

static void has_heard_nothing(struct member *m)
{
	struct ibv_wc wc;

	assert_int_equal(ibv_poll_cq(m->id->recv_cq, 1, &wc), 0);
}

/* ---- */
static void a_send_only_member_does_not_receive(void **state)
{
	struct member *sender = &members[0], *full = &members[1], *other = &members[2];

	join_as(sender, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
	join_as(full, RDMA_MC_JOIN_FLAG_FULLMEMBER);
	join(other);
	send_to_group(sender, "one");
	hears(full, "one");
	hears(other, "one");
	send_to_group(other, "two");
	hears(full, "two");
	send_to_group(sender, "three"); /* when this is here the others were for everybody */
	hears(full, "three");
	has_heard_nothing(sender);
	assert_int_equal(leave(sender), 0);
}

static void who_has_left_hears_no_more(void **state)
{
	struct member *sender = &members[0], *stays = &members[1], *leaves = &members[2];

	join_as(sender, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
	join(stays);
	join(leaves);
	send_to_group(sender, "both");
	hears(stays, "both");
	hears(leaves, "both");
	assert_int_equal(leave(leaves), 0);
	assert_int_equal(leave(leaves), EADDRNOTAVAIL);
	send_to_group(sender, "one");
	send_to_group(sender, "two");
	hears(stays, "one");
	hears(stays, "two");
	has_heard_nothing(leaves);
	join(leaves);
	send_to_group(sender, "again");
	hears(leaves, "again");
}

/* Linux has a join for each call; who leaves the last one is no member. */
static void who_joins_twice_leaves_twice(void **state)
{
	struct member *sender = &members[0], *twice = &members[1], *stays = &members[2];

	join_as(sender, RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER);
	join(stays);
	join(twice);
	join(twice);
	send_to_group(sender, "once");
	hears(stays, "once");
	hears(twice, "once");
	assert_int_equal(leave(twice), 0);
	send_to_group(sender, "still");
	hears(stays, "still");
	hears(twice, "still");
	assert_int_equal(leave(twice), 0);
	send_to_group(sender, "last");
	send_to_group(sender, "end");
	hears(stays, "last");
	hears(stays, "end");
	has_heard_nothing(twice);
	assert_int_equal(leave(twice), EADDRNOTAVAIL);
}

static void joins_that_make_no_sense(void **state)
{
	struct rdma_cm_join_mc_attr_ex attr = {.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS,
		.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER,
		.addr = (struct sockaddr *)&net.group};

	assert_int_equal(rdma_join_multicast_ex(members[0].id, &attr, NULL), -1);
	assert_int_equal(errno, ENOTSUP);
	attr.comp_mask |= RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
	attr.join_flags = RDMA_MC_JOIN_FLAG_RESERVED;
	assert_int_equal(rdma_join_multicast_ex(members[0].id, &attr, NULL), -1);
	assert_int_equal(errno, ENOTSUP);
	assert_int_equal(rdma_join_multicast(members[0].id, (struct sockaddr *)&net.local, NULL), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(leave(&members[0]), EADDRNOTAVAIL);
}

static int run(int family, const char *local, const char *group)
{
#define MEMBERS(name) cmocka_unit_test_setup_teardown(name, setup_members, close_members)
	const struct CMUnitTest tests[] = {
		MEMBERS(a_send_only_member_does_not_receive),
		MEMBERS(who_has_left_hears_no_more),
		MEMBERS(who_joins_twice_leaves_twice),
		MEMBERS(joins_that_make_no_sense),
	};

	memset(&net, 0, sizeof(net));
	net.family = family;
	parse(local, &net.local);
	parse(group, &net.group);
	return cmocka_run_group_tests_name(group, tests, NULL, NULL);
}

int main(int argc, char **argv)
{
	return argc != 3 || run(AF_INET, argv[1], "239.7.7.9") || run(AF_INET6, argv[2], "ff15::79");
}
