/* SPDX-License-Identifier: MIT */
/*
 * The stage of the single-fault tests (cases_*.c): two adapters, a queue pair on each, a script that decides
 * on the k-th packet of an operation, and a log of every packet to ask afterwards. SIM_TRACE=1 prints them.
 */
#ifndef TESTS_SIM_DUO_H
#define TESTS_SIM_DUO_H

#include "sim_world.h"

#include "ib/port.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { MEM = 1 << 20, LOG_MAX = 8192, SCRIPT_MAX = 32, MTU = 1024 };

/* The packets of `op` that port `from` sends, numbered from 0: numbers first to last meet this fate. */
struct script {
	unsigned from;
	uint8_t op;
	unsigned first, last;
	enum sim_fate fate;
	unsigned seen;
};

struct logged {
	uint64_t at, arrives;
	unsigned from;
	uint8_t op, syndrome;
	uint32_t psn, len;
	enum sim_fate fate;
	uint8_t bytes[64];
};

struct duo {
	struct sim_world w;
	struct hca_cq *cq[2];
	struct hca_mr *mr[2];
	struct sim_qp_opts opts[2];
	struct hca_qp *qp[2];
	struct script script[SCRIPT_MAX];
	unsigned scripts, logged;
	struct logged log[LOG_MAX];
	struct hca_qp *more[8];
	unsigned nmore;
};

/* Each side's memory, registered as mr[side], with contents that differ by place and side. */
extern uint8_t mem[2][MEM];

/* ---- the stage ---- */
/* Two adapters of IPv4; duo_build() for more of them, or IPv6. The QPs come with duo_connect(). */
struct duo *duo_new(void);
struct duo *duo_build(bool ipv6, unsigned nodes);
void duo_connect(struct duo *d);
/* A further pair of QPs on the same two adapters. */
void duo_more(struct duo *d, struct hca_qp *out[2]);
/* Takes all down; nothing may still be charged to the READ flows. */
void duo_end(struct duo *d);

void script(struct duo *d, unsigned from, uint8_t op, unsigned first, unsigned last, enum sim_fate fate);
/* A calm network in which every packet is also delivered a second time, up to `late` ns after the first. */
void every_packet_twice(struct duo *d, uint64_t late);

/* ---- what was sent ---- */
/* How many packets of this kind were sent, and the k-th of them. */
unsigned sent(const struct duo *d, unsigned from, uint8_t op);
const struct logged *nth(const struct duo *d, unsigned from, uint8_t op, unsigned k);
unsigned naks(const struct duo *d, unsigned from, uint8_t syndrome, uint8_t mask);
/* Takes all async events of a node: how many are of this type. */
unsigned events(struct sim_node *n, enum ibv_event_type type);

/* ---- work ---- */
/* One entry at `off` of the side's memory; the same place of the other side's. */
struct ibv_send_wr request(
	struct duo *d, unsigned side, enum ibv_wr_opcode op, struct ibv_sge *sge, uint32_t off, uint32_t len);
void post_wr(struct hca_qp *qp, struct ibv_send_wr *wr);
void post_on(struct duo *d, struct hca_qp *qp, unsigned side, enum ibv_wr_opcode op, uint64_t id,
	uint32_t off, uint32_t len, unsigned flags);
void post(struct duo *d, unsigned side, enum ibv_wr_opcode op, uint64_t id, uint32_t off, uint32_t len);
/* n equal requests in one call, at offsets that follow each other. */
void post_list(struct duo *d, unsigned side, enum ibv_wr_opcode op, unsigned n, uint32_t len);
void post_recv(struct duo *d, unsigned side, uint64_t id, uint32_t off, uint32_t len);

void expect_wc(struct duo *d, unsigned side, uint64_t id, enum ibv_wc_status status);
/* Successes with ids 0 to n - 1, and nothing else. */
void expect_all(struct duo *d, unsigned side, unsigned n);
void expect_none(struct duo *d, unsigned side);
/* A WRITE from side 0 succeeds: the connection lives. */
void expect_alive(struct duo *d);

/* ---- packets made by hand ---- */
/* Sent through a port; the sender's address may be anybody's. At most FRAME_HDR_MAX bytes. */
void forge(struct duo *d, unsigned port, unsigned as, unsigned to, const uint8_t *bytes, uint32_t len);
/* A request from side 0 to side 1, right in all but what the test makes wrong. */
struct forged {
	uint8_t op;
	uint32_t psn; /* from the first that side 0 sends */
	uint64_t va;  /* RETH or AtomicETH; 0: side 1's memory */
	uint32_t rkey, dma_len;
	uint32_t payload; /* bytes of it, pad included */
	uint8_t pad;      /* as the header says */
	uint16_t pkey;
	uint32_t cut; /* bytes missing at the end */
};
void forge_request(struct duo *d, struct forged f);

#endif
