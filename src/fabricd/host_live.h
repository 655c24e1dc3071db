/* SPDX-License-Identifier: MIT */
/*
 * Files of a host that answer: counters, which are written anew each second as long as somebody reads them,
 * and descriptions of adapters, which take what is written to them. They lie beside the host's tree, which
 * has links to them:
 *
 *   <dir>/counters0/…     of the host's first port, a file for each
 *   <dir>/node_desc0      of its first adapter
 */
#ifndef FABRICD_HOST_LIVE_H
#define FABRICD_HOST_LIVE_H

#include "fabricd/fabricd.h"

#include <sys/inotify.h>

struct host_live;

/* Makes the files in dir, watched by `inotify`, whose events are host_live_event()'s. 0 or -errno. */
int host_live_open(
	struct fabricd *d, const struct topo_host *h, const char *dir, int inotify, struct host_live **out);
void host_live_close(struct host_live *l); /* may be NULL; the files stay */
/* Whether it was an event of one of these files. */
bool host_live_event(struct host_live *l, const struct inotify_event *e);
/* Writes the counters as they are now. */
void host_live_refresh(struct host_live *l);

#endif
