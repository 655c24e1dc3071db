/* SPDX-License-Identifier: MIT */
/* The RoCEv2 packets of the captures under PCAP_DIR: what Linux's own rxe put on the wire. */
#ifndef TESTS_WIRE_PCAP_H
#define TESTS_WIRE_PCAP_H

#include "wire/icrc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PCAP_TOTAL = 596 }; /* RoCE packets in all captures together */

struct packet {
	const char *file;
	int frame; /* as tshark counts them */
	struct icrc_flow flow;
	bool v4;
	uint16_t ip_id;
	const uint8_t *data; /* UDP payload, BTH to ICRC */
	size_t len;
};

extern struct packet packets[2 * PCAP_TOTAL];
extern size_t packet_count;

/* Group set-up and tear-down for cmocka. */
int pcap_read_all(void **state);
int pcap_free_all(void **state);

#define check(p, condition)                                                                                  \
	do {                                                                                                 \
		if (!(condition))                                                                            \
			fail_msg("%s: frame %d: not %s", (p)->file, (p)->frame, #condition);                 \
	} while (0)

#endif
