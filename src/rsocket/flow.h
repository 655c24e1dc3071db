/* SPDX-License-Identifier: MIT */
/*
 * The protocol of a connected stream, without any I/O: how much may be sent and where to, what has been
 * received, what the other side has to be told. Nothing here blocks, allocates or locks.
 *
 *   we receive into a ring of two halves               the other side sends
 *   +------------------+------------------+
 *   | granted          | unread           |            a *grant* is a half that it may fill, in order; it
 *   +------------------+------------------+            says how much of it by a DATA message each time
 *
 * A *credit* lets it send one message that takes a receive of ours. Both come by SGL messages: always with
 * the sequence number up to which it may send, and with a half when one is free. The same holds the other way
 * round, where the grants arrive in `slots`, memory that the other side writes to.
 */
#ifndef RSOCKET_FLOW_H
#define RSOCKET_FLOW_H

#include "rsocket/wire.h"

enum { RS_SLOTS = 2 };            /* grants that can be open at the same time */
enum { RS_MOST_AT_ONCE = 65536 }; /* bytes in one message */

enum rs_verdict {
	RS_NOTHING,  /* a message without consequence for the program */
	RS_DATA,     /* there are more bytes to read */
	RS_CREDIT,   /* perhaps more can be sent */
	RS_SHUTDOWN, /* the other side will send no more */
	RS_DISCONNECT,
	RS_BREACH, /* what no rsocket sends: the connection is to be ended */
};

struct rs_flow {
	bool swap;      /* the other side's host has the other byte order */
	bool by_length; /* messages are immediate data, whose completion says how much was written; else SENDs
			 */

	/* receiving */
	uint64_t rbuf; /* where the other side finds the ring */
	uint32_t rkey;
	uint32_t half, head, unread; /* the program reads at head */
	uint32_t open;               /* bytes that the other side may still write */
	uint32_t spare, next;        /* bytes read and not granted again; offset of the next grant */
	uint32_t rq;
	uint16_t received, tell_at; /* messages; when to give new credits */
	struct rs_sge sgl;          /* the other side's slots; length counts them */
	uint32_t sgl_at;

	/* sending */
	volatile struct rs_sge *slots;  /* RS_SLOTS of them, written by the other side at any time */
	struct rs_sge target[RS_SLOTS]; /* taken from there, the open ones */
	unsigned target_at, slot_at, targets;
	uint16_t sent, may_send;

	/* mappings */
	struct rs_sge iomap; /* the other side's table of ours; length counts entries */
	uint32_t own_iomaps; /* entries of ours that it may fill */
};

/* What is to be posted: an RDMA WRITE of payload to addr, with the message. */
struct rs_post {
	uint32_t msg;
	uint64_t addr;
	uint32_t rkey;
	uint32_t len; /* of sge, 0 or RS_SGE_LEN */
	struct rs_sge sge;
};

/* The ring is 2 * half bytes at rbuf; rq receives are posted beyond those for control messages. */
void rs_flow_init(struct rs_flow *f, uint64_t rbuf, uint32_t rkey, uint32_t half, uint32_t rq,
	volatile struct rs_sge *slots);
/* The connection data that describes us; the other side finds the slots, and the mappings behind them, there.
 */
void rs_flow_describe(const struct rs_flow *f, uint64_t slots, uint32_t key, uint8_t out[RS_CONN_LEN]);
/* The other side's. 0, or -EPROTO for what cannot be meant. */
int rs_flow_meet(struct rs_flow *f, const uint8_t in[RS_CONN_LEN]);

/* ---- sending ---- */
/* Bytes that may be sent in one message now. */
uint32_t rs_flow_room(const struct rs_flow *f);
/* Sends len of them, at most rs_flow_room: where to, and the message. */
void rs_flow_send(struct rs_flow *f, uint32_t len, struct rs_post *out);
/* Whether a mapping can be announced, which takes a credit, and the post for it without its payload. */
bool rs_flow_has_credit(const struct rs_flow *f);
void rs_flow_send_iomap(struct rs_flow *f, uint32_t index, struct rs_post *out);

/* ---- receiving ---- */
/* A message came, with `written` bytes of payload in front of it. */
enum rs_verdict rs_flow_receive(struct rs_flow *f, uint32_t msg, uint32_t written);
/* The bytes to read next that lie in one piece: their offset in the ring. */
uint32_t rs_flow_piece(const struct rs_flow *f, uint32_t skip, uint32_t *len);
/* The program has read that many. */
void rs_flow_consume(struct rs_flow *f, uint32_t len);

/* ---- telling the other side ---- */
bool rs_flow_must_tell(const struct rs_flow *f);
/* The SGL message that is due. */
void rs_flow_tell(struct rs_flow *f, struct rs_post *out);

#endif
