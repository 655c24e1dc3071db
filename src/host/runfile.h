/* SPDX-License-Identifier: MIT */
/*
 * A file in the run directory that the processes of a user share. It is read and written by system calls and
 * never mapped: whoever truncates it makes nobody's memory go away. It may be removed (systemd's RemoveIPC
 * does that to all of /dev/shm at a user's logout), emptied, or filled with anything, at any time: what is
 * read is believed by nobody without a check, and a process can tell whether its file is still the one that
 * others will find.
 */
#ifndef HOST_RUNFILE_H
#define HOST_RUNFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct runfile {
	int fd; /* stays the same number when the file is replaced */
	char name[32];
};

/* Opens or makes the file, and room for so much: a full file system is noticed now. 0 or -errno. */
int runfile_open(struct runfile *f, const char *name, size_t room);
void runfile_close(struct runfile *f);
/*
 * Makes sure that the file is the one of that name in the run directory, which is made if need be. true: it
 * is another one now. Locks that were held on the old one are gone with it.
 */
bool runfile_renew(struct runfile *f, size_t room);
/* Reads; what is not there is zeros. How many bytes were there. */
size_t runfile_read(const struct runfile *f, size_t at, void *buf, size_t len);
/* 0 or -errno. */
int runfile_write(const struct runfile *f, size_t at, const void *buf, size_t len);

#endif
