/* SPDX-License-Identifier: MIT */
/*
 * Frames of a process on this host, by hand: what is not as usual in every respect is left to the slow path,
 * untouched (ib/fastpath.c), or, where its bytes lie in the sender's memory, goes through it packet by packet
 * (ib/by_reference.c). Their writer may be any process of the user, and may write anything.
 */
#include "duo.h"

enum { AT = 65536 };

/* A frame that is right but for what a test changes. */
struct sample {
	uint8_t bytes[FRAME_HDR_MAX + 2 * MTU];
	struct frame_in in;
};

static struct sample *frame(struct duo *d, uint8_t op, uint32_t dma_len, uint32_t len)
{
	static struct sample s;
	uint32_t head = BTH_LEN + ibt_op_table[op].ext_len;

	memset(&s, 0, sizeof(s));
	bth_put(s.bytes, op, false, (uint8_t)(-len & 3), PKEY_DEFAULT, hca_qpn(d->qp[1]), false,
		d->opts[0].psn);
	if (ibt_op_table[op].flags & OPF_RETH)
		reth_put(s.bytes + BTH_LEN, (uintptr_t)mem[1] + AT, d->mr[1]->ibv.rkey, dma_len);
	memset(s.bytes + head, 0xee, len);
	s.in = (struct frame_in){
		.bytes = s.bytes, .len = head + len + (-len & 3), .head_len = head, .local = true};
	memcpy(s.in.sgid, d->w.node[0].dev.port[0].gid[0].raw, 16);
	memcpy(s.in.dgid, d->w.node[1].dev.port[0].gid[0].raw, 16);
	return &s;
}

static bool receive_fast(struct duo *d, const struct sample *s)
{
	bool done;

	lock_take(&d->qp[1]->lock);
	done = ibt_receive_fast(d->qp[1], &s->in);
	lock_drop(&d->qp[1]->lock);
	return done;
}

static bool is_touched(void)
{
	return memchr(mem[1] + AT, 0xee, 2 * MTU);
}

static struct duo *stage(void)
{
	struct duo *d = duo_new();

	duo_connect(d);
	memset(mem[1] + AT, 0, 2 * MTU);
	return d;
}

/* ---- whom it is for ---- */
static uint64_t in_vain(struct duo *d, struct sample *s, uint32_t qpn)
{
	struct hca_adapter *a = &d->w.node[1].adapter;
	uint64_t before = a->count->no_qp;

	put_be24(s->bytes + 5, qpn);
	lock_take(&a->engine.drive);
	ibt_port_deliver(ibt_port_in(a), &s->in, sim_now(&d->w));
	lock_drop(&a->engine.drive);
	return a->count->no_qp - before;
}

/* Nor our own QPs by another's number, which is nobody's here. */
static void shared_memory_reaches_neither_qp1_nor_groups(void **state)
{
	struct duo *d = stage();
	struct sample *s = frame(d, OP_SEND_ONLY, 0, 64);

	assert_int_equal(in_vain(d, s, QP_MULTICAST), 0);
	assert_int_equal(in_vain(d, s, QP_GSI), 0);
	s->in.from = s; /* its ring, which nobody looks at */
	assert_int_equal(in_vain(d, s, QP_MULTICAST), 1);
	assert_int_equal(in_vain(d, s, QP_GSI), 1);
	assert_int_equal(in_vain(d, s, hca_qpn(d->qp[1]) ^ 1 << QPN_SLOT_SHIFT), 1);
	duo_end(d);
}

/* ---- how the peer sends ---- */
/* As if it were reached through shared memory; whether it is known now that its frames come by that, too. */
static bool tells_the_path(struct duo *d, uint8_t opcode)
{
	struct sample *s = frame(d, OP_SEND_ONLY, 0, 64);
	struct hca_adapter *a = &d->w.node[1].adapter;

	s->bytes[0] = opcode;
	s->in.slot = qpn_slot(hca_qpn(d->qp[0]));
	s->in.from = s;
	d->qp[1]->path.shared = true;
	lock_take(&a->engine.drive);
	ibt_port_deliver_fast(ibt_port_in(a), &s->in);
	lock_drop(&a->engine.drive);
	d->qp[1]->path.shared = false;
	return d->qp[1]->path.peer_shared;
}

/* An echo comes back by the path of what it answers, whichever the peer's own requests take. */
static void echo_does_not_tell_how_the_peer_sends(void **state)
{
	struct duo *d = stage();

	assert_false(tells_the_path(d, OPCODE_ECHO_REPLY));
	assert_false(tells_the_path(d, OPCODE_ECHO_REQUEST));
	assert_true(tells_the_path(d, OP_SEND_ONLY));
	duo_end(d);
}

/* ---- one packet ---- */
static void usual_frame_is_executed(void **state)
{
	struct duo *d = stage();

	assert_true(receive_fast(d, frame(d, OP_WRITE_ONLY, 64, 64)));
	assert_true(is_touched());
	assert_int_equal(ibt_qp(d->qp[1])->resp.epsn, psn_add(d->opts[0].psn, 1));
	duo_end(d);
}

static void other_length(struct duo *d, struct sample *s)
{
	reth_put(s->bytes + BTH_LEN, (uintptr_t)mem[1] + AT, d->mr[1]->ibv.rkey, 63);
}

static void other_sender(struct duo *d, struct sample *s)
{
	s->in.sgid[15] ^= 1;
}

static void other_address(struct duo *d, struct sample *s)
{
	s->in.dgid[15] ^= 1;
}

static void other_number(struct duo *d, struct sample *s)
{
	bth_put(s->bytes, OP_WRITE_ONLY, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), false,
		psn_add(d->opts[0].psn, 1));
}

static void past_number(struct duo *d, struct sample *s)
{
	bth_put(s->bytes, OP_WRITE_ONLY, false, 0, PKEY_DEFAULT, hca_qpn(d->qp[1]), false,
		psn_add(d->opts[0].psn, PSN_MASK));
}

static void other_partition(struct duo *d, struct sample *s)
{
	bth_put(s->bytes, OP_WRITE_ONLY, false, 0, 0x8001, hca_qpn(d->qp[1]), false, d->opts[0].psn);
}

static void both_limited_members(struct duo *d, struct sample *s)
{
	d->qp[1]->path.pkey = PKEY_DEFAULT & ~PKEY_FULL;
	bth_put(s->bytes, OP_WRITE_ONLY, false, 0, d->qp[1]->path.pkey, hca_qpn(d->qp[1]), false,
		d->opts[0].psn);
}

static void other_version(struct duo *d, struct sample *s)
{
	s->bytes[1] |= 1;
}

static void wants_an_answer(struct duo *d, struct sample *s)
{
	bth_ask(s->bytes);
}

static void cut_short(struct duo *d, struct sample *s)
{
	s->in.len = s->in.head_len - 4;
}

static void headers_apart_do_not_fit(struct duo *d, struct sample *s)
{
	s->in.payload_ext = s->bytes + s->in.head_len;
	s->in.head_len -= 4;
}

static void not_allowed(struct duo *d, struct sample *s)
{
	struct ibv_qp_attr a = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};

	assert_int_equal(hca_qp_modify(d->qp[1], &a, IBV_QP_ACCESS_FLAGS), 0);
}

static void other_key(struct duo *d, struct sample *s)
{
	reth_put(s->bytes + BTH_LEN, (uintptr_t)mem[1] + AT, d->mr[1]->ibv.rkey ^ 1, 64);
}

static void behind_a_gap(struct duo *d, struct sample *s)
{
	ibt_qp(d->qp[1])->resp.gap = true;
}

static void inside_a_message(struct duo *d, struct sample *s)
{
	ibt_qp(d->qp[1])->resp.in_message = true;
}

static void unusual_frame_is_left_as_it_is(void **state)
{
	static void (*const unusual[])(struct duo * d, struct sample * s) = {other_length, other_sender,
		other_address, other_number, past_number, other_partition, both_limited_members,
		other_version, wants_an_answer, cut_short, headers_apart_do_not_fit, not_allowed, other_key,
		behind_a_gap, inside_a_message};

	for (unsigned i = 0; i < sizeof(unusual) / sizeof(unusual[0]); i++) {
		struct duo *d = stage();
		struct sample *s = frame(d, OP_WRITE_ONLY, 64, 64);

		unusual[i](d, s);
		if (receive_fast(d, s) || is_touched())
			fail_msg("frame %u was executed", i);
		assert_int_equal(ibt_qp(d->qp[1])->resp.epsn, d->opts[0].psn);
		assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_RTS);
		duo_end(d);
	}
}

static void longer_than_the_mtu_is_left_as_it_is(void **state)
{
	struct duo *d = stage();

	assert_false(receive_fast(d, frame(d, OP_WRITE_ONLY, MTU + 4, MTU + 4)));
	assert_false(is_touched());
	duo_end(d);
}

/* ---- messages whose bytes lie in the sender's memory ---- */
static bool fetch(void *arg, uint32_t off, const struct iovec *to, unsigned n, uint32_t len)
{
	for (unsigned i = 0; i < n; i++)
		memset(to[i].iov_base, 0xee, to[i].iov_len);
	++*(unsigned *)arg;
	return true;
}

/* How often bytes were fetched; *done: whether all of it was executed. */
static unsigned receive_by_ref(struct duo *d, uint8_t op, uint32_t len, uint8_t mtu, bool *done)
{
	struct sample *s = frame(d, op, len, 0);
	unsigned times = 0;

	s->in.by_ref = mtu;
	s->in.ref_len = len;
	lock_take(&d->qp[1]->lock);
	*done = ibt_receive_by_ref(d->qp[1], &s->in, fetch, &times, sim_now(&d->w));
	lock_drop(&d->qp[1]->lock);
	return times;
}

/* The NAK that is about to leave. */
static void expect_nak(struct duo *d, uint8_t code)
{
	assert_true(ibt_qp(d->qp[1])->resp.nak_due);
	assert_int_equal(ibt_qp(d->qp[1])->resp.nak_syndrome, AETH_NAK | code);
	assert_int_equal(hca_qp_state(d->qp[1]), IBV_QPS_ERR);
}

static void message_is_fetched_at_once(void **state)
{
	struct duo *d = stage();
	bool done;

	assert_int_equal(receive_by_ref(d, OP_WRITE_ONLY, 2 * MTU, IBV_MTU_1024, &done), 1);
	assert_true(done && is_touched());
	assert_int_equal(ibt_qp(d->qp[1])->resp.epsn, psn_add(d->opts[0].psn, 2));
	duo_end(d);
}

static void message_without_the_right_is_refused(void **state)
{
	struct ibv_qp_attr a = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
	struct duo *d = stage();
	bool done;

	assert_int_equal(hca_qp_modify(d->qp[1], &a, IBV_QP_ACCESS_FLAGS), 0);
	receive_by_ref(d, OP_WRITE_ONLY, 2 * MTU, IBV_MTU_1024, &done);
	assert_false(done || is_touched());
	expect_nak(d, NAK_ACCESS);
	duo_end(d);
}

/* Its packets would be shorter than ours, and refused, had they come by themselves. */
static void message_cut_by_another_mtu_is_refused(void **state)
{
	struct duo *d = stage();
	bool done;

	receive_by_ref(d, OP_WRITE_ONLY, 2 * MTU, IBV_MTU_512, &done);
	assert_false(done || is_touched());
	expect_nak(d, NAK_INV_REQ);
	duo_end(d);
}

static void message_longer_than_its_receive_is_refused(void **state)
{
	struct duo *d = stage();
	bool done;

	post_recv(d, 1, 9, AT, 2 * MTU - 1);
	receive_by_ref(d, OP_SEND_ONLY, 2 * MTU, IBV_MTU_1024, &done);
	assert_false(done);
	expect_nak(d, NAK_INV_REQ);
	expect_wc(d, 1, 9, IBV_WC_LOC_LEN_ERR);
	duo_end(d);
}

/* ---- sending ---- */
static enum ibt_fast request_fast(struct duo *d)
{
	struct frame_out f;
	struct iovec iov[HCA_MAX_SGE];
	enum ibt_fast q;

	lock_take(&d->qp[0]->lock);
	q = ibt_request_fast(d->qp[0], &f, iov);
	lock_drop(&d->qp[0]->lock);
	return q;
}

/* All is sent, but a response may be lost: the fast path does not say that there is nothing to do. */
static void probe_that_is_due_is_left_to_the_slow_path(void **state)
{
	struct duo *d = stage();
	struct ibt_requester *r = &ibt_qp(d->qp[0])->req;

	post(d, 0, IBV_WR_RDMA_READ, 1, AT, 64);
	assert_int_equal(request_fast(d), FAST_IDLE);
	r->rec.probe_due = true;
	assert_int_equal(request_fast(d), FAST_DECLINE);
	r->rec.probe_due = false;
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	duo_end(d);
}

/* The ring says at once that a WRITE behind a READ was executed; the READ's responses are not lost for that.
 */
static void responses_on_their_way_are_not_asked_for_again(void **state)
{
	struct duo *d = stage();
	struct ibt_requester *r = &ibt_qp(d->qp[0])->req;

	post(d, 0, IBV_WR_RDMA_READ, 1, AT, 3 * MTU);
	post(d, 0, IBV_WR_RDMA_WRITE, 2, AT, 64);
	lock_take(&d->qp[0]->lock);
	assert_true(ibt_executed(
		d->qp[0], ibt_cookie(d->qp[0]), psn_add(r->psn, PSN_MASK), true, sim_now(&d->w)));
	lock_drop(&d->qp[0]->lock);
	assert_int_not_equal(r->una, r->acked);
	assert_int_equal(request_fast(d), FAST_IDLE);
	sim_run_idle(&d->w);
	expect_wc(d, 0, 1, IBV_WC_SUCCESS);
	expect_wc(d, 0, 2, IBV_WC_SUCCESS);
	assert_int_equal(d->qp[0]->count->retransmits, 0);
	duo_end(d);
}

/* What lies in the ring before a probe that was executed was refused, without a word: all of it goes again at
 * once. */
static void executed_probe_tells_what_was_refused_before_it(void **state)
{
	enum { N = 16, MS_67 = 14 };
	struct duo *d = duo_new();
	struct ibt_requester *r;

	d->opts[0].timeout = MS_67;
	duo_connect(d);
	r = &ibt_qp(d->qp[0])->req;
	script(d, 0, OP_WRITE_ONLY, 0, N - 1, SIM_LOST);
	script(d, 1, OP_ACK, 0, 0, SIM_LOST); /* what the ring said first */
	for (unsigned i = 0; i < N; i++)
		post(d, 0, IBV_WR_RDMA_WRITE, i, AT + i * 64, 64);
	while (!d->qp[0]->count->probes)
		assert_true(sim_step(&d->w, SIM_S));
	while (!sent(d, 1, OP_ACK))
		assert_true(sim_step(&d->w, SIM_S));
	lock_take(&d->w.node[0].adapter.engine.drive);
	assert_true(ibt_port_executed(
		ibt_port_of(d->qp[0]), ibt_cookie(d->qp[0]), r->rec.probe_psn, true, sim_now(&d->w)));
	lock_drop(&d->w.node[0].adapter.engine.drive);
	assert_int_equal(r->sent, r->una);
	sim_run_idle(&d->w);
	expect_all(d, 0, N);
	assert_int_equal(d->qp[0]->count->probes, 1);
	assert_int_equal(d->qp[0]->count->timeouts, 0);
	duo_end(d);
}

/* Of two that stream to each other it is due whenever a request is done: a path would hardly ever return. */
static void acknowledge_that_is_due_is_not_on_its_way(void **state)
{
	struct duo *d = stage();
	struct ibt_responder *r = &ibt_qp(d->qp[1])->resp;

	lock_take(&d->qp[1]->lock);
	assert_true(ibt_is_idle(d->qp[1]));
	r->ack_due = true;
	assert_true(ibt_is_idle(d->qp[1]));
	r->ack_leaving = true;
	assert_false(ibt_is_idle(d->qp[1]));
	r->ack_due = r->ack_leaving = false;
	lock_drop(&d->qp[1]->lock);
	duo_end(d);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(shared_memory_reaches_neither_qp1_nor_groups),
		cmocka_unit_test(echo_does_not_tell_how_the_peer_sends),
		cmocka_unit_test(acknowledge_that_is_due_is_not_on_its_way),
		cmocka_unit_test(usual_frame_is_executed),
		cmocka_unit_test(unusual_frame_is_left_as_it_is),
		cmocka_unit_test(longer_than_the_mtu_is_left_as_it_is),
		cmocka_unit_test(message_is_fetched_at_once),
		cmocka_unit_test(message_without_the_right_is_refused),
		cmocka_unit_test(message_cut_by_another_mtu_is_refused),
		cmocka_unit_test(message_longer_than_its_receive_is_refused),
		cmocka_unit_test(probe_that_is_due_is_left_to_the_slow_path),
		cmocka_unit_test(responses_on_their_way_are_not_asked_for_again),
		cmocka_unit_test(executed_probe_tells_what_was_refused_before_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
