/* SPDX-License-Identifier: MIT */
/*
 * Destinations of a datagram rsocket. Anybody can make us remember an address by a UDP packet, so only so
 * many are kept; the one used longest ago goes. It is learnt anew when it is needed.
 */
#include "rsocket/dgram.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>

enum { MOST_DESTS = 1024 };

int dg_addr_read(union dg_addr *a, const struct sockaddr *addr, socklen_t len)
{
	if (!addr || len < sizeof(addr->sa_family))
		return -EINVAL;
	if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	if (len < sockaddr_len(addr))
		return -EINVAL;
	memset(a, 0, sizeof(*a));
	memcpy(a, addr, sockaddr_len(addr));
	sockaddr_unmap(&a->in6);
	return 0;
}

void dg_addr_map(const struct dgram *d, union dg_addr *a)
{
	if (d->rs.domain == AF_INET6)
		sockaddr_map(&a->in6);
}

bool dg_addr_equal(const union dg_addr *a, const union dg_addr *b)
{
	if (a->sa.sa_family != b->sa.sa_family || a->in.sin_port != b->in.sin_port)
		return false;
	if (a->sa.sa_family == AF_INET)
		return a->in.sin_addr.s_addr == b->in.sin_addr.s_addr;
	return !memcmp(&a->in6.sin6_addr, &b->in6.sin6_addr, 16) &&
	       a->in6.sin6_scope_id == b->in6.sin6_scope_id;
}

void dg_dest_free(struct dgram *d, struct dg_dest *dest)
{
	list_del(&dest->node);
	d->ndests--;
	if (dest->ah)
		ibv_destroy_ah(dest->ah);
	free(dest);
}

static struct dg_dest *find(struct dgram *d, const union dg_addr *addr)
{
	/* from the one used last */
	for (struct list *n = d->dests.prev; n != &d->dests; n = n->prev) {
		struct dg_dest *dest = container_of(n, struct dg_dest, node);

		if (dg_addr_equal(&dest->addr, addr))
			return dest;
	}
	return NULL;
}

int dg_dest_get(struct dgram *d, const union dg_addr *addr, struct dg_dest **out)
{
	struct dg_dest *dest = find(d, addr);
	int err;

	assert_locked(&d->lock);
	if (!dest) {
		struct dg_qp *qp;

		err = dg_qp_towards(d, addr, &qp);
		if (err)
			return err;
		dest = calloc(1, sizeof(*dest));
		if (!dest)
			return -ENOMEM;
		list_init(&dest->node);
		dest->addr = *addr;
		dest->qp = qp;
		if (d->ndests == MOST_DESTS)
			dg_dest_free(d, container_of(d->dests.next, struct dg_dest, node));
		d->ndests++;
	}
	list_del(&dest->node);
	list_add_tail(&d->dests, &dest->node);
	*out = dest;
	return 0;
}

/* ---- the way to its QP ---- */

static int gid_index(struct rdma_cm_id *id, const union ibv_gid *gid)
{
	struct ibv_port_attr port;
	union ibv_gid entry;

	if (ibv_query_port(id->verbs, id->port_num, &port))
		return -ENODEV;
	for (int i = 0; i < port.gid_tbl_len; i++)
		if (!ibv_query_gid(id->verbs, id->port_num, i, &entry) && !memcmp(&entry, gid, sizeof(entry)))
			return i;
	return -EADDRNOTAVAIL;
}

static int make_ah(struct dg_dest *dest, const struct rdma_cm_id *resolver)
{
	const struct ibv_sa_path_rec *path = resolver->route.path_rec;
	struct rdma_cm_id *id = dest->qp->id;
	struct ibv_ah_attr attr = {
		.dlid = be16toh(path->dlid),
		.sl = path->sl,
		.static_rate = path->rate,
		.port_num = id->port_num,
		.is_global = 1,
		.grh = {.dgid = path->dgid,
			.flow_label = be32toh(path->flow_label),
			.hop_limit = path->hop_limit,
			.traffic_class = path->traffic_class},
	};
	int index = gid_index(id, &path->sgid);

	if (index < 0)
		return index;
	attr.grh.sgid_index = (uint8_t)index;
	dest->ah = ibv_create_ah(id->qp->pd, &attr);
	return dest->ah ? 0 : -errno;
}

/*
 * Never waits: the packet may be in the name of a neighbour that is not there. One that the kernel must look
 * for first is learnt by a later packet; until then messages go by UDP.
 */
static int resolve(struct dg_dest *dest, struct rdma_cm_id *resolver)
{
	union dg_addr from = dest->qp->at;

	from.in.sin_port = 0;
	if (fcntl(resolver->channel->fd, F_SETFL, fcntl(resolver->channel->fd, F_GETFL) | O_NONBLOCK))
		return -errno;
	if (rdma_resolve_addr(resolver, &from.sa, &dest->addr.sa, 0) || rdma_resolve_route(resolver, 0))
		return -errno;
	return make_ah(dest, resolver);
}

int dg_dest_learn(struct dg_dest *dest, uint32_t qpn)
{
	struct rdma_cm_id *resolver;
	int err;

	dest->qpn = qpn;
	if (dest->ah)
		return 0;
	if (rdma_create_id(NULL, &resolver, NULL, RDMA_PS_UDP))
		return -errno;
	err = resolve(dest, resolver);
	rdma_destroy_id(resolver);
	return err;
}
