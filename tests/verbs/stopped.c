/* SPDX-License-Identifier: MIT */
/*
 * A peer that is stopped in the middle of what it does (SIGSTOP, a frozen container) holds nobody up: what
 * takes memory or a queue pair away from it ends soon, without computing, and what the peer had begun does
 * not land any more when it goes on, however much later. The moments are drawn from a seed; how many of them
 * hit is counted.
 */
#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LEN = 512 << 10, ROUNDS = 24, ENOUGH = 4, HANGS_S = 30 };

/*
 * A call that found the peer in the middle waited for it, for longer than this, slept meanwhile, and
 * computed for no more than a part of the time: 50 ms of the 80 that we wait, more where a wait takes longer.
 */
static const double WAITED_S = 0.05, MOST_S = 2.0, CPU_PART = 0.625;

/* ---- the peer: does one thing again and again until it fails, and says how ---- */
struct order {
	uint64_t addr;
	uint32_t rkey, op, len, spare;
};

/* Gives up on a queue pair that does not answer within a tenth of a second. */
static struct vt_conn hasty(const struct vt *t)
{
	struct vt_conn c = vt_conn(t);

	c.timeout = 12;
	c.retry = 5;
	return c;
}

static enum ibv_wc_status stream(struct vt_ep *ep, const struct order *o)
{
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

	memset(ep->buf, 0xee, LEN);
	for (uint64_t n = 1; wc.status == IBV_WC_SUCCESS; n++) {
		memcpy(ep->buf, &n, sizeof(n));
		vt_post(ep, .op = o->op, .id = 1, .len = o->len, .raddr = o->addr, .rkey = o->rkey, .add = 1);
		wc = vt_wait(ep);
	}
	return wc.status;
}

static void role_streamer(struct vt *t, int fd)
{
	struct vt_conn c = hasty(t);
	struct vt_addr peer;
	struct order o;
	char byte;

	while (read(fd, &byte, 1) == 1) {
		struct vt_ep *ep = vt_ep(t, .len = LEN);
		enum ibv_wc_status status;

		vt_meet(ep, fd, &c, &peer);
		vt_hear(fd, &o, sizeof(o));
		status = stream(ep, &o);
		vt_tell(fd, &status, sizeof(status));
		vt_ep_close(ep);
	}
}

/* ---- memory of every kind ---- */
struct memory {
	char *p; /* NULL: device memory */
	struct ibv_dm *dm;
	struct ibv_mr *mr;
	bool there;
};

static void get_private(struct vt_ep *ep, struct memory *m)
{
	m->p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	m->mr = ibv_reg_mr(ep->pd, m->p, LEN, VT_ALL_ACCESS);
}

static void get_shared(struct vt_ep *ep, struct memory *m)
{
	int fd = memfd_create("stopped", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, LEN), 0);
	m->p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	m->mr = ibv_reg_mr(ep->pd, m->p, LEN, VT_ALL_ACCESS);
	close(fd);
}

static void get_device(struct vt_ep *ep, struct memory *m)
{
	m->dm = ibv_alloc_dm(ep->t->ctx, &(struct ibv_alloc_dm_attr){.length = LEN});
	m->mr = m->dm ? ibv_reg_dm_mr(ep->pd, m->dm, 0, LEN, VT_ALL_ACCESS | IBV_ACCESS_ZERO_BASED) : NULL;
}

static void put(struct memory *m)
{
	if (m->mr)
		assert_int_equal(ibv_dereg_mr(m->mr), 0);
	if (m->dm)
		assert_int_equal(ibv_free_dm(m->dm), 0);
	if (m->p)
		munmap(m->p, LEN);
}

/* What its owner makes of it once it has it for itself. */
static void reuse(struct memory *m)
{
	char *own = malloc(LEN);

	vt_fill(own, LEN, 99);
	if (m->p)
		memcpy(m->p, own, LEN);
	else
		assert_int_equal(ibv_memcpy_to_dm(m->dm, 0, own, LEN), 0);
	free(own);
}

static void check_reused(struct memory *m)
{
	char *own = malloc(LEN);

	if (m->p)
		memcpy(own, m->p, LEN);
	else
		assert_int_equal(ibv_memcpy_from_dm(own, m->dm, 0, LEN), 0);
	vt_check(own, LEN, 99);
	free(own);
}

/* Without restartable sequences a peer that is stopped between its look and its write goes on with that. */
extern const unsigned int __rseq_size __attribute__((weak));

static bool is_exact(void)
{
#ifdef __SANITIZE_THREAD__
	return false;
#else
	return &__rseq_size && __rseq_size;
#endif
}

/* ---- the calls that take something away ---- */
static int dereg(struct vt_ep *ep, struct memory *m)
{
	struct ibv_mr *mr = m->mr;

	(void)ep;
	m->mr = NULL;
	return ibv_dereg_mr(mr);
}

static int to_error(struct vt_ep *ep, struct memory *m)
{
	(void)m;
	return vt_modify_state(ep->qp, IBV_QPS_ERR);
}

static int destroy(struct vt_ep *ep, struct memory *m)
{
	(void)m;
	vt_ep_drop_qp(ep);
	return 0;
}

static const struct take {
	const char *name;
	int (*run)(struct vt_ep *ep, struct memory *m);
} takes[] = {{"ibv_dereg_mr", dereg}, {"ibv_modify_qp", to_error}, {"ibv_destroy_qp", destroy}};

static double cpu_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* How often this thread slept. */
static long sleeps_now(void)
{
	struct rusage r;

	getrusage(RUSAGE_THREAD, &r);
	return r.ru_nvcsw;
}

static const char *in_call = "";

static void hangs(int sig)
{
	(void)sig;
	fprintf(stderr, "%s does not come back while the peer is stopped\n", in_call);
	_exit(1);
}

/* Whether it had to wait for the peer. */
static bool take_away(const struct take *take, struct vt_ep *ep, struct memory *m)
{
	double began = vt_now(), cpu = cpu_now(), took;
	long slept = sleeps_now();

	in_call = take->name;
	signal(SIGALRM, hangs);
	alarm(HANGS_S);
	assert_int_equal(take->run(ep, m), 0);
	alarm(0);
	took = vt_now() - began;
	cpu = cpu_now() - cpu;
	slept = sleeps_now() - slept;
	if (took > MOST_S || (took > WAITED_S && (!slept || cpu > took * CPU_PART)))
		fail_msg("%s took %.3f s, %.3f s of it computing, and slept %ld times", take->name, took, cpu,
			slept);
	return took > WAITED_S;
}

/* ---- the test ---- */
static void stop(struct vt_peer *p)
{
	int status;

	assert_int_equal(kill(p->pid, SIGSTOP), 0);
	assert_int_equal(waitpid(p->pid, &status, WUNTRACED), p->pid);
	assert_true(WIFSTOPPED(status));
}

/* A moment of its stream; who receives has to take what comes meanwhile. */
static void wait_a_moment(struct vt_ep *ep, uint32_t op, uint32_t *seed)
{
	double end = vt_now() + vt_random(seed) % 3000 / 1e6;
	struct ibv_wc wc;

	do {
		if (op == IBV_WR_SEND && ibv_poll_cq(ep->cq, 1, &wc) > 0 && !wc.status)
			vt_try_recv(ep, 1, 0, LEN);
	} while (vt_now() < end);
}

static void begin_stream(struct vt_ep *ep, struct vt_peer *p, const struct memory *m, uint32_t op)
{
	struct order o = {.addr = (uintptr_t)m->mr->addr,
		.rkey = m->mr->rkey,
		.op = op,
		.len = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : LEN};
	struct vt_conn c = hasty(ep->t);
	struct vt_addr peer;

	vt_tell(p->fd, "g", 1);
	vt_meet(ep, p->fd, &c, &peer);
	for (int i = 0; op == IBV_WR_SEND && i < 8; i++)
		vt_recv(ep, 1, 0, LEN);
	vt_tell(p->fd, &o, sizeof(o));
}

static bool one_round(struct vt *t, struct vt_peer *p, void (*get)(struct vt_ep *ep, struct memory *m),
	uint32_t op, const struct take *take, uint32_t *seed)
{
	struct vt_ep *ep = vt_ep(t, .len = LEN);
	enum ibv_wc_status status;
	struct memory m = {0};
	bool waited;

	get(ep, &m);
	assert_non_null(m.mr);
	begin_stream(ep, p, &m, op);
	wait_a_moment(ep, op, seed);
	stop(p);
	waited = take_away(take, ep, &m);
	reuse(&m);
	assert_int_equal(kill(p->pid, SIGCONT), 0);
	if (op == IBV_WR_SEND && take->run == dereg)
		vt_modify_state(ep->qp, IBV_QPS_ERR); /* its receives are in other memory */
	vt_hear(p->fd, &status, sizeof(status));
	if (is_exact())
		check_reused(&m);
	put(&m);
	vt_ep_close(ep);
	return waited;
}

static bool acts_alone(uint32_t op)
{
	const char *v = getenv("ANYRDMA_LOCAL");

	return op != IBV_WR_SEND && !(v && (!strcmp(v, "off") || !strcmp(v, "ring")));
}

static void peer_is_stopped(struct vt *t, void (*get)(struct vt_ep *ep, struct memory *m), uint32_t op)
{
	uint32_t seed = 14 + op;
	unsigned hits = 0;
	struct vt_peer p;

	vt_peer_start(&p, "streamer");
	for (unsigned i = 0; i < (acts_alone(op) ? ROUNDS : ENOUGH) && hits < ENOUGH; i++)
		hits += one_round(t, &p, get, op, &takes[i % ARRAY_LEN(takes)], &seed);
	vt_peer_finish(&p);
	if (acts_alone(op) && !hits)
		fail_msg("the peer was never stopped in the middle");
}

static void peer_stopped_in_a_write(void **state)
{
	peer_is_stopped(*state, get_private, IBV_WR_RDMA_WRITE);
}

static void peer_stopped_in_a_read(void **state)
{
	peer_is_stopped(*state, get_private, IBV_WR_RDMA_READ);
}

static void peer_stopped_in_a_send(void **state)
{
	peer_is_stopped(*state, get_private, IBV_WR_SEND);
}

static void peer_stopped_in_a_write_to_shared_memory(void **state)
{
	peer_is_stopped(*state, get_shared, IBV_WR_RDMA_WRITE);
}

static void peer_stopped_in_a_read_of_shared_memory(void **state)
{
	peer_is_stopped(*state, get_shared, IBV_WR_RDMA_READ);
}

static void peer_stopped_in_a_write_to_device_memory(void **state)
{
	struct ibv_device_attr_ex attr;

	if (ibv_query_device_ex(((struct vt *)*state)->ctx, NULL, &attr) || !attr.max_dm_size)
		skip_because("the device has no memory of its own");
	peer_is_stopped(*state, get_device, IBV_WR_RDMA_WRITE);
}

/* ---- who was cut off goes on ---- */
/* A connection that is idle meanwhile, and has no timer: what is not asked for is never acknowledged. */
static struct vt_ep *open_idle(struct vt *t, int fd, struct vt_addr *peer)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_conn c = vt_conn(t);

	c.timeout = 0;
	vt_meet(ep, fd, &c, peer);
	return ep;
}

static void write_by(struct vt_ep *ep, const struct vt_addr *peer)
{
	for (uint64_t id = 1; id <= 20; id++) {
		vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = id, .len = 64, .raddr = peer->addr,
			.rkey = peer->rkey);
		vt_ok(ep, id);
	}
}

/* What other processes export and we have mapped. */
static unsigned exports_of_others(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[300];
	unsigned n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "anyrdma-export") && strstr(line, " r--s ");
	if (f)
		fclose(f);
	return n;
}

/*
 * A first connection, and then until both ends see each other's export: on a loaded machine a queue pair is
 * connected before that, and goes by packets.
 */
static void get_acquainted(struct vt *t, int fd)
{
	double deadline = vt_deadline();
	struct vt_addr peer;
	char byte = 0;

	vt_meet(vt_ep(t), fd, NULL, &peer);
	while (acts_alone(IBV_WR_RDMA_WRITE) && !exports_of_others()) {
		assert_true(vt_now() < deadline);
		usleep(1000);
	}
	vt_tell(fd, &byte, 1);
	vt_hear(fd, &byte, 1);
}

static void role_writer(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = LEN), *idle;
	struct vt_addr peer, idle_peer;
	char byte = 0;

	get_acquainted(t, fd);
	vt_meet(ep, fd, NULL, &peer);
	idle = open_idle(t, fd, &idle_peer);
	vt_nonblock(fd);
	for (uint32_t n = 1; byte != 'e'; n++) {
		memcpy(ep->buf, &n, sizeof(n));
		vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = LEN, .raddr = peer.addr,
			.rkey = peer.rkey);
		vt_ok(ep, 1);
		if (read(fd, &byte, 1) == 1 && byte == 's')
			vt_tell(fd, &n, sizeof(n)); /* this one is there */
	}
	write_by(idle, &idle_peer);
	vt_tell(fd, &byte, 1);
	while (read(fd, &byte, 1) != 1 || byte != 'q') /* the other end writes */
		usleep(1000);
}

/* The peer's region stays; another one is taken away while the peer is stopped in it. */
static bool cut_off(struct vt *t, struct vt_peer *p, struct vt_ep *ep, uint32_t *seed)
{
	char *other = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct memory m = {.p = other, .mr = ibv_reg_mr(ep->pd, other, LEN, VT_ALL_ACCESS)};
	bool waited;

	(void)t;
	wait_a_moment(ep, IBV_WR_RDMA_WRITE, seed);
	stop(p);
	waited = take_away(&takes[0], ep, &m);
	assert_int_equal(kill(p->pid, SIGCONT), 0);
	put(&m);
	return waited;
}

static void peer_that_was_cut_off_goes_on(void **state)
{
	struct vt *t = *state;
	struct vt_ep *ep = vt_ep(t, .len = LEN), *idle;
	uint32_t seed = 5, first, last;
	struct vt_addr peer, idle_peer;
	struct vt_peer p;
	bool hit = false;
	char byte;

	vt_peer_start(&p, "writer");
	get_acquainted(t, p.fd);
	vt_meet(ep, p.fd, NULL, &peer);
	idle = open_idle(t, p.fd, &idle_peer);
	for (int i = 0; i < ROUNDS && !hit; i++)
		hit = cut_off(t, &p, ep, &seed);
	if (acts_alone(IBV_WR_RDMA_WRITE))
		assert_true(hit);
	vt_tell(p.fd, "s", 1);
	vt_hear(p.fd, &first, sizeof(first));
	do {
		vt_tell(p.fd, "s", 1);
		vt_hear(p.fd, &last, sizeof(last));
	} while (last < first + 3);
	vt_tell(p.fd, "e", 1);
	vt_hear(p.fd, &byte, 1);
	write_by(idle, &idle_peer);
	vt_tell(p.fd, "q", 1);
	vt_peer_finish(&p);
	memcpy(&first, ep->buf, sizeof(first));
	assert_true(first >= last); /* it was there, and those after it */
	assert_int_equal(vt_state(ep->qp), IBV_QPS_RTS);
}

static const struct vt_role roles[] = {{"streamer", role_streamer}, {"writer", role_writer}, {NULL, NULL}};

static const struct CMUnitTest tests[] = {
	VT_TEST(peer_stopped_in_a_write),
	VT_TEST(peer_stopped_in_a_read),
	VT_TEST(peer_stopped_in_a_send),
	VT_TEST(peer_stopped_in_a_write_to_shared_memory),
	VT_TEST(peer_stopped_in_a_read_of_shared_memory),
	VT_TEST(peer_stopped_in_a_write_to_device_memory),
	VT_TEST(peer_that_was_cut_off_goes_on),
};

VT_MAIN("stopped", tests, roles)
