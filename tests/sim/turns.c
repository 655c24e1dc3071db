/* SPDX-License-Identifier: MIT */
#include "turns.h"

#include "draw.h"
#include "local/revocable.h"
#include "seeds.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum { STACK = 1 << 20 };

struct process {
	ucontext_t context;
	void *stack, *fake; /* fake: the address sanitizer's */
	bool over, dead;
	uint64_t until; /* it waits */
	int fd;         /* or until this is readable; -1: for none */
	uint64_t draw;  /* its draw_state */
	int err;        /* its errno */
};

static struct {
	unsigned n;
	struct turns_rules rules;
	void (*live)(unsigned me);
	struct process p[TURNS_MOST];
	ucontext_t main;
	void *main_fake;
	const void *main_stack;
	size_t main_size;
	int is; /* whose turn it is; -1: nobody's */
	unsigned held;
	uint64_t left; /* steps of this turn */
	bool may_stall;
	uint64_t draw; /* our own */
	struct {
		int who; /* -1: nobody */
		uint64_t after;
		void (*die)(unsigned who);
	} kill;
} turns = {.is = -1};

/* ---- changing places ---- */
static void begin_switch(void **fake, const void *stack, size_t size)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(fake, stack, size);
#endif
}

static void end_switch(void *fake, const void **stack, size_t *size)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, stack, size);
#endif
}

static void to_main(struct process *p)
{
	p->draw = draw_state;
	p->err = errno;
	turns.is = -1;
	begin_switch(p->over ? NULL : &p->fake, turns.main_stack, turns.main_size);
	swapcontext(&p->context, &turns.main);
	end_switch(p->fake, &turns.main_stack, &turns.main_size);
	errno = p->err;
}

static void to_process(unsigned who)
{
	struct process *p = &turns.p[who];

	turns.is = (int)who;
	draw_state = p->draw;
	if (turns.rules.turn)
		turns.rules.turn(who);
	begin_switch(&turns.main_fake, p->stack, STACK);
	swapcontext(&turns.main, &p->context);
	end_switch(turns.main_fake, NULL, NULL);
}

static void begin_process(void)
{
	struct process *p = &turns.p[turns.is];

	end_switch(NULL, &turns.main_stack, &turns.main_size);
	turns.live((unsigned)turns.is);
	p->over = true;
	to_main(p);
}

void turns_leave(void)
{
	struct process *p = &turns.p[turns.is];

	p->over = true;
	turns.held = 0;
	to_main(p);
	abort();
}

/* ---- who runs ---- */
static struct process *running(void)
{
	return turns.is < 0 || turns.p[turns.is].dead ? NULL : &turns.p[turns.is];
}

void turns_step(void)
{
	struct process *p = running();

	if (!p || turns.held || !turns.rules.steps || turns.left--)
		return;
	to_main(p);
	if (p->dead)
		turns.kill.die((unsigned)turns.is);
}

bool turns_keeps(const volatile void *at, uint64_t value)
{
	return running() && turns.rules.keep && turns.rules.keep(at, value);
}

void turns_fence(void)
{
	if (running() && turns.rules.fence)
		turns.rules.fence();
}

void turns_hold(void)
{
	turns.held++;
}

void turns_release(void)
{
	turns.held--;
}

static void wait_until(uint64_t until, int fd)
{
	struct process *p = running();
	unsigned held = turns.held;

	if (!p)
		return;
	p->until = until;
	p->fd = fd;
	turns.held = 0;
	to_main(p);
	turns.held = held;
	if (p->dead)
		turns.kill.die((unsigned)turns.is);
}

void turns_wait(uint64_t ns)
{
	wait_until(turns.rules.now() + ns, -1);
}

int __real_poll(struct pollfd *p, nfds_t n, int ms);

static bool is_readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return __real_poll(&p, 1, 0) > 0;
}

bool turns_wait_fd(int fd, uint64_t ns)
{
	wait_until(turns.rules.now() + ns, fd);
	return is_readable(fd);
}

void turns_may_stall(bool may)
{
	turns.may_stall = may;
}

void turns_kill(unsigned who, uint64_t after, void (*die)(unsigned who))
{
	turns.kill.who = (int)who;
	turns.kill.after = after;
	turns.kill.die = die;
}

bool turns_is_dead(unsigned who)
{
	return turns.p[who].dead;
}

/* ---- whose turn it is ---- */
static uint64_t draw_own(uint64_t below)
{
	return random_seeded(&turns.draw) % below;
}

/* look: at its descriptor, which is a system call */
static bool is_ready(struct process *p, uint64_t now, bool look)
{
	if (look && !p->over && p->until > now && p->fd >= 0 && is_readable(p->fd))
		p->until = now;
	return !p->over && p->until <= now;
}

/* Somebody who does not wait; -1: all do. */
static int pick(bool look)
{
	unsigned first = (unsigned)draw_own(turns.n);

	for (unsigned i = 0; i < turns.n; i++) {
		unsigned who = (first + i) % turns.n;

		if (is_ready(&turns.p[who], turns.rules.now(), look))
			return (int)who;
	}
	return look ? -1 : pick(true);
}

/* false: all are over. */
static bool let_time_pass(void)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < turns.n; i++) {
		if (!turns.p[i].over && turns.p[i].until < next)
			next = turns.p[i].until;
	}
	if (next != UINT64_MAX)
		turns.rules.move(next);
	return next != UINT64_MAX;
}

static uint64_t draw_steps(void)
{
	uint64_t most = turns.rules.steps ? turns.rules.steps : 1;

	switch (draw_own(3)) {
	case 0:
		return draw_own(3);
	case 1:
		return draw_own(most < 40 ? most : 40);
	default:
		return draw_own(most);
	}
}

static void give_turn(unsigned who)
{
	struct process *p = &turns.p[who];
	uint64_t v[2] = {who, turns.left = draw_steps()};

	seeds_note(v, sizeof(v));
	if (turns.kill.who == (int)who && !turns.kill.after--) {
		p->dead = true; /* where it is */
		turns.kill.who = -1;
	}
	to_process(who);
	turns.rules.move(turns.rules.now() + draw_own(200));
	if (turns.may_stall && turns.rules.stall && !draw_own(turns.rules.stall) && !p->over)
		p->until = turns.rules.now() + draw_own(turns.rules.stall_max);
}

static void *stack_of(const struct process *p)
{
	void *stack = p->stack;

	if (!stack)
		stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (stack == MAP_FAILED)
		abort();
	return stack;
}

static void make(unsigned i)
{
	struct process *p = &turns.p[i];

	*p = (struct process){.stack = stack_of(p), .fd = -1, .draw = draw_state + i};
	getcontext(&p->context);
	p->context.uc_stack.ss_sp = p->stack;
	p->context.uc_stack.ss_size = STACK;
	makecontext(&p->context, begin_process, 0);
}

void turns_run(unsigned n, const struct turns_rules *r, void (*live)(unsigned me))
{
	uint64_t draw = draw_state;
	int who;

	turns.n = n;
	turns.rules = *r;
	turns.live = live;
	turns.held = 0;
	turns.may_stall = false;
	turns.kill.who = -1;
	turns.draw = draw_state ^ 0x5555;
	for (unsigned i = 0; i < n; i++)
		make(i);
	do {
		while ((who = pick(!draw_own(8))) >= 0)
			give_turn((unsigned)who);
	} while (let_time_pass());
	draw_state = draw;
}

/* ---- what libc does ---- */
int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	uint64_t now;

	if (!turns.rules.now || clock == CLOCK_REALTIME)
		return __real_clock_gettime(clock, t);
	now = turns.rules.now();
	*t = (struct timespec){
		.tv_sec = (time_t)(now / 1000000000ull), .tv_nsec = (long)(now % 1000000000ull)};
	return 0;
}

int __real_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
	if (turns.is < 0)
		return __real_nanosleep(t, left);
	turns_wait((uint64_t)t->tv_sec * 1000000000ull + (uint64_t)t->tv_nsec);
	return 0;
}

int __real_sched_yield(void);
int __wrap_sched_yield(void);
int __wrap_sched_yield(void)
{
	if (turns.is < 0)
		return __real_sched_yield();
	turns_wait(1);
	return 0;
}

int __wrap_poll(struct pollfd *p, nfds_t n, int ms);
int __wrap_poll(struct pollfd *p, nfds_t n, int ms)
{
	if (turns.is >= 0 && ms > 0 && n == 1) {
		turns_wait_fd(p->fd, (uint64_t)ms * 1000000);
		ms = 0;
	}
	return __real_poll(p, n, ms);
}

/* ---- copies to and from the other's memory ---- */
/* A step at which one is stalled more often: the other may take its memory away meanwhile. */
static void step_in_act(void)
{
	turns_step();
	if (running() && !turns.held && turns.may_stall && turns.rules.stall && !draw_own(30))
		turns_wait(draw_own(turns.rules.stall_max));
}

ssize_t __real_revocable_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write);
ssize_t __wrap_revocable_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write);
ssize_t __wrap_revocable_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write)
{
	ssize_t moved;

	step_in_act();
	moved = __real_revocable_vm(revoked, pid, own, n, theirs, ntheirs, write);
	step_in_act();
	return moved;
}

bool __real_revocable_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len);
bool __wrap_revocable_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len);
bool __wrap_revocable_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len)
{
	step_in_act();
	return __real_revocable_copy(revoked, to, from, len);
}

bool __real_revocable_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value);
bool __wrap_revocable_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value);
bool __wrap_revocable_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value)
{
	step_in_act();
	return __real_revocable_store(revoked, to, value);
}
