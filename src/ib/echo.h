/* SPDX-License-Identifier: MIT */
/*
 * Echoes: how the sender of unreliable traffic learns that the other adapter has drained its socket. A
 * manufacturer opcode, so that adapters that do not know it drop it:
 *
 *   BTH (12) | asker's QPN (4) | asked QPN (4) | the asker's cumulative cost (8)
 *
 * The answer is the same with the reply opcode, sent to the asker's QPN. It is as long as the question:
 * nothing to amplify.
 */
#ifndef IB_ECHO_H
#define IB_ECHO_H

#include "base/frame.h"

#include <stdbool.h>

enum { ECHO_LEN = 16 };

/* Appends a question, with the asker's P_Key; the batch's destination is the asked QP's adapter. */
void ibt_echo_ask(struct frame_batch *out, uint16_t pkey, uint32_t asker, uint32_t asked, uint64_t sent);
/* A question: fills *out with the answer, with the P_Key of who was asked. false: not a question. */
bool ibt_echo_reply(const struct frame_in *in, uint16_t pkey, struct frame_batch *out);
/* An answer: which QP was asked, and the cost it acknowledges. */
bool ibt_echo_parse(const struct frame_in *in, uint32_t *asked, uint64_t *sent);

#endif
