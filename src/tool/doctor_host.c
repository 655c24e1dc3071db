/* SPDX-License-Identifier: MIT */
/* Libraries, memory, files and what else the host itself gives. */
#include "tool/doctor.h"
#include "base/rundir.h"
#include "tool/tool.h"
#include "tool/verbs.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs body in a child, so that a crash is a finding and not the end. Returns its exit status (0..255), or
 * -signal. A child that takes longer than five seconds ends by SIGALRM. */
static int in_child(int (*body)(const char *), const char *arg)
{
	pid_t pid;
	int status;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		return 255;
	if (pid == 0) {
		alarm(5);
		_exit(body(arg));
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 255;
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- libraries ---- */

static bool libraries_good;

static int load_one(const char *path)
{
	return dlopen(path, RTLD_NOW | RTLD_LOCAL) ? 0 : 1;
}

static bool check_library(const char *dir, const char *name)
{
	char path[PATH_MAX + 64];
	int rc;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (access(path, R_OK)) {
		doctor_say(DOCTOR_FATAL, "libraries", "%s cannot be read: %s", path, strerror(errno));
		doctor_advise("build or install anyrdma again");
		return false;
	}
	rc = in_child(load_one, path);
	if (!rc)
		return true;
	if (rc < 0) {
		doctor_say(DOCTOR_FATAL, "libraries", "loading %s ends in: %s", path, strsignal(-rc));
		doctor_advise("build or install anyrdma again; if it stays so, please report it");
	} else {
		dlopen(path, RTLD_NOW | RTLD_LOCAL);
		doctor_say(DOCTOR_FATAL, "libraries", "cannot be loaded: %s", dlerror());
		doctor_advise("install the library it names, or build anyrdma again");
	}
	return false;
}

void doctor_check_libraries(void)
{
	char dir[PATH_MAX];
	int err = tool_libdir(dir, sizeof(dir));

	if (err) {
		doctor_say(DOCTOR_FATAL, "libraries", "where anyrdma is installed cannot be found out: %s",
			strerror(-err));
		doctor_advise("/proc must be mounted");
		return;
	}
	libraries_good = true;
	for (int i = 0; tool_libs[i]; i++)
		libraries_good &= check_library(dir, tool_libs[i]);
	if (libraries_good)
		doctor_say(DOCTOR_OK, "libraries", "all in %s and loadable", dir);
}

/* ---- devices ---- */

static int load_devices(const char *arg)
{
	struct verbs_dev *devs;
	char why[256];
	int n;

	(void)arg;
	return verbs_load(&devs, &n, why, sizeof(why)) ? 1 : 0;
}

void doctor_check_devices(void)
{
	struct verbs_dev *devs;
	char why[512];
	int n, rc;

	if (!libraries_good)
		return;
	rc = in_child(load_devices, NULL);
	if (rc < 0) {
		doctor_say(DOCTOR_FATAL, "devices", "opening the devices ends in: %s", strsignal(-rc));
		doctor_advise("build or install anyrdma again; if it stays so, please report it");
		return;
	}
	if (verbs_load(&devs, &n, why, sizeof(why))) {
		doctor_say(DOCTOR_FATAL, "devices", "%s", why);
		doctor_advise("see the other problems here; ANYRDMA_LOG=debug anyrdma devices says more");
		return;
	}
	for (int i = 0; i < n; i++)
		doctor_say(devs[i].active ? DOCTOR_OK : DOCTOR_NOTE, "devices",
			"%s on %s is %s, path MTU %d, %d GID%s", devs[i].name,
			*devs[i].netdev ? devs[i].netdev : "no interface", devs[i].state, devs[i].mtu,
			devs[i].ngids, devs[i].ngids == 1 ? "" : "s");
	if (!n) {
		doctor_say(DOCTOR_FATAL, "devices", "a program would see no device");
		doctor_advise(getenv("ANYRDMA_DEVICES")
				      ? "ANYRDMA_DEVICES is set: does it name one that exists?"
				      : "an interface must be up; see there");
	}
	verbs_free(devs, n);
}

/* ---- the stock stack ---- */

/* The kernel's devices, past the path shim, which shows ours there. */
static int count_kernel_devices(char *names, size_t len)
{
	int fd = syscall(SYS_openat, AT_FDCWD, "/sys/class/infiniband", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;
	size_t at = 0;
	int n = 0;

	*names = '\0';
	while (dir && (e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		if (at < len)
			at += snprintf(names + at, len - at, "%s%s", n ? ", " : "", e->d_name);
		n++;
	}
	if (dir)
		closedir(dir);
	return n;
}

void doctor_check_stock(void)
{
	char names[256];
	glob_t g;

	if (count_kernel_devices(names, sizeof(names))) {
		doctor_say(DOCTOR_NOTE, "stock RDMA", "the kernel has RDMA devices: %s", names);
		doctor_advise("programs see these when started as usual, and anyrdma's when started by "
			      "anyrdma run");
	} else {
		doctor_say(DOCTOR_OK, "stock RDMA", "the kernel has no RDMA device; none is needed");
	}
	if (!glob("/usr/{lib/*,lib64,lib,local/lib}/libibverbs.so.1", GLOB_BRACE, NULL, &g) && g.gl_pathc)
		doctor_say(DOCTOR_OK, "stock RDMA", "%s is installed; anyrdma run puts ours in its place",
			g.gl_pathv[0]);
	else
		doctor_say(DOCTOR_OK, "stock RDMA", "no stock libibverbs is installed; none is needed");
	globfree(&g);
}

/* ---- memory and files ---- */

void doctor_check_rundir(void)
{
	char dir[PATH_MAX];
	struct statvfs vfs;
	int err = base_rundir(dir, sizeof(dir));
	unsigned long long mib;

	if (err) {
		const char *env = getenv("ANYRDMA_DIR");

		doctor_say(DOCTOR_FATAL, "directory",
			"no directory for the programs to find each other: %s%s%s%s", strerror(-err),
			env ? " (ANYRDMA_DIR is " : "", env ? env : "", env ? ")" : "");
		doctor_advise(
			err == -EPERM
				? "what has that name is no directory, is not yours, or others may write "
				  "to it; set ANYRDMA_DIR to a directory of your own"
			: err == -EINVAL
				? "ANYRDMA_DIR must begin with a slash"
				: "set ANYRDMA_DIR to a directory of your own that you can write to");
		return;
	}
	if (access(dir, W_OK)) {
		doctor_say(DOCTOR_FATAL, "directory", "%s cannot be written to: %s", dir, strerror(errno));
		doctor_advise("set ANYRDMA_DIR to a directory of your own that you can write to");
		return;
	}
	if (statvfs(dir, &vfs)) {
		doctor_say(DOCTOR_NOTE, "directory", "%s: %s", dir, strerror(errno));
		return;
	}
	mib = (unsigned long long)vfs.f_bavail * vfs.f_frsize >> 20;
	if (mib >= 16) {
		doctor_say(DOCTOR_OK, "directory", "%s, with %llu MiB free", dir, mib);
	} else {
		doctor_say(DOCTOR_NOTE, "directory", "%s has only %llu MiB free", dir, mib);
		doctor_advise("make room there, give the container a larger /dev/shm (docker run "
			      "--shm-size=1g), or set ANYRDMA_DIR");
	}
}

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
		doctor_advise("works; transfers within this host then take a slower way");
	}
	if (fd >= 0)
		close(fd);
}

static volatile long target;

static int write_to(pid_t pid)
{
	long value = 42;
	struct iovec from = {&value, sizeof(value)}, to = {(void *)&target, sizeof(target)};

	return process_vm_writev(pid, &from, 1, &to, 1, 0) == sizeof(value) ? 0 : errno;
}

/* Two children of ours, since the kernel's restriction (Yama) lets a parent write to its child and still
 * refuses two programs that are not related. */
static void try_process_vm(int *to_child, int *to_sibling)
{
	pid_t a, b;
	int status;

	*to_child = *to_sibling = EAGAIN;
	fflush(NULL);
	a = fork();
	if (a == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		alarm(10);
		for (;;)
			pause();
	}
	if (a < 0)
		return;
	*to_child = write_to(a);
	b = fork();
	if (b == 0)
		_exit(write_to(a));
	if (b > 0 && waitpid(b, &status, 0) == b && WIFEXITED(status))
		*to_sibling = WEXITSTATUS(status);
	kill(a, SIGKILL);
	waitpid(a, NULL, 0);
}

void doctor_check_process_vm(void)
{
	long scope = doctor_read_long("/proc/sys/kernel/yama/ptrace_scope");
	int child, sibling;

	try_process_vm(&child, &sibling);
	if (!sibling) {
		doctor_say(DOCTOR_OK, "memory",
			"programs of one user can copy to each other (process_vm_writev)");
		return;
	}
	if (!child) {
		doctor_say(DOCTOR_NOTE, "memory",
			"programs cannot copy to each other unless one started the other (process_vm_writev: "
			"%s%s)",
			strerror(sibling), scope == 1 ? "; kernel.yama.ptrace_scope is 1" : "");
		doctor_advise("works; transfers within this host then take a slower way. To allow it, as "
			      "root: sysctl kernel.yama.ptrace_scope=0");
		return;
	}
	doctor_say(DOCTOR_NOTE, "memory", "programs cannot copy to each other (process_vm_writev: %s)",
		strerror(child));
	if (scope > 1)
		doctor_advise("works; transfers within this host then take a slower way. "
			      "kernel.yama.ptrace_scope is %ld; as root: sysctl kernel.yama.ptrace_scope=0",
			scope);
	else
		doctor_advise("works; transfers within this host then take a slower way. Usually a container "
			      "forbids it; Docker and Podman allow it with --cap-add=SYS_PTRACE");
}

void doctor_check_files(void)
{
	struct rlimit rl;

	if (getrlimit(RLIMIT_NOFILE, &rl))
		return;
	if (rl.rlim_cur >= 1024) {
		doctor_say(
			DOCTOR_OK, "open files", "a program can have %llu", (unsigned long long)rl.rlim_cur);
		return;
	}
	doctor_say(
		DOCTOR_NOTE, "open files", "a program can have only %llu", (unsigned long long)rl.rlim_cur);
	doctor_advise("programs with many connections need more: ulimit -n %llu",
		(unsigned long long)(rl.rlim_max < 4096 ? rl.rlim_max : 4096));
}
