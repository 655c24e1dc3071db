/* SPDX-License-Identifier: MIT */
#include "preload/names.h"

#include "base/gid.h"

#include <rdma/rsocket.h>
#include <string.h>

void name_unmap(struct sock_name *n)
{
	sockaddr_unmap((struct sockaddr_in6 *)&n->storage);
	if (n->sa.sa_family == AF_INET)
		n->len = sizeof(struct sockaddr_in);
}

static void name_map(struct sock_name *n)
{
	sockaddr_map((struct sockaddr_in6 *)&n->storage);
	if (n->sa.sa_family == AF_INET6)
		n->len = sizeof(struct sockaddr_in6);
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
