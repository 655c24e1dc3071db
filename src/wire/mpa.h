/* SPDX-License-Identifier: MIT */
/*
 * MPA on the wire: the frames that open a connection (RFC 5044, RFC 6581), and the FPDUs that
 * follow.
 *
 *      request, reply                            FPDU
 *     +-------------------------------+         +--------+---------------------+-----+-----+
 *  0  | "MPA ID Req Frame" or "Rep"   |         | length | ULPDU               | pad | CRC |
 * 16  | M C R S res | revision | len  |         |   2    | a DDP segment       | 0-3 |  4  |
 * 20  | private data; revision 2: IRD |         +--------+---------------------+-----+-----+
 *     | and ORD in its first 4 bytes  |
 *     +-------------------------------+
 *
 * Where the receiver of a direction asked for them, a marker of 4 bytes lies at every 512th byte of the
 * stream, counted from the first FPDU: two of zero, two that say how many bytes ago the FPDU began. The CRC
 * covers everything before it, markers too, and a marker in front of the length.
 */
#ifndef WIRE_MPA_H
#define WIRE_MPA_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	MPA_FRAME_LEN = 20,
	MPA_PRIVATE_MAX = 512, /* private data, IRD and ORD included */
	MPA_V2_LEN = 4,        /* IRD and ORD */
	MPA_HDR_LEN = 2,
	MPA_CRC_LEN = 4,
	MPA_ULPDU_MAX = 65535,
	MPA_MARKER_LEN = 4,
	MPA_MARKER_EVERY = 512,
	MPA_UPGRADE_LEN = 64,
};

/* Flags of a request or reply. */
enum {
	MPA_MARKERS = 0x80,  /* M: send me markers */
	MPA_CRC = 0x40,      /* C: both shall use the CRC */
	MPA_REJECT = 0x20,   /* R: a reply that refuses */
	MPA_ENHANCED = 0x10, /* S, revision 2: private data begins with IRD and ORD */
	/* reserved bits, by which ends of our kind know each other: see docs/wire/iwarp.md */
	MPA_EXTENDED_ASK = 0x01, /* in a request */
	MPA_EXTENDED_YES = 0x02, /* in the reply to it; siw's replies repeat the flags of the request */
	MPA_MEMORY = 0x04,       /* beside either: we seem to be on one host, and could use shared memory */
};

struct mpa_frame {
	bool reply;
	uint8_t flags, revision;
	uint16_t private_len;
};

/* Bytes to numbers; false: no such frame, or it announces more private data than there may be. */
bool mpa_frame_get(const uint8_t b[MPA_FRAME_LEN], struct mpa_frame *f);
void mpa_frame_put(uint8_t b[MPA_FRAME_LEN], const struct mpa_frame *f);

/* How the initiator says "ready to receive" in peer-to-peer mode (RFC 6581). */
enum {
	MPA_RTR_ZERO = 1,  /* B: an FPDU of no bytes */
	MPA_RTR_WRITE = 2, /* C: an RDMA Write of no bytes */
	MPA_RTR_READ = 4,  /* D: an RDMA Read of no bytes */
};

enum { MPA_DEPTH_MAX = 0x3ffe, MPA_DEPTH_UNTOLD = 0x3fff /* agreed elsewhere */ };

/* The words of revision 2. */
struct mpa_v2 {
	uint16_t ird, ord; /* 14 bits each */
	bool peer_to_peer; /* A */
	uint8_t rtr;       /* a set of MPA_RTR_* */
};

struct mpa_v2 mpa_v2_get(const uint8_t b[MPA_V2_LEN]);
void mpa_v2_put(uint8_t b[MPA_V2_LEN], const struct mpa_v2 *v);

/*
 * What two ends of our own kind that seem to be on one host say to each other behind the reply, before any
 * FPDU: who they are, and whether they upgrade to shared memory. Of any version it is as long as this.
 *
 *  0  "anyrdma" | version(8)
 *  8  flags(8)  | 0(24)          | QPN(32)
 * 16  first PSN(32)              | own port(16) | other port(16)
 * 24  identity of the process(64)
 * 32  own address(128)           | other address(128)
 */
struct mpa_upgrade {
	bool ok; /* through shared memory, as far as this end can say */
	uint32_t qpn, psn;
	uint16_t port, other_port;
	uint64_t identity;
	uint8_t gid[16], other_gid[16]; /* addresses as GIDs have them */
};

/* false: that is none. One of another version is not ok. */
bool mpa_upgrade_get(const uint8_t b[MPA_UPGRADE_LEN], struct mpa_upgrade *m);
void mpa_upgrade_put(uint8_t b[MPA_UPGRADE_LEN], const struct mpa_upgrade *m);

/* ---- FPDUs ---- */
static inline uint32_t mpa_pad(uint32_t ulpdu)
{
	return -(MPA_HDR_LEN + ulpdu) & 3;
}

/* Bytes of an FPDU, without markers. */
static inline uint32_t mpa_fpdu_len(uint32_t ulpdu)
{
	return MPA_HDR_LEN + ulpdu + mpa_pad(ulpdu) + MPA_CRC_LEN;
}

/* Bytes of the stream that n bytes take when they begin at stream position `pos`, markers on their way
 * included. */
uint32_t mpa_span(uint64_t pos, uint32_t n);

/* The CRC32C, as it goes on: begin with MPA_CRC_INIT, end with mpa_crc_end(). */
#define MPA_CRC_INIT 0xffffffffu
uint32_t mpa_crc_add(uint32_t crc, const void *bytes, size_t len);
/* Four bytes as they stand in the FPDU. */
void mpa_crc_end(uint32_t crc, uint8_t b[MPA_CRC_LEN]);

#endif
