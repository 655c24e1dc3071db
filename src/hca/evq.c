/* SPDX-License-Identifier: MIT */
#include "hca/evq.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <poll.h>
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

	while (write(q->fd, &one, sizeof(one)) < 0 && errno == EINTR)
		;
}

void hca_evq_unsignal(struct hca_evq *q)
{
	struct pollfd p = {.fd = q->fd, .events = POLLIN};
	uint64_t v;

	/* The descriptor may be blocking; a reader may have taken the unit and be waiting for q->lock. */
	if (poll(&p, 1, 0) == 1 && read(q->fd, &v, sizeof(v)) < 0)
		return;
}

int hca_evq_wait(struct hca_evq *q)
{
	uint64_t v;

	return read(q->fd, &v, sizeof(v)) < 0 ? -errno : 0;
}
