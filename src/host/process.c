/* SPDX-License-Identifier: MIT */
/* Also part of the anyrdma command, which has no library. */
#include "host/process.h"

#include "host/rundir.h"
#include "host/slot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct host_process) == 32, "it lies in a file");

#define PREFIX "processes-"

void host_process_file(char *buf, size_t len, uint16_t udp_port)
{
	snprintf(buf, len, PREFIX "%u", udp_port);
}

size_t host_process_at(uint32_t slot)
{
	return slot * sizeof(struct host_process);
}

/* ---- who lives ---- */
static struct flock byte_of(uint32_t slot, short type)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = slot, .l_len = 1};
}

int host_process_lock(int fd, uint32_t slot, short type)
{
	struct flock l = byte_of(slot, type);

	return fcntl(fd, F_OFD_SETLK, &l) ? -errno : 0;
}

bool host_process_is_alive(int fd, uint32_t slot)
{
	struct flock l = byte_of(slot, F_WRLCK);

	return fcntl(fd, F_OFD_GETLK, &l) || l.l_type != F_UNLCK;
}

/* ---- who is there ---- */
typedef void each_fn(void *arg, uint32_t slot, const struct host_process *p);

/* Of one file, whatever lies there under that name. */
static void each_in(int dir, const char *name, each_fn *fn, void *arg)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct host_processes all = {0};

	if (fd < 0)
		return;
	if (pread(fd, &all, sizeof(all), 0) < 0)
		memset(&all, 0, sizeof(all));
	for (uint32_t slot = 1; slot < QPN_SLOTS - 1; slot++) {
		if (all.of[slot].version == PROCESS_VERSION && host_process_is_alive(fd, slot))
			fn(arg, slot, &all.of[slot]);
	}
	close(fd);
}

static int open_rundir(void)
{
	char path[200];

	return host_rundir_find(path, sizeof(path)) ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

void host_processes_each(each_fn *fn, void *arg)
{
	int dir = open_rundir();
	DIR *d = dir < 0 ? NULL : fdopendir(dir);
	struct dirent *e;

	if (!d && dir >= 0)
		close(dir);
	while (d && (e = readdir(d))) {
		if (!strncmp(e->d_name, PREFIX, sizeof(PREFIX) - 1))
			each_in(dir, e->d_name, fn, arg);
	}
	if (d)
		closedir(d);
}

static void strike_out(void *arg, uint32_t slot, const struct host_process *p)
{
	slots_del(arg, slot);
}

static struct slots without_entered(struct slots of, uint16_t udp_port)
{
	int dir = open_rundir();
	char name[32];

	host_process_file(name, sizeof(name), udp_port);
	if (dir >= 0) {
		each_in(dir, name, strike_out, &of);
		close(dir);
	}
	return of;
}

void host_processes_ask(uint16_t udp_port, unsigned wait_ms)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	struct slots missing = without_entered(slots_alive(udp_port), udp_port);

	slots_ask_to_look(udp_port, &missing);
	for (unsigned i = 0; i < wait_ms && slots_count(&missing); i++) {
		nanosleep(&ms, NULL);
		missing = without_entered(missing, udp_port);
	}
}
