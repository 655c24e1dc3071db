/* SPDX-License-Identifier: MIT */
/*
 * Every connection management message that Linux's own ib_cm sent in the captures: taken apart and put
 * together again it must be the same 256 bytes, and say what the capture is known to hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "pcap.h"
#include "wire/cm_msg.h"
#include "wire/ibt.h"

enum { CM_TOTAL = 38, MAD_AT = BTH_LEN + DETH_LEN };

static bool is_cm(const struct packet *p)
{
	return p->len == MAD_AT + MAD_LEN + ICRC_LEN && bth_dqpn(p->data) == GSI_QPN;
}

#define for_each_cm(p)                                                                                       \
	for (struct packet *p = packets; p < packets + packet_count; p++)                                    \
		if (is_cm(p))

static struct cm_msg parsed(const struct packet *p)
{
	struct cm_msg m;

	check(p, cm_msg_parse(p->data + MAD_AT, MAD_LEN, &m));
	return m;
}

static void every_message_comes_back_as_it_went(void **state)
{
	unsigned count = 0;

	for_each_cm(p)
	{
		struct cm_msg m = parsed(p);
		uint8_t golden[MAD_LEN], mad[MAD_LEN];

		memcpy(golden, p->data + MAD_AT, MAD_LEN);
		/* Linux writes its packet rate, 0xfe ("as the port"), into a field of six bits, and so two
		 * reserved bits are not 0. We send 0 there. */
		if (m.attr == CM_REQ)
			golden[MAD_HDR_LEN + 91] &= 0x3f;
		cm_msg_pack(&m, mad);
		check(p, !memcmp(mad, golden, MAD_LEN));
		count++;
	}
	assert_int_equal(count, CM_TOTAL);
}

static void messages_are_as_many_as_the_index_of_the_captures_says(void **state)
{
	static const unsigned known[] = {[CM_REQ] = 7,
		[CM_REJ] = 1,
		[CM_REP] = 6,
		[CM_RTU] = 6,
		[CM_DREQ] = 8,
		[CM_DREP] = 8,
		[CM_SIDR_REQ] = 1,
		[CM_SIDR_REP] = 1,
		[CM_APR] = 0};
	unsigned count[CM_APR + 1] = {0};

	for_each_cm(p) count[parsed(p).attr]++;
	assert_memory_equal(count, known, sizeof(known));
}

static void requests_say_what_rdma_cm_asks_for(void **state)
{
	for_each_cm(p)
	{
		struct cm_msg m = parsed(p);
		struct cm_ip ip;
		uint8_t again[CM_IP_LEN];

		if (m.attr != CM_REQ && m.attr != CM_SIDR_REQ)
			continue;
		check(p, cm_ip_parse(m.priv, &ip));
		check(p, ip.version == (p->v4 ? 4 : 6));
		check(p, !memcmp(ip.src, p->flow.src, 16) && !memcmp(ip.dst, p->flow.dst, 16));
		cm_ip_pack(&ip, again);
		check(p, !memcmp(again, m.priv, CM_IP_LEN));
		if (m.attr == CM_SIDR_REQ) {
			check(p, cm_service_space(m.sidr_req.service_id) == CM_PS_UDP);
			continue;
		}
		check(p, cm_service_space(m.req.service_id) == CM_PS_TCP);
		check(p, m.req.remote_timeout == 20 && m.req.local_timeout == 20);
		check(p, m.req.max_cm_retries == 15 && m.req.transport == CM_TRANSPORT_RC);
		check(p, !memcmp(m.req.primary.local_gid, p->flow.src, 16));
		check(p, !memcmp(m.req.primary.remote_gid, p->flow.dst, 16));
		check(p, m.req.primary.ack_timeout == 19 && m.req.primary.hop_limit == 64);
	}
}

static const struct packet *only(const char *file, enum cm_attr attr, struct cm_msg *m)
{
	const struct packet *found = NULL;

	for_each_cm(p)
	{
		*m = parsed(p);
		if (strstr(p->file, file) && m->attr == attr) {
			found = p;
			break;
		}
	}
	assert_non_null(found);
	return found;
}

static void rping_connects_to_the_port_it_was_told(void **state)
{
	struct cm_msg req, rep, dreq;

	only("rxe_rping.pcap", CM_REQ, &req);
	only("rxe_rping.pcap", CM_REP, &rep);
	only("rxe_rping.pcap", CM_DREQ, &dreq);
	assert_true(req.req.service_id == cm_service_id(CM_PS_TCP, 7174));
	assert_int_equal(cm_service_port(req.req.service_id), 7174);
	assert_int_equal(req.local_id, 0x7b089c1a);
	assert_int_equal(req.req.qpn, 0x11);
	assert_int_equal(req.req.psn, 0x50f8a1);
	assert_int_equal(rep.remote_id, req.local_id);
	assert_true(rep.tid == req.tid);
	assert_int_equal(dreq.dreq.remote_qpn, rep.rep.qpn);
}

static void nobody_listening_is_reason_8(void **state)
{
	struct cm_msg req, rej;

	only("rxe_rping_rej.pcap", CM_REQ, &req);
	only("rxe_rping_rej.pcap", CM_REJ, &rej);
	assert_int_equal(rej.rej.reason, CM_REJ_INVALID_SERVICE_ID);
	assert_int_equal(rej.rej.about, CM_ABOUT_REQ);
	assert_int_equal(rej.local_id, 0);
	assert_int_equal(rej.remote_id, req.local_id);
}

static void a_datagram_service_gives_its_qp_and_qkey(void **state)
{
	struct cm_msg req, rep;

	only("rxe_udaddy.pcap", CM_SIDR_REQ, &req);
	only("rxe_udaddy.pcap", CM_SIDR_REP, &rep);
	assert_int_equal(req.local_id, rep.local_id);
	assert_int_equal(rep.sidr_rep.status, CM_SIDR_OK);
	assert_int_equal(rep.sidr_rep.qpn, 0x14);
	assert_int_equal(rep.sidr_rep.qkey, 0x01234567);
	assert_true(rep.sidr_rep.service_id == req.sidr_req.service_id);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_comes_back_as_it_went),
		cmocka_unit_test(messages_are_as_many_as_the_index_of_the_captures_says),
		cmocka_unit_test(requests_say_what_rdma_cm_asks_for),
		cmocka_unit_test(rping_connects_to_the_port_it_was_told),
		cmocka_unit_test(nobody_listening_is_reason_8),
		cmocka_unit_test(a_datagram_service_gives_its_qp_and_qkey),
	};
	return cmocka_run_group_tests(tests, pcap_read_all, pcap_free_all);
}
