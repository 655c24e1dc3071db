/* SPDX-License-Identifier: MIT */
/*
 * What the owner of a socket does for a queue pair. All of it with qp->lock held, receiving under the drive
 * lock too.
 *
 *   open     iwarp_open() once iwarp_connect has come to CONNECT_DONE and the queue pair is in RTS
 *   out      iwarp_send_iov(), sendmsg(), iwarp_sent()            until there is nothing to send or no room
 *   in       iwarp_recv_iov(), readv(), iwarp_received()          until there is nothing there
 *   end      iwarp_life() says what to do with the socket
 */
#ifndef IWARP_LIFE_H
#define IWARP_LIFE_H

#include "iwarp/connect.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct hca_qp;

enum iwarp_life {
	IWARP_NONE, /* no connection */
	IWARP_OPEN,
	IWARP_ENDING, /* there is something left to send */
	IWARP_FINISH, /* nothing: shutdown(SHUT_WR), read on until the peer closes, so that it gets to read
			 our last word */
	IWARP_RESET,  /* the stream broke in mid FPDU: close at once */
	IWARP_GONE,   /* the peer has closed: close */
};

/*
 * Without a receive for a SEND we do not end the connection at once, as RFC 5041 has it, but stop reading,
 * and TCP makes the peer wait. For this long.
 */
#define IWARP_PATIENCE 1000000000ull

/*
 * Without peer-to-peer mode the initiator speaks first (RFC 5044), but programs whose server does are common,
 * and siw, which does not offer that mode by itself, lets its own servers speak at once. So we wait for this
 * long. An initiator waits as long before it speaks to a stranger: siw sends its reply a moment before it
 * listens to the connection, and what comes in between lies there until more comes.
 */
#define IWARP_GRACE 10000000ull

/* The stages have IWARP_STAGE and IWARP_STAGE_OUT bytes and are the queue pair's until it is closed. mulpdu:
 * the longest ULPDU to send. */
void iwarp_open(struct hca_qp *qp, const struct iwarp_params *p, void *rx_stage, void *tx_stage,
	uint32_t mulpdu, uint64_t now);

/* What to send. driving: the drive lock is held; without it the peer's READs are not answered. */
unsigned iwarp_send_iov(struct hca_qp *qp, bool driving, uint64_t now, struct iovec *iov, unsigned max);
void iwarp_sent(struct hca_qp *qp, size_t n, uint64_t now);
/* Where the next bytes go; 0: none are wanted now (a receive is missing, or it is over). */
unsigned iwarp_recv_iov(struct hca_qp *qp, uint64_t now, struct iovec *iov, unsigned max);
void iwarp_received(struct hca_qp *qp, size_t n, uint64_t now);
/* Whether that is, or has in it, memory of the program that the peer reads or writes by itself. */
bool iwarp_sends_read(struct hca_qp *qp);
bool iwarp_takes_write(struct hca_qp *qp);
/* The system call met memory that is not there (EFAULT). */
void iwarp_send_fault(struct hca_qp *qp, uint64_t now);
void iwarp_recv_fault(struct hca_qp *qp, uint64_t now);
/* The peer closed, or the connection is lost. */
void iwarp_lost(struct hca_qp *qp, uint64_t now);
/* Of one that ends: the peer was given time enough to take the rest, or to close. */
void iwarp_give_up(struct hca_qp *qp);

/* Whether the peer waits for an answer of ours. */
bool iwarp_owes(struct hca_qp *qp);
/* How many WRITEs of the peer's have come. */
uint32_t iwarp_writes(struct hca_qp *qp);
/* Whether a receive is missing for what has come. */
bool iwarp_needs_recv(struct hca_qp *qp);
enum iwarp_life iwarp_life(struct hca_qp *qp);
/* As in hca/provider.h. */
bool iwarp_offers(struct hca_qp *qp, unsigned opcode);
void iwarp_reset(struct hca_qp *qp);
void iwarp_abort(struct hca_qp *qp);
void iwarp_modified(struct hca_qp *qp, int mask, uint64_t now);
void iwarp_timer(struct hca_qp *qp, uint64_t now);

#endif
