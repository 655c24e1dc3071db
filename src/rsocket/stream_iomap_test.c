/* SPDX-License-Identifier: MIT */
/* Mappings of a connected stream, over a device that the test plays. */
#include "rsocket/device_test.h"
#include "rsocket/stream.h"

#include <errno.h>
#include <sys/mman.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { SENDS = 16, SBUF = 8192, OFFSET = 1000, PEER_KEY = 7 };

static const struct ibv_send_wr *last;

static void posted(const struct ibv_send_wr *wr)
{
	static struct ibv_send_wr copy;

	copy = *wr;
	last = &copy;
}

/* Connected to a peer that has room for mappings, gives credits, and has a mapping of 100 bytes. */
static int make(void **state)
{
	struct rs_stream *s = rs_stream_alloc(AF_INET);
	struct rs_conn c = {.version = RS_VERSION,
		.flags = RS_FLAG_IOMAP,
		.credits = 100,
		.iomap_size = 4,
		.sgl = {.addr = 0x1000, .key = PEER_KEY, .length = RS_SLOTS},
		.data = {.addr = 0x2000, .key = PEER_KEY, .length = 1000}};
	uint8_t conn[RS_CONN_LEN];

	device_reset(IBV_TRANSPORT_IB, posted);
	s->rs.sizes = (struct rsock_sizes){.sbuf = SBUF, .rbuf = 1024, .sq = SENDS, .rq = 16, .iomap = 4};
	s->id = &device.id;
	assert_int_equal(rs_ep_create(s), 0);
	rs_conn_pack(&c, conn);
	assert_int_equal(rs_flow_meet(&s->flow, conn), 0);
	lock_take(&s->lock);
	rs_stream_set_state(s, RS_OPENING);
	rs_stream_set_state(s, RS_CONNECTED);
	lock_drop(&s->lock);
	s->iomaps[0] = (struct rs_iomap){OFFSET, {.addr = 0x3000, .key = PEER_KEY, .length = 100}};
	s->rs.ops->poll(&s->rs, POLLIN); /* grants the second half */
	assert_true(device_complete_send(IBV_WC_SUCCESS));
	*state = s;
	return 0;
}

static int unmake(void **state)
{
	rs_stream_free(*state);
	return 0;
}

static ssize_t write_byte(struct rs_stream *s)
{
	return rs_stream_iowrite(&s->rs, "x", 1, OFFSET + 5, MSG_DONTWAIT);
}

static void writes_go_where_the_peer_mapped(void **state)
{
	struct rs_stream *s = *state;

	assert_int_equal(write_byte(s), 1);
	assert_int_equal(last->wr.rdma.remote_addr, 0x3005);
	assert_int_equal(last->wr.rdma.rkey, PEER_KEY);
	assert_int_equal(rs_stream_iowrite(&s->rs, "xy", 2, OFFSET + 99, MSG_DONTWAIT), 1);
	assert_int_equal(rs_stream_iowrite(&s->rs, "x", 1, OFFSET + 100, MSG_DONTWAIT), 0);
}

/* A mapping that could not be announced for want of a work request takes the next; the write has to wait. */
static void announcement_may_take_the_last_work_request(void **state)
{
	struct rs_stream *s = *state;
	static uint8_t memory[64];

	for (int i = 0; i < SENDS; i++)
		assert_int_equal(write_byte(s), 1);
	assert_int_equal(write_byte(s), -EAGAIN);
	assert_true(rs_stream_iomap(&s->rs, memory, sizeof(memory), PROT_WRITE, 0, 0) == 0);
	assert_int_equal(device.sends, SENDS);
	assert_true(device_complete_send(IBV_WC_SUCCESS));
	assert_int_equal(write_byte(s), -EAGAIN);
	assert_int_equal(rs_msg_op(be32toh(last->imm_data)), RS_OP_IOMAP);
	assert_int_equal(device.sends, SENDS);
	assert_int_equal(s->sqe_free, 0);
	assert_true(device_complete_send(IBV_WC_SUCCESS));
	assert_int_equal(write_byte(s), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(writes_go_where_the_peer_mapped, make, unmake),
		cmocka_unit_test_setup_teardown(announcement_may_take_the_last_work_request, make, unmake),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
