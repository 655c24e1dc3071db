/* SPDX-License-Identifier: MIT */
/* What programs tell of packets that went past the switches, and what ports have counted then. */
#include "fabricd/attach_stage_test.h"

#include "subnet/counters.h"

static struct program a, b;

static struct subnet_port *port(unsigned host)
{
	return subnet_port(d.topo.host[host].hca[0], 1);
}

static int come_both(void **state)
{
	if (begin(state))
		return -1;
	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	return 0;
}

static uint64_t way(void)
{
	return tally_way(port(0)->index, LID_A, LID_B, 3);
}

/* The next place of a program's. */
static struct tally *place(struct program *p, uint64_t w)
{
	struct tallies *s = &p->trunk->tallies;

	s->at[s->n].way = w;
	return &s->at[s->n++];
}

static void has_counted(uint64_t packets, uint64_t words, uint64_t back, uint64_t back_words)
{
	assert_int_equal(subnet_counted(port(0), CNT_XMIT_PKTS), packets);
	assert_int_equal(subnet_counted(port(0), CNT_XMIT_DATA), words);
	assert_int_equal(subnet_counted(port(1), CNT_RCV_PKTS), packets);
	assert_int_equal(subnet_counted(port(1), CNT_RCV_DATA), words);
	assert_int_equal(subnet_counted(port(1), CNT_XMIT_PKTS), back);
	assert_int_equal(subnet_counted(port(1), CNT_XMIT_DATA), back_words);
	assert_int_equal(subnet_counted(port(0), CNT_RCV_PKTS), back);
	assert_int_equal(subnet_counted(port(0), CNT_RCV_DATA), back_words);
}

static void the_increase_is_counted_once(void **state)
{
	struct tally *t = place(&a, way()), *other;

	tally_add(t, TALLY_THERE, 2, 20);
	tally_add(t, TALLY_BACK, 5, 70);
	attach_take_tallies(&d);
	has_counted(2, 20, 5, 70);
	assert_int_equal(subnet_counted(port(0), CNT_XMIT_DATA_SL + 3), 20);
	attach_take_tallies(&d);
	has_counted(2, 20, 5, 70);
	tally_add(t, TALLY_THERE, 1, 10);
	other = place(&b, tally_way(port(1)->index, LID_B, LID_A, 0));
	tally_add(other, TALLY_THERE, 1, 7);
	attach_take_tallies(&d);
	has_counted(3, 30, 6, 77);
	leave(&a);
	leave(&b);
	has_counted(3, 30, 6, 77);
}

/* Words are seen a moment after their packets. */
static void words_may_come_later(void **state)
{
	struct tally *t = place(&a, way());

	tally_add(t, TALLY_THERE, 1, 0);
	attach_take_tallies(&d);
	has_counted(1, 0, 0, 0);
	tally_add(t, TALLY_THERE, 0, 10);
	attach_take_tallies(&d);
	has_counted(1, 10, 0, 0);
	leave(&a);
	leave(&b);
}

static void killed_program_is_counted(void **state)
{
	tally_add(place(&a, way()), TALLY_THERE, 2, 20);
	leave(&a);
	has_counted(2, 20, 0, 0);
	attach(&a, 0, SLOT_A); /* another begins at nothing */
	attach_take_tallies(&d);
	has_counted(2, 20, 0, 0);
	leave(&a);
	leave(&b);
}

/* What went while the cable was there is counted at its ports; and nothing goes by one that is cut. */
static void routes_change_behind_it(void **state)
{
	struct tally *t = place(&a, way());

	tally_add(t, TALLY_THERE, 2, 20);
	assert_int_equal(subnet_cut(port(0), 0), 0);
	has_counted(2, 20, 0, 0);
	tally_add(t, TALLY_THERE, 100, 1000);
	attach_take_tallies(&d);
	assert_int_equal(subnet_mend(port(0), 0), 0);
	tally_add(t, TALLY_THERE, 1, 10);
	attach_take_tallies(&d);
	has_counted(3, 30, 0, 0);
	leave(&a);
	leave(&b);
}

static void ways_of_others_are_nobodys(void **state)
{
	const uint64_t ways[] = {0, UINT64_MAX,
		tally_way(port(1)->index, LID_B, LID_A, 0), /* another host's */
		tally_way(port(0)->index, LID_B, LID_A, 0), tally_way(port(0)->index, LID_A, 77, 0),
		tally_way(port(0)->index, LID_A, LID_A, 0), tally_way(port(0)->index, LID_A, 0xffff, 0)};

	for (unsigned i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		struct tally *t = place(&a, ways[i]);

		tally_add(t, TALLY_THERE, 2, 20);
		tally_add(t, TALLY_BACK, 2, 20);
	}
	attach_take_tallies(&d);
	has_counted(0, 0, 0, 0);
	/* And it stays what it was at first. */
	a.trunk->tallies.at[2].way = way();
	tally_add(&a.trunk->tallies.at[2], TALLY_THERE, 2, 20);
	attach_take_tallies(&d);
	has_counted(0, 0, 0, 0);
	leave(&a);
	leave(&b);
}

static void set(struct tally *t, uint64_t packets, uint64_t words)
{
	t->sum[TALLY_THERE].packets = packets;
	t->sum[TALLY_THERE].words = words;
	attach_take_tallies(&d);
}

static void nonsense_is_not_counted(void **state)
{
	struct tally *t = place(&a, way());

	set(t, 10, 100);
	set(t, 9, 110);
	set(t, 11, 99);
	set(t, 11, 11 * 1055 + 1055); /* longer than packets are */
	set(t, 1ull << 50, 1ull << 50);
	set(t, UINT64_MAX, UINT64_MAX);
	has_counted(10, 100, 0, 0);
	set(t, 12, 120);
	has_counted(12, 120, 0, 0);
	a.trunk->tallies.n = TALLIES + 1;
	attach_take_tallies(&d);
	assert_int_equal(a.conn->ntallies, TALLIES);
	a.trunk->tallies.n = 0;
	set(t, 13, 130);
	has_counted(13, 130, 0, 0);
	leave(&a);
	leave(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_increase_is_counted_once, come_both, end),
		cmocka_unit_test_setup_teardown(words_may_come_later, come_both, end),
		cmocka_unit_test_setup_teardown(killed_program_is_counted, come_both, end),
		cmocka_unit_test_setup_teardown(routes_change_behind_it, come_both, end),
		cmocka_unit_test_setup_teardown(ways_of_others_are_nobodys, come_both, end),
		cmocka_unit_test_setup_teardown(nonsense_is_not_counted, come_both, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
