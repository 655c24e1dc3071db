/* SPDX-License-Identifier: MIT */
/*
 * Messages of 2 GiB - 1. The buffers are that many addresses over 4 MiB of memory, which repeats, so that the
 * machine need not have as much; a page before and a page behind are others'.
 */
#include "fixture.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE = 0x7fffffff, WINDOW = 4 << 20, PAGE = 4096 };

static struct ibv_mr *huge_reg(struct vt_ep *ep)
{
	size_t all = (size_t)HUGE + 1 + 2 * PAGE;
	uint8_t *at =
		mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int fd = memfd_create("huge", MFD_CLOEXEC);
	struct ibv_mr *mr;

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(ftruncate(fd, WINDOW), 0);
	for (size_t off = 0; off < HUGE; off += WINDOW)
		assert_ptr_not_equal(
			mmap(at + PAGE + off, WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0),
			MAP_FAILED);
	close(fd);
	mr = ibv_reg_mr(ep->pd, at, all, VT_ALL_ACCESS);
	assert_non_null(mr);
	return mr;
}

static void huge_dereg(struct ibv_mr *mr)
{
	void *at = mr->addr;
	size_t all = mr->length;

	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(at, all);
}

static struct ibv_wc wait_long(struct ibv_cq *cq)
{
	struct ibv_wc wc = {.status = IBV_WC_GENERAL_ERR};
	double end = vt_now() + 180;

	while (!ibv_poll_cq(cq, 1, &wc) && vt_now() < end)
		;
	return wc;
}

static void carry(struct vt *t, enum ibv_wr_opcode op)
{
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t);
	struct vt_conn c = vt_conn(t);
	struct ibv_mr *mr[2] = {huge_reg(a), huge_reg(b)};
	uint8_t *at[2] = {(uint8_t *)mr[0]->addr + PAGE, (uint8_t *)mr[1]->addr + PAGE};
	struct ibv_sge sge[2] = {
		{(uintptr_t)at[0], HUGE, mr[0]->lkey}, {(uintptr_t)at[1], HUGE, mr[1]->lkey}};
	struct ibv_recv_wr recv = {.sg_list = &sge[1], .num_sge = 1}, *bad_recv;
	struct ibv_send_wr wr = {.opcode = op,
				   .sg_list = &sge[0],
				   .num_sge = 1,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma = {(uintptr_t)at[1], mr[1]->rkey}},
			   *bad;
	int dst = op == IBV_WR_RDMA_READ ? 0 : 1;

	c.mtu = t->port.active_mtu;
	vt_connect(a, b, &c);
	vt_fill(at[!dst], WINDOW, op);
	if (dst)
		assert_int_equal(ibv_post_recv(b->qp, &recv, &bad_recv), 0);
	assert_int_equal(ibv_post_send(a->qp, &wr, &bad), 0);
	assert_int_equal(wait_long(a->cq).status, IBV_WC_SUCCESS);
	if (dst)
		assert_int_equal(vt_wait(b).byte_len, HUGE);
	vt_check(at[dst], WINDOW, op);
	vt_check_all(at[dst] - PAGE, PAGE, 0);
	vt_check_all(at[dst] + (size_t)HUGE + 1, PAGE, 0);
	huge_dereg(mr[0]);
	huge_dereg(mr[1]);
}

static void send_of_two_gib_less_a_byte_arrives(void **state)
{
	carry(*state, IBV_WR_SEND);
}

static void write_of_two_gib_less_a_byte_arrives(void **state)
{
	carry(*state, IBV_WR_RDMA_WRITE_WITH_IMM);
}

static void read_of_two_gib_less_a_byte_arrives(void **state)
{
	carry(*state, IBV_WR_RDMA_READ);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(send_of_two_gib_less_a_byte_arrives),
	VT_TEST(write_of_two_gib_less_a_byte_arrives),
	VT_TEST(read_of_two_gib_less_a_byte_arrives),
};

VT_MAIN("huge", tests, NULL)
