/* SPDX-License-Identifier: MIT */
/* Many threads at once, on objects of their own and on shared ones, also while others take them away. */
#include "fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { THREADS = 4 };

static void run(void *(*f)(void *), void *args, size_t size, int n)
{
	pthread_t thread[16];

	for (int i = 0; i < n; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, f, (char *)args + i * size), 0);
	for (int i = 0; i < n; i++)
		pthread_join(thread[i], NULL);
}

struct own {
	struct vt_ep *a, *b;
	int seed;
	atomic_int started;
};

static void *converse(void *arg)
{
	struct own *o = arg;

	for (int i = 0; i < 300; i++) {
		uint32_t len = 1 + (i * 977 + o->seed * 131) % 20000;

		vt_fill(o->a->buf, len, o->seed + i);
		vt_recv(o->b, 2, 0, len);
		vt_post(o->a, .op = IBV_WR_SEND, .id = 1, .len = len);
		vt_post(o->a, .op = IBV_WR_RDMA_READ, .id = 3, .off = 32768, .len = len, .to = o->b);
		vt_ok(o->a, 1);
		vt_ok(o->b, 2);
		vt_ok(o->a, 3);
		vt_check(o->b->buf, len, o->seed + i);
		vt_check(o->a->buf + 32768, len, o->seed + i);
	}
	return NULL;
}

static void threads_work_on_their_own_connections(void **state)
{
	struct own o[THREADS];

	for (int i = 0; i < THREADS; i++) {
		o[i].seed = i;
		vt_pair(*state, IBV_QPT_RC, &o[i].a, &o[i].b);
	}
	run(converse, o, sizeof(o[0]), THREADS);
}

/* One end of each connection in one thread, the other in another. */
struct half {
	struct vt_ep *ep;
	bool sender;
};

static void *half(void *arg)
{
	struct half *h = arg;

	for (int i = 0; i < 500; i++) {
		if (h->sender) {
			vt_fill(h->ep->buf, 3000, i);
			vt_post(h->ep, .op = IBV_WR_SEND, .id = i, .len = 3000);
			vt_ok(h->ep, i);
		} else {
			vt_recv(h->ep, i, 0, 3000);
			vt_ok(h->ep, i);
			vt_check(h->ep->buf, 3000, i);
		}
	}
	return NULL;
}

static void sender_and_receiver_are_two_threads(void **state)
{
	struct half h[4] = {{.sender = true}, {0}, {.sender = true}, {0}};

	vt_pair(*state, IBV_QPT_RC, &h[0].ep, &h[1].ep);
	vt_pair(*state, IBV_QPT_RC, &h[2].ep, &h[3].ep);
	run(half, h, sizeof(h[0]), 4);
}

/* All threads post to one QP and poll one CQ; whoever takes a completion counts it for its owner. */
struct crowd {
	struct vt_ep *a, *b;
	atomic_int *done; /* per request */
	atomic_int outstanding, finished;
	int n;
};

struct member {
	struct crowd *c;
	int first;
};

static void drain(struct crowd *c)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(c->a->cq, 4, wc);

	assert_true(n >= 0);
	for (int i = 0; i < n; i++) {
		assert_int_equal(wc[i].status, IBV_WC_SUCCESS);
		assert_int_equal(atomic_fetch_add(&c->done[wc[i].wr_id], 1), 0);
	}
	atomic_fetch_sub(&c->outstanding, n);
	atomic_fetch_add(&c->finished, n);
}

static void *crowd_member(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->c;
	double end = vt_deadline();

	for (int i = m->first; i < c->n; i += THREADS) {
		while (atomic_fetch_add(&c->outstanding, 1) >= 60) {
			atomic_fetch_sub(&c->outstanding, 1);
			drain(c);
		}
		vt_post(c->a, .op = IBV_WR_RDMA_WRITE, .id = i, .off = 8 * (i % 8000), .len = 8, .to = c->b,
			.roff = 8 * (i % 8000));
	}
	while (atomic_load(&c->finished) < c->n && vt_now() < end)
		drain(c);
	return NULL;
}

static void threads_share_one_qp_and_one_cq(void **state)
{
	struct crowd c = {.n = 8000};
	struct member m[THREADS];

	vt_pair(*state, IBV_QPT_RC, &c.a, &c.b);
	c.done = calloc(c.n, sizeof(*c.done));
	vt_fill(c.a->buf, 64000, 5);
	for (int i = 0; i < THREADS; i++)
		m[i] = (struct member){&c, i};
	run(crowd_member, m, sizeof(m[0]), THREADS);
	for (int i = 0; i < c.n; i++)
		assert_int_equal(c.done[i], 1);
	vt_check_written(c.b->buf, 64000, 5);
	free(c.done);
}

static void *adder(void *arg)
{
	struct own *o = arg;

	for (int i = 0; i < 500; i++) {
		vt_post(o->a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = i, .len = 8,
			.raddr = (uintptr_t)o->b->buf, .rkey = o->b->mr->rkey, .add = 1);
		vt_ok(o->a, i);
	}
	return NULL;
}

static void atomics_of_many_qps_lose_no_addition(void **state)
{
	struct vt *t = *state;
	struct own o[THREADS];
	struct vt_ep *counter;

	vt_need("ATOMIC");
	counter = vt_ep(t);
	for (int i = 0; i < THREADS; i++) {
		struct vt_ep *b = vt_ep(t, .pd = counter->pd);

		o[i].a = vt_ep(t);
		vt_connect(o[i].a, b, NULL);
		o[i].b = counter;
	}
	run(adder, o, sizeof(o[0]), THREADS);
	assert_true(*(uint64_t *)counter->buf == THREADS * 500);
}

/* Writes for ever, until refused. */
static void *writer(void *arg)
{
	struct own *o = arg;
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	uint64_t raddr = (uintptr_t)o->b->mr->addr;
	uint32_t rkey = o->b->mr->rkey;

	atomic_store(&o->started, 1);
	for (int posted = 0, done = 0; status == IBV_WC_SUCCESS;) {
		while (posted - done < 16)
			vt_post(o->a, .op = IBV_WR_RDMA_WRITE, .id = posted++, .len = 30000, .raddr = raddr,
				.rkey = rkey);
		status = vt_wait(o->a).status;
		done++;
	}
	/* Whose peer does not say what it has may have told the program of the refused one as done. */
	if (vt_can("ACK") || status != IBV_WC_WR_FLUSH_ERR)
		assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
	return NULL;
}

/* What dereg_mr() has returned from is the program's own again: reused at once, or gone from the address
 * space. */
static void nothing_lands_after_deregistration(void **state)
{
	struct vt *t = *state;

	for (int round = 0; round < 30; round++) {
		struct own o = {0};
		struct ibv_mr *mr;
		pthread_t thread;
		bool unmap = round % 2;
		uint8_t *mem = mmap(NULL, 32768, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		vt_pair(t, IBV_QPT_RC, &o.a, &o.b);
		memset(o.a->buf, 0xaa, 30000);
		mr = o.b->mr;
		o.b->mr = ibv_reg_mr(o.b->pd, mem, 32768, VT_ALL_ACCESS);
		assert_non_null(o.b->mr);
		assert_int_equal(pthread_create(&thread, NULL, writer, &o), 0);
		while (!atomic_load(&o.started) || *(volatile uint8_t *)(mem + 29999) != 0xaa)
			sched_yield();
		assert_int_equal(ibv_dereg_mr(o.b->mr), 0);
		if (unmap)
			munmap(mem, 32768);
		else
			memset(mem, 0x11, 32768);
		pthread_join(thread, NULL);
		if (!unmap) {
			vt_check_all(mem, 32768, 0x11);
			munmap(mem, 32768);
		}
		o.b->mr = mr;
		vt_ep_close(o.b);
		vt_ep_close(o.a);
	}
}

/* Each thread keeps its own list of endpoints: the fixture's is not for sharing. */
static void *come_and_go(void *arg)
{
	struct vt mine = *(struct vt *)arg;

	mine.eps = NULL;
	for (int i = 0; i < 100; i++) {
		struct vt_ep *a, *b;

		vt_pair(&mine, IBV_QPT_RC, &a, &b);
		vt_ping_pong(a, b);
		for (int k = 0; k < 10; k++)
			vt_post(a, .op = IBV_WR_RDMA_WRITE, .id = k, .len = 20000, .to = b);
		vt_ep_close(i % 2 ? a : b); /* in the middle of the traffic */
		vt_ep_close(i % 2 ? b : a);
	}
	return NULL;
}

static void threads_create_and_destroy_at_once(void **state)
{
	struct vt copies[THREADS];

	for (int i = 0; i < THREADS; i++)
		copies[i] = *(struct vt *)*state;
	run(come_and_go, copies, sizeof(copies[0]), THREADS);
}

static void *open_and_close(void *arg)
{
	struct vt *t = arg;

	for (int i = 0; i < 20; i++) {
		struct vt other = *t;
		struct vt_ep *a, *b;

		other.eps = NULL;
		other.ctx = ibv_open_device(t->ctx->device);
		assert_non_null(other.ctx);
		vt_pair(&other, IBV_QPT_RC, &a, &b);
		vt_ping_pong(a, b);
		vt_ep_close(b);
		vt_ep_close(a);
		assert_int_equal(ibv_close_device(other.ctx), 0);
	}
	return NULL;
}

static void threads_open_and_close_the_device_at_once(void **state)
{
	struct vt copies[THREADS];

	for (int i = 0; i < THREADS; i++)
		copies[i] = *(struct vt *)*state;
	run(open_and_close, copies, sizeof(copies[0]), THREADS);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(threads_work_on_their_own_connections),
	VT_TEST(sender_and_receiver_are_two_threads),
	VT_TEST(threads_share_one_qp_and_one_cq),
	VT_TEST(atomics_of_many_qps_lose_no_addition),
	VT_TEST(nothing_lands_after_deregistration),
	VT_TEST(threads_create_and_destroy_at_once),
	VT_TEST(threads_open_and_close_the_device_at_once),
};

VT_MAIN("threads", tests, NULL)
