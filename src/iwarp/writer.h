/* SPDX-License-Identifier: MIT */
/*
 * The way out: FPDUs in hand, in the order they leave. Each is a header, pointers to payload in the program's
 * memory, and a trailer; the owner gathers all of them into one list for the socket (iwarp_writer_iov) and
 * says how much of it the socket took (iwarp_writer_sent). Pointers are made anew for every attempt, since a
 * region may be gone by then.
 *
 * A copy is made (`flat`) where the bytes must not change between the CRC and the socket's copy: what the
 * peer reads is memory that the program may be writing to. Where markers lie in between. And of small ones,
 * since one piece is cheaper for the socket than three.
 */
#ifndef IWARP_WRITER_H
#define IWARP_WRITER_H

#include "wire/ddp.h"
#include "wire/mpa.h"

#include <sys/uio.h>

enum {
	IWARP_FPDUS = 32,              /* in hand */
	IWARP_IN_HAND_BYTES = 1 << 20, /* no more are begun when these many bytes wait */
	IWARP_STAGE_OUT = 544 << 10,   /* of copies: eight of the longest leave in one system call */
	IWARP_SMALL = 256,             /* payload up to this is copied */
	IWARP_MARKED_ULPDU = 64512,    /* the longest that is sent with markers */
	IWARP_FPDU_HDR = MPA_HDR_LEN + DDP_HDR_MAX + RDMAP_ATOMIC_LEN,
};

struct iwarp_fpdu {
	uint8_t hdr[IWARP_FPDU_HDR]; /* length, DDP header, RDMAP header */
	uint8_t hdr_len, tail_len;
	uint8_t tail[3 + MPA_CRC_LEN];
	uint8_t source; /* the owner's: whose payload, */
	bool last;      /* whether its message is done with this, */
	bool foreign;   /* and whether its payload is for whoever drives to look at, see iwarp_writer_iov */
	uint32_t index, off, len;
	uint32_t span; /* bytes on the stream */
	uint8_t *flat; /* all of it; NULL: header, payload and trailer */
};

struct iwarp_writer_ops {
	/* Points iov at payload [off, off + len) of f, or as much as fits; false: it is not there any more.
	 */
	bool (*gather)(void *arg, const struct iwarp_fpdu *f, uint32_t off, uint32_t len, struct iovec *iov,
		unsigned max, unsigned *n);
	/* All bytes of f have left. */
	void (*done)(void *arg, const struct iwarp_fpdu *f);
};

struct iwarp_writer {
	const struct iwarp_writer_ops *ops;
	void *arg;
	bool crc, markers;
	uint32_t mulpdu; /* the longest ULPDU to send */
	uint64_t pos;    /* of the stream, behind all FPDUs in hand */
	uint8_t *stage;  /* of flat ones; empty whenever nothing is in hand */
	uint32_t size, used;
	struct iwarp_fpdu fpdu[IWARP_FPDUS];
	uint32_t head, tail; /* free running: in hand are [tail, head) */
	uint32_t sent;       /* bytes of the first that have left */
	uint64_t waiting;    /* bytes in hand */
};

/* stage: at least IWARP_STAGE bytes, the writer's until it is not used any more. */
void iwarp_writer_init(struct iwarp_writer *w, const struct iwarp_writer_ops *ops, void *arg, void *stage,
	uint32_t size, uint32_t mulpdu, bool crc, bool markers);
/* The most payload a segment of this kind takes. */
uint32_t iwarp_writer_most(const struct iwarp_writer *w, bool tagged);
/* Whether one of up to `payload` bytes can be added now. */
bool iwarp_writer_has_room(struct iwarp_writer *w, uint32_t payload, bool copy);
/*
 * Adds an FPDU whose hdr from MPA_HDR_LEN on, hdr_len, source, index, off, len and last are set. copy: its
 * payload may change. false: the payload is not there; nothing was added.
 */
bool iwarp_writer_add(struct iwarp_writer *w, struct iwarp_fpdu *f, bool copy);
/*
 * What is to be sent, as much as fits, up to the first that is foreign unless `all`; false: the payload of
 * the first one is gone.
 */
bool iwarp_writer_iov(struct iwarp_writer *w, bool all, struct iovec *iov, unsigned max, unsigned *n);
void iwarp_writer_sent(struct iwarp_writer *w, size_t n);
/*
 * The owner's sources are about to go: drops what has not begun to leave, and takes a copy of the rest of
 * what has. false: that was not possible, the stream ends in mid FPDU. What remains has no source any more.
 */
bool iwarp_writer_cut(struct iwarp_writer *w);

static inline bool iwarp_writer_empty(const struct iwarp_writer *w)
{
	return w->head == w->tail;
}

#endif
