/* SPDX-License-Identifier: MIT */
/* How a server says to bench/run that it is ready: it listens on a TCP port. */
#ifndef BENCH_LISTEN_H
#define BENCH_LISTEN_H

#include "common.h"

#include <netinet/in.h>
#include <sys/socket.h>

static inline int tcp_listen(const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;

	must(fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
			!bind(fd, (const struct sockaddr *)at, sizeof(*at)) && !listen(fd, 4096),
		"listen");
	return fd;
}

/* A server of RDMA connections: its address may be a fabric's, which no interface of the machine has. */
static inline void tcp_listen_anywhere(in_port_t port)
{
	tcp_listen(&(struct sockaddr_in){.sin_family = AF_INET, .sin_port = port});
}

#endif
