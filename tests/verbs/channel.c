/* SPDX-License-Identifier: MIT */
/*
 * Completion channels: armed once, woken once; descriptors in every kind of wait; and destruction that waits
 * for acknowledgements. The same for asynchronous events.
 */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

/* Receives at b, which has the channel. */
static void channel_pair(struct vt *t, struct vt_ep **a, struct vt_ep **b)
{
	*a = vt_ep(t);
	*b = vt_ep(t, .channel = true);
	vt_connect(*a, *b, NULL);
}

static void send_to(struct vt_ep *a, struct vt_ep *b, uint64_t id, unsigned int flags)
{
	vt_recv(b, id, 0, 10);
	vt_post(a, .op = IBV_WR_SEND, .id = id, .len = 10, .flags = flags);
	vt_ok(a, id);
}

static void take_event(struct vt_ep *ep)
{
	struct ibv_cq *cq = NULL;
	void *context = NULL;

	assert_true(vt_readable_soon(ep->channel->fd));
	assert_int_equal(ibv_get_cq_event(ep->channel, &cq, &context), 0);
	assert_ptr_equal(cq, ep->cq);
	assert_ptr_equal(context, ep);
	ibv_ack_cq_events(cq, 1);
}

static void armed_queue_wakes_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	send_to(a, b, 1, 0);
	vt_ok(b, 1);
	assert_false(vt_readable_now(b->channel->fd)); /* was not armed */
	for (int i = 0; i < 50; i++) {
		assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
		send_to(a, b, 2, 0);
		take_event(b);
		vt_ok(b, 2);
		send_to(a, b, 3, 0);
		vt_ok(b, 3);
		assert_false(vt_readable_now(b->channel->fd)); /* the arming was spent */
	}
}

static void arming_twice_wakes_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	send_to(a, b, 1, 0);
	send_to(a, b, 2, 0);
	take_event(b);
	vt_ok(b, 1);
	vt_ok(b, 2);
	assert_false(vt_readable_now(b->channel->fd));
}

/* A program that arms and sleeps without polling once more must not sleep through what is there already. */
static void arming_with_unpolled_completions_wakes_at_once(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	send_to(a, b, 1, 0);
	while (!vt_readable_now(b->channel->fd)) { /* until it has arrived */
		assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	}
	take_event(b);
	vt_ok(b, 1);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	assert_false(vt_readable_now(b->channel->fd));
}

/* What was told of is gone with its QP; what came since, by another one, has not been told of. */
static void arming_looks_beyond_completions_of_a_qp_that_is_gone(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a[2], *b[2];

	b[0] = vt_ep(t, .channel = true);
	b[1] = vt_ep(t, .cq = b[0]->cq);
	for (int i = 0; i < 2; i++) {
		a[i] = vt_ep(t);
		vt_connect(a[i], b[i], NULL);
		vt_recv(b[i], i, 0, 64);
	}
	assert_int_equal(ibv_req_notify_cq(b[0]->cq, 0), 0);
	vt_post(a[1], .op = IBV_WR_SEND, .id = 1, .len = 8);
	take_event(b[0]);
	vt_ep_drop_qp(b[1]); /* its completion was never polled */
	vt_post(a[0], .op = IBV_WR_SEND, .id = 0, .len = 8);
	vt_ok(a[0], 0); /* it has arrived there */
	assert_int_equal(ibv_req_notify_cq(b[0]->cq, 0), 0);
	assert_true(vt_readable_soon(b[0]->channel->fd));
	take_event(b[0]);
	vt_ok(b[0], 0);
}

static void solicited_arming_sleeps_through_the_rest(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	assert_int_equal(ibv_req_notify_cq(b->cq, 1), 0);
	for (int i = 0; i < 5; i++) {
		send_to(a, b, i, 0);
		vt_ok(b, i);
	}
	assert_false(vt_readable_now(b->channel->fd));
	send_to(a, b, 5, IBV_SEND_SOLICITED);
	take_event(b);
	vt_ok(b, 5);

	assert_int_equal(ibv_req_notify_cq(b->cq, 1), 0);
	vt_recv(b, 6, 0, 0);
	vt_post(a, .op = IBV_WR_RDMA_WRITE_WITH_IMM, .id = 6, .len = 10, .to = b,
		.flags = IBV_SEND_SOLICITED);
	vt_ok(a, 6);
	take_event(b);
	vt_ok(b, 6);
}

/* IBA 11.4.2.2: a completion in error is always solicited. */
static void errors_wake_a_solicited_queue(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	vt_recv(b, 1, 0, 10);
	assert_int_equal(ibv_req_notify_cq(b->cq, 1), 0);
	assert_int_equal(vt_modify_state(b->qp, IBV_QPS_ERR), 0);
	take_event(b);
	vt_expect(b, 1, IBV_WC_WR_FLUSH_ERR);
}

/* Asked for both kinds, a queue listens to every completion, in whichever order it was asked. */
static void arming_for_all_outweighs_solicited(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	for (int order = 0; order < 2; order++) {
		assert_int_equal(ibv_req_notify_cq(b->cq, order), 0);
		assert_int_equal(ibv_req_notify_cq(b->cq, !order), 0);
		send_to(a, b, 1, 0);
		take_event(b);
		vt_ok(b, 1);
	}
}

static void send_completions_wake_too(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;

	channel_pair(t, &a, &b);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	vt_post(b, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = 10, .to = a);
	take_event(b); /* nobody polls: the adapter must see to it by itself */
	vt_ok(b, 1);
}

static void queues_share_a_channel(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c;
	struct ibv_cq *other, *cq;
	void *context;

	channel_pair(t, &a, &b);
	other = ibv_create_cq(t->ctx, 16, &other, b->channel, 0);
	assert_non_null(other);
	c = vt_ep(t, .cq = other);
	vt_ep_close(a);
	a = vt_ep(t);
	vt_connect(a, c, NULL);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(other, 0), 0);
	send_to(a, c, 1, 0);
	assert_true(vt_readable_soon(b->channel->fd));
	assert_int_equal(ibv_get_cq_event(b->channel, &cq, &context), 0);
	assert_ptr_equal(cq, other);
	assert_ptr_equal(context, &other);
	ibv_ack_cq_events(cq, 1);
	assert_false(vt_readable_now(b->channel->fd));
	vt_ep_close(c);
	assert_int_equal(ibv_destroy_cq(other), 0);
}

static void nonblocking_descriptors_say_eagain(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_async_event ev;
	struct ibv_cq *cq;
	void *context;

	channel_pair(t, &a, &b);
	vt_nonblock(b->channel->fd);
	vt_nonblock(t->ctx->async_fd);
	assert_int_equal(ibv_get_cq_event(b->channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	errno = 0;
	assert_int_equal(ibv_get_async_event(t->ctx, &ev), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	send_to(a, b, 1, 0);
	take_event(b);
	assert_int_equal(ibv_get_cq_event(b->channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
}

static void descriptor_works_in_select_and_epoll(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct epoll_event e = {.events = EPOLLIN}, out;
	struct timeval soon = {.tv_sec = 20};
	int ep = epoll_create1(EPOLL_CLOEXEC);
	fd_set set;

	channel_pair(t, &a, &b);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, b->channel->fd, &e), 0);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	send_to(a, b, 1, 0);
	assert_int_equal(epoll_wait(ep, &out, 1, 20000), 1);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 1); /* until it is taken */
	FD_ZERO(&set);
	FD_SET(b->channel->fd, &set);
	assert_int_equal(select(b->channel->fd + 1, &set, NULL, NULL, &soon), 1);
	take_event(b);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	close(ep);
}

/* The descriptor of asynchronous events as that of a channel. */
static void async_descriptor_works_in_poll_select_and_epoll(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct epoll_event e = {.events = EPOLLIN}, out;
	struct timeval now = {0};
	int ep = epoll_create1(EPOLL_CLOEXEC), fd = t->ctx->async_fd;
	fd_set set;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	assert_int_equal(epoll_ctl(ep, EPOLL_CTL_ADD, fd, &e), 0);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	assert_false(vt_readable_now(fd));
	vt_post(a, .op = vt_refusable(), .id = 1, .len = 8, .raddr = 8, .rkey = 0xbad);
	assert_int_equal(epoll_wait(ep, &out, 1, 20000), 1);
	assert_true(vt_readable_now(fd));
	FD_ZERO(&set);
	FD_SET(fd, &set);
	assert_int_equal(select(fd + 1, &set, NULL, NULL, &now), 1);
	vt_expect_async(t, IBV_EVENT_QP_ACCESS_ERR, b->qp);
	assert_int_equal(epoll_wait(ep, &out, 1, 0), 0);
	assert_false(vt_readable_now(fd));
	close(ep);
}

/* One thread sends as fast as it may; the other sleeps, arms, drains. A wake-up lost is a test that hangs. */
enum { MESSAGES = 3000, CREDIT = 32 };

struct race {
	struct vt_ep *a, *b;
	atomic_int received;
};

static void *race_sender(void *arg)
{
	struct race *r = arg;

	for (int i = 0; i < MESSAGES; i++) {
		while (i - atomic_load(&r->received) >= CREDIT)
			sched_yield();
		vt_post(r->a, .op = IBV_WR_SEND, .id = i, .len = 4);
		vt_ok(r->a, i);
		if (i % 7 == 0) /* now and then the other one falls asleep first */
			nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
	return NULL;
}

static void arming_and_completing_may_race(void **state)
{
	struct vt *t = *state;
	struct race r;
	pthread_t thread;
	int armed = 0, woken = 0, posted;

	channel_pair(t, &r.a, &r.b);
	atomic_init(&r.received, 0);
	for (posted = 0; posted < CREDIT; posted++)
		vt_recv(r.b, posted, 0, 4);
	assert_int_equal(ibv_req_notify_cq(r.b->cq, 0), 0);
	armed++;
	assert_int_equal(pthread_create(&thread, NULL, race_sender, &r), 0);
	while (atomic_load(&r.received) < MESSAGES) {
		struct ibv_wc wc[8];
		int n;

		take_event(r.b);
		woken++;
		assert_true(woken <= armed);
		assert_int_equal(ibv_req_notify_cq(r.b->cq, 0), 0);
		armed++;
		while ((n = ibv_poll_cq(r.b->cq, 8, wc)) > 0) {
			for (int i = 0; i < n; i++, posted++) {
				assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
				vt_recv(r.b, posted, 0, 4);
			}
			atomic_fetch_add(&r.received, n);
		}
		assert_int_equal(n, 0);
	}
	pthread_join(thread, NULL);
}

/* A destroy in its own thread, to see it wait. */
struct destroyer {
	int (*destroy)(void *);
	void *object;
	atomic_int done;
	int rc;
};

static int destroy_cq(void *o)
{
	return ibv_destroy_cq(o);
}

static int destroy_qp(void *o)
{
	return ibv_destroy_qp(o);
}

static void *destroyer(void *arg)
{
	struct destroyer *d = arg;

	d->rc = d->destroy(d->object);
	atomic_store(&d->done, 1);
	return NULL;
}

/* The pause can only make a wrong adapter pass, never a right one fail. */
static void expect_destroy_waits(struct destroyer *d, void (*ack)(void *), void *what)
{
	pthread_t thread;

	atomic_init(&d->done, 0);
	assert_int_equal(pthread_create(&thread, NULL, destroyer, d), 0);
	nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
	assert_int_equal(atomic_load(&d->done), 0);
	ack(what);
	pthread_join(thread, NULL);
	assert_int_equal(d->rc, 0);
}

static void ack_two(void *cq)
{
	ibv_ack_cq_events(cq, 2);
}

static void ack_async(void *ev)
{
	ibv_ack_async_event(ev);
}

static void destroying_a_cq_waits_for_its_acknowledgements(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_cq *cq;
	void *context;

	channel_pair(t, &a, &b);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
		send_to(a, b, i, 0);
		vt_ok(b, i);
		assert_int_equal(ibv_get_cq_event(b->channel, &cq, &context), 0);
	}
	vt_ep_drop_qp(b);
	expect_destroy_waits(&(struct destroyer){.destroy = destroy_cq, .object = b->cq}, ack_two, b->cq);
	b->cq = NULL;
}

static void destroying_a_qp_waits_for_its_acknowledgements(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_async_event ev;

	vt_pair(t, IBV_QPT_RC, &a, &b);
	vt_post(a, .op = vt_refusable(), .id = 1, .len = 8, .raddr = 8, .rkey = 0xbad);
	vt_expect(a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_true(vt_readable_soon(t->ctx->async_fd));
	assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
	assert_ptr_equal(ev.element.qp, b->qp);
	expect_destroy_waits(&(struct destroyer){.destroy = destroy_qp, .object = b->qp}, ack_async, &ev);
	b->qp = NULL;
}

/* An event nobody took dies with its object: a pointer to what is gone must never be handed out. */
static int destroy_srq(void *o)
{
	return ibv_destroy_srq(o);
}

static void destroying_an_srq_waits_for_its_acknowledgements(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq_attr limit = {.srq_limit = 2};
	struct ibv_srq *srq = ibv_create_srq(pd, &sa);
	struct vt_ep *a = vt_ep(t), *b = vt_ep(t, .pd = pd, .srq = srq);
	struct ibv_async_event ev;

	vt_connect(a, b, NULL);
	for (int i = 0; i < 2; i++)
		vt_recv(b, i, 0, 100);
	assert_int_equal(ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT), 0);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 8);
	vt_ok(b, 0);
	assert_true(vt_readable_soon(t->ctx->async_fd));
	assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
	assert_int_equal(ev.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
	vt_ep_close(b);
	expect_destroy_waits(&(struct destroyer){.destroy = destroy_srq, .object = srq}, ack_async, &ev);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void events_of_a_destroyed_object_are_withdrawn(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_async_event ev;
	struct ibv_cq *cq;
	void *context;

	channel_pair(t, &a, &b);
	vt_nonblock(b->channel->fd);
	vt_nonblock(t->ctx->async_fd);
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	vt_recv(b, 1, 0, 10);
	vt_post(a, .op = vt_refusable(), .id = 1, .len = 8, .raddr = 8, .rkey = 0xbad);
	vt_expect(a, 1, IBV_WC_REM_ACCESS_ERR);
	assert_true(vt_readable_soon(t->ctx->async_fd));
	assert_true(vt_readable_soon(b->channel->fd));
	vt_ep_drop_qp(b);
	assert_int_equal(ibv_destroy_cq(b->cq), 0);
	b->cq = NULL;
	assert_int_equal(ibv_get_cq_event(b->channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	while (!ibv_get_async_event(t->ctx, &ev)) {
		assert_int_not_equal(ev.event_type, IBV_EVENT_QP_ACCESS_ERR);
		ibv_ack_async_event(&ev);
	}
}

/* ---- signals ---- */
struct waiter {
	struct vt_ep *ep;
	int rc, err;
	atomic_int done;
};

static void heard(int sig)
{
	(void)sig;
}

static void *wait_interrupted(void *arg)
{
	struct waiter *waiter = arg;
	struct ibv_cq *cq;
	void *context;

	waiter->rc = ibv_get_cq_event(waiter->ep->channel, &cq, &context);
	waiter->err = errno;
	atomic_store(&waiter->done, 1);
	return NULL;
}

/* As a read() that waits: a handler without SA_RESTART ends it. The signal comes again until it has found the
 * thread waiting. */
static void a_signal_ends_the_wait_and_nothing_else(void **state)
{
	struct sigaction act = {.sa_handler = heard}, before;
	struct waiter waiter = {0};
	struct vt_ep *a, *b;
	pthread_t thread;
	double end = vt_deadline();

	channel_pair(*state, &a, &b);
	waiter.ep = b;
	assert_int_equal(ibv_req_notify_cq(b->cq, 0), 0);
	assert_int_equal(sigaction(SIGUSR1, &act, &before), 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_interrupted, &waiter), 0);
	while (!atomic_load(&waiter.done) && vt_now() < end) {
		pthread_kill(thread, SIGUSR1);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	assert_true(atomic_load(&waiter.done));
	pthread_join(thread, NULL);
	sigaction(SIGUSR1, &before, NULL);
	assert_int_equal(waiter.rc, -1);
	assert_int_equal(waiter.err, EINTR);
	vt_recv(b, 2, 0, 8); /* the queue is armed as before */
	vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 8);
	assert_true(vt_readable_soon(b->channel->fd));
}

static const struct CMUnitTest tests[] = {
	VT_TEST(armed_queue_wakes_once),
	VT_TEST(arming_twice_wakes_once),
	VT_TEST(arming_with_unpolled_completions_wakes_at_once),
	VT_TEST(arming_looks_beyond_completions_of_a_qp_that_is_gone),
	VT_TEST(solicited_arming_sleeps_through_the_rest),
	VT_TEST(errors_wake_a_solicited_queue),
	VT_TEST(arming_for_all_outweighs_solicited),
	VT_TEST(send_completions_wake_too),
	VT_TEST(a_signal_ends_the_wait_and_nothing_else),
	VT_TEST(queues_share_a_channel),
	VT_TEST(nonblocking_descriptors_say_eagain),
	VT_TEST(descriptor_works_in_select_and_epoll),
	VT_TEST(async_descriptor_works_in_poll_select_and_epoll),
	VT_TEST(arming_and_completing_may_race),
	VT_TEST(destroying_a_cq_waits_for_its_acknowledgements),
	VT_TEST(destroying_a_qp_waits_for_its_acknowledgements),
	VT_TEST(destroying_an_srq_waits_for_its_acknowledgements),
	VT_TEST(events_of_a_destroyed_object_are_withdrawn),
};

VT_MAIN("channel", tests, NULL)
