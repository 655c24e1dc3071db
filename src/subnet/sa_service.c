/* SPDX-License-Identifier: MIT */
/* ServiceRecords (IBA volume 1, 15.2.5.14): who offers what, for as long as a lease says. */
#include "subnet/sm_parts.h"

#include <stdlib.h>

enum { RECORD_LEN = 176, KEY_LEN = 16, ID_LEN = SERVICE_PKEY + 2, NEEDS = SERVICE_HAS_ID | SERVICE_HAS_GID };
#define FOR_EVER UINT32_MAX
#define SECOND   1000000000ull

struct service {
	struct list node;
	uint64_t due;
	uint8_t record[RECORD_LEN];
};

static void drop(struct subnet_sm *m, struct service *v)
{
	list_del(&v->node);
	free(v);
	m->sa.nservices--;
}

/* Leases run out when somebody looks. */
static void drop_old(struct subnet_sm *m, uint64_t now)
{
	list_for_each_safe(pos, &m->sa.services)
	{
		struct service *v = container_of(pos, struct service, node);

		if (v->due <= now)
			drop(m, v);
	}
}

/* A service is the same when its id, GID and P_Key are. */
static struct service *find(const struct subnet_sm *m, const uint8_t *record)
{
	list_for_each(pos, &m->sa.services)
	{
		struct service *v = container_of(pos, struct service, node);

		if (!memcmp(v->record, record, ID_LEN))
			return v;
	}
	return NULL;
}

uint16_t sa_get_services(struct sa_request *r)
{
	drop_old(r->m, r->now);
	list_for_each(pos, &r->m->sa.services)
	{
		const struct service *v = container_of(pos, struct service, node);
		uint8_t record[RECORD_LEN];

		memcpy(record, v->record, RECORD_LEN);
		if (v->due != SUBNET_NEVER)
			put_be32(record + SERVICE_LEASE, (uint32_t)((v->due - r->now) / SECOND));
		if (!sa_matches(r->record, r->mask, r->data, v->record))
			continue;
		if (!r->trusted)
			memset(record + SERVICE_KEY, 0, KEY_LEN);
		if (!sa_add(r, record))
			return SA_NO_RESOURCES;
	}
	return MAD_STATUS_OK;
}

uint16_t sa_set_service(struct sa_request *r)
{
	uint32_t lease = get_be32(r->data + SERVICE_LEASE);
	struct service *v;

	drop_old(r->m, r->now);
	if ((r->mask & NEEDS) != NEEDS)
		return SA_FEW_COMPONENTS;
	v = find(r->m, r->data);
	if (!v && r->m->sa.nservices < SA_SERVICES) {
		v = calloc(1, sizeof(*v));
		if (v) {
			list_add_tail(&r->m->sa.services, &v->node);
			r->m->sa.nservices++;
		}
	}
	if (!v)
		return SA_NO_RESOURCES;
	memcpy(v->record, r->data, RECORD_LEN);
	v->due = !lease || lease == FOR_EVER ? SUBNET_NEVER : r->now + lease * SECOND;
	return sa_add(r, v->record) ? MAD_STATUS_OK : SA_NO_RESOURCES;
}

uint16_t sa_delete_service(struct sa_request *r)
{
	struct service *v;
	bool ok;

	drop_old(r->m, r->now);
	if ((r->mask & NEEDS) != NEEDS)
		return SA_FEW_COMPONENTS;
	v = find(r->m, r->data);
	if (!v || !sa_matches(r->record, r->mask, r->data, v->record)) /* its key, if that is named */
		return SA_NO_RECORDS;
	ok = sa_add(r, v->record);
	drop(r->m, v);
	return ok ? MAD_STATUS_OK : SA_NO_RESOURCES;
}

void sa_services_forget(struct subnet_sm *m)
{
	list_for_each_safe(pos, &m->sa.services) drop(m, container_of(pos, struct service, node));
}
