/* SPDX-License-Identifier: MIT */
#include "mad/ib/port.h"

#include "base/random.h"
#include "wire/rmpp.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

enum { SA = 3, PERF = 4, PING = 0x32, GET = 1, SET = 2, TRAP = 5, GET_TABLE = 0x12, GET_TABLE_RESP = 0x92 };
#define MSEC 1000000ull

/* ---- two ports and what is between them; port i has LID i + 1 ---- */
struct wire_mad {
	struct list node;
	unsigned to, qp;
	uint16_t from;
	uint8_t mad[MAD_LEN];
};

struct got {
	struct ibmad_agent *agent;
	unsigned status, count;
	size_t len;
	uint8_t *msg;
};

static struct world {
	struct ibmad_port port[2];
	struct list wire;
	uint64_t now, seed; /* seed 0: a good line */
	unsigned loss;      /* out of 100 */
	struct got got[2];
} w;

static void put(unsigned from, unsigned qp, unsigned to, const uint8_t *mad)
{
	struct wire_mad *m = malloc(sizeof(*m));

	*m = (struct wire_mad){.to = to, .qp = qp, .from = (uint16_t)(from + 1)};
	memcpy(m->mad, mad, MAD_LEN);
	list_add_tail(&w.wire, &m->node);
}

static void on_send(void *arg, unsigned qp, const struct ibmad_addr *to, const uint8_t mad[MAD_LEN])
{
	unsigned from = (unsigned)((struct ibmad_port *)arg - w.port), copies = 1;

	assert_true(to->lid == 1 || to->lid == 2 || to->lid == 9);
	if (w.seed && random_seeded(&w.seed) % 100 < w.loss)
		copies = 0;
	else if (w.seed && random_seeded(&w.seed) % 100 < w.loss)
		copies = 2;
	for (; copies && to->lid != 9; copies--)
		put(from, qp, to->lid - 1u, mad);
}

static void on_deliver(void *arg, struct ibmad_agent *a, const struct ibmad_addr *from, unsigned status,
	const uint8_t *msg, size_t len)
{
	struct got *g = &w.got[(struct ibmad_port *)arg - w.port];

	free(g->msg);
	g->msg = malloc(len);
	memcpy(g->msg, msg, len);
	g->agent = a;
	g->status = status;
	g->len = len;
	g->count++;
}

static const struct ibmad_ops ops = {on_send, on_deliver};

static int set_up(void **state)
{
	list_init(&w.wire);
	for (int i = 0; i < 2; i++)
		ibmad_port_init(&w.port[i], &ops, &w.port[i]);
	return 0;
}

static int tear_down(void **state)
{
	for (int i = 0; i < 2; i++) {
		ibmad_port_fini(&w.port[i]);
		assert_int_equal(w.port[i].held, 0);
		free(w.got[i].msg);
	}
	for (struct list *l; (l = list_pop(&w.wire));)
		free(container_of(l, struct wire_mad, node));
	memset(&w, 0, sizeof(w));
	return 0;
}

/* What is on the wire arrives, and what that causes; unwanted: how many nobody wanted. */
static unsigned run(void)
{
	unsigned unwanted = 0;

	for (struct list *l; (l = list_pop(&w.wire));) {
		struct wire_mad *m = container_of(l, struct wire_mad, node);
		struct ibmad_addr from = {.qpn = m->qp, .lid = m->from};

		unwanted += !ibmad_receive(&w.port[m->to], m->qp, &from, m->mad, w.now);
		free(m);
	}
	return unwanted;
}

static void pass(uint64_t ms)
{
	uint64_t until = w.now + ms * MSEC;

	for (;;) {
		uint64_t a = ibmad_deadline(&w.port[0]), b = ibmad_deadline(&w.port[1]), next = a < b ? a : b;

		run();
		if (next > until)
			break;
		if (next > w.now)
			w.now = next;
		for (int i = 0; i < 2; i++)
			ibmad_expire(&w.port[i], w.now);
	}
	w.now = until;
}

static struct ibmad_reg takes(uint8_t mgmt_class, uint8_t version, uint64_t methods, uint8_t rmpp)
{
	return (struct ibmad_reg){.takes = {mgmt_class, version, {methods}},
		.oui = {0, 0x14, 5},
		.qp = 1,
		.rmpp_version = rmpp};
}

static struct ibmad_agent *add(unsigned port, struct ibmad_reg reg)
{
	struct ibmad_agent *a;

	assert_int_equal(ibmad_register(&w.port[port], &reg, NULL, &a), 0);
	return a;
}

static uint8_t *message(uint8_t mgmt_class, uint8_t version, uint8_t method, uint64_t tid, size_t len)
{
	uint8_t *m = calloc(1, len);

	m[0] = 1;
	m[1] = mgmt_class;
	m[2] = version;
	m[3] = method;
	put_be64(m + 8, tid);
	if (mgmt_class == PING)
		memcpy(m + 37, (uint8_t[]){0, 0x14, 5}, 3);
	for (size_t i = 56; i < len; i++)
		m[i] = (uint8_t)(i * 5 + i / 200);
	return m;
}

static int send(
	struct ibmad_agent *a, uint16_t lid, const uint8_t *m, size_t len, unsigned ms, unsigned retries)
{
	return ibmad_send(a, &(struct ibmad_addr){.qpn = 1, .lid = lid}, m, len, ms, retries, w.now);
}

static void set_active(uint8_t *m)
{
	rmpp_hdr_put(m, &(struct rmpp_hdr){.flags = RMPP_ACTIVE}); /* as OpenSM leaves it */
}

/* ---- agents ---- */
static void a_method_has_one_owner(void **state)
{
	struct ibmad_reg r = takes(SA, 2, 1 << GET | 1 << SET, 1), other = takes(SA, 2, 1 << SET, 1);
	struct ibmad_reg silent = takes(SA, 2, 0, 1), vendor = takes(PING, 1, 1 << GET, 1);
	struct ibmad_agent *a;

	add(0, r);
	assert_int_equal(ibmad_register(&w.port[0], &other, NULL, &a), -EPERM);
	add(0, silent);
	add(0, silent);
	other.takes.class_version = 1;
	add(0, other);
	add(0, vendor);
	assert_int_equal(ibmad_register(&w.port[0], &vendor, NULL, &a), -EPERM);
	vendor.oui[2]++;
	add(0, vendor);
	add(1, r); /* of another port */
}

static void registrations_that_cannot_be_are_refused(void **state)
{
	struct ibmad_reg bad[] = {takes(SA, 0x83, 2, 1), takes(0x50, 1, 2, 0), takes(PERF, 1, 2, 1),
		takes(SA, 2, 2, 2), takes(PING, 1, 2, 1), takes(1, 1, 2, 0), takes(SA, 2, 2, 0)};
	struct ibmad_agent *a;

	memset(bad[4].oui, 0, 3);
	bad[6].qp = 0;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_int_equal(ibmad_register(&w.port[0], &bad[i], NULL, &a), -EINVAL);
}

static void requests_go_by_class_version_method_and_oui(void **state)
{
	struct ibmad_agent *ping = add(0, takes(PING, 1, 1 << GET, 0)),
			   *perf = add(0, takes(PERF, 1, 1 << SET, 0));
	uint8_t *m = message(PING, 1, GET, 7, MAD_LEN), *p = message(PERF, 1, SET, 7, MAD_LEN);

	put(1, 1, 0, m);
	assert_int_equal(run(), 0);
	assert_ptr_equal(w.got[0].agent, ping);
	put(1, 1, 0, p);
	assert_int_equal(run(), 0);
	assert_ptr_equal(w.got[0].agent, perf);
	m[39]++;
	put(1, 1, 0, m); /* another OUI */
	p[3] = GET;
	put(1, 1, 0, p); /* another method */
	p[3] = SET;
	put(1, 0, 0, p); /* another queue pair */
	assert_int_equal(run(), 3);
	assert_int_equal(w.got[0].count, 2);
	free(m);
	free(p);
}

static void what_nobody_wants_is_answered_as_linux_does(void **state)
{
	uint8_t *m = message(PERF, 1, GET, 7, MAD_LEN), answer[MAD_LEN];

	assert_true(ibmad_unsupported(m, answer));
	assert_int_equal(answer[3], 0x81);
	assert_int_equal(get_be16(answer + 4), 0x000c);
	m[1] = 0x81;
	assert_true(ibmad_unsupported(m, answer));
	assert_int_equal(get_be16(answer + 4), 0x800c);
	m[3] = TRAP;
	assert_false(ibmad_unsupported(m, answer));
	m[3] = 0x81;
	assert_false(ibmad_unsupported(m, answer));
	free(m);
}

/* ---- transactions ---- */
static void answer_requests(void)
{
	uint8_t *m = w.got[1].msg;

	m[3] |= 0x80;
	assert_int_equal(send(w.got[1].agent, 1, m, w.got[1].len, 0, 0), 0);
}

static void a_response_finds_who_asked(void **state)
{
	struct ibmad_agent *a = add(0, takes(PERF, 1, 0, 0)), *b = add(0, takes(PERF, 1, 0, 0));
	uint8_t *m = message(PERF, 1, GET, 0x1122334400000007, MAD_LEN);

	add(1, takes(PERF, 1, 1 << GET, 0));
	assert_int_equal(send(b, 2, m, MAD_LEN, 100, 0), 0);
	assert_int_equal(send(b, 2, m, MAD_LEN, 100, 0), -EINVAL); /* in use */
	assert_int_equal(send(a, 2, m, MAD_LEN, 100, 0), 0);       /* another agent's */
	run();
	answer_requests();
	run();
	assert_ptr_equal(w.got[0].agent, a);
	assert_int_equal(get_be64(w.got[0].msg + 8), (uint64_t)a->tid_high << 32 | 7);
	assert_int_equal(w.got[0].count, 1);
	answer_requests(); /* again: nobody waits for it */
	run();
	assert_int_equal(w.got[0].count, 1);
	assert_int_equal(send(a, 2, m, MAD_LEN, 100, 0), 0);
	m[15] = 8;
	assert_int_equal(send(b, 2, m, MAD_LEN, 100, 0), 0);
	run();
	answer_requests();
	run();
	assert_ptr_equal(w.got[0].agent, b);
	assert_int_equal(w.got[0].count, 2);
	free(m);
}

static void a_request_without_answer_times_out_with_its_header(void **state)
{
	struct ibmad_agent *a = add(0, takes(PERF, 1, 0, 0));
	uint8_t *m = message(PERF, 1, GET, 7, MAD_LEN);

	add(1, takes(PERF, 1, 1 << GET, 0));
	assert_int_equal(send(a, 2, m, MAD_LEN, 100, 2), 0);
	pass(299);
	assert_int_equal(w.got[1].count, 3);
	assert_int_equal(w.got[0].count, 0);
	pass(2);
	assert_int_equal(w.got[0].status, ETIMEDOUT);
	assert_int_equal(w.got[0].len, 24);
	assert_int_equal(get_be64(w.got[0].msg + 8), (uint64_t)a->tid_high << 32 | 7);
	assert_int_equal(ibmad_deadline(&w.port[0]), UINT64_MAX);
	free(m);
}

static void who_goes_is_told_nothing(void **state)
{
	struct ibmad_agent *a = add(0, takes(PERF, 1, 0, 0));
	uint8_t *m = message(PERF, 1, GET, 7, MAD_LEN);

	assert_int_equal(send(a, 2, m, MAD_LEN, 100, 2), 0);
	ibmad_unregister(a);
	pass(1000);
	assert_int_equal(w.got[0].count, 0);
	free(m);
}

static void messages_that_are_none_are_refused(void **state)
{
	struct ibmad_agent *a = add(0, takes(PERF, 1, 0, 0)), *sa = add(0, takes(SA, 2, 0, 1));
	uint8_t *m = message(PERF, 1, GET, 7, 300), *s = message(SA, 2, GET, 7, 300);

	assert_int_equal(send(a, 2, m, 300, 100, 0), -EINVAL);
	assert_int_equal(send(a, 2, m, 35, 100, 0), -EINVAL);
	assert_int_equal(send(sa, 2, s, 300, 100, 0), -EINVAL); /* long, and not active */
	set_active(s);
	assert_int_equal(send(sa, 2, s, 55, 100, 0), -EINVAL);
	free(m);
	free(s);
}

/* ---- messages in segments ---- */
/* A client asks, a server answers with len bytes. */
static void ask_and_answer(uint64_t seed, unsigned loss, size_t len)
{
	struct ibmad_agent *client, *server;
	uint8_t *ask = message(SA, 2, GET_TABLE, 0x55, MAD_LEN), *answer;

	w.seed = seed;
	w.loss = loss;
	client = add(0, takes(SA, 2, 0, 1));
	server = add(1, takes(SA, 2, 1 << GET_TABLE, 1));
	assert_int_equal(send(client, 2, ask, MAD_LEN, 1000, 20), 0);
	while (!w.got[1].count)
		pass(500);
	answer = message(SA, 2, GET_TABLE_RESP, get_be64(w.got[1].msg + 8), len);
	set_active(answer);
	assert_int_equal(send(server, 1, answer, len, 0, 20), 0);
	for (unsigned i = 0; !w.got[0].count; i++) {
		assert_true(i < 1000);
		pass(500);
	}
	assert_int_equal(w.got[0].count, 1);
	assert_int_equal(w.got[0].status, 0);
	assert_int_equal(w.got[0].len, len);
	assert_memory_equal(w.got[0].msg + 56, answer + 56, len - 56);
	w.seed = 0;
	pass(60000);
	assert_int_equal(w.got[0].count, 1);
	free(ask);
	free(answer);
}

static void an_answer_of_many_segments_arrives(void **state)
{
	ask_and_answer(0, 0, 1 << 20);
}

static void so_it_does_when_segments_are_lost_and_doubled(void **state)
{
	for (uint64_t seed = 1; seed < 60; seed++) {
		ask_and_answer(seed, 10, 56 + (size_t)(seed * seed * 13 % 40000));
		tear_down(state);
		set_up(state);
	}
}

/* Client and server at one port: ACKs and segments of one transaction do not mix. */
static void both_ends_may_be_at_one_port(void **state)
{
	struct ibmad_agent *client = add(0, takes(SA, 2, 0, 1)),
			   *server = add(0, takes(SA, 2, 1 << GET_TABLE, 1));
	uint8_t *ask = message(SA, 2, GET_TABLE, 0x55, MAD_LEN), *answer;

	assert_int_equal(send(client, 1, ask, MAD_LEN, 1000, 0), 0);
	run();
	assert_ptr_equal(w.got[0].agent, server);
	answer = message(SA, 2, GET_TABLE_RESP, get_be64(w.got[0].msg + 8), 30000);
	set_active(answer);
	assert_int_equal(send(server, 1, answer, 30000, 0, 0), 0);
	run();
	assert_ptr_equal(w.got[0].agent, client);
	assert_int_equal(w.got[0].len, 30000);
	assert_int_equal(w.got[0].count, 2);
	free(ask);
	free(answer);
}

static void a_request_may_have_segments_too(void **state)
{
	struct ibmad_agent *client = add(0, takes(SA, 2, 0, 1)), *server = add(1, takes(SA, 2, 1 << 0x14, 1));
	uint8_t *ask = message(SA, 2, 0x14, 0x55, 1000), *answer;

	set_active(ask);
	assert_int_equal(send(client, 2, ask, 1000, 1000, 3), 0);
	pass(10);
	assert_int_equal(w.got[1].len, 1000);
	answer = message(SA, 2, 0x94, get_be64(w.got[1].msg + 8), 5000);
	set_active(answer);
	assert_int_equal(send(server, 1, answer, 5000, 0, 0), 0);
	pass(10);
	assert_true(w.got[0].len == 5000 && w.got[0].status == 0);
	free(ask);
	free(answer);
}

static void segments_that_nobody_acknowledges_time_out(void **state)
{
	struct ibmad_agent *server = add(1, takes(SA, 2, 1 << GET_TABLE, 1));
	uint8_t *answer = message(SA, 2, GET_TABLE_RESP, 99, 5000);

	set_active(answer);
	assert_int_equal(send(server, 9, answer, 5000, 0, 2), 0);
	assert_int_equal(send(server, 9, answer, 5000, 0, 2), -EINVAL); /* it is on its way */
	pass(5999);
	assert_int_equal(w.got[1].count, 0);
	pass(2);
	assert_int_equal(w.got[1].status, ETIMEDOUT);
	free(answer);
}

static void who_sees_segments_himself_gets_them(void **state)
{
	struct ibmad_reg r = takes(SA, 2, 1 << GET_TABLE, 1);
	uint8_t *m = message(SA, 2, GET_TABLE, 1, MAD_LEN),
		*resp = message(SA, 2, GET_TABLE_RESP, 1, MAD_LEN);
	struct ibmad_agent *a;

	r.user_rmpp = true;
	a = add(0, r);
	rmpp_hdr_put(m, &(struct rmpp_hdr){1, RMPP_DATA, RMPP_ACTIVE, 0, 17, 220});
	put(1, 1, 0, m);
	assert_int_equal(run(), 0);
	assert_true(w.got[0].count == 1 && w.got[0].len == MAD_LEN);
	rmpp_hdr_put(resp, &(struct rmpp_hdr){1, RMPP_ACK, RMPP_ACTIVE, 0, 17, 220});
	put_be32(resp + 8, a->tid_high);
	put(1, 1, 0, resp);
	assert_int_equal(run(), 0);
	assert_int_equal(w.got[0].count, 2);
	free(m);
	free(resp);
}

static void unfinished_messages_are_bounded_and_given_up(void **state)
{
	uint8_t *m = message(SA, 2, GET_TABLE, 0, MAD_LEN);
	struct ibmad_agent *a = add(0, takes(SA, 2, 1 << GET_TABLE, 1));

	rmpp_hdr_put(m, &(struct rmpp_hdr){1, RMPP_DATA, RMPP_ACTIVE | RMPP_FIRST, 0, 1, 4000});
	for (unsigned i = 0; i < 1000; i++) {
		put_be64(m + 8, i);
		put(1, 1, 0, m);
	}
	run();
	assert_int_equal(a->nrecvs, IBMAD_MAX_RECVS);
	pass(40001);
	assert_int_equal(a->nrecvs, 0);
	free(m);
}

static void put_segment(uint64_t tid, uint8_t flags, uint32_t segment)
{
	uint8_t *m = message(SA, 2, GET_TABLE, tid, MAD_LEN);

	rmpp_hdr_put(m, &(struct rmpp_hdr){1, RMPP_DATA, RMPP_ACTIVE | flags, 0, segment, 220});
	put(1, 1, 0, m);
	free(m);
}

/* It is the first of the agent's list, where those that are forgotten are looked for. */
static void the_first_to_begin_may_be_the_last_to_end(void **state)
{
	struct ibmad_agent *a = add(0, takes(SA, 2, 1 << GET_TABLE, 1));

	put_segment(1, RMPP_FIRST, 1);
	for (unsigned i = 0; i < IBMAD_MAX_DONE; i++)
		put_segment(2 + i, RMPP_FIRST | RMPP_LAST, 1);
	put_segment(1, RMPP_LAST, 2);
	run();
	assert_int_equal(w.got[0].count, IBMAD_MAX_DONE + 1);
	assert_int_equal(a->ndone, IBMAD_MAX_DONE);
	put_segment(1, RMPP_LAST, 2);
	assert_int_equal(run(), 1); /* its ACK, again */
	assert_int_equal(w.got[0].count, IBMAD_MAX_DONE + 1);
}

static void an_abort_ends_either_side(void **state)
{
	struct ibmad_agent *a = add(0, takes(SA, 2, 1 << GET_TABLE, 1));
	uint8_t *m = message(SA, 2, GET_TABLE, 3, MAD_LEN), *answer = message(SA, 2, GET_TABLE_RESP, 4, 900);

	rmpp_hdr_put(m, &(struct rmpp_hdr){1, RMPP_DATA, RMPP_ACTIVE | RMPP_FIRST, 0, 1, 4000});
	put(1, 1, 0, m);
	run();
	assert_int_equal(a->nrecvs, 1);
	rmpp_hdr_put(m, &(struct rmpp_hdr){1, RMPP_ABORT, RMPP_ACTIVE, RMPP_BAD_TYPE, 0, 0});
	put(1, 1, 0, m);
	run();
	assert_int_equal(a->nrecvs, 0);

	set_active(answer);
	assert_int_equal(send(a, 2, answer, 900, 0, 3), 0);
	put_be64(m + 8, 4);
	put(8, 1, 0, m); /* LID 9, which has nothing to do with it */
	run();
	assert_int_equal(w.got[0].count, 0);
	put(1, 1, 0, m);
	pass(10);
	assert_int_equal(w.got[0].status, ETIMEDOUT);
	free(m);
	free(answer);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_method_has_one_owner),
		TEST(registrations_that_cannot_be_are_refused),
		TEST(requests_go_by_class_version_method_and_oui),
		TEST(what_nobody_wants_is_answered_as_linux_does),
		TEST(a_response_finds_who_asked),
		TEST(a_request_without_answer_times_out_with_its_header),
		TEST(who_goes_is_told_nothing),
		TEST(messages_that_are_none_are_refused),
		TEST(an_answer_of_many_segments_arrives),
		TEST(so_it_does_when_segments_are_lost_and_doubled),
		TEST(both_ends_may_be_at_one_port),
		TEST(a_request_may_have_segments_too),
		TEST(segments_that_nobody_acknowledges_time_out),
		TEST(who_sees_segments_himself_gets_them),
		TEST(unfinished_messages_are_bounded_and_given_up),
		TEST(the_first_to_begin_may_be_the_last_to_end),
		TEST(an_abort_ends_either_side),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
