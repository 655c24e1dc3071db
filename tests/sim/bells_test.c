/* SPDX-License-Identifier: MIT */
/*
 * Who wakes whom: the rings and bells of src/local/ as they are, between a process that writes and one with
 * several threads, which take turns at every atomic access (turns.h). What the writer puts into its ring may
 * stay in its core, as on a real one, until that runs a fence or a locked instruction, or another has the
 * kernel run one for all (base/fence.h).
 *
 *   bells_test [--seed N] [--seeds COUNT]
 *
 * The threads are those of an adapter (src/engine/): one sleeps on the bell as a caller does (sleep.c), the
 * helper sleeps on it too and then leaves it to the caller (helper.c), a third polls as long as it likes,
 * attends to the sockets while it connects, and then does something else for ever. Nobody looks by himself:
 * a frame that is there while all sleep, and that no bell tells of, is a wake-up that is lost.
 */
#include "turns.h"

#include "draw.h"
#include "local/channel_pair_test.h"
#include "local/channel_parts.h"
#include "seeds.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { WRITER, CALLER, HELPER, POLLER, THREADS };
#define US 1000ull
#define S  1000000000ull

uint64_t draw_state;

static struct {
	uint64_t now;
	unsigned who;
	struct host a, b;
	unsigned frames;
	bool driving, over; /* over: the caller has all */
	int told;           /* readable: the caller has completions, or its alarm has rung */
	int either;         /* what it sleeps on: that, or the bell */
} t;

static struct {
	unsigned long long frames, sleeps, bells, kept;
} total;

static _Noreturn void lost(const char *what)
{
	printf("seed %llu: %s: %u of %u frames have come\n", (unsigned long long)seeds.now, what, t.b.got,
		t.frames);
	exit(1);
}

/* ---- what the writer's core keeps ---- */
static struct {
	enum { KEEPS = 4 } most;
	unsigned n;
	struct {
		uint32_t *at;
		uint32_t value;
	} store[KEEPS];
} core;

static void drain(void)
{
	for (unsigned i = 0; i < core.n; i++)
		__atomic_store_n(core.store[i].at, core.store[i].value, __ATOMIC_RELEASE);
	core.n = 0;
}

/* That a frame is there is what matters, and its writer never reads it. */
static bool is_stamp(const volatile void *at)
{
	const char *first = (const char *)t.a.channel->writer[THERE]->tx.ring->slot, *p = (const char *)at;

	return p >= first && p < first + RING_SLOTS * sizeof(struct ring_slot) &&
	       (size_t)(p - first) % sizeof(struct ring_slot) == offsetof(struct ring_slot, stamp);
}

static bool keep(const volatile void *at, uint64_t value)
{
	if (t.who != WRITER || !is_stamp(at) || core.n == KEEPS || one_in(4))
		return false;
	core.store[core.n].at = (uint32_t *)(uintptr_t)at;
	core.store[core.n++].value = (uint32_t)value;
	total.kept++;
	return true;
}

static void fence(void)
{
	if (t.who == WRITER)
		drain();
}

void __wrap_fence_heavy(void);
void __wrap_fence_heavy(void)
{
	turns_step();
	drain();
	turns_step();
}

void __real_handshake_ring(int fd);
void __wrap_handshake_ring(int fd);
void __wrap_handshake_ring(int fd)
{
	turns_step();
	if (t.who == WRITER)
		drain(); /* no system call does without */
	total.bells++;
	__real_handshake_ring(fd);
	turns_step();
}

int __real_handshake_receive(int fd, struct handshake_msg *msg, int *passed);
int __wrap_handshake_receive(int fd, struct handshake_msg *msg, int *passed);
int __wrap_handshake_receive(int fd, struct handshake_msg *msg, int *passed)
{
	int got;

	turns_step();
	got = __real_handshake_receive(fd, msg, passed);
	turns_step();
	return got;
}

/* One that another of us has: we are one thread, so that it gets on only when it is its turn. */
void __real_lock_take_mutex(struct lock *l);
void __wrap_lock_take_mutex(struct lock *l);
void __wrap_lock_take_mutex(struct lock *l)
{
	while (pthread_mutex_trylock(&l->m))
		turns_wait(US);
	pthread_mutex_unlock(&l->m);
	__real_lock_take_mutex(l);
}

/* ---- time and turns ---- */
static uint64_t now(void)
{
	return t.now;
}

static void move(uint64_t to)
{
	if (to > t.now + US)
		drain();
	t.now = to;
}

static void turn(unsigned who)
{
	t.who = who;
	if (one_in(8))
		drain();
}

/* ---- the writer ---- */
static void write_all(void)
{
	for (uint32_t n = 0; n < t.frames; n++) {
		send_one(&t.a, THERE, n);
		if (one_in(3))
			turns_wait(draw(one_in(2) ? 100 : 20 * US));
	}
}

/* ---- the threads that receive ---- */
static void tell_caller(void)
{
	eventfd_write(t.told, 1);
}

static void promise(void *arg, uint64_t ns)
{
	tell_caller();
}

/* Nobody drives while another does. Not all frames end what the caller waits for. */
static void drive(bool woken)
{
	unsigned had = t.b.got;

	turns_step();
	if (t.driving)
		return;
	t.driving = true;
	t.b.link->ops->receive(t.b.link, woken ? 0 : 256, check, &t.b);
	turns_step();
	t.driving = false;
	if (t.b.got != had && t.who != CALLER && one_in(2))
		tell_caller();
}

static bool has_frame(void)
{
	struct local_channel *c = t.b.channel;

	for (unsigned i = 0; i < c->nreaders; i++) {
		if (c->reader[i]->state == READER_UP && ring_waiting(&c->reader[i]->rx))
			return true;
	}
	return false;
}

/* Says so, looks, and waits; whether it was woken, or need not wait. */
static bool sleep_on(int fd, uint64_t ns)
{
	bool woken = !local_channel_sleep(t.b.channel);

	total.sleeps += !woken;
	woken = woken || turns_wait_fd(fd, ns);
	local_channel_woke(t.b.channel);
	return woken;
}

static void call(void)
{
	eventfd_t n;

	while (t.b.got < t.frames) {
		bool woken = sleep_on(t.either, S);

		if (!woken && has_frame())
			lost("all sleep, a frame is there, and nobody is woken");
		eventfd_read(t.told, &n);
		drive(woken);
		if (one_in(4))
			turns_wait(draw(5 * US)); /* its program has something to do */
	}
	t.over = true;
}

static void help(void)
{
	while (!t.over) {
		bool woken = sleep_on(t.b.channel->ep_fd, 100 * US);

		if (woken)
			drive(true);
		if (one_in(4))
			turns_wait(3 * S); /* it leaves all to the caller, longer than anybody can wait */
	}
}

static void poll_and_connect(void)
{
	for (unsigned i = (unsigned)draw(40); i && !t.over; i--) {
		if (one_in(2))
			drive(one_in(2));
		else
			local_peers_attend(t.b.channel, false);
		if (one_in(2))
			turns_wait(draw(10 * US));
	}
}

static void live(unsigned me)
{
	static void (*const lives[THREADS])(void) = {write_all, call, help, poll_and_connect};

	lives[me]();
}

/* ---- a seed ---- */
/* The beginning of a connection, which is over too soon to be met: its proof, and whose it is, are to come.
 */
static void begin_again(struct local_channel *c)
{
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		if (r->state != READER_UP)
			continue;
		r->asked = one_in(2);
		if (one_in(2)) {
			r->reverse = NULL;
			r->looks = 0;
		}
	}
}

static int wait_for_either(void)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0 || epoll_ctl(fd, EPOLL_CTL_ADD, t.told, &ev) ||
		epoll_ctl(fd, EPOLL_CTL_ADD, t.b.channel->ep_fd, &ev))
		abort();
	return fd;
}

static void run_seed(uint64_t seed)
{
	struct turns_rules rules = {.now = now, .move = move, .turn = turn, .keep = keep, .fence = fence};

	draw_state = seed * 0x9e3779b97f4a7c15ull;
	memset(&t, 0, sizeof(t));
	t.now = 10 * S;
	t.a = open_host(HERE);
	t.b = open_host(THERE);
	if (!reach(&t.a, THERE, &t.b))
		lost("no channel");
	t.a.channel->bell->heavy = t.b.channel->bell->heavy = 1; /* fences are those of this file */
	t.a.channel->handshake.never_biased = t.b.channel->handshake.never_biased =
		true; /* it is one thread */
	local_channel_set_events(t.b.channel, &(struct local_channel_events){.promise = promise});
	begin_again(t.b.channel);
	t.frames = 1 + (unsigned)draw(one_in(2) ? 4 : 30);
	t.told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	t.either = wait_for_either();
	rules.steps = 1 + (unsigned)draw(60);
	turns_run(THREADS, &rules, live);
	if (t.b.got != t.frames)
		lost("they are gone");
	total.frames += t.frames;
	seeds_note(&total, sizeof(total)); /* each turn, frame and bell is counted */
	close(t.either);
	close(t.told);
	close_host(&t.a);
	close_host(&t.b);
}

int main(int argc, char **argv)
{
	seeds_init(argc, argv);
	log_level = getenv("ANYRDMA_LOG") ? log_level : LOG_ERROR;
	port = (uint16_t)(20000 + getpid() % 40000);
	for (uint64_t i = 0; i < seeds.count; i++)
		run_seed(seeds.now = seeds.first + i);
	printf("%llu seeds from %llu on: all well; %llu frames, %llu sleeps, %llu bells, %llu stores kept\n",
		(unsigned long long)seeds.count, (unsigned long long)seeds.first, total.frames, total.sleeps,
		total.bells, total.kept);
	return 0;
}
