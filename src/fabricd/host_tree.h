/* SPDX-License-Identifier: MIT */
#ifndef FABRICD_HOST_TREE_H
#define FABRICD_HOST_TREE_H

#include "fabricd/fabricd.h"

/* Writes <dir>/sys as the files of this host's adapters are now; dir also has what host_live.h makes, and the
 * issm files. 0 or -errno. */
int host_tree_write(const struct fabricd *d, const struct topo_host *h, const char *dir);

#endif
