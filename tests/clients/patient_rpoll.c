/* SPDX-License-Identifier: MIT */
/*
 * Preloaded for udpong: its rpoll() waits a second where it asks for less.
 *
 * udpong sends again when no answer has come for a millisecond, and takes the next answer, whichever it is,
 * for its new request: an answer that was late by more than that goes round for ever, and one lost datagram
 * then hangs it, over the kernel's UDP likewise. Sent again after a second, nothing is late.
 */
#include <dlfcn.h>
#include <poll.h>

__attribute__((visibility("default"))) int rpoll(struct pollfd *fds, nfds_t n, int timeout);

int rpoll(struct pollfd *fds, nfds_t n, int timeout)
{
	static int (*next)(struct pollfd *, nfds_t, int);

	if (!next)
		next = (int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "rpoll");
	return next(fds, n, timeout > 0 && timeout < 1000 ? 1000 : timeout);
}
