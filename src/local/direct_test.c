/* SPDX-License-Identifier: MIT */
/*
 * Requests that a process does in its peer's memory by itself: what the peer's own adapter would refuse is
 * left to it. The peer is this process, with an export and a queue pair of its own.
 */
#include "local/direct.h"

#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/mr.h"
#include "hca/qp.h"
#include "local/pages/window.h"
#include "wire/ibt.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { LEN = 64, KEY = 0x1234, MINE = 0x111, THEIRS = 0x222, PSN = 100, ALL = 15 };

struct stage {
	struct hca_adapter adapter; /* the peer's: but for the export, nothing of it is used */
	struct hca_pd pd, other_pd;
	struct hca_key key;
	struct hca_qp *mine, *theirs;
	_Atomic uint32_t revoked;
	struct windows windows;
	struct local_peer peer;
	struct hca_send_wqe *w; /* its data is what is written, and where is read to */
	char memory[3 * LEN];   /* the region is in the middle */
};

static struct hca_qp *new_qp(uint32_t number)
{
	size_t size = (sizeof(struct hca_qp) + 63) & ~(size_t)63;
	struct hca_qp *qp = aligned_alloc(64, size);

	memset(qp, 0, size);
	qp->ex.qp_base = (struct ibv_qp){.qp_num = number, .qp_type = IBV_QPT_RC, .state = IBV_QPS_RTS};
	qp->service = *hca_service_of(IBV_QPT_RC);
	lock_init(&qp->lock);
	lock_take(&qp->lock);
	return qp;
}

static int make(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));

	guard_install();
	s->mine = new_qp(MINE);
	s->theirs = new_qp(THEIRS);
	s->adapter.export.table = aligned_alloc(64, sizeof(*s->adapter.export.table));
	memset(s->adapter.export.table, 0, sizeof(*s->adapter.export.table));
	lock_init(&s->adapter.export.lock);
	local_export_begin(&s->adapter.export);
	windows_init(&s->windows);
	s->pd.number = 5;
	s->other_pd.number = 6;
	s->key = (struct hca_key){.key = KEY, .kind = KEY_MR, .pd = &s->pd, .access = ALL, .length = LEN};
	s->key.host = s->memory + LEN;
	s->key.iova = (uintptr_t)s->key.host;
	s->theirs->pd = &s->pd;
	s->theirs->path.shared = true;
	s->theirs->path.pkey = s->mine->path.pkey = PKEY_DEFAULT;
	s->theirs->attr = (struct ibv_qp_attr){
		.dest_qp_num = MINE, .rq_psn = PSN, .qp_access_flags = ALL, .max_dest_rd_atomic = 4};
	s->mine->attr = (struct ibv_qp_attr){.dest_qp_num = THEIRS, .sq_psn = PSN, .max_rd_atomic = 4};
	s->peer = (struct local_peer){.export = s->adapter.export.table,
		.number = 1,
		.windows = &s->windows,
		.revoked = &s->revoked,
		.self = true};
	s->w = calloc(1, sizeof(*s->w) + 4 * LEN);
	*state = s;
	return 0;
}

static int unmake(void **state)
{
	struct stage *s = *state;

	local_export_end(&s->adapter.export);
	windows_fini(&s->windows);
	free(s->adapter.export.table);
	free(s->w);
	free(s->mine);
	free(s->theirs);
	free(s);
	return 0;
}

/* Whether a request at this place of the region was done here; if not, nothing may have happened. */
static bool does(struct stage *s, enum ibv_wr_opcode op, int off, uint32_t len)
{
	bool write = op == IBV_WR_RDMA_WRITE, done;
	char *to = write ? s->memory : (char *)s->w->data;
	size_t room = write ? sizeof(s->memory) : 2 * LEN;
	static const char zero[3 * LEN];

	hca_export_key(&s->adapter, &s->key);
	hca_export_qp(&s->adapter, s->theirs);
	memset(s->w->data, write ? 7 : 0, 2 * LEN);
	memset(s->memory, write ? 0 : 7, sizeof(s->memory));
	s->w->opcode = (uint8_t)op;
	s->w->flags = IBV_SEND_INLINE;
	s->w->length = len;
	s->w->moved = 0;
	s->w->remote.addr = s->key.iova + (uint64_t)off;
	s->w->remote.rkey = KEY;
	done = local_do(s->mine, s->w, 1 << 20, &s->peer) == LOCAL_DONE;
	assert_int_equal(!done, !memcmp(to, zero, room));
	assert_int_equal(s->w->moved, done ? len : 0);
	return done;
}

static bool writes(struct stage *s)
{
	return does(s, IBV_WR_RDMA_WRITE, 0, LEN);
}

static bool reads(struct stage *s)
{
	return does(s, IBV_WR_RDMA_READ, 0, LEN);
}

/* ---- tests ---- */
static void write_and_read_are_done_here(void **state)
{
	assert_true(writes(*state));
	assert_true(reads(*state));
}

static void nothing_beyond_the_region(void **state)
{
	struct stage *s = *state;

	for (enum ibv_wr_opcode op = IBV_WR_RDMA_WRITE; op <= IBV_WR_RDMA_READ;
		op += IBV_WR_RDMA_READ - IBV_WR_RDMA_WRITE) {
		assert_false(does(s, op, 0, LEN + 1));
		assert_false(does(s, op, 1, LEN));
		assert_false(does(s, op, LEN, 1));
		assert_false(does(s, op, -1, 1));
		assert_true(does(s, op, 1, LEN - 1));
	}
}

static void key_must_have_the_right(void **state)
{
	struct stage *s = *state;

	s->key.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	assert_true(reads(s));
	assert_false(writes(s));
	s->key.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	assert_true(writes(s));
	assert_false(reads(s));
}

static void queue_pair_must_have_the_right(void **state)
{
	struct stage *s = *state;

	s->theirs->attr.qp_access_flags = IBV_ACCESS_REMOTE_READ;
	assert_true(reads(s));
	assert_false(writes(s));
	s->theirs->attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	assert_true(writes(s));
	assert_false(reads(s));
}

/* It would refuse a READ, and so would our own adapter where we may have none under way. */
static void depth_of_none_means_no_reads(void **state)
{
	struct stage *s = *state;

	s->theirs->attr.max_dest_rd_atomic = 0;
	assert_false(reads(s));
	assert_true(writes(s));
	s->theirs->attr.max_dest_rd_atomic = 4;
	s->mine->attr.max_rd_atomic = 0;
	assert_false(reads(s));
	assert_true(writes(s));
}

static void key_and_queue_pair_are_of_one_domain(void **state)
{
	struct stage *s = *state;

	s->theirs->pd = &s->other_pd;
	assert_false(writes(s));
	assert_false(reads(s));
}

static void key_must_be_there(void **state)
{
	struct stage *s = *state;

	assert_true(writes(s));
	hca_unexport_key(&s->adapter, KEY); /* since it was seen */
	s->w->moved = 0;
	assert_int_equal(local_do(s->mine, s->w, 1 << 20, &s->peer), LOCAL_DECLINED);
}

/* The peer's queue pair may be another's by now, with the same number. */
static void queue_pair_must_be_connected_to_us(void **state)
{
	struct stage *s = *state;

	s->theirs->attr.dest_qp_num = MINE + 1;
	assert_false(writes(s));
	s->theirs->attr.dest_qp_num = MINE;
	s->theirs->attr.rq_psn = PSN + 1;
	assert_false(writes(s));
	s->theirs->attr.rq_psn = PSN;
	s->theirs->path.dest.dgid[15] = 1;
	assert_false(writes(s));
	s->theirs->path.dest.dgid[15] = 0;
	assert_true(writes(s));
}

/* As a packet would be dropped. */
static void queue_pair_must_be_of_our_partition(void **state)
{
	struct stage *s = *state;

	s->theirs->path.pkey = PKEY_DEFAULT & ~PKEY_FULL;
	assert_true(writes(s));
	s->mine->path.pkey = PKEY_DEFAULT & ~PKEY_FULL;
	assert_false(writes(s)); /* two limited members */
	s->mine->path.pkey = PKEY_DEFAULT;
	s->theirs->path.pkey = PKEY_DEFAULT - 1;
	assert_false(writes(s));
	s->theirs->path.pkey = PKEY_DEFAULT;
	assert_true(writes(s));
}

static void queue_pair_must_take_requests(void **state)
{
	struct stage *s = *state;

	s->theirs->ex.qp_base.state = IBV_QPS_RTR; /* its first message is an event there */
	assert_false(writes(s));
	s->theirs->comm_est_raised = true;
	assert_true(writes(s));
	s->theirs->ex.qp_base.state = IBV_QPS_ERR;
	assert_false(writes(s));
}

static void who_was_cut_off_does_nothing(void **state)
{
	struct stage *s = *state;

	s->revoked = 1;
	assert_false(writes(s));
}

static void process_must_live(void **state)
{
	struct stage *s = *state;

	local_export_end(&s->adapter.export);
	assert_false(writes(s));
	local_export_begin(&s->adapter.export);
	assert_true(writes(s));
}

#define T(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(write_and_read_are_done_here),
		T(nothing_beyond_the_region),
		T(key_must_have_the_right),
		T(queue_pair_must_have_the_right),
		T(depth_of_none_means_no_reads),
		T(key_and_queue_pair_are_of_one_domain),
		T(key_must_be_there),
		T(queue_pair_must_be_connected_to_us),
		T(queue_pair_must_be_of_our_partition),
		T(queue_pair_must_take_requests),
		T(who_was_cut_off_does_nothing),
		T(process_must_live),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
