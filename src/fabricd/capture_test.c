/* SPDX-License-Identifier: MIT */
/* A packet that passes a link is in the file, with its CRCs; one on another link is not. */
#include "fabricd/fabricd.h"

#include "base/bytes.h"
#include "subnet/packet.h"
#include "subnet/topo_make.h"
#include "wire/erf.h"
#include "wire/icrc.h"
#include "wire/vcrc.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct fabricd d;

static void seen(void *arg, struct subnet_port *from, const struct packet *p)
{
	capture_seen(&d, from, p);
}

static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
}

static const struct subnet_ops ops = {.arrived = arrived, .seen = seen};

/* A directed SMP from one host to its switch, which answers: two packets on that cable. */
static void ask_switch(const char *host)
{
	static const struct packet_addr to = {.slid = LID_PERMISSIVE, .dlid = LID_PERMISSIVE, .pkey = 0xffff};
	uint8_t mad[MAD_LEN] = {
		1, 0x81, 1, 1, [7] = 1, [17] = 0x11, [32] = 0xff, 0xff, 0xff, 0xff, [129] = 1};
	uint8_t room[PACKET_MAD_LEN];
	struct packet p;

	packet_mad_make(&p, room, &to, mad);
	subnet_inject(d.subnet, subnet_port(subnet_find(d.subnet, host), 1), &p, 1);
}

static size_t read_file(const char *path, uint8_t *buf, size_t room)
{
	FILE *f = fopen(path, "r");
	size_t n = fread(buf, 1, room, f);

	fclose(f);
	return n;
}

static uint32_t le32(const uint8_t *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The blocks of a file: how many packets, each of them with right CRCs. */
static unsigned check_blocks(const uint8_t *buf, size_t len, unsigned *interfaces)
{
	unsigned packets = 0;

	*interfaces = 0;
	for (size_t at = 0; at < len; at += le32(buf + at + 4)) {
		const uint8_t *pkt = buf + at + 28 + ERF_LEN;
		uint8_t crc[4];
		size_t n;

		*interfaces += le32(buf + at) == 1;
		if (le32(buf + at) != 6)
			continue;
		packets++;
		n = le32(buf + at + 20) - ERF_LEN;
		vcrc_put(crc, vcrc_packet(pkt, n - VCRC_LEN));
		assert_memory_equal(crc, pkt + n - VCRC_LEN, VCRC_LEN);
		icrc_put(crc, icrc_iba(pkt, n - VCRC_LEN - ICRC_LEN));
		assert_memory_equal(crc, pkt + n - VCRC_LEN - ICRC_LEN, ICRC_LEN);
	}
	return packets;
}

static void captured_are_the_links_asked_for(void **state)
{
	char path[] = "/tmp/capture-test-XXXXXX", err[TOPO_ERROR];
	static uint8_t buf[1 << 16];
	struct subnet_port *port;
	unsigned interfaces;
	uint64_t packets;

	close(mkstemp(path));
	d.subnet = subnet_open(&ops, NULL, 1);
	assert_int_equal(topo_make(d.subnet, "star:3", 1, err), 0);
	assert_int_equal(subnet_start(d.subnet, 0), 0);
	assert_int_equal(capture_open(&d), 0);
	port = subnet_port(subnet_find(d.subnet, "node2"), 1);

	assert_int_equal(capture_stop(&d), -ESRCH);
	assert_int_equal(capture_start(&d, "/nonexistent/file", NULL, 0), -ENOENT);
	assert_int_equal(capture_start(&d, "/dev/null", NULL, 0), -ENXIO); /* no regular file */
	assert_int_equal(capture_start(&d, path, &port, 1), 0);
	assert_int_equal(capture_start(&d, path, NULL, 0), -EALREADY);
	ask_switch("node1");
	ask_switch("node2");
	assert_string_equal(capture_path(&d, &packets), path);
	assert_int_equal(packets, 2);
	assert_int_equal(capture_stop(&d), 2);
	assert_int_equal(check_blocks(buf, read_file(path, buf, sizeof(buf)), &interfaces), 2);
	assert_int_equal(interfaces, 1);

	assert_int_equal(capture_start(&d, path, NULL, 0), 0);
	for (int i = 0; i < 3; i++) {
		ask_switch("node1");
		ask_switch("node2");
	}
	assert_int_equal(capture_stop(&d), 12);
	assert_int_equal(check_blocks(buf, read_file(path, buf, sizeof(buf)), &interfaces), 12);
	assert_int_equal(interfaces, 2);
	ask_switch("node1"); /* nobody looks any more */

	capture_close(&d);
	subnet_close(d.subnet);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(captured_are_the_links_asked_for),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
