/* SPDX-License-Identifier: MIT */
/*
 * TCP connections: opened, moved bytes through, closed. Nothing here blocks; who wants to know when a socket
 * has something, or room, polls it. Everything returns -errno where it fails.
 */
#ifndef LINK_TCP_H
#define LINK_TCP_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* v6only: an IPv6 address does not stand for IPv4 too. The descriptor. */
int link_tcp_listen(const struct sockaddr *addr, bool v6only, int backlog);
/* The next connection and its two addresses, IPv4 ones as such. The descriptor; -EAGAIN: none. */
int link_tcp_accept(int fd, struct sockaddr_storage *local, struct sockaddr_storage *remote);
/* Begins to connect. The descriptor: writable once it is known how that went. */
int link_tcp_connect(const struct sockaddr *from, const struct sockaddr *to, uint8_t tclass);
/* How it went; and, when it is connected, from which address. */
int link_tcp_connected(int fd, struct sockaddr_storage *local);

/* Bytes that moved; receiving 0: the peer has closed. */
ssize_t link_tcp_send(int fd, const struct iovec *iov, unsigned n);
ssize_t link_tcp_receive(int fd, const struct iovec *iov, unsigned n);

/* The largest segment that goes to the peer. */
uint32_t link_tcp_mss(int fd);
/* We say no more; the peer may. */
void link_tcp_finish(int fd);
/* Ends it at once: the peer is told that it broke. Closes the descriptor. */
void link_tcp_reset(int fd);

#endif
