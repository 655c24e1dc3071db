/* SPDX-License-Identifier: MIT */
/* The inside of the UDP link, for its parts: udp.c opens and closes, udp_send.c and udp_receive.c move. */
#ifndef LINK_UDP_PARTS_H
#define LINK_UDP_PARTS_H

#include "base/gid.h"
#include "link/link.h"
#include "link/steer.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

enum { UDP_RX_MSGS = 32, UDP_RX_BUF = 65536, UDP_CONTROL = 128 };

struct udp_link {
	struct link link;
	struct steer steer;
	uint16_t port;
	_Atomic bool gso;
	_Atomic bool v6_seen;     /* traffic on IPv6: worth a system call per poll */
	_Atomic int frag4, frag6; /* sockets that may fragment; -1 until needed */
	unsigned polls;
	unsigned at_once; /* messages to receive by the next call: see receive_some() */
	pthread_mutex_t frag_mutex;
	uint8_t *rx_buf;
	struct mmsghdr rx_msg[UDP_RX_MSGS];
	struct iovec rx_iov[UDP_RX_MSGS];
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	} rx_from[UDP_RX_MSGS];
	_Alignas(8) char rx_control[UDP_RX_MSGS][UDP_CONTROL];
};

/* link_ops of this link. */
int link_udp_send(struct link *link, const struct frame_batch *b);
int link_udp_receive(struct link *link, unsigned max, link_deliver_fn *deliver, void *arg);
int link_udp_hand_over(struct link *link, uint32_t slot, const struct frame_in *in, bool wait);

/* Has the kernel drop what is not for us alone and no group's (udp_filter.c). Any thread. */
void link_udp_filter(struct udp_link *l);

/* Message i can be received into (again): the kernel writes over the lengths of what it fills. */
void link_udp_rx_ready(struct udp_link *l, unsigned i);

#endif
