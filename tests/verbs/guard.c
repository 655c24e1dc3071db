/* SPDX-License-Identifier: MIT */
/*
 * Registered memory that the program has unmapped, in threads that block all signals, and in programs with
 * handlers of their own. Whoever touches such memory in the name of a request finds it gone; the program
 * lives, and the peer is told as it would be over a wire.
 *
 * The program that made the mistake is a peer process: where it is killed, the test says so. Some run under
 * the shim, as `anyrdma run` starts programs.
 */
#include "fixture.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { LEN = 65536 };
enum how { BEFORE, SIGMASK, PROCMASK, RAW, LONGJMP, CONTEXT };

static const char *const how_name[] = {"before its first call", "by pthread_sigmask", "by sigprocmask",
	"by a system call", "by siglongjmp", "by swapcontext"};

/* What a peer is told to do, and what it tells of itself. */
struct order {
	enum ibv_wr_opcode op;
	enum how how;
};

struct victim {
	uint64_t addr;
	uint32_t rkey, spare;
};

/* For who waits for nothing but the end. */
static struct vt_conn hasty(const struct vt *t)
{
	struct vt_conn c = vt_conn(t);

	c.timeout = 12;
	c.retry = 2;
	return c;
}

/*
 * What nothing leaves for fails by its timer; that of iWARP through shared memory takes a minute, and the
 * program cannot choose.
 */
static bool fails_soon(const struct vt *t)
{
	return !vt_by_cm(t) || !vt_can("ACK");
}

/* ---- ways to block everything ---- */
static sigjmp_buf blocked_there;
static ucontext_t from, there;

static void raw_mask(int how, uint64_t set)
{
	syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof(set));
}

static void block(enum how how)
{
	volatile bool jumped = false;
	sigset_t all;

	sigfillset(&all);
	if (how == SIGMASK) {
		pthread_sigmask(SIG_SETMASK, &all, NULL);
	} else if (how == PROCMASK) {
		sigprocmask(SIG_BLOCK, &all, NULL);
	} else if (how == RAW) {
		raw_mask(SIG_SETMASK, UINT64_MAX);
	} else if (how == CONTEXT) {
		getcontext(&there);
		if (!jumped) {
			jumped = true;
			there.uc_sigmask = all;
			swapcontext(&from, &there);
		}
	} else if (how == LONGJMP) {
		/* The mask of a time when nobody had called verbs yet: said anew, past everybody's eyes. */
		raw_mask(SIG_SETMASK, UINT64_MAX);
		if (!sigsetjmp(blocked_there, 1)) {
			raw_mask(SIG_SETMASK, 0);
			siglongjmp(blocked_there, 1);
		}
	}
}

static void *map(void)
{
	void *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* Nothing may move in there: it is gone, as far as anybody can tell. */
static void unmap(void *p)
{
	assert_ptr_equal(mmap(p, LEN, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), p);
}

/* ---- a target whose thread polls, with all signals blocked ---- */
struct poller {
	struct vt_ep *ep;
	enum how how;
	atomic_uint polls; /* since it blocked them */
	atomic_bool stop;
};

static void *poll_blocked(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc;

	/* Something has come, through this thread: it has looked at its mask. */
	for (int got = 0; p->how != BEFORE && got < 4;) {
		int n = ibv_poll_cq(p->ep->cq, 1, &wc);

		assert_true(n >= 0);
		got += n;
		if (n)
			assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	block(p->how);
	while (!atomic_load(&p->stop)) {
		ibv_poll_cq(p->ep->cq, 1, &wc);
		atomic_fetch_add(&p->polls, 1);
	}
	return NULL;
}

static void start_blocked(pthread_t *thread, void *(*run)(void *), void *arg, bool blocked)
{
	sigset_t all, old;

	sigfillset(&all);
	if (blocked)
		pthread_sigmask(SIG_SETMASK, &all, &old);
	assert_int_equal(pthread_create(thread, NULL, run, arg), 0);
	if (blocked)
		pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* A receive into that region, behind those that are there. */
static void receive_there(struct vt_ep *ep, struct ibv_mr *mr)
{
	struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = LEN, .lkey = mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(ep->qp, &wr, &bad), 0);
}

static void role_target(struct vt *t, int fd)
{
	enum { IDLE = 20000 }; /* a change that nobody told of is found by who polls in vain */
	struct poller p = {0};
	struct victim v = {0};
	struct vt_addr peer;
	struct ibv_mr *mr;
	struct order o;
	pthread_t thread;
	char byte = 0;
	void *mem = map();

	vt_hear(fd, &o, sizeof(o));
	p.how = o.how;
	p.ep = vt_ep(t);
	mr = ibv_reg_mr(p.ep->pd, mem, LEN, VT_ALL_ACCESS);
	assert_non_null(mr);
	vt_meet(p.ep, fd, NULL, &peer);
	for (int i = 0; i < 4 && o.how != BEFORE; i++)
		vt_recv(p.ep, (uint64_t)i, 0, 100);
	if (o.op == IBV_WR_SEND)
		receive_there(p.ep, mr);
	v = (struct victim){.addr = (uintptr_t)mem, .rkey = mr->rkey};
	vt_tell(fd, &v, sizeof(v));
	unmap(mem);
	start_blocked(&thread, poll_blocked, &p, o.how == BEFORE);
	while (atomic_load(&p.polls) < IDLE)
		usleep(1000);
	vt_tell(fd, &byte, 1);
	vt_hear(fd, &byte, 1);
	atomic_store(&p.stop, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(mem, LEN);
	vt_tell(fd, &byte, 1);
}

/* Where the peer has a mapping of its own of what was registered, it is as with a card: the pages are there.
 */
static bool may_succeed(enum ibv_wr_opcode op)
{
	const char *local = getenv("ANYRDMA_LOCAL");

	return op != IBV_WR_SEND && (!local || !strcmp(local, "map"));
}

static void check_status(enum ibv_wr_opcode op, enum ibv_wc_status status)
{
	if (status == IBV_WC_SUCCESS && may_succeed(op))
		return;
	if (op == IBV_WR_RDMA_READ || vt_can("ACK"))
		assert_int_equal(status, op == IBV_WR_SEND ? IBV_WC_REM_OP_ERR : IBV_WC_REM_ACCESS_ERR);
}

static bool can_be_told(enum ibv_wr_opcode op)
{
	return op != IBV_WR_ATOMIC_FETCH_AND_ADD || vt_can("ATOMIC");
}

static void attack(struct vt *t, enum ibv_wr_opcode op, enum how how, uint32_t len)
{
	struct order o = {.op = op, .how = how};
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr addr;
	struct vt_peer peer;
	struct victim v;
	struct ibv_wc wc;
	char byte;

	print_message("  opcode %d of %u bytes, blocked %s\n", op, len, how_name[how]);
	vt_peer_start(&peer, "target");
	vt_tell(peer.fd, &o, sizeof(o));
	vt_meet(ep, peer.fd, NULL, &addr);
	vt_hear(peer.fd, &v, sizeof(v));
	for (int i = 0; i < 4 && how != BEFORE; i++) {
		vt_post(ep, .op = IBV_WR_SEND, .id = (uint64_t)i, .len = 100);
		vt_ok(ep, (uint64_t)i);
	}
	vt_hear(peer.fd, &byte, 1);
	vt_post(ep, .op = op, .id = 9, .len = len, .raddr = v.addr, .rkey = v.rkey, .add = 1);
	wc = vt_wait(ep);
	assert_int_equal(wc.wr_id, 9);
	check_status(op, wc.status);
	vt_tell(peer.fd, &byte, 1);
	vt_hear(peer.fd, &byte, 1);
	vt_peer_finish(&peer);
	vt_ep_close(ep);
}

static void peers_request_does_not_kill_who_blocks_signals(void **state)
{
	static const struct {
		enum ibv_wr_opcode op;
		uint32_t len;
	} row[] = {{IBV_WR_RDMA_WRITE, 8}, {IBV_WR_RDMA_WRITE, 10000}, {IBV_WR_SEND, 8}, {IBV_WR_SEND, 10000},
		{IBV_WR_RDMA_READ, 1000}, {IBV_WR_RDMA_READ, 40000}, {IBV_WR_ATOMIC_FETCH_AND_ADD, 8}};
	static const enum how how[] = {BEFORE, SIGMASK, RAW};

#ifdef __SANITIZE_THREAD__
	skip_because("sanitizers take SIGSEGV for themselves");
#endif
	for (size_t i = 0; i < ARRAY_LEN(row); i++)
		for (size_t k = 0; k < ARRAY_LEN(how) && can_be_told(row[i].op); k++)
			attack(*state, row[i].op, how[k], row[i].len);
}

/* ---- the program's own thread sends from there, under the shim ---- */
/* One SEND from memory that is there, and one that is not. */
struct sender {
	struct vt_ep *ep;
	enum how how;
	struct ibv_mr *mr;
};

static void send_from_nowhere(struct sender *s)
{
	struct ibv_sge sge = {.addr = (uintptr_t)s->mr->addr, .length = 64, .lkey = s->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 2,
				   .sg_list = &sge,
				   .num_sge = 1,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct ibv_wc wc;

	assert_int_equal(ibv_post_send(s->ep->qp, &wr, &bad), 0);
	if (!fails_soon(s->ep->t))
		return;
	wc = vt_wait(s->ep);
	assert_int_equal(wc.wr_id, 2);
	assert_int_not_equal(wc.status, IBV_WC_SUCCESS);
}

static void *send_blocked(void *arg)
{
	struct sender *s = arg;

	vt_post(s->ep, .op = IBV_WR_SEND, .id = 1, .len = 64);
	assert_int_equal(vt_wait(s->ep).wr_id, 1); /* a loaded machine may have been too slow for it */
	block(s->how);                             /* and at once: */
	send_from_nowhere(s);
	return NULL;
}

static void open_sender(struct sender *s, struct vt *t, int fd)
{
	struct vt_conn c = hasty(t);
	struct vt_addr peer;
	char byte;

	s->ep = vt_ep(t);
	s->mr = ibv_reg_mr(s->ep->pd, map(), LEN, VT_ALL_ACCESS);
	assert_non_null(s->mr);
	vt_meet(s->ep, fd, &c, &peer);
	vt_hear(fd, &byte, 1); /* receives are there */
	unmap(s->mr->addr);
}

static void close_sender(struct sender *s, int fd)
{
	void *mem = s->mr->addr;
	char byte = 0;

	assert_int_equal(ibv_dereg_mr(s->mr), 0);
	munmap(mem, LEN);
	vt_tell(fd, &byte, 1);
}

static void role_sender(struct vt *t, int fd)
{
	struct sender s;
	pthread_t thread;

	vt_hear(fd, &s.how, sizeof(s.how));
	open_sender(&s, t, fd);
	start_blocked(&thread, send_blocked, &s, s.how == BEFORE);
	assert_int_equal(pthread_join(thread, NULL), 0);
	close_sender(&s, fd);
}

/* A peer as `anyrdma run` starts it: the shim in front, beside the library that we have ourselves. */
static const char no_shim[] = "this libibverbs has no shim";

static bool start_under_shim(struct vt_peer *p, const char *role)
{
	const char *old = getenv("LD_PRELOAD");
	char *kept = old ? strdup(old) : NULL, path[4096];
	Dl_info lib;

	assert_true(dladdr((void *)ibv_fork_init, &lib));
	snprintf(path, sizeof(path), "%.*s/libanyrdma-path.so",
		(int)(strrchr(lib.dli_fname, '/') - lib.dli_fname), lib.dli_fname);
	if (access(path, R_OK))
		return false; /* the stock library, or another */
	if (kept) {
		strncat(path, ":", sizeof(path) - strlen(path) - 1);
		strncat(path, kept, sizeof(path) - strlen(path) - 1);
	}
	setenv("LD_PRELOAD", path, 1);
	vt_peer_start(p, role);
	if (kept)
		setenv("LD_PRELOAD", kept, 1);
	else
		unsetenv("LD_PRELOAD");
	free(kept);
	return true;
}

static void receive_from(struct vt *t, struct vt_peer *peer)
{
	struct vt_conn c = hasty(t);
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr addr;
	char byte = 0;

	vt_meet(ep, peer->fd, &c, &addr);
	for (int i = 0; i < 4; i++)
		vt_recv(ep, (uint64_t)i, 0, 100);
	vt_tell(peer->fd, &byte, 1);
	vt_hear(peer->fd, &byte, 1);
	vt_peer_finish(peer);
	vt_ep_close(ep);
}

static void sending_from_nowhere_does_not_kill_who_blocks_signals(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	skip_because("sanitizers take SIGSEGV for themselves");
#endif
	for (enum how how = BEFORE; how <= CONTEXT; how++) {
		struct vt_peer peer;

		if (how == RAW)
			continue; /* nobody sees that at once */
		print_message("  blocked %s\n", how_name[how]);
		if (!start_under_shim(&peer, "sender"))
			skip_because(no_shim);
		vt_tell(peer.fd, &how, sizeof(how));
		receive_from(*state, &peer);
	}
}

/* ---- a program with handlers of its own, which it installs late ---- */
static sigjmp_buf out;
static volatile int handled;

static void on_fault(int sig, siginfo_t *info, void *uc)
{
	handled++;
	siglongjmp(out, sig);
}

static void fault(volatile char *p)
{
	if (!sigsetjmp(out, 1))
		*p = 1;
}

static void role_handler(struct vt *t, int fd)
{
	struct sigaction sa = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
	struct sender s = {.how = BEFORE};

	open_sender(&s, t, fd);
	assert_int_equal(sigaction(SIGSEGV, &sa, &old), 0);
	assert_ptr_equal(old.sa_handler, SIG_DFL); /* as it left it */
	assert_int_equal(sigaction(SIGSEGV, NULL, &old), 0);
	assert_ptr_equal(old.sa_sigaction, on_fault);
	assert_ptr_equal(signal(SIGBUS, SIG_IGN), SIG_DFL);
	assert_ptr_equal(signal(SIGBUS, SIG_DFL), SIG_IGN);
	fault(s.mr->addr);
	assert_int_equal(handled, 1);
	send_from_nowhere(&s);
	assert_int_equal(handled, 1);
	fault(s.mr->addr);
	assert_int_equal(handled, 2);
	close_sender(&s, fd);
}

static void handler_installed_later_gets_the_programs_faults_alone(void **state)
{
	struct vt_peer peer;

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	skip_because("sanitizers want to be in front of the shim");
#endif
	if (!start_under_shim(&peer, "handler"))
		skip_because(no_shim);
	receive_from(*state, &peer);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(peers_request_does_not_kill_who_blocks_signals),
	VT_TEST(sending_from_nowhere_does_not_kill_who_blocks_signals),
	VT_TEST(handler_installed_later_gets_the_programs_faults_alone),
};

static const struct vt_role roles[] = {
	{"target", role_target},
	{"sender", role_sender},
	{"handler", role_handler},
	{NULL, NULL},
};

VT_MAIN("guard", tests, roles)
