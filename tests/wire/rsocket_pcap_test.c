/* SPDX-License-Identifier: MIT */
/*
 * A conversation of two stock rsockets on Linux's own stack (rstream), played by ours: given the same buffers
 * and the same lengths, each side must describe itself by the same bytes, write to the same addresses with
 * the same keys and say the same messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "pcap.h"
#include "rsocket/flow.h"
#include "wire/cm_msg.h"
#include "wire/ibt.h"

enum { MAD_AT = BTH_LEN + DETH_LEN, DATA_MESSAGES = 26, GRANTS = 2, ENDS = 1 };

struct side {
	uint8_t address[16], conn[RS_CONN_LEN];
	struct rs_sge slots[RS_SLOTS];
	struct rs_flow flow;
	struct reth reth; /* of the WRITE that is under way */
	unsigned unread_messages, data, grants, ends;
};

static bool is_rstream(const struct packet *p)
{
	return strstr(p->file, "rxe_rstream.pcap") != NULL;
}

static void conn_of(enum cm_attr attr, struct side *s)
{
	for (struct packet *p = packets; p < packets + packet_count; p++) {
		struct cm_msg m;

		if (!is_rstream(p) || bth_dqpn(p->data) != GSI_QPN)
			continue;
		check(p, cm_msg_parse(p->data + MAD_AT, MAD_LEN, &m));
		if (m.attr != attr)
			continue;
		memcpy(s->conn, m.priv + (attr == CM_REQ ? CM_IP_LEN : 0), RS_CONN_LEN);
		memcpy(s->address, p->flow.src, 16);
		return;
	}
	fail_msg("no such message");
}

/* Our own state for the captured side, with its buffers. */
static void become(struct side *s)
{
	struct rs_conn c;
	uint8_t again[RS_CONN_LEN];

	rs_conn_parse(s->conn, &c);
	rs_flow_init(&s->flow, c.data.addr, c.data.key, c.data.length, c.credits, s->slots);
	rs_flow_describe(&s->flow, c.sgl.addr, c.sgl.key, again);
	assert_memory_equal(again, s->conn, RS_CONN_LEN);
}

/* A message of the capture, which ours would be now. */
static void said(
	const struct packet *p, struct side *from, struct side *to, uint32_t msg, const uint8_t *payload)
{
	uint32_t len = from->reth.len;
	struct rs_post post = {0};

	switch (rs_msg_op(msg)) {
	case RS_OP_DATA:
		check(p, rs_msg_data(msg) == len && len <= rs_flow_room(&from->flow));
		rs_flow_send(&from->flow, len, &post);
		from->data++;
		to->unread_messages++;
		break;
	case RS_OP_SGL:
		check(p, rs_flow_must_tell(&from->flow));
		rs_flow_tell(&from->flow, &post);
		check(p, post.len == len && !memcmp(&post.sge, payload, len));
		/* The stock library counts messages when they are read, ours when they arrive. */
		check(p, (uint16_t)(post.msg - msg) <= from->unread_messages);
		post.msg = msg;
		from->unread_messages = 0;
		memcpy(&to->slots[to->flow.slot_at], payload, len);
		from->grants++;
		break;
	case RS_OP_CTRL:
		post = (struct rs_post){.msg = rs_msg(RS_OP_CTRL, RS_CTRL_DISCONNECT),
			.addr = from->reth.va,
			.rkey = from->reth.rkey};
		from->ends++;
		break;
	default:
		fail_msg("frame %d: an unknown message", p->frame);
	}
	check(p, post.msg == msg);
	check(p, post.addr == from->reth.va && post.rkey == from->reth.rkey);
	check(p, rs_flow_receive(&to->flow, msg, len) != RS_BREACH);
	rs_flow_consume(&to->flow, to->flow.unread);
}

static void play(const struct packet *p, struct side *from, struct side *to)
{
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(p->data));
	const uint8_t *at = p->data + BTH_LEN;

	if (!(op->flags & OPF_WRITE))
		return;
	if (op->flags & OPF_RETH) {
		from->reth = reth_get(at);
		at += RETH_LEN;
	}
	if (op->flags & OPF_IMM)
		said(p, from, to, get_be32(at), at + IMM_LEN);
}

static void ours_would_have_said_the_same(void **state)
{
	static struct side active, passive;

	conn_of(CM_REQ, &active);
	conn_of(CM_REP, &passive);
	become(&active);
	become(&passive);
	assert_int_equal(rs_flow_meet(&active.flow, passive.conn), 0);
	assert_int_equal(rs_flow_meet(&passive.flow, active.conn), 0);
	for (struct packet *p = packets; p < packets + packet_count; p++) {
		bool by_active = !memcmp(p->flow.src, active.address, 16);

		if (is_rstream(p) && bth_dqpn(p->data) != GSI_QPN)
			play(p, by_active ? &active : &passive, by_active ? &passive : &active);
	}
	assert_int_equal(active.data + passive.data, DATA_MESSAGES);
	assert_int_equal(active.grants + passive.grants, GRANTS);
	assert_int_equal(active.ends + passive.ends, ENDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ours_would_have_said_the_same),
	};

	return cmocka_run_group_tests(tests, pcap_read_all, pcap_free_all);
}
