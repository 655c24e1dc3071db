/* SPDX-License-Identifier: MIT */
#include "mad/ib/rmpp.h"

#include "base/asserts.h"

#include <stdlib.h>
#include <string.h>

static size_t data_in_segment(const uint8_t *mad)
{
	return MAD_LEN - rmpp_data_offset(mad[1]);
}

/* ---- the sender ---- */
void rmpp_send_init(struct rmpp_send *s, const uint8_t *msg, size_t len)
{
	size_t hdr = rmpp_data_offset(msg[1]), each = data_in_segment(msg);

	assert_that(len >= hdr);
	*s = (struct rmpp_send){.msg = msg, .len = len, .window = 1};
	s->segments = (uint32_t)((len - hdr + each - 1) / each);
	if (!s->segments)
		s->segments = 1; /* a message without data is one empty segment */
}

static struct rmpp_hdr segment_hdr(const struct rmpp_send *s, uint32_t n, size_t pad)
{
	struct rmpp_hdr h = {RMPP_VERSION, RMPP_DATA, RMPP_ACTIVE, 0, n, 0};

	if (n == 1) {
		h.flags |= RMPP_FIRST;
		h.length = (uint32_t)(s->segments * (size_t)RMPP_PAYLOAD - pad);
	}
	if (n == s->segments) {
		h.flags |= RMPP_LAST;
		h.length = (uint32_t)(RMPP_PAYLOAD - pad);
	}
	return h;
}

bool rmpp_send_next(struct rmpp_send *s, uint8_t mad[MAD_LEN])
{
	uint32_t n = s->sent + 1;
	size_t hdr = rmpp_data_offset(s->msg[1]), each = data_in_segment(s->msg), from, len;
	struct rmpp_hdr h;

	if (n > s->segments || n > s->window)
		return false;
	from = hdr + (n - 1) * each;
	len = s->len - from < each ? s->len - from : each;
	memcpy(mad, s->msg, hdr);
	memcpy(mad + hdr, s->msg + from, len);
	memset(mad + hdr + len, 0, each - len);
	h = segment_hdr(s, n, s->segments * each - (s->len - hdr));
	rmpp_hdr_put(mad, &h);
	s->sent = n;
	return true;
}

void rmpp_send_again(struct rmpp_send *s)
{
	s->sent = s->acked;
}

enum rmpp_acked rmpp_send_ack(struct rmpp_send *s, const uint8_t ack[MAD_LEN], enum rmpp_status *status)
{
	struct rmpp_hdr h = rmpp_hdr_get(ack);

	if (h.status)
		*status = RMPP_BAD_STATUS;
	else if (h.length < h.segment)
		*status = RMPP_WINDOW_TOO_SMALL;
	else if (h.segment > s->segments || h.segment > s->window)
		*status = RMPP_SEGMENT_TOO_BIG;
	else if (h.length < s->window || h.segment < s->acked)
		return RMPP_ACK_OLD;
	else {
		bool news = h.segment > s->acked || h.length > s->window;

		s->acked = h.segment;
		s->window = h.length;
		if (s->sent < s->acked)
			s->sent = s->acked; /* it had gone back; the segments were not lost, only late */
		if (s->acked == s->segments)
			return RMPP_ACK_ALL;
		return news ? RMPP_ACK_NEW : RMPP_ACK_OLD;
	}
	return RMPP_ACK_WRONG;
}

/* ---- the receiver ---- */
/* Room for segment n. The message grows as it comes, whatever its first segment claims. */
static bool make_room(struct rmpp_recv *r, uint32_t n, const uint8_t *data, size_t limit)
{
	size_t need = rmpp_data_offset(data[1]) + n * data_in_segment(data), size = r->size ? r->size : 1024;
	uint8_t *msg;

	if (need <= r->size)
		return true;
	if (need > limit)
		return false;
	while (size < need)
		size *= 2;
	if (size > limit)
		size = limit;
	msg = realloc(r->msg, size);
	if (!msg)
		return false;
	r->msg = msg;
	r->size = size;
	return true;
}

static void store(struct rmpp_recv *r, uint32_t n, const uint8_t *data)
{
	size_t hdr = rmpp_data_offset(data[1]), each = data_in_segment(data);

	if (n == 1)
		memcpy(r->msg, data, hdr);
	memcpy(r->msg + hdr + (n - 1) * each, data + hdr, each);
	r->beyond |= 1ull << (n - r->upto - 1);
	while (r->beyond & 1) {
		r->beyond >>= 1;
		r->upto++;
	}
}

/* The last segment says how much of it is data; what cannot be is taken for all of it, as Linux does. */
static void complete(struct rmpp_recv *r, const uint8_t *data)
{
	size_t hdr = rmpp_data_offset(data[1]), each = data_in_segment(data), pad = 0;

	if (r->last_length <= RMPP_PAYLOAD)
		pad = RMPP_PAYLOAD - r->last_length;
	if (pad > each)
		pad = 0;
	r->len = hdr + r->last * each - pad;
}

static enum rmpp_status judge(const struct rmpp_recv *r, const struct rmpp_hdr *h)
{
	if (h->status)
		return RMPP_BAD_STATUS;
	if (!h->segment || (h->segment == 1) != !!(h->flags & RMPP_FIRST))
		return RMPP_BAD_SEGMENT;
	if (r->last && (h->segment > r->last || (h->flags & RMPP_LAST && h->segment != r->last)))
		return RMPP_BAD_SEGMENT;
	return 0;
}

enum rmpp_took rmpp_recv_data(
	struct rmpp_recv *r, const uint8_t data[MAD_LEN], size_t limit, enum rmpp_status *status)
{
	struct rmpp_hdr h = rmpp_hdr_get(data);
	uint32_t window = r->window ? r->window : 1;

	*status = judge(r, &h);
	if (*status)
		return RMPP_TOOK_NOT;
	if (h.segment <= r->upto || r->len)
		return RMPP_TOOK_ACK; /* again: our ACK was lost */
	if (h.segment > window || r->beyond >> (h.segment - r->upto - 1) & 1)
		return RMPP_TOOK;
	if (!make_room(r, h.segment, data, limit)) {
		*status = RMPP_NO_RESOURCES;
		return RMPP_TOOK_NOT;
	}
	r->window = window;
	if (h.flags & RMPP_LAST) {
		r->last = h.segment;
		r->last_length = h.length;
	}
	store(r, h.segment, data);
	if (r->last && r->upto >= r->last) {
		complete(r, data);
		return RMPP_TOOK_ALL;
	}
	if (r->upto < r->window)
		return RMPP_TOOK;
	r->window += RMPP_WINDOW;
	return RMPP_TOOK_ACK;
}

void rmpp_recv_fini(struct rmpp_recv *r)
{
	free(r->msg);
	r->msg = NULL;
	r->size = 0;
}

/* ---- what both answer: the other's header, in the other direction ---- */
static void answer(uint8_t *out, const uint8_t *mad, const struct rmpp_hdr *h)
{
	size_t hdr = rmpp_data_offset(mad[1]);

	memcpy(out, mad, hdr);
	memset(out + hdr, 0, MAD_LEN - hdr);
	out[3] ^= MAD_METHOD_RESPONSE;
	rmpp_hdr_put(out, h);
}

void rmpp_recv_ack(const struct rmpp_recv *r, const uint8_t data[MAD_LEN], uint8_t ack[MAD_LEN])
{
	answer(ack, data, &(struct rmpp_hdr){RMPP_VERSION, RMPP_ACK, RMPP_ACTIVE, 0, r->upto, r->window});
}

void rmpp_turn(const uint8_t ack[MAD_LEN], uint8_t turn[MAD_LEN])
{
	answer(turn, ack, &(struct rmpp_hdr){RMPP_VERSION, RMPP_ACK, RMPP_ACTIVE, 0, 0, 1});
}

void rmpp_refuse(const uint8_t mad[MAD_LEN], enum rmpp_status status, uint8_t refusal[MAD_LEN])
{
	uint8_t type = status == RMPP_NO_RESOURCES ? RMPP_STOP : RMPP_ABORT;

	answer(refusal, mad, &(struct rmpp_hdr){RMPP_VERSION, type, RMPP_ACTIVE, (uint8_t)status, 0, 0});
}
