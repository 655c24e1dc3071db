/* SPDX-License-Identifier: MIT */
/*
 * Options that every kind of rsocket has: those that are only remembered, and sizes. A kind decides first
 * whether it is too late to change one.
 */
#include "rsocket/rsock.h"
#include "rsocket/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <string.h>

enum { LEAST_BUFFER = 4096, MOST_BUFFER = 1 << 30, MOST_QUEUE = 0xfffe };

/* ---- values ---- */
int rsock_opt_read(const void *value, socklen_t len, int *out)
{
	if (!value || len < sizeof(*out))
		return -EINVAL;
	memcpy(out, value, sizeof(*out));
	return 0;
}

static int put(void *value, socklen_t *len, const void *from, socklen_t size)
{
	if (!value || !len)
		return -EFAULT;
	if (*len < size)
		return -EINVAL;
	memcpy(value, from, size);
	*len = size;
	return 0;
}

int rsock_opt_write(void *value, socklen_t *len, int v)
{
	return put(value, len, &v, sizeof(v));
}

/* ---- addresses ---- */
void rsock_copy_addr(const struct sockaddr *from, struct sockaddr *to, socklen_t *len)
{
	socklen_t full = sockaddr_len(from);

	memcpy(to, from, *len < full ? *len : full);
	*len = full;
}

/* ---- sizes ---- */
static uint32_t clamp(int64_t v, uint32_t least, uint32_t most)
{
	return v < least ? least : v > most ? most : (uint32_t)v;
}

static int set_rdma(struct rsock_sizes *s, int name, uint32_t v)
{
	switch (name) {
	case RDMA_SQSIZE:
		s->sq = clamp(v, 1, MOST_QUEUE);
		return 0;
	case RDMA_RQSIZE:
		s->rq = clamp(v, 1, MOST_QUEUE);
		return 0;
	case RDMA_INLINE:
		s->inline_bytes = clamp(v, 0, MOST_QUEUE);
		return 0;
	case RDMA_IOMAPSIZE:
		s->iomap = rs_iomap_unpack(rs_iomap_pack(v));
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int get_rdma(const struct rsock_sizes *s, int name, void *value, socklen_t *len)
{
	switch (name) {
	case RDMA_SQSIZE:
		return rsock_opt_write(value, len, (int)s->sq);
	case RDMA_RQSIZE:
		return rsock_opt_write(value, len, (int)s->rq);
	case RDMA_INLINE:
		return rsock_opt_write(value, len, (int)s->inline_bytes);
	case RDMA_IOMAPSIZE:
		return rsock_opt_write(value, len, (int)s->iomap);
	default:
		return -ENOTSUP;
	}
}

/* ---- SOL_SOCKET ---- */
static void remember(struct rsock *rs, int name, bool on)
{
	rs->so_opts = on ? rs->so_opts | 1u << name : rs->so_opts & ~(1u << name);
}

/* What is sent is always delivered before the end, if the peer takes it in time. Programs of the stock
 * library give an int, too. */
static void set_linger(struct rsock *rs, const void *value, socklen_t len)
{
	struct linger l = {0};

	memcpy(&l, value, len < sizeof(l) ? len : sizeof(l));
	rs->linger_off = !l.l_onoff;
	rs->linger = l.l_onoff && l.l_linger > 0 ? l.l_linger : 0;
}

static int set_socket(struct rsock *rs, int name, const void *value, socklen_t len)
{
	int v, err = rsock_opt_read(value, len, &v);

	if (err)
		return err;
	switch (name) {
	case SO_REUSEADDR:
	case SO_KEEPALIVE:
	case SO_OOBINLINE:
		remember(rs, name, v);
		return 0;
	case SO_RCVBUF: /* doubled, as Linux does */
		rs->sizes.rbuf = clamp((int64_t)v * 2, LEAST_BUFFER, MOST_BUFFER);
		return 0;
	case SO_SNDBUF:
		rs->sizes.sbuf = clamp((int64_t)v * 2, LEAST_BUFFER, MOST_BUFFER);
		return 0;
	case SO_LINGER:
		set_linger(rs, value, len);
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int get_linger(const struct rsock *rs, void *value, socklen_t *len)
{
	struct linger l = {.l_onoff = !rs->linger_off, .l_linger = rs->linger};

	return put(value, len, &l, sizeof(l));
}

static int get_socket(struct rsock *rs, int name, void *value, socklen_t *len)
{
	switch (name) {
	case SO_REUSEADDR:
	case SO_KEEPALIVE:
	case SO_OOBINLINE:
		return rsock_opt_write(value, len, rs->so_opts >> name & 1);
	case SO_RCVBUF:
		return rsock_opt_write(value, len, (int)rs->sizes.rbuf);
	case SO_SNDBUF:
		return rsock_opt_write(value, len, (int)rs->sizes.sbuf);
	case SO_LINGER:
		return get_linger(rs, value, len);
	case SO_ERROR:
		return rsock_opt_write(value, len, atomic_exchange(&rs->err, 0));
	case SO_TYPE:
		return rsock_opt_write(value, len, rs->type);
	case SO_DOMAIN:
		return rsock_opt_write(value, len, rs->domain);
	default:
		return -ENOTSUP;
	}
}

int rsock_set_common(struct rsock *rs, int level, int name, const void *value, socklen_t len)
{
	int v, err;

	if (level == SOL_SOCKET)
		return set_socket(rs, name, value, len);
	if (level != SOL_RDMA)
		return -ENOTSUP;
	err = rsock_opt_read(value, len, &v);
	return err ? err : set_rdma(&rs->sizes, name, (uint32_t)v);
}

int rsock_get_common(struct rsock *rs, int level, int name, void *value, socklen_t *len)
{
	if (level == SOL_SOCKET)
		return get_socket(rs, name, value, len);
	return level == SOL_RDMA ? get_rdma(&rs->sizes, name, value, len) : -ENOTSUP;
}
