/* SPDX-License-Identifier: MIT */
/*
 * A subnet manager of our own user that the console starts: Debian's opensm, under our libraries, as a
 * program on one of the hosts. It is our child, so that it ends with the fabric, and nobody else's process
 * can be taken for it.
 */
#include "fabricd/fabricd.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS_MAX = 64, PATIENCE_NS = 1000000000 };

/* In the child. */
static void become(struct fabricd *d, const char *host, char *const *words, unsigned nwords)
{
	char dir[PATH_MAX + 16], log[PATH_MAX + 32], out[PATH_MAX + 32], *argv[WORDS_MAX + 8];
	sigset_t none;
	unsigned n = 0;
	int fd;

	snprintf(dir, sizeof(dir), "%s/opensm", d->dir);
	snprintf(log, sizeof(log), "%s/opensm.log", dir);
	snprintf(out, sizeof(out), "%s/opensm.out", dir);
	mkdir(dir, 0700);
	setenv("OSM_TMP_DIR", dir, 1);
	setenv("OSM_CACHE_DIR", dir, 1);
	setenv("ANYRDMA_FABRIC", d->name, 1);
	setenv("ANYRDMA_HOST", host, 1);
	argv[n++] = (char *)d->tool;
	argv[n++] = "run";
	argv[n++] = "opensm";
	argv[n++] = "-f";
	argv[n++] = log;
	for (unsigned i = 0; i < nwords; i++)
		argv[n++] = words[i];
	argv[n] = NULL;
	fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	dup2(fd, 0);
	fd = open(out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	dup2(fd, 1);
	dup2(fd, 2);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	execv(d->tool, argv);
	_exit(127);
}

int sm_start(struct fabricd *d, const char *host, char *const *words, unsigned nwords)
{
	pid_t pid;

	if (d->sm)
		return -EALREADY;
	if (nwords > WORDS_MAX)
		return -E2BIG;
	pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid)
		become(d, host, words, nwords);
	d->sm = pid;
	d->sm_status = -1;
	snprintf(d->sm_host, sizeof(d->sm_host), "%s", host);
	return 0;
}

void sm_reap(struct fabricd *d)
{
	int status;

	if (!d->sm || waitpid(d->sm, &status, WNOHANG) != d->sm)
		return;
	d->sm = 0;
	d->sm_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	log_info("opensm on %s has ended with status %d", d->sm_host, d->sm_status);
	if (d->leaving)
		loop_stop(d->loop);
}

int sm_stop(struct fabricd *d)
{
	if (!d->sm)
		return -ESRCH;
	kill(d->sm, SIGTERM);
	return 0;
}

static void out_of_patience(void *arg, uint64_t now)
{
	struct fabricd *d = arg;

	loop_stop(d->loop);
}

void sm_leave(struct fabricd *d)
{
	if (!d->sm) {
		loop_stop(d->loop);
		return;
	}
	if (d->leaving)
		return;
	d->leaving = true;
	kill(d->sm, SIGTERM);
	loop_timer_init(&d->patience, out_of_patience, d);
	loop_timer_set(d->loop, &d->patience, loop_now(d->loop) + PATIENCE_NS);
}

void sm_close(struct fabricd *d)
{
	if (!d->sm)
		return;
	kill(d->sm, SIGKILL);
	waitpid(d->sm, NULL, 0);
	d->sm = 0;
}
