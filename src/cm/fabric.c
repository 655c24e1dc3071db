/* SPDX-License-Identifier: MIT */
#include "cm/fabric.h"

#include "base/gid.h"
#include "cm/addr.h"
#include "cm/id.h"
#include "hca/adapter.h"
#include "hca/fabric.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

bool rcm_is_on_fabric(const struct rcm_id *id)
{
	return id->cm->host.adapter->on_fabric;
}

/* ---- addresses ---- */
bool rcm_gid_of(const struct rcm_id *id, const struct sockaddr *addr, uint8_t gid[16])
{
	gid_of_sockaddr(addr, gid);
	return !rcm_is_on_fabric(id) || sockaddr_is_ib(addr) ||
	       hca_fabric_gid_of_ip(id->cm->host.adapter, gid, gid);
}

/* Only a fabric has addresses that are GIDs and no IP addresses. */
bool rcm_address_is_known(const struct rcm_id *id, const struct sockaddr *addr)
{
	return sockaddr_is_ip(addr) || (sockaddr_is_ib(addr) && rcm_is_on_fabric(id));
}

/* Its own; an id of RDMA_PS_IB may have those of IP, too. */
static bool is_space_of(const struct rcm_id *id, uint64_t space)
{
	return space == (uint64_t)id->pub.ps ||
	       (id->pub.ps == RDMA_PS_IB && (space == RDMA_PS_TCP || space == RDMA_PS_UDP));
}

/* A service id is a port space and a port, and the mask says how much of it counts. */
int rcm_choose_service(const struct rcm_id *id, struct sockaddr_ib *sib)
{
	uint64_t mask = be64toh(sib->sib_sid_mask), sid = be64toh(sib->sib_sid) & mask;

	if (!(mask & RDMA_IB_IP_PS_MASK))
		sid = cm_service_id((enum cm_port_space)id->pub.ps, (uint16_t)sid);
	if (!is_space_of(id, cm_service_space(sid)))
		return -EPROTONOSUPPORT;
	sib->sib_sid = htobe64(sid);
	sib->sib_sid_mask = htobe64(RDMA_IB_IP_PS_MASK | RDMA_IB_IP_PORT_MASK);
	return 0;
}

/* ---- the source ---- */
/* The GID of our first port; what it is bound to is its service id already. */
static int source_by_gid(const struct rcm_id *id, struct sockaddr_storage *src)
{
	struct sockaddr_ib sib = *(const struct sockaddr_ib *)&id->pub.route.addr.src_addr;
	const uint8_t loopback[16] = {[15] = 1};

	if (!hca_fabric_gid_of_ip(id->cm->host.adapter, loopback, sib.sib_addr.sib_raw))
		return -ENETUNREACH;
	memcpy(src, &sib, sizeof(sib));
	return 0;
}

/* Our address on the fabric; towards the loopback's it is the loopback's. */
int rcm_fabric_source(const struct rcm_id *id, const struct sockaddr *dst, struct sockaddr_storage *src)
{
	uint8_t ip[16];

	if (sockaddr_is_ib(dst))
		return source_by_gid(id, src);
	gid_of_sockaddr(dst, ip);
	if (!rcm_is_loopback(dst) && !hca_fabric_own_ip(id->cm->host.adapter, dst->sa_family == AF_INET6, ip))
		return -ENETUNREACH;
	gid_to_sockaddr(ip, 0, 0, src);
	return 0;
}

/* ---- requests ---- */
/* Whether it came from the port that has the address which it says, and is answered there. */
static bool is_from(struct rcm_id *id, const struct sockaddr *addr)
{
	struct hca_adapter *a = id->cm->host.adapter;
	uint8_t ip[16];

	gid_of_sockaddr(addr, ip);
	return hca_fabric_ip_has_lid(a, ip, id->path.from_lid) && hca_fabric_ip_has_lid(a, ip, id->path.dlid);
}

/* The addresses of a request that says none are the GIDs of the ports with its LIDs. */
static bool name_by_lids(struct rcm_id *id)
{
	struct hca_adapter *a = id->cm->host.adapter;
	struct rdma_addr *addr = &id->pub.route.addr;

	return id->path.dlid == id->path.from_lid &&
	       hca_fabric_gid_of_lid(
		       a, id->path.slid, ((struct sockaddr_ib *)&addr->src_storage)->sib_addr.sib_raw) &&
	       hca_fabric_gid_of_lid(
		       a, id->path.dlid, ((struct sockaddr_ib *)&addr->dst_storage)->sib_addr.sib_raw);
}

/* On a fabric a request says itself between which addresses it is. */
int rcm_fabric_bind_request(struct rcm_id *id)
{
	const struct rdma_addr *addr = &id->pub.route.addr;
	uint32_t port = id->path.ifindex;

	if (rcm_is_by_gid(id) ? !name_by_lids(id) : !is_from(id, &addr->dst_addr))
		return -ENODEV;
	if (rcm_is_loopback(&addr->src_addr) && !is_from(id, &addr->src_addr))
		return -ENODEV; /* another host has an address of its own for that */
	if (!rcm_gid_of(id, &addr->src_addr, id->path.local) ||
		!rcm_gid_of(id, &addr->dst_addr, id->path.remote) || rcm_bind_device(id, id->path.local, 0))
		return -ENODEV;
	return id->path.ifindex == port ? 0 : -EADDRNOTAVAIL;
}
