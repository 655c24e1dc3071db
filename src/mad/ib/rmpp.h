/* SPDX-License-Identifier: MIT */
/*
 * A message in segments, as its sender and as its receiver see it (IBA volume 1, 13.6; what Linux does where
 * the specification leaves a choice). No I/O, no clock: who has the timers is in mad/ib/port.h.
 *
 *	sender                                          receiver
 *	  DATA 1, first           ------------------->
 *	                          <-------------------  ACK 1, room up to 65
 *	  DATA 2 to 65            ------------------->
 *	                          <-------------------  ACK 65, room up to 129
 *	  DATA 66 to 80, last     ------------------->
 *	                          <-------------------  ACK 80
 *
 * After two seconds without an ACK the sender goes back to what was acknowledged last. A message that is
 *itself a request (GetMulti) ends with the sender's ACK of segment 0: the direction turns.
 */
#ifndef MAD_IB_RMPP_H
#define MAD_IB_RMPP_H

#include "wire/rmpp.h"

enum { RMPP_WINDOW = 64 };

/* ---- the sender ---- */
struct rmpp_send {
	const uint8_t *msg; /* the header of the first segment, then the data of all: the caller's */
	size_t len;
	uint32_t segments;
	uint32_t sent, acked; /* the last segment that was sent, acknowledged; 0: none */
	uint32_t window;      /* the last one that may be sent */
};

/* len is at least the header of its class. */
void rmpp_send_init(struct rmpp_send *s, const uint8_t *msg, size_t len);
/* Writes the next segment that may be sent to mad: false, there is none. */
bool rmpp_send_next(struct rmpp_send *s, uint8_t mad[MAD_LEN]);
/* No ACK came: what is not acknowledged is sent again. */
void rmpp_send_again(struct rmpp_send *s);

enum rmpp_acked {
	RMPP_ACK_OLD,  /* nothing new */
	RMPP_ACK_NEW,  /* more may be sent */
	RMPP_ACK_ALL,  /* the message has arrived */
	RMPP_ACK_WRONG /* *status says why */
};
enum rmpp_acked rmpp_send_ack(struct rmpp_send *s, const uint8_t ack[MAD_LEN], enum rmpp_status *status);

/* ---- the receiver ---- */
struct rmpp_recv {
	uint8_t *msg;          /* allocated, grows with what comes; NULL when it is nobody's any more */
	size_t size;           /* allocated */
	size_t len;            /* of the whole message, once it is complete */
	uint32_t upto, window; /* all segments up to this one are here; there is room up to that one */
	uint64_t beyond;       /* bit i: segment upto + 1 + i is here, too */
	uint32_t last;         /* the last one; 0: not known yet */
	uint32_t last_length;  /* its payload length */
};

enum rmpp_took {
	RMPP_TOOK,     /* nothing to say yet */
	RMPP_TOOK_ACK, /* answer with rmpp_recv_ack() */
	RMPP_TOOK_ALL, /* so, and the message is complete: once */
	RMPP_TOOK_NOT, /* refuse it with *status; the message is lost */
};
/* Zeroed is a new one. limit: bytes that the message may take. */
enum rmpp_took rmpp_recv_data(
	struct rmpp_recv *r, const uint8_t data[MAD_LEN], size_t limit, enum rmpp_status *status);
void rmpp_recv_fini(struct rmpp_recv *r);

/* ---- what both answer ---- */
/* The ACK for a DATA segment: what the receiver has and has room for. */
void rmpp_recv_ack(const struct rmpp_recv *r, const uint8_t data[MAD_LEN], uint8_t ack[MAD_LEN]);
/* The ACK of segment 0 that turns the direction. */
void rmpp_turn(const uint8_t ack[MAD_LEN], uint8_t turn[MAD_LEN]);
/* ABORT, or STOP when resources are short. */
void rmpp_refuse(const uint8_t mad[MAD_LEN], enum rmpp_status status, uint8_t refusal[MAD_LEN]);

#endif
