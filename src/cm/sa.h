/* SPDX-License-Identifier: MIT */
/*
 * Questions to the subnet's administration (SA), on a fabric. They leave by QP1 for the subnet manager's LID;
 * the fabric repeats them and gives the answers back under our transaction ids (fabricd/sa_client.c), so here
 * nothing is sent twice: a question that has no answer in time has failed.
 */
#ifndef CM_SA_H
#define CM_SA_H

#include "base/list.h"
#include "cm/host.h"
#include "wire/sa.h"

struct rcm;
struct rcm_id;

/* Lies in whatever it is for. Zeroed with an empty list node: none is on its way. Host lock. */
struct rcm_question {
	struct list node; /* in rcm.questions */
	uint64_t tid;
	struct cm_host_timer timer;
	/* The answer, or NULL: there was none in time. The question is over. Host lock held. */
	void (*answered)(struct rcm_question *q, const uint8_t *mad);
};

/* By which port an id asks: it may be gone when the answer comes. */
struct rcm_sa_port {
	struct rcm *cm;
	uint32_t ifindex;
};
struct rcm_sa_port rcm_sa_port_of(const struct rcm_id *id);

/* Whether the port knows a subnet manager. Any lock. */
bool rcm_sa_is_there(const struct rcm_sa_port *port);

/* The header of a question, and all zero behind it. */
void rcm_sa_begin(uint8_t mad[MAD_LEN], uint8_t method, uint16_t attr, uint64_t mask);
/*
 * Asks; the caller has filled q->answered and the MAD. 0, or -errno: nobody will be called.
 * Host lock held.
 */
int rcm_sa_ask(const struct rcm_sa_port *port, struct rcm_question *q, uint8_t mad[MAD_LEN], int timeout_ms);
/* The same of what needs no answer. Any lock but the adapter's. */
void rcm_sa_tell(const struct rcm_sa_port *port, const uint8_t mad[MAD_LEN]);
/* Nobody waits for the answer any more; host lock held. */
void rcm_question_forget(struct rcm *cm, struct rcm_question *q);
/* An answer of the SA, to whatever; host lock held. */
void rcm_sa_answer(struct cm_host *h, const uint8_t *mad);

#endif
