/* SPDX-License-Identifier: MIT */
/* Output goes to a file in memory instead of a pipe: a child never blocks on us, and there is nothing to
 * read while it runs. Each child has a process group of its own, so that Ctrl-C reaches us alone and we end
 * them in order; should we be killed, the kernel ends them (PR_SET_PDEATHSIG). */
#include "tool/proc.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int sig)
{
	interrupted = sig;
}

void proc_catch_signals(void)
{
	struct sigaction sa = {.sa_handler = on_signal};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGHUP, &sa, NULL);
}

bool proc_interrupted(void)
{
	return interrupted != 0;
}

double proc_now(void)
{
	return (double)clock_ns() / 1e9;
}

/* In the child. */
static _Noreturn void become(char *const argv[], int out, pid_t parent)
{
	int null = open("/dev/null", O_RDONLY);

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1); /* it went before we could ask for that */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	dup2(null, 0);
	dup2(out, 1);
	dup2(out, 2);
	execvp(argv[0], argv);
	dprintf(2, "%s: cannot be started\n", argv[0]);
	_exit(127);
}

int proc_start(struct proc *p, char *const argv[])
{
	pid_t parent = getpid();

	*p = (struct proc){.out = memfd_create("output", MFD_CLOEXEC)};
	if (p->out < 0)
		return -errno;
	p->pid = fork();
	if (p->pid == 0)
		become(argv, p->out, parent);
	if (p->pid < 0) {
		int err = -errno;

		p->pid = 0;
		close(p->out);
		p->out = -1;
		return err;
	}
	return 0;
}

static bool ended(struct proc *p)
{
	if (p->pid && waitpid(p->pid, &p->status, WNOHANG) == p->pid)
		p->pid = 0;
	return !p->pid;
}

static void nap(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
}

bool proc_wait(struct proc *p, double until, void (*tick)(void))
{
	while (!ended(p)) {
		if (interrupted || proc_now() >= until)
			return false;
		if (tick)
			tick();
		nap();
	}
	return true;
}

static bool listens(const char *table, unsigned port)
{
	FILE *f = fopen(table, "re");
	char line[512];
	bool found = false;

	while (f && !found && fgets(line, sizeof(line), f)) {
		unsigned local, state;

		found = sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %x", &local, &state) == 2 && local == port &&
			state == 0x0a; /* LISTEN */
	}
	if (f)
		fclose(f);
	return found;
}

/* Looks instead of connecting: a trial connection would be taken for the client. */
bool proc_wait_listen(struct proc *p, int port, double until, void (*tick)(void))
{
	while (!listens("/proc/net/tcp", port) && !listens("/proc/net/tcp6", port)) {
		if (ended(p) || interrupted || proc_now() >= until)
			return false;
		if (tick)
			tick();
		nap();
	}
	return true;
}

void proc_end(struct proc *p)
{
	if (!ended(p)) {
		double until = proc_now() + 1;

		kill(p->pid, SIGTERM);
		while (!ended(p) && proc_now() < until)
			nap();
		if (!ended(p)) {
			kill(p->pid, SIGKILL);
			waitpid(p->pid, &p->status, 0);
			p->pid = 0;
		}
	}
	if (p->out >= 0)
		close(p->out);
	p->out = -1;
}

char *proc_output(const struct proc *p)
{
	off_t size = p->out < 0 ? -1 : lseek(p->out, 0, SEEK_END);
	char *text = size < 0 ? NULL : malloc(size + 1);
	ssize_t n = text ? pread(p->out, text, size, 0) : -1;

	if (n < 0) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	return text;
}

bool proc_succeeded(const struct proc *p)
{
	return !p->pid && WIFEXITED(p->status) && !WEXITSTATUS(p->status);
}

int proc_free_port(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int port;

	if (fd < 0)
		return -errno;
	port = bind(fd, (void *)&sa, sizeof(sa)) || getsockname(fd, (void *)&sa, &len) ? -errno
										       : ntohs(sa.sin_port);
	close(fd);
	return port;
}
