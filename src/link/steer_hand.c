/* SPDX-License-Identifier: MIT */
/* Packets that reached the wrong process, and what else processes tell each other through their slots. */
#include "link/steer_parts.h"

#include "base/clock.h"
#include "base/guard.h"
#include "host/slot.h"
#include "wire/ibt.h"

#include <errno.h>
#include <string.h>

enum { IN_VAIN_MS = 20 }; /* after waiting for room in vain: when it is tried again */

struct hand {
	uint8_t sgid[16], dgid[16];
	uint32_t ifindex, len;
	uint8_t tclass, hop_limit;
};

/* A Unix socket holds ten datagrams where nobody raised net.unix.max_dgram_qlen: bursts have to wait. */
static int send_waiting(struct steer *s, const struct msghdr *m)
{
	uint64_t last = atomic_load(&s->in_vain_at);

	if (last && clock_ms() < last + IN_VAIN_MS)
		return -EAGAIN;
	if (sendmsg(s->hand_fd, m, MSG_NOSIGNAL) >= 0)
		return 0;
	if (errno != EAGAIN)
		return -errno;
	atomic_store(&s->in_vain_at, clock_ms());
	return -EAGAIN;
}

int steer_hand_over(struct steer *s, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct hand h = {
		.ifindex = in->ifindex, .len = in->len, .tclass = in->tclass, .hop_limit = in->hop_limit};
	struct iovec iov[2] = {{&h, sizeof(h)}, {(void *)in->bytes, in->len}};
	struct sockaddr_un sa;
	struct msghdr m = {.msg_name = &sa,
		.msg_namelen = slot_address(&sa, s->port, slot),
		.msg_iov = iov,
		.msg_iovlen = 2};

	memcpy(h.sgid, in->sgid, 16);
	memcpy(h.dgid, in->dgid, 16);
	if (sendmsg(s->hand_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		return 0;
	return wait && errno == EAGAIN ? send_waiting(s, &m) : -errno;
}

bool steer_hand_parse(const uint8_t *datagram, size_t len, struct frame_in *in)
{
	struct hand h;

	if (len < sizeof(h) + BTH_LEN)
		return false;
	memcpy(&h, datagram, sizeof(h));
	if (h.len != len - sizeof(h))
		return false;
	*in = (struct frame_in){.bytes = datagram + sizeof(h),
		.len = h.len,
		.ifindex = h.ifindex,
		.tclass = h.tclass,
		.hop_limit = h.hop_limit,
		.handed = true};
	memcpy(in->sgid, h.sgid, 16);
	memcpy(in->dgid, h.dgid, 16);
	return true;
}

int steer_receive(struct steer *s, unsigned max, void (*deliver)(void *, const struct frame_in *), void *arg)
{
	bool look = false;
	unsigned n = 0;

	for (; n < max; n++) {
		uint8_t datagram[sizeof(struct hand) + 8192];
		ssize_t len = slot_receive(s->hand_fd, datagram, sizeof(datagram));
		struct frame_in in;

		if (len < 0)
			break;
		guard_doubt();
		if (steer_hand_parse(datagram, (size_t)len, &in))
			deliver(arg, &in);
		else
			look |= slot_is_look(datagram, (size_t)len);
	}
	if (look)
		steer_look(s, true);
	return (int)n;
}
