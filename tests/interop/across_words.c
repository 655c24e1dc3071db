/* SPDX-License-Identifier: MIT */
/* What connections over iWARP carry before they are one: private data up to siw's limit, in requests, replies
 * and refusals, and depths of nothing. */
#include "across.h"

#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <string.h>

enum { MOST = 251 }; /* siw counts MPA's own four bytes with it, in eight bits */

static uint8_t words[MOST];

struct place {
	union ibv_gid gid;
	uint16_t port;
};

/* The next event: of this kind, with the first len words. */
static struct rdma_cm_id *brings(struct rdma_event_channel *ch, enum rdma_cm_event_type type, uint8_t len)
{
	struct rdma_cm_event *ev = vt_cm_next(ch, type);
	struct rdma_cm_id *id = ev->id;

	assert_int_equal(ev->param.conn.private_data_len, len);
	if (len)
		assert_memory_equal(ev->param.conn.private_data, words, len);
	rdma_ack_cm_event(ev);
	return id;
}

static void ask(struct vt_ep *ep, const struct place *to, struct rdma_conn_param *p, bool refused)
{
	vt_cm_find(ep, &to->gid, to->port);
	assert_int_equal(rdma_connect(ep->id, p), 0);
	brings(ep->id->channel, refused ? RDMA_CM_EVENT_REJECTED : RDMA_CM_EVENT_ESTABLISHED,
		p->private_data_len);
}

static void answer(struct vt_ep *ep, struct rdma_cm_id *listener, struct rdma_conn_param *p, bool refuse)
{
	ep->id = brings(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST, p->private_data_len);
	if (refuse) {
		assert_int_equal(rdma_reject(ep->id, p->private_data, p->private_data_len), 0);
	} else {
		assert_int_equal(rdma_accept(ep->id, p), 0);
		brings(listener->channel, RDMA_CM_EVENT_ESTABLISHED, 0);
	}
	assert_int_equal(rdma_destroy_id(listener), 0);
}

static void talk(struct end *e, uint8_t len, uint8_t depth, bool refuse)
{
	struct place p = {.gid = e->t->gid};
	struct rdma_conn_param param = {.private_data = words,
		.private_data_len = len,
		.responder_resources = depth,
		.initiator_depth = depth};

	e->ep = vt_ep_open(e->t, &(struct vt_opts){0});
	param.qp_num = e->ep->qp->qp_num;
	if (e->calls) {
		vt_hear(e->fd, &p, sizeof(p));
		ask(e->ep, &p, &param, refuse);
	} else {
		struct rdma_cm_id *listener = vt_cm_listen(e->t, &p.port);

		vt_tell(e->fd, &p, sizeof(p));
		answer(e->ep, listener, &param, refuse);
	}
	part(e);
}

void stream_words(struct end *e)
{
	static const uint8_t lengths[] = {0, 1, 200, MOST};

	for (unsigned i = 0; i < MOST; i++)
		words[i] = (uint8_t)(i * 7 + 1);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		talk(e, lengths[i], 1, true);
		talk(e, lengths[i], (uint8_t)(i % 2), false);
	}
}
