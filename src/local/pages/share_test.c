/* SPDX-License-Identifier: MIT */
/* Memory changes hands under a program that goes on using it: every kind of memory, and those who write. */
#include "local/pages/share.h"

#include "local/pages/file.h"
#include "local/pages/freeze.h"
#include "local/pages/maps.h"
#include "tests/skip.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define PAGE ((size_t)MEMORY_PAGE)

#ifdef __SANITIZE_THREAD__
enum { ROUNDS = 4 }; /* it takes its time */
#else
enum { ROUNDS = 20 };
#endif

static char *anonymous(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static bool on_file(const void *p)
{
	struct areas a;
	bool is;

	assert_int_equal(areas_read(&a, (uintptr_t)p, (uintptr_t)p + 1), 0);
	is = a.n && memory_has(&a.area[0]);
	areas_free(&a);
	return is;
}

static void fill(char *p, size_t len, int seed)
{
	for (size_t i = 0; i < len; i += 64)
		memset(p + i, (int)(i / 64 * 7 + (size_t)seed), len - i < 64 ? len - i : 64);
}

static void check(const char *p, size_t len, int seed)
{
	char *want = malloc(len);

	fill(want, len, seed);
	assert_memory_equal(p, want, len);
	free(want);
}

/* What another would see by the file. */
static void check_file(const struct share_run *r, uintptr_t at, size_t len)
{
	char *p = malloc(len);

	assert_true(at >= r->start && at + len <= r->start + r->len);
	memset(p, 0, len);
	assert_int_equal(memory_get(r->off + (at - r->start), p, len), 0);
	assert_memory_equal(p, (void *)at, len);
	free(p);
}

static void contents_stay_where_they_were(void **state)
{
	size_t len = (5 << 20) + 3 * PAGE;
	char *p = anonymous(len);
	struct share_run run;
	struct share *s;

	(void)state;
	fill(p, len, 1);
	s = share_take(p + 100, len - 200, &run);
	assert_non_null(s);
	assert_int_equal(run.start, p + PAGE);
	assert_int_equal(run.len, len - 2 * PAGE);
	assert_false(on_file(p));
	assert_true(on_file(p + PAGE));
	assert_false(on_file(p + len - 1));
	check(p, len, 1);
	fill(p, len, 2);
	check_file(&run, run.start, run.len);
	share_drop(s);
	assert_false(on_file(p + PAGE));
	check(p, len, 2);
	munmap(p, len);
}

static size_t file_kib(void)
{
	char path[64], line[32];
	FILE *f;

	snprintf(path, sizeof(path), "stat -L -c %%b /proc/%d/fd/%d", getpid(), memory_file());
	f = popen(path, "r");
	assert_non_null(fgets(line, sizeof(line), f));
	pclose(f);
	return (size_t)atol(line) / 2;
}

static void untouched_gigabytes_cost_nothing(void **state)
{
	size_t len = 20ull << 30;
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	size_t before = file_kib();
	struct share_run run;
	struct share *s;

	(void)state;
	if (p == MAP_FAILED)
		skip_because("no 20 GiB of address space");
	p[3ull << 30] = 1;
	p[len - 5] = 2;
	s = share_take(p, len, &run);
	assert_non_null(s);
	assert_int_equal(run.len, len);
	assert_in_range(file_kib(), before, before + 100);
	assert_int_equal(p[3ull << 30], 1);
	assert_int_equal(p[len - 5], 2);
	p[7ull << 30] = 3;
	share_drop(s);
	assert_int_equal(p[7ull << 30], 3);
	assert_int_equal(p[len - 5], 2);
	assert_int_equal(p[12345], 0);
	assert_int_equal(file_kib(), before);
	munmap(p, len);
}

/* ---- those who write meanwhile ---- */
struct writer {
	pthread_t thread;
	char *p;
	size_t len;
	_Atomic bool stop;
	_Atomic unsigned long rounds;
};

static void *count_up(void *arg)
{
	struct writer *w = arg;

	for (unsigned long n = 1; !atomic_load(&w->stop); n++) {
		for (size_t i = 0; i < w->len; i += PAGE) {
			volatile unsigned long *word = (unsigned long *)(w->p + i);

			if (*word != n - 1) {
				fprintf(stderr, "page %zu: %lu instead of %lu\n", i / PAGE, *word, n - 1);
				abort();
			}
			*word = n;
		}
		atomic_store(&w->rounds, n);
	}
	return NULL;
}

static void writers_lose_nothing(void **state)
{
	size_t len = 3 << 20;
	struct writer w[3] = {{.len = len}, {.len = len}, {.len = len}};
	char *p = anonymous(len);

	(void)state;
	for (int i = 0; i < 3; i++) {
		w[i].p = p + i * 64;
		assert_int_equal(pthread_create(&w[i].thread, NULL, count_up, &w[i]), 0);
	}
	for (int i = 0; i < 10 * ROUNDS; i++) {
		size_t off = (size_t)(i % 7) * PAGE, n = len - off - (size_t)(i % 5) * PAGE;
		struct share_run run;
		struct share *s = share_take(p + off, n, &run);
		unsigned long before = w[0].rounds;

		if (!s && i < 35)
			fail_msg("not moved");
		while (i % 50 == 0 && w[0].rounds < before + 2)
			sched_yield();
		share_drop(s);
	}
	for (int i = 0; i < 3; i++) {
		atomic_store(&w[i].stop, true);
		pthread_join(w[i].thread, NULL);
	}
	munmap(p, len);
}

/* Of memory that nobody has touched yet. */
static void *touch_all(void *arg)
{
	struct writer *w = arg;

	for (size_t i = w->len; i; i -= PAGE)
		w->p[i - PAGE] = 77;
	return NULL;
}

static void first_touches_are_not_lost(void **state)
{
	size_t len = 16 << 20;

	(void)state;
	for (int i = 0; i < ROUNDS; i++) {
		struct writer w = {.len = len, .p = anonymous(len)};
		struct share_run run;
		struct share *s;

		assert_int_equal(pthread_create(&w.thread, NULL, touch_all, &w), 0);
		s = share_take(w.p, len, &run);
		if (i % 2)
			share_drop(s);
		pthread_join(w.thread, NULL);
		for (size_t k = 0; k < len; k += PAGE)
			assert_int_equal(w.p[k], 77);
		if (i % 2 == 0)
			share_drop(s);
		munmap(w.p, len);
	}
}

/* ---- kinds of memory ---- */
static void not_moved(void *p, size_t len)
{
	struct share_run run;
	struct share *s = share_take(p, len, &run);

	assert_null(s);
	assert_int_equal(run.len, 0);
	assert_false(on_file(p));
}

static void other_kinds_stay(void **state)
{
	char stack[8 * PAGE], *p;
	FILE *f = tmpfile();

	(void)state;
	memset(stack, 1, sizeof(stack));
	not_moved(stack, sizeof(stack));
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	not_moved(p, 4 * PAGE);
	munmap(p, 4 * PAGE);
	assert_int_equal(ftruncate(fileno(f), 4 * PAGE), 0);
	p = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
	not_moved(p, 4 * PAGE);
	munmap(p, 4 * PAGE);
	fclose(f);
	p = anonymous(4 * PAGE);
	mprotect(p, 4 * PAGE, PROT_READ);
	not_moved(p, 4 * PAGE);
	munmap(p, 4 * PAGE);
	p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
	if (p != MAP_FAILED) {
		not_moved(p, 2 << 20);
		munmap(p, 2 << 20);
	}
}

/* Registered with io_uring, the kernel would go on writing to the old pages. */
static void memory_that_io_uring_holds_stays(void **state)
{
	struct io_uring_params params = {0};
	struct iovec iov = {anonymous(9 * PAGE), 9 * PAGE};
	int fd = (int)syscall(SYS_io_uring_setup, 1, &params);
	struct share_run run;
	struct share *s;

	(void)state;
	if (fd < 0 || syscall(SYS_io_uring_register, fd, IORING_REGISTER_BUFFERS, &iov, 1))
		skip_because("io_uring is refused");
	not_moved(iov.iov_base, iov.iov_len);
	close(fd);
	s = share_take(iov.iov_base, iov.iov_len, &run);
	assert_non_null(s);
	share_drop(s);
	munmap(iov.iov_base, iov.iov_len);
}

static void *on_own_stack(void *arg)
{
	char stack[8 * PAGE];

	memset(stack, 1, sizeof(stack));
	not_moved(stack, sizeof(stack));
	return arg;
}

static void stacks_of_threads_stay(void **state)
{
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, on_own_stack, NULL), 0);
	pthread_join(thread, NULL);
}

static void huge_pages_of_the_kernel_move(void **state)
{
	size_t len = 8 << 20;
	char *all = anonymous(len + (2 << 20)),
	     *p = (char *)(((uintptr_t)all + (2 << 20) - 1) & -(2ul << 20));
	struct share_run run;
	struct share *s;

	(void)state;
	madvise(p, len, MADV_HUGEPAGE);
	fill(p, len, 9);
	s = share_take(p + 3 * PAGE, len - 7 * PAGE, &run);
	assert_non_null(s);
	assert_int_equal(run.len, len - 7 * PAGE);
	check(p, len, 9);
	share_drop(s);
	check(p, len, 9);
	munmap(all, len + (2 << 20));
}

/* ---- more than one region ---- */
static void regions_overlap(void **state)
{
	size_t len = 64 * PAGE;
	char *p = anonymous(len);
	struct share_run run[4];
	struct share *s[4];

	(void)state;
	fill(p, len, 3);
	s[0] = share_take(p + 16 * PAGE, 16 * PAGE, &run[0]);
	s[1] = share_take(p + 16 * PAGE, 16 * PAGE, &run[1]);
	assert_memory_equal(&run[0], &run[1], sizeof(run[0]));
	s[2] = share_take(p, len, &run[2]);
	assert_int_equal(run[2].len, 32 * PAGE); /* the longest of three */
	s[3] = share_take(p + 20 * PAGE, 4 * PAGE, &run[3]);
	assert_int_equal(run[3].off, run[0].off + 4 * PAGE);
	check(p, len, 3);
	share_drop(s[0]);
	share_drop(s[2]);
	assert_true(on_file(p + 20 * PAGE));
	assert_false(on_file(p));
	check_file(&run[1], run[1].start, run[1].len);
	share_drop(s[1]);
	assert_true(on_file(p + 16 * PAGE)); /* for the last one, whole */
	check(p, len, 3);
	share_drop(s[3]);
	assert_false(on_file(p + 20 * PAGE));
	check(p, len, 3);
	munmap(p, len);
}

static void one_that_comes_and_goes_stays(void **state)
{
	char *p = anonymous(4 * PAGE);
	struct share_run run;
	int moved = 0;

	(void)state;
	for (int i = 0; i < 20; i++) {
		struct share *s = share_take(p, 4 * PAGE, &run);

		moved += !!s;
		share_drop(s);
	}
	assert_in_range(moved, 1, 5);
	munmap(p, 4 * PAGE);
}

/* ---- what the program does to registered memory ---- */
static void unmapped_while_registered(void **state)
{
	size_t len = 8 * PAGE, before = file_kib();
	char *p = anonymous(len);
	struct share_run run;
	struct share *s;

	(void)state;
	fill(p, len, 1);
	s = share_take(p, len, &run);
	assert_int_equal(munmap(p + 2 * PAGE, 4 * PAGE), 0);
	/* Something new in its place is not ours to touch. */
	assert_ptr_equal(mmap(p + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		p + 2 * PAGE);
	p[2 * PAGE] = 5;
	share_drop(s);
	assert_int_equal(p[2 * PAGE], 5);
	check(p, 2 * PAGE, 1);
	assert_false(on_file(p));
	assert_false(on_file(p + 6 * PAGE));
	assert_int_equal(file_kib(), before);
	munmap(p, len);
}

/* As UCX has it, in the place of the C library's. */
static bool mremap_knows_four;

void *mremap(void *from, size_t len, size_t new_len, int flags, ...)
{
	va_list more;
	void *to;

	va_start(more, flags);
	to = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
	va_end(more);
	if (mremap_knows_four)
		flags &= ~MREMAP_FIXED;
	return (void *)syscall(SYS_mremap, from, len, new_len, flags, to);
}

static void a_library_with_its_own_mremap(void **state)
{
	size_t len = 8 * PAGE;
	char *p = anonymous(len);
	struct share_run run;

	(void)state;
	fill(p, len, 1);
	mremap_knows_four = true;
	share_drop(share_take(p, len, &run));
	mremap_knows_four = false;
	assert_false(on_file(p));
	check(p, len, 1);
	munmap(p, len);
}

static void moved_and_protected_while_registered(void **state)
{
	size_t len = 8 * PAGE;
	char *p = anonymous(len), *q = anonymous(len);
	struct share_run run;
	struct share *s;

	(void)state;
	fill(p, len, 1);
	s = share_take(p, len, &run);
	q = mremap(p, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, q);
	assert_ptr_not_equal(q, MAP_FAILED);
	assert_int_equal(mprotect(q, PAGE, PROT_READ), 0);
	check(q, len, 1);
	share_drop(s);
	assert_false(on_file(q));
	check(q, len, 1);
	assert_int_equal(mprotect(q, PAGE, PROT_READ | PROT_WRITE), 0);
	munmap(q, len);
}

/* Longer than before: what comes behind it is nobody else's. */
static void made_longer_while_registered(void **state)
{
	char *p = anonymous(4 * PAGE), *other = anonymous(4 * PAGE);
	struct share_run run;
	struct share *s[2];

	(void)state;
	fill(p, 4 * PAGE, 1);
	fill(other, 4 * PAGE, 2);
	s[0] = share_take(p, 4 * PAGE, &run);
	s[1] = share_take(other, 4 * PAGE, &run);
	p = mremap(p, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
	assert_ptr_not_equal(p, MAP_FAILED);
	check(p, 4 * PAGE, 1);
	for (size_t i = 4 * PAGE; i < 8 * PAGE; i++)
		assert_int_equal(p[i], 0);
	share_drop(s[0]);
	share_drop(s[1]);
	check(other, 4 * PAGE, 2);
	munmap(p, 8 * PAGE);
	munmap(other, 4 * PAGE);
}

static unsigned long locked_kib(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[128];

	while (fgets(line, sizeof(line), f) && sscanf(line, "VmLck: %lu", &kib) != 1)
		;
	fclose(f);
	return kib;
}

static void locked_memory_stays_locked(void **state)
{
	size_t len = 5 * PAGE;
	char *p = anonymous(len);
	struct share_run run;
	struct share *s;

	(void)state;
	if (mlock(p, len) || !locked_kib())
		skip_because("no memory can be locked here");
	s = share_take(p, len, &run);
	assert_non_null(s);
	assert_int_equal(locked_kib(), len / 1024);
	share_drop(s);
	assert_int_equal(locked_kib(), len / 1024);
	munlock(p, len);
	munmap(p, len);
}

/* ---- malloc ---- */
static char *cleared(size_t len)
{
	char *p = calloc(1, len);

	if (p[0] || memcmp(p, p + 1, len - 1)) {
		fprintf(stderr, "calloc: not zero\n");
		abort();
	}
	memset(p, 0xff, len);
	return p;
}

/* glibc gives back the end of a heap by MADV_DONTNEED, which does not clear what lies on a file. */
static void *heap_user(void *arg)
{
	enum { N = 64, SIZE = 100000 };
	char *p[N];

	(void)arg;
	for (int round = 0; round < ROUNDS; round++) {
		struct share_run run;
		struct share *s;

		for (int i = 0; i < N; i++)
			p[i] = cleared(SIZE);
		s = share_take(p[N / 2], (size_t)(p[N - 1] + SIZE - p[N / 2]), &run);
		for (int i = N - 1; i >= 0; i--)
			free(p[i]); /* while registered */
		for (int i = 0; i < N; i++)
			p[i] = cleared(SIZE);
		for (int i = 0; i < N; i++)
			free(p[i]);
		share_drop(s);
	}
	return NULL;
}

static void freed_memory_of_a_heap_is_cleared(void **state)
{
	pthread_t thread[2];

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	skip_because("the address sanitizer has a heap of its own"); /* what is between two pieces may be
									anybody's */
#endif
	heap_user(NULL);
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, heap_user, NULL), 0);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
}

/* ---- fork ---- */
static void child_has_a_copy(void **state)
{
	size_t len = 64 * PAGE;
	char *p = anonymous(len);
	struct share_run run;
	struct share *s;
	int status;
	pid_t pid;

	(void)state;
	fill(p, len, 1);
	s = share_take(p, len, &run);
	assert_non_null(s);
	share_fork_prepare();
	pid = fork();
	if (!pid) {
		bool same = true;

		share_fork_child();
		for (size_t i = 0; i < len; i++)
			same = same && (unsigned char)p[i] == (unsigned char)(i / 64 * 7 + 1);
		fill(p, len, 8);
		share_drop(s);
		s = share_take(p, len, &run);
		_exit(same && s && on_file(p) ? 0 : 1);
	}
	share_fork_parent();
	fill(p, len, 2);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	check(p, len, 2);
	assert_true(on_file(p));
	share_drop(s);
	check(p, len, 2);
	munmap(p, len);
}

/* ---- where the kernel does not let us hold threads back ---- */
static void refuse_userfaultfd(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(77);
}

static void *wait_for_end(void *fd)
{
	char byte;

	(void)!read(*(int *)fd, &byte, 1);
	return NULL;
}

/* What is not on the file yet stays where it is; what is goes back when no thread is beside it. */
static int without_userfaultfd(void)
{
	char *p = anonymous(8 * PAGE), *q = anonymous(8 * PAGE);
	struct share_run run;
	struct share *s;
	pthread_t thread;
	int end[2];
	bool ok;

	if (maps_threads() != 1)
		return 77; /* the thread sanitizer has one */
	fill(p, 8 * PAGE, 1);
	fill(q, 8 * PAGE, 2);
	s = share_take(p, 8 * PAGE, &run);
	ok = s && on_file(p);
	refuse_userfaultfd();
	ok = ok && !share_take(q, 8 * PAGE, &run); /* alone, but who knows how long */
	if (pipe(end) || pthread_create(&thread, NULL, wait_for_end, &end[0]))
		return 1;
	ok = ok && !share_take(q, 8 * PAGE, &run);
	ok = ok && share_drop(s) && on_file(p); /* it says so, and all is as before */
	close(end[1]);
	pthread_join(thread, NULL);
	ok = ok && !share_drop(s) && !on_file(p);
	check(p, 8 * PAGE, 1);
	check(q, 8 * PAGE, 2);
	return ok ? 0 : 2;
}

static void threads_that_cannot_be_held_back_keep_it_where_it_is(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid)
		_exit(without_userfaultfd());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip_because("needs a child without a thread of a sanitizer");
	assert_int_equal(status, 0);
}

int main(void)
{
	struct freeze f;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(contents_stay_where_they_were),
		cmocka_unit_test(untouched_gigabytes_cost_nothing),
		cmocka_unit_test(writers_lose_nothing),
		cmocka_unit_test(first_touches_are_not_lost),
		cmocka_unit_test(other_kinds_stay),
		cmocka_unit_test(memory_that_io_uring_holds_stays),
		cmocka_unit_test(stacks_of_threads_stay),
		cmocka_unit_test(huge_pages_of_the_kernel_move),
		cmocka_unit_test(regions_overlap),
		cmocka_unit_test(one_that_comes_and_goes_stays),
		cmocka_unit_test(unmapped_while_registered),
		cmocka_unit_test(a_library_with_its_own_mremap),
		cmocka_unit_test(moved_and_protected_while_registered),
		cmocka_unit_test(made_longer_while_registered),
		cmocka_unit_test(locked_memory_stays_locked),
		cmocka_unit_test(freed_memory_of_a_heap_is_cleared),
		cmocka_unit_test(child_has_a_copy),
		cmocka_unit_test(threads_that_cannot_be_held_back_keep_it_where_it_is),
	};

	if (freeze_open(&f)) {
		puts("SKIP  the kernel refuses userfaultfd: no memory is moved here");
		return 77;
	}
	freeze_close(&f);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
