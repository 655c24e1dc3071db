/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pcap.h"
#include "pcap_file.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "wire/ibt.h"

struct packet packets[2 * PCAP_TOTAL];
size_t packet_count;

enum { ETH_HDR = 14, IPV4_HDR = 20, IPV6_HDR = 40, UDP_HDR = 8, PROTO_UDP = 17 };

/* Addresses of the envelope; returns where UDP begins, or NULL when the frame is something else. */
static const uint8_t *parse_ip(const uint8_t *eth, struct packet *p)
{
	const uint8_t *ip = eth + ETH_HDR;
	uint16_t type = get_be16(eth + 12);

	p->v4 = type == 0x0800;
	if (p->v4 && ip[0] == 0x45 && ip[9] == PROTO_UDP) {
		p->ip_id = get_be16(ip + 4);
		p->flow.src[10] = p->flow.src[11] = p->flow.dst[10] = p->flow.dst[11] = 0xff;
		memcpy(p->flow.src + 12, ip + 12, 4);
		memcpy(p->flow.dst + 12, ip + 16, 4);
		return ip + IPV4_HDR;
	}
	if (type == 0x86dd && ip[6] == PROTO_UDP) {
		memcpy(p->flow.src, ip + 8, 16);
		memcpy(p->flow.dst, ip + 24, 16);
		return ip + IPV6_HDR;
	}
	return NULL;
}

static void take_frame(void *file, int frame, const uint8_t *eth, size_t caplen)
{
	struct packet p = {.file = file, .frame = frame};
	const uint8_t *udp = caplen < ETH_HDR + IPV6_HDR + UDP_HDR ? NULL : parse_ip(eth, &p);

	if (!udp || get_be16(udp + 2) != ROCE_UDP_PORT)
		return;
	p.flow.sport = get_be16(udp);
	p.flow.dport = get_be16(udp + 2);
	p.data = udp + UDP_HDR;
	p.len = get_be16(udp + 4) - UDP_HDR;
	check(&p, p.data + p.len <= eth + caplen);
	assert_in_range(packet_count, 0, sizeof packets / sizeof packets[0] - 1);
	packets[packet_count++] = p;
}

static glob_t captures;
static uint8_t **contents;

int pcap_read_all(void **state)
{
	assert_int_equal(glob(PCAP_DIR "/*.pcap", 0, NULL, &captures), 0);
	contents = calloc(captures.gl_pathc, sizeof *contents);
	assert_non_null(contents);
	for (size_t i = 0; i < captures.gl_pathc; i++) {
		size_t before = packet_count;
		contents[i] = pcap_file_read(captures.gl_pathv[i], take_frame, captures.gl_pathv[i]);
		assert_true(packet_count > before);
	}
	return 0;
}

int pcap_free_all(void **state)
{
	for (size_t i = 0; i < captures.gl_pathc; i++)
		free(contents[i]);
	free(contents);
	globfree(&captures);
	return 0;
}
