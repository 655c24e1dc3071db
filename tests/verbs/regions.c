/* SPDX-License-Identifier: MIT */
/* Memory regions: their rights, their addresses, and how they change. */
#include "fixture.h"

#include <errno.h>
#include <sys/mman.h>

#define LW IBV_ACCESS_LOCAL_WRITE
#define RW IBV_ACCESS_REMOTE_WRITE
#define RR IBV_ACCESS_REMOTE_READ
#define RA IBV_ACCESS_REMOTE_ATOMIC

static const struct {
	unsigned int access;
	int err;
} access_flags[] = {
	{0, 0},
	{LW, 0},
	{RR, 0},
	{LW | RW, 0},
	{LW | RA, 0},
	{LW | RW | RR | RA, 0},
	{LW | IBV_ACCESS_MW_BIND, 0},
	{LW | IBV_ACCESS_RELAXED_ORDERING, 0},
	{LW | IBV_ACCESS_ON_DEMAND, 0},
	{LW | IBV_ACCESS_HUGETLB, 0},
	{LW | IBV_ACCESS_OPTIONAL_RANGE, 0},
	{RW, EINVAL},
	{RA, EINVAL},
	{RW | RR, EINVAL},
	{RA | RR, EINVAL},
	{LW | 1u << 15, EINVAL},
};

/* `access` is no constant here, so ibv_reg_mr() goes by way of ibv_reg_mr_iova2(). */
static void region_rights_follow_the_rules(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	char buf[64];

	for (size_t i = 0; i < ARRAY_LEN(access_flags); i++) {
		struct ibv_mr *mr;

		errno = 0;
		mr = ibv_reg_mr(pd, buf, sizeof(buf), access_flags[i].access);
		if (!mr != !!access_flags[i].err || (!mr && errno != access_flags[i].err))
			fail_msg("access %#x: %s, errno %d", access_flags[i].access, mr ? "taken" : "refused",
				errno);
		if (mr) {
			assert_ptr_equal(mr->addr, buf);
			assert_int_equal(mr->length, sizeof(buf));
			assert_ptr_equal(mr->pd, pd);
			assert_ptr_equal(mr->context, t->ctx);
			assert_int_equal(ibv_dereg_mr(mr), 0);
		}
	}
	errno = 0;
	assert_null(ibv_reg_mr(pd, buf, sizeof(buf), IBV_ACCESS_REMOTE_WRITE));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_mr(pd, (void *)(UINTPTR_MAX - 4095), 8192, 0));
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* What the kernel could not pin is refused as it would refuse it. */
static void memory_that_is_not_there_is_refused(void **state)
{
	enum { PAGE = 4096, MANY = 2000 }; /* short and long ranges are looked up differently */
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	char *p = mmap(NULL, MANY * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		-1, 0);
	struct ibv_mr *mr;

	assert_ptr_not_equal(p, MAP_FAILED);
	munmap(p + 4 * PAGE, PAGE);
	for (size_t pages = 5; pages <= MANY; pages += MANY - 5) {
		errno = 0;
		assert_null(ibv_reg_mr(pd, p, pages * PAGE, LW));
		assert_int_equal(errno, EFAULT);
	}
	mr = ibv_reg_mr(pd, p, 4 * PAGE, LW);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(p, MANY * PAGE);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* Seen by Linux 5.14 and later. */
static void memory_that_cannot_be_written_is_refused_for_writing(void **state)
{
	enum { PAGE = 4096, POPULATE_READ = 22 };
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	char *p = mmap(NULL, 2 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	if (madvise(p, PAGE, POPULATE_READ))
		skip_because("kernels before 5.14 do not see it");
	errno = 0;
	assert_null(ibv_reg_mr(pd, p, 2 * PAGE, LW));
	assert_int_equal(errno, EFAULT);
	mr = ibv_reg_mr(pd, p, 2 * PAGE, RR);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(p, 2 * PAGE);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void write_to_key(struct vt_ep *a, uint64_t raddr, uint32_t rkey, enum ibv_wc_status status)
{
	vt_post(a, .op = status == IBV_WC_SUCCESS ? IBV_WR_RDMA_WRITE : vt_refusable(), .id = 33, .len = 100,
		.raddr = raddr, .rkey = rkey);
	vt_expect(a, 33, status);
}

static void region_is_reached_by_its_iova(void **state)
{
	static const uint64_t iovas[] = {0, 0x1000, 0x7777000000000000, UINT64_MAX - 0xffff};
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (size_t i = 0; i < ARRAY_LEN(iovas); i++) {
		struct ibv_mr *mr = i % 2 ? ibv_reg_mr_iova(b->pd, b->buf, 8192, iovas[i], VT_ALL_ACCESS)
					  : ibv_reg_mr_iova2(b->pd, b->buf, 8192, iovas[i], VT_ALL_ACCESS);

		assert_non_null(mr);
		vt_fill(a->buf, 100, i);
		write_to_key(a, iovas[i] + 4090, mr->rkey, IBV_WC_SUCCESS);
		vt_check_written(b->buf + 4090, 100, i);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void local_access_goes_by_iova_too(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_send_wr *bad, wr = {.num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge sge = {.addr = 0x40000010, .length = 100};
	struct ibv_mr *mr;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	mr = ibv_reg_mr_iova(a->pd, a->buf, 4096, 0x40000000, LW);
	assert_non_null(mr);
	sge.lkey = mr->lkey;
	wr.sg_list = &sge;
	vt_fill(a->buf + 16, 100, 3);
	vt_recv(b, 2, 0, 100);
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
	vt_ok(a, 0);
	vt_ok(b, 2);
	vt_check(b->buf, 100, 3);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void zero_based_region_starts_at_nought(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_mr *mr;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	mr = ibv_reg_mr(b->pd, b->buf, 4096, VT_ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
	assert_non_null(mr);
	vt_fill(a->buf, 100, 9);
	write_to_key(a, 10, mr->rkey, IBV_WC_SUCCESS);
	vt_check_written(b->buf + 10, 100, 9);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void region_of_no_bytes_registers_and_allows_none(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_mr *mr;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	mr = ibv_reg_mr(b->pd, b->buf, 0, VT_ALL_ACCESS);
	assert_non_null(mr);
	vt_post(a, .op = vt_refusable(), .id = 1, .len = 0, .to = b, .rkey = mr->rkey);
	vt_ok(a, 1);
	write_to_key(a, (uintptr_t)b->buf, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void read_only_memory_can_be_sent(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_mr *mr;
	uint8_t *page;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	vt_fill(page, 4096, 4);
	assert_int_equal(mprotect(page, 4096, PROT_READ), 0);
	vt_pair(t, IBV_QPT_RC, &a, &b);
	mr = ibv_reg_mr(b->pd, page, 4096, RR);
	assert_non_null(mr);
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = 4096, .raddr = (uintptr_t)page, .rkey = mr->rkey);
	vt_ok(a, 1);
	vt_check(a->buf, 4096, 4);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(page, 4096);
}

static void rereg_changes_rights_place_and_domain(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c, *d;
	struct ibv_mr *mr;

	vt_need("ACK");
	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	mr = ibv_reg_mr(d->pd, b->buf, 4096, VT_ALL_ACCESS);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, b->pd, NULL, 0, 0), 0);
	assert_ptr_equal(mr->pd, b->pd);
	write_to_key(a, (uintptr_t)b->buf, mr->rkey, IBV_WC_SUCCESS);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, b->buf + 8192, 100, 0), 0);
	assert_ptr_equal(mr->addr, b->buf + 8192);
	assert_int_equal(mr->length, 100);
	vt_fill(a->buf, 100, 8);
	write_to_key(a, (uintptr_t)b->buf + 8192, mr->rkey, IBV_WC_SUCCESS);
	vt_check(b->buf + 8192, 100, 8);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, RR), 0);
	write_to_key(a, (uintptr_t)b->buf + 8192, mr->rkey, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	vt_ping_pong(c, d);
}

static void rereg_refuses_nonsense_and_keeps_the_region(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	assert_int_not_equal(ibv_rereg_mr(b->mr, 1 << 7, NULL, NULL, 0, 0), 0);
	assert_int_not_equal(ibv_rereg_mr(b->mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, NULL, 0, 0), 0);
	write_to_key(a, (uintptr_t)b->buf, b->mr->rkey, IBV_WC_SUCCESS);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(region_rights_follow_the_rules),
	VT_TEST(memory_that_is_not_there_is_refused),
	VT_TEST(memory_that_cannot_be_written_is_refused_for_writing),
	VT_TEST(region_is_reached_by_its_iova),
	VT_TEST(local_access_goes_by_iova_too),
	VT_TEST(zero_based_region_starts_at_nought),
	VT_TEST(region_of_no_bytes_registers_and_allows_none),
	VT_TEST(read_only_memory_can_be_sent),
	VT_TEST(rereg_changes_rights_place_and_domain),
	VT_TEST(rereg_refuses_nonsense_and_keeps_the_region),
};

VT_MAIN("regions", tests, NULL)
