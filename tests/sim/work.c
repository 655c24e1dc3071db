/* SPDX-License-Identifier: MIT */
#include "work.h"

#include "draw.h"
#include "trace.h"
#include "wire/ibt.h"

#include <string.h>

enum { BURST = 16, ENTRIES = 8 };

/* A request on its way from the draw to the queue. */
struct post {
	struct ibv_send_wr wr;
	struct ibv_sge sge[ENTRIES];
};

/* ---- what ---- */
static uint32_t draw_length(const struct side *s)
{
	uint32_t mtu = 128u << s->opts.mtu, len;

	switch (draw(8)) {
	case 0:
		len = 0;
		break;
	case 1:
		len = (uint32_t)between(1, 8);
		break;
	case 2:
		len = (uint32_t)between(mtu - 3, mtu + 3);
		break;
	case 3:
		len = (uint32_t)between(1, 5) * mtu;
		break;
	case 4:
		len = (uint32_t)between(1, 5) * mtu;
		len += (uint32_t)between(0, 2) - 1;
		break;
	case 5:
		len = (uint32_t)between(0, s->max_msg);
		break;
	default:
		len = (uint32_t)between(1, mtu);
	}
	if (len > s->budget)
		len = (uint32_t)draw(64);
	return len < s->max_msg ? len : s->max_msg;
}

static int find_window(const struct side *s, enum window_state state, bool idle, bool invalidable)
{
	unsigned first = (unsigned)draw(MAX_WINDOWS);

	for (unsigned k = 0; k < MAX_WINDOWS; k++) {
		unsigned i = (first + k) % MAX_WINDOWS;
		const struct sim_window *w = &s->window[i];

		if (w->mw && w->state == state && (!idle || !w->uses) && (!invalidable || w->invalidable))
			return (int)i;
	}
	return -1;
}

/* Binding, unbinding and invalidating, when there is a window for it. */
static bool draw_window_work(struct side *s, struct sim_wr *w)
{
	switch (draw(3)) {
	case 0:
		w->opcode = IBV_WR_BIND_MW;
		w->window = s->target_mr ? find_window(s, WINDOW_FREE, false, false) : -1;
		break;
	case 1:
		w->opcode = IBV_WR_LOCAL_INV;
		w->window = find_window(s, WINDOW_BOUND, true, false);
		if (w->window >= 0 && !s->window[w->window].invalidable)
			w->opcode = IBV_WR_BIND_MW; /* of no bytes */
		break;
	default:
		w->opcode = IBV_WR_SEND_WITH_INV;
		w->window = find_window(s->peer, WINDOW_BOUND, false, true);
	}
	return w->window >= 0;
}

static void draw_opcode(struct side *s, struct sim_wr *w)
{
	static const enum ibv_wr_opcode rc[] = {IBV_WR_SEND, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
		IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_ATOMIC_FETCH_AND_ADD};
	static const enum ibv_wr_opcode one_sided[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
	static const enum ibv_wr_opcode uc[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM};

	if (s->one_sided) {
		w->opcode = one_sided[draw(sizeof(one_sided) / sizeof(one_sided[0]))];
	} else if (s->opts.type == IBV_QPT_RC) {
		if (s->window[0].mw && one_in(5) && draw_window_work(s, w))
			return;
		w->opcode = rc[draw(sizeof(rc) / sizeof(rc[0]))];
	} else {
		w->opcode = uc[draw(s->opts.type == IBV_QPT_UC ? 4 : 2)];
	}
	w->window = -1;
}

/* A fault, and a request that can have it. */
static void draw_bad(struct side *s, struct sim_wr *w)
{
	static const enum ibv_wr_opcode remote[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ, IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
	static const enum ibv_wr_opcode local[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ};
	bool rc = s->opts.type == IBV_QPT_RC;

	do {
		w->bad = rc ? (enum sim_bad)between(BAD_RKEY, BAD_COUNT - 1) : BAD_LKEY;
	} while (w->bad == BAD_GONE || (w->bad == BAD_WINDOW && !s->peer->stale_rkey) ||
		 (w->bad == BAD_BIND && (!s->target_mr || find_window(s, WINDOW_FREE, false, true) < 0)));
	w->window = -1;
	w->len = w->len ? w->len : 1;
	switch (w->bad) {
	case BAD_RANGE:
		w->opcode = remote[draw(3)];
		break;
	case BAD_ALIGN:
	case BAD_ATOMIC_LEN:
		w->opcode = remote[between(3, 4)];
		break;
	case BAD_RIGHT:
		w->opcode = remote[draw(2)];
		break;
	case BAD_TOO_LONG:
		w->opcode = one_in(2) ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM;
		w->len = s->peer->rq->slot_size + (uint32_t)between(1, 1000);
		break;
	case BAD_INVALIDATE:
		w->opcode = IBV_WR_SEND_WITH_INV;
		break;
	case BAD_LKEY:
		w->opcode = rc ? local[draw(3)] : IBV_WR_SEND;
		break;
	case BAD_BIND:
		w->opcode = IBV_WR_BIND_MW;
		break;
	case BAD_LOCAL_INV:
		w->opcode = IBV_WR_LOCAL_INV;
		break;
	default:
		w->opcode = remote[draw(5)];
	}
}

/* ---- where ---- */
/* Whether a READ that may still be done again reads where w writes, or through the window it takes away. */
static bool needs_fence(const struct side *s, const struct sim_wr *w)
{
	bool inv = w->opcode == IBV_WR_SEND_WITH_INV;

	for (unsigned i = s->fenced > s->first ? s->fenced : s->first; i < s->posted; i++) {
		const struct sim_wr *r = &s->wr[i];

		if (r->opcode != IBV_WR_RDMA_READ || !r->in_target)
			continue;
		if (inv ? r->window == w->window
			: w->in_target && !w->shared && r->offset < w->offset + w->len &&
					w->offset < r->offset + r->len)
			return true;
	}
	return false;
}

static void place_in_window(struct side *s, struct sim_wr *w, int i)
{
	struct sim_window *v = &s->peer->window[i];

	if (model_is_atomic(w)) {
		w->offset = v->offset + draw(v->len / 8) * 8;
	} else {
		w->len = w->len < v->len ? w->len : v->len;
		w->offset = v->offset + draw(v->len - w->len + 1);
	}
	w->window = i;
	v->uses++;
}

static void place_atomic(struct sim_wr *w)
{
	w->offset = draw(16) * 8;
	w->shared = w->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD && one_in(2);
}

/* More than one READ request's worth now and then: see ib/requester.c. */
static void place_in_source(struct side *s, struct sim_wr *w)
{
	w->in_target = false;
	if (one_in(8) && s->budget > 200000)
		w->len = (uint32_t)between(60000, 200000);
	w->offset = draw(SOURCE - w->len + 1);
}

/* Draws where in the peer's target (or in its source) a request goes. */
static bool place(struct side *s, struct sim_wr *w)
{
	int window = s->opts.type == IBV_QPT_RC && one_in(3)
			     ? find_window(s->peer, WINDOW_BOUND, false, false)
			     : -1;

	w->in_target = true;
	if (model_is_atomic(w))
		w->len = 8;
	if (window >= 0) {
		place_in_window(s, w, window);
	} else if (model_is_atomic(w)) {
		place_atomic(w);
	} else if (w->opcode == IBV_WR_RDMA_READ && one_in(2)) {
		place_in_source(s, w);
	} else if (s->opts.type == IBV_QPT_UC) {
		if (s->unreliable_used + w->len > TARGET) {
			w->in_target = false;
			return false;
		}
		w->offset = s->unreliable_used;
		s->unreliable_used += w->len;
	} else {
		w->offset = one_in(3) ? draw(256) : draw(TARGET - w->len + 1);
		if (w->offset > TARGET - w->len)
			w->offset = 0;
	}
	if (s->opts.type == IBV_QPT_RC && w->in_target && !w->shared && w->len && !s->peer->target_mr)
		w->bad = BAD_GONE;
	return true;
}

/* The address and the key it gives; wrong ones for a request that shall fail. */
static void remote_of(struct model *m, struct side *s, struct sim_wr *w, uint64_t *addr, uint32_t *rkey)
{
	struct side *p = s->peer;
	struct sim_site *site = &m->site[p->node_index];

	*addr = p->target_iova + w->offset;
	*rkey = p->target_rkey;
	if (w->shared) {
		*addr = MODEL_COUNTER_IOVA;
		*rkey = site->counter_rkey;
	} else if (w->window >= 0) {
		*addr = p->window[w->window].base + (w->offset - p->window[w->window].offset);
		*rkey = p->window[w->window].rkey;
	} else if (w->bad == BAD_RIGHT || (!w->in_target && (!w->bad || w->bad == BAD_LKEY))) {
		*addr = MODEL_SOURCE_IOVA + w->offset;
		*rkey = site->source_rkey;
	}
	if (w->bad == BAD_RKEY)
		*rkey ^= 1u << draw(32);
	if (w->bad == BAD_WINDOW)
		*rkey = p->stale_rkey;
	if (w->bad == BAD_RANGE)
		*addr += TARGET - w->len + between(1, w->len);
	if (w->bad == BAD_ALIGN)
		*addr += between(1, 7);
}

static void fill_remote(struct model *m, struct side *s, struct sim_wr *w, struct ibv_send_wr *wr)
{
	uint64_t addr;
	uint32_t rkey;

	/* The peer's node may be down: nobody will ever look at the key. */
	if (!s->peer->node->up) {
		if (s->opts.type == IBV_QPT_RC)
			w->bad = BAD_GONE;
		w->shared = false;
		addr = 4096;
		rkey = 1;
	} else {
		remote_of(m, s, w, &addr, &rkey);
	}
	if (!model_is_atomic(w)) {
		wr->wr.rdma.remote_addr = addr;
		wr->wr.rdma.rkey = rkey;
		return;
	}
	w->compare_add = w->shared ? 1 : random_seeded(&draw_state);
	w->swap = random_seeded(&draw_state);
	if (w->opcode == IBV_WR_ATOMIC_CMP_AND_SWP && one_in(2))
		memcpy(&w->compare_add, s->peer->model + w->offset, 8); /* it shall match */
	wr->wr.atomic.remote_addr = addr;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add = w->compare_add;
	wr->wr.atomic.swap = w->swap;
}

/* ---- windows ---- */
static void fill_bind(struct side *s, struct sim_wr *w, struct ibv_mw_bind_info *info, bool bind)
{
	struct sim_window *v = &s->window[w->window];

	info->mr = &s->target_mr->ibv;
	if (!bind)
		return;
	v->offset = draw(TARGET / 16) * 8;
	v->len = (uint32_t)between(1, one_in(2) ? 64 : TARGET / 16) * 8;
	info->addr = s->target_iova + v->offset;
	info->length = v->len;
	info->mw_access_flags = SIM_ALL_ACCESS & ~(unsigned)IBV_ACCESS_LOCAL_WRITE;
	v->base = info->addr;
	if (one_in(3)) {
		info->mw_access_flags |= IBV_ACCESS_ZERO_BASED;
		v->base = 0;
	}
	if (w->bad == BAD_BIND)
		info->addr = s->target_iova + TARGET - draw(v->len);
}

static void fill_window_work(struct side *s, struct sim_wr *w, struct ibv_send_wr *wr)
{
	struct sim_window *v;

	if (w->bad == BAD_LOCAL_INV) {
		wr->invalidate_rkey = one_in(2) ? s->target_rkey : (uint32_t)random_seeded(&draw_state);
		return;
	}
	if (w->bad == BAD_BIND)
		w->window = find_window(s, WINDOW_FREE, false, true);
	v = &s->window[w->window];
	if (w->opcode == IBV_WR_LOCAL_INV) {
		wr->invalidate_rkey = v->rkey;
		v->state = WINDOW_ENDING;
		return;
	}
	wr->bind_mw.mw = &v->mw->ibv;
	wr->bind_mw.rkey = ibv_inc_rkey(v->rkey);
	fill_bind(s, w, &wr->bind_mw.bind_info, v->state == WINDOW_FREE);
	v->state = v->state == WINDOW_FREE ? WINDOW_BINDING : WINDOW_ENDING;
	if (w->bad)
		w->window = -1;
	else
		v->rkey = wr->bind_mw.rkey;
}

static void fill_invalidate(struct side *s, struct sim_wr *w, struct ibv_send_wr *wr)
{
	if (w->bad) {
		w->inv_key = one_in(2) ? s->peer->target_rkey : (uint32_t)random_seeded(&draw_state);
	} else {
		w->inv_key = s->peer->window[w->window].rkey;
		s->peer->window[w->window].state = WINDOW_ENDING;
	}
	wr->invalidate_rkey = w->inv_key;
}

/* ---- datagrams ---- */
static void fill_datagram(struct model *m, struct side *s, struct sim_wr *w, struct ibv_send_wr *wr)
{
	struct sim_site *site = &m->site[s->node_index];
	struct side *to = s->peer;
	unsigned group = (unsigned)draw(GROUPS);

	wr->wr.ud.remote_qkey = SIM_QKEY;
	if (one_in(4) && site->group_ah[group]) {
		wr->wr.ud.ah = &site->group_ah[group]->ibv;
		wr->wr.ud.remote_qpn = w->dqpn = QP_MULTICAST;
		return;
	}
	if (one_in(3)) {
		struct side *other = &m->side[draw(m->nsides)];

		if (other->opts.type == IBV_QPT_UD && other->qp)
			to = other;
	}
	wr->wr.ud.ah = &site->ah[to->node_index]->ibv;
	wr->wr.ud.remote_qpn = w->dqpn = to->qp ? to->qpn : 1;
}

/* ---- entries ---- */
/* Cuts [addr, addr + len) into up to `max` entries, some of them empty. */
static int cut(struct ibv_sge *sge, unsigned max, const uint8_t *addr, uint32_t len, uint32_t lkey)
{
	unsigned n = (unsigned)between(len ? 1 : 0, max);

	for (unsigned i = 0; i < n; i++) {
		uint32_t part = i + 1 == n ? len : (uint32_t)between(0, len);

		sge[i] = (struct ibv_sge){(uintptr_t)addr, part, lkey};
		addr += part;
		len -= part;
	}
	return (int)n;
}

static void spoil_first(struct ibv_sge *sge, int n)
{
	for (int i = 0; i < n; i++) {
		if (sge[i].length) {
			sge[i].lkey ^= 0x10001;
			return;
		}
	}
}

static void spoil_any(struct ibv_sge *sge, int n)
{
	int i = (int)draw((uint64_t)n);

	while (!sge[i].length)
		i = (i + 1) % n;
	sge[i].lkey ^= 0x10001;
}

/* A READ posted before, whose result this request may send on: behind a fence, before it is even there. */
static const struct sim_wr *earlier_read(const struct side *s)
{
	for (unsigned i = s->posted; s->opts.type == IBV_QPT_RC && i-- > s->first;) {
		if (s->wr[i].opcode == IBV_WR_RDMA_READ && s->wr[i].len <= s->max_msg && !s->wr[i].bad)
			return &s->wr[i];
	}
	return NULL;
}

static void fill_entries(
	struct model *m, struct side *s, struct sim_wr *w, struct post *p, const struct sim_wr *read)
{
	const struct sim_site *site = &m->site[s->node_index];
	const uint8_t *at = read ? read->dest : w->dest ? w->dest : w->bytes;
	uint32_t lkey = read || w->dest ? site->arena_mr->ibv.lkey : site->send_mr->ibv.lkey;

	p->wr.sg_list = p->sge;
	p->wr.num_sge = cut(p->sge, s->opts.sge, at, w->bad == BAD_ATOMIC_LEN ? 4 : w->len, lkey);
	if (w->bad == BAD_LKEY)
		spoil_any(p->sge, p->wr.num_sge);
}

/* ---- a request ---- */
static bool is_outgoing(const struct sim_wr *w)
{
	return model_is_message(w) || w->opcode == IBV_WR_RDMA_WRITE;
}

static void draw_kind(struct side *s, struct sim_wr *w)
{
	w->len = draw_length(s);
	if (s->posted == s->bad_at)
		draw_bad(s, w);
	else
		draw_opcode(s, w);
}

static void draw_place(struct model *m, struct side *s, struct sim_wr *w, struct ibv_send_wr *wr)
{
	bool remote = model_is_write(w) || w->opcode == IBV_WR_RDMA_READ || model_is_atomic(w);

	if (model_is_atomic(w))
		w->len = 8;
	if (remote && w->bad && w->bad != BAD_LKEY)
		w->offset = w->bad == BAD_RANGE ? 0 : draw(16) * 8; /* nothing will be done there */
	else if (remote && !place(s, w))
		w->opcode = IBV_WR_SEND; /* the target is used up */
	if (model_is_write(w) || w->opcode == IBV_WR_RDMA_READ || model_is_atomic(w))
		fill_remote(m, s, w, wr);
	else if (model_is_local(w))
		fill_window_work(s, w, wr);
	else if (w->opcode == IBV_WR_SEND_WITH_INV)
		fill_invalidate(s, w, wr);
}

static void draw_flags(struct side *s, struct sim_wr *w, struct ibv_send_wr *wr, bool forwards)
{
	w->signaled = s->opts.sig_all || one_in(2) || s->posted + 1 == s->todo;
	w->fence = one_in(8) || forwards || (s->opts.type == IBV_QPT_RC && needs_fence(s, w));
	wr->send_flags = (w->signaled ? IBV_SEND_SIGNALED : 0u) | (w->fence ? IBV_SEND_FENCE : 0u) |
			 (one_in(4) ? IBV_SEND_SOLICITED : 0u);
	if (is_outgoing(w) && !forwards && w->len <= s->qp->cap.max_inline_data && w->bad != BAD_LKEY &&
		one_in(2))
		wr->send_flags |= IBV_SEND_INLINE;
}

static void draw_wr(struct model *m, struct side *s, struct post *p)
{
	struct sim_wr *w = &s->wr[s->posted];
	struct ibv_send_wr *wr = &p->wr;
	const struct sim_wr *read = one_in(6) ? earlier_read(s) : NULL;

	memset(w, 0, sizeof(*w));
	memset(wr, 0, sizeof(*wr));
	draw_kind(s, w);
	if (!is_outgoing(w) || w->bad)
		read = NULL;
	if (read)
		w->len = read->len;
	if (model_is_local(w))
		w->len = 0;
	draw_place(m, s, w, wr);
	if (read && w->len != read->len)
		read = NULL; /* a window cut it short */
	if (w->opcode != IBV_WR_SEND_WITH_INV && !model_is_local(w))
		w->imm = wr->imm_data = (uint32_t)random_seeded(&draw_state);
	if (is_outgoing(w))
		w->bytes = read ? read->bytes : model_source + draw(SOURCE - w->len + 1);
	draw_flags(s, w, wr, read);
	if (s->opts.type == IBV_QPT_UD)
		fill_datagram(m, s, w, wr);
	else if (s->opts.type == IBV_QPT_UC)
		w->dqpn = s->peer->qp ? s->peer->qpn : 1;
	model_execute(m, s, w);
	wr->wr_id = s->posted;
	wr->opcode = w->opcode;
	if (!model_is_local(w))
		fill_entries(m, s, w, p, read);
	if (sim_bads[w->bad].kills_peer)
		s->peer->killable = true;
	if (w->bad)
		s->harmed = s->peer->harmed = true;
	if (w->fence)
		s->fenced = s->posted;
	s->budget -= w->len < s->budget ? w->len : s->budget;
	s->posted++;
	trace_post(m, s, wr);
}

/* ---- posting ---- */
static void build(struct ibv_qp_ex *q, const struct ibv_send_wr *wr)
{
	q->wr_id = wr->wr_id;
	q->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(q, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(q, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
			wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ibv_wr_atomic_fetch_add(
			q, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ibv_wr_send_imm(q, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ibv_wr_send_inv(q, wr->invalidate_rkey);
		break;
	case IBV_WR_LOCAL_INV:
		ibv_wr_local_inv(q, wr->invalidate_rkey);
		return;
	case IBV_WR_BIND_MW:
		ibv_wr_bind_mw(q, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
		return;
	default:
		ibv_wr_send(q);
	}
	if (q->qp_base.qp_type == IBV_QPT_UD)
		ibv_wr_set_ud_addr(q, wr->wr.ud.ah, wr->wr.ud.remote_qpn, wr->wr.ud.remote_qkey);
}

static void build_payload(struct ibv_qp_ex *q, const struct ibv_send_wr *wr)
{
	struct ibv_data_buf buf[ENTRIES];

	if (!(wr->send_flags & IBV_SEND_INLINE)) {
		if (wr->num_sge == 1)
			ibv_wr_set_sge(q, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
		else
			ibv_wr_set_sge_list(q, (size_t)wr->num_sge, wr->sg_list);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++)
		buf[i] = (struct ibv_data_buf){(void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length};
	ibv_wr_set_inline_data_list(q, (size_t)wr->num_sge, buf);
}

static int post_by_builder(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	ibv_wr_start(&qp->ex);
	for (; wr; wr = wr->next) {
		build(&qp->ex, wr);
		if (wr->opcode != IBV_WR_LOCAL_INV && wr->opcode != IBV_WR_BIND_MW)
			build_payload(&qp->ex, wr);
	}
	return ibv_wr_complete(&qp->ex);
}

static bool is_type_1(const struct ibv_send_wr *wr)
{
	return wr->opcode == IBV_WR_BIND_MW && wr->bind_mw.mw->type == IBV_MW_TYPE_1;
}

/* ibv_bind_mw: type 1 windows have a call of their own. */
static int post_bind(struct hca_qp *qp, const struct ibv_send_wr *wr)
{
	struct ibv_mw_bind b = {
		.wr_id = wr->wr_id, .send_flags = wr->send_flags, .bind_info = wr->bind_mw.bind_info};

	return hca_qp_bind_mw(qp, wr->bind_mw.mw, &b);
}

static void post(struct model *m, struct side *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = wr;
	int err;

	model_leave();
	err = is_type_1(wr) ? post_bind(s->qp, wr)
	      : s->builder  ? post_by_builder(s->qp, wr)
			    : hca_qp_post_send(s->qp, wr, &bad);
	model_enter();
	if (err)
		model_fail(m, s, "posting request %u failed: %d", (unsigned)bad->wr_id, err);
}

void work_post_sends(struct model *m, struct side *s)
{
	unsigned room = s->opts.send_wr - sim_requests_of(s->qp),
		 n = (unsigned)between(1, one_in(4) ? BURST : 4);
	struct post p[BURST];
	struct ibv_send_wr *list = NULL, **end = &list;

	for (unsigned k = 0; k < n && k < room && s->posted < s->todo; k++) {
		draw_wr(m, s, &p[k]);
		if (is_type_1(&p[k].wr) && list) {
			post(m, s, list);
			list = NULL;
			end = &list;
		}
		*end = &p[k].wr;
		end = &p[k].wr.next;
		if (is_type_1(&p[k].wr)) {
			post(m, s, list);
			list = NULL;
			end = &list;
		}
	}
	if (list)
		post(m, s, list);
}

void work_post_recv(struct model *m, struct side *s)
{
	struct sim_rq *rq = s->rq;
	struct ibv_sge sge[HCA_MAX_SGE];
	struct ibv_recv_wr wr = {.sg_list = sge}, *bad;
	unsigned slot = 0;

	while (slot < rq->slots && rq->busy[slot])
		slot++;
	if (slot == rq->slots)
		return;
	rq->busy[slot] = true;
	rq->bad[slot] = s->bad_recv && !rq->srq && one_in(8);
	wr.wr_id = rq->posted++ << 8 | slot;
	wr.num_sge = cut(sge, rq->sge, rq->mem[slot], rq->slot_size, rq->lkey);
	if (rq->bad[slot]) {
		spoil_first(sge, wr.num_sge);
		s->bad_recv = false;
		s->killable = rq->any_bad = s->harmed = s->peer->harmed = true;
	}
	trace_recv(m, s, &wr, rq->bad[slot]);
	if (rq->srq ? hca_rq_post(&rq->srq->rq, &wr) : hca_qp_post_recv(s->qp, &wr, &bad))
		model_fail(m, s, "posting a receive failed");
}
