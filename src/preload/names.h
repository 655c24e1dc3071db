/* SPDX-License-Identifier: MIT */
/* Names of sockets: an IPv6 socket may talk IPv4, under mapped addresses. rdma_cm knows no such. */
#ifndef PRELOAD_NAMES_H
#define PRELOAD_NAMES_H

#include "preload/sock.h"

/* A mapped address as the IPv4 address it stands for; any other as it is. */
void name_unmap(struct sock_name *n);

/* Hands a name to the program as getpeername() does: mapped for an IPv6 socket, cut to the program's room. */
void name_give(struct sock_name *n, int domain, struct sockaddr *addr, socklen_t *len);

/* The names of the rsocket (CONNECTED, DATAGRAM) or those of the connection before the fork. Result of
 * rgetpeername and rgetsockname. */
int name_peer(const struct sock *s, struct sock_name *n);
int name_own(const struct sock *s, struct sock_name *n);

#endif
