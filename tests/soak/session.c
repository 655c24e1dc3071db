/* SPDX-License-Identifier: MIT */
/*
 * A session: two workers joined by a queue pair, each sending its half of a script and checking the other's.
 *
 *   session_invite -> INVITED --accept--> RUNNING --all sent, all received--> DONE --the other too--> closed
 *   session_invited ---------------------> RUNNING      |
 *                                             '--an error completion, or given up half way--> closed
 *
 * A receiver tells how far it has come by the immediate of an empty message, the credit; a sender is never
 * more than `window` operations ahead of that, so that memory is not written over before it was checked. A
 * reliable session where nothing moves asks by an empty WRITE whether the other is still there: that must
 * complete, well or by an error. Unreliable ones go on without the messages that were lost.
 */
#include "soak.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum {
	MAX_WINDOW = 8,
	INLINE = 128,
	GRH = 40,
	INVITE_MS = 5000, /* an invitation nobody answers */
	PROBE_AFTER_MS = 1000,
	PROBE_LIMIT_MS = 60000, /* retries end after 2 s; the rest is for machines that are busy otherwise */
	STALL_LIMIT_MS = 120000,
	DONE_LIMIT_MS = 10000, /* the other's farewell may have been lost with it */
	LOSS_MS = 50,
	TIMEOUT = 16, /* 268 ms, seven times */
};

static const uint32_t CREDIT = 0x80000000;

enum { TAG_OP = 1, TAG_CREDIT, TAG_PROBE, TAG_RECV };

static uint64_t tagged(unsigned tag, uint32_t n)
{
	return (uint64_t)tag << 32 | n;
}

struct session {
	struct session *next;
	struct worker *w;
	uint64_t id, began;
	int peer;
	enum { INVITED, RUNNING, DONE } state;
	struct script script;
	unsigned dir;                         /* of what we send */
	uint32_t window, targets, give_up_at; /* targets: slots that the other WRITEs to */
	bool use_srq, peer_done, failed, last_wqe;

	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	/* One mapping, five regions: source and landing, target of WRITEs, receives, what may be read, a
	 * word. */
	uint8_t *memory, *src, *target, *recv, *readable;
	uint64_t *word;
	size_t size;
	struct ibv_mr *mr[5];
	struct end end, other;

	uint32_t next_op, done_ops, credit, forgiven; /* sending */
	uint64_t sum, old[MAX_WINDOW], credited_at;   /* atomics: what the word is, what it must have been */
	uint32_t expected, told;                      /* receiving: the next operation; how far we told */
	bool credit_out;
	unsigned recvs_out;
	uint64_t moved_at, probed_at, done_at;
};

struct session *session_next(struct session *s)
{
	return s->next;
}

bool session_wants_event(const struct session *s)
{
	return s->channel;
}

bool session_is_invited(const struct session *s)
{
	return s->dir == 1;
}

struct session *session_find(struct worker *w, uint64_t id)
{
	struct session *s = w->sessions;

	while (s && s->id != id)
		s = s->next;
	return s;
}

static bool reliable(const struct session *s)
{
	return s->script.type == IBV_QPT_RC;
}

static const char *type_name(const struct session *s)
{
	return s->script.type == IBV_QPT_RC ? "RC" : s->script.type == IBV_QPT_UC ? "UC" : "UD";
}

#define session_fail(s, fmt, ...)                                                                            \
	fail((s)->w, "session with worker %d (%s, seed %#llx): " fmt, (s)->peer, type_name(s),               \
		(unsigned long long)(s)->script.seed, ##__VA_ARGS__)

/* ---- building ---- */
static struct ibv_mr *region(struct session *s, void *addr, size_t len, int access)
{
	struct ibv_mr *mr = ibv_reg_mr(s->w->pd, addr, len, access);

	if (!mr)
		session_fail(s, "ibv_reg_mr: %s", strerror(errno));
	return mr;
}

static size_t slot_size(const struct session *s)
{
	return (s->script.max_len + GRH + 63) & ~63ul;
}

static void build_memory(struct session *s)
{
	size_t slot = slot_size(s), part = slot * s->window, target = slot * s->targets;

	s->size = 2 * part + target + slot + 4096;
	s->memory = mmap(NULL, s->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s->memory == MAP_FAILED)
		session_fail(s, "mmap: %s", strerror(errno));
	s->word = (uint64_t *)s->memory;
	s->src = s->memory + 4096;
	s->target = s->src + part;
	s->recv = s->target + target;
	s->readable = s->recv + part;
	s->mr[0] = region(s, s->src, part, IBV_ACCESS_LOCAL_WRITE);
	s->mr[1] = region(s, s->target, target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	s->mr[2] = region(s, s->recv, part, IBV_ACCESS_LOCAL_WRITE);
	s->mr[3] = region(s, s->readable, slot, IBV_ACCESS_REMOTE_READ);
	s->mr[4] = region(s, s->word, 8, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC);
	content_fill(s->readable, s->script.max_len, s->script.seed + !s->dir, 0);
}

static uint8_t *slot(const struct session *s, uint8_t *base, uint32_t i)
{
	return base + slot_size(s) * (i % s->window);
}

static uint8_t *target_slot(const struct session *s, uint32_t i)
{
	return s->target + slot_size(s) * (i % s->targets);
}

static void post_recv(struct session *s, uint32_t buffer)
{
	struct ibv_sge sge = {(uintptr_t)slot(s, s->recv, buffer), (uint32_t)slot_size(s), s->mr[2]->lkey};
	struct ibv_recv_wr wr = {.wr_id = tagged(TAG_RECV, buffer), .sg_list = &sge, .num_sge = 1}, *bad;

	if (s->use_srq) {
		worker_post_srq(s->w, buffer);
		return;
	}
	if (ibv_post_recv(s->qp, &wr, &bad))
		session_fail(s, "ibv_post_recv fails");
	s->recvs_out++;
}

static void build_qp(struct session *s)
{
	struct worker *w = s->w;
	struct ibv_qp_init_attr a = {.qp_type = s->script.type,
		.qp_context = s,
		.srq = s->use_srq ? w->srq : NULL,
		.cap = {.max_send_wr = 2 * MAX_WINDOW + 4,
			.max_recv_wr = MAX_WINDOW,
			.max_send_sge = 2,
			.max_recv_sge = 1,
			.max_inline_data = INLINE}};
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = (uint32_t)s->id,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	s->cq = ibv_create_cq(w->ctx, 4 * MAX_WINDOW + 4 + (s->use_srq ? SRQ_WRS : 0), s, s->channel, 0);
	if (!s->cq || (s->channel && ibv_req_notify_cq(s->cq, 0)))
		session_fail(s, "no completion queue: %s", strerror(errno));
	a.send_cq = a.recv_cq = s->cq;
	s->qp = ibv_create_qp(w->pd, &a);
	if (!s->qp)
		session_fail(s, "ibv_create_qp: %s", strerror(errno));
	mask |= s->script.type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	if (ibv_modify_qp(s->qp, &init, mask))
		session_fail(s, "the queue pair does not go to INIT");
	for (uint32_t i = 0; i < s->window && !s->use_srq; i++)
		post_recv(s, i);
}

static void connect_qp(struct session *s)
{
	struct ibv_ah_attr av = {.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = s->other.gid, .sgid_index = (uint8_t)s->w->gid_index, .hop_limit = 64}};
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024 + s->script.seed % 3,
		.dest_qp_num = s->other.qpn,
		.rq_psn = s->other.psn,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 12,
		.ah_attr = av};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS,
		.sq_psn = s->end.psn,
		.timeout = TIMEOUT,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 4};
	int to_rtr = IBV_QP_STATE, to_rts = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (s->script.type == IBV_QPT_UD) {
		s->ah = ibv_create_ah(s->w->pd, &av);
		if (!s->ah)
			session_fail(s, "ibv_create_ah: %s", strerror(errno));
	} else {
		to_rtr |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	}
	if (reliable(s)) {
		to_rtr |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		to_rts |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (ibv_modify_qp(s->qp, &rtr, to_rtr) || ibv_modify_qp(s->qp, &rts, to_rts))
		session_fail(s, "the queue pair does not connect");
	s->state = RUNNING;
	s->moved_at = s->credited_at = now_ms();
}

static struct session *session_open(
	struct worker *w, uint64_t id, int peer, unsigned dir, const struct script *sc)
{
	struct session *s = calloc(1, sizeof(*s));
	uint64_t r = random_next(&w->random);

	s->w = w;
	s->id = id;
	s->peer = peer;
	s->dir = dir;
	s->script = *sc;
	s->began = now_ms();
	s->window = sc->max_len > 65536 ? 4 : MAX_WINDOW;
	s->targets = sc->type == IBV_QPT_UC && sc->max_len <= 4096 ? sc->ops : s->window;
	s->use_srq = sc->max_len + GRH <= SRQ_LEN && r % 3 == 0;
	s->channel = r >> 8 & 1 ? w->channel : NULL;
	s->give_up_at = (r >> 16) % 12 ? UINT32_MAX : (uint32_t)((r >> 24) % sc->ops);
	build_memory(s);
	build_qp(s);
	s->end = (struct end){.gid = w->gid,
		.qpn = s->qp->qp_num,
		.psn = (uint32_t)(r >> 32) & 0xffffff,
		.target = (uintptr_t)s->target,
		.readable = (uintptr_t)s->readable,
		.word = (uintptr_t)s->word,
		.target_key = s->mr[1]->rkey,
		.readable_key = s->mr[3]->rkey,
		.word_key = s->mr[4]->rkey};
	s->next = w->sessions;
	w->sessions = s;
	w->tally.sessions++;
	return s;
}

static void tell_end(struct session *s, enum msg_kind kind)
{
	struct msg m = {.kind = kind, .to = s->peer, .session = s->id};

	m.meet.seed = s->script.seed;
	m.meet.type = s->script.type;
	m.meet.max_len = s->script.max_len;
	m.meet.ops = s->script.ops;
	m.meet.end = s->end;
	worker_tell(s->w, &m);
}

void session_invite(struct worker *w, int peer)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	static const uint32_t lens[] = {64, 4096, 4096, 32768, 32768, 200000, 1 << 20};
	struct script sc = {.seed = random_next(&w->random), .inline_max = INLINE};

	sc.type = types[random_next(&w->random) % 5];
	sc.max_len = lens[random_next(&w->random) % 7];
	if (sc.type == IBV_QPT_UD && sc.max_len > w->mtu)
		sc.max_len = w->mtu;
	sc.ops = 16 + (uint32_t)(random_next(&w->random) % (sc.max_len > 65536 ? 32 : 400));
	tell_end(session_open(w, random_next(&w->random), peer, 0, &sc), MSG_INVITE);
}

void session_invited(struct worker *w, const struct msg *m)
{
	struct script sc = {.seed = m->meet.seed,
		.type = (enum ibv_qp_type)m->meet.type,
		.max_len = m->meet.max_len,
		.ops = m->meet.ops,
		.inline_max = INLINE};
	struct session *s = session_open(w, m->session, m->from, 1, &sc);

	s->other = m->meet.end;
	connect_qp(s);
	tell_end(s, MSG_ACCEPT);
}

void session_told(struct session *s, const struct msg *m)
{
	if (m->kind == MSG_ACCEPT && s->state == INVITED) {
		s->other = m->meet.end;
		connect_qp(s);
	} else if (m->kind == MSG_BYE) {
		s->peer_done = true;
	}
}

/* ---- sending ---- */
static void post(struct session *s, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (s->script.type == IBV_QPT_UD) {
		wr->wr.ud.ah = s->ah;
		wr->wr.ud.remote_qpn = s->other.qpn;
		wr->wr.ud.remote_qkey = (uint32_t)s->id;
	}
	if (ibv_post_send(s->qp, wr, &bad))
		session_fail(s, "ibv_post_send of %llx fails", (unsigned long long)wr->wr_id);
}

/* An atomic leaves what the word was; the word is ours alone to change. */
static void aim_atomic(struct session *s, struct ibv_send_wr *wr, const struct op *op, uint32_t i)
{
	s->old[i % s->window] = s->sum;
	wr->wr.atomic.remote_addr = s->other.word;
	wr->wr.atomic.rkey = s->other.word_key;
	wr->wr.atomic.compare_add = op->kind == OP_ADD ? op->seed : s->sum;
	wr->wr.atomic.swap = op->seed;
	s->sum = op->kind == OP_ADD ? s->sum + op->seed : op->seed;
}

static void aim(struct session *s, struct ibv_send_wr *wr, const struct op *op, uint32_t i)
{
	static const enum ibv_wr_opcode opcodes[] = {[OP_SEND] = IBV_WR_SEND,
		[OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[OP_WRITE] = IBV_WR_RDMA_WRITE,
		[OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[OP_READ] = IBV_WR_RDMA_READ,
		[OP_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
		[OP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP};

	wr->opcode = opcodes[op->kind];
	wr->imm_data = htonl(i);
	if (op->kind == OP_WRITE || op->kind == OP_WRITE_IMM) {
		wr->wr.rdma.remote_addr = s->other.target + slot_size(s) * (i % s->targets);
		wr->wr.rdma.rkey = s->other.target_key;
	} else if (op->kind == OP_READ) {
		wr->wr.rdma.remote_addr = s->other.readable + op->offset;
		wr->wr.rdma.rkey = s->other.readable_key;
	} else if (op->kind >= OP_ADD) {
		aim_atomic(s, wr, op, i);
	}
}

static void send_op(struct session *s, uint32_t i)
{
	struct op op = script_op(&s->script, s->dir, i);
	uint8_t *from = slot(s, s->src, i);
	uint32_t half = op.len / 3;
	struct ibv_sge sge[2] = {{(uintptr_t)from, half, s->mr[0]->lkey},
		{(uintptr_t)from + half, op.len - half, s->mr[0]->lkey}};
	struct ibv_send_wr wr = {.wr_id = tagged(TAG_OP, i), .sg_list = sge, .num_sge = 2};

	/* Unreliable ones may come late: not to memory where another has come meanwhile. */
	if (!reliable(s) && op.kind == OP_WRITE_IMM && i >= s->targets)
		op.kind = OP_SEND_IMM;
	if (op.kind >= OP_ADD) {
		sge[0].length = 8;
		wr.num_sge = 1;
	}
	if (op.kind < OP_READ)
		content_fill(from, op.len, op.seed, 0);
	else
		memset(from, 0, op.len);
	wr.send_flags = (op.signaled ? IBV_SEND_SIGNALED : 0) | (op.is_inline ? IBV_SEND_INLINE : 0);
	if (op.seed % 8 == 0)
		wr.send_flags |= op.kind == OP_READ ? IBV_SEND_FENCE : IBV_SEND_SOLICITED;
	aim(s, &wr, &op, i);
	post(s, &wr);
	if (op.is_inline)
		memset(from, 0xee, op.len); /* it is ours again at once */
}

static uint32_t may_send_to(struct session *s)
{
	uint32_t limit = s->done_ops + s->window, credit = s->credit + s->window;

	if (!reliable(s)) {
		if (now_ms() - s->credited_at > LOSS_MS) {
			s->forgiven = s->next_op; /* lost, or nobody is there: on without */
			s->credited_at = now_ms();
		}
		credit = (s->credit > s->forgiven ? s->credit : s->forgiven) + 4 * s->window;
	}
	limit = limit < credit ? limit : credit;
	return limit < s->script.ops ? limit : s->script.ops;
}

static void send_more(struct session *s)
{
	uint32_t limit = may_send_to(s);

	while (s->next_op < limit)
		send_op(s, s->next_op++);
}

/* Empty, but for the number: how far we have come in what the other sends. */
static void send_credit(struct session *s)
{
	struct ibv_send_wr wr = {.wr_id = tagged(TAG_CREDIT, 0),
		.opcode = s->script.type == IBV_QPT_UD ? IBV_WR_SEND_WITH_IMM : IBV_WR_RDMA_WRITE_WITH_IMM,
		.send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(CREDIT | s->expected)};

	if (s->credit_out || s->told == s->expected)
		return;
	wr.wr.rdma.remote_addr = s->other.target;
	wr.wr.rdma.rkey = s->other.target_key;
	s->credit_out = true;
	s->told = s->expected;
	post(s, &wr);
}

static void probe(struct session *s)
{
	struct ibv_send_wr wr = {
		.wr_id = tagged(TAG_PROBE, 0), .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
	uint64_t now = now_ms();

	if (s->probed_at && now - s->probed_at > PROBE_LIMIT_MS)
		session_fail(s, "an empty WRITE has no completion after %llu ms",
			(unsigned long long)(now - s->probed_at));
	if (s->probed_at || now - s->moved_at < PROBE_AFTER_MS)
		return;
	wr.wr.rdma.remote_addr = s->other.target;
	wr.wr.rdma.rkey = s->other.target_key;
	s->probed_at = now;
	post(s, &wr);
}

/* ---- completions ---- */
static void check_content(struct session *s, const uint8_t *p, uint32_t len, uint64_t seed, uint32_t offset,
	const struct op *op, uint32_t i)
{
	uint32_t at = content_check(p, len, seed, offset);

	if (at != len)
		session_fail(s, "operation %u (kind %d): byte %u of %u is wrong", i, op->kind, at, len);
	s->w->tally.bytes += len;
	s->w->tally.checked[op->kind]++;
	s->w->tally.met |= 1u << s->peer;
}

static void check_done_op(struct session *s, uint32_t i)
{
	struct op op = script_op(&s->script, s->dir, i);
	uint8_t *at = slot(s, s->src, i);

	if (op.kind == OP_READ) {
		check_content(s, at, op.len, s->script.seed + s->dir, op.offset, &op, i);
	} else if (op.kind >= OP_ADD) {
		if (memcmp(at, &s->old[i % s->window], 8))
			session_fail(s, "atomic %u returned another value than the word had", i);
		s->w->tally.checked[op.kind]++;
	}
}

static void on_sent(struct session *s, const struct ibv_wc *wc)
{
	uint32_t i = (uint32_t)wc->wr_id;

	switch (wc->wr_id >> 32) {
	case TAG_CREDIT:
		s->credit_out = false;
		break;
	case TAG_PROBE: {
		uint64_t took = now_ms() - s->probed_at;

		if (took > s->w->tally.slowest_probe_ms)
			s->w->tally.slowest_probe_ms = took;
		s->probed_at = 0;
		return; /* the other lives, but nothing moved */
	}
	default:
		if (i < s->done_ops || i >= s->next_op)
			session_fail(s, "operation %u completes out of order", i);
		check_done_op(s, i);
		s->done_ops = i + 1;
	}
	s->moved_at = now_ms();
}

/* Everything from the last message to this one. */
static void on_message(struct session *s, const struct ibv_wc *wc, const uint8_t *at)
{
	uint32_t imm = ntohl(wc->imm_data), before = s->expected, len;
	struct op op;

	if (!reliable(s)) {
		/* One that another process had to hand over may come late. */
		if (imm >= s->script.ops)
			session_fail(s, "message %u came, of %u", imm, s->script.ops);
		s->expected = imm;
	}
	for (;; s->expected++) {
		if (s->expected >= s->script.ops)
			session_fail(s, "more came than was sent");
		op = script_op(&s->script, !s->dir, s->expected);
		if (op.takes_receive)
			break;
		if (op.kind == OP_WRITE)
			check_content(s, target_slot(s, s->expected), op.len, op.seed, 0, &op, s->expected);
	}
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
		if (op.kind != OP_WRITE_IMM)
			session_fail(s, "a WRITE came where a SEND was expected");
		at = target_slot(s, s->expected);
	}
	if (reliable(s) && op.kind != OP_SEND && imm != s->expected)
		session_fail(s, "immediate %u where %u was expected", imm, s->expected);
	len = wc->byte_len - (s->script.type == IBV_QPT_UD ? GRH : 0);
	if (len != op.len)
		session_fail(s, "message %u has %u bytes, not %u", s->expected, len, op.len);
	check_content(s, at, len, op.seed, 0, &op, s->expected);
	s->expected = s->expected + 1 > before ? s->expected + 1 : before;
}

static void on_received(struct session *s, const struct ibv_wc *wc)
{
	uint32_t buffer = (uint32_t)wc->wr_id, imm = ntohl(wc->imm_data);
	const uint8_t *at = s->use_srq ? s->w->srq_buf + (size_t)buffer * SRQ_LEN : slot(s, s->recv, buffer);

	if (s->script.type == IBV_QPT_UD)
		at += GRH;
	if ((wc->wc_flags & IBV_WC_WITH_IMM) && imm & CREDIT) {
		if ((imm & ~CREDIT) > s->credit) {
			s->credit = imm & ~CREDIT;
			s->credited_at = now_ms();
		}
	} else {
		on_message(s, wc, at);
	}
	s->moved_at = now_ms();
}

/* Only what a dead or silent peer causes is no bug. */
static void on_completion(struct session *s, const struct ibv_wc *wc)
{
	bool is_recv = wc->wr_id >> 32 == TAG_RECV;

	if (is_recv && !s->use_srq)
		s->recvs_out--;
	if (wc->status == IBV_WC_SUCCESS && !s->failed) {
		if (is_recv)
			on_received(s, wc);
		else
			on_sent(s, wc);
	} else if (wc->status != IBV_WC_SUCCESS) {
		if (wc->status != IBV_WC_WR_FLUSH_ERR &&
			!(wc->status == IBV_WC_RETRY_EXC_ERR && reliable(s) && !is_recv))
			session_fail(s, "completion of %llx: %s", (unsigned long long)wc->wr_id,
				ibv_wc_status_str(wc->status));
		s->failed = true;
	}
	if (is_recv && (!s->failed || s->use_srq))
		post_recv(s, (uint32_t)wc->wr_id);
}

static int drain(struct session *s)
{
	struct ibv_wc wc[8];
	int n, all = 0;

	while ((n = ibv_poll_cq(s->cq, 8, wc)) > 0) {
		for (int i = 0; i < n; i++)
			on_completion(s, &wc[i]);
		all += n;
	}
	if (n < 0)
		session_fail(s, "ibv_poll_cq fails");
	return all;
}

/* ---- life and end ---- */
static bool all_moved(const struct session *s)
{
	return s->done_ops == s->script.ops && !s->credit_out &&
	       (!reliable(s) || (s->expected == s->script.ops && s->told == s->expected));
}

static bool run(struct session *s)
{
	uint64_t now = now_ms();

	if (s->next_op >= s->give_up_at)
		return false;
	send_more(s);
	send_credit(s);
	if (s->state == RUNNING && all_moved(s)) {
		struct msg bye = {.kind = MSG_BYE, .to = s->peer, .session = s->id};

		worker_tell(s->w, &bye);
		s->state = DONE;
		s->done_at = now;
	}
	if (s->state == DONE &&
		(s->peer_done || now - s->done_at > (reliable(s) ? DONE_LIMIT_MS : INVITE_MS))) {
		s->w->tally.ended++;
		return false;
	}
	if (reliable(s))
		probe(s);
	if (now - s->moved_at > STALL_LIMIT_MS)
		session_fail(s, "nothing moves, though the other answers");
	return true;
}

/* A sleeper looks once in a while: what lies there must have come with an event. */
static void look_after_sleep(struct session *s)
{
	struct pollfd p = {.fd = s->channel->fd, .events = POLLIN};

	if (drain(s) && poll(&p, 1, 30000) != 1)
		session_fail(s, "a completion came without an event");
}

bool session_step(struct session *s, bool woken)
{
	if (s->state == INVITED)
		return now_ms() - s->began < INVITE_MS;
	if (woken)
		drain(s);
	else
		look_after_sleep(s);
	if (s->failed) {
		s->w->tally.errors++;
		return false;
	}
	return run(s);
}

void session_events(struct worker *w)
{
	struct pollfd p = {.fd = w->ctx->async_fd, .events = POLLIN};
	struct ibv_async_event ev;

	while (poll(&p, 1, 0) == 1 && !ibv_get_async_event(w->ctx, &ev)) {
		if (ev.event_type == IBV_EVENT_QP_LAST_WQE_REACHED)
			((struct session *)ev.element.qp->qp_context)->last_wqe = true;
		else if (ev.event_type != IBV_EVENT_COMM_EST && ev.event_type != IBV_EVENT_GID_CHANGE)
			fail(w, "an event nobody expected: %s", ibv_event_type_str(ev.event_type));
		ibv_ack_async_event(&ev);
	}
}

/* With a shared receive queue the last buffer is back only after this event. */
static void wait_last_wqe(struct session *s)
{
	for (uint64_t end = now_ms() + PROBE_LIMIT_MS; !s->last_wqe; session_events(s->w)) {
		if (now_ms() > end)
			session_fail(s, "no IBV_EVENT_QP_LAST_WQE_REACHED");
	}
}

static void flush(struct session *s)
{
	struct ibv_qp_attr err = {.qp_state = IBV_QPS_ERR};
	uint64_t end = now_ms() + PROBE_LIMIT_MS;

	if (ibv_modify_qp(s->qp, &err, IBV_QP_STATE))
		session_fail(s, "the queue pair does not go to ERR");
	s->failed = true;
	if (s->use_srq)
		wait_last_wqe(s);
	do
		drain(s);
	while (s->recvs_out && now_ms() < end);
	if (s->recvs_out)
		session_fail(s, "%u receives were not flushed", s->recvs_out);
}

void session_close(struct session *s)
{
	struct session **p = &s->w->sessions;
	int rc = 0;

	if (s->use_srq || random_next(&s->w->random) % 2)
		flush(s);
	rc |= ibv_destroy_qp(s->qp);
	rc |= ibv_destroy_cq(s->cq);
	rc |= s->ah ? ibv_destroy_ah(s->ah) : 0;
	for (int i = 0; i < 5; i++)
		rc |= ibv_dereg_mr(s->mr[i]);
	if (rc)
		session_fail(s, "something cannot be destroyed");
	munmap(s->memory, s->size);
	while (*p != s)
		p = &(*p)->next;
	*p = s->next;
	free(s);
}
