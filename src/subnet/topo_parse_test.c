/* SPDX-License-Identifier: MIT */
#include "subnet/topo_make.h"
#include "subnet/topo_parse.h"
#include "subnet/topo_write.h"
#include "tests/skip.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLES "/usr/share/doc/ibsim-utils/net-examples/"

static const struct subnet_ops nobody;

struct desc {
	struct subnet *s;
	struct topo t;
	char err[TOPO_ERROR];
	int status;
};

static struct desc parse(const char *text, size_t len)
{
	struct desc d = {.s = subnet_open(&nobody, NULL, 1)};

	d.status = topo_parse(d.s, &d.t, text, len, d.err);
	return d;
}

static void drop(struct desc *d)
{
	topo_fini(&d->t);
	subnet_close(d->s);
}

static struct desc parsed(const char *text)
{
	struct desc d = parse(text, strlen(text));

	if (d.status)
		fail_msg("%s", d.err);
	return d;
}

/* Both have the same nodes by name, with the same GUIDs, ports and cables. */
static void assert_same(const struct subnet *a, const struct subnet *b)
{
	assert_int_equal(subnet_nodes(a), subnet_nodes(b));
	for (unsigned i = 0; i < subnet_nodes(a); i++) {
		const struct subnet_node *n = subnet_node(a, i), *m = subnet_find(b, n->id);

		assert_non_null(m);
		assert_int_equal(n->type, m->type);
		assert_int_equal(n->nports, m->nports);
		assert_true(n->guid == m->guid && n->sys_guid == m->sys_guid);
		assert_true(n->vendor_id == m->vendor_id && n->device_id == m->device_id);
		assert_string_equal(n->desc, m->desc);
		for (unsigned p = 1; p <= n->nports; p++) {
			const struct subnet_port *x = &n->port[p], *y = &m->port[p];

			assert_int_equal(!x->peer, !y->peer);
			if (!x->peer)
				continue;
			assert_true(x->guid == y->guid);
			assert_string_equal(x->peer->node->id, y->peer->node->id);
			assert_int_equal(x->peer->num, y->peer->num);
			assert_memory_equal(&x->caps, &y->caps, sizeof(x->caps));
		}
	}
}

static void assert_round_trip(const struct desc *d)
{
	struct desc again;
	size_t len;
	char *text = topo_write(d->s, &d->t, &len);

	assert_non_null(text);
	again = parse(text, len);
	if (again.status)
		fail_msg("%s", again.err);
	assert_same(d->s, again.s);
	assert_int_equal(d->t.nips, again.t.nips);
	assert_int_equal(d->t.nfaults, again.t.nfaults);
	assert_int_equal(d->t.nsites, again.t.nsites);
	drop(&again);
	free(text);
}

static void what_is_made_is_written_and_read_back(void **state)
{
	static const char *const specs[] = {"pair", "star:4", "ring:6", "fat-tree:4", "tree:4,2,8",
		"torus:3x3", "dragonfly:2,2,1", "fat-tree:16"};

	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		struct desc d = {.s = subnet_open(&nobody, NULL, 1)};

		assert_int_equal(topo_make(d.s, specs[i], 2 - i % 2, d.err), 0);
		assert_int_equal(topo_complete(&d.t, d.s), 0);
		assert_round_trip(&d);
		drop(&d);
	}
}

static void ibsim_examples_are_read(void **state)
{
	static const struct {
		const char *name;
		unsigned nodes;
	} files[] = {{"net", 4}, {"net.1", 3}, {"net.2sw2path", 4}, {"net.2sw2path4hca", 6},
		{"net.2sw2path4hca2port", 4}};
	char path[128], text[4096];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		struct desc d;
		size_t len;
		FILE *f;

		snprintf(path, sizeof(path), EXAMPLES "%s", files[i].name);
		f = fopen(path, "r");
		if (!f)
			skip_because("no example of ibsim's (Debian: ibsim-utils)");
		len = fread(text, 1, sizeof(text), f);
		fclose(f);
		d = parse(text, len);
		if (d.status)
			fail_msg("%s: %s", path, d.err);
		assert_int_equal(subnet_nodes(d.s), files[i].nodes);
		assert_round_trip(&d);
		drop(&d);
	}
}

static const char discovered[] =
	"#\n"
	"# Topology file: generated on Wed Nov 18 05:00:00 2026\n"
	"#\n"
	"# Initiated from node 0008f10403961354 port 0008f10403961355\n"
	"\n"
	"vendid=0x8f1\n"
	"devid=0x5a06\n"
	"sysimgguid=0x5442ba00003000\n"
	"switchguid=0x5442ba00003080(5442ba00003080)\n"
	"Switch\t24 \"S-005442ba00003080\"\t\t# \"ISR9024 Voltaire\" base port 0 lid 6 lmc 0\n"
	"[22]\t\"H-0008f10403961354\"[1](8f10403961355) \t\t# \"node7 HCA-1\" lid 4 4xSDR\n"
	"[10]\t\"S-0008f10400410015\"[1]\t\t# \"SW-6IB4 Voltaire\" lid 3 4xEDR\n"
	"\n"
	"vendid=0x8f1\n"
	"devid=0x5a05\n"
	"switchguid=0x8f10400410015(8f10400410015)\n"
	"Switch\t8 \"S-0008f10400410015\"\t\t# \"SW-6IB4 Voltaire\" base port 0 lid 3 lmc 0\n"
	"[6]\t\"S-0008f10400410016\"[7]\t\t# \"SW-6IB4 Voltaire\" lid 16 4xSDR\n"
	"[1]\t\"S-005442ba00003080\"[10]\t\t# \"ISR9024 Voltaire\" lid 6 4xEDR\n"
	"\n"
	"switchguid=0x8f10400410016(8f10400410016)\n"
	"Switch\t8 \"S-0008f10400410016\"\t\t# \"SW-6IB4 Voltaire\" base port 0 lid 16 lmc 0\n"
	"\n"
	"vendid=0x2c9\n"
	"devid=0x5a44\n"
	"sysimgguid=0x8f10403961357\n"
	"caguid=0x8f10403961354\n"
	"Ca\t2 \"H-0008f10403961354\"\t\t# \"node7 HCA-1\"\n"
	"[1](8f10403961355) \t\"S-005442ba00003080\"[22]\t\t# lid 4 lmc 1 \"ISR9024 "
	"Voltaire\" lid 6 4xSDR\n";

static void discovered_subnet_is_read(void **state)
{
	struct desc d = parsed(discovered);
	struct subnet_node *ca = subnet_find(d.s, "node7 HCA-1"), *sw = subnet_find(d.s, "ISR9024 Voltaire");

	assert_int_equal(subnet_nodes(d.s), 4);
	assert_non_null(ca);
	assert_non_null(sw);
	/* Two are described alike: they keep their GUIDs for names. */
	assert_non_null(subnet_find(d.s, "S-0008f10400410015"));
	assert_string_equal(subnet_find(d.s, "S-0008f10400410016")->desc, "SW-6IB4 Voltaire");
	assert_true(ca->guid == 0x8f10403961354 && ca->port[1].guid == 0x8f10403961355);
	assert_true(ca->sys_guid == 0x8f10403961357 && ca->vendor_id == 0x2c9 && ca->device_id == 0x5a44);
	assert_ptr_equal(ca->port[1].peer, &sw->port[22]);
	assert_int_equal(ca->port[1].caps.speed, 1);
	assert_int_equal(sw->port[10].caps.speed_ext, 3);
	assert_ptr_equal(sw->port[10].peer->peer, &sw->port[10]);
	assert_round_trip(&d);
	drop(&d);
}

static void own_lines_are_read(void **state)
{
	struct desc d = parsed("Hca 2 \"A\"\n[1] \"S\"[1]\n\nHca 1 \"B\"\n[1] \"S\"[2] w=1 s=2 e=0\n\n"
			       "Hca 1 \"C\"\n\nSwitch 4 \"S\" # \"the # switch\"\n"
			       "@host big \"A\" \"B\"\n@ip \"A\"[2] 10.0.0.1/24\n@ip \"C\" fe80::1/64 # it\n"
			       "@fault \"S\"[2] loss=1% delay=50us\n@site \"S\" tcp:there:1\n");

	assert_int_equal(topo_complete(&d.t, d.s), 0);
	assert_int_equal(d.t.nhosts, 2);
	assert_int_equal(topo_host(&d.t, "big")->nhcas, 2);
	assert_ptr_equal(topo_host(&d.t, "C")->hca[0], subnet_find(d.s, "C"));
	assert_int_equal(d.t.ip[0].prefix, 96 + 24);
	assert_ptr_equal(d.t.ip[0].port, subnet_port(subnet_find(d.s, "A"), 2));
	assert_int_equal(d.t.ip[1].prefix, 64);
	assert_string_equal(d.t.fault[0].what, "loss=1% delay=50us");
	assert_string_equal(d.t.site[0].where, "tcp:there:1");
	assert_int_equal(subnet_find(d.s, "B")->port[1].caps.width, 1);
	assert_int_equal(subnet_find(d.s, "B")->port[1].caps.speed_ext, 0);
	assert_string_equal(subnet_find(d.s, "S")->desc, "the # switch");
	drop(&d);
}

static void mtus_are_read_and_written(void **state)
{
	struct desc d = parsed("Switch 2 \"S\"\n[1] \"A\"[1]\n\nCa 1 \"A\"\n\n@mtu \"S\"[1] 256\n");

	assert_int_equal(topo_complete(&d.t, d.s), 0);
	assert_int_equal(subnet_find(d.s, "S")->port[1].caps.mtu, 1);
	assert_int_equal(subnet_find(d.s, "S")->port[2].caps.mtu, 5);
	assert_round_trip(&d);
	drop(&d);
}

static void faults_in_a_description_name_their_line(void **state)
{
	static const struct {
		const char *text, *says;
	} rows[] = {
		{"", "no node"},
		{"# only this\n", "no node"},
		{"Switch 8\n", "line 1: a node has a name"},
		{"Switch 255 \"S\"\n", "line 1: a node has 1 to 254 ports"},
		{"Switch \"S\"\n", "line 1: a node has 1 to"},
		{"Switch 8 \"\"\n", "line 1: a node has a name"},
		{"Switch 8 \"a\001b\"\n", "printable"},
		{"\n\n[1] \"A\"[1]\n", "line 3: a port without a node"},
		{"Switch 8 \"S\"\n[9] \"S\"[1]\n", "line 2: S has ports [1] to [8]"},
		{"Switch 8 \"S\"\n[0] \"S\"[1]\n", "line 2: S has ports [1] to [8]"},
		{"Switch 8 \"S\"\n[1] \"S\"[9]\n", "line 2: \"S\" has ports [1] to [8]"},
		{"Switch 8 \"S\"\n[1] \"S\"[1]\n", "line 2: a cable has two ends"},
		{"Switch 8 \"S\"\n[1] \"T\"[1]\n", "line 2: there is no node \"T\""},
		{"Switch 8 \"S\"\n[1] \"S\"[2]\n[3] \"S\"[2]\n", "line 3: S[2] is already connected to S[1]"},
		{"Switch 8 \"S\"\n[1] \"S\"\n", "line 2: the other end of the cable has no port"},
		{"Switch 8 \"S\"\n[1] \"S\"[2] z\n", "line 2: what is not understood"},
		{"Switch 8 \"S\"\n[1] \"S\"[2] w=99\n", "line 2: w= wants a number"},
		{"Switch 8 \"S\"\n\nSwitch 4 \"S\"\n", "line 3: there is already a node \"S\""},
		{"Swich 8 \"S\"\n", "line 1: 'Swich' is not understood"},
		{"include \"/etc/passwd\"\n", "line 1: 'include' is not understood"},
		{"colour=3\n", "line 1: there is no attribute 'colour'"},
		{"devid=three\n", "line 1: devid= wants a number"},
		{"Switch 8 \"S\"\n@wait 3\n", "line 2: there is no @wait"},
		{"Switch 8 \"S\"\n@ip \"S\"[1] 10.0.0.1\n", "line 2: \"S\" is no adapter"},
		{"Ca 1 \"A\"\n@ip \"A\"[2] 10.0.0.1\n", "line 2: \"A\" has ports"},
		{"Ca 1 \"A\"\n@ip \"A\"[1] 10.0.0\n", "line 2: '10.0.0' is no IP address"},
		{"Ca 1 \"A\"\n@ip \"A\"[1] 10.0.0.1/33\n", "line 2: '33' is no prefix length"},
		{"Ca 1 \"A\"\n@host h \"A\"\n@host g \"A\"\n", "line 3: \"A\" already belongs to a host"},
		{"Ca 1 \"A\"\n@host h\n", "line 2: the name of a node in quotes is missing"},
		{"Ca 1 \"A\"\n@fault \"A\"[1]\n", "line 2: @fault"},
		{"Ca 1 \"A\"\n@mtu \"A\"[1] 1500\n", "line 2: @mtu"},
		{"Ca 1 \"A\"\n@mtu \"A\"[1]\n", "line 2: @mtu"},
		{"Ca 1 \"A\"\n@mtu \"A\"[1] 256 512\n", "line 2: @mtu"},
		{"Ca 1 \"A\n", "line 1: a node has a name"},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct desc d = parse(rows[i].text, strlen(rows[i].text));

		assert_int_equal(d.status, -EINVAL);
		if (!strstr(d.err, rows[i].says))
			fail_msg("'%s' does not say '%s'", d.err, rows[i].says);
		drop(&d);
	}
}

/* Any beginning of a description is read or refused, and reads nothing behind its end. */
static void cut_descriptions_are_bounded(void **state)
{
	for (size_t len = 0; len < sizeof(discovered); len++) {
		char *copy = malloc(len + 1);
		struct desc d;

		memcpy(copy, discovered, len);
		d = parse(copy, len);
		free(copy);
		drop(&d);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_made_is_written_and_read_back),
		cmocka_unit_test(ibsim_examples_are_read),
		cmocka_unit_test(discovered_subnet_is_read),
		cmocka_unit_test(own_lines_are_read),
		cmocka_unit_test(mtus_are_read_and_written),
		cmocka_unit_test(faults_in_a_description_name_their_line),
		cmocka_unit_test(cut_descriptions_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
