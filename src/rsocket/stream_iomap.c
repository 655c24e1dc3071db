/* SPDX-License-Identifier: MIT */
/*
 * Mappings: memory that a program offers to the other side under an offset (riomap), and writes to it there
 * (riowrite). Who maps writes address, key and offset into the other side's table and says which entry; who
 * writes looks into its own table. The table is memory of the other side's choosing: every entry is copied
 * out before it is believed.
 */
#include "rsocket/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { FIRST_AT_ONCE = 16384 };

/* One of ours; index -1: registered, but not offered. */
struct rs_mapping {
	struct list node;
	struct ibv_mr *mr;
	uint64_t offset;
	int index;
	bool announced;
};

/* ---- telling the other side ---- */
static int announce_one(struct rs_stream *s, struct rs_mapping *m)
{
	struct rs_iomap entry = {
		.offset = m->offset,
		.sge = {.addr = (uintptr_t)m->mr->addr,
			.key = m->mr->rkey,
			.length = (uint32_t)m->mr->length},
	};
	struct ibv_sge sge = {.addr = (uintptr_t)&entry, .length = sizeof(entry)};
	struct rs_post p;

	if (s->flow.swap)
		entry = rs_iomap_swap(entry);
	rs_flow_send_iomap(&s->flow, (uint32_t)m->index, &p);
	s->sqe_free--;
	m->announced = true;
	return rs_post(s, RS_WR_DATA, 0, &p, &sge, 1, IBV_SEND_INLINE);
}

void rs_announce(struct rs_stream *s)
{
	assert_locked(&s->lock);
	s->unannounced = false;
	list_for_each(n, &s->mappings)
	{
		struct rs_mapping *m = container_of(n, struct rs_mapping, node);

		if (m->announced || m->index < 0)
			continue;
		if (!s->can_write || !s->sqe_free || !rs_flow_has_credit(&s->flow)) {
			s->unannounced = s->can_write; /* with the next send */
			return;
		}
		if (announce_one(s, m))
			rs_stream_fail(s, ECONNRESET);
	}
}

/* ---- riomap ---- */
static int free_index(struct rs_stream *s)
{
	uint32_t n = s->flow.iomap.length;

	if (!s->iomap_used)
		s->iomap_used = calloc(n + 1, sizeof(*s->iomap_used));
	for (uint32_t i = 0; s->iomap_used && i < n; i++) {
		if (!s->iomap_used[i])
			return (int)i;
	}
	return -ENOMEM;
}

static int map(struct rs_stream *s, struct rs_mapping *m, void *buf, size_t len, bool offer)
{
	int access = IBV_ACCESS_LOCAL_WRITE | (offer ? IBV_ACCESS_REMOTE_WRITE : 0);

	m->index = offer ? free_index(s) : -1;
	if (offer && m->index < 0)
		return m->index;
	m->mr = ibv_reg_mr(s->id->pd, buf, len, access);
	if (!m->mr)
		return -errno;
	if (offer)
		s->iomap_used[m->index] = true;
	list_add_tail(&s->mappings, &m->node);
	return 0;
}

off_t rs_stream_iomap(struct rsock *rs, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rs_stream *s = rs_stream(rs);
	uint64_t at = offset == -1 ? (uintptr_t)buf : (uint64_t)offset;
	struct rs_mapping *m;
	int err;

	if (!s->cq || s->state == RS_OPENING || prot & ~PROT_WRITE || len > UINT32_MAX)
		return -EINVAL;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->offset = at;
	lock_take(&s->lock);
	err = map(s, m, buf, len, prot & PROT_WRITE);
	if (!err)
		rs_announce(s);
	lock_drop(&s->lock);
	if (err)
		free(m);
	return err ? err : (off_t)at; /* m may be unmapped by now */
}

/* lock held, or nobody else has it */
static void drop_mapping(struct rs_stream *s, struct rs_mapping *m)
{
	list_del(&m->node);
	ibv_dereg_mr(m->mr);
	if (m->index >= 0)
		s->iomap_used[m->index] = false;
	free(m);
}

int rs_stream_iounmap(struct rsock *rs, void *buf, size_t len)
{
	struct rs_stream *s = rs_stream(rs);
	int err = -EINVAL;

	lock_take(&s->lock);
	list_for_each_safe(n, &s->mappings)
	{
		struct rs_mapping *m = container_of(n, struct rs_mapping, node);

		if (m->mr->addr == buf && m->mr->length == len) {
			drop_mapping(s, m);
			err = 0;
			break;
		}
	}
	lock_drop(&s->lock);
	return err;
}

void rs_mappings_free(struct rs_stream *s)
{
	list_for_each_safe(n, &s->mappings) drop_mapping(s, container_of(n, struct rs_mapping, node));
	free(s->iomap_used);
}

/* ---- riowrite ---- */
/* The mapping that has this offset. */
static bool find(const struct rs_stream *s, uint64_t offset, struct rs_iomap *out)
{
	for (uint32_t i = 0; i < s->rs.sizes.iomap; i++) {
		memcpy(out, &s->iomaps[i], sizeof(*out));
		if (offset >= out->offset && offset - out->offset < out->sge.length)
			return true;
	}
	return false;
}

static uint32_t room(const struct rs_stream *s)
{
	uint32_t space = s->rs.sizes.sbuf - s->sbuf_used;

	return s->sqe_free && space >= RS_LEAST_ROOM ? space : 0;
}

static bool can_write(struct rs_stream *s)
{
	return !s->can_write || room(s);
}

static int write_piece(struct rs_stream *s, const uint8_t *buf, uint32_t len, uint64_t addr, uint32_t rkey)
{
	struct ibv_sge sge[2];
	int n = rs_sbuf_pieces(s, len, sge);

	s->sqe_free--; /* riomap() takes from the same */
	s->sbuf_used += len;
	lock_drop(&s->lock);
	memcpy((uint8_t *)(uintptr_t)sge[0].addr, buf, sge[0].length);
	memcpy((uint8_t *)(uintptr_t)sge[1].addr, buf + sge[0].length, sge[1].length);
	lock_take(&s->lock);
	rs_sbuf_advance(s, len);
	return rs_post_write(s, RS_WR_DATA, len, addr, rkey, sge, n, 0);
}

static int write_all(struct rs_stream *s, const uint8_t *buf, size_t *left, uint64_t offset, bool nonblock)
{
	uint32_t at_once = FIRST_AT_ONCE;

	while (*left) {
		struct rs_iomap to;
		uint64_t within;
		uint32_t len;
		int err = rs_wait(s, nonblock, can_write);

		if (err)
			return err;
		if (!s->can_write)
			return s->shut_write ? -EPIPE : -ECONNRESET;
		if (s->unannounced)
			rs_announce(s);
		if (!s->can_write || !room(s))
			continue; /* the announcement took the last work request, or failed */
		if (!find(s, offset, &to))
			return 0;
		within = offset - to.offset;
		len = room(s);
		len = len < at_once ? len : at_once;
		len = len < to.sge.length - within ? len : (uint32_t)(to.sge.length - within);
		len = len < *left ? len : (uint32_t)*left;
		err = write_piece(s, buf, len, to.sge.addr + within, to.sge.key);
		if (err)
			return err;
		*left -= len;
		buf += len;
		offset += len;
		at_once *= at_once < RS_MOST_AT_ONCE ? 2 : 1;
	}
	return 0;
}

ssize_t rs_stream_iowrite(struct rsock *rs, const void *buf, size_t len, off_t offset, int flags)
{
	struct rs_stream *s = rs_stream(rs);
	size_t left = len;
	int err = rs_need_connection(s, flags);

	if (err)
		return err;
	pthread_mutex_lock(&s->send_lock);
	lock_take(&s->lock);
	pthread_cleanup_push(rs_stop_sending, s);
	err = write_all(s, buf, &left, (uint64_t)offset, rsock_nonblocking(rs, flags));
	pthread_cleanup_pop(1);
	return err && left == len ? err : (ssize_t)(len - left);
}
