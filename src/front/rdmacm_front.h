/* SPDX-License-Identifier: MIT */
/*
 * What the files of the rdmacm front share. The front checks arguments and speaks errno; src/cm/ does the
 * rest.
 *
 * A function that begins something and has a synchronous id waits for its event at last (rcm_complete), where
 * alone it may be cancelled.
 */
#ifndef FRONT_RDMACM_FRONT_H
#define FRONT_RDMACM_FRONT_H

#include <errno.h>

/* 0 or -errno, as librdmacm's functions say it. */
static inline int rdmacm_result(int err)
{
	if (!err)
		return 0;
	errno = -err;
	return -1;
}

#endif
