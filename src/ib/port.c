/* SPDX-License-Identifier: MIT */
/* The provider of frames: its life, receiving, waiting. */
#include "ib/port.h"

#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "link/link.h"
#include "local/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { DRIVE_FRAMES = 256 };

static struct ibt_port *port_of(struct hca_provider *v)
{
	return container_of(v, struct ibt_port, provider);
}

struct ibt_port *ibt_port_in(struct hca_adapter *a)
{
	struct hca_provider *v = a->engine.provider[HCA_FRAMES];

	return v ? port_of(v) : NULL;
}

/* ---- what the link calls while it receives ---- */
struct deliver_arg {
	struct ibt_port *p;
	struct hca_clock *clock;
};

static void deliver(void *arg, const struct frame_in *in)
{
	struct deliver_arg *d = arg;

	if (!in->from)
		ibt_port_deliver(d->p, in, hca_clock_now(d->clock));
	else if (in->by_ref)
		ibt_port_deliver_by_ref(d->p, in, hca_clock_now(d->clock));
	else if (!ibt_port_deliver_fast(d->p, in))
		ibt_port_deliver(d->p, in, hca_clock_now(d->clock));
}

static void executed(void *arg, uint32_t cookie, uint32_t psn, bool done)
{
	struct deliver_arg *d = arg;

	if (!ibt_port_executed(d->p, cookie, psn, done, d->clock->now))
		ibt_port_executed(d->p, cookie, psn, done, hca_clock_now(d->clock));
}

static void drive_within(void *arg, uint64_t ns)
{
	hca_engine_drive_within(arg, ns);
}

/* ---- receiving ---- */
static void publish(struct hca_provider *v)
{
	const struct ibt_port *p = port_of(v);
	struct host_adapter_counters *c = p->adapter->count;
	const struct link_stats *s = &p->link->stats;

	c->rx_packets = s->rx_packets;
	c->rx_bytes = s->rx_bytes;
	c->bad_icrc = s->bad_icrc;
	c->bad_length = s->bad_length;
	c->tx_errors = s->tx_errors;
	c->handed_over = s->handed_over;
}

static bool is_quiet(struct hca_provider *v)
{
	struct local_channel *c = port_of(v)->channel;

	return c && local_channel_is_quiet(c);
}

/* A look at sockets is a system call: where others have connections and the link has been quiet, it is taken
 * now and then. */
static bool due(struct hca_provider *v, unsigned woken, bool busy)
{
	enum { QUIET = 64, EVERY = 16 };
	struct ibt_port *p = port_of(v);

	if (!busy || (woken & v->bit) || (p->channel && !local_channel_is_quiet(p->channel)))
		return true;
	return !woken && (p->link_quiet < QUIET || ++p->link_skipped % EVERY == 0);
}

static int receive(struct hca_provider *v, unsigned woken, struct hca_clock *clock)
{
	struct ibt_port *p = port_of(v);
	struct deliver_arg d = {p, clock};
	int n = p->link->ops->receive(p->link, woken ? 0 : DRIVE_FRAMES, deliver, &d);

	p->link_quiet = n ? 0 : p->link_quiet + 1;
	return n;
}

void ibt_port_drain(struct ibt_port *p)
{
	enum { ROUNDS = 256 }; /* many full rings; others who never stop do not keep us here */
	struct hca_clock clock = {.e = p->provider.e};
	struct deliver_arg d = {p, &clock};

	for (int i = 0; i < ROUNDS && p->link->ops->receive(p->link, DRIVE_FRAMES, deliver, &d); i++)
		;
}

/* ---- paths ---- */
static void find_path(struct hca_provider *v, const struct hca_path *path, uint32_t qpn)
{
	struct ibt_port *p = port_of(v);

	if (p->channel && hca_path_may_be_shared(path, qpn_slot(qpn)))
		local_channel_connect(p->channel, qpn_slot(qpn));
}

static void set_path(struct hca_qp *qp)
{
	hca_qp_set_flow(qp, hca_adapter_flow(qp->adapter, qp->path.dest.dgid, qp->attr.dest_qp_num));
	ibt_path_choose(ibt_port_of(qp), qp);
	hca_qp_count_path(qp);
	ibt_path_say_here(qp);
}

static int mcast(struct hca_provider *v, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	struct link *l = port_of(v)->link;

	return l->ops->mcast(l, mgid, ifindex, join);
}

static int send_frames(struct hca_provider *v, const struct frame_batch *b)
{
	struct link *l = port_of(v)->wire;

	return l->ops->send(l, b);
}

static int listen_for(struct hca_provider *v, const struct cm_listen *what, bool on)
{
	struct link *l = port_of(v)->wire;

	return l->ops->listen ? l->ops->listen(l, what, on) : 0;
}

static int hand_over(struct hca_provider *v, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct link *l = port_of(v)->link;

	return l->ops->hand_over ? l->ops->hand_over(l, slot, in, wait) : -ESRCH;
}

/* ---- waiting ---- */
static int fds(struct hca_provider *v, int fd[HCA_PROVIDER_FDS])
{
	struct link *l = port_of(v)->link;

	return l->ops->fds(l, fd);
}

static bool sleep_on_link(struct hca_provider *v)
{
	struct ibt_port *p = port_of(v);
	bool nothing = !p->wire->ops->sleep || p->wire->ops->sleep(p->wire);

	return (!p->channel || local_channel_sleep(p->channel)) && nothing;
}

static void woke(struct hca_provider *v)
{
	struct ibt_port *p = port_of(v);

	if (p->wire->ops->woke)
		p->wire->ops->woke(p->wire);
	if (p->channel)
		local_channel_woke(p->channel);
}

static bool has_deferred(struct hca_provider *v)
{
	struct local_channel *c = port_of(v)->channel;

	return c && local_channel_has_deferred(c);
}

static void flush_deferred(struct hca_provider *v)
{
	struct local_channel *c = port_of(v)->channel;

	if (c)
		local_channel_flush_deferred(c);
}

/* ---- life ---- */
static void interfaces_changed(struct hca_provider *v)
{
	struct link *l = port_of(v)->link;

	if (l->ops->interfaces_changed)
		l->ops->interfaces_changed(l);
}

static void quiesce(struct hca_provider *v)
{
	struct local_channel *c = port_of(v)->channel;

	if (c)
		local_channel_settle(c);
}

static void at_exit(struct hca_provider *v)
{
	struct local_channel *c = port_of(v)->channel;

	if (c)
		local_channel_at_exit(c);
}

static void close_port(struct hca_provider *v)
{
	struct ibt_port *p = port_of(v);

	p->link->ops->close(p->link);
	free(p);
}

static void abandon(struct hca_provider *v)
{
	struct link *l = port_of(v)->link;

	if (l->ops->abandon)
		l->ops->abandon(l);
}

/* READs bring data to our own socket, whose size we know. */
static void size_read_window(struct hca_flow *f, uint32_t rcvbuf)
{
	f->window = f->cap_now = f->cap = f->acked = hca_flow_limit(rcvbuf);
	/* A READ request always fits: what it brings is in our own hands, but not what the path holds. */
	f->floor = f->cap < FLOW_WINDOW ? f->cap / 3 * 2 : FLOW_WINDOW;
	if (f->floor < f->cap / 3)
		f->floor = f->cap / 3;
}

static const struct hca_provider_ops port_ops = {
	.state_size = sizeof(struct ibt_qp),
	.reset = ibt_reset,
	.abort = ibt_abort,
	.modified = ibt_modified,
	.timer = ibt_timer,
	.post = ibt_port_post,
	.send = ibt_port_send,
	.answer = ibt_port_answer,
	.flush_answers = ibt_port_flush_answers,
	.find_path = find_path,
	.set_path = set_path,
	.mcast = mcast,
	.send_frames = send_frames,
	.hand_over = hand_over,
	.listen = listen_for,
	.due = due,
	.receive = receive,
	.fds = fds,
	.is_quiet = is_quiet,
	.sleep = sleep_on_link,
	.woke = woke,
	.has_deferred = has_deferred,
	.flush_deferred = flush_deferred,
	.publish = publish,
	.interfaces_changed = interfaces_changed,
	.quiesce = quiesce,
	.at_exit = at_exit,
	.close = close_port,
	.abandon = abandon,
};

int ibt_port_open(struct hca_adapter *a, struct link *link, struct local_channel *channel)
{
	struct ibt_port *p = aligned_alloc(64, sizeof(*p));

	if (!p)
		return -ENOMEM;
	memset(p, 0, sizeof(*p));
	p->adapter = a;
	p->link = link;
	frame_batch_begin(&p->answers);
	p->wire = channel ? local_channel_wire(channel) : link;
	p->channel = channel;
	p->gated = a->on_fabric;
	if (channel)
		local_channel_set_events(
			channel, &(struct local_channel_events){executed, drive_within, &a->engine});
	size_read_window(a->read_flow, link->rcvbuf);
	hca_provider_init(&p->provider, &port_ops, &a->engine, HCA_FRAMES);
	return 0;
}
