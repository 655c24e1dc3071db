/* SPDX-License-Identifier: MIT */
/*
 * The victim's endpoints, connected by rdma_cm. The ids have no QP of their own: the endpoint's number is in
 * the messages, and the endpoint is moved through its states as the id says, so that all else which can be
 * done to an endpoint can be done to these.
 */
#include "victim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

static struct rdma_event_channel *channel;
static struct rdma_cm_id *ids[MAX]; /* as endpoints are numbered */
static struct rdma_cm_id *request;  /* that was heard of last */

static struct rdma_cm_id *new_id(void)
{
	struct rdma_cm_id *id;

	if (!channel)
		channel = rdma_create_event_channel();
	assert_non_null(channel);
	assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
	return id;
}

/* cm_listen BACKLOG */
void cm_listen(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	struct rdma_cm_id *id = new_id();

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, (int)num(1)), 0);
	printf("port=%u\n", ntohs(rdma_get_src_port(id)));
}

/* The next event; its type or -1 when none comes within `ms`. */
static int next_event(struct rdma_cm_event *taken, int ms)
{
	struct pollfd p = {.fd = channel->fd, .events = POLLIN};
	struct rdma_cm_event *e;

	if (poll(&p, 1, ms) != 1 || rdma_get_cm_event(channel, &e))
		return -1;
	*taken = *e;
	rdma_ack_cm_event(e);
	return (int)taken->event;
}

/* cm_event MS: who it comes from, for a request, is said as rdma_cm says it to a program. */
void cm_event(void)
{
	struct rdma_cm_event e = {0};
	int type = next_event(&e, (int)num(1));
	uint32_t from = 0;

	if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		request = e.id;
		from = ntohl(((struct sockaddr_in *)rdma_get_peer_addr(request))->sin_addr.s_addr);
	}
	printf("event=%d status=%d from=%u\n", type, type < 0 ? 0 : e.status, from);
}

static void expect(enum rdma_cm_event_type type)
{
	struct rdma_cm_event e;

	assert_int_equal(next_event(&e, (int)vt_deadline() * 1000), type);
}

static struct rdma_conn_param param(void)
{
	return (struct rdma_conn_param){.qp_num = ep()->qp->qp_num,
		.responder_resources = 4,
		.initiator_depth = 4,
		.retry_count = 7,
		.rnr_retry_count = 7};
}

/* cm_connect EP IP PORT [TOS] [ACK_TIMEOUT]: as far as the request. */
void cm_connect(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)num(3))};
	struct rdma_cm_id *id = ids[num(1)] = new_id();
	uint8_t tos = (uint8_t)num(4), ack_timeout = (uint8_t)num(5);
	struct rdma_conn_param p = param();

	inet_pton(AF_INET, text(2), &to.sin_addr);
	if (tos)
		assert_int_equal(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
	if (ack_timeout)
		assert_int_equal(
			rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &ack_timeout, 1), 0);
	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), 0);
	expect(RDMA_CM_EVENT_ADDR_RESOLVED);
	assert_int_equal(rdma_resolve_route(id, 2000), 0);
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED);
	printf("errno=%d\n", rdma_connect(id, &p) ? errno : 0);
}

static void go(struct rdma_cm_id *id, enum ibv_qp_state state)
{
	struct ibv_qp_attr a = {.qp_state = state};
	int mask;

	assert_int_equal(rdma_init_qp_attr(id, &a, &mask), 0);
	assert_int_equal(ibv_modify_qp(ep()->qp, &a, mask), 0);
}

static void go_to_rts(struct rdma_cm_id *id)
{
	go(id, IBV_QPS_INIT);
	go(id, IBV_QPS_RTR);
	go(id, IBV_QPS_RTS);
}

/* cm_accept EP: the last request. */
void cm_accept(void)
{
	struct rdma_conn_param p = param();

	ids[num(1)] = request;
	go_to_rts(request);
	printf("errno=%d\n", rdma_accept(request, &p) ? errno : 0);
}

/* cm_establish EP: when CONNECT_RESPONSE has come. */
void cm_establish(void)
{
	go_to_rts(ids[num(1)]);
	printf("errno=%d\n", rdma_establish(ids[num(1)]) ? errno : 0);
}

/* cm_drop: refuses the last request. */
void cm_drop(void)
{
	printf("errno=%d\n", rdma_destroy_id(request) ? errno : 0);
}
