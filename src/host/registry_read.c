/* SPDX-License-Identifier: MIT */
/* Reading what other processes show of themselves. Also part of the anyrdma command, which has no library. */
#include "host/registry.h"

#include "host/rundir.h"
#include "host/slot.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

bool host_registry_read(int dir, const char *name, struct host_registry_file *f)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	bool ok;

	if (fd < 0)
		return false;
	/* Who holds the lock lives. */
	ok = flock(fd, LOCK_SH | LOCK_NB) && read(fd, f, sizeof(*f)) == (ssize_t)sizeof(*f) &&
	     f->magic == REGISTRY_MAGIC && f->version == REGISTRY_VERSION;
	close(fd);
	return ok;
}

const struct host_registry_counters *host_registry_attach(const struct host_registry_file *f)
{
	const struct host_registry_counters *c;
	struct shmid_ds ds;

	/* Its number may be another's by now, or a lie. */
	if (f->segment < 0 || shmctl(f->segment, IPC_STAT, &ds) || ds.shm_segsz < sizeof(*c) ||
		ds.shm_perm.uid != geteuid())
		return NULL;
	c = shmat(f->segment, NULL, SHM_RDONLY);
	if (c == (void *)-1)
		return NULL;
	if (c->magic == REGISTRY_MAGIC && c->version == REGISTRY_VERSION && c->pid == f->pid &&
		c->slot == f->slot && c->nqps <= REGISTRY_QPS)
		return c;
	shmdt(c);
	return NULL;
}

void host_registry_detach(const struct host_registry_counters *c)
{
	shmdt(c);
}

/* ---- who should be there ---- */
static struct slots without_listed(struct slots of)
{
	struct host_registry_file f;
	struct dirent *e;
	char path[200];
	DIR *d;

	if (base_rundir_find(path, sizeof(path)) || !(d = opendir(path)))
		return of;
	while ((e = readdir(d))) {
		if (!strncmp(e->d_name, "adapter-", 8) && host_registry_read(dirfd(d), e->d_name, &f) &&
			f.slot < SLOTS)
			slots_del(&of, f.slot);
	}
	closedir(d);
	return of;
}

void host_registry_ask(uint16_t port, unsigned wait_ms)
{
	const struct timespec ms = {.tv_nsec = 1000000};
	struct slots missing = without_listed(slots_alive(port));

	slots_ask_to_look(port, &missing);
	for (unsigned i = 0; i < wait_ms && slots_count(&missing); i++) {
		nanosleep(&ms, NULL);
		missing = without_listed(missing);
	}
}
