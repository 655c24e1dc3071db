/* SPDX-License-Identifier: MIT */
/* Ids: what the program knows as struct rdma_cm_id, and what we know besides. */
#ifndef CM_ID_H
#define CM_ID_H

#include "base/gid.h"
#include "base/list.h"
#include "base/lock.h"
#include "cm/addr.h"
#include "cm/device.h"
#include "cm/probe.h"
#include "cm/sa.h"
#include "cm/service.h"
#include "host/ports_table.h"

#include <rdma/rdma_cma.h>

struct iwarp_conn;
struct rcm_channel;
struct rcm_listener;

enum rcm_state { RCM_IDLE, RCM_BOUND, RCM_RESOLVING, RCM_ADDR, RCM_ROUTE, RCM_LISTEN, RCM_CONNECT };

/* How far the peer is, and what both agreed on: what a QP needs to know. */
struct rcm_path {
	uint8_t local[16], remote[16];
	uint32_t ifindex;
	unsigned sgid_index;
	uint8_t port; /* of the device */
	uint16_t pkey;
	uint8_t mtu, tclass, hop_limit, ack_timeout;
	uint32_t flow_label;
	uint16_t slid, dlid; /* InfiniBand, as are the next: 0 elsewhere */
	uint16_t from_lid;   /* where the request came from; dlid is where it says to answer */
	uint8_t sl, lmc, rate, life;
	bool has_grh;
	uint32_t remote_qpn, rq_psn, sq_psn, qkey;
	uint8_t responder_resources, initiator_depth; /* ours */
	uint8_t retry_count, rnr_retry, flow_control, srq;
};

struct rcm_id {
	struct rdma_cm_id pub;
	struct rcm *cm;
	struct list node;
	struct rcm_device *dev; /* changed under the host's lock */
	enum rcm_state state;
	bool sync;
	bool passive;  /* made for a request */
	bool answered; /* accepted or rejected */
	bool told_removal;
	host_port_id port;
	uint8_t tos, ack_timeout;
	bool reuse, afonly, has_tos, has_ack_timeout;
	bool chose_port; /* the program did */
	struct rcm_path path;
	struct ibv_ece local_ece, remote_ece;
	struct lock groups_lock; /* before the host's; the program may leave and take events at once */
	struct list groups;      /* struct rcm_group */
	uint32_t joins;          /* ever */
	bool own_send_cq, own_recv_cq;

	/* of rdma_create_ep */
	struct ibv_pd *ep_pd;
	struct ibv_qp_init_attr *ep_attr;
	void *connect;
	uint8_t connect_len;

	/* host lock */
	struct cm_conn *conn;          /* its `user` is the id */
	struct iwarp_conn *iwarp_conn; /* likewise */
	struct rcm_resolving resolving;
	struct rcm_question question;
	struct cm_listen listen; /* what the fabric was told; a service id of 0: nothing */
	struct rcm_probe probe;
	struct rcm_listener *listener;
	struct list listen_node;
	int backlog;                /* requests that may still be queued */
	unsigned reported, acked;   /* events */
	struct rcm_id *listened_by; /* until the program has it: whose backlog it counts in */
};

static inline struct rcm_id *rcm_id(struct rdma_cm_id *id)
{
	return (struct rcm_id *)id;
}

static inline bool rcm_is_ud(const struct rcm_id *id)
{
	return id->pub.qp_type == IBV_QPT_UD;
}

static inline bool rcm_is_iwarp(const struct rcm_id *id)
{
	return id->dev && id->dev->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

/* By GIDs, and not by IP: then private data is the programs' alone. */
static inline bool rcm_is_by_gid(const struct rcm_id *id)
{
	return sockaddr_is_ib(&id->pub.route.addr.src_addr);
}

static inline __be16 rcm_src_port(const struct rcm_id *id)
{
	return htons(sockaddr_port(&id->pub.route.addr.src_addr));
}

static inline __be16 rcm_dst_port(const struct rcm_id *id)
{
	return htons(sockaddr_port(&id->pub.route.addr.dst_addr));
}

/* ---- as the program has them; no lock held ---- */
/* No channel: a synchronous id, with one of its own. */
int rcm_id_create(
	struct rcm *cm, struct rcm_channel *ch, void *context, enum rdma_port_space ps, struct rcm_id **out);
/* Waits until the program has acknowledged the events that it took. */
void rcm_id_destroy(struct rcm_id *id);
/* Its events from now on, and what is queued, go to this channel; waits as rcm_id_destroy() does. */
int rcm_id_migrate(struct rcm_id *id, struct rcm_channel *to);
int rcm_set_option(struct rcm_id *id, int level, int name, const void *value, size_t len);

/* ---- within rdma_cm ---- */
/* NULL: no memory. Host lock held. */
struct rcm_id *rcm_id_new(struct rcm *cm, enum rdma_port_space ps, enum ibv_qp_type type);
/* Takes it from everywhere and frees it; events the program has are acknowledged. Host lock held. */
void rcm_id_free(struct rcm_id *id);
/* No events for it any more; host lock held. */
void rcm_id_cut(struct rcm_id *id);

#endif
