/* SPDX-License-Identifier: MIT */
/* Reading what other processes show of themselves. Also part of the anyrdma command, which has no library. */
#include "hca/registry.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/shm.h>
#include <unistd.h>

bool hca_registry_read(int dir, const char *name, struct hca_registry_file *f)
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

const struct hca_registry_counters *hca_registry_attach(const struct hca_registry_file *f)
{
	const struct hca_registry_counters *c;
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

void hca_registry_detach(const struct hca_registry_counters *c)
{
	shmdt(c);
}
