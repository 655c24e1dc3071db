/* SPDX-License-Identifier: MIT */
/*
 * What the files of the rdmacm front share.
 *
 *   rdmacm_host.c      the process's connection manager; what it calls: requests that come in, events
 *   rdmacm_event.c     event channels; what an event makes of a QP when the program takes it
 *   rdmacm_id.c        ids: making, ending, migrating, options
 *   rdmacm_addr.c      which device, which port: binding and resolving
 *   rdmacm_route.c     the path there
 *   rdmacm_connect.c   connecting, listening, accepting, disconnecting
 *   rdmacm_probe.c      whether anybody is there at all
 *   rdmacm_iwarp.c     the same over TCP: streams of the adapter in the place of the core's connections
 *   rdmacm_qp.c        QPs of ids through their states; queues and SRQs
 *   rdmacm_mcast.c     groups
 *   rdmacm_ep.c        endpoints, rdma_getaddrinfo
 *   rdmacm_device.c    opened devices
 *
 * The library stands on libibverbs.so.1: verbs by their public names, the rest by names of its own version
 * node there, so that both have one adapter.
 *
 * Who locks what. The host's lock (cm/host.h) guards connections, listeners, event queues and the fields of
 * ids marked so. QPs are never touched under it: the connection manager only queues events, and the thread
 * that takes an event, or calls a function of the id, moves the QP.
 */
#ifndef FRONT_RDMACM_FRONT_H
#define FRONT_RDMACM_FRONT_H

#include "base/gid.h"
#include "base/list.h"
#include "cm/neigh.h"
#include "cm/host.h"
#include "hca/evq.h"
#include "host/ports_table.h"
#include "hca/stream.h"

#include <rdma/rdma_cma.h>

/* ---- rdmacm_host.c ---- */
struct rcm {
	struct cm_host host;
	struct list ids;       /* all of the process; host lock */
	struct list listeners; /* struct rcm_listener; host lock */
	pthread_cond_t acked;  /* with the host's lock */
	struct {
		uint8_t remote[16];
		uint32_t ifindex;
		uint64_t until;
	} last_hop; /* that was known; host lock */
	struct lock device_lock;
	struct list devices; /* opened ones; device_lock */
	bool dead;           /* the parent's, after fork, in the child */
};

/* The process's, opened on first use; a new one after fork. NULL with errno. */
struct rcm *rcm_get(void);

/* ---- rdmacm_device.c ---- */
struct rcm_device {
	struct list node;
	struct ibv_context *verbs;
	struct ibv_pd *pd; /* for ids whose program has none */
	uint32_t ifindex;
};

/*
 * The device with this address, opened; ifindex 0: any interface; of this transport, or of the one that the
 * user wants first. NULL with errno (ENODEV).
 */
struct rcm_device *rcm_device_of(struct rcm *cm, const uint8_t gid[16], uint32_t ifindex,
	enum ibv_transport_type transport, unsigned *sgid_index);
/* Its interface is no more. Any lock may be held. */
bool rcm_device_gone(const struct rcm_device *d);

/* ---- ids ---- */
enum rcm_state { RCM_IDLE, RCM_BOUND, RCM_RESOLVING, RCM_ADDR, RCM_ROUTE, RCM_LISTEN, RCM_CONNECT };

/* One per service id; ids tell requests apart by address. */
struct rcm_listener {
	struct list node, ids;
	struct cm_conn *conn;
};

/* Waiting for the first hop on the way to the destination; host lock. */
struct rcm_resolving {
	struct cm_host_timer timer;
	struct cm_neigh hop;
	uint64_t wait, until; /* between two looks; the program's patience */
};

/* Waiting for an answer to a request; host lock. */
struct rcm_probe {
	struct cm_host_timer timer;
	int fd; /* of a knock; not above 0: none */
	uint8_t knocks, refusals;
};

/* How far the peer is, and what both agreed on: what a QP needs to know. */
struct rcm_path {
	uint8_t local[16], remote[16];
	uint32_t ifindex;
	unsigned sgid_index;
	uint8_t mtu, tclass, hop_limit, ack_timeout;
	uint32_t flow_label;
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
	hca_port_id port;
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
	struct cm_conn *conn;      /* its `user` is the id */
	struct hca_stream *stream; /* iWARP: likewise */
	struct rcm_resolving resolving;
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

/* -errno, or 0, as the library says it. */
int rcm_result(int err);
struct rcm_id *rcm_id_new(struct rcm *cm, enum rdma_port_space ps, enum ibv_qp_type type);
/* Takes it from everywhere and frees it; events the program has are acknowledged. Host lock held. */
void rcm_id_free(struct rcm_id *id);
/* No events for it any more; host lock held. */
void rcm_id_cut(struct rcm_id *id);

/* ---- events ---- */

enum { RCM_PRIV_MAX = UINT8_MAX }; /* as much as a length tells */

struct rcm_event {
	struct rdma_cm_event pub;
	struct list node;
	struct rcm_id *counted; /* whose destruction waits for it */
	uint32_t join;          /* which, of a MULTICAST_JOIN */
	uint8_t priv[RCM_PRIV_MAX];
};

struct rcm_channel {
	struct rdma_event_channel pub;
	struct hca_evq q; /* under the host's lock, not its own */
	unsigned waiting; /* threads; host lock */
	pid_t taker;      /* the thread that had the last event; 0: none that comes back for more */
};

/* An event to be filled in; host lock held. NULL: no memory, and the event is lost. */
struct rcm_event *rcm_event_new(struct rcm_id *id, enum rdma_cm_event_type type, int status);
/* Queues it on the id's channel; host lock held. */
void rcm_event_queue(struct rcm_event *e, struct rcm_id *counted);
/* Both at once, without the lock. 0 or -ENOMEM. */
int rcm_tell(struct rcm_id *id, enum rdma_cm_event_type type, int status);
/* Drops what is queued for the id, requests to it included; host lock held. */
void rcm_events_drop(struct rcm_id *id);
/* Synchronous ids: waits for the event of what was begun; otherwise nothing. */
int rcm_complete(struct rcm_id *id);
/* A channel for an id whose program brought none. NULL with errno. */
struct rdma_event_channel *rcm_channel_new(void);

/* ---- rdmacm_addr.c ---- */
/* Ties the id to the device with its local address: 0 or -errno. */
int rcm_bind_device(struct rcm_id *id, const uint8_t gid[16], uint32_t ifindex);
int rcm_bind_address(struct rcm_id *id); /* the device of the address it is bound to, if it is to one */
/* Binds to any address and port of the family when it is not bound. 0 or -errno. */
int rcm_bind_any(struct rcm_id *id, sa_family_t family);

/* ---- rdmacm_route.c ---- */
enum { RCM_PACKET_LIFE_TIME = 16 }; /* as Linux since 5.15 or so; the ACK timeout is twice that, 0.5 s */
/* The path record and GIDs of the route. 0 or -errno. */
int rcm_fill_route(struct rcm_id *id);
/* RDMA_OPTION_IB_PATH in the place of rdma_resolve_route: event ROUTE_RESOLVED. 0 or -errno. */
int rcm_set_path(struct rcm_id *id, const void *value, size_t len);

/* ---- rdmacm_probe.c; host lock held ---- */
/* From the request on; ends by itself when there is an answer. */
void rcm_probe_watch(struct rcm_id *id);
void rcm_probe_leave(struct rcm_id *id);
/* Why a request was given up, -errno. */
int rcm_probe_verdict(const struct rcm_id *id);

/* ---- rdmacm_connect.c ---- */
/* As much as asked for; as much as there is, but not more than `most`, when the program leaves it to us. */
int rcm_choose_depths(
	struct rcm_id *id, const struct rdma_conn_param *p, uint8_t most_resources, uint8_t most_depth);

/* ---- rdmacm_host.c ---- */
/* An id for a request to this listener that came from `port` there; host lock held. */
struct rcm_id *rcm_id_for_request(struct rcm_id *listener, enum ibv_qp_type type, const uint8_t local[16],
	const uint8_t remote[16], uint32_t ifindex, uint16_t port);
void rcm_put_conn(struct rcm_event *e, const struct rcm_path *p);

/* ---- rdmacm_iwarp.c; all 0 or -errno ---- */
int rcm_iwarp_listen(struct rcm_id *id, int backlog);
int rcm_iwarp_connect(struct rcm_id *id, const struct rdma_conn_param *p);
int rcm_iwarp_accept(struct rcm_id *id, const struct rdma_conn_param *p);
int rcm_iwarp_reject(struct rcm_id *id, const void *data, uint8_t len);
int rcm_iwarp_disconnect(struct rcm_id *id);

/* ---- rdmacm_qp.c ---- */
int rcm_qp_to_rtr(struct rcm_id *id);
int rcm_qp_to_rts(struct rcm_id *id);
int rcm_qp_to_err(struct rcm_id *id);
void rcm_fill_ah(const struct rcm_id *id, const uint8_t dgid[16], struct ibv_ah_attr *ah);

/* ---- rdmacm_mcast.c ---- */
/* The program takes the event of a join: its QP joins. */
int rcm_group_joined(struct rcm_id *id, uint32_t number);
void rcm_groups_leave(struct rcm_id *id);

#endif
