/* SPDX-License-Identifier: MIT */
/* The socket `umad`, for libibumad: what the kernel's umad devices are to a host (fabric/proto.h). */
#include "fabricd/umad_parts.h"

#include "base/log.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static void expire(void *arg, uint64_t now)
{
	struct umad *u = arg;

	list_for_each(pos, &u->qps) ibmad_expire(&container_of(pos, struct umad_qp, node)->mad, now);
}

/* Whatever this round brought is sent, and the first deadline of all is the timer's. */
static void before_sleep(void *arg, uint64_t now)
{
	struct umad *u = arg;
	uint64_t first = UINT64_MAX;

	umad_qp_flush(u);
	list_for_each(pos, &u->qps)
	{
		uint64_t due = ibmad_deadline(&container_of(pos, struct umad_qp, node)->mad);

		if (due < first)
			first = due;
	}
	loop_timer_set(u->d->loop, &u->timer, first);
}

int umad_open(struct fabricd *d)
{
	struct umad *u = calloc(1, sizeof(*u));
	int err;

	if (!u)
		return -ENOMEM;
	u->d = d;
	list_init(&u->conns);
	list_init(&u->qps);
	list_init(&u->out);
	loop_timer_init(&u->timer, expire, u);
	u->listener = fabricd_listen(d, "umad", SOCK_STREAM);
	err = u->listener < 0 ? u->listener : loop_add(d->loop, u->listener, EPOLLIN, umad_conn_accept, u);
	if (err) {
		if (u->listener >= 0)
			close(u->listener);
		free(u);
		return err;
	}
	loop_before_sleep(d->loop, before_sleep, u);
	d->umad = u;
	return 0;
}

void umad_close(struct fabricd *d)
{
	struct umad *u = d->umad;

	if (!u)
		return;
	list_for_each_safe(pos, &u->conns) umad_conn_close(container_of(pos, struct umad_conn, node));
	u->d->umad = NULL;
	for (struct list *l; (l = list_pop(&u->out));)
		free(l); /* the first member */
	loop_timer_stop(&u->timer);
	loop_remove(d->loop, u->listener);
	close(u->listener);
	free(u);
}

/* What programs know of a port they ask for; what happens to it reaches them by MADs. */
void umad_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what)
{
}
