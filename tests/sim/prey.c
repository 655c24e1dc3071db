/* SPDX-License-Identifier: MIT */
#include "prey.h"

#include "ib/ibt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	PREY,
	ATTACKER,
	HONEST, /* nodes */

	CANARY = ATTACKER_NEVER,
	GAP = 256, /* canaries before, between and behind */
	SLOT = 1024,
	PIECE = 100, /* of a receive: it comes last */
	REGION = 8192,
	OPEN = GAP,
	READABLE = OPEN + REGION + GAP,
	SOURCE = READABLE + REGION + GAP,
	SEALED = SOURCE + REGION + GAP,
	LANDING = SEALED + REGION + GAP,
	STRIDE = SLOT + 64,
	BULK = LANDING + PREY_WRS * STRIDE + GAP,
	BULK_LEN = 48 * 1024,
	MEMORY = BULK + BULK_LEN + GAP,

	IOVA = 0x40000000, /* of the first byte: an address of this run would be in packets, and in payload */

	SENDS = 6,
	RECVS = 5, /* kept posted per queue pair */
	WINDOW_PACKETS = FLOW_RCVBUF / FLOW_PACKET,
};

static void __attribute__((format(printf, 1, 2), noreturn)) breach(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fprintf(stderr, "\n");
	abort();
}

/* The queue pairs: what is special about each. */
static const struct kind {
	enum ibv_qp_type type;
	bool shared;   /* takes receives from the shared queue */
	bool closed;   /* grants the peer no right; alone in the protection domain of the sealed region */
	bool no_recvs; /* has no receive posted */
	bool bulk;     /* asks for as much as the window allows, when the prey is greedy */
	unsigned timeout, retry, rnr_retry;
} kinds[PREY_QPS] = {
	{.type = IBV_QPT_RC, .timeout = 10, .retry = 7, .rnr_retry = 7},
	{.type = IBV_QPT_RC, .timeout = 0, .retry = 7, .rnr_retry = 7},
	{.type = IBV_QPT_RC, .timeout = 8, .retry = 1, .rnr_retry = 1, .no_recvs = true},
	{.type = IBV_QPT_RC, .timeout = 10, .closed = true, .no_recvs = true},
	{.type = IBV_QPT_RC, .timeout = 14, .retry = 7, .rnr_retry = 7, .bulk = true},
	{.type = IBV_QPT_RC, .timeout = 10, .retry = 3, .rnr_retry = 3, .shared = true},
	{.type = IBV_QPT_RC, .timeout = 10, .retry = 3, .rnr_retry = 3, .shared = true},
	{.type = IBV_QPT_UC},
	{.type = IBV_QPT_UD},
};

/* ---- work requests ---- */
static uint8_t *slot_of(const struct prey *p, uint8_t *base, const struct prey_wr *wr)
{
	return base + LANDING + (size_t)(wr - p->wr) * STRIDE;
}

/* The same in the prey's own memory, as requests name it. */
static uint64_t slot_iova(const struct prey *p, const struct prey_wr *wr)
{
	return IOVA + LANDING + (uint64_t)(wr - p->wr) * STRIDE;
}

static struct prey_wr *wr_new(struct prey *p)
{
	for (unsigned i = 0; i < PREY_WRS; i++) {
		if (!p->wr[i].live)
			return &p->wr[i];
	}
	return NULL;
}

static uint64_t wr_id(const struct prey *p, const struct prey_wr *wr)
{
	return (uint64_t)wr->life << 16 | (uint64_t)(wr - p->wr);
}

static void post_recv(struct prey *p, struct hca_qp *qp)
{
	struct prey_wr *w = wr_new(p);
	struct ibv_sge sge[2];
	struct ibv_recv_wr wr = {.sg_list = sge, .num_sge = 2}, *bad;

	if (!w)
		return;
	/* In two pieces that do not follow each other. */
	sge[0] = (struct ibv_sge){slot_iova(p, w) + PIECE, SLOT - PIECE, p->landing->ibv.lkey};
	sge[1] = (struct ibv_sge){slot_iova(p, w), PIECE, p->landing->ibv.lkey};
	memset(slot_of(p, p->memory, w), CANARY, SLOT);
	wr.wr_id = wr_id(p, w);
	if (qp ? hca_qp_post_recv(qp, &wr, &bad) : hca_rq_post(&p->srq->rq, &wr))
		return;
	w->live = w->is_recv = w->lands = true;
	w->len = 0;
	w->qp = qp;
}

static enum ibv_wr_opcode draw_opcode(struct prey *p, enum ibv_qp_type type)
{
	static const enum ibv_wr_opcode rc[] = {IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_ATOMIC_FETCH_AND_ADD,
		IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_INV};
	static const enum ibv_wr_opcode uc[] = {IBV_WR_SEND, IBV_WR_RDMA_WRITE};

	return type == IBV_QPT_RC ? CHOOSE_FROM(p->choices, rc) : CHOOSE_FROM(p->choices, uc);
}

/* The piece of memory a request works on. */
static struct ibv_sge draw_piece(struct prey *p, const struct prey_wr *w, enum ibv_wr_opcode op)
{
	uint32_t len = (uint32_t)choose(p->choices, SLOT + 1);

	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP)
		len = 8;
	if (w->lands)
		return (struct ibv_sge){slot_iova(p, w), len, p->landing->ibv.lkey};
	return (struct ibv_sge){IOVA + SOURCE, len, p->source->ibv.lkey};
}

static void post_send(struct prey *p, struct prey_qp *q, const struct kind *k)
{
	enum ibv_wr_opcode op = k->bulk ? IBV_WR_RDMA_READ : draw_opcode(p, k->type);
	bool atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP;
	struct prey_wr *w = wr_new(p);
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = op}, *bad;

	if (!w)
		return;
	w->lands = op == IBV_WR_RDMA_READ || atomic;
	sge = draw_piece(p, w, op);
	w->len = op == IBV_WR_RDMA_READ && !k->bulk ? sge.length : 0;
	memset(slot_of(p, p->memory, w), CANARY, SLOT);
	memset(slot_of(p, p->shadow, w), CANARY, SLOT);
	if (k->bulk)
		sge = (struct ibv_sge){IOVA + BULK, BULK_LEN, p->bulk->ibv.lkey};
	wr.wr_id = wr_id(p, w);
	if (atomic)
		wr.wr.atomic.remote_addr = 0x1000;
	else
		wr.wr.rdma.remote_addr = 0x1000;
	if (choose_one_in(p->choices, 8))
		wr.send_flags |= IBV_SEND_FENCE;
	if (hca_qp_post_send(q->qp, &wr, &bad))
		return;
	w->live = true;
	w->is_recv = false;
	w->qp = q->qp;
	w->turn = q->posted++;
	p->first_packets += ibt_npkts(sge.length, ibt_mtu(q->qp));
}

static unsigned live_recvs(const struct prey *p, const struct hca_qp *qp)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PREY_WRS; i++)
		n += p->wr[i].live && p->wr[i].is_recv && p->wr[i].qp == qp;
	return n;
}

static void post_all(struct prey *p)
{
	if (live_recvs(p, NULL) < RECVS)
		post_recv(p, NULL);
	for (unsigned i = 0; i < PREY_QPS; i++) {
		struct prey_qp *q = &p->qp[i];

		if (!kinds[i].shared && !kinds[i].no_recvs && live_recvs(p, q->qp) < RECVS)
			post_recv(p, q->qp);
		if (kinds[i].closed || (kinds[i].bulk && !p->greedy))
			continue;
		if (kinds[i].type != IBV_QPT_UD && q->posted - q->done < SENDS &&
			choose_one_in(p->choices, 3))
			post_send(p, q, &kinds[i]);
	}
}

/* ---- completions ---- */
static struct prey_qp *by_number(struct prey *p, uint32_t qpn)
{
	for (unsigned i = 0; i < PREY_QPS; i++) {
		if (p->qp[i].qp && hca_qpn(p->qp[i].qp) == qpn)
			return &p->qp[i];
	}
	breach("a completion of a queue pair that is gone");
}

/* What a completion says has come is there, all of it. */
static void check_landed(struct prey *p, const struct prey_wr *w, const struct ibv_wc *wc)
{
	const uint8_t *slot = slot_of(p, p->memory, w);
	bool message = w->is_recv && wc->opcode == IBV_WC_RECV && !(wc->wc_flags & IBV_WC_GRH);
	uint32_t len = message ? wc->byte_len : w->len, first = message ? PIECE : 0;

	if (w->is_recv && wc->byte_len > SLOT && wc->opcode == IBV_WC_RECV)
		breach("%u bytes in a receive of %u", wc->byte_len, SLOT);
	for (uint32_t i = 0; i < len; i++) {
		if (slot[(first + i) % SLOT] == CANARY)
			breach("byte %u of %u is missing", i, len);
	}
}

static void poll(struct prey *p)
{
	struct ibv_wc wc;

	while (hca_cq_take(p->cq, &wc, 1) > 0) {
		sim_note_wc(&wc);
		unsigned i = wc.wr_id & 0xffff;
		struct prey_wr *w = &p->wr[i < PREY_WRS ? i : 0];
		struct prey_qp *q = by_number(p, wc.qp_num);

		if (wc.wr_id != wr_id(p, w) || !w->live)
			breach("request %u completed twice, or was never posted", i);
		if (w->qp && w->qp != q->qp)
			breach("request %u completed by another queue pair", i);
		if (!w->is_recv && w->turn != q->done++)
			breach("sends completed out of order");
		if (!wc.status)
			check_landed(p, w, &wc);
		if (w->lands)
			memcpy(slot_of(p, p->shadow, w), slot_of(p, p->memory, w), SLOT);
		w->live = false;
		w->life++;
		p->completed++;
	}
}

/* ---- checks ---- */
static void check_equal(struct prey *p, uint32_t from, uint32_t to, const char *what)
{
	if (!memcmp(p->memory + from, p->shadow + from, to - from))
		return;
	while (p->memory[from] == p->shadow[from])
		from++;
	breach("byte %u of the memory changed: %s", from, what);
}

static void check_memory(struct prey *p)
{
	if (!p->has_key)
		check_equal(p, 0, OPEN + REGION, "a region whose key nobody was told");
	check_equal(p, 0, OPEN, "before the open region");
	check_equal(p, OPEN + REGION, SOURCE, "around or in the region to be read only");
	check_equal(p, SOURCE, SEALED, "around or in what is sent");
	check_equal(p, SEALED, LANDING, "around or in the region of another protection domain");
	for (unsigned i = 0; i < PREY_WRS; i++) {
		struct prey_wr *w = &p->wr[i];
		uint32_t at = LANDING + i * STRIDE;

		check_equal(p, at + SLOT, at + STRIDE, "between two receives");
		if (!w->live || !w->lands)
			check_equal(p, at, at + SLOT, "a receive that is not posted");
	}
	check_equal(p, LANDING + PREY_WRS * STRIDE, BULK, "before the large READs");
	check_equal(p, BULK + BULK_LEN, MEMORY, "behind everything");
}

static void check_flow(struct prey *p, const struct hca_flow *f, bool reads)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < PREY_QPS; i++) {
		if (reads || p->qp[i].qp->path.flow == f)
			sum += sim_qp_in_flight(p->qp[i].qp, reads);
	}
	for (unsigned i = 0; p->with_honest && i < HONEST_PAIRS; i++) {
		struct hca_qp *qp = p->honest.pair[i].qp[i / 2];

		if (reads || qp->path.flow == f)
			sum += sim_qp_in_flight(qp, reads);
	}
	if (sum != f->in_flight)
		breach("%llu is in flight%s but %u is charged", (unsigned long long)sum,
			reads ? " to the prey itself" : "", f->in_flight);
}

static void check_windows(struct prey *p)
{
	const struct hca_adapter *a = &p->w.node[PREY].adapter;

	check_flow(p, a->read_flow, true);
	for (unsigned k = 0; k < FLOW_BUCKETS; k++) {
		for (const struct hca_flow *f = a->flows.bucket[k]; f; f = f->next)
			check_flow(p, f, false);
	}
}

/* No receive of the shared queue is lost by queue pairs that die. */
static void check_shared_queue(struct prey *p)
{
	unsigned in_hand = 0;

	for (unsigned i = 0; i < PREY_QPS; i++)
		in_hand += kinds[i].shared && p->qp[i].qp->recv.valid;
	if (live_recvs(p, NULL) != hca_rq_count(&p->srq->rq) + in_hand)
		breach("%u receives of the shared queue are posted, %u are left and %u in hand",
			live_recvs(p, NULL), hca_rq_count(&p->srq->rq), in_hand);
}

/* How many packets the timers of a queue pair may have sent: whole windows, and single probes. */
static uint64_t timed_packets(const struct hca_qp *qp)
{
	return (qp->count->timeouts + qp->count->rnr_received) * WINDOW_PACKETS + qp->count->probes;
}

/*
 * An answer per question, but for READs, which ask for more, and for an acknowledge in front of a request of
 * our own, which may say again what another thread is about to send (ibt_flush_ack). A response may make us
 * send the window again; so may a timer.
 */
static void check_work(struct prey *p)
{
	const struct attacker *a = &p->attacker;
	uint64_t timed = p->timed_packets;

	for (unsigned i = 0; i < PREY_QPS; i++)
		timed += timed_packets(p->qp[i].qp);
	if (p->answers > a->frames + p->led_requests)
		breach("%llu answers to %llu frames", (unsigned long long)p->answers,
			(unsigned long long)a->frames);
	if (p->read_packets > a->frames * (REGION / 256))
		breach("%llu READ responses to %llu frames", (unsigned long long)p->read_packets,
			(unsigned long long)a->frames);
	if (p->requests > p->first_packets + timed + a->responses * WINDOW_PACKETS)
		breach("%llu requests for %llu responses", (unsigned long long)p->requests,
			(unsigned long long)a->responses);
}

/* ---- the queue pairs: when one dies, another takes its place ---- */
static void bind_window(struct prey *p)
{
	struct ibv_mw_bind_info info = {.mr = &p->open->ibv,
		.addr = IOVA + OPEN + 1024,
		.length = 512,
		.mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	struct hca_bind bind;

	if (p->window)
		hca_mw_dealloc(p->window);
	p->window = hca_mw_alloc(p->w.node[PREY].pd, IBV_MW_TYPE_2);
	if (!p->window)
		breach("a window cannot be made");
	bind = hca_bind_of(&p->window->ibv, p->window->ibv.rkey, &info);
	if (hca_mw_bind(&p->w.node[PREY].adapter, &bind, hca_qpn(p->qp[0].qp)))
		breach("a window cannot be bound");
}

static void tell_keys(struct prey *p)
{
	struct attacker *a = &p->attacker;
	const struct hca_mr *mrs[] = {p->readable, p->landing, p->source, p->sealed,
		p->with_honest ? p->honest.pair[0].mr[0] : NULL, p->has_key ? p->open : NULL};

	a->keys = 0;
	for (unsigned i = 0; i < sizeof(mrs) / sizeof(mrs[0]); i++) {
		if (mrs[i])
			a->key[a->keys++] = (struct attacker_key){
				mrs[i]->ibv.rkey, mrs[i]->key->iova, (uint32_t)mrs[i]->ibv.length};
	}
	if (p->has_key)
		a->key[a->keys++] = (struct attacker_key){p->window->ibv.rkey, IOVA + OPEN + 1024, 512};
}

static void tell_qps(struct prey *p)
{
	struct attacker *a = &p->attacker;

	a->qps = 0;
	for (unsigned i = 0; i < PREY_QPS; i++)
		a->qp[a->qps++] = p->qp[i].qp;
	if (p->with_honest) /* not its own: its frames must not get there */
		a->qp[a->qps++] = p->honest.pair[0].qp[0];
}

static void qp_open(struct prey *p, unsigned i)
{
	static const enum ibv_mtu mtus[] = {IBV_MTU_256, IBV_MTU_512, IBV_MTU_1024};
	const struct kind *k = &kinds[i];
	struct sim_qp_opts o = sim_qp_opts(p->cq);
	struct hca_qp *qp;

	o.type = k->type;
	o.srq = k->shared ? p->srq : NULL;
	o.pd = k->closed ? p->sealed_pd : NULL;
	o.mtu = CHOOSE_FROM(p->choices, mtus);
	o.timeout = k->timeout;
	o.retry = k->retry;
	o.rnr_retry = k->rnr_retry;
	o.psn = choose_one_in(p->choices, 4) ? 0xfffffd : 100;
	qp = sim_qp(&p->w.node[PREY], &o);
	if (k->closed) {
		struct ibv_qp_attr none = {.qp_access_flags = 0};

		hca_qp_modify(qp, &none, IBV_QP_ACCESS_FLAGS);
	}
	sim_connect(qp, &o, p->other_end[i], &o);
	p->qp[i] = (struct prey_qp){.qp = qp};
}

static void qp_close(struct prey *p, unsigned i)
{
	struct hca_qp *qp = p->qp[i].qp;
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};

	hca_qp_modify(qp, &err, IBV_QP_STATE);
	poll(p);
	for (unsigned k = 0; k < PREY_WRS; k++) {
		if (p->wr[k].live && p->wr[k].qp == qp)
			breach("request %u of a dead queue pair never ended", k);
	}
	p->timed_packets += timed_packets(qp);
	hca_qp_destroy(qp);
	p->qp[i].qp = NULL;
}

static void revive(struct prey *p)
{
	for (unsigned i = 0; i < PREY_QPS; i++) {
		enum ibv_qp_state s = hca_qp_state(p->qp[i].qp);

		if (s == IBV_QPS_RTS)
			continue;
		if (s != IBV_QPS_ERR && s != IBV_QPS_SQE)
			breach("a queue pair is in state %s", hca_qp_state_name(s));
		qp_close(p, i);
		p->died++;
		qp_open(p, i);
		if (!i)
			bind_window(p);
	}
}

/* ---- time ---- */
static void turn(struct prey *p)
{
	poll(p);
	if (p->with_honest)
		honest_turn(&p->honest);
}

void prey_rest(struct prey *p, uint64_t ns)
{
	uint64_t until = sim_now(&p->w) + ns;

	do {
		sim_step(&p->w, sim_now(&p->w)); /* completions first, then time */
		turn(p);
	} while (sim_step(&p->w, until));
}

void prey_suffer(struct prey *p)
{
	static const uint64_t pauses[] = {0, 0, 60, 110, 210};
	uint64_t pause;

	post_all(p);
	tell_qps(p);
	tell_keys(p);
	attacker_move(&p->attacker);
	pause = choose_one_in(p->choices, 64) ? 5000 : CHOOSE_FROM(p->choices, pauses);
	prey_rest(p, pause * SIM_US);
	if (p->moves++ % 8 == 0) {
		check_memory(p);
		check_work(p);
	}
	check_windows(p);
	check_shared_queue(p);
	revive(p);
}

/* ---- life ---- */
/* The attacker's adapter sees nothing of what is sent to it: who has its address is not what it was. */
static enum sim_fate judge(void *arg, const struct sim_packet *s)
{
	struct prey *p = arg;
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(s->bytes));

	if (s->to != ATTACKER)
		return SIM_BY_RULES;
	if (!op || ((op->flags & OPF_RESPONSE) && !(op->flags & OPF_READ)))
		p->answers += bth_opcode(s->bytes) != OPCODE_ECHO_REQUEST;
	else if (op->flags & OPF_RESPONSE)
		p->read_packets++;
	else {
		p->requests++;
		p->led_requests += p->acked_last;
	}
	p->acked_last = bth_opcode(s->bytes) == (IBT_RC | OP_ACK);
	return SIM_LOST;
}

static struct hca_mr *region_in(struct prey *p, struct hca_pd *pd, uint32_t at, uint32_t len, unsigned access)
{
	struct hca_mr *mr = hca_mr_reg(pd, p->memory + at, len, IOVA + at, access);

	if (!mr)
		breach("memory cannot be registered");
	return mr;
}

static struct hca_mr *region(struct prey *p, uint32_t at, uint32_t len, unsigned access)
{
	return region_in(p, p->w.node[PREY].pd, at, len, access);
}

static void open_memory(struct prey *p)
{
	p->memory = malloc(MEMORY);
	p->shadow = malloc(MEMORY);
	if (!p->memory || !p->shadow)
		breach("no memory");
	memset(p->memory, CANARY, MEMORY);
	memset(p->shadow, CANARY, MEMORY);
	p->open = region(p, OPEN, REGION, SIM_ALL_ACCESS | IBV_ACCESS_MW_BIND);
	p->readable = region(p, READABLE, REGION, IBV_ACCESS_REMOTE_READ);
	p->source = region(p, SOURCE, REGION, 0);
	p->landing = region(p, LANDING, PREY_WRS * STRIDE, IBV_ACCESS_LOCAL_WRITE);
	p->bulk = region(p, BULK, BULK_LEN, IBV_ACCESS_LOCAL_WRITE);
	p->sealed_pd = hca_pd_alloc(p->w.node[PREY].ctx);
	p->sealed = region_in(p, p->sealed_pd, SEALED, REGION, SIM_ALL_ACCESS);
}

struct prey *prey_open(struct choices *c, uint64_t seed, bool with_honest)
{
	static const struct sim_rules calm = {.delay_min = 100 * SIM_US, .delay_max = 100 * SIM_US};
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = PREY_WRS, .max_sge = 2}};
	struct prey *p = calloc(1, sizeof(*p));

	if (!p)
		breach("no memory");
	p->choices = c;
	p->with_honest = with_honest;
	p->has_key = choose(c, 4);
	p->greedy = choose(c, 2);
	sim_world_init(&p->w, with_honest ? 3 : 2, seed, choose(c, 2));
	sim_rules_set(p->w.net, &calm);
	sim_judge_set(p->w.net, judge, p);
	open_memory(p);
	p->cq = sim_cq(&p->w.node[PREY], 4096);
	p->srq = hca_srq_create(p->w.node[PREY].ctx, &p->w.node[PREY].pd->ibv, &srq);
	if (with_honest)
		honest_open(&p->honest, &p->w.node[PREY], &p->w.node[HONEST]);
	for (unsigned i = 0; i < PREY_QPS; i++) {
		struct sim_qp_opts o = sim_qp_opts(NULL);

		o.type = kinds[i].type;
		o.send_cq = o.recv_cq = sim_cq(&p->w.node[ATTACKER], 4);
		p->other_end[i] = sim_qp(&p->w.node[ATTACKER], &o);
		qp_open(p, i);
	}
	bind_window(p);
	p->attacker = (struct attacker){.choices = c, .node = &p->w.node[ATTACKER], .prey = &p->w.node[PREY]};
	return p;
}

static void close_traffic(struct prey *p)
{
	for (unsigned i = 0; i < PREY_QPS; i++)
		qp_close(p, i);
	p->honest.stopping = true;
	while (p->with_honest && !honest_idle(&p->honest)) {
		bool moved = sim_step(&p->w, UINT64_MAX);

		turn(p);
		if (!moved && !honest_idle(&p->honest))
			breach("honest traffic is stuck");
	}
	if (p->with_honest)
		honest_close(&p->honest);
	sim_run_idle(&p->w);
}

static void check_nothing_left(struct prey *p)
{
	const struct hca_adapter *a = &p->w.node[PREY].adapter;

	if (a->read_flow->in_flight)
		breach("%u is charged for READs when all is over", a->read_flow->in_flight);
	for (unsigned k = 0; k < FLOW_BUCKETS; k++) {
		for (const struct hca_flow *f = a->flows.bucket[k]; f; f = f->next) {
			if (f->in_flight)
				breach("%u is charged to a flow when all is over", f->in_flight);
		}
	}
}

void prey_close(struct prey *p)
{
	check_memory(p);
	check_work(p);
	close_traffic(p);
	check_memory(p);
	check_nothing_left(p);
	hca_mw_dealloc(p->window);
	hca_srq_destroy(p->srq);
	hca_cq_destroy(p->cq);
	for (unsigned i = 0; i < PREY_QPS; i++) {
		struct hca_cq *cq = p->other_end[i]->send_cq;

		hca_qp_destroy(p->other_end[i]);
		hca_cq_destroy(cq);
	}
	hca_mr_dereg(p->open);
	hca_mr_dereg(p->readable);
	hca_mr_dereg(p->source);
	hca_mr_dereg(p->landing);
	hca_mr_dereg(p->bulk);
	hca_mr_dereg(p->sealed);
	hca_pd_dealloc(p->sealed_pd);
	sim_world_fini(&p->w);
	free(p->memory);
	free(p->shadow);
	free(p);
}
