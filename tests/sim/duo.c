/* SPDX-License-Identifier: MIT */
#include "duo.h"

#include "hca/context.h"

#include <stdio.h>

uint8_t mem[2][MEM] __attribute__((aligned(4096)));

/* ---- the stage ---- */
static enum sim_fate judge(void *arg, const struct sim_packet *p)
{
	struct duo *d = arg;
	enum sim_fate fate = SIM_BY_RULES;

	for (unsigned i = 0; i < d->scripts; i++) {
		struct script *s = &d->script[i];
		unsigned k;

		if (s->from != p->from || s->op != bth_opcode(p->bytes))
			continue;
		k = s->seen++;
		if (k >= s->first && k <= s->last)
			fate = s->fate;
	}
	return fate;
}

static void note(void *arg, const struct sim_packet *p)
{
	struct duo *d = arg;
	struct logged *l = &d->log[d->logged];
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(p->bytes));

	if (getenv("SIM_TRACE"))
		sim_trace_print(stdout, p);
	if (d->logged == LOG_MAX)
		return;
	d->logged++;
	*l = (struct logged){.at = p->at,
		.arrives = p->arrives,
		.from = p->from,
		.op = bth_opcode(p->bytes),
		.psn = bth_psn(p->bytes),
		.len = p->len,
		.fate = p->fate};
	if (op && (op->flags & OPF_AETH))
		l->syndrome = aeth_syndrome(p->bytes + BTH_LEN);
	memcpy(l->bytes, p->bytes, p->len < sizeof(l->bytes) ? p->len : sizeof(l->bytes));
}

struct duo *duo_build(bool ipv6, unsigned nodes)
{
	static const struct sim_rules calm = {.delay_min = 5 * SIM_US, .delay_max = 5 * SIM_US};
	struct duo *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	sim_world_init(&d->w, nodes, 1, ipv6);
	sim_rules_set(d->w.net, &calm);
	sim_judge_set(d->w.net, judge, d);
	sim_trace_set(d->w.net, note, d);
	for (unsigned i = 0; i < 2; i++) {
		d->cq[i] = sim_cq(&d->w.node[i], 1024);
		d->mr[i] = sim_mr(&d->w.node[i], mem[i], MEM, (uintptr_t)mem[i]);
		d->opts[i] = sim_qp_opts(d->cq[i]);
		d->opts[i].psn = 100 + 1000 * i;
		for (unsigned k = 0; k < MEM; k++)
			mem[i][k] = (uint8_t)(k * 7 + (k >> 8) * 3 + i);
	}
	return d;
}

struct duo *duo_new(void)
{
	return duo_build(false, 2);
}

void duo_connect(struct duo *d)
{
	for (unsigned i = 0; i < 2; i++)
		d->qp[i] = sim_qp(&d->w.node[i], &d->opts[i]);
	for (unsigned i = 0; i < 2; i++)
		sim_connect(d->qp[i], &d->opts[i], d->qp[!i], &d->opts[!i]);
}

void duo_more(struct duo *d, struct hca_qp *out[2])
{
	for (unsigned i = 0; i < 2; i++)
		out[i] = d->more[d->nmore++] = sim_qp(&d->w.node[i], &d->opts[i]);
	for (unsigned i = 0; i < 2; i++)
		sim_connect(out[i], &d->opts[i], out[!i], &d->opts[!i]);
}

void duo_end(struct duo *d)
{
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(d->w.node[i].adapter.read_flow->in_flight, 0);
	for (unsigned i = 0; i < d->nmore; i++) {
		if (d->more[i])
			hca_qp_destroy(d->more[i]);
	}
	for (unsigned i = 0; i < 2; i++) {
		if (d->qp[i])
			hca_qp_destroy(d->qp[i]);
		hca_mr_dereg(d->mr[i]);
		hca_cq_destroy(d->cq[i]);
	}
	sim_world_fini(&d->w);
	free(d);
}

void script(struct duo *d, unsigned from, uint8_t op, unsigned first, unsigned last, enum sim_fate fate)
{
	assert_true(d->scripts < SCRIPT_MAX);
	d->script[d->scripts++] = (struct script){from, op, first, last, fate, 0};
}

void every_packet_twice(struct duo *d, uint64_t late)
{
	struct sim_rules twice = {
		.delay_min = 5 * SIM_US, .delay_max = 5 * SIM_US, .duplicate = SIM_MILLION, .late_max = late};

	sim_rules_set(d->w.net, &twice);
}

/* ---- what was sent ---- */

unsigned sent(const struct duo *d, unsigned from, uint8_t op)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->logged; i++)
		n += d->log[i].from == from && d->log[i].op == op;
	return n;
}

const struct logged *nth(const struct duo *d, unsigned from, uint8_t op, unsigned k)
{
	for (unsigned i = 0; i < d->logged; i++) {
		if (d->log[i].from == from && d->log[i].op == op && !k--)
			return &d->log[i];
	}
	fail_msg("no such packet");
	return NULL;
}

unsigned naks(const struct duo *d, unsigned from, uint8_t syndrome, uint8_t mask)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->logged; i++)
		n += d->log[i].from == from && d->log[i].op == OP_ACK &&
		     (d->log[i].syndrome & mask) == syndrome;
	return n;
}

unsigned events(struct sim_node *n, enum ibv_event_type type)
{
	unsigned count = 0;

	while (!list_empty(&n->ctx->async.events)) {
		struct ibv_async_event ev;

		assert_int_equal(hca_async_get(n->ctx, &ev), 0);
		count += ev.event_type == type;
		hca_async_ack(&ev);
	}
	return count;
}

/* ---- work ---- */
struct ibv_send_wr request(
	struct duo *d, unsigned side, enum ibv_wr_opcode op, struct ibv_sge *sge, uint32_t off, uint32_t len)
{
	struct ibv_send_wr wr = {.opcode = op, .sg_list = sge, .num_sge = 1};

	*sge = (struct ibv_sge){(uintptr_t)mem[side] + off, len, d->mr[side]->ibv.lkey};
	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)mem[!side] + off;
		wr.wr.atomic.rkey = d->mr[!side]->ibv.rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)mem[!side] + off;
		wr.wr.rdma.rkey = d->mr[!side]->ibv.rkey;
	}
	return wr;
}

void post_wr(struct hca_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	assert_int_equal(hca_qp_post_send(qp, wr, &bad), 0);
}

void post_on(struct duo *d, struct hca_qp *qp, unsigned side, enum ibv_wr_opcode op, uint64_t id,
	uint32_t off, uint32_t len, unsigned flags)
{
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(d, side, op, &sge, off, len);

	wr.wr_id = id;
	wr.send_flags = flags;
	post_wr(qp, &wr);
}

void post(struct duo *d, unsigned side, enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len)
{
	post_on(d, d->qp[side], side, op, id, off, len, 0);
}

void post_list(struct duo *d, unsigned side, enum ibv_wr_opcode op, unsigned n, uint32_t len)
{
	struct ibv_send_wr wr[64];
	struct ibv_sge sge[64];

	for (unsigned i = 0; i < n; i++) {
		wr[i] = request(d, side, op, &sge[i], i * ((len + 7) & ~7u), len);
		wr[i].wr_id = i;
		if (i)
			wr[i - 1].next = &wr[i];
	}
	post_wr(d->qp[side], wr);
}

void post_recv(struct duo *d, unsigned side, uint64_t id, uint32_t off, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)mem[side] + off, len, d->mr[side]->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(hca_qp_post_recv(d->qp[side], &wr, &bad), 0);
}

void expect_wc(struct duo *d, unsigned side, uint64_t id, enum ibv_wc_status status)
{
	struct ibv_wc wc;

	assert_int_equal(hca_cq_take(d->cq[side], &wc, 1), 1);
	assert_int_equal(wc.wr_id, id);
	assert_int_equal(wc.status, status);
}

void expect_all(struct duo *d, unsigned side, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		expect_wc(d, side, i, IBV_WC_SUCCESS);
	assert_true(hca_cq_empty(d->cq[side]));
}

void expect_none(struct duo *d, unsigned side)
{
	assert_true(hca_cq_empty(d->cq[side]));
}

void expect_alive(struct duo *d)
{
	post(d, 0, IBV_WR_RDMA_WRITE, 0xa11fe, 0, 64);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 0xa11fe, IBV_WC_SUCCESS);
}

/* ---- packets made by hand ---- */
void forge(struct duo *d, unsigned port, unsigned as, unsigned to, const uint8_t *bytes, uint32_t len)
{
	struct link *l = ibt_port_in(&d->w.node[port].adapter)->link;
	struct frame_batch *b = calloc(1, sizeof(*b));
	uint32_t hdr = len < FRAME_HDR_MAX ? len : FRAME_HDR_MAX;

	assert_non_null(b);
	memcpy(b->dest.sgid, d->w.node[as].dev.port[0].gid[0].raw, 16);
	memcpy(b->dest.dgid, d->w.node[to].dev.port[0].gid[0].raw, 16);
	b->nframes = 1;
	b->frame[0].hdr_len = (uint8_t)hdr;
	memcpy(b->frame[0].hdr, bytes, hdr);
	if (len > hdr) {
		b->frame[0].payload_len = len - hdr;
		b->frame[0].iov_count = 1;
		b->iov[b->niov++] = (struct iovec){(void *)(bytes + hdr), len - hdr};
	}
	l->ops->send(l, b);
	free(b);
}

void forge_request(struct duo *d, struct forged f)
{
	uint8_t p[FRAME_HDR_MAX + 8192] = {0}, *ext = p + BTH_LEN;
	const struct ibt_op_info *op = ibt_op_lookup(f.op);
	uint64_t va = f.va ? f.va : (uintptr_t)mem[1];
	uint32_t rkey = f.rkey ? f.rkey : d->mr[1]->ibv.rkey, len = BTH_LEN + (op ? op->ext_len : 0);

	bth_put(p, f.op, false, f.pad, f.pkey ? f.pkey : PKEY_DEFAULT, hca_qpn(d->qp[1]), true,
		psn_add(d->opts[0].psn, f.psn));
	if (op && (op->flags & OPF_RETH))
		reth_put(ext, va, rkey, f.dma_len);
	if (op && (op->flags & OPF_ATOMICETH))
		atomiceth_put(ext, va, rkey, 1, 0);
	memset(p + len, 0xee, f.payload);
	forge(d, 0, 0, 1, p, len + f.payload - f.cut);
}
