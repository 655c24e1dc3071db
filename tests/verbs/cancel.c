/* SPDX-License-Identifier: MIT */
/*
 * pthread_cancel at any moment: a thread does the same calls again and again and is cancelled in the middle
 * of them. No lock may die with it, so that everybody else can do the same afterwards; nothing may be left of
 * the calls, which are not cancelled but at their end. Those that wait are cancelled where they wait.
 *
 * The moments come from a seed. One who hangs is found by an alarm, which says what it was.
 */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CANCELS = 250, MOST_NS = 100 * 1000, ALARM_S = 60 };

/* ---- what hangs is told ---- */
static const char *volatile doing = "";
static volatile int cancelled;

static void on_alarm(int sig)
{
	char text[200];
	int n = snprintf(text, sizeof(text), "%s hangs after %d threads that did it were cancelled\n", doing,
		cancelled);

	(void)!write(STDERR_FILENO, text, (size_t)n);
	_exit(1);
}

static void begin(const char *what)
{
	print_message("  %s\n", what);
	doing = what;
	cancelled = 0;
	signal(SIGALRM, on_alarm);
	alarm(ALARM_S);
}

static void one_more(void)
{
	cancelled++;
	alarm(ALARM_S);
}

/* ---- rounds: each leaves nothing ---- */
static struct ibv_pd *shared_pd;
static uint8_t memory[5][16384] __attribute__((aligned(4096)));

static void regions(struct vt *t)
{
	struct ibv_mr *mr[5];

	for (int i = 0; i < 5; i++) {
		mr[i] = ibv_reg_mr(shared_pd, memory[i], sizeof(memory[i]), i % 2 ? 0 : VT_ALL_ACCESS);
		assert_non_null(mr[i]);
	}
	assert_int_equal(
		ibv_rereg_mr(mr[0], IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
	for (int i = 0; i < 5; i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
}

static void domains(struct vt *t)
{
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_mw *mw;
	struct ibv_td *td;

	assert_non_null(pd);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	assert_non_null(mw);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	td = ibv_alloc_td(t->ctx, &(struct ibv_td_init_attr){0});
	assert_non_null(td);
	assert_int_equal(ibv_dealloc_td(td), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void queues(struct vt *t)
{
	struct ibv_srq_init_attr srq_attr = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_comp_channel *ch = ibv_create_comp_channel(t->ctx);
	struct ibv_cq *cq = ibv_create_cq(t->ctx, 16, NULL, ch, 0);
	struct ibv_srq *srq = ibv_create_srq(shared_pd, &srq_attr);

	assert_non_null(srq);
	assert_int_equal(ibv_resize_cq(cq, 64), 0);
	assert_int_equal(ibv_req_notify_cq(cq, 0), 0);
	assert_int_equal(ibv_destroy_srq(srq), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

/* To RTS and back, where that is for the program to do. */
static void queue_pairs(struct vt *t)
{
	struct vt mine = *t;
	struct vt_ep *ep;
	struct vt_addr self;

	mine.eps = NULL;
	ep = vt_ep(&mine, .pd = shared_pd, .len = 4096);
	if (!vt_by_cm(t)) {
		self = vt_addr(ep);
		vt_init(ep, NULL);
		vt_rtr(ep, &self, NULL);
		vt_rts(ep, NULL);
	}
	vt_ep_close(ep);
}

static void address_handles(struct vt *t)
{
	struct ibv_ah_attr av;
	struct ibv_ah *ah;

	vt_fill_av(t, &t->gid, t->port.lid, &av);
	ah = ibv_create_ah(shared_pd, &av);
	if (!ah)
		return; /* iWARP */
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void devices(struct vt *t)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = ibv_open_device(t->ctx->device);
	struct ibv_port_attr port;
	union ibv_gid gid;

	assert_non_null(ctx);
	assert_int_equal(ibv_query_port(ctx, 1, &port), 0);
	assert_int_equal(ibv_query_gid(ctx, 1, 0, &gid), 0);
	ibv_free_device_list(list);
	assert_int_equal(ibv_close_device(ctx), 0);
}

/* The data path, on queue pairs that whoever comes next goes on using. */
static struct vt_ep *from, *to;

static void data(struct vt *t)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(from->cq, 1, &wc) == 1)
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	vt_try(from, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 64, .to = to);
	vt_try(from, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = 20000, .to = to);
	vt_try(from, .op = IBV_WR_RDMA_READ, .id = 3, .len = 3000, .to = to);
	ibv_req_notify_cq(from->cq, 0);
	for (int i = 0; i < 4; i++)
		if (ibv_poll_cq(from->cq, 1, &wc) == 1)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
}

/* ---- cancelling ---- */
struct work {
	struct vt *t;
	void (*round)(struct vt *t);
	atomic_uint rounds;
};

static void *go_round(void *arg)
{
	struct work *w = arg;

	for (;;) {
		w->round(w->t);
		atomic_fetch_add(&w->rounds, 1);
		pthread_testcancel();
	}
	return NULL;
}

static void wait_ns(uint32_t ns)
{
	double until = vt_now() + ns / 1e9;

	while (vt_now() < until)
		;
}

static void cancel_one(struct work *w, uint32_t ns)
{
	pthread_t thread;
	void *end;

	atomic_store(&w->rounds, 0);
	assert_int_equal(pthread_create(&thread, NULL, go_round, w), 0);
	while (!atomic_load(&w->rounds))
		sched_yield();
	wait_ns(ns);
	assert_int_equal(pthread_cancel(thread), 0);
	assert_int_equal(pthread_join(thread, &end), 0);
	assert_ptr_equal(end, PTHREAD_CANCELED);
	one_more();
}

static int descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Other processes of the host come and go, and have theirs with us. */
static void check_descriptors(int before)
{
	assert_in_range(descriptors(), 0, before + CANCELS / 4);
}

static void cancel_many(struct vt *t, const char *what, void (*round)(struct vt *t))
{
	struct work w = {.t = t, .round = round};
	uint32_t seed = 4711;
	int before;

	begin(what);
	round(t);
	before = descriptors();
	for (int i = 0; i < CANCELS; i++) {
		cancel_one(&w, vt_random(&seed) % MOST_NS);
		round(t);
	}
	check_descriptors(before);
	alarm(0);
}

static void calls_are_cancelled_at_their_end(void **state)
{
	struct vt *t = *state;

	shared_pd = ibv_alloc_pd(t->ctx);
	cancel_many(t, "ibv_reg_mr, ibv_rereg_mr, ibv_dereg_mr", regions);
	cancel_many(t, "ibv_alloc_pd, ibv_alloc_mw, ibv_alloc_td", domains);
	cancel_many(t, "ibv_create_cq, ibv_create_srq, ibv_create_comp_channel", queues);
	cancel_many(t, "ibv_create_qp, ibv_modify_qp, ibv_destroy_qp", queue_pairs);
	cancel_many(t, "ibv_create_ah", address_handles);
	cancel_many(t, "ibv_get_device_list, ibv_open_device, ibv_close_device", devices);
	assert_int_equal(ibv_dealloc_pd(shared_pd), 0); /* nothing of theirs is left in it */
}

static void data_path_goes_on_after_a_cancelled_thread(void **state)
{
	enum { LAST = 99 };
	struct vt *t = *state;
	struct ibv_wc wc;

	from = vt_ep(t);
	to = vt_ep(t);
	vt_connect(from, to, NULL);
	cancel_many(t, "ibv_post_send, ibv_poll_cq", data);
	while (vt_try(from, .op = IBV_WR_RDMA_READ, .id = LAST, .len = 8, .to = to))
		assert_int_equal(vt_wait(from).status, IBV_WC_SUCCESS);
	do {
		wc = vt_wait(from);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	} while (wc.wr_id != LAST);
}

/* ---- waiting ---- */
static void *wait_for_completion(void *channel)
{
	struct ibv_cq *cq;
	void *context;

	ibv_get_cq_event(channel, &cq, &context);
	return NULL;
}

static void *wait_for_async(void *ctx)
{
	struct ibv_async_event ev;

	ibv_get_async_event(ctx, &ev);
	return NULL;
}

static void cancel_waiting(const char *what, void *(*wait)(void *), void *arg)
{
	uint32_t seed = 4712;

	begin(what);
	for (int i = 0; i < CANCELS; i++) {
		pthread_t thread;
		void *end;

		assert_int_equal(pthread_create(&thread, NULL, wait, arg), 0);
		wait_ns(vt_random(&seed) % MOST_NS);
		assert_int_equal(pthread_cancel(thread), 0);
		assert_int_equal(pthread_join(thread, &end), 0);
		assert_ptr_equal(end, PTHREAD_CANCELED);
		one_more();
	}
	alarm(0);
}

static void who_waits_is_cancelled_there(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .channel = true), *b = vt_ep(t);
	struct ibv_cq *cq;
	void *context;
	int before = descriptors();

	cancel_waiting("ibv_get_cq_event", wait_for_completion, a->channel);
	cancel_waiting("ibv_get_async_event", wait_for_async, t->ctx);
	check_descriptors(before);
	vt_connect(a, b, NULL);
	assert_int_equal(ibv_req_notify_cq(a->cq, 0), 0);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 100, .to = b);
	assert_int_equal(ibv_get_cq_event(a->channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	vt_ok(a, 1);
}

/* ---- fork() ---- */
/* The child is killed, so that no tool asks after the memory of threads that it has not. */
static void *fork_one(void *arg)
{
	pid_t *child = arg;

	pthread_cancel(pthread_self());
	*child = fork();
	if (!*child)
		raise(SIGKILL);
	pthread_testcancel();
	return NULL;
}

/* It is no place to be cancelled at, in the parent or in the child, where the cancel is pending, too. */
static void cancelled_thread_forks(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t);
	pthread_t thread;
	pid_t child;
	int status;

	vt_connect(a, b, NULL);
	begin("fork");
	assert_int_equal(pthread_create(&thread, NULL, fork_one, &child), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, SIGKILL);
	vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 100, .to = b);
	vt_ok(a, 1);
	alarm(0);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(calls_are_cancelled_at_their_end),
	VT_TEST(data_path_goes_on_after_a_cancelled_thread),
	VT_TEST(who_waits_is_cancelled_there),
	VT_TEST(cancelled_thread_forks),
};

VT_MAIN("cancel", tests, NULL)
