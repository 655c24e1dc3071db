/* SPDX-License-Identifier: MIT */
/*
 * soak [--seconds N] [--seed N]: the parent of the workers. It never opens a device. Exit status 0: no wrong
 * byte, no leak, no stuck process; 1: one of these, in words, with the stacks of the process it is about.
 */
#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	SILENCE_MS = 60000, /* of a worker that is not stopped: stuck */
	KILL_EVERY_MS = 1500,
	STOP_EVERY_MS = 1000,
	STOP_FOR_MS = 1200,
	RSS_SLACK_KB = 4096,
};

struct child {
	pid_t pid;
	int fd; /* -1: not running */
	uint64_t heard_at, start_at, stopped_until;
	bool idle;
	uint32_t met; /* since the start of the run, by a bit each */
	struct holdings holds, first;
};

static struct child child[WORKERS];
static uint64_t seed, dice, kills, stops, undelivered;
static struct tally total;
static char run_dir[64];

/* ---- the end, good or bad ---- */
static void stacks_of(pid_t pid)
{
	char cmd[200];

	snprintf(cmd, sizeof(cmd),
		"gdb -p %d -batch -ex 'thread apply all bt' 2>/dev/null || eu-stack -p %d 2>/dev/null || "
		"grep -H . /proc/%d/task/*/wchan",
		(int)pid, (int)pid, (int)pid);
	fflush(stdout);
	kill(pid, SIGCONT);
	if (system(cmd) == -1)
		perror("soak");
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	return remove(path);
}

static void end_all(void)
{
	for (int i = 0; i < WORKERS; i++) {
		if (child[i].pid <= 0)
			continue;
		kill(child[i].pid, SIGKILL);
		waitpid(child[i].pid, NULL, 0);
		child[i].pid = 0;
	}
	if (run_dir[0])
		nftw(run_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void __attribute__((noreturn, format(printf, 2, 3))) lost(int about, const char *fmt, ...)
{
	va_list ap;

	printf("soak: FAILED (seed %llu): ", (unsigned long long)seed);
	if (about >= 0)
		printf("worker %d (process %d): ", about, (int)child[about].pid);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
	if (about >= 0 && child[about].pid > 0)
		stacks_of(child[about].pid);
	end_all();
	exit(1);
}

/* ---- starting, killing, stopping ---- */
static void start(int i)
{
	struct child *c = &child[i];
	pid_t parent = getpid();
	int sv[2], size = 1 << 20;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv))
		lost(i, "socketpair: %s", strerror(errno));
	setsockopt(sv[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	fflush(stdout);
	c->pid = fork();
	if (c->pid < 0)
		lost(-1, "fork: %s", strerror(errno));
	if (!c->pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
		for (int k = 0; k < WORKERS; k++) {
			if (k != i && child[k].fd >= 0)
				close(child[k].fd);
		}
		close(sv[0]);
		exit(worker_main(i, sv[1], mix(seed ^ mix((uint64_t)i << 32 | kills))));
	}
	close(sv[1]);
	c->fd = sv[0];
	c->heard_at = now_ms();
	c->stopped_until = c->start_at = 0;
	c->idle = false;
}

static void kill_one(int i)
{
	struct child *c = &child[i];

	if (c->fd < 0)
		return;
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->fd);
	c->fd = -1;
	c->pid = 0;
	c->start_at = now_ms() + random_next(&dice) % 500;
	kills++;
}

static void stop_one(int i)
{
	if (child[i].fd < 0 || child[i].stopped_until)
		return;
	kill(child[i].pid, SIGSTOP);
	child[i].stopped_until = now_ms() + 20 + random_next(&dice) % STOP_FOR_MS;
	stops++;
}

static void wake(struct child *c)
{
	kill(c->pid, SIGCONT);
	c->stopped_until = 0;
	c->heard_at = now_ms();
}

static void start_and_wake(bool all)
{
	for (int i = 0; i < WORKERS; i++) {
		struct child *c = &child[i];

		if (c->fd < 0 && (all || now_ms() >= c->start_at))
			start(i);
		else if (c->stopped_until && (all || now_ms() >= c->stopped_until))
			wake(c);
	}
}

/* Sometimes several at one moment: then nobody knows any more which socket of the port is whose. */
static void chaos(void)
{
	static uint64_t kill_at, stop_at;
	uint64_t now = now_ms();

	if (now >= kill_at) {
		for (unsigned n = random_next(&dice) % 4 ? 1 : 3; n && kill_at; n--)
			kill_one(STEADY + (int)(random_next(&dice) % (WORKERS - STEADY)));
		kill_at = now + KILL_EVERY_MS / 2 + random_next(&dice) % KILL_EVERY_MS;
	}
	if (now >= stop_at) {
		stop_one((int)(random_next(&dice) % WORKERS));
		stop_at = now + STOP_EVERY_MS / 2 + random_next(&dice) % STOP_EVERY_MS;
	}
}

/* ---- messages ---- */
static void tell(int i, const struct msg *m)
{
	if (child[i].fd >= 0 && send(child[i].fd, m, sizeof(*m), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		undelivered++; /* stopped, with a full queue: sessions time out */
}

static void tell_all(enum msg_kind kind)
{
	struct msg m = {.kind = kind};

	for (int i = 0; i < WORKERS; i++)
		tell(i, &m);
}

static void add_tally(const struct tally *t)
{
	total.bytes += t->bytes;
	total.sessions += t->sessions;
	total.ended += t->ended;
	total.errors += t->errors;
	for (int k = 0; k < OP_KINDS; k++)
		total.checked[k] += t->checked[k];
	if (t->slowest_probe_ms > total.slowest_probe_ms)
		total.slowest_probe_ms = t->slowest_probe_ms;
}

static void on_msg(int from, const struct msg *m)
{
	struct child *c = &child[from];

	c->heard_at = now_ms();
	switch (m->kind) {
	case MSG_INVITE:
	case MSG_ACCEPT:
	case MSG_BYE:
		if (m->to >= 0 && m->to < WORKERS)
			tell(m->to, m);
		break;
	case MSG_BEAT:
		add_tally(&m->tally);
		c->met |= m->tally.met;
		break;
	case MSG_IDLE:
		c->idle = true;
		c->holds = m->holds;
		break;
	case MSG_FAILED:
		lost(from, "%.*s", (int)sizeof(m->why), m->why);
	default:
		break;
	}
}

static void listen_to_all(void)
{
	struct pollfd p[WORKERS];
	struct msg m;

	for (int i = 0; i < WORKERS; i++)
		p[i] = (struct pollfd){.fd = child[i].fd, .events = POLLIN};
	poll(p, WORKERS, 10);
	for (int i = 0; i < WORKERS; i++) {
		while (p[i].revents && child[i].fd >= 0 &&
			recv(child[i].fd, &m, sizeof(m), MSG_DONTWAIT) == (ssize_t)sizeof(m))
			on_msg(i, &m);
	}
}

static void watch(void)
{
	for (int i = 0; i < WORKERS; i++) {
		struct child *c = &child[i];
		int status;

		if (c->fd < 0 || c->stopped_until)
			continue;
		if (waitpid(c->pid, &status, WNOHANG) == c->pid) {
			listen_to_all(); /* its last words */
			c->pid = 0;
			lost(i, "died by itself, status %#x (%s)", status,
				WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exit");
		}
		if (now_ms() - c->heard_at > SILENCE_MS)
			lost(i, "stuck: nothing heard for %d s", SILENCE_MS / 1000);
	}
}

/* ---- what was done ---- */
static void report(void)
{
	static const char *const names[] = {
		"SEND", "SEND with immediate", "WRITE", "WRITE with immediate", "READ", "ADD", "SWAP"};

	printf("soak: %llu kills, %llu stops; %llu session ends: %llu well, %llu by an error; "
	       "%llu MiB checked; longest wait for an answer %llu ms; %llu messages not passed on\n",
		(unsigned long long)kills, (unsigned long long)stops, (unsigned long long)total.sessions,
		(unsigned long long)total.ended, (unsigned long long)total.errors,
		(unsigned long long)(total.bytes >> 20), (unsigned long long)total.slowest_probe_ms,
		(unsigned long long)undelivered);
	for (int k = 0; k < OP_KINDS; k++)
		printf("soak: %10llu %s\n", (unsigned long long)total.checked[k], names[k]);
	for (int i = 0; i < STEADY; i++)
		printf("soak: worker %d met %#x\n", i, child[i].met);
}

/* ---- the phases ---- */
/* So long, and on a busy machine until what the next step looks at is there. */
static void run_until(uint64_t ms, bool (*is_ready)(void))
{
	uint64_t end = now_ms() + ms;

	while (now_ms() < end || !is_ready()) {
		if (now_ms() > end + SILENCE_MS) {
			report();
			lost(-1, "stuck: something is not tried, or somebody not met");
		}
		chaos();
		start_and_wake(false);
		listen_to_all();
		watch();
	}
}

/* Who is looked at for what grows has all that grows with whom one meets. */
static bool have_met(void)
{
	for (int i = 0; i < STEADY; i++) {
		if ((child[i].met | 1u << i) != (1u << WORKERS) - 1)
			return false;
	}
	return true;
}

static bool all_was_tried(void)
{
	for (int k = 0; k < OP_KINDS; k++) {
		if (!total.checked[k])
			return false;
	}
	return total.ended;
}

static bool all_idle(void)
{
	for (int i = 0; i < WORKERS; i++) {
		if (!child[i].idle)
			return false;
	}
	return true;
}

/* Through shared memory a process has two sockets and two rings with each of the others that it has met: no
 * more than that. */
enum { MET_FDS = 2 * WORKERS, MET_KB = 2 * WORKERS * 2400 };

static bool by_memory(void)
{
	const char *v = getenv("ANYRDMA_LOCAL");

	return v && strcmp(v, "off");
}

static void compare(int i, const struct child *c)
{
	unsigned more_fds = by_memory() ? MET_FDS : 0, more_kb = by_memory() ? MET_KB : 0;

	if (c->holds.fds > c->first.fds + more_fds || c->holds.fds + more_fds < c->first.fds)
		lost(i, "descriptors grew from %u", c->first.fds);
	if (!COUNT_MEMORY_AND_THREADS)
		return;
	if (c->holds.threads != c->first.threads)
		lost(i, "threads grew from %u", c->first.threads);
	if (c->holds.rss_kb > c->first.rss_kb + RSS_SLACK_KB + more_kb)
		lost(i, "resident memory grew from %llu KiB", (unsigned long long)c->first.rss_kb);
}

/* Everybody closes what is open and says what is still held; then on again. */
static void measure(bool first)
{
	start_and_wake(true);
	for (int i = 0; i < WORKERS; i++)
		child[i].idle = false;
	tell_all(MSG_PAUSE);
	for (uint64_t end = now_ms() + SILENCE_MS; !all_idle();) {
		listen_to_all();
		watch();
		for (int i = 0; now_ms() > end; i++) {
			if (!child[i].idle)
				lost(i, "stuck: does not come to rest");
		}
	}
	for (int i = 0; i < STEADY; i++) {
		struct child *c = &child[i];

		printf("soak: worker %d at rest: %llu KiB resident, %u descriptors, %u threads\n", i,
			(unsigned long long)c->holds.rss_kb, c->holds.fds, c->holds.threads);
		if (first)
			c->first = c->holds;
		else
			compare(i, c);
	}
	tell_all(MSG_RESUME);
}

static void quit(void)
{
	tell_all(MSG_QUIT);
	for (int i = 0; i < WORKERS; i++) {
		int status = 0;

		for (uint64_t end = now_ms() + SILENCE_MS; waitpid(child[i].pid, &status, WNOHANG) == 0;) {
			listen_to_all();
			if (now_ms() > end)
				lost(i, "stuck: does not end");
		}
		if (status) {
			listen_to_all();
			child[i].pid = 0;
			lost(i, "ends with status %#x", status);
		}
		close(child[i].fd);
		child[i].pid = 0;
		child[i].fd = -1;
	}
}

/* ---- what is left when all are gone ---- */
static int grep_count(const char *path, const char *what)
{
	FILE *f = fopen(path, "r");
	char line[512];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, what) != NULL;
	if (f)
		fclose(f);
	return n;
}

static void count_leftovers(void)
{
	char slots[64];

	snprintf(slots, sizeof(slots), "@anyrdma/%s/", getenv("ANYRDMA_PORT"));
	if (grep_count("/proc/net/unix", slots))
		lost(-1, "slots are still taken");
}

/* Beside other adapters of the machine, not among them. */
static void own_world(void)
{
	char port[16];

	snprintf(port, sizeof(port), "%d", 20000 + (int)getpid() % 10000);
	setenv("ANYRDMA_PORT", port, 1);
	snprintf(run_dir, sizeof(run_dir), "/tmp/anyrdma-soak-XXXXXX");
	if (!mkdtemp(run_dir))
		lost(-1, "mkdtemp: %s", strerror(errno));
	setenv("ANYRDMA_DIR", run_dir, 1);
}

int main(int argc, char **argv)
{
	uint64_t seconds = 30, first;

	if (getrandom(&seed, sizeof(seed), 0) < 0)
		seed = now_ms();
	seed &= 0xffffffff;
	for (int i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--seconds"))
			seconds = strtoull(argv[i + 1], NULL, 0);
		else if (!strcmp(argv[i], "--seed"))
			seed = strtoull(argv[i + 1], NULL, 0);
	}
	dice = mix(seed);
	setvbuf(stdout, NULL, _IOLBF, 0);
	signal(SIGPIPE, SIG_IGN);
	printf("soak: %d processes for %llu s, seed %llu\n", WORKERS, (unsigned long long)seconds,
		(unsigned long long)seed);
	own_world();
	for (int i = 0; i < WORKERS; i++)
		child[i].fd = -1;
	start_and_wake(true);
	first = seconds * 1000 / 4;
	run_until(first, have_met);
	measure(true);
	run_until(seconds * 1000 - first, all_was_tried);
	measure(false);
	quit();
	count_leftovers();
	report();
	end_all();
	printf("soak: clean\n");
	return 0;
}
