/* SPDX-License-Identifier: MIT */
/*
 * A stream whose ends are on one host: MPA opens it, TCP ends it, and between these the queue pair's frames
 * go by shared memory, as RoCE's do: the transport of src/ib carries it, over the rings of local/channel.h,
 * with all that ib/onesided.c and ib/fetch.c do for it.
 *
 *   NEGOTIATING --- the peer says who it is ---> UPGRADING --- the link has reached it, or not in time
 *       ^--------------------------------------------------------------------'
 *
 * Each end checks the identity that the peer claims: addresses and ports of the connection are the same from
 * both sides, so nothing is in between that changes them, and the process that the link reaches in that slot
 * shows the number that the peer named. Each end makes its queue pair ready before it says yes, and sends
 * nothing before it knows that both did (hca_qp.connecting). Nobody waits under a lock: two processes may
 * well connect to each other at the same moment.
 */
#include "iwarp/port.h"

#include "base/gid.h"
#include "base/log.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/qp.h"
#include "ib/port.h"
#include "link/tcp.h"
#include "local/channel.h"
#include "wire/ibt.h"

#include <errno.h>
#include <string.h>

#define UPGRADE_NS 2000000000ull  /* for the link to reach the peer: one that does not answer is stopped */
#define WORD_NS    10000000000ull /* for its next word */
#define AGAIN_NS   5000000ull     /* a look, should nobody have told */

/*
 * As patient as a stream: about a minute with a peer that is stopped, a second with one that has no receive.
 * More than ibv_modify_qp takes, but the transport only counts.
 */
enum { TIMEOUT = 21 /* 8.6 s */, RETRIES = 6, RNR_TIMER = 17 /* 3.84 ms */, RNR_RETRIES = 255 };

/* ---- identities ---- */
bool stream_may_upgrade(struct stream *s)
{
	struct hca_adapter *a = s->e->adapter;
	struct ibt_port *frames = ibt_port_in(a);
	uint8_t gid[16];

	gid_of_sockaddr((struct sockaddr *)&s->remote, gid);
	return frames && frames->channel && hca_devices_have(a, gid);
}

void stream_fill_identity(struct stream *s)
{
	const struct local_channel *channel = ibt_port_in(s->e->adapter)->channel;
	struct mpa_upgrade *own = &s->mpa.own;

	*own = (struct mpa_upgrade){.qpn = s->qpn,
		.psn = hca_adapter_random(s->e->adapter) & PSN_MASK,
		.port = sockaddr_port((struct sockaddr *)&s->local),
		.other_port = sockaddr_port((struct sockaddr *)&s->remote),
		.identity = channel ? local_channel_identity(channel) : 0};
	gid_of_sockaddr((struct sockaddr *)&s->local, own->gid);
	gid_of_sockaddr((struct sockaddr *)&s->remote, own->other_gid);
}

static bool mirrors(const struct mpa_upgrade *a, const struct mpa_upgrade *b)
{
	return a->port == b->other_port && b->port == a->other_port && gid_same(a->gid, b->other_gid) &&
	       gid_same(b->gid, a->other_gid);
}

/* 1: the peer can be reached by shared memory; 0: not yet; -errno: no. */
static int look(struct stream *s, bool first, uint64_t now)
{
	const struct mpa_upgrade *theirs = &s->mpa.theirs;
	struct local_channel *channel = ibt_port_in(s->e->adapter)->channel;
	uint64_t identity;
	int there;

	if (!theirs->ok || theirs->qpn > 0xffffff || !mirrors(&s->mpa.own, theirs))
		return -EPROTO;
	there = local_channel_try_connect(channel, qpn_slot(theirs->qpn), first, &identity);
	if (there > 0 && identity != theirs->identity)
		return -ESRCH;
	return there || now < s->upgrade_by ? there : -ETIMEDOUT;
}

/* ---- the queue pair, drive lock and qp->lock held ---- */
static void carry_by_frames(struct stream *s, struct hca_qp *qp, uint64_t now)
{
	const struct mpa_upgrade *own = &s->mpa.own, *theirs = &s->mpa.theirs;
	struct ibv_qp_attr *attr = &qp->attr;

	assert_locked(&qp->lock);
	hca_qp_set_provider(qp, &ibt_port_in(qp->adapter)->provider);
	ibt_reset(qp);
	qp->deadline = 0;
	/* Nobody looks at the class. */
	qp->path.dest = (struct frame_dest){.ifindex = qp->path.port->dev->ifindex, .hop_limit = 64};
	memcpy(qp->path.dest.sgid, own->gid, 16);
	memcpy(qp->path.dest.dgid, own->other_gid, 16);
	attr->dest_qp_num = theirs->qpn;
	attr->sq_psn = own->psn;
	attr->rq_psn = theirs->psn & PSN_MASK;
	attr->path_mtu = qp->path.mtu = IBV_MTU_4096;
	attr->timeout = TIMEOUT;
	attr->retry_cnt = RETRIES;
	attr->rnr_retry = RNR_RETRIES;
	attr->min_rnr_timer = RNR_TIMER;
	hca_qp_set_flow(qp, hca_adapter_flow(qp->adapter, qp->path.dest.dgid, theirs->qpn));
	hca_path_go_by(&qp->path, local_channel_link(ibt_port_in(qp->adapter)->channel), true);
	ibt_modified(qp, IBV_QP_RQ_PSN | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY, now);
	ibt_path_say_here(qp);
	hca_export_qp(qp->adapter, qp);
}

/* The peer does not want to, after all. Nothing was sent. */
static void carry_by_stream(struct hca_qp *qp)
{
	assert_locked(&qp->lock);
	ibt_reset(qp);
	hca_qp_set_provider(qp, qp->dev_provider);
	hca_path_go_by(&qp->path, NULL, false);
	hca_qp_set_flow(qp, NULL);
	hca_export_qp(qp->adapter, qp);
}

/* Ready to receive; false: the program has other plans with it. */
static bool make_ready(struct stream *s, uint64_t now)
{
	struct hca_qp *qp = s->qp ? s->qp : stream_free_qp(s->port, s->qpn);
	bool ready;

	if (!qp || (!s->qp && stream_attach_qp(s, qp, &s->mpa.params, now)))
		return false;
	lock_take(&qp->lock);
	ready = hca_qp_state(qp) == IBV_QPS_RTS;
	if (ready)
		carry_by_frames(s, qp, now);
	lock_drop(&qp->lock);
	return ready;
}

/* ---- the upgrade ---- */
void stream_stop_upgrade(struct stream *s)
{
	s->port->upgrading -= s->counted;
	s->counted = false;
}

static void wait_for_link(struct stream *s, uint64_t now)
{
	if (!s->counted) {
		s->counted = true;
		s->port->upgrading++;
	}
	if (s->state != STREAM_UPGRADING)
		stream_set_state(s, STREAM_UPGRADING);
	stream_watch(s, 0);
	stream_set_deadline(s, now + AGAIN_NS);
}

void stream_upgrade(struct stream *s, uint64_t now)
{
	bool first = s->state != STREAM_UPGRADING;
	int there;

	assert_locked(&s->e->drive);
	if (first && s->mpa.params.initiator)
		stream_fill_identity(s);
	if (first)
		s->upgrade_by = now + UPGRADE_NS;
	there = look(s, first, now);
	if (!there) {
		wait_for_link(s, now);
		return;
	}
	stream_stop_upgrade(s);
	if (there < 0)
		log_info("QP 0x%06x: no shared memory with its peer, which seems to be on this host (%s)",
			s->qpn, strerror(-there));
	if (!first)
		stream_set_state(s, STREAM_NEGOTIATING);
	iwarp_connect_upgrade(&s->mpa, there > 0 && make_ready(s, now));
	stream_set_deadline(s, now + WORD_NS);
	stream_negotiate(s, now);
}

void stream_upgrade_done(struct stream *s)
{
	struct hca_qp *qp = s->qp;
	struct iwarp_port *all = s->port;

	assert_locked(&s->e->drive);
	lock_take(&qp->lock);
	s->by_frames = s->mpa.params.memory;
	if (!s->by_frames && qp->provider != qp->dev_provider)
		carry_by_stream(qp);
	hca_qp_count_path(qp);
	lock_drop(&qp->lock);
	if (!s->by_frames)
		return;
	all->nopen--; /* to the back: who polls has nothing to see there */
	list_del(&s->node);
	list_add_tail(&all->all, &s->node);
}

/* ---- its end ---- */
int stream_receive_end(struct stream *s, uint64_t now)
{
	uint8_t waste[64];
	struct iovec in = {waste, sizeof(waste)};
	ssize_t n = link_tcp_receive(s->fd, &in, 1);
	struct hca_qp *qp = s->qp;

	assert_locked(&s->e->drive);
	if (n == -EAGAIN || n == -EINTR)
		return 0;
	/* What the peer put into the ring before it closed comes before that. */
	ibt_port_drain(ibt_port_in(s->e->adapter));
	lock_take(&qp->lock);
	if (n > 0)
		log_info("QP 0x%06x: bytes on a stream that goes through shared memory", hca_qpn(qp));
	iwarp_lost(qp, now);
	lock_drop(&qp->lock);
	hca_engine_make_runnable(s->e, qp);
	iwarp_port_wake(s->port);
	return 1;
}
