/* SPDX-License-Identifier: MIT */
/* SOCK_STREAM rsockets: not there yet. */
#include "rsocket/rsock.h"

#include <errno.h>

int rsock_stream_new(int domain, struct rsock **out)
{
	return -ESOCKTNOSUPPORT;
}
