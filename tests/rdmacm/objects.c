/* SPDX-License-Identifier: MIT */
/* What an id can have besides a plain queue pair: one by the extended call, a shared receive queue of its
 * own; and the list of devices. */
#include "world.h"

#include <dlfcn.h>
#include <rdma/rdma_verbs.h>

static void every_device_is_listed_and_open(void **state)
{
	struct ibv_context **list, *own = w.listener->verbs;
	int n = 0, found = 0;

	(void)state;
	list = rdma_get_devices(&n);
	assert_non_null(list);
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		struct ibv_device_attr attr;

		assert_int_equal(ibv_query_device(list[i], &attr), 0);
		found += list[i] == own;
	}
	assert_null(list[n]);
	assert_int_equal(found, 1); /* the same context that ids have */
	rdma_free_devices(list);
	assert_int_equal(ibv_query_device(own, &(struct ibv_device_attr){0}), 0); /* which stays open */
}

static struct ibv_qp_cap small(void)
{
	return (struct ibv_qp_cap){.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1};
}

static void queue_pair_by_the_extended_call(void **state)
{
	struct ibv_qp_init_attr_ex attr = {.send_cq = w.cq,
		.recv_cq = w.cq,
		.cap = small(),
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = w.pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND};

	(void)state;
	resolve();
	assert_int_equal(rdma_create_qp_ex(w.client, &attr), 0);
	assert_non_null(w.client->qp);
	assert_non_null(ibv_qp_to_qp_ex(w.client->qp));
	assert_int_equal(rdma_connect(w.client, NULL), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	make_qp(w.server);
	assert_int_equal(rdma_accept(w.server, NULL), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.client);
}

/* The id's queue pair takes its receives from it. */
static void connect_with_srq(void)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = w.cq, .recv_cq = w.cq, .cap = small(), .qp_type = IBV_QPT_RC};
	struct ibv_qp_attr got;
	struct ibv_qp_init_attr init;

	attr.srq = w.client->srq;
	assert_int_equal(rdma_create_qp(w.client, w.pd, &attr), 0);
	assert_int_equal(ibv_query_qp(w.client->qp, &got, IBV_QP_STATE, &init), 0);
	assert_ptr_equal(init.srq, w.client->srq);
	rdma_destroy_qp(w.client);
}

static void shared_receive_queue_of_an_id(void **state)
{
	struct ibv_srq_init_attr attr = {.attr = {.max_wr = 4, .max_sge = 1}};

	(void)state;
	resolve();
	assert_int_equal(rdma_create_srq(w.client, w.pd, &attr), 0);
	assert_non_null(w.client->srq);
	connect_with_srq();
	rdma_destroy_srq(w.client);
	assert_null(w.client->srq);
}

static void shared_receive_queue_by_the_extended_call(void **state)
{
	struct ibv_srq_init_attr_ex attr = {.attr = {.max_wr = 4, .max_sge = 1},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = w.pd};

	(void)state;
	resolve();
	assert_int_equal(rdma_create_srq_ex(w.client, &attr), 0);
	connect_with_srq();
	rdma_destroy_srq(w.client);
	attr.srq_type = IBV_SRQT_XRC;
	errno = 0;
	assert_int_equal(rdma_create_srq_ex(w.client, &attr), -1);
	assert_int_equal(errno, EOPNOTSUPP);
}

static int attributes(struct rdma_cm_id *id, enum ibv_qp_state state, struct ibv_qp_attr *attr)
{
	int mask = 0;

	*attr = (struct ibv_qp_attr){.qp_state = state};
	assert_int_equal(rdma_init_qp_attr(id, attr, &mask), 0);
	return mask;
}

/* For who has a queue pair of its own: those that the id's would be given. */
static void attributes_for_a_queue_pair_of_ones_own(void **state)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR};
	int mask;

	(void)state;
	resolve();
	mask = attributes(w.client, IBV_QPS_INIT, &attr);
	assert_int_equal(mask, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	assert_int_equal(attr.port_num, w.client->port_num);
	attr.qp_state = IBV_QPS_RTR;
	errno = 0;
	assert_int_equal(rdma_init_qp_attr(w.client, &attr, &mask), -1); /* of nobody yet */
	assert_int_equal(errno, EINVAL);
	destroy(&w.client);
	connect_both();
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server);
	mask = attributes(w.client, IBV_QPS_RTR, &attr);
	assert_int_equal(mask & (IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU),
		IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_PATH_MTU);
	assert_int_equal(attr.dest_qp_num, w.server->qp->qp_num);
	mask = attributes(w.client, IBV_QPS_RTS, &attr);
	assert_int_equal(mask & (IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY),
		IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
	disconnect_both();
}

static void newer_calls_are_refused(void **state)
{
	static const char *const names[] = {
		"rdma_resolve_addrinfo", "rdma_query_addrinfo", "rdma_write_cm_event"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		union {
			void *symbol;
			int (*number)(void);
		} call = {dlsym(RTLD_DEFAULT, names[i])};

		assert_non_null(call.symbol);
		errno = 0;
		assert_int_equal(call.number(), -1);
		assert_int_equal(errno, EOPNOTSUPP);
	}
}

/* Data came before the RTU: the program says so. Afterwards and in vain it does no harm. */
static void notify_of_data_that_was_faster(void **state)
{
	(void)state;
	errno = 0;
	assert_int_equal(rdma_notify(w.listener, IBV_EVENT_COMM_EST), -1);
	assert_int_equal(errno, EINVAL);
	connect_both();
	assert_int_equal(rdma_notify(w.server, IBV_EVENT_COMM_EST), 0);
	expect(RDMA_CM_EVENT_ESTABLISHED, w.server); /* once, by this or by the RTU */
	assert_int_equal(rdma_notify(w.server, IBV_EVENT_COMM_EST), 0);
	assert_int_equal(rdma_notify(w.client, IBV_EVENT_QP_FATAL), 0);
	disconnect_both();
}

/* Carried to the other side as it was said. */
static void ece_is_carried(void **state)
{
	struct ibv_ece said = {.vendor_id = 0x2c9, .options = 0x12345678}, heard = {0};

	(void)state;
	resolve();
	assert_int_equal(rdma_set_local_ece(w.client, &said), 0);
	make_qp(w.client);
	assert_int_equal(rdma_connect(w.client, NULL), 0);
	expect(RDMA_CM_EVENT_CONNECT_REQUEST, NULL);
	w.server = w.last.id;
	assert_int_equal(rdma_get_remote_ece(w.server, &heard), 0);
	assert_int_equal(heard.vendor_id, said.vendor_id);
	assert_int_equal(heard.options, said.options);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_device_is_listed_and_open),
		TEST(queue_pair_by_the_extended_call),
		TEST(shared_receive_queue_of_an_id),
		TEST(shared_receive_queue_by_the_extended_call),
		TEST(attributes_for_a_queue_pair_of_ones_own),
		TEST(newer_calls_are_refused),
		TEST(notify_of_data_that_was_faster),
		TEST(ece_is_carried),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
