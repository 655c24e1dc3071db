/* SPDX-License-Identifier: MIT */
/*
 * Sizes and numbers do not matter: a region larger than memory, or than the address space has room for twice,
 * is registered, survives a fork and is deregistered; what that costs does not depend on its length; a fork
 * with much registered holds no peer up; a hundred thousand regions are had as quickly as one, and leave
 * nothing behind.
 */
#include "fixture.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE ((size_t)4096)
#define MIB  ((size_t)1 << 20)
#define GIB  ((size_t)1 << 30)
#define TIB  ((size_t)1 << 40)

/* NULL: this system does not promise that much. */
static uint8_t *sparse(size_t len)
{
	uint8_t *p =
		mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint64_t median(const uint64_t *v, size_t n)
{
	uint64_t *sorted = malloc(n * sizeof(*v)), m;

	memcpy(sorted, v, n * sizeof(*v));
	qsort(sorted, n, sizeof(*v), by_value);
	m = sorted[n / 2];
	free(sorted);
	return m;
}

/* ---- larger than memory ---- */
enum { SPOTS = 5, MARK = 0x5a };

/* A byte at the ends and in between is what it should be; or is set. */
static bool check_spots(uint8_t *p, size_t len, uint8_t want, bool set)
{
	bool ok = true;

	for (size_t i = 0; i < SPOTS; i++) {
		uint8_t *at = p + (i + 1 == SPOTS ? len - 1 : len / SPOTS * i);

		if (set)
			*at = want;
		ok &= *at == want;
	}
	return ok;
}

/* The child has the memory as it was, and what it writes there is its own. */
static void fork_with(uint8_t *p, size_t len)
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		bool ok = check_spots(p, len, MARK, false) && check_spots(p, len, 1, true);

		p[len / 3] = 7; /* where nobody was before */
		_exit(ok && p[len / 3] == 7 ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(check_spots(p, len, MARK, false));
	assert_int_equal(p[len / 3], 0);
}

/* What /proc/self/maps says of it. */
static void name_of(const uint8_t *p, char line[512])
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned long from, to;

	assert_non_null(f);
	while (fgets(line, 512, f)) {
		if (sscanf(line, "%lx-%lx", &from, &to) == 2 && from <= (uintptr_t)p && (uintptr_t)p < to)
			break;
		line[0] = 0;
	}
	fclose(f);
	memmove(line, strchr(line, ' '), strlen(strchr(line, ' ')) + 1); /* neighbours may join it */
}

static void register_and_fork(struct vt_ep *ep, uint8_t *p, size_t len)
{
	char before[512], after[512];
	struct ibv_mr *mr;

	assert_true(check_spots(p, len, MARK, true));
	name_of(p, before);
	mr = ibv_reg_mr(ep->pd, p, len, VT_ALL_ACCESS);
	assert_non_null(mr);
	fork_with(p, len);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	name_of(p, after);
	assert_string_equal(before, after);
	assert_true(check_spots(p, len, MARK, false));
	fork_with(p, len);
}

static void a_region_larger_than_memory_is_forked_and_deregistered(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *p = sparse(40 * GIB);

	if (!p)
		skip_because("no 40 GiB of address space");
	register_and_fork(ep, p, 40 * GIB);
	munmap(p, 40 * GIB);
}

static size_t address_space(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long n = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu", &n), 1);
	fclose(f);
	return n * PAGE;
}

/* A process of its own: the limit stays. */
static void role_limited(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	uint8_t *p = sparse(GIB);
	struct rlimit limit;

	assert_non_null(p);
	limit.rlim_cur = limit.rlim_max = address_space() + 64 * MIB;
	assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
	register_and_fork(ep, p, GIB);
	vt_tell(fd, "", 1);
}

static void a_region_is_had_once_in_a_limited_address_space(void **state)
{
	struct vt_peer p;
	char byte;

	vt_peer_start(&p, "limited");
	vt_hear(p.fd, &byte, 1);
	vt_peer_finish(&p);
}

/* ---- the cost of a length ---- */
enum { TRIES = 51, LENGTH_FACTOR = 20 };

static uint64_t cost_of(struct vt_ep *ep, uint8_t *p, size_t len)
{
	uint64_t ns[TRIES];

	for (size_t i = 0; i < TRIES; i++) {
		uint64_t begin = now_ns();
		struct ibv_mr *mr = ibv_reg_mr(ep->pd, p, len, VT_ALL_ACCESS);

		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		ns[i] = now_ns() - begin;
		if (ns[i] > 1000000000)
			fail_msg("%zu MiB take %.1f s", len / MIB, (double)ns[i] / 1e9);
	}
	return median(ns, TRIES);
}

static void the_cost_does_not_depend_on_the_length(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *p = sparse(TIB);
	uint64_t small, large;

	if (!p)
		skip_because("no TiB of address space");
	check_spots(p, TIB, MARK, true);
	small = cost_of(ep, p, MIB);
	large = cost_of(ep, p, TIB);
	if (large > LENGTH_FACTOR * small)
		fail_msg("1 TiB takes %.1f us, 1 MiB %.1f us", (double)large / 1e3, (double)small / 1e3);
	munmap(p, TIB);
}

/* ---- a fork beside a stream ---- */
enum { FORKS = 20, WINDOW = 16 };

/* Writes a number that grows into the test's memory, as fast as it can, until it is told to stop. */
static void role_stream(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	uint64_t *number = (uint64_t *)ep->buf, out = 0;
	struct vt_addr peer;
	struct ibv_wc wc;

	vt_meet(ep, fd, NULL, &peer);
	while (!vt_readable_now(fd) || out) {
		for (int n; (n = ibv_poll_cq(ep->cq, 1, &wc)); out--) {
			assert_int_equal(n, 1);
			if (wc.status)
				fail_msg("a WRITE failed: %s", ibv_wc_status_str(wc.status));
		}
		if (out < WINDOW && !vt_readable_now(fd)) {
			++*number;
			vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 8, .raddr = peer.addr,
				.rkey = peer.rkey);
			out++;
		}
	}
}

static uint64_t arrived(const struct vt_ep *ep)
{
	return atomic_load((const _Atomic uint64_t *)ep->buf);
}

static void wait_for_more(const struct vt_ep *ep, uint64_t than)
{
	double end = vt_deadline();

	while (arrived(ep) <= than) {
		assert_true(vt_now() < end);
		sched_yield();
	}
}

static void fork_once(void)
{
	int status = -1;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* As if it were on another host: it knows of no other way than UDP. */
static void start_stream(struct vt_peer *p, bool remote)
{
	const char *v = getenv("ANYRDMA_LOCAL");
	char *was = v ? strdup(v) : NULL;

	if (remote)
		setenv("ANYRDMA_LOCAL", "off", 1);
	vt_peer_start(p, "stream");
	if (was)
		setenv("ANYRDMA_LOCAL", was, 1);
	else
		unsetenv("ANYRDMA_LOCAL");
	free(was);
}

/*
 * Nothing is counted during a fork: the kernel itself stops every thread that writes to memory it has copied
 * already. But it takes ten milliseconds, and afterwards the stream goes on as if nothing had been.
 */
static void fork_beside_a_stream(struct vt *t, bool remote)
{
	struct vt_ep *ep = vt_ep(t);
	uint8_t *memory = sparse(GIB);
	struct vt_addr peer;
	struct ibv_mr *mr;
	struct vt_peer p;

	assert_non_null(memory);
	memset(memory, MARK, GIB);
	mr = ibv_reg_mr(ep->pd, memory, GIB, VT_ALL_ACCESS);
	assert_non_null(mr);
	start_stream(&p, remote);
	vt_meet(ep, p.fd, NULL, &peer);
	wait_for_more(ep, 0);
	for (unsigned i = 0; i < FORKS; i++) {
		fork_once();
		wait_for_more(ep, arrived(ep));
	}
	vt_peer_finish(&p);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(memory, GIB);
}

static void a_fork_with_a_gigabyte_registered_holds_no_peer_up(void **state)
{
	fork_beside_a_stream(*state, false);
}

static void a_fork_with_a_gigabyte_registered_holds_no_remote_peer_up(void **state)
{
	fork_beside_a_stream(*state, true);
}

/* ---- many regions ---- */
enum { REGIONS = 100000, SOME = 1000, LAST = 5, FLAT = 3, QUICK_NS = 10000 };

static uint64_t least(const uint64_t *ns, size_t n)
{
	uint64_t least = UINT64_MAX;

	for (size_t i = 0; i < n; i++)
		least = ns[i] < least ? ns[i] : least;
	return least;
}

/*
 * Looks every few thousand, since it may take very long when the cost grows. What one takes at best: all
 * others also say what else the machine does.
 */
static void expect_flat(const uint64_t *ns, size_t n, const char *what)
{
	uint64_t first, last;

	if (n % (LAST * SOME))
		return;
	first = least(ns, SOME);
	last = least(ns + n - LAST * SOME, LAST * SOME);
	if (last > FLAT * first && last > QUICK_NS)
		fail_msg("%s takes %.1f us at first and %.1f us with %zu regions", what, (double)first / 1e3,
			(double)last / 1e3, n);
}

static void a_hundred_thousand_regions_are_had_as_quickly_as_one(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *p = sparse(REGIONS * PAGE);
	struct ibv_mr **mr = calloc(REGIONS, sizeof(struct ibv_mr *));
	uint64_t *ns = calloc(REGIONS, sizeof(*ns));

	assert_non_null(p);
	assert_true(ep->t->dev.max_mr >= REGIONS);
	for (size_t i = 0; i < REGIONS; i++) {
		uint64_t begin = now_ns();

		mr[i] = ibv_reg_mr(ep->pd, p + i * PAGE, PAGE, VT_ALL_ACCESS);
		assert_non_null(mr[i]);
		ns[i] = now_ns() - begin;
		expect_flat(ns, i + 1, "a registration");
	}
	for (size_t i = 0; i < REGIONS; i++) {
		uint64_t begin = now_ns();

		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
		ns[i] = now_ns() - begin;
		expect_flat(ns, i + 1, "a deregistration");
	}
	free(ns);
	free(mr);
	munmap(p, REGIONS * PAGE);
}

/* ---- nothing is left ---- */
static unsigned mappings(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	unsigned n = 0;
	int c;

	assert_non_null(f);
	while ((c = fgetc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static size_t resident(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long n = 0;

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%*u %lu", &n), 1);
	fclose(f);
	return n * PAGE;
}

enum { PLACES = 4000 };

static void cycle(struct vt_ep *ep, uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		uint8_t *at = p + i % PLACES * 2 * PAGE;
		struct ibv_mr *mr = ibv_reg_mr(ep->pd, at, PAGE, VT_ALL_ACCESS);

		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void a_hundred_thousand_cycles_leave_nothing_behind(void **state)
{
	struct vt_ep *ep = vt_ep((struct vt *)*state);
	uint8_t *p = sparse(PLACES * 2 * PAGE);
	unsigned maps;
	size_t rss;

	assert_non_null(p);
	memset(p, 1, PLACES * 2 * PAGE);
	cycle(ep, p, 10);
	maps = mappings();
	rss = resident();
	for (size_t done = 0; done < REGIONS; done += PLACES) {
		cycle(ep, p, PLACES);
		if (mappings() > maps + 2) /* malloc's and stdio's */
			fail_msg("%u mappings before, %u after %zu cycles", maps, mappings(), done + PLACES);
	}
	if (resident() > rss + MIB)
		fail_msg("%zu KiB of memory before, %zu KiB after", rss >> 10, resident() >> 10);
	munmap(p, PLACES * 2 * PAGE);
}

static const struct vt_role roles[] = {
	{"limited", role_limited},
	{"stream", role_stream},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(a_region_larger_than_memory_is_forked_and_deregistered),
	VT_TEST(a_region_is_had_once_in_a_limited_address_space),
	VT_TEST(the_cost_does_not_depend_on_the_length),
	VT_TEST(a_fork_with_a_gigabyte_registered_holds_no_peer_up),
	VT_TEST(a_fork_with_a_gigabyte_registered_holds_no_remote_peer_up),
	VT_TEST(a_hundred_thousand_regions_are_had_as_quickly_as_one),
	VT_TEST(a_hundred_thousand_cycles_leave_nothing_behind),
};

VT_MAIN("scale", tests, roles)
