/* SPDX-License-Identifier: MIT */
#include "link/none.h"

#include "host/slot.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

struct none_link {
	struct link link;
	int slot_fd;
	unsigned polls;
};

static int none_send(struct link *link, const struct frame_batch *b)
{
	return -ENETDOWN;
}

static int none_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg)
{
	enum { EVERY = 64, AT_ONCE = 64 };
	struct none_link *l = (struct none_link *)link;
	bool look = false;

	if (max && l->polls++ % EVERY)
		return 0;
	for (int i = 0; i < AT_ONCE; i++) {
		uint8_t datagram[64];
		ssize_t len = slot_receive(l->slot_fd, datagram, sizeof(datagram));

		if (len < 0)
			break;
		look |= slot_is_look(datagram, (size_t)len);
	}
	if (look && link->look)
		link->look(link->look_arg);
	return 0;
}

static int none_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait)
{
	return -ESRCH;
}

static int none_fds(struct link *link, int fds[4])
{
	fds[0] = ((struct none_link *)link)->slot_fd;
	return 1;
}

static int none_mcast(struct link *link, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	return -ENETDOWN;
}

static void none_abandon(struct link *link)
{
	close(((struct none_link *)link)->slot_fd);
}

static void none_close(struct link *link)
{
	none_abandon(link);
	free(link);
}

static const struct link_ops none_ops = {
	.send = none_send,
	.receive = none_receive,
	.hand_over = none_hand_over,
	.fds = none_fds,
	.mcast = none_mcast,
	.close = none_close,
	.abandon = none_abandon,
};

int link_none_open(struct link **out, uint16_t port, uint32_t *slot)
{
	struct none_link *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->link.ops = &none_ops;
	l->slot_fd = slot_claim(port, slot);
	if (l->slot_fd < 0) {
		int err = l->slot_fd;

		free(l);
		return err;
	}
	*out = &l->link;
	return 0;
}
