/* SPDX-License-Identifier: MIT */
#include "trace.h"

#include "seeds.h"
#include "wire/ibt.h"

#include <stdarg.h>
#include <stdio.h>

static const char *wr_name(enum ibv_wr_opcode op)
{
	static const char *const name[] = {
		[IBV_WR_RDMA_WRITE] = "WRITE",
		[IBV_WR_RDMA_WRITE_WITH_IMM] = "WRITE_IMM",
		[IBV_WR_SEND] = "SEND",
		[IBV_WR_SEND_WITH_IMM] = "SEND_IMM",
		[IBV_WR_RDMA_READ] = "READ",
		[IBV_WR_ATOMIC_CMP_AND_SWP] = "CMP_SWAP",
		[IBV_WR_ATOMIC_FETCH_AND_ADD] = "FETCH_ADD",
		[IBV_WR_LOCAL_INV] = "LOCAL_INV",
		[IBV_WR_BIND_MW] = "BIND_MW",
		[IBV_WR_SEND_WITH_INV] = "SEND_INV",
	};

	return (unsigned)op < sizeof(name) / sizeof(name[0]) ? name[op] : "?";
}

static const char *type_name(enum ibv_qp_type t)
{
	return t == IBV_QPT_RC ? "RC" : t == IBV_QPT_UC ? "UC" : "UD";
}

/* Time, node, queue pair: in the columns in which link/sim.h prints packets. */
static void begin(struct model *m, const struct side *s)
{
	printf("%12.3f us  ", (double)sim_now(&m->world) / 1000);
	if (s)
		printf("node %u side %u QP 0x%06x: ", s->node_index, s->index, s->qpn);
}

void trace_seed(struct model *m, const struct sim_rules *r, unsigned timeout, uint64_t pause)
{
	sim_watch(&m->world);
	if (!seeds.trace)
		return;
	printf("seed %llu: %u nodes, %u pairs, loss %.1f%%, duplicates %.1f%%, delayed %.1f%%, corrupted "
	       "%.1f%%,\n    delay %u to %u us, late %u us, ACK timeout %u us, pauses up to %u us\n",
		(unsigned long long)m->seed, m->world.nodes, m->pairs, r->loss / 1e4, r->duplicate / 1e4,
		r->delayed / 1e4, r->corrupt / 1e4, (unsigned)(r->delay_min / 1000),
		(unsigned)(r->delay_max / 1000), (unsigned)(r->late_max / 1000),
		(unsigned)(ibt_timeout_ns(timeout) / 1000), (unsigned)(pause / 1000));
}

void trace_side(struct model *m, const struct side *s)
{
	if (!seeds.trace)
		return;
	begin(m, s);
	printf("%s to side %u on node %u, first PSN 0x%06x, MTU %u, %u sends, %u %sreceives, rd_atomic %u, "
	       "retry %u, "
	       "RNR retry %u%s\n",
		type_name(s->opts.type), s->peer->index, s->peer->node_index, s->opts.psn,
		128u << s->opts.mtu, s->opts.send_wr, s->rq->slots, s->rq->srq ? "shared " : "",
		s->opts.rd_atomic, s->opts.retry, s->opts.rnr_retry, s->builder ? ", posts by ibv_wr_*" : "");
}

void trace_post(struct model *m, const struct side *s, const struct ibv_send_wr *wr)
{
	const struct sim_wr *w = &s->wr[wr->wr_id];

	if (!seeds.trace)
		return;
	begin(m, s);
	printf("posts #%u %s, %u bytes, %d entries", (unsigned)wr->wr_id, wr_name(w->opcode), w->len,
		wr->num_sge);
	if (w->in_target && !w->shared)
		printf(", target + %llu", (unsigned long long)w->offset);
	if (w->shared)
		printf(", common counter");
	if (w->window >= 0)
		printf(", window %d", w->window);
	if (w->dqpn)
		printf(", to QP 0x%06x", w->dqpn);
	printf("%s%s%s%s%s\n", w->fence ? ", fence" : "", wr->send_flags & IBV_SEND_INLINE ? ", inline" : "",
		w->signaled ? "" : ", unsignaled", w->bad ? ", WRONG: " : "", sim_bads[w->bad].name);
}

void trace_recv(struct model *m, const struct side *s, const struct ibv_recv_wr *wr, bool bad)
{
	if (!seeds.trace)
		return;
	begin(m, s);
	printf("posts receive %u in slot %u, %d entries%s\n", (unsigned)(wr->wr_id >> 8),
		(unsigned)(wr->wr_id & 0xff), wr->num_sge, bad ? ", WRONG: unknown lkey" : "");
}

void trace_wc(struct model *m, const struct side *s, const struct ibv_wc *wc, bool send)
{
	if (!seeds.trace)
		return;
	begin(m, s);
	if (send)
		printf("completes #%u %s, %s\n", (unsigned)wc->wr_id,
			wc->wr_id < MAX_WRS ? wr_name(s->wr[wc->wr_id].opcode) : "?",
			ibv_wc_status_str(wc->status));
	else if (wc->status != IBV_WC_SUCCESS)
		printf("completes receive %u, %s\n", (unsigned)(wc->wr_id >> 8),
			ibv_wc_status_str(wc->status));
	else
		printf("completes receive %u, %u bytes%s%s%s from QP 0x%06x\n", (unsigned)(wc->wr_id >> 8),
			wc->byte_len, wc->opcode == IBV_WC_RECV ? "" : " by WRITE",
			wc->wc_flags & IBV_WC_WITH_IMM ? " with immediate" : "",
			wc->wc_flags & IBV_WC_WITH_INV ? " with invalidate" : "", wc->src_qp);
}

void trace_event(struct model *m, const struct side *s, const struct ibv_async_event *ev)
{
	if (!seeds.trace)
		return;
	begin(m, s);
	printf("event %s\n", ibv_event_type_str(ev->event_type));
}

void trace_say(struct model *m, const struct side *s, const char *fmt, ...)
{
	va_list ap;

	if (!seeds.trace)
		return;
	begin(m, s);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}
