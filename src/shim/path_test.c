/* SPDX-License-Identifier: MIT */
/* The path shim, seen from inside a program. Writes a tree of one device, then starts itself again under
 * the shim (argv[1] is its path) and looks at the kernel's paths through every function. */
#include "sysfs/sysfs.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define DEV    "/sys/class/infiniband/shimtest0"
#define FILE_  DEV "/node_type"
#define UVERBS "/dev/infiniband/uverbs7"
#define NONE   DEV "/no_such_file"

static int failures;

#define CHECK(cond)                                                                                          \
	do {                                                                                                 \
		errno = 0;                                                                                   \
		if (!(cond)) {                                                                               \
			fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #cond, strerror(errno));     \
			failures++;                                                                          \
		}                                                                                            \
	} while (0)

/* Asked for by name: some of these are in no header, and none must be inlined. */
#define CALL(ret, name, ...) (((ret(*)(__VA_ARGS__))dlsym(RTLD_DEFAULT, #name)))

static bool reads(int fd)
{
	char buf[16] = "";
	bool good = fd >= 0 && read(fd, buf, sizeof(buf)) == 6 && !strcmp(buf, "1: CA\n");

	if (fd >= 0)
		close(fd);
	return good;
}

static void test_open(void)
{
	CHECK(reads(CALL(int, open, const char *, int, ...)(FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, open64, const char *, int, ...)(FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, openat, int, const char *, int, ...)(AT_FDCWD, FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, openat64, int, const char *, int, ...)(-1, FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, __open_2, const char *, int)(FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, __open64_2, const char *, int)(FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, __openat_2, int, const char *, int)(AT_FDCWD, FILE_, O_RDONLY)));
	CHECK(reads(CALL(int, __openat64_2, int, const char *, int)(AT_FDCWD, FILE_, O_RDONLY)));
	CHECK(reads(open("/sys//class///infiniband/shimtest0/node_type", O_RDONLY)));
	CHECK(reads(open("//sys/class/infiniband//shimtest0/node_type", O_RDONLY)));
	CHECK(open(NONE, O_RDONLY) == -1 && errno == ENOENT);
}

static void test_fopen(void)
{
	char buf[16];
	FILE *f = CALL(FILE *, fopen, const char *, const char *)(FILE_, "r");

	CHECK(f && fgets(buf, sizeof(buf), f) && !strcmp(buf, "1: CA\n"));
	if (f)
		fclose(f);
	f = CALL(FILE *, fopen64, const char *, const char *)(FILE_, "r");
	CHECK(f && fgets(buf, sizeof(buf), f) && !strcmp(buf, "1: CA\n"));
	if (f)
		fclose(f);
}

static bool lists(const char *path, const char *name)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	bool found = false;

	while (dir && (e = readdir(dir)))
		found |= !strcmp(e->d_name, name);
	if (dir)
		closedir(dir);
	return found;
}

static int count_free(struct dirent **list, int n)
{
	for (int i = 0; i < n; i++)
		free(list[i]);
	if (n >= 0)
		free(list);
	return n;
}

static void test_directories(void)
{
	struct dirent **list = NULL;
	int n;

	CHECK(lists("/sys/class/infiniband", "shimtest0"));
	CHECK(lists("/sys/class/infiniband/", "shimtest0"));
	CHECK(lists("/sys/class/infiniband_verbs", "uverbs7"));
	CHECK(lists("/dev/infiniband", "uverbs7"));
	CHECK(!opendir("/sys/class/infiniband_mad") && errno == ENOENT);
	n = scandir(DEV "/ports", &list, NULL, alphasort);
	CHECK(count_free(list, n) == 3);
	n = scandir64(DEV "/ports", (struct dirent64 ***)&list, NULL, alphasort64);
	CHECK(count_free(list, n) == 3);
}

static void test_stat(void)
{
	struct stat st;
	struct stat64 st64;
	struct statx stx;

	CHECK(!CALL(int, stat, const char *, void *)(FILE_, &st) && st.st_size == 6);
	CHECK(!CALL(int, stat64, const char *, void *)(FILE_, &st64) && st64.st_size == 6);
	CHECK(!CALL(int, lstat, const char *, void *)(FILE_, &st) && st.st_size == 6);
	CHECK(!CALL(int, lstat64, const char *, void *)(FILE_, &st64) && st64.st_size == 6);
	CHECK(!CALL(int, fstatat, int, const char *, void *, int)(AT_FDCWD, FILE_, &st, 0) &&
		st.st_size == 6);
	CHECK(!CALL(int, fstatat64, int, const char *, void *, int)(AT_FDCWD, FILE_, &st64, 0) &&
		st64.st_size == 6);
	CHECK(!statx(AT_FDCWD, FILE_, 0, STATX_SIZE, &stx) && stx.stx_size == 6);
#ifdef __x86_64__
	enum { VER = 1 }; /* _STAT_VER of that ABI */

	CHECK(!CALL(int, __xstat, int, const char *, void *)(VER, FILE_, &st) && st.st_size == 6);
	CHECK(!CALL(int, __xstat64, int, const char *, void *)(VER, FILE_, &st64) && st64.st_size == 6);
	CHECK(!CALL(int, __lxstat, int, const char *, void *)(VER, FILE_, &st) && st.st_size == 6);
	CHECK(!CALL(int, __lxstat64, int, const char *, void *)(VER, FILE_, &st64) && st64.st_size == 6);
	CHECK(!CALL(int, __fxstatat, int, int, const char *, void *, int)(VER, AT_FDCWD, FILE_, &st, 0));
	CHECK(!CALL(int, __fxstatat64, int, int, const char *, void *, int)(VER, AT_FDCWD, FILE_, &st64, 0));
#endif
	CHECK(stat(NONE, &st) == -1 && errno == ENOENT);
}

static void test_device_node(void)
{
	struct stat st;
	char buf[PATH_MAX];

	CHECK(!stat(UVERBS, &st) && S_ISCHR(st.st_mode));
	CHECK(!lstat(UVERBS, &st) && S_ISCHR(st.st_mode));
	CHECK(!access(UVERBS, R_OK | W_OK));
	CHECK(close(open(UVERBS, O_RDWR)) == 0);
	CHECK(readlink(UVERBS, buf, sizeof(buf)) == -1 && errno == EINVAL);
	CHECK(stat("/dev/infiniband/uverbs8", &st) == -1 && errno == ENOENT);
	CHECK(stat("/dev/infiniband", &st) == 0 && S_ISDIR(st.st_mode));
}

static void test_access_and_links(void)
{
	char buf[PATH_MAX], *p;

	CHECK(!access(FILE_, R_OK));
	CHECK(!euidaccess(FILE_, R_OK));
	CHECK(!eaccess(FILE_, R_OK));
	CHECK(!faccessat(AT_FDCWD, FILE_, R_OK, 0));
	CHECK(access(NONE, F_OK) == -1 && errno == ENOENT);
	CHECK(readlink(FILE_, buf, sizeof(buf)) == -1 && errno == EINVAL);
	CHECK(readlinkat(-1, FILE_, buf, sizeof(buf)) == -1 && errno == EINVAL);
	CHECK(CALL(ssize_t, __readlink_chk, const char *, char *, size_t, size_t)(
		      FILE_, buf, sizeof(buf), sizeof(buf)) == -1 &&
		errno == EINVAL);
	CHECK(CALL(ssize_t, __readlinkat_chk, int, const char *, char *, size_t, size_t)(
		      -1, FILE_, buf, sizeof(buf), sizeof(buf)) == -1 &&
		errno == EINVAL);
	CHECK(llistxattr(FILE_, buf, sizeof(buf)) >= 0 || errno == ENOTSUP);
	CHECK(lgetxattr(FILE_, "user.none", buf, sizeof(buf)) == -1 && errno != ENOENT);
	CHECK(realpath(FILE_, buf) && strstr(buf, "/class/infiniband/shimtest0/node_type"));
	CHECK(CALL(char *, __realpath_chk, const char *, char *, size_t)(FILE_, buf, sizeof(buf)) &&
		reads(open(buf, O_RDONLY)));
	p = canonicalize_file_name(DEV);
	CHECK(p && strstr(p, "/class/infiniband/shimtest0"));
	free(p);
}

static void test_chdir(void)
{
	CHECK(!chdir(DEV) && reads(open("node_type", O_RDONLY)));
	CHECK(!chdir("/"));
}

static void test_other_paths(void)
{
	struct stat st;
	int fd;

	CHECK(stat("/sys/class/infiniband_other", &st) == -1 && errno == ENOENT);
	CHECK(stat("/sys/class/infinibandx", &st) == -1 && errno == ENOENT);
	CHECK(!stat("/sys", &st));
	CHECK(!stat("/dev/null", &st));
	CHECK(stat("", &st) == -1 && errno == ENOENT);
	errno = 0;
	CHECK(CALL(int, open, const char *, int, ...)(NULL, O_RDONLY) == -1 && errno == EFAULT);
	/* the optional argument goes through */
	fd = open("/tmp", O_TMPFILE | O_RDWR, 0640);
	if (fd >= 0) {
		CHECK(!fstat(fd, &st) && (st.st_mode & 0777) == 0640);
		close(fd);
	}
}

static void test_errno_is_kept(void)
{
	struct stat st;

	errno = 0;
	if (stat(FILE_, &st) || errno) {
		fprintf(stderr, "a successful call changed errno: %s\n", strerror(errno));
		failures++;
	}
}

static void *look(void *arg)
{
	for (int i = 0; i < 500; i++)
		if (!reads(open(FILE_, O_RDONLY)))
			__atomic_fetch_add((int *)arg, 1, __ATOMIC_RELAXED);
	return NULL;
}

static void test_threads(void)
{
	pthread_t t[4];
	int bad = 0;

	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, look, &bad);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	CHECK(!bad);
}

static int inside(void)
{
	test_open();
	test_fopen();
	test_directories();
	test_stat();
	test_device_node();
	test_access_and_links();
	test_chdir();
	test_other_paths();
	test_errno_is_kept();
	test_threads();
	return failures ? 1 : 0;
}

/* No tree: as on a machine without anything, and the lookup leaves nothing behind. */
static int inside_without(void)
{
	struct stat st;

	CHECK(stat(FILE_, &st) == -1 && errno == ENOENT);
	CHECK(stat(UVERBS, &st) == -1 && errno == ENOENT);
	CHECK(stat(getenv("ANYRDMA_DIR"), &st) == -1 && errno == ENOENT);
	return failures ? 1 : 0;
}

static int again(const char *self, const char *shim, const char *mode)
{
	pid_t pid = fork();
	int status = 1;

	if (pid == 0) {
		setenv("LD_PRELOAD", shim, 1);
		execl(self, self, shim, mode, NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status ? 1 : 0;
}

int main(int argc, char **argv)
{
	uint16_t pkey = 0xffff;
	struct sysfs_gid gid = {.raw = {0xfe, 0x80, [15] = 1}, .ndev = "lo"};
	struct sysfs_port port = {.num = 1,
		.state = 4,
		.phys_state = 5,
		.link_layer = "Ethernet",
		.rate_gbps = 10,
		.ngids = 1,
		.gids = &gid,
		.npkeys = 1,
		.pkeys = &pkey};
	struct sysfs_dev d = {.name = "shimtest0",
		.netdev = "lo",
		.index = 7,
		.node_type = "1: CA",
		.nports = 1,
		.ports = &port};
	char top[] = "/tmp/path-test-XXXXXX", missing[64], cmd[64];
	int err;

	if (argc == 3)
		return strcmp(argv[2], "with") ? inside_without() : inside();
	if (argc != 2 || !mkdtemp(top))
		return 2;
	setenv("ANYRDMA_DIR", top, 1);
	err = sysfs_update(&d, 1);
	if (err)
		fprintf(stderr, "sysfs_update: %s\n", strerror(-err));
	else
		err = again(argv[0], argv[1], "with");
	snprintf(missing, sizeof(missing), "%s/missing", top);
	setenv("ANYRDMA_DIR", missing, 1);
	err |= again(argv[0], argv[1], "without");
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", top);
	if (system(cmd))
		err = 1;
	puts(err ? "failed" : "ok");
	return err ? 1 : 0;
}
