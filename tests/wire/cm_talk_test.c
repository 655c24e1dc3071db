/* SPDX-License-Identifier: MIT */
/*
 * We say what Linux says. The conversations of the captures once more, with our connection manager in the
 * place of one of the two kernels, then of the other: it hears what the other kernel said, its user does what
 * that kernel's user did, and what it sends must be the kernel's bytes, but for the ids and transaction ids
 * that each side chooses itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#include "cm/ib/conn.h"
#include "pcap.h"
#include "wire/ibt.h"

enum { BUCKETS = 16, MAD_AT = BTH_LEN + DETH_LEN };

/* Whose place we take, and what it called things. */
struct role {
	struct cm_core core;
	struct cm_link *buckets[CM_INDEXES * BUCKETS];
	struct cm_conn listener, conn;
	struct cm_path path;
	uint32_t their_id; /* the kernel's name for what is conn.local_id */
	struct cm_msg sent;
	unsigned sends;
	uint32_t random;
};

static struct role role;

static void on_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN])
{
	assert_memory_equal(path, &role.path, sizeof(*path));
	assert_true(cm_msg_parse(mad, MAD_LEN, &role.sent));
	role.sends++;
}

static void on_event(void *arg, struct cm_conn *c, const struct cm_event *e)
{
}

static struct cm_conn *on_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	return &role.conn;
}

static uint32_t on_random(void *arg)
{
	return role.random += 0x9e3779b1;
}

static void role_begin(const struct packet *p, bool client)
{
	static const struct cm_ops ops = {on_send, on_event, on_incoming, on_random};

	memset(&role, 0, sizeof(role));
	memcpy(role.path.local, client ? p->flow.src : p->flow.dst, 16);
	memcpy(role.path.remote, client ? p->flow.dst : p->flow.src, 16);
	cm_core_init(&role.core, &ops, NULL, 7, 0, role.buckets, BUCKETS);
}

/* ---- hearing what the other kernel says ---- */
static void hear(const struct packet *p, struct cm_msg m)
{
	bool nobody = !role.listener.state && !role.conn.state;
	enum cm_verdict expected = nobody ? CM_V_REFUSED : CM_V_TAKEN;
	uint8_t mad[MAD_LEN];

	if (m.attr == CM_SIDR_REP)
		m.local_id = role.conn.local_id;
	else if (m.remote_id == role.their_id)
		m.remote_id = role.conn.local_id;
	cm_msg_pack(&m, mad);
	check(p, cm_receive(&role.core, &role.path, mad, MAD_LEN, 0) == expected);
}

/* ---- doing what this kernel's user did ---- */
static void act(const struct packet *p, struct cm_msg m)
{
	struct cm_conn *c = &role.conn;
	int err = 0;

	role.core.ca_guid = m.attr == CM_REQ ? m.req.ca_guid : m.attr == CM_REP ? m.rep.ca_guid : 0;
	switch (m.attr) {
	case CM_REQ:
		err = cm_connect(&role.core, c, &role.path, &m, 0);
		break;
	case CM_REP:
		err = cm_accept(&role.core, c, &m, 0);
		break;
	case CM_RTU:
		err = cm_establish(&role.core, c, m.priv, cm_priv_len(CM_RTU));
		break;
	case CM_DREQ:
	case CM_DREP:
		err = cm_disconnect(&role.core, c, m.priv, cm_priv_len(m.attr), 0);
		break;
	case CM_SIDR_REQ:
		err = cm_sidr_request(&role.core, c, &role.path, &m, 0);
		break;
	case CM_SIDR_REP:
		err = cm_sidr_reply(&role.core, c, &m, 0);
		break;
	default:
		check(p, m.attr == CM_REJ); /* nobody listens: the core said it by itself */
	}
	check(p, err == 0);
}

static bool begins(const struct cm_msg *m)
{
	return m->attr == CM_REQ || m->attr == CM_SIDR_REQ || m->attr == CM_DREQ;
}

/* What we have said, in the kernel's words. */
static void compare(const struct packet *p, const struct cm_msg *m, uint64_t tid)
{
	struct cm_msg ours = role.sent;
	uint8_t a[MAD_LEN], b[MAD_LEN];

	check(p, role.sends == 1);
	if (ours.attr != CM_SIDR_REP && ours.local_id == role.conn.local_id && ours.local_id)
		ours.local_id = m->local_id;
	check(p, begins(m) || ours.tid == tid);
	ours.tid = m->tid;
	cm_msg_pack(&ours, a);
	cm_msg_pack(m, b);
	check(p, !memcmp(a, b, MAD_LEN));
}

/* ---- a conversation ---- */
static void listen_for(const struct cm_msg *m)
{
	uint64_t service = m->attr == CM_REQ ? m->req.service_id : m->sidr_req.service_id;

	assert_int_equal(cm_listen(&role.core, &role.listener, service), 0);
}

/* One message of it; *tid is that of the transaction we are in, as we heard or began it. */
static void follow(const struct packet *p, const struct cm_msg *m, uint64_t *tid)
{
	if (memcmp(p->flow.src, role.path.local, 16)) {
		role.sends = 0;
		hear(p, *m);
		if (begins(m))
			*tid = m->tid;
		return;
	}
	if (m->attr != CM_REJ)
		role.sends = 0;
	role.their_id = m->attr == CM_SIDR_REP ? 0 : m->local_id;
	act(p, *m);
	compare(p, m, *tid);
	if (begins(m))
		*tid = role.sent.tid;
}

static void take_part(const char *file, bool client)
{
	uint64_t tid = 0;
	unsigned messages = 0;

	for (struct packet *p = packets; p < packets + packet_count; p++) {
		struct cm_msg m;

		if (!strstr(p->file, file) || bth_dqpn(p->data) != GSI_QPN)
			continue;
		check(p, cm_msg_parse(p->data + MAD_AT, MAD_LEN, &m));
		if (!messages++) {
			role_begin(p, client);
			if (!client && !strstr(file, "_rej"))
				listen_for(&m);
		}
		follow(p, &m, &tid);
	}
	assert_true(messages >= 2);
}

/* rxe_write_bw_R is not among them: its two sides' DREQs cross, in another order at each of them. */
static void in_every_conversation_on_either_side_we_say_what_linux_says(void **state)
{
	static const char *const files[] = {"rxe_rping.pcap", "rxe_rping_ipv6.pcap", "rxe_rping_rej.pcap",
		"rxe_rstream.pcap", "rxe_ucmatose.pcap", "rxe_udaddy.pcap"};

	for (unsigned i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		take_part(files[i], true);
		take_part(files[i], false);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(in_every_conversation_on_either_side_we_say_what_linux_says),
	};
	return cmocka_run_group_tests(tests, pcap_read_all, pcap_free_all);
}
