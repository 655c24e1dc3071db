/* SPDX-License-Identifier: MIT */
/*
 * The way in: a stream of FPDUs that may stop and go on at any byte. The owner asks where the next bytes go
 * (iwarp_reader_want), lets a socket put them there, and says how many came (iwarp_reader_got).
 *
 *             length and header        payload            pad, CRC
 *   HEAD ----------------------> BODY ---------> TAIL ------------------> HEAD
 *        begin(): may it, where to     place()         end(): it is complete
 *
 * Without CRC and markers payload is received straight into the place it is for; only headers, and what came
 * behind them in the same read, pass through the stage. With the CRC a segment is staged whole: nothing may
 * be placed before its CRC is known to be right (RFC 5044 section 4.4), and the CRC must be that of the bytes
 * received, not of memory the program may be at. With markers, too, since these are in between.
 */
#ifndef IWARP_READER_H
#define IWARP_READER_H

#include "wire/ddp.h"
#include "wire/mpa.h"

#include <sys/uio.h>

enum {
	IWARP_STAGE = 68 * 1024, /* holds the longest FPDU with its markers */
	IWARP_AHEAD = 64, /* read beyond a large payload: the trailer and the next header, little more */
	IWARP_LARGE = 2048,
};

/* What a reader and those it asks say, beside an enum rdmap_error that ends the connection. */
enum { IWARP_GO = 0, IWARP_WAIT = -1 /* not now: ask again */, IWARP_STOP = -2 /* no more of this stream */ };

struct iwarp_reader_ops {
	/* The header of a segment with `len` bytes of payload. */
	int (*begin)(void *arg, const struct ddp_seg *seg, const uint8_t *hdr, uint32_t len);
	/* An FPDU of no bytes at all. */
	int (*empty)(void *arg);
	/*
	 * Points iov at the places of payload [off, off + len), or of as much as fits; how many pieces in *n.
	 * Asked for anew before every read, since a region may be gone by then.
	 */
	int (*place)(void *arg, uint32_t off, uint32_t len, struct iovec *iov, unsigned max, unsigned *n);
	/* Such a place turned out not to be mapped: why the connection ends. */
	int (*fault)(void *arg);
	int (*end)(void *arg);
};

struct iwarp_reader {
	const struct iwarp_reader_ops *ops;
	void *arg;
	bool crc, markers;
	enum { READ_HEAD, READ_BODY, READ_TAIL } state;
	uint64_t pos;   /* of stage[head] in the stream, from the first FPDU on */
	uint8_t *stage; /* received, not looked at yet: [head, tail) */
	uint32_t size, head, tail;
	uint32_t direct;    /* bytes of the read asked for that go straight to their place */
	uint32_t off, left; /* of the payload in hand */
	uint32_t trailer;   /* bytes behind it */
	uint32_t span;      /* the FPDU in hand is whole and checked, and takes this many bytes; 0: no */
};

/* stage: at least IWARP_STAGE bytes, the reader's until it is not used any more. */
void iwarp_reader_init(struct iwarp_reader *r, const struct iwarp_reader_ops *ops, void *arg, void *stage,
	uint32_t size, bool crc, bool markers);
/* Where the next bytes go; *n is 0 when none can be taken. IWARP_GO, IWARP_WAIT, IWARP_STOP or an error. */
int iwarp_reader_want(struct iwarp_reader *r, struct iovec *iov, unsigned max, unsigned *n);
/* That many came, in the order of the pieces. */
int iwarp_reader_got(struct iwarp_reader *r, size_t n);
/* Goes on where it was told to wait. */
int iwarp_reader_run(struct iwarp_reader *r);
/* Whether the stream may end here. */
bool iwarp_reader_between(const struct iwarp_reader *r);

#endif
