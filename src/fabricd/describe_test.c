/* SPDX-License-Identifier: MIT */
#include "fabricd/describe.h"

#include "subnet/topo_make.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct subnet_ops nobody;

static void faults_are_read(void **state)
{
	struct subnet_fault f;
	char err[TOPO_ERROR] = "";

	assert_int_equal(describe_fault("loss=1% corrupt=0.1% duplicate=0.5 delay=50us", &f, err), 0);
	assert_int_equal(f.loss, 10000);
	assert_int_equal(f.corrupt, 1000);
	assert_int_equal(f.duplicate, 500000);
	assert_int_equal(f.delay, 50000);
	assert_int_equal(describe_fault("none", &f, err), 0);
	assert_int_equal(f.loss, 0);
	assert_int_equal(describe_fault("loss=100% delay=1.5ms", &f, err), 0);
	assert_int_equal(f.loss, 1000000);
	assert_int_equal(f.delay, 1500000);
}

static void what_is_no_fault_is_refused_in_words(void **state)
{
	static const char *const texts[] = {"", "loss", "loss=", "loss=101%", "loss=-1%", "loss=nan",
		"loss=inf", "loss=1%%", "delay=50", "delay=-1us", "delay=1e300s", "delay=61s", "rate=10G",
		"colour=red", "loss=1% what"};
	struct subnet_fault f;

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		char err[TOPO_ERROR] = "";

		assert_int_equal(describe_fault(texts[i], &f, err), -EINVAL);
		assert_true(*err);
	}
}

static void ports_are_found_by_name(void **state)
{
	static const char *const wrong[] = {"", "S1", "S2", "S2[1]", "S1[0]", "S1[5]", "S1[]", "S1[1",
		"S1[1]x", "S1[-1]", "S1[99999999999999999999]", "[1]", "S1[1][1]"};
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	char err[TOPO_ERROR];

	assert_int_equal(topo_make(s, "star:4", 1, err), 0);
	assert_ptr_equal(describe_port(s, "S1[3]", err), subnet_port(subnet_find(s, "S1"), 3));
	assert_ptr_equal(describe_port(s, "node2", err), subnet_port(subnet_find(s, "node2"), 1));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		*err = '\0';
		assert_null(describe_port(s, wrong[i], err));
		assert_true(*err);
	}
	subnet_close(s);
}

static int made(struct fabricd *d, const struct describe_options *o, char err[TOPO_ERROR])
{
	*d = (struct fabricd){.subnet = subnet_open(&nobody, NULL, 1)};
	return describe(d, o, err);
}

static void drop(struct fabricd *d)
{
	topo_fini(&d->topo);
	subnet_close(d->subnet);
}

static void options_are_for_the_whole_subnet(void **state)
{
	struct describe_options o = {
		.what = "star:3", .speed = "edr", .mtu = 2048, .hca_ports = 2, .ip = "10.47.0.0/16"};
	char err[TOPO_ERROR] = "";
	struct fabricd d;
	struct subnet_port *p;

	assert_int_equal(made(&d, &o, err), 0);
	p = subnet_port(subnet_find(d.subnet, "node3"), 2);
	assert_int_equal(p->caps.mtu, 4);
	assert_int_equal(p->caps.speed_ext, 3);
	assert_int_equal(d.topo.nhosts, 3);
	assert_int_equal(d.topo.nips, 6);
	drop(&d);
}

static void wrong_options_are_refused_in_words(void **state)
{
	static const struct describe_options wrong[] = {
		{.what = "star:3", .speed = "fast", .hca_ports = 1},
		{.what = "star:3", .mtu = 1500, .hca_ports = 1},
		{.what = "star:3", .hca_ports = 0},
		{.what = "star:3", .hca_ports = 255},
		{.what = "star:3", .hca_ports = 1, .ip = "10.47.0.0"},
		{.what = "star:3", .hca_ports = 1, .ip = "10.47.0.0/33"},
		{.what = "star:3", .hca_ports = 1, .ip = "10.47.0.0/31"},
		{.what = "star:3", .hca_ports = 1, .ip = "nowhere/8"},
		{.what = "/nonexistent/file", .hca_ports = 1},
		{.what = "/nonexistent/file", .hca_ports = 2},
		{.what = "/proc/self", .hca_ports = 1},
	};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		char err[TOPO_ERROR] = "";
		struct fabricd d;

		assert_true(made(&d, &wrong[i], err) < 0);
		assert_true(*err);
		drop(&d);
	}
}

static void nodes_of_one_guid_are_told(void **state)
{
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	char text[TOPO_ERROR] = "";
	struct subnet_node *a, *b;

	assert_int_equal(topo_make(s, "star:4", 2, text), 0);
	a = subnet_find(s, "node2");
	b = subnet_find(s, "node3");
	assert_false(describe_twins(s, text));
	subnet_set_guid(b, a->guid + 2); /* of a port that has no cable: nobody said so */
	if (subnet_port(a, 2)->peer)
		subnet_port(a, 2)->peer = subnet_port(a, 2)->peer->peer = NULL;
	assert_false(describe_twins(s, text));
	subnet_set_guid(b, a->guid);
	assert_true(describe_twins(s, text));
	assert_non_null(strstr(text, "node3 has a GUID of node2, 0x"));
	subnet_set_guid(b, a->guid + 0x10000);
	assert_false(describe_twins(s, text));
	subnet_port(b, 1)->guid = a->port[1].guid;
	assert_true(describe_twins(s, text));
	subnet_close(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(faults_are_read),
		cmocka_unit_test(what_is_no_fault_is_refused_in_words),
		cmocka_unit_test(ports_are_found_by_name),
		cmocka_unit_test(options_are_for_the_whole_subnet),
		cmocka_unit_test(wrong_options_are_refused_in_words),
		cmocka_unit_test(nodes_of_one_guid_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
