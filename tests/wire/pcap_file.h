/* SPDX-License-Identifier: MIT */
/* A tiny reader: little-endian pcap, Ethernet. For cmocka tests: what is wrong with a file fails the test. */
#ifndef TESTS_WIRE_PCAP_FILE_H
#define TESTS_WIRE_PCAP_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Shows `frame` every frame of the file, numbered as tshark does. They point into what is returned, which is
 * the caller's to free. */
uint8_t *pcap_file_read(
	const char *path, void (*frame)(void *arg, int number, const uint8_t *eth, size_t len), void *arg);

#endif
