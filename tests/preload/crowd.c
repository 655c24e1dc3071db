/* SPDX-License-Identifier: MIT */
/*
 * Many connections between two processes that sleep in epoll_wait(), without a limit, whenever there is
 * nothing to do: nobody looks by itself, as redis does ten times a second, so what is not told is not found.
 *
 *   preload_crowd [--seconds N] [--connections N] [--threads N]     the threads of the server share one set
 *
 * The client asks, all connections at once, some, or one alone; between two such rounds all is answered, and
 * both sleep. The server gives every byte back. A third process watches: a request that waits while none of
 * the threads that could answer it has run for a second is a wake-up that was lost, and so is one that
 * thousands have overtaken. How long anything takes on a busy machine is nobody's fault.
 */
#include "ends.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MOST = 256, THREADS_MOST = 8, OVERTAKEN = 20000, LOOK_MS = 20, LOOKS = 50 };
enum { ROOM = 1 << 16, LONGEST = 200000 };

/* What the three tell each other. */
static struct shared {
	struct sockaddr_in at; /* before `listens` */
	_Atomic bool listens, over;
	_Atomic int nthreads; /* of both, that sleep in epoll_wait: */
	struct {
		_Atomic int pid, tid;
	} thread[1 + THREADS_MOST];
	_Atomic uint64_t answered, connected_ns, worst_ns; /* the slowest; with its connection, and without */
	_Atomic int waiting;                               /* requests */
	_Atomic uint64_t since[CONNECTIONS_MOST]; /* `answered`, and 1, when it was asked; 0: it was not */
} * shared;

static unsigned seconds = 3, connections = 50, threads = 1;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "crowd: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int checked(int result, const char *what)
{
	if (result < 0)
		die(what);
	return result;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static bool would_block(void)
{
	return errno == EAGAIN || errno == EINTR;
}

static void show_thread(void)
{
	int i = atomic_fetch_add(&shared->nthreads, 1);

	shared->thread[i].tid = gettid();
	shared->thread[i].pid = getpid();
}

static void set_events(int epfd, int op, int fd, uint32_t events, void *of)
{
	struct epoll_event ev = {.events = events, .data.ptr = of};

	checked(epoll_ctl(epfd, op, fd, &ev), "epoll_ctl");
}

/* ---- the server ---- */
/* What came and has not gone back yet; as long as there is any, no more is read. */
struct echo {
	int fd;
	size_t at, len;
	char room[ROOM];
};

static struct {
	int epfd, listener;
	uint32_t once; /* EPOLLONESHOT where several threads serve */
} server;

static void accept_all(void)
{
	int fd;

	while ((fd = accept4(server.listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
		struct echo *c = calloc(1, sizeof(*c));

		if (!c)
			die("calloc");
		c->fd = fd;
		set_events(server.epfd, EPOLL_CTL_ADD, fd, EPOLLIN | server.once, c);
	}
	if (!would_block())
		die("accept");
}

static bool write_back(struct echo *c)
{
	while (c->at < c->len) {
		ssize_t n = write(c->fd, c->room + c->at, c->len - c->at);

		if (n < 0)
			return would_block();
		c->at += (size_t)n;
	}
	return true;
}

/* false: the client is gone. */
static bool serve(struct echo *c)
{
	ssize_t n = 1;

	while (n > 0 && c->at == c->len) {
		n = read(c->fd, c->room, ROOM);
		c->at = 0;
		c->len = n > 0 ? (size_t)n : 0;
		if (!n || (n < 0 && !would_block()) || !write_back(c))
			return false;
	}
	return c->at == c->len || write_back(c);
}

static void *serve_all(void *arg)
{
	show_thread();
	for (;;) {
		struct epoll_event ev;
		struct echo *c;

		if (checked(epoll_wait(server.epfd, &ev, 1, -1), "epoll_wait") != 1)
			continue;
		c = ev.data.ptr;
		if (!c)
			accept_all();
		else if (serve(c))
			set_events(server.epfd, EPOLL_CTL_MOD, c->fd,
				(c->at < c->len ? EPOLLOUT : EPOLLIN) | server.once, c);
		else
			close(c->fd);
	}
	return NULL;
}

static void run_server(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(at);
	pthread_t thread;

	server.once = threads > 1 ? EPOLLONESHOT : 0;
	server.listener = checked(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
	checked(bind(server.listener, (struct sockaddr *)&at, sizeof(at)), "bind");
	checked(listen(server.listener, CONNECTIONS_MOST), "listen");
	checked(getsockname(server.listener, (struct sockaddr *)&at, &len), "getsockname");
	server.epfd = checked(epoll_create1(0), "epoll_create1");
	set_events(server.epfd, EPOLL_CTL_ADD, server.listener, EPOLLIN, NULL);
	shared->at = at;
	shared->listens = true;
	for (unsigned i = 1; i < threads; i++) {
		if (pthread_create(&thread, NULL, serve_all, NULL))
			die("pthread_create");
	}
	serve_all(NULL);
}

/* ---- the client ---- */
/* Bytes of a connection are counted from its beginning: what they are follows from that. */
struct asker {
	int fd;
	unsigned number;
	uint64_t sent, got, until; /* of this request: up to `until` */
	uint64_t asked_at;
	bool blocked; /* waits for EPOLLOUT */
	bool asked;   /* before */
};

static struct asker asker[CONNECTIONS_MOST];
static int epfd;
static unsigned drawn = 1;

static unsigned draw(unsigned below)
{
	return (unsigned)rand_r(&drawn) % below;
}

static char byte_of(const struct asker *a, uint64_t at)
{
	return (char)(at * 31 + (at >> 9) + a->number);
}

static void send_rest(struct asker *a)
{
	char buf[ROOM];
	bool was_blocked = a->blocked;
	ssize_t n = 0;

	while (a->sent < a->until && n >= 0) {
		size_t len = a->until - a->sent < ROOM ? a->until - a->sent : ROOM;

		for (size_t i = 0; i < len; i++)
			buf[i] = byte_of(a, a->sent + i);
		n = write(a->fd, buf, len);
		if (n < 0 && !would_block())
			die("write");
		a->sent += n > 0 ? (uint64_t)n : 0;
	}
	a->blocked = a->sent < a->until;
	if (a->blocked != was_blocked)
		set_events(epfd, EPOLL_CTL_MOD, a->fd, EPOLLIN | (a->blocked ? EPOLLOUT : 0), a);
}

static void ask(struct asker *a)
{
	unsigned kind = draw(500);

	a->until += kind == 0 ? 1 + draw(LONGEST) : kind < 20 ? 1 + draw(20000) : 1 + draw(100);
	a->asked_at = now_ns();
	shared->since[a->number] = shared->answered + 1;
	shared->waiting++;
	send_rest(a);
}

static void answered(struct asker *a)
{
	uint64_t took = now_ns() - a->asked_at;

	_Atomic uint64_t *worst = a->asked ? &shared->worst_ns : &shared->connected_ns;

	if (took > *worst)
		*worst = took;
	a->asked = true;
	shared->since[a->number] = 0;
	shared->waiting--;
	shared->answered++;
}

/* Whether its request is answered now. */
static bool hear(struct asker *a)
{
	char buf[ROOM];
	ssize_t n;

	while (a->got < a->until && (n = read(a->fd, buf, sizeof(buf))) != 0) {
		if (n < 0 && would_block())
			return false;
		if (n < 0)
			die("read");
		for (ssize_t i = 0; i < n; i++, a->got++) {
			if (buf[i] != byte_of(a, a->got) || a->got == a->until) {
				fprintf(stderr, "crowd: connection %u: byte %llu is not what was sent\n",
					a->number, (unsigned long long)a->got);
				exit(1);
			}
		}
	}
	if (a->got < a->until)
		die("the server is gone");
	return true;
}

/* `quota` requests by the connections from `first` on, `n` of them at a time; then all are answered. */
static void round_of(unsigned first, unsigned n, unsigned quota)
{
	unsigned out = 0;

	for (; out < n && quota; out++, quota--)
		ask(&asker[(first + out) % connections]);
	while (out) {
		struct epoll_event ev[16];
		int got = checked(epoll_wait(epfd, ev, 16, -1), "epoll_wait");

		for (int i = 0; i < got; i++) {
			struct asker *a = ev[i].data.ptr;

			if (a->blocked)
				send_rest(a);
			if (a->got == a->until || !hear(a))
				continue;
			answered(a);
			out--;
			if (quota) {
				quota--;
				out++;
				ask(a);
			}
		}
	}
}

static void connect_all(void)
{
	epfd = checked(epoll_create1(0), "epoll_create1");
	for (unsigned i = 0; i < connections; i++) {
		struct asker *a = &asker[i];

		*a = (struct asker){.number = i, .blocked = true};
		a->fd = checked(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), "socket");
		if (connect(a->fd, (struct sockaddr *)&shared->at, sizeof(shared->at)) &&
			errno != EINPROGRESS)
			die("connect");
		set_events(epfd, EPOLL_CTL_ADD, a->fd, EPOLLIN | EPOLLOUT, a);
	}
	/* Each with a request: most of them leave when it is connected. */
	for (unsigned i = 0; i < connections; i++) {
		struct asker *a = &asker[i];

		a->until = 1 + draw(100);
		a->asked_at = now_ns();
		shared->since[i] = shared->answered + 1;
		shared->waiting++;
	}
}

static void hear_first(void)
{
	for (unsigned out = connections; out;) {
		struct epoll_event ev;
		struct asker *a;

		if (checked(epoll_wait(epfd, &ev, 1, -1), "epoll_wait") != 1)
			continue;
		a = ev.data.ptr;
		if (a->blocked)
			send_rest(a);
		if (a->got < a->until && hear(a)) {
			answered(a);
			out--;
		}
	}
}

static void run_client(void)
{
	static const unsigned at_once[] = {1, 1, 2, 8, CONNECTIONS_MOST};
	uint64_t until = now_ns() + seconds * 1000000000ull;

	drawn = (unsigned)now_ns();
	while (!shared->listens)
		usleep(1000);
	show_thread();
	connect_all();
	hear_first();
	while (now_ns() < until) {
		unsigned n = at_once[draw(sizeof(at_once) / sizeof(at_once[0]))];

		round_of(draw(connections), n < connections ? n : connections,
			1 + draw(20 * (n < 50 ? n : 50)));
		if (draw(2))
			usleep(draw(3000));
	}
	shared->over = true;
}

/* ---- who watches ---- */
struct seen {
	unsigned long long runs; /* how often it came to a CPU or left one */
	bool asleep;
};

static struct seen look_at(int pid, int tid)
{
	struct seen s = {.asleep = true};
	char path[64], line[256], state;
	unsigned long long n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "State: %c", &state) == 1)
			s.asleep = state == 'S';
		else if (sscanf(line, "voluntary_ctxt_switches: %llu", &n) == 1 ||
			 sscanf(line, "nonvoluntary_ctxt_switches: %llu", &n) == 1)
			s.runs += n;
	}
	if (f)
		fclose(f);
	return s;
}

/* Any thread of the process, a library's too, that wants a CPU. */
static bool wants_cpu(int pid)
{
	char path[64];
	struct dirent *d;
	bool wants = false;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	while (dir && (d = readdir(dir))) {
		if (d->d_name[0] != '.')
			wants |= !look_at(pid, atoi(d->d_name)).asleep;
	}
	if (dir)
		closedir(dir);
	return wants;
}

struct watch {
	uint64_t answered;
	unsigned long long runs;
	unsigned still,
		busy; /* looks in a row at which nothing had moved; and at which somebody wanted a CPU */
};

/* Whether the threads that wait for each other have slept through the last second. */
static bool all_sleep(struct watch *w)
{
	struct watch is = {.answered = shared->answered};
	bool asleep = true, busy = false;

	for (int i = 0; i < shared->nthreads; i++) {
		struct seen s = look_at(shared->thread[i].pid, shared->thread[i].tid);

		is.runs += s.runs;
		asleep &= s.asleep;
		busy |= wants_cpu(shared->thread[i].pid);
	}
	if (!asleep || !shared->waiting || is.answered != w->answered || is.runs != w->runs) {
		*w = is;
		return false;
	}
	w->busy += busy;
	return ++w->still >= LOOKS && w->busy < w->still / 2;
}

static int overtaken(void)
{
	for (unsigned i = 0; i < connections; i++) {
		uint64_t since = shared->since[i];

		if (since && shared->answered > since + OVERTAKEN)
			return (int)i;
	}
	return -1;
}

/* What there is to see before both are ended. */
static void say_lost(const char *what, const pid_t *child)
{
	fprintf(stderr, "crowd: a wake-up was lost: %s; of %llu requests %d wait, of connections", what,
		(unsigned long long)shared->answered, shared->waiting);
	for (unsigned i = 0; i < connections; i++) {
		if (shared->since[i])
			fprintf(stderr, " %u", i);
	}
	fprintf(stderr, "\n");
	if (getenv("CROWD_STOPS")) { /* for a debugger */
		fprintf(stderr, "crowd: server %d and client %d stay, and so do I: %d\n", child[0], child[1],
			getpid());
		pause();
	}
}

static int watch(const pid_t *child)
{
	struct watch w = {0};
	int status;

	for (;;) {
		const char *lost = all_sleep(&w)      ? "all sleep"
				   : overtaken() >= 0 ? "one was overtaken"
						      : NULL;

		if (lost && !shared->over) {
			say_lost(lost, child);
			return 1;
		}
		for (int i = 0; i < 2; i++) {
			if (waitpid(child[i], &status, WNOHANG) == child[i])
				return !(i == 1 && WIFEXITED(status) && !WEXITSTATUS(status));
		}
		usleep(LOOK_MS * 1000);
	}
}

static pid_t begin(void (*run)(void))
{
	pid_t child = checked(fork(), "fork");

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	run();
	exit(0);
}

static unsigned number(const char *text, unsigned most)
{
	unsigned n = text ? (unsigned)atoi(text) : 0;

	if (!n || n > most) {
		fprintf(stderr, "usage: preload_crowd [--seconds N] [--connections N] [--threads N]\n");
		exit(2);
	}
	return n;
}

int main(int argc, char **argv)
{
	bool alone = enter_own_network();
	long opens = tcp_opens();
	pid_t child[2];
	int failed;

	for (int i = 1; i < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds"))
			seconds = number(argv[i + 1], 1 << 20);
		else if (!strcmp(argv[i], "--connections"))
			connections = number(argv[i + 1], CONNECTIONS_MOST);
		else if (!strcmp(argv[i], "--threads"))
			threads = number(argv[i + 1], THREADS_MOST);
		else
			number(NULL, 1);
	}
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		die("mmap");
	child[0] = begin(run_server);
	child[1] = begin(run_client);
	failed = watch(child);
	for (int i = 0; i < 2; i++) {
		kill(child[i], SIGKILL);
		waitpid(child[i], NULL, 0);
	}
	printf("%u connections, %u threads: %llu requests, the slowest took %.1f ms, and to connect %.1f "
	       "ms\n",
		connections, threads, (unsigned long long)shared->answered, (double)shared->worst_ns / 1e6,
		(double)shared->connected_ns / 1e6);
	opens = tcp_opens() - opens;
	if (alone && opens) {
		fprintf(stderr, "crowd: %ld TCP connections were opened\n", opens);
		failed = 1;
	}
	return failed;
}
