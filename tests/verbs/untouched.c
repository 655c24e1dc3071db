/* SPDX-License-Identifier: MIT */
/*
 * A program's memory stays its own. While regions over it are registered, deregistered and sent from, all
 * goes on that the kernel, other threads and other processes do there: reads from files, by whichever road
 * they come, arrive; signals are handled on a stack there; who waits on a semaphore there is woken.
 */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
	PAGE = 4096,
	READERS = 16,
	BLOCK = 64 << 10,
	HALF = READERS * BLOCK, /* of the memory: readers have the first, the rest is sent */
	ACTS = 12,
	CYCLES = 10, /* of registrations in each, and of each reader at least so many: */
	ROUNDS = 4,
	MESSAGE = HALF,
	MESSAGES = 3, /* of a region: more than it takes to make anybody think that sharing it pays */
	RECEIVES = 8,
	NOBODY = 65534,
};

static uint8_t *pages(size_t len)
{
	uint8_t *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static struct ibv_mr *reg(struct ibv_pd *pd, void *p, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pd, p, len, access);

	assert_non_null(mr);
	return mr;
}

static void dereg(struct ibv_mr *mr)
{
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ---- a file ---- */
/* Without a name, with READERS blocks of different content; -1: no file system here takes the flags. */
static int file_with(const uint8_t *content, int flags)
{
	static const char *const dirs[] = {".", "/var/tmp", "/tmp", "/dev/shm"};

	for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
		int fd = open(dirs[i], O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);

		if (fd >= 0 && pwrite(fd, content, HALF, 0) == HALF)
			return fd;
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* ---- readers ---- */
static struct {
	int fd;
	uint8_t *to;
	const uint8_t *content;
	_Atomic bool stop;
	_Atomic unsigned rounds[READERS], wrong;
	_Atomic int error;
} reads;

/* Each has a block of the file and of the memory to itself. */
static void *reader(void *arg)
{
	size_t i = (size_t)arg, off = i * BLOCK;

	while (!reads.stop && !reads.error) {
		ssize_t n;

		memset(reads.to + off, 0xee, BLOCK);
		n = pread(reads.fd, reads.to + off, BLOCK, (off_t)off);
		if (n != BLOCK)
			reads.error = n < 0 ? errno : ENODATA;
		else
			reads.wrong += !!memcmp(reads.to + off, reads.content + off, BLOCK);
		reads.rounds[i]++;
	}
	return NULL;
}

static bool all_have_read(unsigned rounds)
{
	for (unsigned i = 0; i < READERS && !reads.error; i++) {
		if (reads.rounds[i] < rounds)
			return false;
	}
	return true;
}

/* Threads read into the first half of `memory` while cycle() works on all of it. */
static void act(struct vt_ep *ep, uint8_t *memory, void (*cycle)(struct vt_ep *, uint8_t *))
{
	pthread_t thread[READERS];
	double end = vt_deadline();

	reads.to = memory;
	reads.stop = false;
	memset((void *)reads.rounds, 0, sizeof(reads.rounds));
	vt_fill(memory + HALF, HALF, 9);
	for (size_t i = 0; i < READERS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, reader, (void *)i), 0);
	while (!all_have_read(1) && vt_now() < end)
		sched_yield();
	for (unsigned n = 0; !reads.error && !reads.wrong && vt_now() < end; n++) {
		if (n >= CYCLES && all_have_read(ROUNDS))
			break;
		cycle(ep, memory);
	}
	reads.stop = true;
	for (size_t i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	vt_check(memory + HALF, HALF, 9);
}

/* Does that some times, in memory that was never used, with a file of these flags; says how it went. */
static void read_beside(struct vt_ep *ep, int flags, void (*cycle)(struct vt_ep *, uint8_t *))
{
	uint8_t *content = pages(HALF), *memory = pages(ACTS * 2 * HALF);

	vt_fill(content, HALF, 3);
	memset(&reads, 0, sizeof(reads));
	reads.content = content;
	reads.fd = file_with(content, flags);
	if (reads.fd < 0)
		skip_because("no file system here takes these files");
	for (unsigned i = 0; i < ACTS && !reads.error && !reads.wrong; i++)
		act(ep, memory + (size_t)i * 2 * HALF, cycle);
	close(reads.fd);
	if (reads.error)
		fail_msg("reading into a region failed: %s", strerror(reads.error));
	assert_int_equal(reads.wrong, 0);
	munmap(content, HALF);
	munmap(memory, ACTS * 2 * HALF);
}

/* ---- what is done meanwhile ---- */
static void register_overlapping(struct vt_ep *ep, uint8_t *memory)
{
	struct ibv_mr *all = reg(ep->pd, memory, 2 * HALF, VT_ALL_ACCESS);
	struct ibv_mr *end = reg(ep->pd, memory + HALF - PAGE, HALF + PAGE, VT_ALL_ACCESS);

	dereg(all);
	dereg(end);
}

static void send_half(struct vt_ep *ep, uint8_t *memory)
{
	struct ibv_mr *mr = reg(ep->pd, memory, 2 * HALF, 0);
	struct ibv_sge sge = {(uintptr_t)memory + HALF, MESSAGE, mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 7,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};

	for (int i = 0; i < MESSAGES; i++) {
		assert_int_equal(ibv_post_send(ep->qp, &wr, &bad), 0);
		vt_ok(ep, 7);
	}
	dereg(mr);
}

/* Receives whatever comes, until the test is over. */
static void role_sink(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = MESSAGE);
	struct vt_addr peer;
	struct ibv_wc wc;
	int n;

	vt_meet(ep, fd, NULL, &peer);
	for (int i = 0; i < RECEIVES; i++)
		vt_recv(ep, 1, 0, MESSAGE);
	while (!vt_readable_now(fd)) {
		while ((n = ibv_poll_cq(ep->cq, 1, &wc)) > 0) {
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
			vt_recv(ep, 1, 0, MESSAGE);
		}
		assert_int_equal(n, 0);
	}
}

/* ---- reads that the device does ---- */
static void direct_reads_arrive_beside_registrations(void **state)
{
	read_beside(vt_ep((struct vt *)*state), O_DIRECT, register_overlapping);
}

static void direct_reads_arrive_beside_sends(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "sink");
	vt_meet(ep, p.fd, NULL, &peer);
	read_beside(ep, O_DIRECT, send_half);
	vt_peer_finish(&p);
}

/* ---- reads into buffers that io_uring has pinned ---- */
struct ring {
	int fd;
	char *queues;
	struct io_uring_sqe *sqes;
	struct io_uring_params p;
	size_t len;
};

/* false: this system does not let us. */
static bool ring_open(struct ring *r)
{
	size_t sq, cq;

	memset(r, 0, sizeof(*r));
	r->fd = (int)syscall(SYS_io_uring_setup, 4, &r->p);
	if (r->fd < 0)
		return false;
	sq = r->p.sq_off.array + r->p.sq_entries * sizeof(uint32_t);
	cq = r->p.cq_off.cqes + r->p.cq_entries * sizeof(struct io_uring_cqe);
	r->len = sq > cq ? sq : cq;
	assert_true(r->p.features & IORING_FEAT_SINGLE_MMAP);
	r->queues = mmap(NULL, r->len, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, IORING_OFF_SQ_RING);
	r->sqes = mmap(NULL, r->p.sq_entries * sizeof(*r->sqes), PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		IORING_OFF_SQES);
	assert_ptr_not_equal(r->queues, MAP_FAILED);
	assert_ptr_not_equal((void *)r->sqes, MAP_FAILED);
	return true;
}

static void ring_close(struct ring *r)
{
	munmap(r->sqes, r->p.sq_entries * sizeof(*r->sqes));
	munmap(r->queues, r->len);
	close(r->fd);
}

static _Atomic uint32_t *ring_word(struct ring *r, uint32_t off)
{
	return (_Atomic uint32_t *)(r->queues + off);
}

/* One READ_FIXED into registered buffer 0; what the completion says. */
static int ring_read(struct ring *r, int fd, void *to, uint32_t len)
{
	uint32_t tail = *ring_word(r, r->p.sq_off.tail), head = *ring_word(r, r->p.cq_off.head);
	uint32_t at = tail & *ring_word(r, r->p.sq_off.ring_mask);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(r->queues + r->p.cq_off.cqes);
	int res;

	memset(&r->sqes[at], 0, sizeof(r->sqes[at]));
	r->sqes[at].opcode = IORING_OP_READ_FIXED;
	r->sqes[at].fd = fd;
	r->sqes[at].addr = (uintptr_t)to;
	r->sqes[at].len = len;
	*ring_word(r, r->p.sq_off.array + at * 4) = at;
	*ring_word(r, r->p.sq_off.tail) = tail + 1;
	assert_int_equal(syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0), 1);
	res = cqes[head & *ring_word(r, r->p.cq_off.ring_mask)].res;
	*ring_word(r, r->p.cq_off.head) = head + 1;
	return res;
}

static void expect_read(struct ring *r, int fd, uint8_t *memory, const uint8_t *content)
{
	memset(memory, 0xee, BLOCK);
	assert_int_equal(ring_read(r, fd, memory, BLOCK), BLOCK);
	assert_memory_equal(memory, content, BLOCK);
}

static void pinned_buffers_are_read_into_after_registrations(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *memory = pages(BLOCK), *content = pages(HALF);
	struct iovec iov = {memory, BLOCK};
	struct ibv_mr *mr;
	struct ring ring;
	int fd;

	vt_fill(content, HALF, 3);
	memset(memory, 1, BLOCK);
	fd = file_with(content, 0);
	assert_true(fd >= 0);
	if (!ring_open(&ring))
		skip_because("io_uring is refused");
	mr = reg(ep->pd, memory, BLOCK, VT_ALL_ACCESS);
	assert_int_equal(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &iov, 1), 0);
	expect_read(&ring, fd, memory, content);
	dereg(mr);
	expect_read(&ring, fd, memory, content);
	mr = reg(ep->pd, memory, BLOCK, VT_ALL_ACCESS);
	expect_read(&ring, fd, memory, content);
	dereg(mr);
	ring_close(&ring);
	close(fd);
	munmap(memory, BLOCK);
	munmap(content, HALF);
}

/* ---- as an ordinary user, whom the kernel helps less ---- */
/* The UDP port of the host is another user's. */
static void become_ordinary(void)
{
	char port[16];

	if (geteuid())
		return;
	snprintf(port, sizeof(port), "%d", 20000 + getpid() % 20000);
	setenv("ANYRDMA_PORT", port, 1);
	assert_int_equal(setresgid(NOBODY, NOBODY, NOBODY), 0);
	assert_int_equal(setresuid(NOBODY, NOBODY, NOBODY), 0);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0); /* as who was never anybody else */
}

static void role_reads(struct vt *t, int fd)
{
	become_ordinary();
	read_beside(vt_ep(t), 0, register_overlapping);
	vt_tell(fd, "", 1);
}

static void in_an_ordinary_process(const char *role)
{
	struct vt_peer p;
	char byte;

	vt_peer_start(&p, role);
	vt_hear(p.fd, &byte, 1);
	vt_peer_finish(&p);
}

static void reads_of_an_ordinary_user_never_fail(void **state)
{
	in_an_ordinary_process("reads");
}

/* ---- signals on a stack inside a region ---- */
static _Atomic bool signals_stop;
static _Atomic unsigned signals_handled;

static void on_signal(int sig)
{
	signals_handled++;
}

static void *raises(void *stack)
{
	stack_t alternate = {.ss_sp = stack, .ss_size = HALF}, none = {.ss_flags = SS_DISABLE};

	if (sigaltstack(&alternate, NULL))
		abort();
	while (!signals_stop)
		raise(SIGUSR1);
	if (sigaltstack(&none, NULL))
		abort();
	return NULL;
}

static void handle_beside(struct vt_ep *ep, uint8_t *memory)
{
	double end = vt_deadline();
	pthread_t thread;

	signals_stop = false;
	signals_handled = 0;
	assert_int_equal(pthread_create(&thread, NULL, raises, memory), 0);
	while (!signals_handled && vt_now() < end)
		sched_yield();
	for (unsigned n = 0; n < CYCLES; n++)
		register_overlapping(ep, memory);
	signals_stop = true;
	pthread_join(thread, NULL);
	assert_true(signals_handled > 0);
}

static void role_signals(struct vt *t, int fd)
{
	uint8_t *memory = pages(ACTS * 2 * HALF);
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK};
	struct vt_ep *ep;

	become_ordinary();
	ep = vt_ep(t);
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	for (size_t i = 0; i < ACTS; i++)
		handle_beside(ep, memory + i * 2 * HALF);
	vt_tell(fd, "", 1);
}

static void signals_are_handled_on_a_stack_in_a_region(void **state)
{
	in_an_ordinary_process("signals");
}

static const struct vt_role roles[] = {
	{"sink", role_sink},
	{"reads", role_reads},
	{"signals", role_signals},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(direct_reads_arrive_beside_registrations),
	VT_TEST(direct_reads_arrive_beside_sends),
	VT_TEST(pinned_buffers_are_read_into_after_registrations),
	VT_TEST(reads_of_an_ordinary_user_never_fail),
	VT_TEST(signals_are_handled_on_a_stack_in_a_region),
};

VT_MAIN("untouched", tests, roles)
