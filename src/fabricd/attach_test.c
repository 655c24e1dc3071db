/* SPDX-License-Identifier: MIT */
/* Programs at the socket `attach` of a fabric of two hosts with one cable, good ones and others. */
#include "fabricd/attach_stage_test.h"

#include "tests/skip.h"

#include <sys/resource.h>

enum { DATAGRAM = BTH_LEN + DETH_LEN + 8 };

static void make(uint8_t bytes[DATAGRAM], struct trunk_packet *head)
{
	memset(bytes, 0x5a, DATAGRAM);
	bth_put(bytes, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, qpn_in(SLOT_B), false, 5);
	put_be32(bytes + BTH_LEN, 0x11111111);
	put_be32(bytes + BTH_LEN + 4, qpn_in(SLOT_A));
	*head = (struct trunk_packet){
		.port = subnet_port(d.topo.host[0].hca[0], 1)->index, .slid = LID_A, .dlid = LID_B, .sl = 3};
}

/* ---- coming ---- */
static void who_only_looks_gets_a_table_to_read(void **state)
{
	struct program p;
	const struct fabric_table *t;

	assert_int_equal(hello(&p, "", 0), 0);
	assert_int_equal(p.npassed, 2);
	assert_int_equal(p.welcome.nhcas, 1);
	assert_string_equal(p.welcome.hca[0].name, "ib0");
	assert_null(memfile_map(p.passed[0], p.welcome.table_size, PROT_READ | PROT_WRITE, NULL));
	t = memfile_map(p.passed[0], p.welcome.table_size, PROT_READ, NULL);
	assert_non_null(t);
	assert_int_equal(fabric_port(t, p.welcome.hca[0].port[0])->lid, LID_A);
	munmap((void *)(uintptr_t)t, p.welcome.table_size);
	close(p.passed[0]);
	close(p.passed[1]);
	leave(&p);
	assert_int_equal(d.attach->nconns, 0);
}

static void refusals_say_why(void **state)
{
	struct program p, other;

	assert_int_equal(hello(&p, "nowhere", 0), ENODEV);
	assert_int_equal(p.npassed, 0);
	assert_int_equal(hello(&p, "", SLOTS), EINVAL);
	attach(&p, 0, SLOT_A);
	assert_int_equal(hello(&other, d.topo.host[1].name, SLOT_A), EADDRINUSE);
	leave(&p);
	assert_int_equal(d.attach->nconns, 0);
	attach(&p, 1, SLOT_A); /* it is free again */
	leave(&p);
}

static void nonsense_ends_a_connection(void **state)
{
	struct attach_hello h = {.magic = ATTACH_MAGIC + 1, .version = ATTACH_VERSION};
	const struct attach_listen listen = {.type = ATTACH_LISTEN};
	uint8_t longer[sizeof(h) + 1] = {0};
	struct program p;

	come(&p);
	send(p.fd, &h, sizeof(h), 0);
	attach_read(p.conn);
	come(&p);
	send(p.fd, "x", 1, 0);
	attach_read(p.conn);
	come(&p);
	send(p.fd, longer, sizeof(longer), 0);
	attach_read(p.conn);
	attach(&p, 0, SLOT_A);
	send(p.fd, longer, 2, 0);
	attach_read(p.conn);
	assert_int_equal(hello(&p, "", 0), 0); /* who only looks listens for nothing */
	send(p.fd, &listen, sizeof(listen), 0);
	attach_read(p.conn);
	assert_int_equal(d.attach->nconns, 0);
	assert_int_equal(d.attach->count.nonsense, 5);
}

/* More than a fabric takes: those who came first and are silent make room, but no program that is there. */
static void who_says_nothing_makes_room(void **state)
{
	enum { MANY = ATTACH_CONNS + 10 };
	struct rlimit l;
	struct program a, b, *silent;
	char byte;

	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = l.rlim_max;
	setrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur < 2 * MANY + 100)
		skip_because("needs more descriptors than this user may have");
	silent = calloc(MANY, sizeof(*silent));
	attach(&a, 0, SLOT_A);
	for (unsigned i = 0; i < MANY; i++)
		come(&silent[i]);
	attach(&b, 1, SLOT_B);
	assert_int_equal(recv(silent[0].fd, &byte, 1, MSG_DONTWAIT), 0);
	assert_int_equal(recv(silent[MANY - 1].fd, &byte, 1, MSG_DONTWAIT), -1);
	assert_non_null(d.attach->slot[SLOT_A]);
	assert_non_null(d.attach->slot[SLOT_B]);
	for (unsigned i = 0; i < MANY; i++)
		close(silent[i].fd);
	free(silent);
}

static void changes_are_told_to_programs_of_that_host(void **state)
{
	struct program a, b;
	uint8_t byte = 0;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	attach_changed(&d, subnet_port(d.topo.host[1].hca[0], 1), SUBNET_LID_CHANGED);
	assert_int_equal(recv(a.fd, &byte, 1, 0), -1);
	assert_int_equal(recv(b.fd, &byte, 1, 0), 1);
	assert_int_equal(byte, ATTACH_CHANGED);
	leave(&a);
	leave(&b);
}

/* Nobody else would wake it for what it has to say still. */
static void who_found_no_room_is_rung(void **state)
{
	const struct attach_listen l = {.type = ATTACH_UNLISTEN, .families = ATTACH_V4};
	struct program p;
	uint8_t byte = 0;

	attach(&p, 0, SLOT_A);
	attach_read(p.conn);
	assert_int_equal(recv(p.fd, &byte, 1, 0), -1);
	while (send(p.fd, &l, sizeof(l), 0) == (ssize_t)sizeof(l))
		;
	assert_int_equal(errno, EAGAIN);
	attach_read(p.conn);
	assert_int_equal(recv(p.fd, &byte, 1, 0), 1);
	assert_int_equal(byte, ATTACH_RING);
	assert_int_equal(send(p.fd, &l, sizeof(l), 0), sizeof(l));
	leave(&p);
	while (d.attach->nconns)
		attach_read(last());
}

/* ---- packets ---- */
static void packet_arrives_where_its_queue_pair_is(void **state)
{
	uint8_t bytes[DATAGRAM], *there, byte = 0;
	struct program a, b;
	struct trunk_packet head, t;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	make(bytes, &head);
	assert_true(trunk_sleep(&b.rx));
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_int_equal(recv(b.fd, &byte, 1, 0), 1);
	assert_int_equal(byte, ATTACH_RING);
	assert_int_equal(trunk_take(&b.rx, &t, &there), 1);
	assert_true(t.slid == LID_A && t.dlid == LID_B && t.sl == 3 && !t.has_grh && t.len == DATAGRAM);
	assert_memory_equal(there, bytes, DATAGRAM);
	assert_int_equal(t.port, subnet_port(d.topo.host[1].hca[0], 1)->index);
	leave(&a);
	leave(&b);
}

static const uint8_t group[16] = {0xff, 0x12, 0x40, 0x1b, [15] = 9};

/* To a group, by a GRH, from the host of LID_A. */
static void make_group_packet(uint8_t bytes[DATAGRAM], struct trunk_packet *head)
{
	const struct fabric_port *from = subnet_port(d.topo.host[0].hca[0], 1)->shared;

	make(bytes, head);
	put_be24(bytes + 5, QP_MULTICAST);
	head->dlid = LID_MCAST + 1;
	head->has_grh = 1;
	put_be64(head->grh.sgid, from->prefix);
	put_be64(head->grh.sgid + 8, from->guid[0]);
	memcpy(head->grh.dgid, group, sizeof(group));
}

/* Two programs are at the port that it leaves by, one at the other end of the cable. */
static void packet_to_a_group_comes_to_its_senders_port_too(void **state)
{
	uint8_t bytes[DATAGRAM], *there;
	struct program a, beside, b;
	struct program *const all[] = {&a, &beside, &b};
	struct trunk_packet head, t;

	attach(&a, 0, SLOT_A);
	attach(&beside, 0, SLOT_A + 1);
	attach(&b, 1, SLOT_B);
	make_group_packet(bytes, &head);
	put(&a, &head, bytes, DATAGRAM);
	run();
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(trunk_take(&all[i]->rx, &t, &there), 1);
		assert_memory_equal(t.grh.dgid, group, sizeof(group));
		assert_int_equal(t.port, subnet_port(d.topo.host[i / 2].hca[0], 1)->index);
		trunk_done(&all[i]->rx);
		assert_false(trunk_has_packet(&all[i]->rx));
	}
	subnet_port(d.topo.host[0].hca[0], 1)->shared->state = PORT_DOWN;
	put(&a, &head, bytes, DATAGRAM);
	run();
	for (unsigned i = 0; i < 2; i++)
		assert_false(trunk_has_packet(&all[i]->rx)); /* a port that is down has no members */
	leave(&a);
	leave(&beside);
	leave(&b);
}

/* Limited members do not hear each other, and so not themselves: no violation of anybody's. */
static void limited_member_does_not_hear_its_own(void **state)
{
	struct subnet_port *from = subnet_port(d.topo.host[0].hca[0], 1);
	uint8_t bytes[DATAGRAM], *there;
	struct program a, b;
	struct trunk_packet head, t;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	from->shared->pkey[0] = PKEY_DEFAULT & ~PKEY_FULL;
	from->shared->sm_lid = LID_B; /* who would be told */
	unwanted = 0;
	make_group_packet(bytes, &head);
	put_be16(bytes + 2, PKEY_DEFAULT & ~PKEY_FULL);
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_false(trunk_has_packet(&a.rx));
	assert_int_equal(trunk_take(&b.rx, &t, &there), 1);
	subnet_expire(d.subnet, loop_now(d.loop) + 1000000000);
	assert_int_equal(unwanted, 0);
	leave(&a);
	leave(&b);
}

/* The switches know the members of a group, by its LID. */
static void group_is_not_reached_by_the_lid_of_a_port(void **state)
{
	uint8_t bytes[DATAGRAM];
	struct program a, b;
	struct trunk_packet head;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	make_group_packet(bytes, &head);
	head.dlid = LID_B;
	put(&a, &head, bytes, DATAGRAM);
	make(bytes, &head); /* nor a queue pair by the LID of a group */
	head.dlid = LID_MCAST + 1;
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_false(trunk_has_packet(&a.rx) || trunk_has_packet(&b.rx));
	leave(&a);
	leave(&b);
}

static void forged_packets_are_refused_and_counted(void **state)
{
	enum { FORGERIES = 10 };
	struct program a, b;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	d.attach->count = (struct attach_counts){0};
	for (unsigned i = 0; i < FORGERIES; i++) {
		uint8_t bytes[DATAGRAM];
		struct trunk_packet head;
		uint32_t len = DATAGRAM;

		make(bytes, &head);
		switch (i) {
		case 0: /* another's LID */
			head.slid = LID_B;
			break;
		case 1: /* another's port */
			head.port = subnet_port(d.topo.host[1].hca[0], 1)->index;
			break;
		case 2: /* no port at all */
			head.port = UINT32_MAX;
			break;
		case 3: /* a partition that it is not in */
			put_be16(bytes + 2, 0x8123);
			break;
		case 4: /* in the name of another program */
			put_be32(bytes + BTH_LEN + 4, qpn_in(SLOT_B));
			break;
		case 5: /* management */
			put_be24(bytes + 5, SMI_QPN);
			break;
		case 6:
			put_be24(bytes + 5, GSI_QPN);
			break;
		case 7: /* another's GID */
			head.has_grh = 1;
			memset(&head.grh, 0xfe, sizeof(head.grh));
			break;
		case 8: /* another's port, and all that it has */
			head.port = subnet_port(d.topo.host[1].hca[0], 1)->index;
			head.slid = LID_B;
			head.dlid = LID_A;
			break;
		case 9: /* no packet */
			len = 8;
			break;
		}
		put(&a, &head, bytes, len);
	}
	run();
	assert_int_equal(d.attach->count.refused, FORGERIES);
	assert_int_equal(d.attach->count.sent, 0);
	assert_false(trunk_has_packet(&b.rx));
	leave(&a);
	leave(&b);
}

static void what_finds_nobody_or_no_room_is_counted(void **state)
{
	uint8_t bytes[DATAGRAM];
	struct program a, b;
	struct trunk_packet head;

	attach(&a, 0, SLOT_A);
	d.attach->count = (struct attach_counts){0};
	make(bytes, &head);
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_int_equal(d.attach->count.unknown, 1);
	put_be24(bytes + 5, qpn_in(SLOT_A)); /* who has that slot is on another host */
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_int_equal(d.attach->count.unknown, 2);
	assert_false(trunk_has_packet(&a.rx));
	make(bytes, &head);
	attach(&b, 1, SLOT_B);
	for (unsigned i = 0; i < TRUNK_DATA / (2 * TRUNK_LINE) + 10; i++) {
		put(&a, &head, bytes, DATAGRAM);
		run();
	}
	assert_int_equal(d.attach->count.overruns, 10);
	leave(&a);
	leave(&b);
}

static void packet_of_another_partition_reaches_nobody(void **state)
{
	struct fabric_port *there = subnet_port(d.topo.host[1].hca[0], 1)->shared;
	uint8_t bytes[DATAGRAM];
	struct program a, b;
	struct trunk_packet head;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	make(bytes, &head);
	there->pkey[0] = 0x8123;
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_false(trunk_has_packet(&b.rx));
	there->pkey[0] = PKEY_DEFAULT;
	put(&a, &head, bytes, DATAGRAM);
	run();
	assert_true(trunk_has_packet(&b.rx));
	leave(&a);
	leave(&b);
}

static void what_a_program_left_is_sent(void **state)
{
	uint8_t bytes[DATAGRAM];
	struct program a, b;
	struct trunk_packet head;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	make(bytes, &head);
	put(&a, &head, bytes, DATAGRAM);
	leave(&a);
	assert_true(trunk_has_packet(&b.rx));
	leave(&b);
	assert_int_equal(d.attach->nconns, 0);
	assert_null(d.attach->slot[SLOT_A]);
}

static void program_that_ruins_its_ring_is_cut_off(void **state)
{
	struct program a;
	uint8_t byte;

	attach(&a, 0, SLOT_A);
	atomic_store(&a.trunk->to_fabric.head, 12345);
	run();
	assert_true(a.conn->broken);
	assert_int_equal(recv(a.fd, &byte, 1, 0), 0);
	attach_read(a.conn);
	assert_int_equal(d.attach->nconns, 0);
	munmap(a.trunk, sizeof(*a.trunk));
	close(a.fd);
}

static void table_tells_which_program_is_where(void **state)
{
	const struct fabric_table *t = subnet_table(d.subnet);
	const struct fabric_program *a = fabric_program(t, SLOT_A), *b = fabric_program(t, SLOT_B);
	uint32_t port = subnet_port(d.topo.host[1].hca[0], 1)->index;
	uint64_t epoch = fabric_epoch(t);
	struct program p;

	assert_int_not_equal(epoch & ~0xffffull, 0); /* it begins where no other did */
	assert_false(a->host || b->host);
	attach(&p, 1, SLOT_B);
	assert_true(!a->host && b->host && b->pid == getpid());
	assert_int_equal(fabric_port(t, port)->host, b->host);
	assert_true(fabric_epoch(t) > epoch && !(fabric_epoch(t) & 1));
	epoch = fabric_epoch(t);
	leave(&p);
	assert_int_equal(b->host, 0);
	assert_true(fabric_epoch(t) > epoch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(who_only_looks_gets_a_table_to_read, begin, end),
		cmocka_unit_test_setup_teardown(refusals_say_why, begin, end),
		cmocka_unit_test_setup_teardown(nonsense_ends_a_connection, begin, end),
		cmocka_unit_test_setup_teardown(who_says_nothing_makes_room, begin, end),
		cmocka_unit_test_setup_teardown(changes_are_told_to_programs_of_that_host, begin, end),
		cmocka_unit_test_setup_teardown(who_found_no_room_is_rung, begin, end),
		cmocka_unit_test_setup_teardown(packet_arrives_where_its_queue_pair_is, begin, end),
		cmocka_unit_test_setup_teardown(packet_to_a_group_comes_to_its_senders_port_too, begin, end),
		cmocka_unit_test_setup_teardown(limited_member_does_not_hear_its_own, begin, end),
		cmocka_unit_test_setup_teardown(group_is_not_reached_by_the_lid_of_a_port, begin, end),
		cmocka_unit_test_setup_teardown(forged_packets_are_refused_and_counted, begin, end),
		cmocka_unit_test_setup_teardown(what_finds_nobody_or_no_room_is_counted, begin, end),
		cmocka_unit_test_setup_teardown(packet_of_another_partition_reaches_nobody, begin, end),
		cmocka_unit_test_setup_teardown(what_a_program_left_is_sent, begin, end),
		cmocka_unit_test_setup_teardown(program_that_ruins_its_ring_is_cut_off, begin, end),
		cmocka_unit_test_setup_teardown(table_tells_which_program_is_where, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
