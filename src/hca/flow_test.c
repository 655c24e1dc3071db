/* SPDX-License-Identifier: MIT */
#include "hca/flow.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static const uint8_t gid[16] = {[15] = 1};

static struct hca_flow flow(void)
{
	struct hca_flow f;

	hca_flow_init(&f, gid, 3);
	list_init(&f.waiters); /* f moves when it is returned */
	return f;
}

#define FLOW(name)                                                                                           \
	struct hca_flow name = flow();                                                                       \
	struct list waiter;                                                                                  \
	list_init(&(name).waiters);                                                                          \
	list_init(&waiter)

static void what_is_in_flight_never_exceeds_a_default_socket_buffer(void **state)
{
	uint32_t packets = 0, cost = flow_cost(1, 4096);
	FLOW(f);

	while (hca_flow_take(&f, cost, &waiter, false))
		packets++;
	assert_true(packets > 8);
	/* what the kernel charges a receiver for a packet of 4 KiB: two pages and an sk_buff */
	assert_true(packets * (8192 + 768) <= FLOW_RCVBUF);
	while (hca_flow_take(&f, FLOW_PACKET / 2, &waiter, false))
		;
	assert_false(list_empty(&waiter));
	assert_null(hca_flow_pop(&f));
	/* Not for a single packet: a quarter of the window must be open. */
	hca_flow_release(&f, cost);
	assert_null(hca_flow_pop(&f));
	hca_flow_release(&f, FLOW_WINDOW / 4);
	assert_ptr_equal(hca_flow_pop(&f), &waiter);
}

static void several_packets_are_taken_as_one_by_one(void **state)
{
	uint32_t cost = flow_cost(1, 1024), n = 0, all;
	FLOW(f);

	while (hca_flow_take(&f, cost, &waiter, false))
		n++;
	/* It was found closed, so it stays closed for these too. */
	hca_flow_release(&f, cost);
	assert_int_equal(hca_flow_take_more(&f, cost, 1), 0);
	hca_flow_release(&f, (n - 1) * cost);
	all = f.window / cost;
	assert_true(hca_flow_take(&f, cost, &waiter, false));
	assert_int_equal(hca_flow_take_more(&f, cost, 10), 10);
	assert_int_equal(hca_flow_take_more(&f, cost, UINT32_MAX), all - 11);
	assert_int_equal(f.in_flight, all * cost);
	assert_true(list_empty(&waiter)); /* nobody waits who did not ask to */
	hca_flow_release(&f, all * cost);
	assert_int_equal(f.in_flight, 0);
}

static void window_grows_to_what_our_own_socket_holds(void **state)
{
	uint32_t before;
	FLOW(f);

	f.cap_now = f.cap = hca_flow_limit(8 << 20);
	assert_int_equal(f.cap, FLOW_WINDOW_MAX);
	assert_int_equal(f.window, FLOW_WINDOW);
	for (unsigned i = 0; i < 100000 && f.window < f.cap; i++)
		hca_flow_release(&f, 65536);
	assert_int_equal(f.window, FLOW_WINDOW_MAX);
	/* A loss up there may be the peer's buffer: it is not tried again soon. */
	hca_flow_loss(&f);
	before = f.window;
	for (unsigned i = 0; i < 100; i++)
		hca_flow_release(&f, 65536);
	assert_true(f.window > before);
	assert_true(f.window < FLOW_WINDOW_MAX);
}

static void idle_flow_lets_one_packet_out_whatever_it_costs(void **state)
{
	FLOW(f);

	assert_true(hca_flow_take(&f, 10 * FLOW_WINDOW, &waiter, false));
	assert_false(hca_flow_take(&f, 1, &waiter, false));
}

static void idle_qp_gets_past_others_that_hold_the_window(void **state)
{
	unsigned idle = 0;
	FLOW(f);

	while (hca_flow_take(&f, 7168, &waiter, false))
		;
	while (hca_flow_take(&f, 7168, &waiter, true))
		idle++;
	assert_true(idle > 4);
	assert_true(f.in_flight <= FLOW_RCVBUF);
}

/* A window's worth of packets is sent and acknowledged. */
static void round_trip(struct hca_flow *f, struct list *waiter)
{
	uint32_t cost = flow_cost(1, 4096), out = 0;

	while (hca_flow_take(f, cost, waiter, false))
		out += cost;
	for (; out; out -= cost)
		hca_flow_release(f, cost);
	list_del(waiter);
}

static void loss_takes_an_eighth_once_per_round_and_success_opens_it(void **state)
{
	FLOW(f);

	hca_flow_loss(&f);
	hca_flow_loss(&f);
	assert_int_equal(f.window, FLOW_WINDOW - FLOW_WINDOW / 8);
	for (unsigned i = 0; i < FLOW_WINDOW / FLOW_GROWTH; i++)
		round_trip(&f, &waiter);
	assert_int_equal(f.window, FLOW_WINDOW);
}

/* Overrun comes back every round, as long as senders have more in flight than the buffer holds. */
static void loss_in_every_round_shrinks_the_window_to_a_few_packets(void **state)
{
	FLOW(f);

	for (unsigned i = 0; i < 200; i++) {
		round_trip(&f, &waiter);
		round_trip(&f, &waiter);
		hca_flow_loss(&f);
	}
	assert_true(f.window < FLOW_WINDOW / 2);
	for (unsigned i = 0; i < 200; i++) {
		f.acked = f.window; /* even if acknowledges brought nothing back */
		hca_flow_loss(&f);
	}
	assert_int_equal(f.window, FLOW_WINDOW_MIN);
}

static void peer_without_echoes_is_not_waited_for(void **state)
{
	uint64_t now = 1000000;
	uint64_t ask;
	bool asked = false;
	FLOW(f);

	while (hca_flow_take_unreliable(&f, 4096, &waiter, now, &ask))
		asked |= ask != 0;
	assert_true(asked);
	now = hca_flow_echo_deadline(&f);
	assert_true(now);
	assert_true(hca_flow_echo_timeout(&f, now));
	for (int i = 0; i < 1000; i++)
		assert_true(hca_flow_take_unreliable(&f, 4096, &waiter, now, &ask));
}

static void echo_of_the_future_is_not_believed(void **state)
{
	uint64_t ask;
	FLOW(f);

	assert_true(hca_flow_take_unreliable(&f, 4096, &waiter, 1, &ask));
	hca_flow_echoed(&f, 1u << 30);
	assert_int_equal(f.echoed, 0);
	hca_flow_echoed(&f, 4096);
	assert_int_equal(f.echoed, 4096);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_in_flight_never_exceeds_a_default_socket_buffer),
		cmocka_unit_test(several_packets_are_taken_as_one_by_one),
		cmocka_unit_test(window_grows_to_what_our_own_socket_holds),
		cmocka_unit_test(idle_flow_lets_one_packet_out_whatever_it_costs),
		cmocka_unit_test(idle_qp_gets_past_others_that_hold_the_window),
		cmocka_unit_test(loss_takes_an_eighth_once_per_round_and_success_opens_it),
		cmocka_unit_test(loss_in_every_round_shrinks_the_window_to_a_few_packets),
		cmocka_unit_test(peer_without_echoes_is_not_waited_for),
		cmocka_unit_test(echo_of_the_future_is_not_believed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
