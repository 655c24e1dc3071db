/* SPDX-License-Identifier: MIT */
#include "link/sim.h"

#include "base/list.h"
#include "base/random.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SPORT = 49152,
	FRAME_BYTES = 4096 + FRAME_HDR_MAX + 3 + ICRC_LEN,
	FRAME_OVERHEAD = 768, /* what a kernel charges a socket for a packet besides its bytes */
	GROUPS = 8,
	SPOILT = 16384,
};

/* A packet on its way. */
struct sim_frame {
	uint64_t at, seq; /* the queue's order */
	struct icrc_flow flow;
	uint8_t tclass, hop_limit;
	bool handed;
	uint32_t len;
	struct sim_frame *free;
	uint8_t bytes[FRAME_BYTES];
};

struct sim_port {
	struct link link;
	struct sim_net *net;
	unsigned index;
	uint8_t gid[16];
	bool open, paused, cut;
	uint8_t group[GROUPS][16]; /* multicast; all zero: free */
	struct sim_frame **heap;
	unsigned len, size;
	uint64_t buffer, waiting, peak; /* bytes */
};

/* Mercy: how often a packet was spoilt. */
struct spoilt {
	uint64_t what;
	uint32_t times;
};

struct sim_net {
	uint64_t now, seq, random;
	unsigned nports;
	struct sim_port port[SIM_PORTS];
	struct sim_rules rules[SIM_PORTS][SIM_PORTS];
	uint64_t last[SIM_PORTS][SIM_PORTS]; /* arrival of the last packet that kept its place */
	uint64_t busy[SIM_PORTS][SIM_PORTS]; /* until when the wire is taken by what was sent before */
	struct spoilt spoilt[SPOILT];        /* by a hash of the packet */
	struct sim_frame *free;
	sim_judge_fn *judge;
	sim_trace_fn *trace;
	void *judge_arg, *trace_arg;
	uint64_t count[SIM_FATE_COUNT];
};

const char *sim_fate_name(enum sim_fate f)
{
	static const char *const name[] = {
#define X(name, text) text,
		SIM_FATES(X)
#undef X
	};

	return f < SIM_FATE_COUNT ? name[f] : "?";
}

/* ---- frames ---- */
static struct sim_frame *frame_new(struct sim_net *n)
{
	struct sim_frame *f = n->free;

	if (f)
		n->free = f->free;
	else
		f = malloc(sizeof(*f));
	return f;
}

static void frame_free(struct sim_net *n, struct sim_frame *f)
{
	f->free = n->free;
	n->free = f;
}

/* As on the wire: headers, payload, pad, ICRC. */
static bool flatten(struct sim_frame *f, const struct frame_batch *b, const struct frame_out *o)
{
	uint8_t *p = f->bytes;
	uint32_t crc;

	if (frame_len(o) + ICRC_LEN > sizeof(f->bytes))
		return false;
	memcpy(f->flow.src, b->dest.sgid, 16);
	memcpy(f->flow.dst, b->dest.dgid, 16);
	f->flow.sport = SPORT;
	f->flow.dport = ROCE_UDP_PORT;
	f->tclass = b->dest.tclass;
	f->hop_limit = b->dest.hop_limit;
	f->len = frame_len(o) + ICRC_LEN;
	memcpy(p, o->hdr, o->hdr_len);
	p += o->hdr_len;
	for (unsigned i = 0; i < o->iov_count; i++) {
		const struct iovec *v = &b->iov[o->iov_first + i];

		memcpy(p, v->iov_base, v->iov_len);
		p += v->iov_len;
	}
	memset(p, 0, o->pad);
	p += o->pad;
	crc = icrc_front(&f->flow, f->len, 0, f->bytes, o->hdr_len);
	icrc_put(p, icrc_bytes(crc, f->bytes + o->hdr_len, (size_t)(p - f->bytes) - o->hdr_len));
	return true;
}

static uint64_t charged(const struct sim_frame *f)
{
	return f->len + FRAME_OVERHEAD;
}

/* ---- the queue of a port: a binary heap ---- */
static bool before(const struct sim_frame *a, const struct sim_frame *b)
{
	return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static bool queue_push(struct sim_port *p, struct sim_frame *f)
{
	unsigned i;

	if (p->len == p->size) {
		unsigned size = p->size ? p->size * 2 : 64;
		struct sim_frame **h = realloc(p->heap, size * sizeof(*h));

		if (!h)
			return false;
		p->heap = h;
		p->size = size;
	}
	for (i = p->len++; i && before(f, p->heap[(i - 1) / 2]); i = (i - 1) / 2)
		p->heap[i] = p->heap[(i - 1) / 2];
	p->heap[i] = f;
	p->waiting += charged(f);
	if (p->waiting > p->peak)
		p->peak = p->waiting;
	return true;
}

static struct sim_frame *queue_pop(struct sim_port *p)
{
	struct sim_frame *first = p->heap[0], *last = p->heap[--p->len];
	unsigned i = 0, c;

	while ((c = 2 * i + 1) < p->len) {
		if (c + 1 < p->len && before(p->heap[c + 1], p->heap[c]))
			c++;
		if (!before(p->heap[c], last))
			break;
		p->heap[i] = p->heap[c];
		i = c;
	}
	if (p->len)
		p->heap[i] = last;
	p->waiting -= charged(first);
	return first;
}

/* ---- chance ---- */
static bool chance(struct sim_net *n, uint32_t millionths)
{
	return millionths && random_seeded(&n->random) % SIM_MILLION < millionths;
}

static uint64_t up_to(struct sim_net *n, uint64_t max)
{
	return max ? random_seeded(&n->random) % (max + 1) : 0;
}

static bool is_response(const struct sim_frame *f)
{
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(f->bytes));

	return op && (op->flags & OPF_RESPONSE);
}

static bool is_ack(const struct sim_frame *f)
{
	return bth_opcode(f->bytes) == (IBT_RC | OP_ACK);
}

/*
 * The same packet: same QP, same PSN, same direction; all acknowledges of a QP count as the same, since a
 * later one says what an earlier one said. NULL: it was not spoilt yet.
 */
static struct spoilt *spoilt(struct sim_net *n, const struct sim_frame *f, bool make)
{
	uint64_t what = (uint64_t)bth_dqpn(f->bytes) << 32 | (is_response(f) ? 1u << 31 : 0) | 1u << 30;
	uint64_t at;

	what |= is_ack(f) ? 1u << 29 : bth_psn(f->bytes);
	at = (what * 0x9e3779b97f4a7c15ull) >> 50;
	for (unsigned i = 0; i < SPOILT; i++) {
		struct spoilt *s = &n->spoilt[(at + i) % SPOILT];

		if (!s->what && make)
			s->what = what;
		if (s->what == what)
			return s;
		if (!s->what)
			return NULL;
	}
	return NULL; /* nobody spoils so many */
}

static enum sim_fate by_rules(struct sim_net *n, const struct sim_rules *r, const struct sim_frame *f)
{
	enum sim_fate fate = SIM_DELIVERED;
	bool spoils;
	struct spoilt *s;

	if (chance(n, r->loss))
		fate = SIM_LOST;
	else if (chance(n, r->corrupt))
		fate = SIM_CORRUPTED;
	else if (chance(n, r->duplicate))
		fate = SIM_DUPLICATED;
	else if (chance(n, r->delayed))
		fate = SIM_DELAYED;
	if (!r->mercy)
		return fate;
	spoils = fate == SIM_LOST || fate == SIM_CORRUPTED;
	s = spoilt(n, f, spoils);
	if (!spoils) {
		if (s && is_ack(f))
			s->times = 0; /* there will be others like it */
	} else if (!s || s->times == r->mercy) {
		fate = SIM_DELIVERED;
	} else {
		s->times++;
	}
	return fate;
}

/* Up to three flipped bits, which the ICRC always sees, or a packet cut short. Byte 4 is not covered by it.
 */
static void damage(struct sim_net *n, struct sim_frame *f)
{
	if (f->len > BTH_LEN + 2 * ICRC_LEN && chance(n, SIM_MILLION / 8)) {
		f->len -= 4 * (1 + (uint32_t)up_to(n, (f->len - BTH_LEN - ICRC_LEN) / 4 - 1));
		return;
	}
	for (unsigned k = 1 + (unsigned)up_to(n, 2), last = 4; k--;) {
		unsigned i = (unsigned)up_to(n, f->len - 2);

		i += i >= last; /* not the same byte again: the flips could undo each other */
		f->bytes[i == 4 ? 0 : i] ^= (uint8_t)(1u << up_to(n, 7));
		last = i;
	}
}

/* ---- sending ---- */
/* When the last byte of a packet has left, lost or not. */
static uint64_t departure(
	struct sim_net *n, const struct sim_rules *r, unsigned from, unsigned to, uint32_t len)
{
	uint64_t *busy = &n->busy[from][to];

	if (!r->rate)
		return n->now;
	*busy = (*busy > n->now ? *busy : n->now) + len * 1000ull / r->rate;
	return *busy;
}

static uint64_t arrival(
	struct sim_net *n, const struct sim_rules *r, unsigned from, unsigned to, uint64_t left, bool late)
{
	uint64_t at = left + r->delay_min;

	if (r->delay_max > r->delay_min)
		at += up_to(n, r->delay_max - r->delay_min);
	if (late)
		return at + 1 + up_to(n, r->late_max);
	if (at < n->last[from][to])
		at = n->last[from][to];
	n->last[from][to] = at;
	return at;
}

static void put(struct sim_net *n, struct sim_port *to, struct sim_frame *f, uint64_t at)
{
	f->at = at;
	f->seq = n->seq++;
	if (!queue_push(to, f))
		frame_free(n, f);
}

static void put_copy(struct sim_net *n, struct sim_port *to, const struct sim_frame *f, uint64_t at)
{
	struct sim_frame *copy = frame_new(n);

	if (!copy)
		return;
	memcpy(copy, f, offsetof(struct sim_frame, bytes) + f->len);
	put(n, to, copy, at);
}

static enum sim_fate judge(struct sim_net *n, const struct sim_packet *p, const struct sim_frame *f)
{
	const struct sim_port *to = &n->port[p->to];
	enum sim_fate fate = n->judge ? n->judge(n->judge_arg, p) : SIM_BY_RULES;

	if (to->cut || n->port[p->from].cut)
		return SIM_CUT;
	if (!to->open)
		return SIM_NOWHERE;
	if (fate == SIM_BY_RULES)
		fate = by_rules(n, &n->rules[p->from][p->to], f);
	if (fate != SIM_LOST && to->buffer && to->waiting + charged(f) > to->buffer)
		fate = SIM_OVERRUN;
	return fate;
}

static void note(struct sim_net *n, const struct sim_packet *p)
{
	n->count[p->fate]++;
	if (n->trace)
		n->trace(n->trace_arg, p);
}

/* Takes the frame. */
static void send_to(struct sim_net *n, unsigned from, struct sim_port *to, struct sim_frame *f)
{
	struct sim_packet p = {.at = n->now, .from = from, .to = to->index, .bytes = f->bytes, .len = f->len};
	const struct sim_rules *r = &n->rules[from][to->index];
	uint64_t left = departure(n, r, from, to->index, f->len);

	p.fate = judge(n, &p, f);
	if (p.fate == SIM_LOST || p.fate == SIM_CUT || p.fate == SIM_OVERRUN || p.fate == SIM_NOWHERE) {
		note(n, &p);
		frame_free(n, f);
		return;
	}
	p.arrives = arrival(n, r, from, to->index, left, p.fate == SIM_DELAYED || p.fate == SIM_HANDED);
	f->handed = p.fate == SIM_HANDED;
	if (p.fate == SIM_DUPLICATED)
		p.arrives_again = arrival(n, r, from, to->index, left, true);
	note(n, &p);
	if (p.fate == SIM_CORRUPTED)
		damage(n, f);
	if (p.arrives_again)
		put_copy(n, to, f, p.arrives_again);
	put(n, to, f, p.arrives);
}

static bool in_group(const struct sim_port *p, const uint8_t gid[16])
{
	for (unsigned i = 0; i < GROUPS; i++) {
		if (!memcmp(p->group[i], gid, 16))
			return true;
	}
	return false;
}

static bool has_address(const struct sim_port *p, const uint8_t gid[16])
{
	return !memcmp(p->gid, gid, 16) || in_group(p, gid);
}

static void send_frame(struct sim_port *from, const struct frame_batch *b, const struct frame_out *o)
{
	struct sim_net *n = from->net;
	struct sim_frame *f = frame_new(n);
	bool somewhere = false;

	if (!f || !flatten(f, b, o)) {
		from->link.stats.tx_errors++;
		if (f)
			frame_free(n, f);
		return;
	}
	from->link.stats.tx_packets++;
	from->link.stats.tx_bytes += f->len;
	for (unsigned i = 0; i < n->nports; i++) {
		struct sim_frame *copy;

		if (!has_address(&n->port[i], b->dest.dgid) || !(copy = frame_new(n)))
			continue;
		memcpy(copy, f, offsetof(struct sim_frame, bytes) + f->len);
		send_to(n, from->index, &n->port[i], copy);
		somewhere = true;
	}
	if (!somewhere) {
		struct sim_packet p = {.at = n->now,
			.from = from->index,
			.to = SIM_PORTS,
			.bytes = f->bytes,
			.len = f->len,
			.fate = SIM_NOWHERE};

		note(n, &p);
	}
	frame_free(n, f);
}

/* ---- the link ---- */
static struct sim_port *port_of(struct link *l)
{
	return container_of(l, struct sim_port, link);
}

static int sim_send(struct link *l, const struct frame_batch *b)
{
	for (unsigned i = 0; i < b->nframes; i++)
		send_frame(port_of(l), b, &b->frame[i]);
	return 0;
}

static bool is_good(struct link_stats *s, const struct sim_frame *f)
{
	if (f->len < BTH_LEN + ICRC_LEN || f->len % 4) {
		s->bad_length++;
		return false;
	}
	if (!icrc_check(&f->flow, f->bytes, f->len, true, 0)) {
		s->bad_icrc++;
		return false;
	}
	s->rx_packets++;
	s->rx_bytes += f->len;
	return true;
}

static int sim_receive(struct link *l, unsigned max, link_deliver_fn *deliver, void *arg)
{
	struct sim_port *p = port_of(l);
	unsigned n = 0;

	while (!p->paused && n < max && p->len && p->heap[0]->at <= p->net->now) {
		struct sim_frame *f = queue_pop(p);

		n++;
		if (is_good(&l->stats, f)) {
			struct frame_in in = {.bytes = f->bytes,
				.len = f->len - ICRC_LEN,
				.ifindex = 1,
				.tclass = f->tclass,
				.hop_limit = f->hop_limit,
				.handed = f->handed};

			memcpy(in.sgid, f->flow.src, 16);
			memcpy(in.dgid, f->flow.dst, 16);
			deliver(arg, &in);
		}
		frame_free(p->net, f);
	}
	return (int)n;
}

static int sim_fds(struct link *l, int fds[4])
{
	return 0;
}

static int sim_mcast(struct link *l, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	static const uint8_t none[16];
	struct sim_port *p = port_of(l);

	for (unsigned i = 0; i < GROUPS; i++) {
		if (!memcmp(p->group[i], join ? none : mgid, 16)) {
			memcpy(p->group[i], join ? mgid : none, 16);
			return 0;
		}
	}
	return join ? -ENOBUFS : -ENOENT;
}

static void sim_close(struct link *l)
{
	struct sim_port *p = port_of(l);

	p->open = p->paused = false;
	memset(p->group, 0, sizeof(p->group));
}

static const struct link_ops sim_ops = {
	.send = sim_send,
	.receive = sim_receive,
	.fds = sim_fds,
	.mcast = sim_mcast,
	.close = sim_close,
};

/* ---- ports ---- */
static struct link *port_start(struct sim_port *p)
{
	/* What has arrived while nobody was there is gone. */
	while (p->len && p->heap[0]->at <= p->net->now)
		frame_free(p->net, queue_pop(p));
	p->open = true;
	p->link = (struct link){.ops = &sim_ops, .rcvbuf = 2 * 212992}; /* what an ordinary user gets */
	return &p->link;
}

struct link *sim_port_open(struct sim_net *n, const uint8_t gid[16])
{
	struct sim_port *p = &n->port[n->nports];

	if (n->nports == SIM_PORTS)
		return NULL;
	p->net = n;
	p->index = n->nports++;
	memcpy(p->gid, gid, 16);
	return port_start(p);
}

struct link *sim_port_reopen(struct sim_net *n, unsigned port)
{
	return port < n->nports && !n->port[port].open ? port_start(&n->port[port]) : NULL;
}

void sim_port_pause(struct sim_net *n, unsigned port, bool paused)
{
	n->port[port].paused = paused;
}

void sim_port_cut(struct sim_net *n, unsigned port, bool cut)
{
	n->port[port].cut = cut;
}

void sim_port_buffer(struct sim_net *n, unsigned port, uint64_t bytes)
{
	n->port[port].buffer = bytes;
}

uint64_t sim_port_peak(const struct sim_net *n, unsigned port)
{
	return n->port[port].peak;
}

/* ---- the net ---- */
struct sim_net *sim_net_open(uint64_t seed)
{
	struct sim_net *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->random = seed;
	n->now = 1; /* 0 stands for "no time" in many places */
	return n;
}

void sim_net_close(struct sim_net *n)
{
	for (unsigned i = 0; i < n->nports; i++) {
		while (n->port[i].len)
			frame_free(n, queue_pop(&n->port[i]));
		free(n->port[i].heap);
	}
	while (n->free) {
		struct sim_frame *f = n->free;

		n->free = f->free;
		free(f);
	}
	free(n);
}

uint64_t sim_clock(void *net)
{
	return ((struct sim_net *)net)->now;
}

void sim_clock_set(struct sim_net *n, uint64_t now)
{
	if (now > n->now)
		n->now = now;
}

uint64_t sim_next_arrival(const struct sim_net *n)
{
	uint64_t next = UINT64_MAX;

	for (unsigned i = 0; i < n->nports; i++) {
		const struct sim_port *p = &n->port[i];

		if (p->open && !p->paused && p->len && p->heap[0]->at < next)
			next = p->heap[0]->at;
	}
	return next;
}

void sim_rules_set(struct sim_net *n, const struct sim_rules *r)
{
	for (unsigned from = 0; from < SIM_PORTS; from++) {
		for (unsigned to = 0; to < SIM_PORTS; to++)
			n->rules[from][to] = *r;
	}
}

void sim_rules_set_path(struct sim_net *n, unsigned from, unsigned to, const struct sim_rules *r)
{
	n->rules[from][to] = *r;
}

void sim_judge_set(struct sim_net *n, sim_judge_fn *fn, void *arg)
{
	n->judge = fn;
	n->judge_arg = arg;
}

void sim_trace_set(struct sim_net *n, sim_trace_fn *fn, void *arg)
{
	n->trace = fn;
	n->trace_arg = arg;
}

uint64_t sim_count(const struct sim_net *n, enum sim_fate f)
{
	return n->count[f];
}
