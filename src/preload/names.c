/* SPDX-License-Identifier: MIT */
#include "preload/names.h"

#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <string.h>

void name_unmap(struct sock_name *n)
{
	struct sockaddr_in6 six;
	struct sockaddr_in four = {.sin_family = AF_INET};

	memcpy(&six, &n->storage, sizeof(six));
	if (six.sin6_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six.sin6_addr))
		return;
	four.sin_port = six.sin6_port;
	memcpy(&four.sin_addr, six.sin6_addr.s6_addr + 12, 4);
	memcpy(&n->storage, &four, sizeof(four));
	n->len = sizeof(four);
}

static void name_map(struct sock_name *n)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6};
	struct sockaddr_in four;

	memcpy(&four, &n->storage, sizeof(four));
	if (four.sin_family != AF_INET)
		return;
	six.sin6_port = four.sin_port;
	six.sin6_addr.s6_addr[10] = six.sin6_addr.s6_addr[11] = 0xff;
	memcpy(six.sin6_addr.s6_addr + 12, &four.sin_addr, 4);
	memcpy(&n->storage, &six, sizeof(six));
	n->len = sizeof(six);
}

void name_give(struct sock_name *n, int domain, struct sockaddr *addr, socklen_t *len)
{
	if (domain == AF_INET6)
		name_map(n);
	if (!addr || !len)
		return;
	memcpy(addr, &n->storage, *len < n->len ? *len : n->len);
	*len = n->len;
}

int name_peer(const struct sock *s, struct sock_name *n)
{
	if (s->state == SOCK_RELAYED) {
		*n = s->peer;
		return 0;
	}
	n->len = sizeof(n->storage);
	return rgetpeername(s->rs, &n->sa, &n->len);
}

int name_own(const struct sock *s, struct sock_name *n)
{
	if (s->state == SOCK_RELAYED) {
		*n = s->name;
		return 0;
	}
	n->len = sizeof(n->storage);
	return rgetsockname(s->rs, &n->sa, &n->len);
}
