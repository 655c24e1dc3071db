/* SPDX-License-Identifier: MIT */
/* fork: a child may exec, exit or open the device for itself; the parent's traffic does not notice. */
#include "fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int finish(pid_t pid)
{
	int status = -1;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void child_exits(void)
{
	_exit(0);
}

/* Asked by LeakSanitizer at exit: a child has none of the parent's threads, so what they hold looks lost in
 * it. */
static int is_child;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
	return is_child;
}

/* With everything that runs at an orderly exit, the library's own clean-up too. */
static void child_exits_in_order(void)
{
	is_child = 1;
	exit(0);
}

static void child_execs(void)
{
	execl("/bin/true", "true", NULL);
	_exit(127);
}

static void *use_verbs(void *arg)
{
	void *state = NULL;
	struct vt_ep *a, *b;

	(void)arg;
	if (vt_setup(&state))
		_exit(2);
	vt_pair(state, IBV_QPT_RC, &a, &b);
	for (int i = 0; i < 20; i++)
		vt_ping_pong(a, b);
	_exit(vt_teardown(&state) ? 3 : 0);
}

/*
 * A device of its own: opened anew, with connections of its own. In a thread, since the copy of the running
 * test that the child is would otherwise catch a failing assertion and go on with the parent's tests.
 */
static void child_uses_verbs(void)
{
	pthread_t thread;

	if (!pthread_create(&thread, NULL, use_verbs, NULL))
		pthread_join(thread, NULL);
}

static void (*const children[])(void) = {child_exits, child_exits_in_order, child_execs, child_uses_verbs};

static void in_child(void (*f)(void))
{
	pid_t pid = fork();

	if (!pid) {
		alarm(60);
		f();
		_exit(9);
	}
	assert_int_equal(finish(pid), 0);
}

static void traffic_goes_on(struct vt *t)
{
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	for (int i = 0; i < 12; i++) {
		vt_fill(a->buf, 20000, i);
		vt_recv(b, 2, 0, 20000);
		in_child(children[i % ARRAY_LEN(children)]);
		vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 20000);
		vt_ok(a, 1);
		vt_ok(b, 2);
		vt_check(b->buf, 20000, i);
		vt_post(b, .op = IBV_WR_RDMA_READ, .id = 3, .off = 32768, .len = 20000, .to = a);
		vt_ok(b, 3);
		vt_check(b->buf + 32768, 20000, i);
	}
}

static void children_do_not_disturb_the_parent(void **state)
{
	traffic_goes_on(*state);
}

/* ibv_fork_init() is for a process that has registered nothing yet: a fresh one. */
static void role_fork_init(struct vt *t, int fd)
{
	(void)fd;
	assert_int_equal(ibv_fork_init(), 0);
	assert_int_not_equal(ibv_is_fork_initialized(), IBV_FORK_DISABLED);
	traffic_goes_on(t);
}

static void nor_after_fork_init(void **state)
{
	struct vt_peer p;

	(void)state;
	vt_peer_start(&p, "fork_init");
	vt_peer_finish(&p);
}

struct traffic {
	struct vt_ep *a, *b;
	atomic_int stop;
};

static void *traffic(void *arg)
{
	struct traffic *f = arg;

	for (int i = 0; !atomic_load(&f->stop); i++) {
		vt_fill(f->a->buf, 10000, i);
		vt_recv(f->b, 2, 0, 10000);
		vt_post(f->a, .op = IBV_WR_SEND, .id = 1, .len = 10000);
		vt_ok(f->a, 1);
		vt_ok(f->b, 2);
		vt_check(f->b->buf, 10000, i);
	}
	return NULL;
}

static void forking_in_the_middle_of_traffic_is_safe(void **state)
{
	struct vt *t = *state;
	struct traffic f;
	pthread_t thread;

	vt_pair(t, IBV_QPT_RC, &f.a, &f.b);
	atomic_init(&f.stop, 0);
	assert_int_equal(pthread_create(&thread, NULL, traffic, &f), 0);
	for (int i = 0; i < 40; i++)
		in_child(children[i % ARRAY_LEN(children)]);
	atomic_store(&f.stop, 1);
	pthread_join(thread, NULL);
}

/* Copy on write is between parent and child: what arrives later arrives in the parent's pages. */
static void data_arrives_in_the_parents_pages(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	int hold[2];
	pid_t pid;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	memset(b->buf, 0x33, 20000);
	vt_recv(b, 2, 0, 20000);
	assert_int_equal(pipe(hold), 0);
	pid = fork();
	if (!pid) {
		char byte;

		alarm(60);
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	memset(b->buf, 0x44, 20000); /* moves the parent off the shared pages */
	vt_fill(a->buf, 20000, 9);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 20000);
	vt_ok(a, 1);
	vt_ok(b, 2);
	vt_check(b->buf, 20000, 9);
	close(hold[0]);
	close(hold[1]);
	assert_int_equal(finish(pid), 0);
}

/* A registered buffer is private memory like any other: the child has a copy, or no access at all. */
static void childs_writes_do_not_reach_the_parents_region(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	pid_t pid;
	int status;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	memset(b->buf, 0x33, b->len);
	pid = fork();
	if (!pid) {
		memset(b->buf, 0x99, b->len);
		_exit(0);
	}
	status = finish(pid);
	assert_true(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
	vt_check_all(b->buf, b->len, 0x33);
	vt_ping_pong(a, b);
}

/* What the child does with the parent's queue pair is an error, and harms neither. */
static void parents_queue_pair_cannot_be_modified(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct vt *t = *state;
	struct vt_ep *a, *b;
	pid_t pid;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	pid = fork();
	if (!pid) {
		alarm(60);
		_exit(!ibv_modify_qp(a->qp, &attr, IBV_QP_STATE));
	}
	assert_int_equal(finish(pid), 0);
	vt_ping_pong(a, b);
}

/* The child goes on for longer than the parent: it must not hold what the parent gave back. */
static void device_can_be_opened_again_while_a_child_lives(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	int hold[2];
	pid_t pid;

	assert_int_equal(pipe(hold), 0);
	vt_pair(t, IBV_QPT_RC, &a, &b);
	pid = fork();
	if (!pid) {
		char byte;

		alarm(60);
		close(hold[1]);
		_exit(read(hold[0], &byte, 1) != 0);
	}
	close(hold[0]);
	for (int i = 0; i < 3; i++) {
		void *again = NULL;
		struct vt_ep *c, *d;

		assert_int_equal(vt_setup(&again), 0);
		vt_pair(again, IBV_QPT_RC, &c, &d);
		vt_ping_pong(c, d);
		assert_int_equal(vt_teardown(&again), 0);
	}
	vt_ping_pong(a, b);
	close(hold[1]);
	assert_int_equal(finish(pid), 0);
}

/* ---- numbers of descriptors ---- */
static atomic_bool looking;
static atomic_int freed = -1; /* the number that a thread has just closed, in whose close() it waits */
static atomic_bool is_socket;
static pthread_t program;

/* The library's close() in front of libc's. While the test looks, others than its own thread wait in there.
 */
__attribute__((visibility("default"))) int close(int fd)
{
	struct stat st = {0};
	int none = -1, err;

	if (!atomic_load(&looking) || pthread_equal(pthread_self(), program))
		return (int)syscall(SYS_close, fd);
	fstat(fd, &st);
	err = (int)syscall(SYS_close, fd);
	atomic_store(&is_socket, S_ISSOCK(st.st_mode));
	atomic_compare_exchange_strong(&freed, &none, fd);
	while (atomic_load(&looking) && atomic_load(&freed) == fd)
		usleep(1000);
	return err;
}

/* The number is the program's now. Whether a child has it too. */
static bool child_has(int fd)
{
	int own = dup2(STDERR_FILENO, fd), status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(fcntl(fd, F_GETFD) < 0);
	waitpid(pid, &status, 0);
	close(own);
	return !status;
}

static void role_sleeper(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;
	char byte;

	vt_meet(ep, fd, NULL, &peer);
	while (read(fd, &byte, 1) > 0)
		;
}

/* When a connection ends its descriptors are closed, and the program may open others with these numbers. */
static void childs_descriptors_are_the_programs(void **state)
{
	const char *way = getenv("ANYRDMA_LOCAL");
	bool has = true, last = false;
	struct vt *t = *state;
	struct vt_addr peer;
	struct vt_peer p;
	double until;

	if (!vt_by_cm(t) && way && !strcmp(way, "off"))
		return; /* packets need none of their own */
	vt_peer_start(&p, "sleeper");
	vt_meet(vt_ep(t), p.fd, NULL, &peer);
	program = pthread_self();
	atomic_store(&looking, true);
	kill(p.pid, SIGKILL);
	until = vt_deadline();
	while (has && !last && vt_now() < until) {
		int fd = atomic_load(&freed);

		if (fd >= 0) {
			has = child_has(fd);
			last = atomic_load(&is_socket);
			atomic_store(&freed, -1);
		}
		usleep(1000);
	}
	atomic_store(&looking, false); /* first: the helper may wait */
	assert_true(has);
	assert_true(last);
	vt_peer_kill(&p);
}

static const struct vt_role roles[] = {
	{"fork_init", role_fork_init},
	{"sleeper", role_sleeper},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(children_do_not_disturb_the_parent),
	VT_TEST(nor_after_fork_init),
	VT_TEST(forking_in_the_middle_of_traffic_is_safe),
	VT_TEST(data_arrives_in_the_parents_pages),
	VT_TEST(childs_writes_do_not_reach_the_parents_region),
	VT_TEST(parents_queue_pair_cannot_be_modified),
	VT_TEST(device_can_be_opened_again_while_a_child_lives),
	VT_TEST(childs_descriptors_are_the_programs),
};

VT_MAIN("fork", tests, roles)
