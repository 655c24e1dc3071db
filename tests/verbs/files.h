/* SPDX-License-Identifier: MIT */
/* Memory in files, and what this process has mapped of whose: for the themes shareable, windows and dm. */
#ifndef TESTS_VERBS_FILES_H
#define TESTS_VERBS_FILES_H

#include "fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE ((size_t)4096)

/* A region of another process, as that tells it over the socket. */
struct place {
	uint64_t addr, len; /* len 0: it has no such memory */
	uint64_t inode;
	uint32_t rkey, spare;
};

static inline uint64_t inode_of(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	return st.st_ino;
}

static inline int new_memfd(size_t len)
{
	int fd = memfd_create("shareable", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	return fd;
}

static inline char *map_file(int fd, size_t len, int prot)
{
	char *p = mmap(NULL, len, prot, MAP_SHARED, fd, 0);

	assert_true(p != MAP_FAILED);
	return p;
}

/* Whether peers of this host do things by their own instructions at all. */
static inline bool peers_act(void)
{
	const char *v = getenv("ANYRDMA_LOCAL");

	return !v || (strcmp(v, "off") && strcmp(v, "ring"));
}

/* How this process has the file mapped: "rw-s", "r--s"; "" when it has not. */
static inline void rights_to(uint64_t inode, char rights[8])
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], perms[8];
	unsigned long long found;

	rights[0] = 0;
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%*s %7s %*s %*s %llu", perms, &found) == 2 && found == inode)
			memcpy(rights, perms, sizeof(perms));
	}
	fclose(f);
}

static inline unsigned lines_of(const char *path)
{
	FILE *f = fopen(path, "re");
	unsigned n = 0;
	int c;

	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static inline unsigned open_descriptors(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* ---- requests to a place, awaited ---- */
static inline enum ibv_wc_status act_on(struct vt_ep *a, enum ibv_wr_opcode op, const struct place *to,
	uint64_t off, size_t own, uint32_t len)
{
	vt_post(a, .op = op, .id = 7, .off = own, .len = len, .raddr = to->addr + off, .rkey = to->rkey);
	return vt_wait(a).status;
}

#define must_write(a, to, off, own, len)                                                                     \
	assert_int_equal(act_on(a, IBV_WR_RDMA_WRITE, to, off, own, len), IBV_WC_SUCCESS)
#define must_read(a, to, off, own, len)                                                                      \
	assert_int_equal(act_on(a, IBV_WR_RDMA_READ, to, off, own, len), IBV_WC_SUCCESS)

#endif
