/* SPDX-License-Identifier: MIT */
/* Libraries, files and what else the host itself gives. */
#include "tool/doctor.h"
#include "base/env.h"
#include "host/rundir.h"
#include "tool/tool.h"
#include "tool/devlist.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
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
		doctor_advise(env_text(ANYRDMA_DEVICES)
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

/* ---- directory and files ---- */

void doctor_check_rundir(void)
{
	char dir[PATH_MAX];
	struct statvfs vfs;
	int err = host_rundir(dir, sizeof(dir));
	unsigned long long mib;

	if (err) {
		const char *env = env_text(ANYRDMA_DIR);

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
		if (vfs.f_bavail)
			doctor_say(DOCTOR_NOTE, "directory", "%s has only %llu MiB free", dir, mib);
		else
			doctor_say(DOCTOR_FATAL, "directory", "the file system of %s is full", dir);
		doctor_advise("make room there, give the container a larger /dev/shm (docker run "
			      "--shm-size=1g), or set ANYRDMA_DIR");
	}
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
