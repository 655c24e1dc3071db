/* SPDX-License-Identifier: MIT */
#include "base/fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

bool fence_heavy_works(void)
{
#ifdef __SANITIZE_THREAD__ /* sees no barrier that the kernel runs */
	return false;
#else
	return !syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0);
#endif
}

void fence_heavy(void)
{
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0))
		fence_full();
}
