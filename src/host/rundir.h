/* SPDX-License-Identifier: MIT */
/* The directory in which the processes of one user and one network namespace find each other. */
#ifndef HOST_RUNDIR_H
#define HOST_RUNDIR_H

#include <stddef.h>

/* host_rundir writes the path of the run directory to buf and creates it (mode 0700) when it is not
 * there: <top>/net-<inode of the network namespace>, where <top> is $ANYRDMA_DIR, else
 * /dev/shm/anyrdma-<uid>, else /tmp/anyrdma-<uid>. Refuses a directory that belongs to somebody else,
 * that others can write to, or that is a symbolic link (-EPERM). Returns 0 or -errno. Takes no lock,
 * allocates nothing, safe from any thread. */
int host_rundir(char *buf, size_t len);

/* host_rundir_find is host_rundir for those who only look: it creates nothing, -ENOENT when it is not
 * there. Also safe in a signal handler. */
int host_rundir_find(char *buf, size_t len);

#endif
