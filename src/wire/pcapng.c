/* SPDX-License-Identifier: MIT */
#include "wire/pcapng.h"

#include "wire/erf.h"

#include <string.h>

enum {
	BLOCK_SECTION = 0x0a0d0d0a,
	BLOCK_INTERFACE = 1,
	BLOCK_PACKET = 6,
	MAGIC = 0x1a2b3c4d,
	OPT_END = 0,
	OPT_IF_NAME = 2,
	OPT_IF_TSRESOL = 9,
	NANOSECONDS = 9,
	FRAME = 12,  /* type and length in front, length behind */
	PACKET = 20, /* what a packet's block has before its bytes */
	OPTION = 4,  /* code and length */
	NAME_MAX_LEN = 200,
};

/* Writes at p what is there before the end, and goes on. */
struct out {
	uint8_t *p;
};

static void put16(struct out *o, uint16_t v)
{
	*o->p++ = (uint8_t)v;
	*o->p++ = (uint8_t)(v >> 8);
}

static void put32(struct out *o, uint32_t v)
{
	put16(o, (uint16_t)v);
	put16(o, (uint16_t)(v >> 16));
}

static void put_padded(struct out *o, const void *data, size_t len)
{
	memcpy(o->p, data, len);
	memset(o->p + len, 0, -len & 3);
	o->p += len + (-len & 3);
}

static void put_option(struct out *o, uint16_t code, const void *data, size_t len)
{
	put16(o, code);
	put16(o, (uint16_t)len);
	put_padded(o, data, len);
}

size_t pcapng_section(uint8_t *out, size_t room)
{
	struct out o = {out};
	uint32_t total = FRAME + 16;

	if (room < total)
		return 0;
	put32(&o, BLOCK_SECTION);
	put32(&o, total);
	put32(&o, MAGIC);
	put16(&o, 1); /* version 1.0 */
	put16(&o, 0);
	put32(&o, UINT32_MAX); /* the section's length is not known */
	put32(&o, UINT32_MAX);
	put32(&o, total);
	return total;
}

size_t pcapng_interface(uint8_t *out, size_t room, uint16_t linktype, const char *name)
{
	size_t len = strnlen(name, NAME_MAX_LEN);
	uint32_t total = (uint32_t)(FRAME + 8 + OPTION + len + (-len & 3) + OPTION + 4 + OPTION);
	uint8_t resolution = NANOSECONDS;
	struct out o = {out};

	if (room < total)
		return 0;
	put32(&o, BLOCK_INTERFACE);
	put32(&o, total);
	put16(&o, linktype);
	put16(&o, 0);
	put32(&o, 0); /* packets are not cut */
	put_option(&o, OPT_IF_NAME, name, len);
	put_option(&o, OPT_IF_TSRESOL, &resolution, sizeof(resolution));
	put32(&o, OPT_END);
	put32(&o, total);
	return total;
}

size_t pcapng_infiniband(
	uint8_t *out, size_t room, uint32_t interface, uint64_t ns, const uint8_t *pkt, size_t len)
{
	uint32_t data = (uint32_t)(ERF_LEN + len), total = FRAME + PACKET + data + (-data & 3);
	struct out o = {out};

	if (len > PCAPNG_PACKET_MAX || room < total)
		return 0;
	put32(&o, BLOCK_PACKET);
	put32(&o, total);
	put32(&o, interface);
	put32(&o, (uint32_t)(ns >> 32));
	put32(&o, (uint32_t)ns);
	put32(&o, data);
	put32(&o, data);
	erf_put(o.p, ns, (uint16_t)len);
	o.p += ERF_LEN; /* a multiple of four, as all that came before */
	put_padded(&o, pkt, len);
	put32(&o, total);
	return total;
}
