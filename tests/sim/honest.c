/* SPDX-License-Identifier: MIT */
#include "honest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 24576, MEMORY = CHUNK * HONEST_DEPTH, IOVA = 0x20000000 };

static void breach(const char *what)
{
	fprintf(stderr, "honest traffic: %s\n", what);
	abort();
}

static void fill(uint8_t *at, uint64_t id)
{
	uint64_t *v = (uint64_t *)at;

	for (unsigned i = 0; i < CHUNK / sizeof(*v); i++)
		v[i] = (id << 20 | i) * 0x9e3779b97f4a7c15ull;
}

/* Request k uses chunk k of either end; a SEND lands in the k-th receive, which is chunk k too. */
static uint8_t *chunk(const struct honest_pair *p, unsigned end, uint64_t k)
{
	return p->mem[end] + k % HONEST_DEPTH * CHUNK;
}

/* As requests name it, at both ends. */
static uint64_t chunk_iova(uint64_t k)
{
	return IOVA + k % HONEST_DEPTH * CHUNK;
}

static bool is_send(const struct honest_pair *p, uint64_t k)
{
	return !p->reads && (k & 1);
}

static void post_recv(struct honest_pair *p, uint64_t k)
{
	struct ibv_sge sge = {.addr = chunk_iova(k), .length = CHUNK, .lkey = p->mr[1]->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = k, .sg_list = &sge, .num_sge = 1}, *bad;

	if (hca_qp_post_recv(p->qp[1], &wr, &bad))
		breach("a receive cannot be posted");
}

static void post(struct honest_pair *p)
{
	uint64_t k = p->posted++;
	struct ibv_sge sge = {.addr = chunk_iova(k), .length = CHUNK, .lkey = p->mr[0]->ibv.lkey};
	struct ibv_send_wr wr = {.wr_id = k, .sg_list = &sge, .num_sge = 1}, *bad;

	fill(chunk(p, p->reads, k), k);
	wr.opcode = p->reads ? IBV_WR_RDMA_READ : is_send(p, k) ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = chunk_iova(k);
	wr.wr.rdma.rkey = p->mr[1]->ibv.rkey;
	if (is_send(p, k))
		post_recv(p, k);
	if (hca_qp_post_send(p->qp[0], &wr, &bad))
		breach("a request cannot be posted");
}

static void compare(const struct honest_pair *p, uint64_t k)
{
	if (memcmp(chunk(p, 0, k), chunk(p, 1, k), CHUNK))
		breach("bytes are wrong");
}

static void turn(struct honest_pair *p, bool stopping)
{
	struct ibv_wc wc;

	while (hca_cq_take(p->cq[1], &wc, 1) > 0) {
		sim_note_wc(&wc);
		if (wc.status || !is_send(p, wc.wr_id) || wc.byte_len != CHUNK)
			breach("a receive failed");
		compare(p, wc.wr_id);
		p->received++;
	}
	while (hca_cq_take(p->cq[0], &wc, 1) > 0) {
		sim_note_wc(&wc);
		if (wc.status || wc.wr_id != p->done)
			breach("a request failed");
		if (is_send(p, p->done) && p->received < p->done / 2 + 1)
			breach("a SEND was acknowledged that was not received");
		compare(p, p->done++);
	}
	while (!stopping && p->posted < p->done + HONEST_DEPTH)
		post(p);
}

void honest_turn(struct honest *h)
{
	for (unsigned i = 0; i < HONEST_PAIRS; i++)
		turn(&h->pair[i], h->stopping);
}

bool honest_idle(const struct honest *h)
{
	for (unsigned i = 0; i < HONEST_PAIRS; i++) {
		if (h->pair[i].done != h->pair[i].posted)
			return false;
	}
	return true;
}

uint64_t honest_bytes(const struct honest *h, bool reads)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < HONEST_PAIRS; i++)
		n += h->pair[i].reads == reads ? h->pair[i].done * CHUNK : 0;
	return n;
}

/* ---- life ---- */
static void pair_open(struct honest_pair *p, struct sim_node *node[2], bool reads)
{
	struct sim_qp_opts o[2];

	p->reads = reads;
	for (unsigned i = 0; i < 2; i++) {
		p->pd[i] = hca_pd_alloc(node[i]->ctx);
		p->mem[i] = calloc(1, MEMORY);
		p->mr[i] = p->pd[i] && p->mem[i]
				   ? hca_mr_reg(p->pd[i], p->mem[i], MEMORY, IOVA, SIM_ALL_ACCESS)
				   : NULL;
		if (!p->mr[i])
			breach("no memory");
		p->cq[i] = sim_cq(node[i], 64);
		o[i] = sim_qp_opts(p->cq[i]);
		o[i].pd = p->pd[i];
		o[i].psn = 0xfffff0; /* PSNs go around */
		p->qp[i] = sim_qp(node[i], &o[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		sim_connect(p->qp[i], &o[i], p->qp[!i], &o[!i]);
}

void honest_open(struct honest *h, struct sim_node *a, struct sim_node *b)
{
	memset(h, 0, sizeof(*h));
	for (unsigned i = 0; i < HONEST_PAIRS; i++)
		pair_open(&h->pair[i], i & 2 ? (struct sim_node *[]){b, a} : (struct sim_node *[]){a, b},
			i & 1);
}

void honest_close(struct honest *h)
{
	for (unsigned i = 0; i < HONEST_PAIRS; i++) {
		struct honest_pair *p = &h->pair[i];

		for (unsigned k = 0; k < 2; k++) {
			hca_qp_destroy(p->qp[k]);
			hca_cq_destroy(p->cq[k]);
			hca_mr_dereg(p->mr[k]);
			hca_pd_dealloc(p->pd[k]);
			free(p->mem[k]);
		}
	}
}
