/* SPDX-License-Identifier: MIT */
/*
 * Opening a connection: MPA's request and reply over a TCP connection that is there (RFC 5044,
 * RFC 6581).
 *
 *   initiator                                    responder
 *     iwarp_connect_start()                        iwarp_connect_await()
 *     ASKING    --- request, private data --->     AWAITING
 *                                                  CONNECT_ASKED: the program decides
 *                                                  iwarp_connect_accept(), iwarp_connect_reject()
 *     CONNECT_DONE  <--- reply, private data ---   ANSWERING
 *     CONNECT_REFUSED <-- reply with R -----       CONNECT_DONE or CONNECT_REFUSED once it has left
 *
 * Two ends of our own kind that both offered `memory` try to upgrade to shared memory first, before they are
 * DONE. Each is ready before it says so, and who has the last word is the responder:
 *
 *     UPGRADE_WAIT <--- reply, who I am -------    ANSWERING
 *     UPGRADE_READY: the owner decides             UPGRADE_WAIT
 *     iwarp_connect_upgrade()
 *     UPGRADE_SENDING -- who I am, yes or no ->    no: DONE; yes: UPGRADE_READY: the owner decides
 *     no: DONE; yes: UPGRADE_WAIT                  iwarp_connect_upgrade()
 *     DONE         <-------------- yes or no --    UPGRADE_SENDING, DONE
 *
 * The owner moves bytes: iwarp_connect_out() has those to send, iwarp_connect_in() the place for those to
 * receive, exactly as many as are still missing, so that nothing of the first FPDU is read by accident.
 */
#ifndef IWARP_CONNECT_H
#define IWARP_CONNECT_H

#include "wire/ddp.h"
#include "wire/mpa.h"

#include <sys/uio.h>

/* What this end offers and asks for. */
struct iwarp_options {
	uint8_t revision;  /* 1 or 2: of a request; the highest that is answered */
	bool crc;          /* ask for the CRC; it is used when either does */
	bool markers;      /* ask for markers in what we receive */
	bool no_markers;   /* refuse a peer that asks for them */
	bool peer_to_peer; /* initiator: offer it; revision 2 */
	uint8_t rtr;       /* MPA_RTR_*: those we can send, or take */
	bool extended;     /* atomics and immediate data with ends of our own kind */
	bool memory;       /* and through shared memory, if the other end sees it so, too */
	uint16_t ird, ord; /* initiator: its depths; responder: given with accept */
};

/* What both ends agreed on. */
struct iwarp_params {
	bool initiator;
	uint8_t revision;
	bool crc, send_markers, expect_markers;
	bool peer_to_peer;
	uint8_t rtr; /* one MPA_RTR_*; 0: none */
	bool extended;
	bool memory;       /* the stream carries no FPDU: its end is all that is heard of it */
	uint16_t ird, ord; /* READs and atomics: of the peer's that we take, of ours that it takes */
};

enum iwarp_connect_state {
	CONNECT_IDLE,
	CONNECT_ASKING,
	CONNECT_AWAITING,
	CONNECT_ASKED,
	CONNECT_ANSWERING,
	CONNECT_UPGRADE_WAIT,
	CONNECT_UPGRADE_READY,
	CONNECT_UPGRADE_SENDING,
	CONNECT_DONE,
	CONNECT_REFUSED,
	CONNECT_BROKEN, /* the peer speaks something else; `error` says what */
};

struct iwarp_connect {
	enum iwarp_connect_state state;
	struct iwarp_options opt;
	struct iwarp_params params;
	enum rdmap_error error;
	bool refusing, upgrades;
	bool answered; /* a reply of ours has left */
	struct mpa_frame peer;
	struct mpa_v2 peer_v2;          /* of a request or reply of revision 2 with S */
	struct mpa_upgrade own, theirs; /* own: the owner's to fill before accept or upgrade */
	uint8_t out[MPA_FRAME_LEN + MPA_PRIVATE_MAX + MPA_UPGRADE_LEN], in[MPA_FRAME_LEN + MPA_PRIVATE_MAX];
	uint8_t upgrade_in[MPA_UPGRADE_LEN];
	uint32_t out_len, out_sent, in_len, upgrade_len;
};

/* The most private data that fits beside the words of revision 2. */
uint32_t iwarp_private_max(uint8_t revision);

/* false: too much private data, or options that contradict each other */
bool iwarp_connect_start(
	struct iwarp_connect *c, const struct iwarp_options *o, const void *private_data, uint32_t len);
void iwarp_connect_await(struct iwarp_connect *c, const struct iwarp_options *o);
/*
 * In CONNECT_ASKED: answers. ird and ord are what this end can do; what was agreed on is then in c->params.
 * When the peer's wishes cannot be fulfilled, it is refused and the state says so.
 */
bool iwarp_connect_accept(
	struct iwarp_connect *c, uint16_t ird, uint16_t ord, const void *private_data, uint32_t len);
bool iwarp_connect_reject(struct iwarp_connect *c, const void *private_data, uint32_t len);
/* In CONNECT_UPGRADE_READY: says who we are (c->own), and whether it goes through shared memory. Once that
 * has left, and the other end has agreed, params.memory says what became of it. */
void iwarp_connect_upgrade(struct iwarp_connect *c, bool ok);

/* Bytes to send; length 0: none. */
struct iovec iwarp_connect_out(struct iwarp_connect *c);
void iwarp_connect_sent(struct iwarp_connect *c, size_t n);
/* The place for what is received next; length 0: nothing is expected. */
struct iovec iwarp_connect_in(struct iwarp_connect *c);
void iwarp_connect_got(struct iwarp_connect *c, size_t n);
/* The peer closed, or TCP lost it. */
void iwarp_connect_lost(struct iwarp_connect *c);

/* The peer's private data, once it is there. */
const uint8_t *iwarp_connect_private(const struct iwarp_connect *c, uint32_t *len);

#endif
