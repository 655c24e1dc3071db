/* SPDX-License-Identifier: MIT */
/*
 * Side 1 is a queue pair of ours that has work of its own; side 0's words are the attacker's: set-ups with
 * wrong bytes, segments that are mostly right, with keys it was given, keys it was not, numbers that are off
 * by a little, answers to READs that are too long, and bytes of no meaning, cut anywhere. What must hold:
 *
 *   - memory it was not given stays as it was, and is never sent to it
 *   - receives are filled within their bounds
 *   - every request and receive of the victim ends exactly once, in order
 */
#include "iwarp_attack.h"

#include "iwarp_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The victim's memory, in stretches of 64 KiB. */
enum {
	STRETCH = 65536,
	GIVEN = 0,           /* may be written, read, counted in */
	READ_ONLY = STRETCH, /* may be read */
	OTHER = 2 * STRETCH, /* of another protection domain: secret */
	OWN = 3 * STRETCH,   /* not registered for others: secret */
	SLOTS = 4 * STRETCH, /* receives, with gaps */
	SINK = 5 * STRETCH,  /* of its READs */
	SLOT = 1000,
	SLOT_EVERY = 1024,
	SECRET = 0xd1,
};

struct attack {
	struct choices *c;
	struct iwarp_pair *p;
	struct iwarp_side *victim;
	struct hca_pd *pd;
	struct hca_mr *given, *read_only, *other, *own;
	struct iwarp_writer w; /* the attacker's: right CRCs, right markers */
	uint8_t stage[IWARP_STAGE], payload[70000];
	uint32_t msn[QN_COUNT], mo;
	unsigned sends, sends_done, recvs, recvs_done;
	uint64_t secret_run; /* bytes of a secret in a row that were sent */
};

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "attack: %s\n", what);
	abort();
}

static uint64_t draw(struct attack *a, uint64_t below)
{
	return choose(a->c, below);
}

/* ---- the stage ---- */
static struct attack *current;

static void spy(struct iwarp_pair *p, unsigned from, uint8_t *bytes, size_t len)
{
	for (size_t i = 0; from == 1 && i < len; i++) {
		current->secret_run = bytes[i] == SECRET ? current->secret_run + 1 : 0;
		must(current->secret_run < 16, "a secret was sent");
	}
}

static struct hca_mr *region(struct attack *a, struct hca_pd *pd, uint32_t at, unsigned access)
{
	uint8_t *mem = a->victim->mem + at;
	struct hca_mr *mr = hca_mr_reg(pd, mem, STRETCH, a->victim->iova + at, access);

	must(mr, "register memory");
	return mr;
}

static bool gather(void *arg, const struct iwarp_fpdu *f, uint32_t off, uint32_t len, struct iovec *iov,
	unsigned max, unsigned *n)
{
	*n = 1;
	iov[0] = (struct iovec){((struct attack *)arg)->payload + off, len};
	return true;
}

static void done(void *arg, const struct iwarp_fpdu *f)
{
}

static const struct iwarp_writer_ops writer_ops = {gather, done};

static void set_up(struct attack *a)
{
	struct iwarp_options *o;

	a->p = iwarp_pair_new();
	a->p->spy = spy;
	a->p->cut = a->c;
	a->victim = &a->p->side[1];
	memset(a->victim->mem + OTHER, SECRET, 2 * STRETCH);
	a->pd = hca_pd_alloc(a->victim->node->ctx);
	a->given = region(a, a->victim->node->pd, GIVEN, SIM_ALL_ACCESS);
	a->read_only =
		region(a, a->victim->node->pd, READ_ONLY, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	a->other = region(a, a->pd, OTHER, SIM_ALL_ACCESS);
	a->own = region(a, a->victim->node->pd, OWN, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned i = 0; i < 2; i++) {
		o = &a->p->side[i].mpa;
		o->crc = !draw(a, 3);
		o->markers = !draw(a, 4);
		o->extended = draw(a, 4);
		o->memory = !draw(a, 4);
		a->p->side[i].by_frames = draw(a, 2);
		o->ird = o->ord = (uint16_t)draw(a, 5);
		a->p->side[i].mulpdu = draw(a, 2) ? 200 : MPA_ULPDU_MAX;
	}
	a->p->side[0].mpa.rtr = (uint8_t)(1 + draw(a, 7));
	for (unsigned q = 0; q < QN_COUNT; q++)
		a->msn[q] = 1;
	iwarp_pair_qps(a->p);
}

static void take_down(struct attack *a)
{
	hca_qp_destroy(a->victim->qp);
	a->victim->qp = NULL;
	if (a->given)
		hca_mr_dereg(a->given);
	hca_mr_dereg(a->read_only);
	hca_mr_dereg(a->other);
	hca_mr_dereg(a->own);
	hca_pd_dealloc(a->pd);
	iwarp_pair_free(a->p);
}

/* What the attacker is about to say, with some of its bytes changed. */
static void spoil(struct attack *a)
{
	struct iovec v = iwarp_connect_out(&a->p->side[0].connect);

	for (unsigned n = v.iov_len ? 1 + (unsigned)draw(a, 4) : 0; n--;)
		((uint8_t *)v.iov_base)[draw(a, v.iov_len)] = (uint8_t)draw(a, 256);
}

/* A set-up whose request, or whose word about shared memory, has some bytes changed; or an honest one. */
static bool shake_hands(struct attack *a)
{
	const struct iwarp_connect *mine = &a->p->side[0].connect;
	bool request = !draw(a, 8), word = !draw(a, 3);

	if (request)
		spoil(a);
	while (iwarp_pair_shake(a->p)) {
		if (word && mine->state == CONNECT_UPGRADE_SENDING && !mine->out_sent)
			spoil(a);
	}
	iwarp_pair_open(a->p);
	iwarp_pair_begin(a->p);
	if (!a->victim->opened) {
		iwarp_connect_lost(&a->victim->connect);
		return false;
	}
	iwarp_writer_init(&a->w, &writer_ops, a, a->stage, IWARP_STAGE, MPA_ULPDU_MAX,
		a->victim->connect.params.crc, a->victim->connect.params.expect_markers);
	return true;
}

/* ---- the attacker's words ---- */
static void put_bytes(struct attack *a, const uint8_t *b, size_t len)
{
	struct pipe *o = &a->p->side[0].out;

	for (size_t i = 0; i < len && o->head - o->tail < PIPE_SIZE; i++)
		o->bytes[o->head++ % PIPE_SIZE] = b[i];
}

static void flush(struct attack *a)
{
	struct iovec iov[64];
	unsigned n;

	while (iwarp_writer_iov(&a->w, true, iov, 64, &n) && n) {
		for (unsigned i = 0; i < n; i++)
			put_bytes(a, iov[i].iov_base, iov[i].iov_len);
		iwarp_writer_sent(&a->w, a->w.waiting);
	}
}

/* Mostly right: what is wrong ends the conversation. */
static uint32_t draw_key(struct attack *a)
{
	uint32_t given = a->given ? a->given->ibv.rkey : 0;
	uint32_t keys[] = {a->read_only->ibv.rkey, a->other->ibv.rkey, a->own->ibv.rkey, 0, 1, given ^ 1,
		(uint32_t)draw(a, 1ull << 32)};

	return draw(a, 16) ? given : keys[draw(a, 7)];
}

static uint64_t draw_place(struct attack *a)
{
	static const int64_t near[] = {STRETCH - 8, STRETCH - 1, STRETCH, -1, INT64_MIN};
	uint64_t base = a->victim->iova;

	if (draw(a, 16))
		return base + draw(a, STRETCH / 16) * 8;
	return base + draw(a, 6) * STRETCH + (uint64_t)near[draw(a, 5)];
}

static uint32_t draw_len(struct attack *a)
{
	static const uint32_t lens[] = {0, 1, 4, 8, 12, 28, 52, 999, 1000, 1001};

	return draw(a, 3) ? lens[draw(a, 10)] : (uint32_t)draw(a, 3000);
}

static uint32_t off_a_little(struct attack *a, uint32_t v)
{
	return draw(a, 40) ? v : v + (uint32_t)draw(a, 5) - 2;
}

static void fill_payload(struct attack *a, uint8_t opcode)
{
	if (opcode == RDMAP_READ_REQUEST) {
		rdmap_read_put(a->payload, &(struct rdmap_read){.sink_stag = (uint32_t)draw(a, 4),
						   .sink_to = draw(a, 2) ? 0 : draw_place(a),
						   .size = draw_len(a) * (draw(a, 30) ? 1 : 1 << 20),
						   .source_stag = draw_key(a),
						   .source_to = draw_place(a)});
	} else if (opcode == RDMAP_ATOMIC_REQUEST) {
		rdmap_atomic_put(a->payload, &(struct rdmap_atomic){.op = (uint8_t)draw(a, 4),
						     .stag = draw_key(a),
						     .to = draw_place(a),
						     .data = 1,
						     .compare_mask = draw(a, 2) ? UINT64_MAX : 0});
	} else if (opcode == RDMAP_ATOMIC_RESPONSE) {
		uint32_t index;
		struct hca_send_wqe *w = iwarp_oldest_asked(a->victim->qp, &index);

		put_be32(a->payload, w ? off_a_little(a, w->psn) : 0);
	} else {
		for (unsigned i = 0; i < 64; i++)
			a->payload[i] = (uint8_t)draw(a, 256);
	}
}

static uint8_t draw_opcode(struct attack *a)
{
	static const uint8_t common[] = {RDMAP_WRITE, RDMAP_READ_REQUEST, RDMAP_SEND, RDMAP_SEND_SE};
	static const uint8_t extended[] = {RDMAP_ATOMIC_REQUEST, RDMAP_IMMEDIATE, RDMAP_SEND_IMM};

	if (!draw(a, 16))
		return (uint8_t)draw(a, RDMAP_OPCODES);
	if (iwarp_qp(a->victim->qp)->tx.reads && draw(a, 2))
		return draw(a, 8) ? RDMAP_READ_RESPONSE : RDMAP_ATOMIC_RESPONSE;
	if (a->victim->connect.params.extended && !draw(a, 3))
		return extended[draw(a, 3)];
	return a->mo ? RDMAP_SEND : common[draw(a, 4)];
}

/* The rest of what the oldest READ asked for, or part of it. */
static void draw_response(struct attack *a, struct ddp_seg *seg, uint32_t *len)
{
	uint32_t index;
	struct hca_send_wqe *w = iwarp_oldest_asked(a->victim->qp, &index);

	seg->stag = w ? off_a_little(a, w->psn) : 1;
	seg->to = w ? off_a_little(a, w->npkts) : 0;
	*len = w && seg->last ? off_a_little(a, w->length - w->npkts) : 100;
	if (*len > 3000)
		*len = 3000;
}

static void say_segment(struct attack *a)
{
	struct iwarp_fpdu f = {.hdr_len = MPA_HDR_LEN};
	struct ddp_seg seg = {.opcode = draw_opcode(a), .last = draw(a, 4)};
	const struct rdmap_op *op = &rdmap_ops[seg.opcode];

	if (!iwarp_writer_has_room(&a->w, 4000, true))
		return;
	seg.tagged = !!(op->flags & ROF_TAGGED) ^ !draw(a, 30);
	f.len = op->len && draw(a, 30) ? op->len : draw_len(a);
	if (!op->len && !seg.last && !f.len)
		f.len = 1;
	if (seg.tagged && seg.opcode == RDMAP_READ_RESPONSE) {
		draw_response(a, &seg, &f.len);
	} else if (seg.tagged) {
		seg.stag = draw_key(a);
		seg.to = draw_place(a);
	} else {
		seg.last |= op->len && draw(a, 20);
		seg.qn = off_a_little(a, op->qn);
		seg.msn = off_a_little(a, a->msn[op->qn]);
		seg.mo = op->qn == QN_SEND ? off_a_little(a, a->mo) : off_a_little(a, 0);
		seg.stag = draw_key(a);
		a->mo = op->qn == QN_SEND && !seg.last ? a->mo + f.len : op->qn == QN_SEND ? 0 : a->mo;
		a->msn[op->qn] += seg.last;
	}
	fill_payload(a, seg.opcode);
	f.hdr_len += (uint8_t)ddp_put(f.hdr + f.hdr_len, &seg);
	if (!draw(a, 60))
		f.hdr[MPA_HDR_LEN + draw(a, 2)] ^= (uint8_t)(1 << draw(a, 8)); /* versions, reserved bits */
	iwarp_writer_add(&a->w, &f, true);
	flush(a);
}

static void say_nonsense(struct attack *a)
{
	uint8_t b[40];
	size_t n = 1 + draw(a, sizeof(b));

	for (size_t i = 0; i < n; i++)
		b[i] = (uint8_t)draw(a, 256);
	put_bytes(a, b, n);
}

/* ---- the victim's own work ---- */
static void post_recv(struct attack *a)
{
	struct ibv_sge sge = {
		a->victim->iova + SLOTS + (a->recvs % 64) * SLOT_EVERY, SLOT, a->victim->mr->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = 1000 + a->recvs, .sg_list = &sge, .num_sge = 1}, *bad;

	if (!hca_qp_post_recv(a->victim->qp, &wr, &bad))
		a->recvs++;
}

static void post_send(struct attack *a)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_READ, IBV_WR_RDMA_READ, IBV_WR_SEND,
		IBV_WR_RDMA_WRITE, IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_RDMA_WRITE_WITH_IMM};
	enum ibv_wr_opcode op = ops[draw(a, 6)];
	bool atomic = op == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = {a->victim->iova + SINK, atomic ? 8 : 1000, a->victim->mr->ibv.lkey};
	struct ibv_send_wr wr = {.wr_id = a->sends, .opcode = op, .sg_list = &sge, .num_sge = 1}, *bad;

	if (!iwarp_offers(a->victim->qp, op))
		return;
	if (!hca_qp_post_send(a->victim->qp, &wr, &bad))
		a->sends++;
}

static void poll(struct attack *a)
{
	struct ibv_wc wc;

	while (hca_cq_take(a->victim->cq, &wc, 1)) {
		sim_note_wc(&wc);
		if (wc.wr_id >= 1000)
			must(wc.wr_id == 1000 + a->recvs_done++, "a receive is reported out of order");
		else
			must(wc.wr_id == a->sends_done++, "a request is reported out of order");
	}
}

static void deregister(struct attack *a)
{
	if (a->given && !draw(a, 10)) {
		hca_mr_dereg(a->given);
		a->given = NULL;
	}
}

/* ---- what must hold ---- */
static void check_memory(struct attack *a)
{
	const uint8_t *m = a->victim->mem;

	for (unsigned i = 0; i < STRETCH; i++)
		must(m[READ_ONLY + i] == (uint8_t)((READ_ONLY + i) * 7 + ((READ_ONLY + i) >> 8) * 3 + 1),
			"memory that may only be read was written");
	for (unsigned i = 0; i < 2 * STRETCH; i++)
		must(m[OTHER + i] == SECRET, "memory that was not given was written");
	for (unsigned k = 0; k < 64; k++) {
		unsigned at = SLOTS + k * SLOT_EVERY + SLOT;

		for (; at < SLOTS + (k + 1) * SLOT_EVERY; at++)
			must(m[at] == (uint8_t)(at * 7 + (at >> 8) * 3 + 1),
				"a receive was filled beyond its end");
	}
	for (unsigned at = SINK + 1000; at < SINK + STRETCH; at++)
		must(m[at] == (uint8_t)(at * 7 + (at >> 8) * 3 + 1),
			"a READ's sink was filled beyond its end");
}

static void step(struct attack *a)
{
	iwarp_side_step(a->p, 1);
	/* The attacker reads what it is sent, or does not. */
	if (draw(a, 4))
		a->victim->out.tail = a->victim->out.head;
	poll(a);
}

unsigned iwarp_attack(struct choices *c, unsigned moves)
{
	static void (*const move[])(struct attack *) = {say_segment, say_segment, say_segment, say_segment,
		post_recv, post_recv, post_send, say_nonsense, deregister};
	struct attack *a = calloc(1, sizeof(*a));
	unsigned made = 0;

	must(a, "memory");
	current = a;
	a->c = c;
	set_up(a);
	if (shake_hands(a)) {
		for (; made < moves && iwarp_life(a->victim->qp) == IWARP_OPEN; made++) {
			unsigned which = (unsigned)draw(a, 64);

			/* Nonsense ends the conversation: rarely. */
			move[which == 63 ? 7 : which == 62 ? 8 : which % 7](a);
			step(a);
		}
		for (unsigned i = 0; i < 20; i++)
			step(a);
		iwarp_pair_wait(a->p, draw(a, 2) * IWARP_PATIENCE);
		iwarp_pair_kill(a->p);
		poll(a);
		must(a->sends_done == a->sends && a->recvs_done == a->recvs, "something never ends");
		check_memory(a);
	}
	take_down(a);
	free(a);
	return made;
}
