/* SPDX-License-Identifier: MIT */
/* QP1 of programs: whose a message of the connection manager is, what a program may send, what it may ask. */
#include "fabricd/attach_stage_test.h"

#include "base/gid.h"
#include "wire/cm_msg.h"
#include "wire/sa.h"

enum { SLOT_C = 12, PORT = 7471, GSI_FRAME = BTH_LEN + DETH_LEN + MAD_LEN };

static const uint8_t ip_b[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, 47, 0, 2};

/* ---- what programs say ---- */
static void say_families(
	struct program *p, uint8_t type, uint8_t families, uint16_t port, const uint8_t *addr)
{
	struct attach_listen l = {
		.type = type, .families = families, .service_id = cm_service_id(CM_PS_TCP, port)};

	if (addr)
		memcpy(l.addr, addr, 16);
	assert_int_equal(send(p->fd, &l, sizeof(l), 0), sizeof(l));
	attach_read(p->conn);
}

static void say_listen(struct program *p, uint8_t type, uint16_t port, const uint8_t *addr)
{
	say_families(p, type, ATTACH_V4 | ATTACH_V6, port, addr);
}

static void put_mad_from(
	struct program *p, unsigned host, uint32_t sqpn, uint32_t qkey, const uint8_t mad[MAD_LEN])
{
	uint8_t bytes[GSI_FRAME];
	const struct trunk_packet head = {.port = subnet_port(d.topo.host[host].hca[0], 1)->index,
		.slid = (uint16_t)(LID_A + host),
		.dlid = (uint16_t)(LID_B - host)};

	bth_put(bytes, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, GSI_QPN, false, 5);
	put_be32(bytes + BTH_LEN, qkey);
	put_be32(bytes + BTH_LEN + 4, sqpn);
	memcpy(bytes + BTH_LEN + DETH_LEN, mad, MAD_LEN);
	put(p, &head, bytes, GSI_FRAME);
	run();
}

static void put_mad(struct program *p, unsigned host, const uint8_t mad[MAD_LEN])
{
	put_mad_from(p, host, GSI_QPN, GSI_QKEY, mad);
}

static void send_cm(struct program *p, unsigned host, const struct cm_msg *m)
{
	uint8_t mad[MAD_LEN];

	cm_msg_pack(m, mad);
	put_mad(p, host, mad);
}

static struct cm_msg request(uint32_t slot, uint16_t port)
{
	const struct cm_ip ip = {.version = 4,
		.port = 40000,
		.src = {[10] = 0xff, 0xff, 10, 47, 0, 1},
		.dst = {[10] = 0xff, 0xff, 10, 47, 0, 2}};
	struct cm_msg m = {.attr = CM_REQ,
		.local_id = comm_id_make(slot, 77),
		.req.service_id = cm_service_id(CM_PS_TCP, port)};

	cm_ip_pack(&ip, m.priv);
	return m;
}

static bool got_cm(struct program *p, enum cm_attr attr)
{
	struct trunk_packet t;
	struct cm_msg m;
	uint8_t *there;
	bool is;

	if (trunk_take(&p->rx, &t, &there) != 1)
		return false;
	is = t.len == GSI_FRAME && cm_msg_parse(there + BTH_LEN + DETH_LEN, MAD_LEN, &m) && m.attr == attr;
	trunk_done(&p->rx);
	return is;
}

/* ---- listeners ---- */
static void request_reaches_who_listens(void **state)
{
	struct program a, b, c;
	struct cm_msg m = request(SLOT_A, PORT);

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	attach(&c, 1, SLOT_C);
	say_listen(&b, ATTACH_LISTEN, PORT, NULL);
	say_listen(&c, ATTACH_LISTEN, PORT + 1, ip_b);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&b, CM_REQ));
	m = request(SLOT_A, PORT + 1);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&c, CM_REQ));
	m = request(SLOT_A, PORT + 2);
	unwanted = 0;
	send_cm(&a, 0, &m);
	assert_int_equal(unwanted, 1);
	say_listen(&b, ATTACH_UNLISTEN, PORT, NULL);
	m = request(SLOT_A, PORT);
	send_cm(&a, 0, &m);
	assert_int_equal(unwanted, 2);
	assert_false(trunk_has_packet(&b.rx) || trunk_has_packet(&c.rx));
	leave(&a);
	leave(&b);
	leave(&c);
}

static void listener_is_one_programs_until_it_dies(void **state)
{
	struct program a, b, c;
	struct cm_msg m = request(SLOT_A, PORT);

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	attach(&c, 1, SLOT_C);
	say_listen(&b, ATTACH_LISTEN, PORT, NULL);
	say_listen(&c, ATTACH_LISTEN, PORT, NULL); /* the same */
	say_listen(&c, ATTACH_LISTEN, PORT, ip_b); /* a part of it */
	assert_int_equal(d.attach->count.listeners, 2);
	say_listen(&a, ATTACH_LISTEN, PORT, NULL); /* another host has ports of its own */
	assert_int_equal(d.attach->count.listeners, 2);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&b, CM_REQ));
	assert_false(trunk_has_packet(&c.rx));
	leave(&b);
	unwanted = 0;
	send_cm(&a, 0, &m);
	assert_int_equal(unwanted, 1);
	say_listen(&c, ATTACH_LISTEN, PORT, ip_b);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&c, CM_REQ));
	leave(&a);
	leave(&c);
}

static void listeners_beyond_the_bound_are_refused(void **state)
{
	enum { MORE = 10 };
	struct program b;

	attach(&b, 1, SLOT_B);
	for (unsigned i = 0; i < ATTACH_LISTENERS + MORE; i++)
		say_listen(&b, ATTACH_LISTEN, (uint16_t)(1 + i), NULL);
	assert_int_equal(d.attach->count.listeners, MORE);
	assert_int_equal(b.conn->nlisten, ATTACH_LISTENERS);
	leave(&b);
}

static void each_family_has_a_listener_of_its_own(void **state)
{
	struct program a, b, c;
	struct cm_msg m = request(SLOT_A, PORT);

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	attach(&c, 1, SLOT_C);
	d.attach->count = (struct attach_counts){0};
	say_families(&c, ATTACH_LISTEN, ATTACH_V6, PORT, NULL);
	unwanted = 0;
	send_cm(&a, 0, &m); /* by IPv4 */
	assert_int_equal(unwanted, 1);
	say_families(&b, ATTACH_LISTEN, ATTACH_V4, PORT, NULL);
	assert_int_equal(d.attach->count.listeners, 0);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&b, CM_REQ));
	assert_false(trunk_has_packet(&c.rx));
	say_families(&b, ATTACH_UNLISTEN, ATTACH_V6, PORT, NULL); /* another's, or nobody's */
	say_families(&b, ATTACH_UNLISTEN, ATTACH_V4, PORT, ip_b);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&b, CM_REQ));
	leave(&a);
	leave(&b);
	leave(&c);
}

/* Its private data is the program's, whatever it looks like. */
static void listener_by_gid_gets_what_is_for_its_port(void **state)
{
	struct attach_listen l = {
		.type = ATTACH_LISTEN, .families = ATTACH_GID, .service_id = cm_service_id(CM_PS_TCP, PORT)};
	const struct fabric_port *port = subnet_port(d.topo.host[1].hca[0], 1)->shared;
	struct cm_msg m = request(SLOT_A, PORT);
	struct program a, b, c;

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	attach(&c, 1, SLOT_C);
	put_be64(l.addr, port->prefix);
	put_be64(l.addr + 8, port->guid[0]);
	send(b.fd, &l, sizeof(l), 0);
	attach_read(b.conn);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&b, CM_REQ));
	say_listen(&c, ATTACH_LISTEN, PORT, NULL); /* which of the two is not to be told apart */
	assert_int_equal(d.attach->count.listeners, 1);
	l.type = ATTACH_UNLISTEN;
	send(b.fd, &l, sizeof(l), 0);
	l.type = ATTACH_LISTEN;
	l.addr[15] ^= 1; /* a GID that the port does not have */
	send(b.fd, &l, sizeof(l), 0);
	attach_read(b.conn);
	send_cm(&a, 0, &m);
	assert_false(trunk_has_packet(&b.rx));
	leave(&a);
	leave(&b);
	leave(&c);
}

/* ---- ids ---- */
static void answer_goes_to_the_slot_of_its_id(void **state)
{
	struct program a, b;
	struct cm_msg rep = {
		.attr = CM_REP, .local_id = comm_id_make(SLOT_B, 5), .remote_id = comm_id_make(SLOT_A, 77)};

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	send_cm(&b, 1, &rep);
	assert_true(got_cm(&a, CM_REP));
	leave(&a);
	unwanted = 0;
	send_cm(&b, 1, &rep);
	assert_int_equal(unwanted, 1);
	rep.remote_id = comm_id_make(SLOT_B, 77); /* who has the slot is on another host than the port */
	send_cm(&b, 1, &rep);
	assert_int_equal(unwanted, 2);
	assert_false(trunk_has_packet(&b.rx));
	leave(&b);
}

static void peers_of_the_dead_are_answered(void **state)
{
	const uint32_t dead = comm_id_make(SLOT_B, 5), peer = comm_id_make(SLOT_A, 77);
	struct cm_msg m = {.attr = CM_DREQ, .tid = 9, .local_id = peer, .remote_id = dead}, back;
	uint8_t mad[MAD_LEN], answer[MAD_LEN];

	d.started = 1;
	cm_msg_pack(&m, mad);
	assert_false(gsi_refuse(&d, mad, answer, GSI_RETURN_NS)); /* it may be on its way back */
	assert_true(gsi_refuse(&d, mad, answer, d.started + GSI_RETURN_NS));
	assert_true(cm_msg_parse(answer, MAD_LEN, &back) && back.attr == CM_DREP && back.tid == 9);
	assert_true(back.local_id == dead && back.remote_id == peer);
	m.attr = CM_REP;
	cm_msg_pack(&m, mad);
	assert_false(gsi_refuse(&d, mad, answer, GSI_RETURN_NS));
	assert_true(gsi_refuse(&d, mad, answer, d.started + GSI_RETURN_NS));
	assert_true(cm_msg_parse(answer, MAD_LEN, &back) && back.attr == CM_REJ && back.remote_id == peer);
	assert_int_equal(back.rej.reason, CM_REJ_INVALID_COMM_ID);
	assert_int_equal(back.rej.about, CM_ABOUT_REP);
	for (enum cm_attr quiet = CM_REQ; quiet <= CM_APR; quiet++) { /* answers are not answered */
		bool asks = quiet == CM_REQ || quiet == CM_SIDR_REQ || quiet == CM_DREQ || quiet == CM_REP;

		m.attr = quiet;
		cm_msg_pack(&m, mad);
		assert_int_equal(gsi_refuse(&d, mad, answer, d.started + GSI_RETURN_NS), asks);
	}
	m = request(SLOT_A, PORT);
	cm_msg_pack(&m, mad);
	assert_true(gsi_refuse(&d, mad, answer, 1)); /* nothing is lost: it can be asked again */
}

/* Its REJ names the id of its request, and nobody's else. */
static void who_gives_up_is_heard_by_who_got_the_request(void **state)
{
	struct program a, b;
	struct cm_msg m = request(SLOT_A, PORT);
	struct cm_msg rej = {.attr = CM_REJ, .local_id = m.local_id, .rej.reason = CM_REJ_TIMEOUT};

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	say_listen(&b, ATTACH_LISTEN, PORT, NULL);
	send_cm(&a, 0, &m);
	assert_true(got_cm(&b, CM_REQ));
	rej.local_id += ATTACH_ASKED; /* another request, at the same place of what is remembered */
	unwanted = 0;
	send_cm(&a, 0, &rej);
	assert_int_equal(unwanted, 1);
	rej.local_id = m.local_id;
	send_cm(&a, 0, &rej);
	assert_true(got_cm(&b, CM_REJ));
	leave(&a);
	leave(&b);
}

static void what_is_not_its_own_a_program_cannot_send(void **state)
{
	struct program a, b;
	struct cm_msg m = request(SLOT_B, PORT); /* another's id */
	uint8_t mad[MAD_LEN];

	attach(&a, 0, SLOT_A);
	attach(&b, 1, SLOT_B);
	say_listen(&b, ATTACH_LISTEN, PORT, NULL);
	d.attach->count = (struct attach_counts){0};
	send_cm(&a, 0, &m);
	m = (struct cm_msg){.attr = CM_DREQ, .local_id = m.local_id, .remote_id = comm_id_make(SLOT_B, 1)};
	send_cm(&a, 0, &m);
	memset(mad, 0, MAD_LEN); /* no MAD at all */
	put_mad(&a, 0, mad);
	mad[0] = MAD_BASE_VERSION;
	mad[1] = MAD_CLASS_PERF;
	mad[2] = 1;
	mad[3] = MAD_METHOD_SET;
	put_mad(&a, 0, mad);
	mad[1] = MAD_CLASS_SUBN;
	put_mad(&a, 0, mad);
	m = request(SLOT_A, PORT); /* its own, but not QP1's, or without its Q_Key */
	cm_msg_pack(&m, mad);
	put_mad_from(&a, 0, GSI_QPN, 0x11111111, mad);
	put_mad_from(&a, 0, qpn_in(SLOT_A), GSI_QKEY, mad);
	assert_int_equal(d.attach->count.refused, 7);
	assert_false(trunk_has_packet(&b.rx));
	leave(&a);
	leave(&b);
}

/* ---- the SA ---- */
static void ask(struct program *p, uint8_t method, uint16_t attr, uint64_t tid)
{
	const struct mad_hdr h = {.base_version = MAD_BASE_VERSION,
		.mgmt_class = MAD_CLASS_SA,
		.class_version = SA_CLASS_VERSION,
		.method = method,
		.tid = tid,
		.attr = attr};
	uint8_t mad[MAD_LEN] = {0};

	mad_hdr_put(mad, &h);
	put_mad(p, 0, mad);
}

/* What the subnet manager, at host B, was asked last. */
static uint8_t asked_of_sm[MAD_LEN];
static unsigned nasked;

static void manager_hears(struct fabricd *f, struct subnet_port *at, const struct packet *p)
{
	struct packet_addr a;
	const uint8_t *mad;

	if (packet_mad_parse(p, &a, &mad) && a.dlid == LID_B && mad[1] == MAD_CLASS_SA) {
		memcpy(asked_of_sm, mad, MAD_LEN);
		nasked++;
	}
}

/* In its place, or from where it is. */
static void host_answers(unsigned host)
{
	struct subnet_port *at = subnet_port(d.topo.host[host].hca[0], 1);
	const struct ibmad_addr to = {.lid = LID_A, .qpn = GSI_QPN, .qkey = GSI_QKEY};

	asked_of_sm[3] = asked_of_sm[3] == SA_DELETE ? SA_DELETE_RESP : MAD_METHOD_GET_RESP;
	umad_qp_put_mad(NULL, at, GSI_QPN, &to, asked_of_sm);
	run();
}

static void manager_answers(void)
{
	host_answers(1);
}

static bool got_answer(struct program *p, uint64_t tid)
{
	struct trunk_packet t;
	uint8_t *there;
	bool is;

	if (trunk_take(&p->rx, &t, &there) != 1)
		return false;
	is = t.len == GSI_FRAME && get_be64(there + BTH_LEN + DETH_LEN + 8) == tid;
	trunk_done(&p->rx);
	return is;
}

static void answer_of_the_sa_goes_to_who_asked(void **state)
{
	struct program a, c;

	subnet_port(d.topo.host[0].hca[0], 1)->shared->sm_lid = LID_B;
	hears = manager_hears;
	nasked = 0;
	attach(&a, 0, SLOT_A);
	attach(&c, 0, SLOT_C);
	ask(&a, MAD_METHOD_GET, SA_PATH, 0x1234567800000001);
	assert_int_equal(nasked, 1);
	manager_answers();
	assert_true(got_answer(&a, 0x1234567800000001));
	ask(&c, MAD_METHOD_GET, SA_PATH, 0x1234567800000001); /* two may have the same number */
	manager_answers();
	assert_true(got_answer(&c, 0x1234567800000001));
	manager_answers(); /* twice is once too often */
	assert_false(trunk_has_packet(&a.rx) || trunk_has_packet(&c.rx));
	ask(&a, MAD_METHOD_GET, SA_PATH, 3);
	leave(&a);
	manager_answers(); /* nobody waits any more */
	assert_false(trunk_has_packet(&c.rx));
	leave(&c);
	hears = NULL;
}

/* A transaction id can be guessed. */
static void answer_in_the_managers_name_is_not_heard(void **state)
{
	struct program a;

	subnet_port(d.topo.host[0].hca[0], 1)->shared->sm_lid = LID_B;
	hears = manager_hears;
	attach(&a, 0, SLOT_A);
	ask(&a, MAD_METHOD_GET, SA_PATH, 7);
	host_answers(0);
	assert_false(trunk_has_packet(&a.rx));
	manager_answers();
	assert_true(got_answer(&a, 7));
	leave(&a);
	hears = NULL;
}

static void what_connections_do_not_need_is_not_asked(void **state)
{
	struct program a;

	subnet_port(d.topo.host[0].hca[0], 1)->shared->sm_lid = LID_B;
	hears = manager_hears;
	nasked = 0;
	attach(&a, 0, SLOT_A);
	d.attach->count = (struct attach_counts){0};
	ask(&a, MAD_METHOD_SET, SA_PATH, 1);
	ask(&a, SA_GET_TABLE, SA_PATH, 1);
	ask(&a, MAD_METHOD_SET, SA_SERVICE, 1);
	assert_int_equal(d.attach->count.refused, 3);
	for (unsigned i = 0; i < ATTACH_QUESTIONS + 5; i++)
		ask(&a, MAD_METHOD_GET, SA_PATH, i);
	assert_int_equal(d.attach->count.refused, 8);
	assert_int_equal(nasked, ATTACH_QUESTIONS);
	leave(&a);
	hears = NULL;
}

/* A second is longer than a question and its repeats wait each. */
static void question_without_an_answer_is_forgotten(void **state)
{
	enum { REPEATS = 10 };
	const uint64_t second = 1000ull * 1000 * 1000;
	struct loop_timer *t = &d.attach->sa_timer;
	struct program a;

	subnet_port(d.topo.host[0].hca[0], 1)->shared->sm_lid = LID_B;
	hears = manager_hears;
	nasked = 0;
	attach(&a, 0, SLOT_A);
	ask(&a, MAD_METHOD_GET, SA_PATH, 7);
	assert_int_equal(a.conn->nquestions, 1);
	for (unsigned i = 1; i <= REPEATS; i++)
		t->fn(t->arg, loop_now(d.loop) + i * second);
	assert_in_range(nasked, 2, REPEATS);
	assert_int_equal(a.conn->nquestions, 0);
	manager_answers(); /* too late */
	assert_false(trunk_has_packet(&a.rx));
	leave(&a);
	hears = NULL;
}

/* ---- groups ---- */
static uint8_t as = JOIN_FULL;

static void ask_member(struct program *p, uint8_t method, const uint8_t *port_gid)
{
	const struct mad_hdr h = {.base_version = MAD_BASE_VERSION,
		.mgmt_class = MAD_CLASS_SA,
		.class_version = SA_CLASS_VERSION,
		.method = method,
		.tid = 5,
		.attr = SA_MC_MEMBER};
	const struct fabric_port *port = subnet_port(d.topo.host[0].hca[0], 1)->shared;
	struct sa_member m = {.mgid = {0xff, 0x12, 0x40, 0x01}, .join = as};
	uint8_t mad[MAD_LEN] = {0};

	put_be64(m.port_gid, port->prefix);
	put_be64(m.port_gid + 8, port->guid[0]);
	if (port_gid)
		memcpy(m.port_gid, port_gid, 16);
	mad_hdr_put(mad, &h);
	put_be64(mad + SA_MASK, MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE);
	sa_member_put(mad + SA_DATA, &m);
	put_mad(p, 0, mad);
}

static void join(struct program *p)
{
	ask_member(p, MAD_METHOD_SET, NULL);
	manager_answers();
	assert_true(got_answer(p, 5));
}

static void ask_the_manager(void)
{
	subnet_port(d.topo.host[0].hca[0], 1)->shared->sm_lid = LID_B;
	hears = manager_hears;
	nasked = 0;
	d.attach->count = (struct attach_counts){0};
}

static void port_leaves_a_group_with_its_last_program(void **state)
{
	struct program a, c;

	ask_the_manager();
	attach(&a, 0, SLOT_A);
	attach(&c, 0, SLOT_C);
	join(&a);
	join(&a); /* twice, as two ids do */
	join(&c);
	nasked = 0;
	ask_member(&a, SA_DELETE, NULL);
	ask_member(&a, SA_DELETE, NULL);
	assert_true(got_answer(&a, 5) && got_answer(&a, 5)); /* it has left, its port stays */
	ask_member(&a, SA_DELETE, NULL);
	assert_int_equal(d.attach->count.refused, 1); /* it is not in it any more */
	assert_int_equal(nasked, 0);
	leave(&c); /* is killed */
	assert_int_equal(nasked, 1);
	assert_int_equal(asked_of_sm[3], SA_DELETE);
	leave(&a);
	assert_int_equal(nasked, 1);
	hears = NULL;
}

static void join_of_a_program_that_died_is_taken_back(void **state)
{
	struct program a;

	ask_the_manager();
	attach(&a, 0, SLOT_A);
	ask_member(&a, MAD_METHOD_SET, NULL);
	leave(&a);
	assert_int_equal(nasked, 1);
	manager_answers();
	assert_int_equal(nasked, 2);
	assert_int_equal(asked_of_sm[3], SA_DELETE);
	hears = NULL;
}

static uint8_t answer_status;

static void manager_answers_to(const uint8_t question[MAD_LEN])
{
	memcpy(asked_of_sm, question, MAD_LEN);
	put_be16(asked_of_sm + 4, answer_status);
	manager_answers();
}

/* The SA would see the other's join first, and then the port leave. */
static void leaving_does_not_overtake_anothers_join(void **state)
{
	struct program a, c;
	uint8_t set[MAD_LEN];

	ask_the_manager();
	attach(&a, 0, SLOT_A);
	attach(&c, 0, SLOT_C);
	for (answer_status = 0; answer_status < 2; answer_status++) {
		join(&a);
		ask_member(&c, MAD_METHOD_SET, NULL); /* on its way */
		memcpy(set, asked_of_sm, MAD_LEN);
		nasked = 0;
		ask_member(&a, SA_DELETE, NULL);
		assert_int_equal(nasked, 0);
		assert_true(got_answer(&a, 5));
		manager_answers_to(set);
		assert_true(got_answer(&c, 5));
		if (!answer_status)
			ask_member(&c, SA_DELETE, NULL);
		assert_int_equal(nasked, 1); /* refused, it leaves at once */
		assert_int_equal(asked_of_sm[3], SA_DELETE);
		manager_answers();
		assert_int_equal(trunk_has_packet(&c.rx), !answer_status);
		assert_int_equal(got_answer(&c, 5), !answer_status);
	}
	leave(&a);
	leave(&c);
	assert_int_equal(nasked, 1);
	answer_status = 0;
	hears = NULL;
}

/* The SA may see the leave once more, behind the join: it is repeated when no answer comes in time. */
static void join_waits_until_the_port_has_left(void **state)
{
	struct program a, c;
	uint8_t left[MAD_LEN];

	ask_the_manager();
	attach(&a, 0, SLOT_A);
	attach(&c, 0, SLOT_C);
	join(&a);
	nasked = 0;
	ask_member(&a, SA_DELETE, NULL);
	memcpy(left, asked_of_sm, MAD_LEN);
	ask_member(&c, MAD_METHOD_SET, NULL);
	assert_int_equal(nasked, 1);
	manager_answers_to(left);
	assert_true(got_answer(&a, 5));
	assert_int_equal(nasked, 2);
	assert_int_equal(asked_of_sm[3], MAD_METHOD_SET);
	manager_answers();
	assert_true(got_answer(&c, 5));
	leave(&a);
	assert_int_equal(nasked, 2);
	leave(&c);
	assert_int_equal(nasked, 3);
	hears = NULL;
}

static void groups_are_joined_again_for_a_new_manager(void **state)
{
	struct subnet_port *at = subnet_port(d.topo.host[0].hca[0], 1);
	struct program a, c;

	ask_the_manager();
	attach(&a, 0, SLOT_A);
	attach(&c, 0, SLOT_C);
	join(&a);
	join(&c);
	nasked = 0;
	attach_changed(&d, at, SUBNET_REREGISTER);
	assert_int_equal(nasked, 1); /* the port is one member */
	assert_int_equal(asked_of_sm[3], MAD_METHOD_SET);
	manager_answers();
	assert_false(trunk_has_packet(&a.rx) || trunk_has_packet(&c.rx));
	leave(&a);
	assert_int_equal(nasked, 1);
	leave(&c);
	assert_int_equal(nasked, 2);
	hears = NULL;
}

static void nobody_joins_for_another_port_or_too_often(void **state)
{
	const uint8_t another[16] = {0xfe, 0x80, [15] = 9};
	struct program a;

	ask_the_manager();
	attach(&a, 0, SLOT_A);
	ask_member(&a, MAD_METHOD_SET, another);
	ask_member(&a, SA_DELETE, NULL);
	assert_int_equal(d.attach->count.refused, 2);
	a.conn->ngroups = ATTACH_GROUPS;
	ask_member(&a, MAD_METHOD_SET, NULL);
	assert_int_equal(d.attach->count.refused, 3);
	a.conn->ngroups = 0;
	as = JOIN_SEND_ONLY; /* the port would not receive then, for whoever joins with it */
	ask_member(&a, MAD_METHOD_SET, NULL);
	as = JOIN_FULL;
	assert_int_equal(d.attach->count.refused, 4);
	assert_int_equal(nasked, 0);
	leave(&a);
	hears = NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(request_reaches_who_listens, begin, end),
		cmocka_unit_test_setup_teardown(listener_is_one_programs_until_it_dies, begin, end),
		cmocka_unit_test_setup_teardown(listener_by_gid_gets_what_is_for_its_port, begin, end),
		cmocka_unit_test_setup_teardown(listeners_beyond_the_bound_are_refused, begin, end),
		cmocka_unit_test_setup_teardown(each_family_has_a_listener_of_its_own, begin, end),
		cmocka_unit_test_setup_teardown(answer_goes_to_the_slot_of_its_id, begin, end),
		cmocka_unit_test_setup_teardown(peers_of_the_dead_are_answered, begin, end),
		cmocka_unit_test_setup_teardown(who_gives_up_is_heard_by_who_got_the_request, begin, end),
		cmocka_unit_test_setup_teardown(what_is_not_its_own_a_program_cannot_send, begin, end),
		cmocka_unit_test_setup_teardown(answer_of_the_sa_goes_to_who_asked, begin, end),
		cmocka_unit_test_setup_teardown(answer_in_the_managers_name_is_not_heard, begin, end),
		cmocka_unit_test_setup_teardown(what_connections_do_not_need_is_not_asked, begin, end),
		cmocka_unit_test_setup_teardown(question_without_an_answer_is_forgotten, begin, end),
		cmocka_unit_test_setup_teardown(port_leaves_a_group_with_its_last_program, begin, end),
		cmocka_unit_test_setup_teardown(join_of_a_program_that_died_is_taken_back, begin, end),
		cmocka_unit_test_setup_teardown(leaving_does_not_overtake_anothers_join, begin, end),
		cmocka_unit_test_setup_teardown(join_waits_until_the_port_has_left, begin, end),
		cmocka_unit_test_setup_teardown(groups_are_joined_again_for_a_new_manager, begin, end),
		cmocka_unit_test_setup_teardown(nobody_joins_for_another_port_or_too_often, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
