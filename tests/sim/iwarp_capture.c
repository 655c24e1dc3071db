/* SPDX-License-Identifier: MIT */
/*
 * iwarp_capture FILE: connections between two queue pairs of ours, as a packet capture for a stranger to look
 * at. The CRC is on, with and without markers, with each kind of RTR; each ends with a TERMINATE. Prints how
 * many FPDUs there are. A send is a TCP segment, and an FPDU: tshark finds markers only where segments begin
 * with an FPDU.
 */
#include "iwarp_pair.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *file;
static unsigned fpdus, connection;
static uint32_t seq[2];

/* ---- the capture ---- */
static void put_record(const uint8_t *frame, uint32_t len)
{
	uint32_t hdr[4] = {0, 0, len, len};

	fwrite(hdr, sizeof(hdr), 1, file);
	fwrite(frame, len, 1, file);
}

static void put_segment(unsigned from, const uint8_t *bytes, uint32_t len, uint8_t flags)
{
	enum { ETH = 14, IP = 20, TCP = 20 };
	uint8_t f[ETH + IP + TCP + 4096] = {0}, *ip = f + ETH, *tcp = ip + IP;
	uint16_t port[2] = {(uint16_t)(40000 + connection), 7174};

	if (len > 4096)
		abort();
	put_be16(f + 12, 0x0800);
	ip[0] = 0x45;
	put_be16(ip + 2, (uint16_t)(IP + TCP + len));
	ip[8] = 64;
	ip[9] = 6;
	put_be32(ip + 12, 0x0a000001 + from);
	put_be32(ip + 16, 0x0a000001 + !from);
	put_be16(tcp, port[from]);
	put_be16(tcp + 2, port[!from]);
	put_be32(tcp + 4, seq[from]);
	put_be32(tcp + 8, seq[!from]);
	tcp[12] = 0x50;
	tcp[13] = flags;
	put_be16(tcp + 14, 65535);
	if (len)
		memcpy(tcp + TCP, bytes, len);
	put_record(f, ETH + IP + TCP + len);
	seq[from] += len + (flags & 2 ? 1 : 0);
}

static uint8_t pending[4096];
static uint32_t pending_len;
static unsigned pending_from;

static void flush(struct iwarp_pair *p)
{
	if (pending_len)
		put_segment(pending_from, pending, pending_len, 0x18);
	if (pending_len && p->side[0].opened)
		fpdus++;
	pending_len = 0;
}

/* The pieces of one send. */
static void spy(struct iwarp_pair *p, unsigned from, uint8_t *bytes, size_t len)
{
	if (pending_len + len > sizeof(pending))
		abort();
	memcpy(pending + pending_len, bytes, len);
	pending_len += (uint32_t)len;
	pending_from = from;
}

/* ---- the connection ---- */
static void run(struct iwarp_pair *p)
{
	bool moved;

	do {
		moved = iwarp_side_step(p, 0);
		flush(p);
		moved |= iwarp_side_step(p, 1);
		flush(p);
	} while (moved);
}

static void work(struct iwarp_pair *p, unsigned side, enum ibv_wr_opcode op, uint32_t len, uint32_t wrong)
{
	struct iwarp_side *s = &p->side[side], *peer = &p->side[!side];
	struct ibv_sge sge = {s->iova, len, s->mr->ibv.lkey},
		       in = {peer->iova + 4096, 4096, peer->mr->ibv.lkey};
	struct ibv_recv_wr recv = {.sg_list = &in, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr wr = {.opcode = op, .sg_list = &sge, .num_sge = 1}, *bad;

	if (op == IBV_WR_ATOMIC_CMP_AND_SWP || op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = peer->iova;
		wr.wr.atomic.rkey = peer->mr->ibv.rkey;
	} else {
		wr.wr.rdma.remote_addr = peer->iova;
		wr.wr.rdma.rkey = peer->mr->ibv.rkey ^ wrong;
	}
	if (op == IBV_WR_SEND)
		hca_qp_post_recv(peer->qp, &recv, &bad_recv);
	if (hca_qp_post_send(s->qp, &wr, &bad))
		abort();
	run(p);
}

static void connect_and_work(bool markers, uint8_t rtr)
{
	struct iwarp_pair *p = iwarp_pair_new();

	connection++;
	p->spy = spy;
	for (unsigned i = 0; i < 2; i++) {
		p->side[i].mpa.crc = true;
		p->side[i].mpa.markers = markers;
		seq[i] = 1000;
	}
	p->side[0].mpa.rtr = rtr;
	put_segment(0, NULL, 0, 0x02);
	put_segment(1, NULL, 0, 0x12);
	put_segment(0, NULL, 0, 0x10);
	iwarp_pair_qps(p);
	while (iwarp_pair_shake(p))
		flush(p);
	iwarp_pair_open(p);
	iwarp_pair_begin(p);
	run(p);
	for (unsigned side = 0; side < 2; side++) {
		for (uint32_t len = 0; len < 1400; len += 97) {
			work(p, side, IBV_WR_SEND, len, 0);
			work(p, side, IBV_WR_RDMA_WRITE, len, 0);
			work(p, side, IBV_WR_RDMA_READ, len, 0);
		}
		work(p, side, IBV_WR_ATOMIC_CMP_AND_SWP, 8, 0);
		work(p, side, IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 0);
	}
	work(p, 0, IBV_WR_RDMA_READ, 64, 1);
	iwarp_pair_free(p);
}

int main(int argc, char **argv)
{
	static const uint32_t hdr[6] = {0xa1b2c3d4, 2 | 4 << 16, 0, 0, 65535, 1};

	file = argc == 2 ? fopen(argv[1], "wb") : NULL;
	if (!file) {
		fprintf(stderr, "usage: %s FILE\n", argv[0]);
		return 2;
	}
	fwrite(hdr, sizeof(hdr), 1, file);
	for (unsigned m = 0; m < 2; m++) {
		connect_and_work(m, MPA_RTR_WRITE);
		connect_and_work(m, MPA_RTR_READ);
	}
	if (fclose(file))
		return 1;
	printf("%u\n", fpdus);
	return 0;
}
