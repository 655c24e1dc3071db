/* SPDX-License-Identifier: MIT */
/* When a path between two programs is clear: a table of two hosts at one switch, and all that may be wrong.
 */
#include "fabric/clear.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Ports: an adapter's at either end, and the switch between them. */
enum { A, B, S0, S1, S2, PORTS };
enum { LID_A = 1, LID_B = 2, HOST_A = 1, HOST_B = 2, SLOT_A = 3, SLOT_B = 9, PID = 1000 };
enum { FULL = 0xffff, LIMITED = 0x7fff };
static const uint8_t gid_a[16] = {0xfe, 0x80, [15] = 0x0a};

static struct fabric_table *t;

static void make_port(unsigned i, uint32_t sw, uint8_t num, uint32_t peer)
{
	struct fabric_port *p = fabric_port(t, i);

	*p = (struct fabric_port){.sw = sw,
		.num = num,
		.peer = peer,
		.state = PORT_ACTIVE,
		.phys = PHYS_LINK_UP,
		.mtu = 5,
		.vls = 1,
		.sl2vl = i * 3,
		.flags = FABRIC_PLAIN,
		.prefix = 0xfe80000000000000,
		.guid = {0x0a + i},
		.pkey = {FULL}};
}

static int begin(void **state)
{
	static const struct fabric_counts n = {.ports = PORTS, .switches = 1, .rows = PORTS * 3};
	void *zeroed = calloc(1, fabric_table_size(&n));

	if (!zeroed)
		return -1;
	t = fabric_table_init(zeroed, &n);
	t->epoch = 40;
	make_port(A, FABRIC_NONE, 1, S1);
	make_port(B, FABRIC_NONE, 1, S2);
	make_port(S0, 0, 0, FABRIC_NONE);
	make_port(S1, 0, 1, A);
	make_port(S2, 0, 2, B);
	fabric_port(t, A)->lid = LID_A;
	fabric_port(t, A)->host = HOST_A;
	fabric_port(t, B)->lid = LID_B;
	fabric_port(t, B)->host = HOST_B;
	fabric_lid_set(t, LID_A, A);
	fabric_lid_set(t, LID_B, B);
	*fabric_switch(t, 0) = (struct fabric_switch){.first = S0, .nports = 2, .top = 10};
	fabric_lft_set(t, 0, LID_A, 1);
	fabric_lft_set(t, 0, LID_B, 2);
	*fabric_program(t, SLOT_A) = (struct fabric_program){HOST_A, PID};
	*fabric_program(t, SLOT_B) = (struct fabric_program){HOST_B, PID + 1};
	return 0;
}

static int end(void **state)
{
	free(t);
	return 0;
}

static struct fabric_path_of a_to_b(void)
{
	return (struct fabric_path_of){.port = A,
		.slid = LID_A,
		.dlid = LID_B,
		.pkey = FULL,
		.mtu = 5,
		.slot = SLOT_B,
		.sgid = gid_a};
}

static bool is_clear(struct fabric_path_of p)
{
	uint64_t epoch;
	bool clear = fabric_is_clear(t, &p, &epoch);

	assert_int_equal(epoch, fabric_epoch(t));
	return clear;
}

/* ---- paths ---- */
static void path_through_a_switch_is_clear(void **state)
{
	struct fabric_path_of p = a_to_b();

	assert_true(is_clear(p));
	p.sgid = NULL;
	assert_true(is_clear(p));
	fabric_port(t, A)->guid[0] = 0;
	assert_true(is_clear(p));
}

static void own_lid_needs_no_switch(void **state)
{
	struct fabric_path_of p = a_to_b();

	p.dlid = LID_A;
	assert_false(is_clear(p)); /* the program there is on another host */
	p.slot = SLOT_A;
	fabric_lft_set(t, 0, LID_A, FABRIC_NO_PORT);
	assert_true(is_clear(p));
	p.slid = LID_B; /* which it does not have */
	assert_false(is_clear(p));
	p.slid = LID_A;
	fabric_port(t, A)->state = PORT_ARMED;
	assert_false(is_clear(p));
}

static void one_port_that_is_not_active_is_in_the_way(void **state)
{
	static const unsigned all[] = {A, B, S1, S2};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		fabric_port(t, all[i])->state = PORT_ARMED;
		assert_false(is_clear(a_to_b()));
		fabric_port(t, all[i])->state = PORT_ACTIVE;
		assert_true(is_clear(a_to_b()));
	}
}

static void one_end_of_a_cable_that_is_not_plain_is_in_the_way(void **state)
{
	static const unsigned all[] = {A, B, S1, S2};

	for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		fabric_port(t, all[i])->flags &= ~(uint32_t)FABRIC_PLAIN;
		assert_false(is_clear(a_to_b()));
		fabric_port(t, all[i])->flags |= FABRIC_PLAIN;
	}
}

static void route_has_to_lead_there_and_back(void **state)
{
	fabric_lft_set(t, 0, LID_A, FABRIC_NO_PORT);
	assert_false(is_clear(a_to_b()));
	fabric_lft_set(t, 0, LID_A, 1);
	fabric_lft_set(t, 0, LID_B, 1);
	assert_false(is_clear(a_to_b()));
	fabric_lft_set(t, 0, LID_B, 2);
	fabric_switch(t, 0)->top = 1;
	assert_false(is_clear(a_to_b()));
}

static void packets_have_to_fit_each_link_and_have_a_lane(void **state)
{
	struct fabric_path_of p = a_to_b();

	fabric_port(t, S1)->mtu = 4; /* the way back */
	assert_false(is_clear(p));
	p.mtu = 4;
	assert_true(is_clear(p));
	p.sl = 1;
	fabric_row(t, fabric_port(t, S2)->sl2vl + 1)->vl[0] =
		0x01; /* of SL 1: VL 1, of which there is none */
	assert_false(is_clear(p));
}

static void addresses_are_those_of_the_port(void **state)
{
	struct fabric_path_of p = a_to_b();

	p.slid = LID_B;
	assert_false(is_clear(p));
	p = a_to_b();
	p.sgid = (const uint8_t[16]){0xfe, 0x80, [15] = 0x0b};
	assert_false(is_clear(p));
	p = a_to_b();
	p.dlid = 5;
	assert_false(is_clear(p));
	p = a_to_b();
	p.port = PORTS;
	assert_false(is_clear(p));
}

static void both_ports_have_to_be_in_the_partition(void **state)
{
	struct fabric_path_of p = a_to_b();

	fabric_port(t, B)->pkey[0] = LIMITED;
	assert_true(is_clear(p));
	fabric_port(t, A)->pkey[0] = p.pkey = LIMITED;
	assert_false(is_clear(p)); /* two limited members do not talk */
	fabric_port(t, B)->pkey[0] = FULL;
	assert_true(is_clear(p));
	fabric_port(t, B)->pkey[0] = 0x8001;
	assert_false(is_clear(p));
	fabric_port(t, B)->pkey[0] = FULL;
	p.pkey = FULL;
	assert_false(is_clear(p)); /* which it does not have */
	p.pkey = LIMITED;
	fabric_port(t, S1)->flags |= FABRIC_PKEY_OUT;
	fabric_port(t, S1)->pkey[0] = LIMITED; /* what comes back has a full member's */
	assert_true(is_clear(p));
	fabric_port(t, S2)->flags |= FABRIC_PKEY_OUT;
	fabric_port(t, S2)->pkey[0] = 0x8001;
	assert_false(is_clear(p));
}

static void program_has_to_be_where_the_lid_is(void **state)
{
	fabric_program(t, SLOT_B)->host = HOST_A;
	assert_false(is_clear(a_to_b()));
	fabric_program(t, SLOT_B)->host = 0;
	fabric_port(t, B)->host = 0;
	assert_false(is_clear(a_to_b())); /* nobody is there, and the port is of no host */
}

static void table_in_the_midst_of_a_change_is_asked_again(void **state)
{
	struct fabric_path_of p = a_to_b();
	uint64_t epoch;

	fabric_change_begin(t);
	assert_true(fabric_is_clear(t, &p, &epoch));
	assert_int_not_equal(epoch, fabric_epoch(t));
	fabric_port(t, S2)->state = PORT_DOWN;
	assert_false(fabric_is_clear(t, &p, &epoch));
	assert_int_not_equal(epoch, fabric_epoch(t));
	fabric_port(t, S2)->state = PORT_ACTIVE;
	fabric_change_end(t);
	assert_int_not_equal(epoch, fabric_epoch(t));
	assert_true(fabric_is_clear(t, &p, &epoch));
	assert_int_equal(epoch, fabric_epoch(t));
	assert_false(fabric_is_clear(&fabric_none, &p, &epoch));
}

/* ---- programs ---- */
static void process_is_known_by_its_slot_and_number(void **state)
{
	assert_int_equal(fabric_host_of(t, SLOT_A, PID), HOST_A);
	assert_int_equal(fabric_host_of(t, SLOT_A, PID + 1), 0);
	assert_int_equal(fabric_host_of(t, SLOT_A + 1, PID), 0);
	assert_int_equal(fabric_host_of(t, SLOT_A + 1, 0), 0);
	assert_int_equal(fabric_host_of(t, UINT32_MAX, PID), 0);
	assert_int_equal(fabric_host_of(&fabric_none, SLOT_A, PID), 0);
}

static void slot_of_another_is_told_from_one_that_nobody_has(void **state)
{
	assert_true(fabric_is_anothers(t, SLOT_A, PID + 1));
	assert_false(fabric_is_anothers(t, SLOT_A, PID));
	assert_false(fabric_is_anothers(t, SLOT_A + 1, PID));
	assert_false(fabric_is_anothers(t, UINT32_MAX, PID));
	assert_false(fabric_is_anothers(&fabric_none, SLOT_A, PID + 1));
}

static void program_has_the_addresses_of_its_host_alone(void **state)
{
	struct fabric_claim c = {LID_A, LID_B, gid_a};

	assert_true(fabric_may_claim(t, HOST_A, SLOT_B, &c));
	assert_false(fabric_may_claim(t, HOST_B, SLOT_A, &c));
	assert_false(fabric_may_claim(t, HOST_A, SLOT_A, &c));
	assert_false(fabric_may_claim(t, HOST_B, SLOT_B, &c));
	assert_false(fabric_may_claim(t, 0, SLOT_B, &c));
	c.sgid = (const uint8_t[16]){0xfe, 0x80, [15] = 0x0b};
	assert_false(fabric_may_claim(t, HOST_A, SLOT_B, &c));
	c.sgid = NULL;
	assert_true(fabric_may_claim(t, HOST_A, SLOT_B, &c));
	fabric_port(t, A)->lid = 7; /* since the table of LIDs was written */
	assert_false(fabric_may_claim(t, HOST_A, SLOT_B, &c));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(path_through_a_switch_is_clear),
		CASE(own_lid_needs_no_switch),
		CASE(one_port_that_is_not_active_is_in_the_way),
		CASE(one_end_of_a_cable_that_is_not_plain_is_in_the_way),
		CASE(route_has_to_lead_there_and_back),
		CASE(packets_have_to_fit_each_link_and_have_a_lane),
		CASE(addresses_are_those_of_the_port),
		CASE(both_ports_have_to_be_in_the_partition),
		CASE(program_has_to_be_where_the_lid_is),
		CASE(table_in_the_midst_of_a_change_is_asked_again),
		CASE(process_is_known_by_its_slot_and_number),
		CASE(slot_of_another_is_told_from_one_that_nobody_has),
		CASE(program_has_the_addresses_of_its_host_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
