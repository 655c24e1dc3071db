/* SPDX-License-Identifier: MIT */
/*
 * fork in the middle of everything: threads hold the library's locks when a child is made, which has none of
 * these threads to let go of them. The child opens the device for itself and must find nothing held, nothing
 * half done. Its alarm tells a child that hangs.
 */
#include "fixture.h"

#include <pthread.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, FORKS = 100, CHILD_SECONDS = 60 };

static void finish(pid_t pid)
{
	int status = -1;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		print_error("a child ended by %s\n", strsignal(WTERMSIG(status)));
	assert_int_equal(status, 0);
}

/* f runs in the child, in a thread: an assertion that fails there must not go on with the parent's tests. */
static void in_child(void *(*f)(void *), void *arg)
{
	pid_t pid = fork();

	if (!pid) {
		pthread_t thread;

		alarm(CHILD_SECONDS);
		if (!pthread_create(&thread, NULL, f, arg))
			pthread_join(thread, NULL);
		_exit(9);
	}
	finish(pid);
}

/* A thread's own world on the device that the test has open: the fixture's list is not for sharing. */
static void work(struct vt *mine, int rounds)
{
	for (int i = 0; i < rounds; i++) {
		struct vt_ep *a, *b;

		vt_pair(mine, i % 2 ? IBV_QPT_UC : IBV_QPT_RC, &a, &b);
		if (!(i % 2))
			vt_ping_pong(a, b);
		vt_ep_close(b);
		vt_ep_close(a);
	}
}

static void *use_verbs(void *arg)
{
	void *state = NULL;

	(void)arg;
	if (vt_setup(&state))
		_exit(2);
	work(state, 2);
	_exit(vt_teardown(&state) ? 3 : 0);
}

struct crowd {
	struct vt *t;
	atomic_int stop;
	pthread_t thread[2 * THREADS];
};

static void *builder(void *arg)
{
	struct crowd *c = arg;
	struct vt mine = *c->t;

	mine.eps = NULL;
	while (!atomic_load(&c->stop))
		work(&mine, 1);
	return NULL;
}

/* Completion queues come and go without a packet: their locks are held most of the time. */
static void *cq_maker(void *arg)
{
	struct crowd *c = arg;

	while (!atomic_load(&c->stop)) {
		struct ibv_cq *cq = ibv_create_cq(c->t->ctx, 1, NULL, NULL, 0);

		assert_non_null(cq);
		assert_int_equal(ibv_destroy_cq(cq), 0);
	}
	return NULL;
}

static void crowd_start(struct crowd *c, struct vt *t)
{
	c->t = t;
	atomic_init(&c->stop, 0);
	for (int i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_create(&c->thread[2 * i], NULL, builder, c), 0);
		assert_int_equal(pthread_create(&c->thread[2 * i + 1], NULL, cq_maker, c), 0);
	}
}

static void crowd_stop(struct crowd *c)
{
	atomic_store(&c->stop, 1);
	for (int i = 0; i < 2 * THREADS; i++)
		pthread_join(c->thread[i], NULL);
}

static void forks_among_threads(struct vt *t)
{
	struct crowd c;

	crowd_start(&c, t);
	for (int i = 0; i < FORKS; i++)
		in_child(use_verbs, NULL);
	crowd_stop(&c);
}

static void a_child_finds_no_lock_held(void **state)
{
	forks_among_threads(*state);
}

static void nor_when_fork_init_comes_late(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	assert_int_equal(ibv_fork_init(), 0);
	forks_among_threads(t);
	vt_ping_pong(a, b);
}

/* ---- an event that is not acknowledged, and somebody who waits for that ---- */
static void *destroyer(void *arg)
{
	vt_ep_drop_qp(arg);
	return NULL;
}

/* An event of a QP on an SRQ that went to ERR is taken, and a thread waits in destroy for its acknowledge. */
struct unacked {
	struct ibv_srq *srq;
	struct vt_ep *ep;
	struct ibv_async_event ev;
	pthread_t thread;
};

static void unacked_begin(struct vt *t, struct unacked *u)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 4, .max_sge = 1}};
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);

	assert_non_null(pd);
	u->srq = ibv_create_srq(pd, &sa);
	assert_non_null(u->srq);
	u->ep = vt_ep(t, .pd = pd, .srq = u->srq);
	vt_init(u->ep, NULL);
	assert_int_equal(vt_modify_state(u->ep->qp, IBV_QPS_ERR), 0);
	do {
		assert_true(vt_readable_soon(t->ctx->async_fd));
		assert_int_equal(ibv_get_async_event(t->ctx, &u->ev), 0);
		if (u->ev.event_type != IBV_EVENT_QP_LAST_WQE_REACHED)
			ibv_ack_async_event(&u->ev);
	} while (u->ev.event_type != IBV_EVENT_QP_LAST_WQE_REACHED);
	assert_int_equal(pthread_create(&u->thread, NULL, destroyer, u->ep), 0);
	/* Nothing tells that it waits by now; when it does not yet, the test says less, not something wrong.
	 */
	usleep(20000);
}

static void unacked_end(struct unacked *u)
{
	struct ibv_pd *pd = u->ep->pd;

	ibv_ack_async_event(&u->ev);
	pthread_join(u->thread, NULL);
	vt_ep_close(u->ep);
	assert_int_equal(ibv_destroy_srq(u->srq), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void *acknowledge(void *arg)
{
	void *state = NULL;

	(void)arg;
	if (vt_setup(&state))
		_exit(2);
	for (int i = 0; i < 3; i++) {
		struct unacked u;

		unacked_begin(state, &u);
		unacked_end(&u);
	}
	_exit(vt_teardown(&state) ? 3 : 0);
}

static void who_waits_in_the_parent_does_not_hold_up_the_child(void **state)
{
	struct unacked u;

	unacked_begin(*state, &u);
	in_child(acknowledge, NULL);
	unacked_end(&u);
}

/* ---- what a child may do with what it inherited ---- */
static void *open_inherited(void *arg)
{
	struct vt *t = arg, mine = *t;

	mine.eps = NULL;
	mine.ctx = ibv_open_device(t->ctx->device); /* from the parent's list */
	assert_non_null(mine.ctx);
	work(&mine, 2);
	_exit(ibv_close_device(mine.ctx) ? 3 : 0);
}

static void a_child_opens_the_device_its_parent_found(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	in_child(open_inherited, t); /* before the parent has a QP */
	vt_pair(t, IBV_QPT_RC, &a, &b);
	in_child(open_inherited, t);
	vt_ping_pong(a, b);
}

/* As destructors and garbage collectors do, in a process that never asked for a fork. */
static void *destroy_inherited(void *arg)
{
	void *state = arg;

	_exit(vt_teardown(&state) ? 3 : 0);
}

static void *sender(void *arg)
{
	struct crowd *c = arg;
	struct vt_ep *a = c->t->eps->next, *b = c->t->eps;

	while (!atomic_load(&c->stop)) {
		vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 30000, .to = b);
		vt_ok(a, 1);
	}
	return NULL;
}

static void a_child_may_destroy_what_it_inherited(void **state)
{
	struct crowd c = {.t = *state};
	struct vt_ep *a, *b;

	vt_pair(c.t, IBV_QPT_RC, &a, &b);
	atomic_init(&c.stop, 0);
	assert_int_equal(pthread_create(&c.thread[0], NULL, sender, &c), 0);
	for (int i = 0; i < FORKS; i++)
		in_child(destroy_inherited, c.t);
	atomic_store(&c.stop, 1);
	pthread_join(c.thread[0], NULL);
	vt_ping_pong(a, b);
}

/* ---- children that never run a line of ours ---- */
static void programs_start_among_threads(void **state)
{
	static char *const argv[] = {"true", NULL};
	extern char **environ;
	struct crowd c;

	crowd_start(&c, *state);
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = -1;

		if (i % 2) {
			assert_int_equal(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ), 0);
		} else {
			pid = vfork();
			if (!pid) {
				execve("/bin/true", argv, environ);
				_exit(127);
			}
		}
		finish(pid);
	}
	crowd_stop(&c);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(a_child_finds_no_lock_held),
	VT_TEST(nor_when_fork_init_comes_late),
	VT_TEST(who_waits_in_the_parent_does_not_hold_up_the_child),
	VT_TEST(a_child_opens_the_device_its_parent_found),
	VT_TEST(a_child_may_destroy_what_it_inherited),
	VT_TEST(programs_start_among_threads),
};

VT_MAIN("fork_locks", tests, NULL)
