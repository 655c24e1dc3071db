/* SPDX-License-Identifier: MIT */
/*
 * Frames from a hostile peer. The input is a series of records
 *
 *     kind (1)  length (1)  bytes ...
 *
 * each delivered to one of three connected queue pairs (RC, UC, UD) as if it came from the peer's address
 * with a right ICRC: right addresses, wrong everything else. To get past the first checks often enough, the
 * kind also says which fields are made plausible: the QP number always, the service, the PSN, the keys.
 */
#include "sim_world.h"

#include "ib/port.h"
#include "wire/ibt.h"

#include <stdlib.h>
#include <string.h>

enum { QPS = 3, BUF = 16384 };

struct scene {
	struct sim_world w;
	struct hca_cq *cq[2];
	struct hca_qp *qp[2][QPS];
	struct hca_mr *mr[2];
	uint8_t buf[2][BUF];
};

static const enum ibv_qp_type types[QPS] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};

static void post_work(struct scene *s, unsigned node, unsigned i)
{
	struct ibv_sge sge = {.addr = (uintptr_t)s->buf[node], .length = 3000, .lkey = s->mr[node]->ibv.lkey};
	struct ibv_recv_wr recv = {.sg_list = &sge, .num_sge = 1}, *bad_recv;
	struct ibv_send_wr send = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ}, *bad_send;

	for (int k = 0; k < 4; k++)
		hca_qp_post_recv(s->qp[node][i], &recv, &bad_recv);
	if (types[i] != IBV_QPT_RC)
		return;
	send.wr.rdma.remote_addr = (uintptr_t)s->buf[!node];
	send.wr.rdma.rkey = s->mr[!node]->ibv.rkey;
	hca_qp_post_send(s->qp[node][i], &send, &bad_send);
}

static struct scene *scene_open(void)
{
	struct scene *s = calloc(1, sizeof(*s));

	sim_world_init(&s->w, 2, 1, false);
	sim_port_cut(s->w.net, 1, true); /* only the attacker speaks */
	for (unsigned n = 0; n < 2; n++) {
		s->cq[n] = sim_cq(&s->w.node[n], 256);
		s->mr[n] = sim_mr(&s->w.node[n], s->buf[n], BUF, (uintptr_t)s->buf[n]);
	}
	for (unsigned i = 0; i < QPS; i++) {
		struct sim_qp_opts o[2] = {sim_qp_opts(s->cq[0]), sim_qp_opts(s->cq[1])};

		for (unsigned n = 0; n < 2; n++) {
			o[n].type = types[i];
			o[n].mtu = IBV_MTU_256;
			s->qp[n][i] = sim_qp(&s->w.node[n], &o[n]);
		}
		sim_connect(s->qp[0][i], &o[0], s->qp[1][i], &o[1]);
		sim_connect(s->qp[1][i], &o[1], s->qp[0][i], &o[0]);
		post_work(s, 0, i);
	}
	return s;
}

static void scene_close(struct scene *s)
{
	for (unsigned n = 0; n < 2; n++) {
		for (unsigned i = 0; i < QPS; i++)
			hca_qp_destroy(s->qp[n][i]);
		hca_mr_dereg(s->mr[n]);
		hca_cq_destroy(s->cq[n]);
	}
	sim_world_fini(&s->w);
	free(s);
}

static void make_plausible(struct scene *s, uint8_t kind, struct hca_qp *qp, uint8_t *p, uint32_t len)
{
	static const uint8_t service[QPS] = {IBT_RC, IBT_UC, IBT_UD};

	put_be24(p + 5, hca_qpn(qp));
	put_be16(p + 2, 0xffff);
	if (!(kind & 0x10))
		p[0] = (uint8_t)((p[0] & 0x1f) | service[kind % QPS]);
	if (!(kind & 0x20))
		p[1] &= 0xf0;
	if (!(kind & 0x40)) /* near the expected PSN of either direction */
		put_be24(p + 9, qp->attr.rq_psn + (p[11] & 0x0f));
	if (!(kind & 0x80) && len >= BTH_LEN + RETH_LEN) {
		put_be64(p + BTH_LEN, (uintptr_t)s->buf[0] + (p[19] & 0x3f) * 256u);
		put_be32(p + BTH_LEN + 8, s->mr[0]->ibv.rkey);
		put_be16(p + BTH_LEN + 12, 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scene *s = scene_open();
	struct hca_engine *e = &s->w.node[0].adapter.engine;

	while (size >= 2) {
		uint8_t kind = data[0], frame[BTH_LEN + 1024] = {0};
		uint32_t len = BTH_LEN + data[1] * 4u;
		struct hca_qp *qp = s->qp[0][kind % QPS];
		struct frame_in in = {.bytes = frame, .len = len, .hop_limit = 64};
		uint8_t *exact;
		size_t take;

		data += 2;
		size -= 2;
		take = size < len ? size : len;
		memcpy(frame, data, take);
		data += take;
		size -= take;
		make_plausible(s, kind, qp, frame, len);
		memcpy(in.sgid, s->w.node[1].dev.port[0].gid[0].raw, 16);
		memcpy(in.dgid, s->w.node[0].dev.port[0].gid[0].raw, 16);
		exact = malloc(len); /* so that a read past the end is seen */
		memcpy(exact, frame, len);
		in.bytes = exact;
		lock_take(&e->drive);
		ibt_port_deliver(ibt_port_in(e->adapter), &in, hca_engine_now(e));
		lock_drop(&e->drive);
		free(exact);
		sim_run(&s->w, sim_now(&s->w) + 10 * SIM_US);
	}
	scene_close(s);
	return 0;
}
