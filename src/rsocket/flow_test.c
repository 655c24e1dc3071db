/* SPDX-License-Identifier: MIT */
/* The stream protocol: two sides talk through memory, at random; and one of them lies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>

#include "rsocket/flow.h"

enum { HALF = 1000, RQ = 8, SLOTS_KEY = 11, RING_KEY = 12, MAPS = 2 };

struct side {
	struct rs_flow flow;
	uint8_t ring[2 * HALF];
	struct rs_sge slots[RS_SLOTS];
	struct rs_iomap maps[MAPS];
};

static void start(struct side *s, uint8_t conn[RS_CONN_LEN])
{
	memset(s, 0, sizeof(*s));
	rs_flow_init(&s->flow, (uintptr_t)s->ring, RING_KEY, HALF, RQ, s->slots);
	s->flow.own_iomaps = MAPS;
	rs_flow_describe(&s->flow, (uintptr_t)s->slots, SLOTS_KEY, conn);
}

static void connect_sides(struct side *a, struct side *b)
{
	uint8_t of_a[RS_CONN_LEN], of_b[RS_CONN_LEN];

	start(a, of_a);
	start(b, of_b);
	assert_int_equal(rs_flow_meet(&a->flow, of_b), 0);
	assert_int_equal(rs_flow_meet(&b->flow, of_a), 0);
}

/* An RDMA WRITE as the adapter does it: into memory that its key allows. */
static void rdma_write(struct side *to, const struct rs_post *p, const void *data, uint32_t len)
{
	uint8_t *mem = p->rkey == RING_KEY ? to->ring : (uint8_t *)to->slots;
	size_t size = p->rkey == RING_KEY ? sizeof(to->ring) : sizeof(to->slots);

	assert_true(p->rkey == RING_KEY || p->rkey == SLOTS_KEY);
	assert_true(p->addr >= (uintptr_t)mem && p->addr + len <= (uintptr_t)mem + size);
	memcpy((void *)(uintptr_t)p->addr, data, len);
}

static enum rs_verdict tell(struct side *from, struct side *to)
{
	struct rs_post p;

	rs_flow_tell(&from->flow, &p);
	if (p.len)
		rdma_write(to, &p, &p.sge, p.len);
	return rs_flow_receive(&to->flow, p.msg, p.len);
}

static uint32_t drain(struct side *s, uint8_t *expected, uint32_t most)
{
	uint32_t done = 0, len;

	most = most < s->flow.unread ? most : s->flow.unread;
	while (done < most) {
		uint32_t at = rs_flow_piece(&s->flow, done, &len);

		len = len < most - done ? len : most - done;
		for (uint32_t i = 0; i < len; i++)
			assert_int_equal(s->ring[at + i], (*expected)++);
		done += len;
	}
	rs_flow_consume(&s->flow, done);
	return done;
}

static void bytes_arrive_in_order_whatever_the_sizes(void **state)
{
	struct side a, b;
	uint8_t next_sent = 0, next_read = 0, data[2 * HALF];
	uint64_t sent = 0, read = 0;

	srand(1);
	connect_sides(&a, &b);
	while (read < 300000) {
		uint32_t room = rs_flow_room(&a.flow);
		struct rs_post p;

		if (room && rand() % 3) {
			uint32_t len = 1 + (uint32_t)rand() % (rand() % 4 ? room : 20);

			len = len < room ? len : room;
			for (uint32_t i = 0; i < len; i++)
				data[i] = next_sent++;
			rs_flow_send(&a.flow, len, &p);
			rdma_write(&b, &p, data, len);
			assert_int_equal(rs_flow_receive(&b.flow, p.msg, len), RS_DATA);
			sent += len;
		}
		if (rand() % 2)
			read += drain(&b, &next_read, (uint32_t)rand() % 700);
		if (rs_flow_must_tell(&b.flow) && rand() % 2)
			assert_int_equal(tell(&b, &a), RS_CREDIT);
		assert_true(sent - read <= 2 * HALF);
	}
}

/* The other side may be quick: nothing is granted twice, and never more than two halves are open. */
static void no_more_is_granted_than_the_ring_holds(void **state)
{
	struct side a, b;
	uint32_t total = 0;

	connect_sides(&a, &b);
	while (rs_flow_must_tell(&b.flow))
		tell(&b, &a);
	for (uint32_t room; (room = rs_flow_room(&a.flow));) {
		struct rs_post p;

		rs_flow_send(&a.flow, room, &p);
		assert_int_equal(rs_flow_receive(&b.flow, p.msg, room), RS_DATA);
		total += room;
	}
	assert_int_equal(total, 2 * HALF);
	assert_false(rs_flow_must_tell(&b.flow));
}

static void no_more_messages_than_credits(void **state)
{
	struct side a, b;
	unsigned n = 0;

	connect_sides(&a, &b);
	for (struct rs_post p; rs_flow_room(&a.flow); n++)
		rs_flow_send(&a.flow, 1, &p);
	assert_int_equal(n, RQ);
	assert_false(rs_flow_has_credit(&a.flow));
}

/* What is told is what has a receive: those that came have a new one by then. */
static void no_more_credits_than_receives(void **state)
{
	struct side a, b;
	struct rs_post p;

	connect_sides(&a, &b);
	for (unsigned i = 0; i < RQ / 2; i++) {
		rs_flow_send(&a.flow, 1, &p);
		assert_int_equal(rs_flow_receive(&b.flow, p.msg, 1), RS_DATA);
	}
	assert_true(rs_flow_must_tell(&b.flow));
	assert_int_equal(tell(&b, &a), RS_CREDIT);
	assert_int_equal((uint16_t)(a.flow.may_send - a.flow.sent), RQ);
}

static void the_other_byte_order_is_written_swapped(void **state)
{
	struct side a, b;
	uint8_t conn[RS_CONN_LEN];
	struct rs_post p;

	start(&a, conn);
	conn[1] ^= RS_FLAG_BIG_ENDIAN;
	start(&b, conn);
	rs_flow_describe(&a.flow, (uintptr_t)a.slots, SLOTS_KEY, conn);
	conn[1] ^= RS_FLAG_BIG_ENDIAN;
	assert_int_equal(rs_flow_meet(&b.flow, conn), 0);
	rs_flow_tell(&b.flow, &p);
	assert_true(p.sge.addr == __builtin_bswap64((uintptr_t)b.ring + HALF));
	assert_int_equal(p.sge.key, __builtin_bswap32(RING_KEY));
	assert_int_equal(p.sge.length, __builtin_bswap32(HALF));
}

static void sizes_of_mapping_tables_survive_their_eight_bits(void **state)
{
	static const uint32_t said[][2] = {
		{0, 0}, {1, 1}, {128, 128}, {300, 256}, {32512, 32512}, {1u << 31, 32512}};

	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++)
		assert_int_equal(rs_iomap_unpack(rs_iomap_pack(said[i][0])), said[i][1]);
}

/* ---- lies ---- */
static void connection_data_that_cannot_be_meant(void **state)
{
	struct side a;
	uint8_t good[RS_CONN_LEN], bad[RS_CONN_LEN];

	start(&a, good);
	memcpy(bad, good, sizeof(bad));
	bad[0] = 2; /* version */
	assert_int_equal(rs_flow_meet(&a.flow, bad), -EPROTO);
	memcpy(bad, good, sizeof(bad));
	memset(bad + 20, 0, 4); /* no slots */
	assert_int_equal(rs_flow_meet(&a.flow, bad), -EPROTO);
	memset(bad, 0xff, sizeof(bad));
	bad[0] = RS_VERSION;
	assert_int_equal(rs_flow_meet(&a.flow, bad), 0); /* its own memory is its own business */
	assert_true(rs_flow_room(&a.flow) <= RS_MOST_AT_ONCE);
	memcpy(bad, good, sizeof(bad));
	memset(bad + 36, 0, 4); /* no first grant */
	start(&a, good);
	assert_int_equal(rs_flow_meet(&a.flow, bad), 0);
	assert_int_equal(rs_flow_room(&a.flow), 0);
}

static void breach(uint32_t msg, uint32_t written)
{
	struct side a, b;

	connect_sides(&a, &b);
	assert_int_equal(rs_flow_receive(&a.flow, msg, written), RS_BREACH);
}

static void messages_that_no_rsocket_sends(void **state)
{
	breach(rs_msg(RS_OP_DATA, HALF + 1), HALF + 1); /* more than was granted */
	breach(rs_msg(RS_OP_DATA, RS_DATA_MASK), 0);
	breach(rs_msg(RS_OP_DATA, 10), 9); /* not what was written */
	breach(rs_msg(RS_OP_SGL, 5), 15);
	breach(rs_msg(RS_OP_IOMAP, MAPS), RS_IOMAP_LEN);
	for (unsigned op = 0; op < 8; op++) {
		if (op != RS_OP_DATA && op != RS_OP_SGL && op != RS_OP_IOMAP && op != RS_OP_CTRL)
			breach(op << 29, 0);
	}
}

static void a_third_grant_is_a_breach(void **state)
{
	struct side a, b;

	connect_sides(&a, &b);
	a.slots[1] = (struct rs_sge){1, 2, 3};
	assert_int_equal(rs_flow_receive(&a.flow, rs_msg(RS_OP_SGL, RQ), RS_SGE_LEN), RS_CREDIT);
	a.slots[0] = (struct rs_sge){1, 2, 3};
	assert_int_equal(rs_flow_receive(&a.flow, rs_msg(RS_OP_SGL, RQ), RS_SGE_LEN), RS_BREACH);
}

static void whatever_is_said_the_ring_stays_whole(void **state)
{
	struct side a, b;

	srand(2);
	for (int round = 0; round < 2000; round++) {
		connect_sides(&a, &b);
		for (int i = 0; i < 50; i++) {
			uint32_t msg = (uint32_t)rand() << 16 ^ (uint32_t)rand(), len, at;

			if (rand() % 2)
				msg = rs_msg(rand() % 2 ? RS_OP_DATA : RS_OP_SGL, (uint32_t)rand() % 1200);
			for (size_t j = 0; j < RS_SLOTS; j++)
				a.slots[j].length = (uint32_t)rand();
			if (rs_flow_receive(&a.flow, msg,
				    rand() % 2 ? rs_msg_data(msg) : (uint32_t)rand() % 20) == RS_BREACH)
				break;
			assert_true(a.flow.unread + a.flow.open + a.flow.spare <= 2 * HALF);
			at = rs_flow_piece(&a.flow, 0, &len);
			assert_true(at + len <= 2 * HALF);
			rs_flow_consume(&a.flow, a.flow.unread ? (uint32_t)rand() % (a.flow.unread + 1) : 0);
			while (rs_flow_must_tell(&a.flow)) {
				struct rs_post p;

				rs_flow_tell(&a.flow, &p);
			}
			if (rs_flow_room(&a.flow)) {
				struct rs_post p;

				rs_flow_send(&a.flow, 1 + (uint32_t)rand() % rs_flow_room(&a.flow), &p);
			}
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_arrive_in_order_whatever_the_sizes),
		cmocka_unit_test(no_more_is_granted_than_the_ring_holds),
		cmocka_unit_test(no_more_messages_than_credits),
		cmocka_unit_test(no_more_credits_than_receives),
		cmocka_unit_test(the_other_byte_order_is_written_swapped),
		cmocka_unit_test(sizes_of_mapping_tables_survive_their_eight_bits),
		cmocka_unit_test(connection_data_that_cannot_be_meant),
		cmocka_unit_test(messages_that_no_rsocket_sends),
		cmocka_unit_test(a_third_grant_is_a_breach),
		cmocka_unit_test(whatever_is_said_the_ring_stays_whole),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
