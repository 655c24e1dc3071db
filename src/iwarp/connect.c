/* SPDX-License-Identifier: MIT */
#include "iwarp/connect.h"

#include "base/asserts.h"
#include "base/log.h"
#include "observe/probe.h"

static uint16_t least(uint16_t a, uint16_t b)
{
	return a < b ? a : b;
}

uint32_t iwarp_private_max(uint8_t revision)
{
	return revision >= 2 ? MPA_PRIVATE_MAX - MPA_V2_LEN : MPA_PRIVATE_MAX;
}

static bool is_enhanced(const struct mpa_frame *f)
{
	return f->revision >= 2 && (f->flags & MPA_ENHANCED);
}

/* ---- states ---- */
static const char *const names[] = {
	[CONNECT_IDLE] = "IDLE",
	[CONNECT_ASKING] = "ASKING",
	[CONNECT_AWAITING] = "AWAITING",
	[CONNECT_ASKED] = "ASKED",
	[CONNECT_ANSWERING] = "ANSWERING",
	[CONNECT_UPGRADE_WAIT] = "UPGRADE_WAIT",
	[CONNECT_UPGRADE_READY] = "UPGRADE_READY",
	[CONNECT_UPGRADE_SENDING] = "UPGRADE_SENDING",
	[CONNECT_DONE] = "DONE",
	[CONNECT_REFUSED] = "REFUSED",
	[CONNECT_BROKEN] = "BROKEN",
};

#define FROM(state) (1u << CONNECT_##state)

/* Where one can come from: the picture in connect.h. */
static const unsigned from[] = {
	[CONNECT_ASKING] = FROM(IDLE),
	[CONNECT_AWAITING] = FROM(IDLE),
	[CONNECT_ASKED] = FROM(AWAITING),
	[CONNECT_ANSWERING] = FROM(ASKED) | FROM(AWAITING), /* a request that is refused by itself */
	[CONNECT_UPGRADE_WAIT] = FROM(ASKING) | FROM(ANSWERING) | FROM(UPGRADE_SENDING),
	[CONNECT_UPGRADE_READY] = FROM(UPGRADE_WAIT),
	[CONNECT_UPGRADE_SENDING] = FROM(UPGRADE_READY),
	[CONNECT_DONE] = FROM(ASKING) | FROM(ANSWERING) | FROM(UPGRADE_WAIT) | FROM(UPGRADE_SENDING),
	[CONNECT_REFUSED] = FROM(ASKING) | FROM(ANSWERING),
	[CONNECT_BROKEN] = FROM(DONE) - 1, /* all before it */
};

static void set_state(struct iwarp_connect *c, enum iwarp_connect_state state)
{
	assert_that(from[state] >> c->state & 1);
	PROBE(MPA_STATE, .from = names[c->state], .to = names[state]);
	c->state = state;
}

static void broken(struct iwarp_connect *c, enum rdmap_error error)
{
	PROBE(MPA_ERROR, .error = rdmap_errors[error].text);
	c->error = error;
	set_state(c, CONNECT_BROKEN);
}

/* ---- frames of ours ---- */
static bool put_frame(struct iwarp_connect *c, struct mpa_frame f, const struct mpa_v2 *v2,
	const void *private_data, uint32_t len)
{
	uint8_t *p = c->out + MPA_FRAME_LEN;

	if (len > (v2 ? MPA_PRIVATE_MAX - MPA_V2_LEN : MPA_PRIVATE_MAX))
		return false;
	if (v2) {
		f.flags |= MPA_ENHANCED;
		mpa_v2_put(p, v2);
		p += MPA_V2_LEN;
	}
	if (len)
		memcpy(p, private_data, len);
	f.private_len = (uint16_t)(len + (v2 ? MPA_V2_LEN : 0));
	mpa_frame_put(c->out, &f);
	c->out_len = MPA_FRAME_LEN + f.private_len;
	c->out_sent = 0;
	return true;
}

static uint8_t flags_of(const struct iwarp_options *o)
{
	return (uint8_t)((o->crc ? MPA_CRC : 0) | (o->markers ? MPA_MARKERS : 0) |
			 (o->extended ? MPA_EXTENDED_ASK : 0) | (o->extended && o->memory ? MPA_MEMORY : 0));
}

static void put_upgrade(struct iwarp_connect *c)
{
	mpa_upgrade_put(c->out + c->out_len, &c->own);
	c->out_len += MPA_UPGRADE_LEN;
}

bool iwarp_connect_start(
	struct iwarp_connect *c, const struct iwarp_options *o, const void *private_data, uint32_t len)
{
	struct mpa_frame f = {.revision = o->revision, .flags = flags_of(o)};
	struct mpa_v2 v2 = {least(o->ird, MPA_DEPTH_MAX), least(o->ord, MPA_DEPTH_MAX), o->peer_to_peer,
		o->peer_to_peer ? o->rtr : 0};

	memset(c, 0, sizeof(*c));
	c->opt = *o;
	if (o->revision < 1 || o->revision > 2 || (o->peer_to_peer && (o->revision < 2 || !o->rtr)))
		return false;
	if (!put_frame(c, f, o->revision >= 2 ? &v2 : NULL, private_data, len))
		return false;
	set_state(c, CONNECT_ASKING);
	return true;
}

void iwarp_connect_await(struct iwarp_connect *c, const struct iwarp_options *o)
{
	memset(c, 0, sizeof(*c));
	c->opt = *o;
	set_state(c, CONNECT_AWAITING);
}

static bool answer(struct iwarp_connect *c, uint8_t flags, const struct mpa_v2 *v2, const void *private_data,
	uint32_t len)
{
	struct mpa_frame f = {.reply = true, .revision = c->peer.revision, .flags = flags};

	if (!put_frame(c, f, v2, private_data, len))
		return false;
	c->refusing = flags & MPA_REJECT;
	c->upgrades = flags & MPA_MEMORY;
	c->own.ok = true;
	if (c->upgrades)
		put_upgrade(c);
	set_state(c, CONNECT_ANSWERING);
	return true;
}

bool iwarp_connect_reject(struct iwarp_connect *c, const void *private_data, uint32_t len)
{
	struct mpa_v2 v2 = {0};

	return answer(c, MPA_REJECT | (c->opt.crc ? MPA_CRC : 0), is_enhanced(&c->peer) ? &v2 : NULL,
		private_data, len);
}

/* The one kind of RTR that both know, the cheapest for the initiator first; 0: none. */
static uint8_t choose_rtr(uint8_t offered, uint8_t ours)
{
	static const uint8_t order[] = {MPA_RTR_WRITE, MPA_RTR_READ, MPA_RTR_ZERO};

	for (unsigned i = 0; i < sizeof(order); i++) {
		if (offered & ours & order[i])
			return order[i];
	}
	return 0;
}

static bool refuse(struct iwarp_connect *c, enum rdmap_error why)
{
	log_info("MPA: a request is refused: %s", rdmap_errors[why].text);
	c->error = why;
	return iwarp_connect_reject(c, NULL, 0);
}

bool iwarp_connect_accept(
	struct iwarp_connect *c, uint16_t ird, uint16_t ord, const void *private_data, uint32_t len)
{
	struct iwarp_params *p = &c->params;
	struct mpa_v2 *v = &c->peer_v2, mine;

	*p = (struct iwarp_params){
		.revision = c->peer.revision,
		.crc = c->opt.crc || (c->peer.flags & MPA_CRC),
		.send_markers = c->peer.flags & MPA_MARKERS,
		.expect_markers = c->opt.markers,
		.extended = c->opt.extended && (c->peer.flags & MPA_EXTENDED_ASK),
		.ird = least(ird, MPA_DEPTH_MAX),
		.ord = least(ord, MPA_DEPTH_MAX),
	};
	if (p->send_markers && c->opt.no_markers)
		return refuse(c, ERR_LLP_FRAME);
	if (is_enhanced(&c->peer)) {
		p->peer_to_peer = v->peer_to_peer;
		p->rtr = v->peer_to_peer ? choose_rtr(v->rtr, c->opt.rtr) : 0;
		if (p->peer_to_peer && !p->rtr)
			return refuse(c, ERR_LLP_RTR);
		/* We send no more than it takes, and need no more room than it uses. */
		if (v->ird != MPA_DEPTH_UNTOLD)
			p->ord = least(p->ord, v->ird);
		if (v->ord != MPA_DEPTH_UNTOLD)
			p->ird = least(p->ird, v->ord);
		mine = (struct mpa_v2){p->ird, p->ord, p->peer_to_peer, p->rtr};
	}
	return answer(c,
		(uint8_t)((p->crc ? MPA_CRC : 0) | (p->expect_markers ? MPA_MARKERS : 0) |
			  (p->extended ? MPA_EXTENDED_YES : 0) |
			  (p->extended && c->opt.memory ? c->peer.flags & MPA_MEMORY : 0)),
		is_enhanced(&c->peer) ? &mine : NULL, private_data, len);
}

/* ---- frames of the peer ---- */
static void got_request(struct iwarp_connect *c)
{
	if (c->peer.revision < 1 || (c->peer.flags & MPA_REJECT))
		broken(c, ERR_LLP_FRAME);
	else if (c->peer.revision > c->opt.revision) {
		c->peer.revision = c->opt.revision; /* a refusal that says what we do speak */
		c->peer.flags &= (uint8_t)~MPA_ENHANCED;
		refuse(c, ERR_LLP_FRAME);
	} else
		set_state(c, CONNECT_ASKED);
}

/* Exactly one kind, and one that we offered. */
static bool is_choice(uint8_t chosen, uint8_t offered)
{
	return chosen && !(chosen & (chosen - 1)) && (chosen & offered);
}

static void got_reply(struct iwarp_connect *c)
{
	struct iwarp_params *p = &c->params;
	struct mpa_v2 *v = &c->peer_v2;

	if (c->peer.flags & MPA_REJECT) {
		set_state(c, CONNECT_REFUSED);
		return;
	}
	if (c->peer.revision != c->opt.revision || ((c->peer.flags & MPA_MARKERS) && c->opt.no_markers)) {
		broken(c, ERR_LLP_FRAME);
		return;
	}
	*p = (struct iwarp_params){
		.initiator = true,
		.revision = c->peer.revision,
		.crc = c->opt.crc || (c->peer.flags & MPA_CRC),
		.send_markers = c->peer.flags & MPA_MARKERS,
		.expect_markers = c->opt.markers,
		.extended = c->opt.extended && (c->peer.flags & MPA_EXTENDED_YES),
		.ird = least(c->opt.ird, MPA_DEPTH_MAX),
		.ord = least(c->opt.ord, MPA_DEPTH_MAX),
	};
	if (is_enhanced(&c->peer)) {
		p->peer_to_peer = v->peer_to_peer && c->opt.peer_to_peer;
		p->rtr = p->peer_to_peer ? v->rtr : 0;
		if (p->peer_to_peer && !is_choice(p->rtr, c->opt.rtr)) {
			broken(c, ERR_LLP_RTR);
			return;
		}
		if (v->ird != MPA_DEPTH_UNTOLD)
			p->ord = least(p->ord, v->ird);
		if (v->ord != MPA_DEPTH_UNTOLD && v->ord > p->ird) {
			broken(c, ERR_LLP_IRD); /* it would send more than we said we take */
			return;
		}
	}
	c->upgrades = c->opt.memory && p->extended && (c->peer.flags & MPA_MEMORY);
	set_state(c, c->upgrades ? CONNECT_UPGRADE_WAIT : CONNECT_DONE);
}

static void got_all(struct iwarp_connect *c)
{
	if (is_enhanced(&c->peer)) {
		if (c->peer.private_len < MPA_V2_LEN) {
			broken(c, ERR_LLP_FRAME);
			return;
		}
		c->peer_v2 = mpa_v2_get(c->in + MPA_FRAME_LEN);
	}
	if (c->state == CONNECT_ASKING)
		got_reply(c);
	else
		got_request(c);
}

/* ---- the upgrade to shared memory ---- */
void iwarp_connect_upgrade(struct iwarp_connect *c, bool ok)
{
	c->own.ok = ok;
	c->out_len = c->out_sent = c->upgrade_len = 0;
	put_upgrade(c);
	c->params.memory = ok;
	set_state(c, CONNECT_UPGRADE_SENDING);
}

/* The last word is the responder's, or an initiator's no. */
static void upgrade_sent(struct iwarp_connect *c)
{
	set_state(c, c->params.initiator && c->own.ok ? CONNECT_UPGRADE_WAIT : CONNECT_DONE);
}

static void got_upgrade(struct iwarp_connect *c)
{
	bool last = c->params.memory;

	if (!mpa_upgrade_get(c->upgrade_in, &c->theirs)) {
		broken(c, ERR_LLP_FRAME);
	} else if (last || (!c->params.initiator && !c->theirs.ok)) {
		c->params.memory = c->theirs.ok;
		set_state(c, CONNECT_DONE);
	} else {
		set_state(c, CONNECT_UPGRADE_READY);
	}
}

/* ---- bytes ---- */
static bool is_reading(const struct iwarp_connect *c)
{
	return c->state == CONNECT_ASKING || c->state == CONNECT_AWAITING;
}

static uint32_t in_needed(const struct iwarp_connect *c)
{
	return c->in_len < MPA_FRAME_LEN ? MPA_FRAME_LEN : MPA_FRAME_LEN + c->peer.private_len;
}

struct iovec iwarp_connect_out(struct iwarp_connect *c)
{
	return (struct iovec){c->out + c->out_sent, c->out_len - c->out_sent};
}

void iwarp_connect_sent(struct iwarp_connect *c, size_t n)
{
	c->out_sent += (uint32_t)n;
	if (c->out_sent < c->out_len)
		return;
	if (c->state == CONNECT_ANSWERING) {
		set_state(c, c->refusing   ? CONNECT_REFUSED
			     : c->upgrades ? CONNECT_UPGRADE_WAIT
					   : CONNECT_DONE);
		c->answered = true;
	} else if (c->state == CONNECT_UPGRADE_SENDING)
		upgrade_sent(c);
}

struct iovec iwarp_connect_in(struct iwarp_connect *c)
{
	if (c->state == CONNECT_UPGRADE_WAIT)
		return (struct iovec){c->upgrade_in + c->upgrade_len, MPA_UPGRADE_LEN - c->upgrade_len};
	return (struct iovec){c->in + c->in_len, is_reading(c) ? in_needed(c) - c->in_len : 0};
}

void iwarp_connect_got(struct iwarp_connect *c, size_t n)
{
	bool had_header = c->in_len >= MPA_FRAME_LEN;

	if (c->state == CONNECT_UPGRADE_WAIT) {
		c->upgrade_len += (uint32_t)n;
		if (c->upgrade_len == MPA_UPGRADE_LEN)
			got_upgrade(c);
		return;
	}
	c->in_len += (uint32_t)n;
	if (!had_header && c->in_len == MPA_FRAME_LEN) {
		if (!mpa_frame_get(c->in, &c->peer) || c->peer.reply != (c->state == CONNECT_ASKING)) {
			broken(c, ERR_LLP_FRAME);
			return;
		}
		had_header = true;
	}
	if (had_header && c->in_len == in_needed(c))
		got_all(c);
}

void iwarp_connect_lost(struct iwarp_connect *c)
{
	if (c->state != CONNECT_DONE && c->state != CONNECT_REFUSED && c->state != CONNECT_BROKEN)
		broken(c, ERR_LLP_CLOSED);
}

const uint8_t *iwarp_connect_private(const struct iwarp_connect *c, uint32_t *len)
{
	uint32_t skip = is_enhanced(&c->peer) ? MPA_V2_LEN : 0;

	if (c->in_len < MPA_FRAME_LEN + skip) {
		*len = 0;
		return c->in;
	}
	*len = c->in_len - MPA_FRAME_LEN - skip;
	return c->in + MPA_FRAME_LEN + skip;
}
