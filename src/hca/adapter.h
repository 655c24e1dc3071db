/* SPDX-License-Identifier: MIT */
/*
 * The adapter: the software HCA of one process (or one of several in a simulation). It owns the number
 * spaces that devices share: QP numbers and keys, and the engine.
 */
#ifndef HCA_ADAPTER_H
#define HCA_ADAPTER_H

#include "base/idmap.h"
#include "base/list.h"
#include "base/lock.h"
#include "fabric/shared.h"
#include "fabric/tally.h"
#include "hca/engine.h"
#include "hca/export.h"
#include "hca/flow_table.h"
#include "hca/local.h"
#include "hca/qp1.h"
#include "host/counters.h"
#include "local/export/files.h"
#include "wire/qpn.h"

#include <infiniband/verbs.h>
#include <stdbool.h>

struct fabric_attachment;
struct hca_qp;
struct hca_srq;
struct hca_flow;
struct host_ports;
struct host_registry;

enum {
	HCA_MAX_QP = 16384, /* half of a slot's numbers: a free one is found at once */
	HCA_QPN_QUARANTINE = 8192,
	HCA_MAX_SRQ = 1 << 16,
};

/*
 * Numbers of QPs that were destroyed, which rest: a peer's connection manager remembers the old connection
 * for a while (TIMEWAIT), and would take a new QP of that number for a stale one. The adapter's lock.
 *
 * A shuffled counter would need no table, but a few of its numbers give away the next ones: an attacker who
 * sends packets blindly should have to guess.
 */
struct hca_qpn_quarantine {
	uint64_t is[QPN_PER_SLOT / 64];
	uint16_t queue[HCA_QPN_QUARANTINE];
	uint32_t count; /* that came, ever */
};

struct hca_adapter {
	struct lock lock; /* guards tables, lists and bring-up; slow path only */
	struct list devices, contexts;
	struct idmap qps; /* QPN -> hca_qp; looked up under the drive lock */
	struct hca_qpn_quarantine quarantine;
	struct idmap srqs; /* number -> hca_srq: as packets of XRC name them */
	struct idmap keys; /* lkey, rkey -> hca_key */
	struct list free_keys;
	struct hca_flow_table flows;
	struct list mcast; /* attached groups, see mcast.c; changed under lock and drive lock */

	struct lock bring_up;    /* held while the engine is opened or closed */
	bool on_fabric;          /* its devices are InfiniBand's, those of a host of a fabric; fixed */
	struct lock fabric_lock; /* taken before `lock` */
	struct fabric_attachment *fabric; /* what it knows of that; NULL: the fabric is not there */
	_Atomic uint32_t host_tag;        /* its host's (attach.h), also while the fabric is away */
	uint64_t fabric_seen;             /* the epoch that the ports follow */
	const struct fabric_table
		*_Atomic table;    /* what paths are decided by: fabric/link.h; else fabric_none */
	struct tally_pool tallies; /* what goes by them and past the switches: qp_tally.c */
	bool dead;                 /* the parent's, after fork, in the child: nothing here moves any more */
	struct {
		struct fabric_attachment *fabric;
		struct host_ports *ports;
	} parents;       /* what it had, then: nobody uses or frees it */
	_Atomic bool up; /* engine and slot are there: from the first QP on */
	uint32_t slot;
	uint16_t udp_port; /* that all of us use */
	int no_udp;        /* -errno: it could not be had */
	struct hca_engine engine;
	struct hca_qp1 qp1;
	struct host_ports *_Atomic ports; /* NULL in simulations, and until it can be had */
	struct hca_flow *read_flow;       /* what READ responses may be in flight towards ourselves */
	struct host_registry *registry;   /* NULL in simulations */
	enum hca_local local;             /* HCA_LOCAL_OFF in simulations */
	struct local_exporter export;     /* what others of this host may act on */
	struct local_files files;         /* that regions lie in; the adapter's lock */
	_Atomic uint64_t dm_used;         /* bytes of device memory */
	struct host_adapter_counters *count;
	struct host_adapter_counters own_count;
	uint64_t seed; /* simulations: QPNs and keys come from this instead of the kernel */
};

/* A probe of the adapter (observe/probe.h): counts, and tells who listens. Any thread. */
#define hca_adapter_probe(a, name, ...)                                                                      \
	do {                                                                                                 \
		host_count_adapter_##name((a)->count);                                                       \
		PROBE(name, ##__VA_ARGS__);                                                                  \
	} while (0)

/* Paths are as they were as long as this is the same: for ever but on a fabric. Any thread. */
static inline uint64_t hca_adapter_epoch(const struct hca_adapter *a)
{
	return fabric_epoch(atomic_load_explicit(&a->table, memory_order_acquire));
}

void hca_adapter_init(struct hca_adapter *a);
void hca_adapter_fini(struct hca_adapter *a);
/* The process exits without having closed its devices. */
void hca_adapter_exit(struct hca_adapter *a);
/*
 * Sees that other processes can find us: host_ports_look(), or one more attempt to enter the file of
 * processes; on a fabric, which may be a new one, QP1 looks too. The helper's.
 */
void hca_adapter_look(struct hca_adapter *a, bool asked);
/* Brings up the real thing (slot, sockets, helper) once: 0 or -errno, with a message for the user. */
int hca_adapter_up(struct hca_adapter *a);
/* 0; or why an adapter that is up has no queue pairs of this kind: -errno, with a message for the user. */
EXPORTED int hca_adapter_has(struct hca_adapter *a, enum hca_kind kind);
/* The last context was closed: takes it down again. */
void hca_adapter_down(struct hca_adapter *a);

uint32_t hca_adapter_random(struct hca_adapter *a);
/* Draws a QP number and enters the QP; 0 or -ENOMEM when all are in use. */
int hca_adapter_add_qp(struct hca_adapter *a, struct hca_qp *qp);
void hca_adapter_del_qp(struct hca_adapter *a, struct hca_qp *qp);
/* The same of an SRQ; they have a number space of their own. */
int hca_adapter_add_srq(struct hca_adapter *a, struct hca_srq *srq);
void hca_adapter_del_srq(struct hca_adapter *a, struct hca_srq *srq);
/* The flow towards the process of a QP, made when there is none, with a reference for the caller. */
struct hca_flow *hca_adapter_flow(struct hca_adapter *a, const uint8_t dgid[16], uint32_t qpn);
/* The same, but NULL when there is none: what strangers send must not make us remember them. */
struct hca_flow *hca_adapter_flow_find(struct hca_adapter *a, const uint8_t dgid[16], uint32_t qpn);
/* Gives the reference back; NULL is fine. */
void hca_adapter_flow_put(struct hca_adapter *a, struct hca_flow *f);

/* ---- bringup/: puts an adapter together out of the providers that there are ---- */
/* Opens links with the slot of the process, providers, the registry and the helper: 0 or -errno. */
int bringup_open(struct hca_adapter *a);
/* Stops and closes all that; the tables stay. */
void bringup_close(struct hca_adapter *a);
/* After fork, in the child: closes its copies of the descriptors and changes nothing that is the parent's. */
void bringup_abandon(struct hca_adapter *a);

/* ---- multicast (mcast.c) ---- */
int hca_mcast_attach(struct hca_qp *qp, const uint8_t mgid[16]);
int hca_mcast_detach(struct hca_qp *qp, const uint8_t mgid[16]);
/* A QP that is in a group cannot be destroyed. */
bool hca_mcast_attached(struct hca_qp *qp);
/* Calls fn for every QP attached to the group; under the drive lock. */
void hca_mcast_each(
	struct hca_adapter *a, const uint8_t mgid[16], void (*fn)(struct hca_qp *, void *), void *arg);

#endif
