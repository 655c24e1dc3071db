/* SPDX-License-Identifier: MIT */
#include "hca/fabric.h"

#include "base/bytes.h"
#include "base/gid.h"
#include "fabric/attach.h"
#include "fabric/names.h"
#include "fabric/shared.h"
#include "hca/adapter.h"
#include "hca/device.h"

#include <string.h>

/* The fabric that is there now, locked; NULL, and not locked: none is. */
static const struct fabric_attachment *lock_fabric(struct hca_adapter *a)
{
	const struct fabric_attachment *f;

	if (!a->on_fabric)
		return NULL;
	lock_take(&a->fabric_lock);
	f = a->fabric;
	if (!f)
		lock_drop(&a->fabric_lock);
	return f;
}

static bool unlock(struct hca_adapter *a, bool result)
{
	lock_drop(&a->fabric_lock);
	return result;
}

static bool is_loopback(const uint8_t ip[16])
{
	static const uint8_t v6[16] = {[15] = 1};

	return gid_same(ip, v6) || (gid_is_v4(ip) && ip[12] == 127);
}

/* ---- our own ports ---- */
/* The n-th port of the host's adapters; FABRIC_NONE: behind the last. */
static uint32_t own_port(const struct fabric_attachment *f, unsigned n)
{
	for (unsigned i = 0; i < f->welcome.nhcas; n -= f->welcome.hca[i++].nports)
		if (n < f->welcome.hca[i].nports)
			return f->welcome.hca[i].port[n];
	return FABRIC_NONE;
}

/* The first that is up, else the first: of those with an address of the family, where one is wanted. */
static uint32_t first_port(const struct fabric_attachment *f, const bool *v6)
{
	uint32_t first = FABRIC_NONE, at;

	for (unsigned i = 0; (at = own_port(f, i)) != FABRIC_NONE; i++) {
		const struct fabric_port *p = fabric_port(f->table, at);

		if (!p || (v6 && !fabric_names_of_port(f->names, at, *v6)))
			continue;
		if (p->state == PORT_ACTIVE)
			return at;
		first = first == FABRIC_NONE ? at : first;
	}
	return first;
}

static bool gid_of_port(const struct fabric_attachment *f, uint32_t port, uint8_t gid[16])
{
	const struct fabric_port *p = fabric_port(f->table, port);

	if (!p || !p->guid[0])
		return false;
	put_be64(gid, p->prefix);
	put_be64(gid + 8, p->guid[0]);
	return true;
}

static uint32_t port_of_gid(const struct fabric_attachment *f, const uint8_t gid[16])
{
	for (uint32_t i = 0; i < f->names->nips; i++) {
		const struct fabric_ip *ip = fabric_names_ip(f->names, i);
		uint8_t own[16];

		if (gid_of_port(f, ip->port, own) && gid_same(own, gid))
			return ip->port;
	}
	return FABRIC_NONE;
}

static bool copy_ip(const struct fabric_ip *from, uint8_t ip[16])
{
	if (from)
		memcpy(ip, from->addr, 16);
	return from;
}

static uint32_t port_of_ip(const struct fabric_attachment *f, const uint8_t ip[16])
{
	const struct fabric_ip *found = fabric_names_find(f->names, ip);

	return found ? found->port : is_loopback(ip) ? first_port(f, NULL) : FABRIC_NONE;
}

/* ---- questions ---- */
bool hca_fabric_gid_of_ip(struct hca_adapter *a, const uint8_t ip[16], uint8_t gid[16])
{
	const struct fabric_attachment *f = lock_fabric(a);

	return f && unlock(a, gid_of_port(f, port_of_ip(f, ip), gid));
}

bool hca_fabric_gid_of_lid(struct hca_adapter *a, uint16_t lid, uint8_t gid[16])
{
	const struct fabric_attachment *f = lock_fabric(a);

	return f && unlock(a, gid_of_port(f, fabric_lid_port(f->table, lid), gid));
}

bool hca_fabric_ip_has_lid(struct hca_adapter *a, const uint8_t ip[16], uint16_t lid)
{
	const struct fabric_attachment *f = lock_fabric(a);
	const struct fabric_port *p = f ? fabric_port(f->table, port_of_ip(f, ip)) : NULL;

	return f && unlock(a, p && fabric_port_has_lid(p, lid));
}

bool hca_fabric_ip_of_gid(struct hca_adapter *a, const uint8_t gid[16], bool v6, uint8_t ip[16])
{
	const struct fabric_attachment *f = lock_fabric(a);

	return f && unlock(a, copy_ip(fabric_names_of_port(f->names, port_of_gid(f, gid), v6), ip));
}

bool hca_fabric_ip_of_name(struct hca_adapter *a, const char *host, bool v6, uint8_t ip[16])
{
	const struct fabric_attachment *f = lock_fabric(a);

	return f && unlock(a, copy_ip(fabric_names_of_host(f->names, host, v6), ip));
}

bool hca_fabric_own_ip(struct hca_adapter *a, bool v6, uint8_t ip[16])
{
	const struct fabric_attachment *f = lock_fabric(a);

	return f && unlock(a, copy_ip(fabric_names_of_port(f->names, first_port(f, &v6), v6), ip));
}

void hca_fabric_path_to_sm(struct hca_adapter *a, struct frame_dest *to)
{
	const struct fabric_port *p = fabric_port(atomic_load(&a->table), to->ifindex - 1);

	if (!p)
		return;
	to->slid = p->lid;
	to->dlid = p->sm_lid;
	to->sl = p->sm_sl;
}

uint32_t hca_fabric_host_tag(struct hca_adapter *a)
{
	return atomic_load(&a->host_tag);
}
