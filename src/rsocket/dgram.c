/* SPDX-License-Identifier: MIT */
/* SOCK_DGRAM rsockets: not there yet. */
#include "rsocket/rsock.h"

#include <errno.h>

int rsock_dgram_new(int domain, struct rsock **out)
{
	return -ESOCKTNOSUPPORT;
}
