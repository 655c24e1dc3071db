/* SPDX-License-Identifier: MIT */
#include "iwarp/writer.h"

#include "base/asserts.h"
#include "base/guard.h"
#include "iwarp/reader.h"

enum { PIECES = 32 };

void iwarp_writer_init(struct iwarp_writer *w, const struct iwarp_writer_ops *ops, void *arg, void *stage,
	uint32_t size, uint32_t mulpdu, bool crc, bool markers)
{
	assert_that(size >= IWARP_STAGE && mulpdu >= IWARP_FPDU_HDR && mulpdu <= MPA_ULPDU_MAX);
	memset(w, 0, sizeof(*w));
	w->ops = ops;
	w->arg = arg;
	w->stage = stage;
	w->size = size;
	/* A marker says in 16 bits how long ago its FPDU began. */
	w->mulpdu = markers && mulpdu > IWARP_MARKED_ULPDU ? IWARP_MARKED_ULPDU : mulpdu;
	w->crc = crc;
	w->markers = markers;
}

static struct iwarp_fpdu *at(struct iwarp_writer *w, uint32_t i)
{
	return &w->fpdu[i % IWARP_FPDUS];
}

/* In eights, so that the pieces of a large message stay aligned in its buffer. */
uint32_t iwarp_writer_most(const struct iwarp_writer *w, bool tagged)
{
	return (w->mulpdu - (tagged ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN)) & ~7u;
}

static bool is_flat(const struct iwarp_writer *w, bool copy)
{
	return w->markers || (copy && w->crc);
}

static bool is_small(const struct iwarp_writer *w, const struct iwarp_fpdu *f)
{
	return f->len <= IWARP_SMALL && f->span <= w->size - w->used;
}

bool iwarp_writer_has_room(struct iwarp_writer *w, uint32_t payload, bool copy)
{
	uint32_t span = mpa_span(w->pos, mpa_fpdu_len(IWARP_FPDU_HDR - MPA_HDR_LEN + payload));

	if (iwarp_writer_empty(w))
		w->used = 0;
	if (w->head - w->tail == IWARP_FPDUS || w->waiting >= IWARP_IN_HAND_BYTES)
		return false;
	return !is_flat(w, copy) || span <= w->size - w->used;
}

/* ---- CRC and copies: both touch memory of the program ---- */
struct sum {
	uint32_t crc;
	const struct iovec *iov;
	unsigned n;
};

static void sum_up(void *arg)
{
	struct sum *s = arg;

	for (unsigned i = 0; i < s->n; i++)
		s->crc = mpa_crc_add(s->crc, s->iov[i].iov_base, s->iov[i].iov_len);
}

static bool is_there(const struct sum *s)
{
	unsigned i = 0;

	while (i < s->n && guard_readable(s->iov[i].iov_base, s->iov[i].iov_len))
		i++;
	return i == s->n;
}

/*
 * The CRC over a payload that stays where it is. Where there is none it is looked at all the same: the system
 * call that meets memory which is gone does not say whose it is.
 */
static bool add_payload_crc(struct iwarp_writer *w, const struct iwarp_fpdu *f, uint32_t *crc)
{
	struct iovec iov[PIECES];
	uint32_t off = 0;

	while (off < f->len) {
		struct sum s = {.crc = *crc, .iov = iov};

		if (!w->ops->gather(w->arg, f, off, f->len - off, iov, PIECES, &s.n))
			return false;
		if (!(w->crc ? guard_run(sum_up, &s) : is_there(&s)))
			return false;
		*crc = s.crc;
		for (unsigned i = 0; i < s.n; i++)
			off += (uint32_t)iov[i].iov_len;
	}
	return true;
}

/* Copies payload [off, len) of f behind `to`. */
static bool copy_payload(struct iwarp_writer *w, const struct iwarp_fpdu *f, uint32_t off, uint8_t *to)
{
	struct iovec iov[PIECES];
	unsigned n;

	while (off < f->len) {
		if (!w->ops->gather(w->arg, f, off, f->len - off, iov, PIECES, &n))
			return false;
		for (unsigned i = 0; i < n; i++) {
			if (!guard_copy(to, iov[i].iov_base, iov[i].iov_len))
				return false;
			to += iov[i].iov_len;
			off += (uint32_t)iov[i].iov_len;
		}
	}
	return true;
}

/* Puts the markers between n bytes, from the end on, so that nothing is overwritten. */
static void spread(uint8_t *b, uint32_t n, uint32_t span, uint64_t pos)
{
	uint64_t begin = pos % MPA_MARKER_EVERY ? pos : pos + MPA_MARKER_LEN, end = pos + span;

	while (end > pos) {
		uint64_t last = (end - 1) / MPA_MARKER_EVERY * MPA_MARKER_EVERY; /* the marker before `end` */
		uint64_t from = last < pos ? pos : last + MPA_MARKER_LEN;
		uint32_t part = (uint32_t)(end - from);

		n -= part;
		memmove(b + (from - pos), b + n, part);
		if (last < pos)
			break;
		put_be16(b + (last - pos), 0);
		put_be16(b + (last - pos) + 2, (uint16_t)(last < begin ? 0 : last - begin));
		end = last;
	}
}

static bool make_flat(struct iwarp_writer *w, struct iwarp_fpdu *f, uint32_t n)
{
	uint8_t *b = w->stage + w->used;

	memcpy(b, f->hdr, f->hdr_len);
	if (!copy_payload(w, f, 0, b + f->hdr_len))
		return false;
	memset(b + f->hdr_len + f->len, 0, f->tail_len);
	if (w->markers)
		spread(b, n, f->span, w->pos);
	if (w->crc)
		mpa_crc_end(mpa_crc_add(MPA_CRC_INIT, b, f->span - MPA_CRC_LEN), b + f->span - MPA_CRC_LEN);
	f->flat = b;
	w->used += f->span;
	return true;
}

static bool make_list(struct iwarp_writer *w, struct iwarp_fpdu *f)
{
	uint32_t crc = MPA_CRC_INIT, pad = f->tail_len - MPA_CRC_LEN;

	if (w->crc)
		crc = mpa_crc_add(crc, f->hdr, f->hdr_len);
	if (!add_payload_crc(w, f, &crc))
		return false;
	if (w->crc)
		mpa_crc_end(mpa_crc_add(crc, f->tail, pad), f->tail + pad);
	return true;
}

bool iwarp_writer_add(struct iwarp_writer *w, struct iwarp_fpdu *f, bool copy)
{
	uint32_t ulpdu = f->hdr_len - MPA_HDR_LEN + f->len, n = mpa_fpdu_len(ulpdu);

	put_be16(f->hdr, (uint16_t)ulpdu);
	f->tail_len = (uint8_t)(mpa_pad(ulpdu) + MPA_CRC_LEN);
	memset(f->tail, 0, sizeof(f->tail));
	f->span = w->markers ? mpa_span(w->pos, n) : n;
	f->flat = NULL;
	if (!(is_flat(w, copy) || is_small(w, f) ? make_flat(w, f, n) : make_list(w, f)))
		return false;
	*at(w, w->head++) = *f;
	w->pos += f->span;
	w->waiting += f->span;
	return true;
}

/* ---- sending ---- */
struct list_out {
	struct iovec *iov;
	unsigned max, n;
	uint32_t skip; /* bytes that have left */
};

static bool put_piece(struct list_out *o, void *bytes, uint32_t len)
{
	if (o->skip >= len) {
		o->skip -= len;
		return true;
	}
	if (o->n == o->max)
		return false;
	o->iov[o->n++] = (struct iovec){(char *)bytes + o->skip, len - o->skip};
	o->skip = 0;
	return true;
}

/* One behind the other in the stage, flat ones are one piece. */
static bool put_flat(struct list_out *o, const struct iwarp_fpdu *f)
{
	struct iovec *last = o->n ? &o->iov[o->n - 1] : NULL;

	if (!last || (uint8_t *)last->iov_base + last->iov_len != f->flat)
		return put_piece(o, f->flat, f->span);
	last->iov_len += f->span;
	return true;
}

/* 1: all of it, 0: the list is full, -1: its payload is gone */
static int put_fpdu(struct iwarp_writer *w, struct iwarp_fpdu *f, struct list_out *o)
{
	uint32_t off, left;
	unsigned n;

	if (f->flat)
		return put_flat(o, f);
	if (!put_piece(o, f->hdr, f->hdr_len))
		return 0;
	off = o->skip < f->len ? o->skip : f->len;
	o->skip -= off;
	for (left = f->len - off; left;) {
		if (o->n == o->max)
			return 0;
		if (!w->ops->gather(w->arg, f, f->len - left, left, o->iov + o->n, o->max - o->n, &n))
			return -1;
		for (; n; n--)
			left -= (uint32_t)o->iov[o->n++].iov_len;
	}
	return put_piece(o, f->tail, f->tail_len);
}

bool iwarp_writer_iov(struct iwarp_writer *w, bool all, struct iovec *iov, unsigned max, unsigned *n)
{
	struct list_out o = {.iov = iov, .max = max, .skip = w->sent};
	uint32_t i = w->tail;
	int v = 1;

	for (; i != w->head && v > 0; i++) {
		unsigned before = o.n;

		if (at(w, i)->foreign && !at(w, i)->flat && !all)
			break;
		v = put_fpdu(w, at(w, i), &o);
		if (v < 0)
			o.n = before; /* what comes before it may still leave */
	}
	*n = o.n;
	return v >= 0 || o.n;
}

void iwarp_writer_sent(struct iwarp_writer *w, size_t n)
{
	struct iwarp_fpdu done[IWARP_FPDUS];
	unsigned count = 0;

	assert_that(n <= w->waiting);
	w->waiting -= n;
	n += w->sent;
	for (; w->tail != w->head && n >= at(w, w->tail)->span; w->tail++) {
		done[count] = *at(w, w->tail);
		n -= done[count++].span;
	}
	w->sent = (uint32_t)n;
	/* Once all is in order: the owner may add, or cut. */
	for (unsigned i = 0; i < count; i++)
		w->ops->done(w->arg, &done[i]);
}

/* All of f, at the beginning of the stage: nothing else is there any more, and last words need room behind
 * it. */
static bool take_copy(struct iwarp_writer *w, struct iwarp_fpdu *f)
{
	uint32_t body = w->sent > f->hdr_len ? w->sent - f->hdr_len : 0;

	if (f->flat) {
		memmove(w->stage, f->flat, f->span);
	} else {
		memcpy(w->stage, f->hdr, f->hdr_len);
		if (!copy_payload(w, f, body, w->stage + f->hdr_len + body))
			return false;
		memcpy(w->stage + f->hdr_len + f->len, f->tail, f->tail_len);
	}
	f->flat = w->stage;
	w->used = f->span;
	return true;
}

bool iwarp_writer_cut(struct iwarp_writer *w)
{
	struct iwarp_fpdu *f = at(w, w->tail);

	if (!w->sent) {
		while (w->head != w->tail)
			w->pos -= at(w, --w->head)->span;
		w->waiting = 0;
		return true;
	}
	while (w->head != w->tail + 1)
		w->pos -= at(w, --w->head)->span;
	w->waiting = f->span - w->sent;
	f->foreign = false;
	if ((f->flat || w->sent < (uint32_t)f->hdr_len + f->len) && !take_copy(w, f))
		return false;
	f->source = 0;
	return true;
}
