/* SPDX-License-Identifier: MIT */
#include "cm/ib/table.h"

#include "base/asserts.h"
#include "base/bytes.h"
#include "base/list.h"
#include "base/random.h"
#include "cm/ib/conn.h"

static uint64_t number_of(const struct cm_conn *c, enum cm_index index)
{
	switch (index) {
	case CM_BY_LOCAL:
		return c->local_id;
	case CM_BY_REMOTE:
		return c->remote_id | (c->sidr ? CM_ID_SIDR : 0);
	case CM_BY_QPN:
		return c->remote_qpn;
	default:
		return c->service_id;
	}
}

static const uint8_t *gid_of(const struct cm_conn *c, enum cm_index index)
{
	return index == CM_BY_REMOTE || index == CM_BY_QPN ? c->path.remote : NULL;
}

static struct cm_link **bucket_of(
	const struct cm_table *t, enum cm_index index, uint64_t number, const uint8_t *gid)
{
	uint64_t state = t->seed ^ number, h = random_seeded(&state);

	for (int half = 0; gid && half < 16; half += 8) {
		state ^= h ^ get_be64(gid + half);
		h = random_seeded(&state);
	}
	return &t->bucket[index * (t->mask + 1) + ((uint32_t)h & t->mask)];
}

void cm_table_init(struct cm_table *t, struct cm_link **buckets, uint32_t n, uint64_t seed)
{
	assert_that(n && !(n & (n - 1)));
	*t = (struct cm_table){.bucket = buckets, .mask = n - 1, .seed = seed};
}

void cm_table_add(struct cm_table *t, enum cm_index index, struct cm_conn *c)
{
	struct cm_link *l = &c->link[index];
	struct cm_link **head = bucket_of(t, index, number_of(c, index), gid_of(c, index));

	assert_that(!l->pprev);
	l->next = *head;
	l->pprev = head;
	if (l->next)
		l->next->pprev = &l->next;
	*head = l;
	t->count[index]++;
}

struct cm_conn *cm_table_find(
	const struct cm_table *t, enum cm_index index, uint64_t number, const uint8_t *gid)
{
	for (struct cm_link *l = *bucket_of(t, index, number, gid); l; l = l->next) {
		struct cm_conn *c = container_of(l - index, struct cm_conn, link);

		if (number_of(c, index) == number && (!gid || !memcmp(gid_of(c, index), gid, 16)))
			return c;
	}
	return NULL;
}

void cm_table_drop(struct cm_table *t, enum cm_index index, struct cm_conn *c)
{
	struct cm_link *l = &c->link[index];

	if (!l->pprev)
		return;
	*l->pprev = l->next;
	if (l->next)
		l->next->pprev = l->pprev;
	*l = (struct cm_link){0};
	t->count[index]--;
}

void cm_table_remove(struct cm_table *t, struct cm_conn *c)
{
	for (int index = 0; index < CM_INDEXES; index++)
		cm_table_drop(t, (enum cm_index)index, c);
}
