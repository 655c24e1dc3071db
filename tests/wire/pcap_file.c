/* SPDX-License-Identifier: MIT */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "pcap_file.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/bytes.h"

enum { FILE_HDR = 24, RECORD_HDR = 16 };

static uint32_t get_le32(const uint8_t *p)
{
	return __builtin_bswap32(get_be32(p));
}

static uint8_t *read_all(const char *path, size_t *size)
{
	FILE *file = fopen(path, "rb");
	assert_non_null(file);
	assert_int_equal(fseek(file, 0, SEEK_END), 0);
	*size = ftell(file);
	rewind(file);
	uint8_t *data = malloc(*size);
	assert_non_null(data);
	assert_int_equal(fread(data, 1, *size, file), *size);
	fclose(file);
	return data;
}

uint8_t *pcap_file_read(
	const char *path, void (*frame)(void *arg, int number, const uint8_t *eth, size_t len), void *arg)
{
	size_t size, at = FILE_HDR;
	uint8_t *data = read_all(path, &size);

	assert_true(size >= FILE_HDR);
	assert_int_equal(get_le32(data), 0xa1b2c3d4);
	assert_int_equal(get_le32(data + 20), 1); /* Ethernet */
	for (int number = 1; at + RECORD_HDR <= size; number++) {
		size_t caplen = get_le32(data + at + 8);
		at += RECORD_HDR;
		assert_true(caplen <= size - at);
		frame(arg, number, data + at, caplen);
		at += caplen;
	}
	return data;
}
