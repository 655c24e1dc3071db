/* SPDX-License-Identifier: MIT */
/* Memory that processes share: files that have no name, are passed by a socket, and cannot become shorter. */
#ifndef BASE_MEMFILE_H
#define BASE_MEMFILE_H

#include <stddef.h>

/* Memory to share, zeroed, which nobody can make shorter: a descriptor or -errno. */
int memfile_make(const char *name, size_t size);
/* Once it is mapped: from now on others can only read it. 0 or -errno. */
int memfile_read_only(int fd);
/* Maps what was passed, at a place or (NULL) anywhere: NULL when it is not such memory of this size. */
void *memfile_map(int fd, size_t size, int prot, void *at);
/* Lets go of it, but leaves zeroes to read in its place, for those who look without a lock. */
void memfile_vacate(void *at, size_t size);

#endif
