/* SPDX-License-Identifier: MIT */
/* Options of stream rsockets. */
#include "rsocket/stream.h"

#include "base/beside_tcp.h"

#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <infiniband/ib.h>
#include <infiniband/sa.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_IDLE = 7200, DEFAULT_SEGMENT = 2048 };

/* ---- SOL_SOCKET ---- */
static unsigned system_idle(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_keepalive_time", "re");
	unsigned v = DEFAULT_IDLE;

	if (!f)
		return v;
	if (fscanf(f, "%u", &v) != 1 || !v)
		v = DEFAULT_IDLE;
	fclose(f);
	return v;
}

/* The service thread is told, when there is something it watches. */
static void keep_alive(struct rs_stream *s, bool on)
{
	lock_take(&s->lock);
	if (!s->keep_idle)
		s->keep_idle = system_idle();
	s->keepalive = on;
	s->attended = false;
	if (on && s->state == RS_CONNECTED)
		rs_attend(s);
	lock_drop(&s->lock);
}

static int set_socket(struct rs_stream *s, int name, const void *value, socklen_t len)
{
	int v, err = rsock_opt_read(value, len, &v);

	if (err)
		return err;
	switch (name) {
	case SO_REUSEADDR: /* too late is no error, as with TCP */
		rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &v, sizeof(v));
		break;
	case SO_RCVBUF:
	case SO_SNDBUF:
		if (s->cq)
			return 0; /* likewise */
		break;
	case SO_KEEPALIVE:
		keep_alive(s, v);
		break;
	default:
		break;
	}
	return rsock_set_common(&s->rs, SOL_SOCKET, name, value, len);
}

/* ---- IPPROTO_TCP ---- */
static int set_tcp(struct rs_stream *s, int name, int v)
{
	switch (name) {
	case TCP_KEEPIDLE:
		if (v <= 0)
			return -EINVAL;
		lock_take(&s->lock);
		s->keep_idle = (unsigned)v;
		lock_drop(&s->lock);
		if (s->keepalive)
			keep_alive(s, true);
		return 0;
	case TCP_NODELAY:
		s->nodelay = v;
		return 0;
	case TCP_KEEPCNT: /* the queue pair has its own */
	case TCP_KEEPINTVL:
	case TCP_MAXSEG:
		return 0;
	default:
		return -ENOTSUP;
	}
}

static int segment(const struct rs_stream *s)
{
	const struct rdma_route *r = &s->id->route;

	return r->num_paths ? 1 << (7 + r->path_rec->mtu) : DEFAULT_SEGMENT;
}

static int get_tcp(struct rs_stream *s, int name, void *value, socklen_t *len)
{
	switch (name) {
	case TCP_KEEPCNT:
	case TCP_KEEPINTVL:
		return rsock_opt_write(value, len, 1);
	case TCP_KEEPIDLE:
		return rsock_opt_write(value, len, (int)s->keep_idle);
	case TCP_NODELAY:
		return rsock_opt_write(value, len, s->nodelay);
	case TCP_MAXSEG:
		return rsock_opt_write(value, len, segment(s));
	default:
		return -ENOTSUP;
	}
}

/* ---- IPPROTO_IPV6 ---- */
static int set_ipv6(struct rs_stream *s, int name, int v)
{
	if (name != IPV6_V6ONLY)
		return -ENOTSUP;
	if (rdma_set_option(s->id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &v, sizeof(v)))
		return -errno;
	s->v6only = v;
	return 0;
}

/* ---- SOL_RDMA ---- */
static int set_route(struct rs_stream *s, const void *value, socklen_t len)
{
	void *copy = value && len ? malloc(len) : NULL;

	if (!copy)
		return value && len ? -ENOMEM : -EINVAL;
	free(s->route);
	s->route = memcpy(copy, value, len);
	s->route_len = len;
	return 0;
}

static void path_of(const struct ibv_sa_path_rec *r, struct ibv_path_data *out)
{
	enum { EXACTLY = 2 << 6 };

	*out = (struct ibv_path_data){
		.flags = r->preference,
		.path =
			{
				.dgid = r->dgid,
				.sgid = r->sgid,
				.dlid = r->dlid,
				.slid = r->slid,
				.flowlabel_hoplimit = htobe32(be32toh(r->flow_label) << 8 | r->hop_limit),
				.tclass = r->traffic_class,
				.reversible_numpath = (uint8_t)(r->reversible << 7 | 1),
				.pkey = r->pkey,
				.qosclass_sl = htobe16(r->sl),
				.mtu = r->mtu | EXACTLY,
				.rate = r->rate | EXACTLY,
				.packetlifetime = r->packet_life_time | EXACTLY,
			},
	};
}

static int get_route(struct rs_stream *s, void *value, socklen_t *len)
{
	const struct rdma_route *r = &s->id->route;
	struct ibv_path_data *out = value;
	int n = 0;

	if (s->route) {
		if (*len < s->route_len)
			return -EINVAL;
		memcpy(value, s->route, s->route_len);
		*len = s->route_len;
		return 0;
	}
	if (*len < sizeof(*out))
		return -EINVAL;
	for (; n < r->num_paths && (size_t)(n + 1) * sizeof(*out) <= *len; n++) {
		struct ibv_path_data path;

		path_of(&r->path_rec[n], &path);
		memcpy(&out[n], &path, sizeof(path));
	}
	*len = (socklen_t)((size_t)n * sizeof(*out));
	return 0;
}

/* ---- the calls ---- */
static int set_rdma(struct rs_stream *s, int name, const void *value, socklen_t len)
{
	if (s->state != RS_NEW && s->state != RS_LISTENING)
		return -EINVAL;
	if (name == RSOCKET_BESIDE_TCP) {
		s->beside_tcp = true;
		return 0;
	}
	return name == RDMA_ROUTE ? set_route(s, value, len)
				  : rsock_set_common(&s->rs, SOL_RDMA, name, value, len);
}

int rs_stream_setsockopt(struct rsock *rs, int level, int name, const void *value, socklen_t len)
{
	struct rs_stream *s = rs_stream(rs);
	int v, err;

	if (level == SOL_SOCKET)
		return set_socket(s, name, value, len);
	if (level == SOL_RDMA)
		return set_rdma(s, name, value, len);
	if (level != IPPROTO_TCP && level != IPPROTO_IPV6)
		return -ENOTSUP;
	err = rsock_opt_read(value, len, &v);
	if (err)
		return err;
	return level == IPPROTO_TCP ? set_tcp(s, name, v) : set_ipv6(s, name, v);
}

int rs_stream_getsockopt(struct rsock *rs, int level, int name, void *value, socklen_t *len)
{
	struct rs_stream *s = rs_stream(rs);

	if (!value || !len)
		return -EFAULT;
	if (level == IPPROTO_TCP)
		return get_tcp(s, name, value, len);
	if (level == IPPROTO_IPV6)
		return name == IPV6_V6ONLY ? rsock_opt_write(value, len, s->v6only) : -ENOTSUP;
	if (level == SOL_RDMA && name == RDMA_ROUTE)
		return get_route(s, value, len);
	return rsock_get_common(rs, level, name, value, len);
}
