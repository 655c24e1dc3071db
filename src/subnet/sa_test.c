/* SPDX-License-Identifier: MIT */
#include "subnet/sm_stage_test.h"

#include "subnet/sa.h"
#include "wire/notice.h"
#include "wire/rmpp.h"

/* ---- asking ---- */
static const uint8_t *answer;
static size_t answer_len;

/* The status; what came is in `answer`. */
static uint16_t ask_as(const struct subnet_port *who, uint8_t method, uint16_t attr, uint64_t mask,
	const void *data, size_t len, uint64_t key)
{
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_SA, SA_CLASS_VERSION, method, 0, 0, 0x99, attr, 0};
	uint8_t mad[MAD_LEN] = {0};

	mad_hdr_put(mad, &h);
	put_be64(mad + SA_SM_KEY, key);
	put_be64(mad + SA_MASK, mask);
	memcpy(mad + SA_DATA, data, len);
	answer_len = subnet_sa_answer(sm, who->shared->lid, mad, sizeof(mad), t.now, &answer);
	assert_true(answer_len >= SA_DATA);
	assert_int_equal(get_be64(answer + 8), 0x99);
	return get_be16(answer + 4);
}

static uint16_t ask(uint8_t method, uint16_t attr, uint64_t mask, const void *data, size_t len)
{
	return ask_as(host("node2"), method, attr, mask, data, len, 0);
}

static unsigned table_of(uint16_t attr, uint64_t mask, const void *data, size_t len)
{
	assert_int_equal(ask(SA_GET_TABLE, attr, mask, data, len), 0);
	assert_int_equal(answer[3], SA_GET_TABLE_RESP);
	assert_true(rmpp_is_active(answer));
	return (unsigned)((answer_len - SA_DATA) / (8u * get_be16(answer + SA_ATTR_OFFSET)));
}

static void gid_of(const struct subnet_port *p, uint8_t gid[16])
{
	put_be64(gid, p->shared->prefix);
	put_be64(gid + 8, p->guid);
}

static void up(const char *spec)
{
	open_spec(spec);
	subnet_sm_take(sm, t.now);
}

/* ---- the subnet's own records ---- */
static void tables_have_all_records(void **state)
{
	uint8_t none[200] = {0};

	up("star:4");
	assert_int_equal(table_of(SA_NODE, 0, none, 0), 5);
	assert_int_equal(table_of(SA_PORT_INFO, 0, none, 0), 9);
	assert_int_equal(table_of(SA_SWITCH_INFO, 0, none, 0), 1);
	assert_int_equal(table_of(SA_SM_INFO, 0, none, 0), 1);
	assert_int_equal(table_of(SA_LINK, 0, none, 0), 8);
	assert_int_equal(table_of(SA_PATH, 0, none, 0), 25);
	assert_int_equal(table_of(SA_MC_MEMBER, 0, none, 0), 1);
	assert_int_equal(table_of(SA_SERVICE, 0, none, 0), 0);
	close_spec();
}

static void components_choose(void **state)
{
	uint8_t data[200] = {0};

	up("star:4");
	put_be16(data, 3);
	assert_int_equal(ask(MAD_METHOD_GET, SA_NODE, 1, data, 2), 0);
	assert_int_equal(answer[3], MAD_METHOD_GET_RESP);
	assert_int_equal(answer_len, MAD_LEN);
	assert_int_equal(get_be16(answer + SA_DATA), 3);
	assert_string_equal((const char *)answer + SA_DATA + 44, "node3");
	assert_int_equal(ask(MAD_METHOD_GET, SA_NODE, 0, data, 2), SA_TOO_MANY);
	put_be16(data, 4711);
	assert_int_equal(ask(MAD_METHOD_GET, SA_NODE, 1, data, 2), SA_NO_RECORDS);
	assert_int_equal(table_of(SA_NODE, 1, data, 2), 0);
	close_spec();
}

static void what_it_does_not_know_is_refused(void **state)
{
	uint8_t none[200] = {0};
	uint8_t mad[MAD_LEN] = {MAD_BASE_VERSION, MAD_CLASS_SA, SA_CLASS_VERSION, MAD_METHOD_GET_RESP};

	up("star:4");
	assert_int_equal(ask(MAD_METHOD_GET, 0x4711, 0, none, 0), MAD_STATUS_NO_ATTRIBUTE);
	assert_int_equal(ask(MAD_METHOD_SET, SA_NODE, 0, none, 0), MAD_STATUS_NO_ATTRIBUTE);
	assert_int_equal(subnet_sa_answer(sm, 2, mad, MAD_LEN, t.now, &answer), 0); /* no question */
	mad[3] = MAD_METHOD_GET;
	assert_int_equal(subnet_sa_answer(sm, 2, mad, SA_DATA - 1, t.now, &answer), 0);
	mad[2] = 1;
	assert_int_equal(subnet_sa_answer(sm, 2, mad, MAD_LEN, t.now, &answer), MAD_LEN);
	assert_int_equal(get_be16(answer + 4), MAD_STATUS_BAD_VERSION);
	subnet_sm_step_aside(sm, t.now);
	assert_int_equal(subnet_sa_answer(sm, 2, mad, MAD_LEN, t.now, &answer), 0);
	close_spec();
}

/* ---- paths ---- */
static uint16_t path_between(const char *from, const char *to, uint64_t mask, struct sa_path *want)
{
	uint8_t data[64];
	uint16_t status;

	gid_of(host(from), want->sgid);
	gid_of(host(to), want->dgid);
	sa_path_put(data, want);
	status = ask(MAD_METHOD_GET, SA_PATH, mask | PATH_SGID | PATH_DGID, data, sizeof(data));
	*want = sa_path_get(answer + SA_DATA);
	return status;
}

static void a_path_has_what_its_links_carry(void **state)
{
	struct sa_path p = {.numb = 1};

	up("fat-tree:4");
	assert_int_equal(path_between("node1", "node16", PATH_NUMB, &p), 0);
	assert_int_equal(p.slid, host("node1")->shared->lid);
	assert_int_equal(p.dlid, host("node16")->shared->lid);
	assert_int_equal(p.mtu & 0x3f, 5);
	assert_int_equal(p.rate & 0x3f, 17); /* 4x HDR */
	assert_int_equal(p.pkey, PKEY_DEFAULT);
	assert_true(p.reversible);
	close_spec();
}

static void selectors_make_paths_smaller(void **state)
{
	struct sa_path p = {.mtu = SA_EXACTLY << 6 | 3};

	up("star:4");
	assert_int_equal(path_between("node1", "node2", PATH_MTU_SELECTOR | PATH_MTU, &p), 0);
	assert_int_equal(p.mtu & 0x3f, 3);
	p = (struct sa_path){.mtu = SA_LESS << 6 | 5, .rate = SA_LESS << 6 | 17};
	assert_int_equal(path_between("node1", "node2",
				 PATH_MTU_SELECTOR | PATH_MTU | PATH_RATE_SELECTOR | PATH_RATE, &p),
		0);
	assert_int_equal(p.mtu & 0x3f, 4);
	assert_int_equal(p.rate & 0x3f, 14); /* 168 Gb/s */
	p = (struct sa_path){.mtu = SA_GREATER << 6 | 5};
	assert_int_equal(path_between("node1", "node2", PATH_MTU_SELECTOR | PATH_MTU, &p), SA_NO_RECORDS);
	close_spec();
}

static void no_path_to_whom_there_is_none(void **state)
{
	struct sa_path p = {0};
	uint8_t data[64] = {0};

	up("star:4");
	subnet_cut(host("node3"), t.now);
	subnet_sm_run(sm, t.now);
	assert_int_equal(path_between("node1", "node3", 0, &p), SA_NO_RECORDS);
	put_be64(data + 8, 0xfe80000000000000ull);
	put_be64(data + 16, 0x4711);
	assert_int_equal(ask(MAD_METHOD_GET, SA_PATH, PATH_DGID, data, sizeof(data)), SA_INVALID_GID);
	assert_int_equal(ask(MAD_METHOD_GET, SA_PATH, 0, data, sizeof(data)), SA_FEW_COMPONENTS);
	close_spec();
}

/* ---- groups ---- */
enum {
	CREATE = MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE | MEMBER_QKEY | MEMBER_PKEY | MEMBER_SL |
		 MEMBER_FLOW_LABEL | MEMBER_TCLASS,
	JOIN = MEMBER_MGID | MEMBER_PORT_GID | MEMBER_JOIN_STATE,
};
static const uint8_t mgid[16] = {0xff, 0x12, 0x60, 0x1b, [15] = 7};

static uint16_t member(uint8_t method, const char *who, uint64_t mask, uint8_t join, struct sa_member *out)
{
	struct sa_member m = {.qkey = 0x1234, .pkey = PKEY_DEFAULT, .join = join};
	uint8_t data[52];
	uint16_t status;

	memcpy(m.mgid, mgid, 16);
	gid_of(host(who), m.port_gid);
	sa_member_put(data, &m);
	status = ask_as(host(who), method, SA_MC_MEMBER, mask, data, sizeof(data), 0);
	if (out)
		*out = sa_member_get(answer + SA_DATA);
	return status;
}

/* How many ports a packet to the group reaches. */
static unsigned reached(const char *from, uint16_t mlid)
{
	unsigned before = t.arrived;

	stage_data(&t, host(from), mlid, PKEY_DEFAULT, 0, 64);
	return t.arrived - before;
}

static void who_joins_first_makes_the_group(void **state)
{
	struct sa_member m;

	up("fat-tree:4");
	assert_int_equal(member(MAD_METHOD_SET, "node1", JOIN, JOIN_FULL, NULL), SA_FEW_COMPONENTS);
	assert_int_equal(member(MAD_METHOD_SET, "node1", CREATE, JOIN_NON, NULL), SA_INVALID);
	assert_int_equal(member(MAD_METHOD_SET, "node1", CREATE, JOIN_FULL, &m), 0);
	assert_int_equal(m.mlid, 0xc001); /* the first is the broadcast group's */
	assert_int_equal(m.join, JOIN_FULL);
	assert_int_equal(m.scope, 2);
	assert_int_equal(m.qkey, 0x1234);
	assert_int_equal(member(MAD_METHOD_SET, "node6", JOIN, JOIN_FULL, &m), 0);
	assert_int_equal(m.mlid, 0xc001);
	assert_int_equal(m.qkey, 0x1234);
	assert_int_equal(member(MAD_METHOD_SET, "node16", JOIN, JOIN_FULL, NULL), 0);
	assert_int_equal(reached("node1", m.mlid), 2);
	assert_int_equal(reached("node6", m.mlid), 2);
	close_spec();
}

static void who_only_sends_gets_nothing(void **state)
{
	up("fat-tree:4");
	member(MAD_METHOD_SET, "node1", CREATE, JOIN_FULL, NULL);
	member(MAD_METHOD_SET, "node16", JOIN, JOIN_FULL, NULL);
	assert_int_equal(member(MAD_METHOD_SET, "node9", JOIN, JOIN_SEND_ONLY, NULL), 0);
	assert_int_equal(reached("node9", 0xc001), 2);
	assert_int_equal(reached("node1", 0xc001), 1);
	close_spec();
}

static void the_last_one_takes_the_group_away(void **state)
{
	struct sa_member m;

	up("star:4");
	member(MAD_METHOD_SET, "node1", CREATE, JOIN_FULL, NULL);
	member(MAD_METHOD_SET, "node2", JOIN, JOIN_FULL | JOIN_NON, NULL);
	assert_int_equal(member(SA_DELETE, "node3", JOIN, JOIN_FULL, NULL), SA_INVALID);
	assert_int_equal(member(SA_DELETE, "node1", JOIN, JOIN_FULL, NULL), 0);
	assert_int_equal(answer[3], SA_DELETE_RESP);
	assert_int_equal(reached("node3", 0xc001), 1);
	assert_int_equal(member(SA_DELETE, "node2", JOIN, JOIN_NON, &m), 0);
	assert_int_equal(m.join, JOIN_FULL);
	assert_int_equal(member(SA_DELETE, "node2", JOIN, JOIN_FULL, NULL), 0);
	assert_int_equal(reached("node3", 0xc001), 0);
	assert_int_equal(table_of(SA_MC_MEMBER, 0, &m, 0), 1);
	assert_int_equal(member(MAD_METHOD_SET, "node4", JOIN, JOIN_FULL, NULL), SA_FEW_COMPONENTS);
	close_spec();
}

static void members_must_agree(void **state)
{
	struct sa_member m = {.qkey = 0x4321, .pkey = PKEY_DEFAULT, .join = JOIN_FULL};
	uint8_t data[52];

	up("star:4");
	member(MAD_METHOD_SET, "node1", CREATE, JOIN_FULL, NULL);
	memcpy(m.mgid, mgid, 16);
	gid_of(host("node2"), m.port_gid);
	sa_member_put(data, &m);
	assert_int_equal(ask(MAD_METHOD_SET, SA_MC_MEMBER, CREATE, data, sizeof(data)), SA_INVALID);
	gid_of(host("node3"), m.port_gid); /* for another one */
	sa_member_put(data, &m);
	assert_int_equal(ask(MAD_METHOD_SET, SA_MC_MEMBER, JOIN, data, sizeof(data)), SA_DENIED);
	assert_int_equal(ask_as(host("node2"), MAD_METHOD_SET, SA_MC_MEMBER, JOIN, data, sizeof(data), 1), 0);
	close_spec();
}

static void a_group_survives_a_cut(void **state)
{
	up("fat-tree:4");
	member(MAD_METHOD_SET, "node1", CREATE, JOIN_FULL, NULL);
	member(MAD_METHOD_SET, "node6", JOIN, JOIN_FULL, NULL);
	member(MAD_METHOD_SET, "node16", JOIN, JOIN_FULL, NULL);
	for (unsigned k = 1; k <= 4; k++) { /* all but one of the cables between switches here */
		struct subnet_port *p = subnet_port(host("node1")->peer->node, k);

		if (p->peer->node->type != SUBNET_SWITCH)
			continue;
		subnet_cut(p, t.now);
		subnet_sm_run(sm, t.now);
		assert_int_equal(reached("node1", 0xc001), 2);
		subnet_mend(p, t.now);
		subnet_sm_run(sm, t.now);
	}
	subnet_cut(host("node6"), t.now);
	subnet_sm_run(sm, t.now);
	assert_int_equal(reached("node1", 0xc001), 1);
	subnet_mend(host("node6"), t.now);
	subnet_sm_run(sm, t.now);
	assert_int_equal(reached("node1", 0xc001), 1); /* it has to join again, and was told so */
	close_spec();
}

static void groups_without_a_name_get_one(void **state)
{
	struct sa_member m = {.qkey = 1, .pkey = PKEY_DEFAULT, .join = JOIN_FULL};
	uint8_t data[52], first[16];

	up("star:4");
	gid_of(host("node2"), m.port_gid);
	sa_member_put(data, &m);
	assert_int_equal(ask(MAD_METHOD_SET, SA_MC_MEMBER, CREATE, data, sizeof(data)), 0);
	memcpy(first, answer + SA_DATA, 16);
	assert_int_equal(first[0], 0xff);
	assert_int_equal(get_be16(first + 2), 0xa01b);
	assert_int_equal(ask(MAD_METHOD_SET, SA_MC_MEMBER, CREATE, data, sizeof(data)), 0);
	assert_memory_not_equal(first, answer + SA_DATA, 16);
	memcpy(data, first, 16); /* one that nobody has made */
	data[15] = 99;
	assert_int_equal(ask(MAD_METHOD_SET, SA_MC_MEMBER, CREATE, data, sizeof(data)), SA_INVALID);
	close_spec();
}

/* ---- services ---- */
static void services_come_and_go(void **state)
{
	uint8_t v[176] = {0};

	up("star:4");
	put_be64(v + SERVICE_ID, 0x1234);
	gid_of(host("node2"), v + SERVICE_GID);
	put_be16(v + SERVICE_PKEY, PKEY_DEFAULT);
	put_be32(v + SERVICE_LEASE, 10);
	v[SERVICE_KEY] = 9;
	assert_int_equal(ask(MAD_METHOD_SET, SA_SERVICE, 1, v, sizeof(v)), SA_FEW_COMPONENTS);
	assert_int_equal(ask(MAD_METHOD_SET, SA_SERVICE, 7, v, sizeof(v)), 0);
	assert_int_equal(ask(MAD_METHOD_GET, SA_SERVICE, 1, v, sizeof(v)), 0);
	assert_int_equal(answer[SA_DATA + SERVICE_KEY], 0); /* a secret */
	v[SERVICE_KEY] = 8;
	assert_int_equal(ask(SA_DELETE, SA_SERVICE, 0x17, v, sizeof(v)), SA_NO_RECORDS);
	v[SERVICE_KEY] = 9;
	assert_int_equal(ask(SA_DELETE, SA_SERVICE, 7, v, sizeof(v)), 0);
	assert_int_equal(ask(MAD_METHOD_GET, SA_SERVICE, 1, v, sizeof(v)), SA_NO_RECORDS);
	assert_int_equal(ask(MAD_METHOD_SET, SA_SERVICE, 7, v, sizeof(v)), 0);
	t.now += 9999999999ull;
	assert_int_equal(table_of(SA_SERVICE, 0, v, 0), 1);
	t.now += 1;
	assert_int_equal(table_of(SA_SERVICE, 0, v, 0), 0);
	close_spec();
}

/* ---- subscriptions ---- */
static void subscribe(bool on, uint16_t trap, uint16_t status)
{
	uint8_t i[36] = {0};

	put_be16(i + 16, 0xffff);
	i[22] = 1;
	i[23] = on;
	put_be16(i + 24, 0xffff);
	put_be16(i + 26, trap);
	put_be32(i + 32, 0xffffff);
	assert_int_equal(ask(MAD_METHOD_SET, SA_INFORM_INFO, 0, i, sizeof(i)), status);
}

static void subscribers_are_told(void **state)
{
	struct sa_report r;
	uint8_t gid[16];

	up("star:4");
	while (subnet_sa_next_report(sm, &r))
		;
	subscribe(false, TRAP_GID_OUT, SA_INVALID);
	subscribe(true, TRAP_GID_OUT, 0);
	subnet_cut(host("node3"), t.now);
	subnet_sm_run(sm, t.now);
	assert_true(subnet_sa_next_report(sm, &r));
	assert_int_equal(r.lid, 2);
	assert_int_equal(r.mad[3], SA_REPORT);
	assert_int_equal(notice_trap(r.mad + SA_DATA), TRAP_GID_OUT);
	gid_of(host("node3"), gid);
	assert_memory_equal(r.mad + SA_DATA + NOTICE_DETAILS + 6, gid, 16);
	assert_false(subnet_sa_next_report(sm, &r));
	subnet_mend(host("node3"), t.now);
	subnet_sm_run(sm, t.now);
	assert_false(subnet_sa_next_report(sm, &r)); /* that is another trap */
	subscribe(false, TRAP_GID_OUT, 0);
	subnet_cut(host("node3"), t.now);
	subnet_sm_run(sm, t.now);
	assert_false(subnet_sa_next_report(sm, &r));
	close_spec();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_have_all_records),
		cmocka_unit_test(components_choose),
		cmocka_unit_test(what_it_does_not_know_is_refused),
		cmocka_unit_test(a_path_has_what_its_links_carry),
		cmocka_unit_test(selectors_make_paths_smaller),
		cmocka_unit_test(no_path_to_whom_there_is_none),
		cmocka_unit_test(who_joins_first_makes_the_group),
		cmocka_unit_test(who_only_sends_gets_nothing),
		cmocka_unit_test(the_last_one_takes_the_group_away),
		cmocka_unit_test(members_must_agree),
		cmocka_unit_test(a_group_survives_a_cut),
		cmocka_unit_test(groups_without_a_name_get_one),
		cmocka_unit_test(services_come_and_go),
		cmocka_unit_test(subscribers_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
