/* SPDX-License-Identifier: MIT */
/* Connections of a transport that has no other way than rdma_cm, with the tests' own queue pairs. */
#include "fixture.h"

#include <arpa/inet.h>
#include <string.h>
#include <rdma/rdma_cma.h>

bool vt_by_cm(const struct vt *t)
{
	return t->ctx->device->transport_type == IBV_TRANSPORT_IWARP;
}

static struct rdma_cm_id *new_id(void)
{
	struct rdma_event_channel *ch = rdma_create_event_channel();
	struct rdma_cm_id *id;

	assert_non_null(ch);
	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

struct rdma_cm_event *vt_cm_next(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev;

	assert_int_equal(rdma_get_cm_event(ch, &ev), 0);
	if (ev->event != type)
		print_error("rdma_cm: %s, status %d\n", rdma_event_str(ev->event), ev->status);
	assert_int_equal(ev->event, type);
	return ev;
}

/* The id of the event, which must be this one. */
static struct rdma_cm_id *expect(struct rdma_event_channel *ch, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *ev = vt_cm_next(ch, type);
	struct rdma_cm_id *id = ev->id;

	rdma_ack_cm_event(ev);
	return id;
}

static struct sockaddr_storage address(const union ibv_gid *gid, uint16_t port)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_storage sa = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&sa;

	if (!memcmp(gid->raw, v4, 12)) {
		in->sin_family = AF_INET;
		memcpy(&in->sin_addr, gid->raw + 12, 4);
	} else {
		in6->sin6_family = AF_INET6;
		memcpy(&in6->sin6_addr, gid->raw, 16);
	}
	in->sin_port = htons(port);
	return sa;
}

static struct rdma_conn_param param_of(const struct vt_ep *ep, const struct vt_conn *c)
{
	return (struct rdma_conn_param){
		.qp_num = ep->qp->qp_num,
		.responder_resources = c->dest_rd_atomic,
		.initiator_depth = c->rd_atomic,
	};
}

struct rdma_cm_id *vt_cm_listen(const struct vt *t, uint16_t *port)
{
	struct rdma_cm_id *id = new_id();
	struct sockaddr_storage sa = address(&t->gid, 0);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&sa), 0);
	assert_int_equal(rdma_listen(id, 8), 0);
	*port = ntohs(rdma_get_src_port(id));
	return id;
}

void vt_cm_find(struct vt_ep *ep, const union ibv_gid *gid, uint16_t port)
{
	struct sockaddr_storage sa = address(gid, port);

	ep->id = new_id();
	assert_int_equal(rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)&sa, 2000), 0);
	expect(ep->id->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(ep->id, 2000), 0);
	expect(ep->id->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

void vt_cm_ask(struct vt_ep *ep, const union ibv_gid *gid, uint16_t port, const struct vt_conn *c)
{
	struct rdma_conn_param p = param_of(ep, c);

	vt_cm_find(ep, gid, port);
	assert_int_equal(rdma_connect(ep->id, &p), 0);
}

void vt_cm_asked(struct vt_ep *ep)
{
	expect(ep->id->channel, RDMA_CM_EVENT_ESTABLISHED);
}

void vt_cm_answer(struct vt_ep *ep, struct rdma_cm_id *listener, const struct vt_conn *c)
{
	struct rdma_conn_param p = param_of(ep, c);

	/* The channel stays with the new id; the listener goes. */
	ep->id = expect(listener->channel, RDMA_CM_EVENT_CONNECT_REQUEST);
	assert_int_equal(rdma_accept(ep->id, &p), 0);
	expect(listener->channel, RDMA_CM_EVENT_ESTABLISHED);
	assert_int_equal(rdma_destroy_id(listener), 0);
}

void vt_cm_close(struct vt_ep *ep)
{
	struct rdma_event_channel *ch = ep->id ? ep->id->channel : NULL;

	if (!ep->id)
		return;
	rdma_destroy_id(ep->id);
	rdma_destroy_event_channel(ch);
	ep->id = NULL;
}
