/* SPDX-License-Identifier: MIT */
/*
 * Any MADs, from the peer's address and others', into a connection manager that has connections in all
 * states. The input is a sequence of records: a MAD (as it is, or made to fit one of the connections, so that
 * it gets past the ids), something the user does, or time that passes. In the end everybody lets go, and
 * nothing may be left.
 */
#include "cm/ib/conn.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 16, PORT = 7174, ROOM = 64, PEER = 2, STRANGER = 9, PEER_ID = 0x10000, PEER_QPN = 0x200 };

/* What is done to the bytes of a MAD */
enum { FIT_HEADER = 1, FIT_ATTR = 2, FIT_IDS = 4, FIT_QPN = 8, FROM_STRANGER = 16, FIT_SERVICE = 32 };

static struct cm_core core;
static struct cm_link *buckets[CM_INDEXES * BUCKETS];
static struct cm_conn *conn[ROOM]; /* each in a block of its own, freed when it is gone */
static unsigned count, sent;
static uint32_t draws;
static uint64_t now;

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* ---- what the core calls ---- */
static void on_send(void *arg, const struct cm_path *path, const uint8_t mad[MAD_LEN])
{
	struct cm_msg m;

	sent++;
	must(cm_msg_parse(mad, MAD_LEN, &m));
	must(path->remote[15] == PEER || path->remote[15] == STRANGER);
}

static void on_event(void *arg, struct cm_conn *c, const struct cm_event *e)
{
	unsigned i = (unsigned)(uintptr_t)c->user;

	must(i < ROOM && conn[i] == c);
	must(!c->abandoned || e->type == CM_EV_GONE);
	if (e->type == CM_EV_GONE) {
		must(c->state == CM_S_IDLE);
		free(c);
		conn[i] = NULL;
	}
}

static struct cm_conn *room(void)
{
	struct cm_conn *c;

	if (count == ROOM)
		return NULL;
	c = malloc(sizeof(*c));
	memset(c, 0xa5, sizeof(*c));
	c->user = (void *)(uintptr_t)count;
	return conn[count++] = c;
}

static struct cm_conn *on_incoming(void *arg, struct cm_conn *listener, const struct cm_path *path,
	const struct cm_msg *m, uint16_t *refuse)
{
	*refuse = m->priv[CM_IP_LEN] == 0xee ? m->priv[CM_IP_LEN + 1] : 0;
	return *refuse ? NULL : room();
}

static uint32_t on_random(void *arg)
{
	return draws += 0x9e3779b1;
}

/* ---- connections in all states ---- */
static struct cm_path from(uint8_t address)
{
	return (struct cm_path){.local = {[15] = 1}, .remote = {[15] = address}};
}

static void hear(struct cm_msg m)
{
	struct cm_path path = from(PEER);
	uint8_t mad[MAD_LEN];

	cm_msg_pack(&m, mad);
	cm_receive(&core, &path, mad, MAD_LEN, now);
}

static struct cm_msg a_req(enum cm_port_space ps)
{
	struct cm_msg m = {.attr = CM_REQ};

	m.req.service_id = cm_service_id(ps, PORT);
	m.req.mtu = 3;
	m.req.max_cm_retries = 2;
	m.req.qpn = 0x100 + count;
	return m;
}

/* How far a connection is brought. */
enum step { REQUESTED, DELAYED, REPLIED, PREPARED, JOINED, LEAVING, LEFT };

static void make_active(enum step until)
{
	struct cm_path path = from(PEER);
	uint32_t id = PEER_ID + count;
	struct cm_conn *c = room();
	struct cm_msg m = a_req(CM_PS_TCP);

	cm_connect(&core, c, &path, &m, now);
	if (until == DELAYED)
		hear((struct cm_msg){.attr = CM_MRA, .local_id = id, .remote_id = c->local_id});
	if (until >= REPLIED)
		hear((struct cm_msg){.attr = CM_REP,
			.local_id = id,
			.remote_id = c->local_id,
			.rep.qpn = PEER_QPN + id - PEER_ID});
	if (until == PREPARED)
		cm_prepare_mra(&core, c, CM_MRA_TIMEOUT);
	if (until >= JOINED)
		cm_establish(&core, c, NULL, 0);
	if (until >= LEAVING)
		cm_disconnect(&core, c, NULL, 0, now);
	if (until >= LEFT)
		hear((struct cm_msg){.attr = CM_DREP, .local_id = id, .remote_id = c->local_id});
}

static void make_passive(enum step until)
{
	struct cm_msg m = a_req(CM_PS_TCP), rep = {.rep.qpn = 0x100 + count};
	unsigned i = count;
	uint32_t id = m.local_id = PEER_ID + count;

	m.req.qpn = PEER_QPN + count;
	hear(m);
	if (until == DELAYED)
		cm_prepare_mra(&core, conn[i], CM_MRA_TIMEOUT);
	if (until >= REPLIED)
		cm_accept(&core, conn[i], &rep, now);
	if (until == PREPARED)
		hear((struct cm_msg){.attr = CM_MRA,
			.local_id = id,
			.remote_id = conn[i]->local_id,
			.mra.about = CM_ABOUT_REP});
	if (until >= JOINED)
		hear((struct cm_msg){.attr = CM_RTU, .local_id = id, .remote_id = conn[i]->local_id});
	if (until >= LEAVING)
		hear((struct cm_msg){.attr = CM_DREQ,
			.local_id = id,
			.remote_id = conn[i]->local_id,
			.dreq.remote_qpn = conn[i]->local_qpn});
}

static void make_sidr(bool answered)
{
	struct cm_path path = from(PEER);
	struct cm_msg m = {.attr = CM_SIDR_REQ, .local_id = PEER_ID + count};
	unsigned i = count;

	m.sidr_req.service_id = cm_service_id(CM_PS_UDP, PORT);
	hear(m);
	if (answered)
		cm_sidr_reply(&core, conn[i], &m, now);
	m = (struct cm_msg){.sidr_req.service_id = cm_service_id(CM_PS_UDP, PORT)};
	cm_sidr_request(&core, room(), &path, &m, now);
}

static void begin(void)
{
	static const struct cm_ops ops = {on_send, on_event, on_incoming, on_random};
	uint32_t seen = 0;

	memset(buckets, 0, sizeof(buckets));
	count = draws = 0;
	now = 1;
	cm_core_init(&core, &ops, NULL, 5, 0xca, buckets, BUCKETS);
	must(!cm_listen(&core, room(), cm_service_id(CM_PS_TCP, PORT)));
	must(!cm_listen(&core, room(), cm_service_id(CM_PS_UDP, PORT)));
	for (enum step s = REQUESTED; s <= LEFT; s++)
		make_active(s);
	for (enum step s = REQUESTED; s <= LEAVING; s++)
		make_passive(s);
	make_sidr(false);
	make_sidr(true);
	for (unsigned i = 0; i < count; i++)
		seen |= 1u << conn[i]->state;
	must((seen | 1u << CM_S_IDLE) == (1u << CM_STATE_COUNT) - 1);
}

/* ---- records ---- */
static void fit(uint8_t *mad, uint8_t flags, const struct cm_conn *c)
{
	uint8_t *body = mad + MAD_HDR_LEN;

	if (flags & FIT_ATTR)
		put_be16(mad + 16, (uint16_t)(CM_REQ + mad[17] % 11));
	if (flags & FIT_HEADER)
		memcpy(mad,
			(const uint8_t[]){MAD_BASE_VERSION, MAD_CLASS_CM, CM_CLASS_VERSION, MAD_METHOD_SEND},
			4);
	if (flags & FIT_SERVICE)
		put_be64(body + 8, cm_service_id(mad[17] == CM_REQ ? CM_PS_TCP : CM_PS_UDP, PORT));
	if (!c)
		return;
	if (flags & FIT_IDS) {
		put_be32(body, mad[17] == CM_SIDR_REP ? c->local_id : c->remote_id ? c->remote_id : PEER_ID);
		if (mad[17] != CM_REQ && mad[17] != CM_SIDR_REQ && mad[17] != CM_SIDR_REP)
			put_be32(body + 4, c->local_id);
	}
	if (flags & FIT_QPN)
		put_be24(body + (mad[17] == CM_DREQ         ? 8
					: mad[17] == CM_REQ ? 32
							    : 12),
			mad[17] == CM_DREQ ? c->local_qpn : c->remote_qpn);
}

static void receive(uint8_t flags, const struct cm_conn *c, const uint8_t *data, size_t len)
{
	struct cm_path path = from(flags & FROM_STRANGER ? STRANGER : PEER);
	uint8_t *mad = malloc(len ? len : 1); /* a block of its own, so that a read past the end is seen */
	uint64_t service;

	memcpy(mad, data, len);
	if (len == MAD_LEN)
		fit(mad, flags, c);
	sent = 0;
	must(cm_owner(mad, len, &service) < 512);
	cm_receive(&core, &path, mad, len, now);
	must(sent <= 2); /* a REJ and the DREQ of a stale connection: nobody is flooded in our name */
	free(mad);
}

static void act(uint8_t what, struct cm_conn *c)
{
	struct cm_msg m = {.rep.qpn = 0x300};
	uint8_t priv[CM_PRIV_MAX + 1] = {0};

	if (!c || c->abandoned)
		return;
	switch (what % 8) {
	case 0:
		cm_accept(&core, c, &m, now);
		break;
	case 1:
		cm_establish(&core, c, priv, what);
		break;
	case 2:
		cm_reject(&core, c, what, priv, what >> 2, priv, what, now);
		break;
	case 3:
		cm_disconnect(&core, c, priv, what, now);
		break;
	case 4:
		cm_prepare_mra(&core, c, what >> 3);
		break;
	case 5:
		cm_data_came(&core, c);
		break;
	case 6:
		cm_sidr_reply(&core, c, &m, now);
		break;
	default:
		cm_abandon(&core, c, now);
	}
}

static void pass_time(void)
{
	if (cm_deadline(&core) == UINT64_MAX)
		return;
	must(cm_deadline(&core) >= now);
	now = cm_deadline(&core);
	cm_expire(&core, now);
}

static void end(void)
{
	for (unsigned i = 0; i < count; i++)
		if (conn[i] && !conn[i]->abandoned)
			cm_abandon(&core, conn[i], now);
	while (cm_deadline(&core) != UINT64_MAX)
		pass_time();
	for (unsigned i = 0; i < count; i++)
		must(!conn[i]);
	for (int index = 0; index < CM_INDEXES; index++)
		must(!core.table.count[index]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	begin();
	while (size >= 3) {
		uint8_t kind = data[0] & 3, detail = data[1];
		struct cm_conn *c = conn[data[2] % ROOM];

		data += 3;
		size -= 3;
		if (kind == 2) {
			act(detail, c);
		} else if (kind == 3) {
			pass_time();
		} else {
			size_t len = size < MAD_LEN ? size : MAD_LEN;

			receive(detail, c, data, len);
			data += len;
			size -= len;
		}
	}
	end();
	return 0;
}
