/* SPDX-License-Identifier: MIT */
#include "local/pages/maps.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { PAGE = 4096 };

unsigned maps_threads(void)
{
	struct stat st;

	return stat("/proc/self/task", &st) ? 0 : (unsigned)st.st_nlink - 2;
}

/* How many buffers a ring has that the program registered with it. */
static unsigned fixed_buffers(const char *fd)
{
	char path[64], line[128];
	unsigned n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%.20s", fd);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "UserBufs: %u", &n) != 1)
		;
	if (f)
		fclose(f);
	return n;
}

bool maps_pinned(void)
{
	static const char ring[] = "anon_inode:[io_uring]";
	DIR *fds = opendir("/proc/self/fd");
	bool found = false;
	struct dirent *d;
	char to[sizeof(ring)];

	while (fds && !found && (d = readdir(fds))) {
		ssize_t n = readlinkat(dirfd(fds), d->d_name, to, sizeof(to));

		found = n == (ssize_t)sizeof(ring) - 1 && !memcmp(to, ring, (size_t)n) &&
			fixed_buffers(d->d_name);
	}
	if (fds)
		closedir(fds);
	return found;
}

static int add(struct areas *a, const struct area *one)
{
	if (a->n == a->room) {
		size_t room = a->room ? 2 * a->room : 16;
		struct area *p = realloc(a->area, room * sizeof(*p));

		if (!p)
			return -ENOMEM;
		a->area = p;
		a->room = room;
	}
	a->area[a->n++] = *one;
	return 0;
}

bool area_has_file(const char *name)
{
	return strncmp(name, "/dev/zero (deleted)", 19) && strncmp(name, "/SYSV", 5);
}

static bool parse(const char *line, struct area *a)
{
	unsigned major, minor;
	int name = 0;
	char rights[5];

	if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %" SCNx64 " %x:%x %" SCNu64 " %n", &a->start, &a->end,
		    rights, &a->off, &major, &minor, &a->inode, &name) < 7)
		return false;
	a->dev = makedev(major, minor);
	a->prot = (rights[0] == 'r' ? PROT_READ : 0) | (rights[1] == 'w' ? PROT_WRITE : 0) |
		  (rights[2] == 'x' ? PROT_EXEC : 0);
	/* Private huge pages have a file as well. */
	a->plain = a->prot == (PROT_READ | PROT_WRITE) && rights[3] == 'p' && !a->inode &&
		   (!line[name] || line[name] == '\n' || !strncmp(line + name, "[heap]", 6) ||
			   !strncmp(line + name, "[anon:", 6));
	a->shared = rights[3] == 's' && a->inode && area_has_file(line + name);
	return true;
}

/*
 * The stack of a thread: its own record lies at the upper end of it, and the kernel knows an address in that
 * record. While its pages change hands a thread must be able to take signals.
 */
static void cut_off_stack(struct areas *a, uintptr_t record)
{
	for (size_t i = 0; record && i < a->n; i++) {
		struct area *one = &a->area[i];
		uintptr_t end = (record & ~(uintptr_t)(PAGE - 1)) + 2 * PAGE;

		if (record < one->start || record >= one->end || !one->plain)
			continue;
		if (end < one->end)
			one->start = end; /* what lies above is something else */
		else
			one->plain = false;
	}
}

static void cut_off_stacks(struct areas *a)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *d;

	while (tasks && (d = readdir(tasks))) {
		int tid = atoi(d->d_name);
		void *head = NULL;
		size_t len;

		/* That of the first thread has a name, and its record is elsewhere. */
		if (tid > 0 && tid != getpid() && !syscall(SYS_get_robust_list, tid, &head, &len))
			cut_off_stack(a, (uintptr_t)head);
	}
	if (tasks)
		closedir(tasks);
}

static void cut(struct areas *a, uintptr_t from, uintptr_t to)
{
	for (size_t i = 0; i < a->n; i++) {
		struct area *one = &a->area[i];

		if (one->start < from) {
			one->off += from - one->start;
			one->start = from;
		}
		if (one->end > to)
			one->end = to;
		if (one->start >= one->end)
			one->plain = false;
	}
}

static int read_lines(const char *path, struct areas *a, uintptr_t from, uintptr_t to)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t room = 0;
	struct area one;
	int err = 0;

	memset(a, 0, sizeof(*a));
	if (!f)
		return -errno;
	while (!err && getline(&line, &room, f) > 0) {
		a->all++;
		if (parse(line, &one) && one.start < to && one.end > from)
			err = add(a, &one);
	}
	free(line);
	fclose(f);
	return err;
}

int areas_read(struct areas *a, uintptr_t from, uintptr_t to)
{
	int err = read_lines("/proc/self/maps", a, from, to);

	if (err)
		return err;
	cut_off_stacks(a);
	cut(a, from, to);
	return 0;
}

int areas_read_of(pid_t pid, struct areas *a, uintptr_t from, uintptr_t to)
{
	char path[32];
	int err;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	err = read_lines(path, a, from, to);
	if (!err)
		cut(a, from, to);
	return err;
}

void areas_free(struct areas *a)
{
	free(a->area);
	memset(a, 0, sizeof(*a));
}
