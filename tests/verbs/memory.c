/* SPDX-License-Identifier: MIT */
/*
 * Every kind of memory can be registered, and a peer in another process reads and writes it as it reads and
 * writes any other; what the owner does to it meanwhile (threads that write, fork, munmap, free, registering
 * it again) harms nobody. Where peers map registered memory (ANYRDMA_LOCAL=map) this is where that shows.
 */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* ---- kinds of memory; NULL: this host has none of it ---- */
static char bss[64 * 4096];
static char *stack; /* of the target */

static void *map(size_t len, int flags, int fd)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, 0);

	return p == MAP_FAILED ? NULL : p;
}

static void *from_malloc(size_t len)
{
	return malloc(len);
}

static void *malloc_thread(void *len)
{
	void *p[16]; /* not the first of its heap, nor the last */

	for (int i = 0; i < 16; i++)
		p[i] = malloc((size_t)len);
	for (int i = 0; i < 16; i++) {
		if (i != 7)
			free(p[i]);
	}
	return p[7];
}

static void *from_another_heap(size_t len)
{
	pthread_t thread;
	void *p;

	assert_int_equal(pthread_create(&thread, NULL, malloc_thread, (void *)len), 0);
	pthread_join(thread, &p);
	return p;
}

static void *from_mmap(size_t len)
{
	return map(len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void *from_bss(size_t len)
{
	assert_true(len <= sizeof(bss));
	return bss;
}

static void *from_stack(size_t len)
{
	(void)len;
	return stack;
}

static void *transparent_huge(size_t len)
{
	char *p = from_mmap(len + (2 << 20));

	p = (char *)(((uintptr_t)p + (2 << 20) - 1) & -(2ul << 20));
	madvise(p, len, MADV_HUGEPAGE);
	return p;
}

static void *huge(size_t len)
{
	return map(len, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
}

static void *shared(size_t len)
{
	return map(len, MAP_SHARED | MAP_ANONYMOUS, -1);
}

static void *file(size_t len, int flags)
{
	FILE *f = tmpfile();
	void *p = NULL;

	if (f && !ftruncate(fileno(f), (off_t)len))
		p = map(len, flags, fileno(f));
	if (f)
		fclose(f);
	return p;
}

static void *private_file(size_t len)
{
	return file(len, MAP_PRIVATE);
}

static void *shared_file(size_t len)
{
	return file(len, MAP_SHARED);
}

static const struct kind {
	const char *name;
	void *(*get)(size_t len);
	size_t len, off; /* the region begins this far in it */
	bool moves;      /* when peers map it */
} kinds[] = {
	{"a small piece of the heap", from_malloc, 3000, 0, false},
	{"a piece of the heap", from_malloc, 100000, 5, true},
	{"a large piece of the heap", from_malloc, 2000000, 0, true},
	{"a piece of a thread's heap", from_another_heap, 90000, 0, true},
	{"pages", from_mmap, 64 * 4096, 0, true},
	{"a page", from_mmap, 4096, 0, true},
	{"no whole page", from_mmap, 8000, 100, false},
	{"pages and edges", from_mmap, 1000000, 123, true},
	{"static memory", from_bss, sizeof(bss), 0, true},
	{"transparent huge pages", transparent_huge, 6 << 20, 8192, true},
	{"huge pages", huge, 4 << 20, 0, false},
	{"the stack", from_stack, 100000, 0, false},
	{"shared memory", shared, 100000, 0, false},
	{"a private file", private_file, 100000, 0, false},
	{"a shared file", shared_file, 100000, 0, false},
};

/* Whether a part of it lies where peers map it. */
static bool is_mapped(const void *p, size_t len)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[300];
	bool found = false;

	while (fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if (strstr(line, "anyrdma-memory") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			found |= start < (uintptr_t)p + len && end > (uintptr_t)p;
	}
	fclose(f);
	return found;
}

/* Not where threads cannot be held back meanwhile (docs/map-mode.md). */
static bool peers_map(void)
{
	const char *v = getenv("ANYRDMA_LOCAL");

	return v && !strcmp(v, "map") && vt_userfaultfd();
}

/* ---- the target: registers what it is told to, and compares it at the end with what it is told ---- */
struct place {
	uint64_t addr, len; /* len 0: it has no such memory */
	uint32_t rkey, spare;
};

static void offer(int fd, const struct ibv_mr *mr)
{
	struct place place = {.addr = mr ? (uintptr_t)mr->addr : 0, .len = mr ? mr->length : 0};

	if (mr)
		place.rkey = mr->rkey;
	vt_tell(fd, &place, sizeof(place));
}

static void compare(int fd, const void *p, size_t len)
{
	char *want = malloc(len);

	vt_hear(fd, want, len);
	assert_memory_equal(p, want, len);
	free(want);
}

static void serve(struct vt_ep *ep, int fd, const struct kind *k)
{
	char *p = k->get(k->len), *region = p + k->off;
	size_t len = k->len - k->off;
	struct ibv_mr *mr;

	if (!p) {
		offer(fd, NULL);
		return;
	}
	vt_fill(region, len, 5);
	mr = ibv_reg_mr(ep->pd, region, len, VT_ALL_ACCESS);
	assert_non_null(mr);
	vt_check(region, len, 5);
	if (peers_map() && is_mapped(region, len) != k->moves)
		fail_msg("%s: peers %s map it", k->name, k->moves ? "cannot" : "can");
	offer(fd, mr);
	compare(fd, region, len);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_false(is_mapped(region, len));
	if (k->get == from_malloc || k->get == from_another_heap)
		free(p);
	vt_tell(fd, "", 1);
}

static void role_kinds(struct vt *t, int fd)
{
	char own[200000];
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;

	stack = own;
	vt_meet(ep, fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		serve(ep, fd, &kinds[i]);
}

/* ---- the initiator ---- */
/* Does to the peer's memory what it does to its own copy; the endpoint's buffer is large enough. */
static void one_request(struct vt_ep *a, const struct place *to, uint8_t *copy, uint32_t *seed)
{
	uint32_t most = to->len < 70000 ? to->len : 70000;
	uint32_t len = vt_random(seed) % 3 ? vt_random(seed) % 64 % most : vt_random(seed) % most;
	uint64_t off = vt_random(seed) % (to->len - len + 1), was;

	switch (vt_random(seed) % 4) {
	case 0:
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = len, .raddr = to->addr + off,
			.rkey = to->rkey);
		vt_ok(a, 1);
		assert_memory_equal(a->buf, copy + off, len);
		break;
	case 1:
		off = (off + to->addr % 8) / 8 * 8;
		if (!vt_can("ATOMIC") || off < to->addr % 8 || off - to->addr % 8 + 8 > to->len)
			break;
		off -= to->addr % 8;
		memcpy(&was, copy + off, 8);
		vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 2, .len = 8, .raddr = to->addr + off,
			.rkey = to->rkey, .add = 0x0102030405060708);
		vt_ok(a, 2);
		assert_memory_equal(a->buf, &was, 8);
		was += 0x0102030405060708;
		memcpy(copy + off, &was, 8);
		break;
	default:
		vt_fill(a->buf, len, *seed);
		memcpy(copy + off, a->buf, len);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 3, .len = len, .raddr = to->addr + off,
			.rkey = to->rkey);
		vt_ok(a, 3);
	}
}

static void every_kind_is_read_and_written(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = 128 << 10);
	uint32_t seed = 7;
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "kinds");
	vt_meet(a, p.fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct place to;
		uint8_t *copy;
		char byte;

		vt_hear(p.fd, &to, sizeof(to));
		if (!to.len) {
			print_message("SKIP  part: no %s here\n", kinds[i].name);
			continue;
		}
		copy = malloc(to.len);
		vt_fill(copy, to.len, 5);
		for (int n = 0; n < 300; n++)
			one_request(a, &to, copy, &seed);
		vt_tell(p.fd, copy, to.len);
		vt_hear(p.fd, &byte, 1);
		free(copy);
	}
	vt_peer_finish(&p);
}

/* ---- memory that may only be read ---- */
static void role_read_only(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	char *p = from_mmap(8 * PAGE);
	struct ibv_mr *mr;
	struct vt_addr peer;
	char byte;

	vt_fill(p, 8 * PAGE, 5);
	assert_int_equal(mprotect(p, 8 * PAGE, PROT_READ), 0);
	vt_meet(ep, fd, NULL, &peer);
	mr = ibv_reg_mr(ep->pd, p, 8 * PAGE, IBV_ACCESS_REMOTE_READ);
	offer(fd, mr);
	vt_hear(fd, &byte, 1);
	vt_check(p, 8 * PAGE, 5);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void read_only_memory_is_read_and_not_written(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;

	vt_peer_start(&p, "read_only");
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = 8 * PAGE, .raddr = to.addr, .rkey = to.rkey);
	vt_ok(a, 1);
	vt_check(a->buf, 8 * PAGE, 5);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = 8, .raddr = to.addr, .rkey = to.rkey);
	vt_expect(a, 2, IBV_WC_REM_ACCESS_ERR);
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- gigabytes ---- */
enum { GIGABYTES = 5 };
static const uint64_t ref_places[] = {0, 4095, (1ull << 30) - 4, (3ull << 30) - 100, (5ull << 30) - 8192};

static void role_gigabytes(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	size_t len = (size_t)GIGABYTES << 30;
	char *p = map(len, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	struct ibv_mr *mr = NULL;
	struct vt_addr peer;
	char byte;

	vt_meet(ep, fd, NULL, &peer);
	if (p) {
		memcpy(p + ref_places[3], "hello", 5);
		mr = ibv_reg_mr(ep->pd, p, len, VT_ALL_ACCESS);
		assert_non_null(mr);
	}
	offer(fd, mr);
	if (!mr)
		return;
	vt_hear(fd, &byte, 1);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	for (size_t i = 0; i < ARRAY_LEN(ref_places); i++)
		vt_check(p + ref_places[i], 200, i);
	munmap(p, len);
}

static void gigabytes_are_registered_at_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;

	vt_peer_start(&p, "gigabytes");
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	if (!to.len)
		skip_because("no 5 GiB of address space");
	vt_post(a, .op = IBV_WR_RDMA_READ, .id = 1, .len = 5, .raddr = to.addr + ref_places[3],
		.rkey = to.rkey);
	vt_ok(a, 1);
	assert_memory_equal(a->buf, "hello", 5);
	for (size_t i = 0; i < ARRAY_LEN(ref_places); i++) {
		vt_fill(a->buf, 200, i);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = 200, .raddr = to.addr + ref_places[i],
			.rkey = to.rkey);
		vt_ok(a, 2);
	}
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- the owner's threads and other registrations, while peers write ---- */
enum { SHIFTING = 24 };

struct counter {
	_Atomic uint64_t *word;
	_Atomic bool stop;
	uint64_t n;
};

static void *count(void *arg)
{
	struct counter *c = arg;

	for (; !atomic_load(&c->stop); c->n++)
		atomic_fetch_add(c->word, 1);
	return NULL;
}

/*
 * A region that begins and ends within a page, and others over all of those pages that come and go: the edges
 * change hands under the peer, which adds to words there, as do our own threads.
 */
static void role_shifting(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	char *p = from_mmap(SHIFTING * PAGE);
	struct counter c[2] = {{.word = (void *)(p + 256)}, {.word = (void *)(p + SHIFTING * PAGE - 256)}};
	pthread_t thread[2];
	struct ibv_mr *mine;
	struct vt_addr peer;
	uint64_t added;

	vt_meet(ep, fd, NULL, &peer);
	mine = ibv_reg_mr(ep->pd, p + 128, SHIFTING * PAGE - 256, VT_ALL_ACCESS);
	offer(fd, mine);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, count, &c[i]), 0);
	for (int i = 0; i < 60; i++) {
		size_t less = (size_t)i / 2 % 10 * PAGE; /* never the same for long */
		struct ibv_mr *mr =
			ibv_reg_mr(ep->pd, i % 2 ? p : p + less, SHIFTING * PAGE - less, VT_ALL_ACCESS);

		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	vt_tell(fd, "", 1);
	vt_hear(fd, &added, sizeof(added));
	for (int i = 0; i < 2; i++) {
		atomic_store(&c[i].stop, true);
		pthread_join(thread[i], NULL);
		assert_int_equal(*c[i].word, c[i].n + added);
	}
	assert_int_equal(ibv_dereg_mr(mine), 0);
}

static void nothing_is_lost_while_pages_change_hands(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;
	uint64_t added = 0, n;
	char byte;

	vt_need("ATOMIC");
	vt_peer_start(&p, "shifting");
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	for (; !vt_readable_now(p.fd); added++) {
		/* The counters, and words of our own beside them. */
		vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 1, .len = 8, .raddr = to.addr + 128,
			.rkey = to.rkey, .add = 1);
		vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 2, .len = 8,
			.raddr = to.addr + to.len - 128, .rkey = to.rkey, .add = 1);
		vt_ok(a, 1);
		vt_ok(a, 2);
		memcpy(a->buf, &added, 8);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 3, .len = 8, .raddr = to.addr + 512,
			.rkey = to.rkey);
		vt_post(a, .op = IBV_WR_RDMA_READ, .id = 4, .off = 64, .len = 8, .raddr = to.addr + 512,
			.rkey = to.rkey);
		vt_ok(a, 3);
		vt_ok(a, 4);
		memcpy(&n, a->buf + 64, 8);
		assert_int_equal(n, added);
	}
	vt_hear(p.fd, &byte, 1);
	vt_tell(p.fd, &added, sizeof(added));
	vt_peer_finish(&p);
}

/* ---- registered, and gone ---- */
/* Frees and unmaps what is registered, and goes on allocating. */
static void role_careless(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;
	char byte;

	vt_meet(ep, fd, NULL, &peer);
	for (int i = 0; i < 4; i++) {
		size_t len = 300000 + (size_t)i * 4096;
		char *p = i % 2 ? malloc(len) : from_mmap(len), *other;
		struct ibv_mr *mr;

		vt_fill(p, len, 5);
		mr = ibv_reg_mr(ep->pd, p, len, VT_ALL_ACCESS);
		offer(fd, mr);
		vt_hear(fd, &byte, 1); /* it has been written to */
		if (i % 2)
			free(p);
		else
			munmap(p, len);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		other = calloc(1, len);
		vt_check_all(other, len, 0);
		memset(other, 0x77, len);
		vt_tell(fd, "", 1);
		vt_hear(fd, &byte, 1); /* and the peer was refused */
		vt_check_all(other, len, 0x77);
		free(other);
	}
}

static void memory_freed_while_registered_harms_nobody(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct vt_addr peer;
	struct vt_peer p;
	char byte;

	vt_peer_start(&p, "careless");
	vt_meet(a, p.fd, NULL, &peer);
	for (int i = 0; i < 4; i++) {
		struct place to;

		vt_hear(p.fd, &to, sizeof(to));
		if (vt_state(a->qp) == IBV_QPS_RTS) {
			vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 50000, .raddr = to.addr + 1000,
				.rkey = to.rkey);
			vt_ok(a, 1);
		}
		vt_tell(p.fd, "", 1);
		vt_hear(p.fd, &byte, 1);
		if (i == 3) {
			vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = 50000, .raddr = to.addr + 1000,
				.rkey = to.rkey);
			vt_expect(a, 2, IBV_WC_REM_ACCESS_ERR);
		}
		vt_tell(p.fd, "", 1);
	}
	vt_peer_finish(&p);
}

/* ---- fork ---- */
enum { FORKED = 40 };

/* What is in the parent's memory when it forks is in the child's, and stays; the peer's bytes reach one. */
static void role_parent(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	char *p = from_mmap(FORKED * PAGE);
	struct ibv_mr *mr;
	struct vt_addr peer;

	vt_fill(p, FORKED * PAGE, 1);
	vt_meet(ep, fd, NULL, &peer);
	mr = ibv_reg_mr(ep->pd, p + 100, FORKED * PAGE - 200, VT_ALL_ACCESS);
	offer(fd, mr);
	for (int i = 0; i < 3; i++) {
		int go[2], status;
		pid_t pid;
		char byte;

		vt_fill(p, FORKED * PAGE, (uint32_t)i);
		assert_int_equal(pipe(go), 0);
		pid = fork();
		if (!pid) {
			alarm(60);
			close(go[1]);
			(void)!read(go[0], &byte, 1);
			vt_check(p, FORKED * PAGE, (uint32_t)i);
			memset(p, 0x55, FORKED * PAGE);
			_exit(0);
		}
		close(go[0]);
		vt_tell(fd, "", 1); /* the peer writes */
		vt_hear(fd, &byte, 1);
		close(go[1]);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
		vt_check_all(p + 100, FORKED * PAGE - 200, 0x33);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void child_has_the_registered_memory_as_it_was(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = FORKED * PAGE);
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;

	vt_peer_start(&p, "parent");
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	memset(a->buf, 0x33, a->len);
	for (int i = 0; i < 3; i++) {
		char byte;

		vt_hear(p.fd, &byte, 1);
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = (uint32_t)to.len, .raddr = to.addr,
			.rkey = to.rkey);
		vt_ok(a, 1);
		vt_tell(p.fd, "", 1);
	}
	vt_peer_finish(&p);
}

/* ---- deregistered under its peer's hands ---- */
/* Writes rising numbers to the end of a place until it is refused. */
static void role_writer(struct vt *t, int fd)
{
	struct vt_addr peer;
	struct place to;

	for (vt_hear(fd, &to, sizeof(to)); to.len; vt_hear(fd, &to, sizeof(to))) {
		struct vt_ep *ep = vt_ep(t);
		struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

		vt_meet(ep, fd, NULL, &peer);
		for (uint64_t n = 1; wc.status == IBV_WC_SUCCESS; n++) {
			memcpy(ep->buf, &n, sizeof(n));
			vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = sizeof(n),
				.raddr = to.addr + to.len - 8, .rkey = to.rkey);
			wc = vt_wait(ep);
		}
		vt_tell(fd, &wc.status, sizeof(wc.status));
		vt_ep_close(ep);
	}
}

static void nothing_lands_after_deregistration(void **state)
{
	enum { ROUNDS = 12 };
	struct vt *t = *state;
	char *memory = from_mmap((ROUNDS + 1) * PAGE);
	struct place none = {0};
	struct vt_peer p;

	vt_peer_start(&p, "writer");
	for (size_t round = 1; round <= ROUNDS; round++) {
		volatile uint64_t *word = (uint64_t *)(memory + round * PAGE - 8);
		struct vt_ep *a = vt_ep(t);
		struct ibv_mr *mr = ibv_reg_mr(a->pd, memory, round * PAGE, VT_ALL_ACCESS);
		enum ibv_wc_status status;
		struct vt_addr peer;
		uint64_t last;

		assert_non_null(mr);
		*word = 0;
		offer(p.fd, mr);
		vt_meet(a, p.fd, NULL, &peer);
		while (*word < round * 10)
			sched_yield();
		assert_int_equal(ibv_dereg_mr(mr), 0);
		last = *word;
		vt_hear(p.fd, &status, sizeof(status));
		assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
		assert_int_equal(*word, last);
		vt_ep_close(a);
	}
	vt_tell(p.fd, &none, sizeof(none));
	vt_peer_finish(&p);
	munmap(memory, (ROUNDS + 1) * PAGE);
}

static const struct vt_role roles[] = {
	{"kinds", role_kinds},
	{"read_only", role_read_only},
	{"gigabytes", role_gigabytes},
	{"shifting", role_shifting},
	{"careless", role_careless},
	{"parent", role_parent},
	{"writer", role_writer},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(every_kind_is_read_and_written),
	VT_TEST(read_only_memory_is_read_and_not_written),
	VT_TEST(gigabytes_are_registered_at_once),
	VT_TEST(nothing_is_lost_while_pages_change_hands),
	VT_TEST(memory_freed_while_registered_harms_nobody),
	VT_TEST(child_has_the_registered_memory_as_it_was),
	VT_TEST(nothing_lands_after_deregistration),
};

VT_MAIN("memory", tests, roles)
