/* SPDX-License-Identifier: MIT */
/*
 * What stream rsockets say to each other; docs/wire/rsocket.md has the pictures.
 *
 * Connection data, 40 bytes, is the private data of REQ and REP, all of it big-endian. Messages are the 32
 * bits of immediate data of an RDMA WRITE. Entries of the lists that are written into the other side's memory
 * are in the byte order of *its* host.
 */
#ifndef RSOCKET_WIRE_H
#define RSOCKET_WIRE_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stdint.h>

enum { RS_VERSION = 1, RS_CONN_LEN = 40, RS_FLAG_BIG_ENDIAN = 1, RS_FLAG_IOMAP = 2 };
enum { RS_SGE_LEN = 16, RS_IOMAP_LEN = 24, RS_MSG_LEN = 4 };

/* The upper three bits of a message. */
enum rs_op {
	RS_OP_DATA = 0, /* bytes written into the buffer you gave me */
	RS_OP_SGL =
		4, /* you may send up to this sequence number; when there is payload: and here is a buffer */
	RS_OP_IOMAP = 6, /* index of a mapping that I wrote into your table */
	RS_OP_CTRL = 7,
};

enum rs_ctrl { RS_CTRL_DISCONNECT, RS_CTRL_KEEPALIVE, RS_CTRL_SHUTDOWN };

#define RS_DATA_MASK  0x1fffffffu
#define RS_NO_MESSAGE (5u << 29) /* reserved: nobody says this */

static inline uint32_t rs_msg(enum rs_op op, uint32_t data)
{
	return (uint32_t)op << 29 | (data & RS_DATA_MASK);
}

static inline uint32_t rs_msg_op(uint32_t msg)
{
	return msg >> 29;
}

static inline uint32_t rs_msg_data(uint32_t msg)
{
	return msg & RS_DATA_MASK;
}

/* Memory of the other side. */
struct rs_sge {
	uint64_t addr;
	uint32_t key, length;
};

/* Memory of the other side that the program names by offsets. */
struct rs_iomap {
	uint64_t offset;
	struct rs_sge sge;
};

_Static_assert(sizeof(struct rs_sge) == RS_SGE_LEN, "written as it is");
_Static_assert(sizeof(struct rs_iomap) == RS_IOMAP_LEN, "written as it is");

struct rs_conn {
	uint8_t version, flags;
	uint16_t credits;
	uint32_t iomap_size;
	struct rs_sge sgl;  /* where grants go; length counts entries */
	struct rs_sge data; /* the first grant */
};

/* Up to 128 as it is, above that in steps of 256. */
static inline uint8_t rs_iomap_pack(uint32_t n)
{
	return (uint8_t)(n <= 128 ? n : n >= 127 << 8 ? 255 : 128 | n >> 8);
}

static inline uint32_t rs_iomap_unpack(uint8_t v)
{
	return v <= 128 ? v : (v & 127u) << 8;
}

static inline void rs_sge_pack(const struct rs_sge *s, uint8_t p[RS_SGE_LEN])
{
	put_be64(p, s->addr);
	put_be32(p + 8, s->key);
	put_be32(p + 12, s->length);
}

static inline void rs_sge_parse(const uint8_t p[RS_SGE_LEN], struct rs_sge *s)
{
	*s = (struct rs_sge){.addr = get_be64(p), .key = get_be32(p + 8), .length = get_be32(p + 12)};
}

static inline void rs_conn_pack(const struct rs_conn *c, uint8_t p[RS_CONN_LEN])
{
	memset(p, 0, RS_CONN_LEN);
	p[0] = c->version;
	p[1] = c->flags;
	put_be16(p + 2, c->credits);
	p[7] = rs_iomap_pack(c->iomap_size);
	rs_sge_pack(&c->sgl, p + 8);
	rs_sge_pack(&c->data, p + 24);
}

static inline void rs_conn_parse(const uint8_t p[RS_CONN_LEN], struct rs_conn *c)
{
	*c = (struct rs_conn){
		.version = p[0],
		.flags = p[1],
		.credits = get_be16(p + 2),
		.iomap_size = p[1] & RS_FLAG_IOMAP ? rs_iomap_unpack(p[7]) : 0,
	};
	rs_sge_parse(p + 8, &c->sgl);
	rs_sge_parse(p + 24, &c->data);
}

/* The byte order of the other side's host, for what is written into its memory. */
static inline struct rs_sge rs_sge_swap(struct rs_sge s)
{
	return (struct rs_sge){
		__builtin_bswap64(s.addr), __builtin_bswap32(s.key), __builtin_bswap32(s.length)};
}

static inline struct rs_iomap rs_iomap_swap(struct rs_iomap m)
{
	return (struct rs_iomap){__builtin_bswap64(m.offset), rs_sge_swap(m.sge)};
}

#endif
