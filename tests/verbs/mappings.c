/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of a region's memory (/proc/self/smaps: which mappings, of what, with which flags and
 * what kind of pages) is the same before it is registered, while it is, after peers have read and written it,
 * and afterwards; madvise() and mremap() do there what they always do; and pages that come into being belong
 * to whose memory it is.
 */
#include "fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
#define LEN  (64 * PAGE)
#define MIB  ((size_t)1 << 20)

/* A mapping between two others that it cannot be merged with. */
static uint8_t *map_alone(size_t len, size_t align, int flags, int fd)
{
	uint8_t *p = mmap(
		NULL, len + align + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint8_t *at = (uint8_t *)(((uintptr_t)p + PAGE + align - 1) & -(uintptr_t)align);

	assert_ptr_not_equal(p, MAP_FAILED);
	assert_ptr_equal(mmap(at, len, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0), at);
	return at;
}

static uint8_t *private_memory(size_t len)
{
	return map_alone(len, PAGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static uint8_t *shared_file(size_t len)
{
	int fd = memfd_create("region", MFD_CLOEXEC);
	uint8_t *p;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	p = map_alone(len, PAGE, MAP_SHARED, fd);
	close(fd);
	return p;
}

/* ---- smaps ---- */
struct view {
	char text[4096];
	long huge; /* KiB of transparent huge pages */
};

/* Pages of a file count as private or shared as others map it: not compared there. */
static bool is_compared(const char *line, bool file)
{
	static const char *const fields[] = {"Size:", "KernelPageSize:", "MMUPageSize:", "Rss:", "Anonymous:",
		"AnonHugePages:", "Locked:", "VmFlags:"};
	static const char *const sharing[] = {
		"Shared_Clean:", "Shared_Dirty:", "Private_Clean:", "Private_Dirty:"};

	for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
		if (!strncmp(line, fields[i], strlen(fields[i])))
			return true;
	}
	for (size_t i = 0; !file && i < ARRAY_LEN(sharing); i++) {
		if (!strncmp(line, sharing[i], strlen(sharing[i])))
			return true;
	}
	return false;
}

/* All mappings of [p, p + len): their first lines, and what is compared of the others. */
static void look(struct view *v, const uint8_t *p, size_t len, bool file)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	char line[512];
	bool inside = false;

	assert_non_null(f);
	memset(v, 0, sizeof(*v));
	while (fgets(line, sizeof(line), f)) {
		unsigned long from, to;
		bool first = sscanf(line, "%lx-%lx ", &from, &to) == 2;

		if (first)
			inside = from < (uintptr_t)p + len && to > (uintptr_t)p;
		if (!inside || (!first && !is_compared(line, file)))
			continue;
		if (strlen(v->text) + strlen(line) < sizeof(v->text))
			strcat(v->text, line);
		if (!strncmp(line, "AnonHugePages:", 14))
			v->huge += atol(line + 14);
	}
	fclose(f);
}

static void expect_same(const struct view *before, const uint8_t *p, size_t len, bool file, const char *when)
{
	struct view now;

	look(&now, p, len, file);
	if (strcmp(before->text, now.text))
		fail_msg("%s it was\n%sand is\n%s", when, before->text, now.text);
}

static bool has_flag(const uint8_t *p, const char *flag)
{
	struct view v;
	char *flags;

	look(&v, p, PAGE, false);
	flags = strstr(v.text, "VmFlags:");
	assert_non_null(flags);
	return strstr(flags, flag);
}

/* ---- a peer that does as it is told ---- */
struct order {
	uint64_t addr;
	uint32_t rkey, len;
	enum { WRITE, READ, SEND, RECEIVE } what;
	uint32_t seed; /* of what it writes, sends or receives */
};

static void obey(struct vt_ep *ep, const struct order *o)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};

	if (o->what == RECEIVE) {
		vt_recv(ep, 2, 0, o->len);
		vt_ok(ep, 2);
		vt_check(ep->buf, o->len, o->seed);
		return;
	}
	if (o->what != READ)
		vt_fill(ep->buf, o->len, o->seed);
	vt_post(ep, .op = ops[o->what], .id = 1, .len = o->len, .raddr = o->addr, .rkey = o->rkey);
	vt_ok(ep, 1);
	if (o->what == READ)
		vt_check(ep->buf, o->len, o->seed);
}

/* Until the test closes the socket. */
static void role_peer(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = MIB);
	struct vt_addr peer;
	struct order o;

	vt_meet(ep, fd, NULL, &peer);
	while (vt_readable_soon(fd) && read(fd, &o, sizeof(o)) == sizeof(o)) {
		obey(ep, &o);
		vt_tell(fd, "", 1);
	}
}

static struct vt_ep *meet(struct vt *t, struct vt_peer *p)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;

	vt_peer_start(p, "peer");
	vt_meet(ep, p->fd, NULL, &peer);
	return ep;
}

static void order(
	struct vt_peer *p, int what, const struct ibv_mr *mr, size_t off, uint32_t len, uint32_t seed)
{
	struct order o = {
		.addr = (uintptr_t)mr->addr + off, .rkey = mr->rkey, .len = len, .what = what, .seed = seed};

	vt_tell(p->fd, &o, sizeof(o));
}

static void expect_done(struct vt_peer *p)
{
	char byte;

	vt_hear(p->fd, &byte, 1);
}

/* Everything a peer can do with a region, small and large. */
static void visit(struct vt_ep *ep, struct vt_peer *p, struct ibv_mr *mr, uint8_t *memory)
{
	static const uint32_t lens[] = {8, PAGE, LEN / 2};

	for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
		struct ibv_sge sge = {(uintptr_t)memory, lens[i], mr->lkey};
		struct ibv_recv_wr *bad_recv, recv = {.wr_id = 5, .sg_list = &sge, .num_sge = 1};
		struct ibv_send_wr *bad, send = {.wr_id = 6,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = IBV_WR_SEND,
						 .send_flags = IBV_SEND_SIGNALED};

		order(p, WRITE, mr, 0, lens[i], 30);
		expect_done(p);
		vt_check(memory, lens[i], 30);
		order(p, READ, mr, 0, lens[i], 30);
		expect_done(p);
		assert_int_equal(ibv_post_recv(ep->qp, &recv, &bad_recv), 0);
		order(p, SEND, mr, 0, lens[i], 31);
		vt_ok(ep, 5);
		expect_done(p);
		vt_check(memory, lens[i], 31);
		order(p, RECEIVE, mr, 0, lens[i], 31);
		assert_int_equal(ibv_post_send(ep->qp, &send, &bad), 0);
		vt_ok(ep, 6);
		expect_done(p);
	}
}

static void stays_the_same(struct vt *t, uint8_t *memory, size_t len, bool file)
{
	struct vt_peer p;
	struct vt_ep *ep = meet(t, &p);
	struct view before;
	struct ibv_mr *mr, *more;

	vt_fill(memory, len, 4);
	look(&before, memory, len, file);
	mr = ibv_reg_mr(ep->pd, memory, len, VT_ALL_ACCESS);
	assert_non_null(mr);
	expect_same(&before, memory, len, file, "before the registration");
	visit(ep, &p, mr, memory);
	expect_same(&before, memory, len, file, "before a peer came");
	more = ibv_reg_mr(ep->pd, memory + 100, len / 2, VT_ALL_ACCESS);
	assert_non_null(more);
	expect_same(&before, memory, len, file, "before an overlapping registration");
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(more), 0);
	expect_same(&before, memory, len, file, "before all that");
	vt_peer_finish(&p);
	munmap(memory, len);
}

static void private_memory_looks_the_same_all_the_time(void **state)
{
	uint8_t *p = private_memory(LEN);

	madvise(p, LEN, MADV_NOHUGEPAGE); /* or khugepaged may come by */
	stays_the_same(*state, p, LEN, false);
}

static void a_shared_file_looks_the_same_all_the_time(void **state)
{
	stays_the_same(*state, shared_file(LEN), LEN, true);
}

static void huge_pages_stay_huge(void **state)
{
	uint8_t *p = map_alone(4 * HUGE, HUGE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct view v;

	if (madvise(p, 4 * HUGE, MADV_HUGEPAGE))
		skip_because("this kernel has no transparent huge pages");
	memset(p, 1, 4 * HUGE);
	look(&v, p, 4 * HUGE, false);
	if (v.huge != (long)(4 * HUGE >> 10))
		skip_because("no huge pages to be had just now");
	stays_the_same(*state, p, 4 * HUGE, false);
}

/* ---- madvise and mremap ---- */
static struct ibv_mr *reg(struct vt_ep *ep, void *p, size_t len)
{
	struct ibv_mr *mr = ibv_reg_mr(ep->pd, p, len, VT_ALL_ACCESS);

	assert_non_null(mr);
	return mr;
}

static void advice_before_and_after_registration_holds(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *early = private_memory(LEN), *late = private_memory(LEN);
	struct ibv_mr *mr[2];

	vt_fill(early, LEN, 1);
	vt_fill(late, LEN, 2);
	assert_int_equal(madvise(early, LEN, MADV_DONTDUMP), 0);
	mr[0] = reg(ep, early, LEN);
	mr[1] = reg(ep, late, LEN);
	assert_true(has_flag(early, " dd"));
	assert_int_equal(madvise(late, LEN, MADV_DONTDUMP), 0);
	assert_true(has_flag(late, " dd"));
	assert_int_equal(ibv_dereg_mr(mr[0]), 0);
	assert_int_equal(ibv_dereg_mr(mr[1]), 0);
	assert_true(has_flag(early, " dd"));
	assert_true(has_flag(late, " dd"));
	vt_check(early, LEN, 1);
	vt_check(late, LEN, 2);
	munmap(early, LEN);
	munmap(late, LEN);
}

static bool is_zero(const uint8_t *p, size_t len)
{
	return !p[0] && !memcmp(p, p + 1, len - 1);
}

static bool child_finds_zeros(const uint8_t *p)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (!pid)
		_exit(is_zero(p, LEN) ? 0 : 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !status;
}

static void memory_that_is_wiped_on_fork_is_wiped(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *early = private_memory(LEN), *late = private_memory(LEN);
	struct ibv_mr *mr[2];

	vt_fill(early, LEN, 1);
	vt_fill(late, LEN, 2);
	assert_int_equal(madvise(early, LEN, MADV_WIPEONFORK), 0);
	mr[0] = reg(ep, early, LEN);
	mr[1] = reg(ep, late, LEN);
	assert_int_equal(madvise(late, LEN, MADV_WIPEONFORK), 0);
	assert_true(child_finds_zeros(early));
	assert_true(child_finds_zeros(late));
	assert_int_equal(ibv_dereg_mr(mr[0]), 0);
	assert_int_equal(ibv_dereg_mr(mr[1]), 0);
	assert_true(child_finds_zeros(early));
	assert_true(child_finds_zeros(late));
	vt_check(early, LEN, 1);
	vt_check(late, LEN, 2);
	munmap(early, LEN);
	munmap(late, LEN);
}

static void memory_that_is_not_needed_is_zero(void **state)
{
	struct vt_peer p;
	struct vt_ep *ep = meet(*state, &p);
	uint8_t *memory = private_memory(LEN);
	struct ibv_mr *mr;

	vt_fill(memory, LEN, 1);
	mr = reg(ep, memory, LEN);
	order(&p, WRITE, mr, 0, LEN, 3);
	expect_done(&p);
	vt_check(memory, LEN, 3);
	assert_int_equal(madvise(memory, LEN, MADV_DONTNEED), 0);
	assert_true(is_zero(memory, LEN));
	assert_int_equal(madvise(memory, LEN, MADV_DONTNEED), 0);
	order(&p, WRITE, mr, 2 * PAGE, 3 * PAGE, 4); /* lands in new pages */
	expect_done(&p);
	vt_check(memory + 2 * PAGE, 3 * PAGE, 4);
	assert_true(is_zero(memory, 2 * PAGE));
	assert_true(is_zero(memory + 5 * PAGE, LEN - 5 * PAGE));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	vt_check(memory + 2 * PAGE, 3 * PAGE, 4);
	vt_peer_finish(&p);
	munmap(memory, LEN);
}

static bool is_unmapped(void *p, size_t len)
{
	return msync(p, len, MS_ASYNC) && errno == ENOMEM;
}

static void a_region_grows_and_moves_as_any_memory(void **state)
{
	struct vt_peer p;
	struct vt_ep *ep = meet(*state, &p);
	uint8_t *memory = private_memory(LEN), *other = private_memory(LEN), *moved;
	struct ibv_mr *mr, *mr_other;

	vt_fill(memory, LEN, 1);
	vt_fill(other, LEN, 2);
	mr = reg(ep, memory, LEN);
	mr_other = reg(ep, other, LEN);
	order(&p, WRITE, mr, 0, LEN, 3);
	expect_done(&p);
	moved = mremap(memory, LEN, 2 * LEN, MREMAP_MAYMOVE); /* what is next to it is in the way */
	assert_ptr_not_equal(moved, MAP_FAILED);
	assert_ptr_not_equal(moved, memory);
	vt_check(moved, LEN, 3);
	assert_true(is_zero(moved + LEN, LEN));
	memset(moved + LEN, 7, LEN);
	vt_check(other, LEN, 2);
	assert_true(is_unmapped(memory, LEN));
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(mr_other), 0);
	assert_true(is_unmapped(memory, LEN));
	vt_check(moved, LEN, 3);
	vt_check_all(moved + LEN, LEN, 7);
	vt_check(other, LEN, 2);
	vt_peer_finish(&p);
	munmap(moved, 2 * LEN);
	munmap(other, LEN);
}

static const struct vt_role roles[] = {
	{"peer", role_peer},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(private_memory_looks_the_same_all_the_time),
	VT_TEST(a_shared_file_looks_the_same_all_the_time),
	VT_TEST(huge_pages_stay_huge),
	VT_TEST(advice_before_and_after_registration_holds),
	VT_TEST(memory_that_is_wiped_on_fork_is_wiped),
	VT_TEST(memory_that_is_not_needed_is_zero),
	VT_TEST(a_region_grows_and_moves_as_any_memory),
};

VT_MAIN("mappings", tests, roles)
