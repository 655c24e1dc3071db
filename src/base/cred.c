/* SPDX-License-Identifier: MIT */
/*
 * In a user namespace all users that have no number there look like one, 65534, and so do we if we have none
 * or are that one: the number alone says nothing then. Whom we may send signals to is asked of the kernel,
 * which knows the true ones.
 */
#include "base/cred.h"

#include <signal.h>
#include <unistd.h>

enum { UNKNOWN = 65534 }; /* /proc/sys/kernel/overflowuid, as it comes */

bool user_is_us(const struct ucred *cred)
{
	if (cred->uid != geteuid())
		return false;
	return cred->uid != UNKNOWN || (cred->pid > 0 && !kill(cred->pid, 0));
}
