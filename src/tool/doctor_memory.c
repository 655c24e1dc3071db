/* SPDX-License-Identifier: MIT */
/* What programs of one user may do with each other's memory on this host. */
#include "tool/doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

void doctor_check_memfd(void)
{
	int fd = memfd_create("anyrdma-doctor", MFD_CLOEXEC);
	void *p = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, 4096))
		p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p != MAP_FAILED) {
		doctor_say(DOCTOR_OK, "memory", "memory can be shared between programs (memfd_create)");
		munmap(p, 4096);
	} else {
		doctor_say(DOCTOR_NOTE, "memory",
			"memory cannot be shared between programs (memfd_create: %s)", strerror(errno));
		doctor_advise("works; programs on this host then talk by packets over the loopback");
	}
	if (fd >= 0)
		close(fd);
}

/* ---- looking into each other ---- */

#define MEANS                                                                                                \
	"works: messages between programs on this host go through rings in shared memory then, copied "      \
	"twice, still without packets. "

static volatile long target;

/* 0, or errno; reading is asked for first, as by who proves that it may. */
static int look_into(pid_t pid)
{
	long value = 42;
	struct iovec own = {&value, sizeof(value)}, theirs = {(void *)&target, sizeof(target)};

	if (process_vm_readv(pid, &own, 1, &theirs, 1, 0) != sizeof(value) ||
		process_vm_writev(pid, &own, 1, &theirs, 1, 0) != sizeof(value))
		return errno;
	return 0;
}

static pid_t start_target(void)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	alarm(10);
	for (;;)
		pause();
}

/* Two children of ours, since the kernel's restriction (Yama) lets a parent look into its child and still
 * refuses two programs that are not related. */
static void try_process_vm(int *to_child, int *to_sibling)
{
	pid_t a = start_target(), b;
	int status;

	*to_child = *to_sibling = EAGAIN;
	if (a < 0)
		return;
	*to_child = look_into(a);
	b = fork();
	if (b == 0)
		_exit(look_into(a));
	if (b > 0 && waitpid(b, &status, 0) == b && WIFEXITED(status))
		*to_sibling = WEXITSTATUS(status);
	kill(a, SIGKILL);
	waitpid(a, NULL, 0);
}

/* Whether a filter of system calls is in force, which programs that we start inherit. */
static bool is_filtered(void)
{
	FILE *f = fopen("/proc/self/status", "re");
	char line[256];
	int mode = 0;

	while (f && fgets(line, sizeof(line), f) && sscanf(line, "Seccomp: %d", &mode) != 1)
		;
	if (f)
		fclose(f);
	return mode != 0;
}

/* What Yama forbids by 1, it allows between a parent and its child. */
static void advise_on_refusal(long scope, bool child_too)
{
	bool yama = scope > 1 || (scope == 1 && !child_too);

	if (yama && scope == 3)
		doctor_advise(MEANS "kernel.yama.ptrace_scope is 3, which holds until the next start of the "
				    "machine; look for it in /etc/sysctl.d");
	else if (yama)
		doctor_advise(MEANS "To allow it, as root: sysctl kernel.yama.ptrace_scope=0");
	else if (is_filtered())
		doctor_advise(
			MEANS "A seccomp filter is in force, usually a container's. To allow it: docker "
			      "or podman run --cap-add SYS_PTRACE, or --security-opt "
			      "seccomp=unconfined; programs in two containers need one PID namespace, "
			      "too (--pid=container:NAME)");
	else
		doctor_advise(MEANS "In a container, allow it by --cap-add SYS_PTRACE");
}

void doctor_check_process_vm(void)
{
	long scope = doctor_read_long("/proc/sys/kernel/yama/ptrace_scope");
	int child, sibling;
	char yama[64] = "";

	try_process_vm(&child, &sibling);
	if (scope >= 0)
		snprintf(yama, sizeof(yama), "; kernel.yama.ptrace_scope is %ld", scope);
	if (!sibling) {
		doctor_say(DOCTOR_OK, "memory",
			"programs of one user may look into each other: on this host large messages are "
			"copied once (process_vm_readv, process_vm_writev%s)",
			yama);
		return;
	}
	doctor_say(DOCTOR_NOTE, "memory",
		"programs may not look into each other%s (process_vm_readv, process_vm_writev: %s%s)",
		child ? "" : " unless one started the other", strerror(sibling), yama);
	advise_on_refusal(scope, child);
}
