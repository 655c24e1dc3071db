/* SPDX-License-Identifier: MIT */
#include "hca/evq.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

int hca_evq_init(struct hca_evq *q)
{
	q->fd = fd_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
	if (q->fd < 0)
		return -errno;
	lock_init(&q->lock);
	list_init(&q->events);
	return 0;
}

void hca_evq_fini(struct hca_evq *q)
{
	close(q->fd);
	lock_fini(&q->lock);
}

void hca_evq_signal(struct hca_evq *q)
{
	uint64_t one = 1;

	/* Past libc, here and below: under the caller's locks nobody is cancelled. */
	while (syscall(SYS_write, q->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void hca_evq_unsignal(struct hca_evq *q)
{
	uint64_t v;
	struct iovec iov = {.iov_base = &v, .iov_len = sizeof(v)};

	/*
	 * A reader may take the unit at any moment and then wait for the lock that our caller holds: this
	 * must not block, though the descriptor may be a blocking one.
	 */
	syscall(SYS_preadv2, q->fd, &iov, 1, -1L, -1L, RWF_NOWAIT);
}

int hca_evq_wait(struct hca_evq *q)
{
	uint64_t v;

	return read(q->fd, &v, sizeof(v)) < 0 ? -errno : 0;
}
