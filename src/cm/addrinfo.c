/* SPDX-License-Identifier: MIT */
/* Addresses for endpoints, by name. */
#include "cm/addrinfo.h"

#include "base/gid.h"
#include "cm/verbs.h"
#include "hca/adapter.h"
#include "hca/fabric.h"

#include <endian.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static int copy_address(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from, socklen_t len)
{
	*to = malloc(len);
	if (!*to)
		return EAI_MEMORY;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

static char *copy_name(const char *name)
{
	return name ? strdup(name) : NULL;
}

/* The address of a host of our fabric, as text, in the place of its name: of IPv4, where either will do. */
static const char *address_of(const char *node, int family, char text[INET6_ADDRSTRLEN])
{
	struct hca_adapter *a = node ? verbs_adapter() : NULL;
	uint8_t ip[16];

	if (!a || !a->on_fabric)
		return node;
	ibv_free_device_list(ibv_get_device_list(NULL)); /* whoever asks is attached to the fabric */
	if (family != AF_INET6 && hca_fabric_ip_of_name(a, node, false, ip))
		return inet_ntop(AF_INET, ip + 12, text, INET6_ADDRSTRLEN);
	if (family != AF_INET && hca_fabric_ip_of_name(a, node, true, ip))
		return inet_ntop(AF_INET6, ip, text, INET6_ADDRSTRLEN);
	return node;
}

/* An address of IPv6 is a GID, its port one of the port space. */
static int copy_as_gid(struct sockaddr **to, socklen_t *to_len, const struct addrinfo *found, int ps)
{
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)found->ai_addr;
	uint64_t port = ntohs(in6->sin6_port);
	const struct sockaddr_ib sib = {.sib_family = AF_IB,
		.sib_pkey = htobe16(UINT16_MAX),
		.sib_flowinfo = in6->sin6_flowinfo,
		.sib_sid = htobe64((uint64_t)ps << 16 | port),
		.sib_sid_mask = htobe64((ps ? RDMA_IB_IP_PS_MASK : 0) | (port ? RDMA_IB_IP_PORT_MASK : 0)),
		.sib_scope_id = in6->sin6_scope_id};
	int err = copy_address(to, to_len, (const struct sockaddr *)&sib, sizeof(sib));

	if (!err)
		memcpy(&((struct sockaddr_ib *)*to)->sib_addr, &in6->sin6_addr, 16);
	return err;
}

static int copy_found(struct sockaddr **to, socklen_t *to_len, const struct addrinfo *found, bool gid, int ps)
{
	return gid ? copy_as_gid(to, to_len, found, ps)
		   : copy_address(to, to_len, found->ai_addr, found->ai_addrlen);
}

static int look_up(const char *node, const char *service, const struct rdma_addrinfo *hints, bool passive,
	struct rdma_addrinfo *out)
{
	struct addrinfo ask = {.ai_socktype = hints->ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM},
			*found;
	const bool gid = hints->ai_flags & RAI_FAMILY && hints->ai_family == AF_IB;
	char text[INET6_ADDRSTRLEN];
	int err;

	if (hints->ai_flags & RAI_NUMERICHOST)
		ask.ai_flags |= AI_NUMERICHOST;
	if (passive)
		ask.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_FAMILY)
		ask.ai_family = gid ? AF_INET6 : hints->ai_family;
	if (!(hints->ai_flags & RAI_NUMERICHOST))
		node = address_of(node, ask.ai_family, text);
	err = getaddrinfo(node, service, &ask, &found);
	if (err)
		return err;
	out->ai_family = gid ? AF_IB : found->ai_family;
	if (passive) {
		err = copy_found(&out->ai_src_addr, &out->ai_src_len, found, gid, out->ai_port_space);
		out->ai_src_canonname = copy_name(found->ai_canonname);
	} else {
		err = copy_found(&out->ai_dst_addr, &out->ai_dst_len, found, gid, out->ai_port_space);
		out->ai_dst_canonname = copy_name(found->ai_canonname);
	}
	freeaddrinfo(found);
	return err;
}

/* A port space goes with a kind of QP; the program may have said either. */
static void complete_kind(struct rdma_addrinfo *ai)
{
	if (!ai->ai_qp_type)
		ai->ai_qp_type = ai->ai_port_space == RDMA_PS_UDP || ai->ai_port_space == RDMA_PS_IPOIB
					 ? IBV_QPT_UD
					 : IBV_QPT_RC;
	if (!ai->ai_port_space)
		ai->ai_port_space = ai->ai_qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

int rcm_addrinfo_get(
	const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **out)
{
	struct rdma_addrinfo *ai = calloc(1, sizeof(*ai));
	int err = 0;

	if (!ai)
		return EAI_MEMORY;
	ai->ai_flags = hints->ai_flags;
	ai->ai_family = hints->ai_family;
	ai->ai_qp_type = hints->ai_qp_type;
	ai->ai_port_space = hints->ai_port_space;
	complete_kind(ai);
	if (node || service)
		err = look_up(node, service, hints, hints->ai_flags & RAI_PASSIVE, ai);
	if (!err && !ai->ai_src_addr && hints->ai_src_addr && hints->ai_src_len)
		err = copy_address(&ai->ai_src_addr, &ai->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	if (!err && !ai->ai_dst_addr && hints->ai_dst_addr && hints->ai_dst_len)
		err = copy_address(&ai->ai_dst_addr, &ai->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len);
	if (err)
		rcm_addrinfo_free(ai);
	else
		*out = ai;
	return err;
}

void rcm_addrinfo_free(struct rdma_addrinfo *ai)
{
	while (ai) {
		struct rdma_addrinfo *next = ai->ai_next;

		free(ai->ai_src_addr);
		free(ai->ai_dst_addr);
		free(ai->ai_src_canonname);
		free(ai->ai_dst_canonname);
		free(ai->ai_route);
		free(ai->ai_connect);
		free(ai);
		ai = next;
	}
}
