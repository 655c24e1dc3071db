/* SPDX-License-Identifier: MIT */
#include "iwarp/reader.h"

#include "base/asserts.h"
#include "base/guard.h"

enum { PIECES = 32 };

void iwarp_reader_init(struct iwarp_reader *r, const struct iwarp_reader_ops *ops, void *arg, void *stage,
	uint32_t size, bool crc, bool markers)
{
	assert_that(size >= IWARP_STAGE);
	*r = (struct iwarp_reader){
		.ops = ops, .arg = arg, .stage = stage, .size = size, .crc = crc, .markers = markers};
}

static uint32_t have(const struct iwarp_reader *r)
{
	return r->tail - r->head;
}

static void consume(struct iwarp_reader *r, uint32_t n)
{
	r->head += n;
	r->pos += n;
	if (r->head == r->tail)
		r->head = r->tail = 0;
}

/* From the stage to where it is for. */
static int put(struct iwarp_reader *r, const uint8_t *from, uint32_t len)
{
	struct iovec iov[PIECES];
	unsigned n;

	while (len) {
		int v = r->ops->place(r->arg, r->off, len, iov, PIECES, &n);

		if (v)
			return v;
		for (unsigned i = 0; i < n; i++) {
			if (!guard_copy(iov[i].iov_base, from, iov[i].iov_len))
				return r->ops->fault(r->arg);
			from += iov[i].iov_len;
			r->off += (uint32_t)iov[i].iov_len;
			r->left -= (uint32_t)iov[i].iov_len;
			len -= (uint32_t)iov[i].iov_len;
		}
	}
	return IWARP_GO;
}

/* The header at b, of which n bytes are there; IWARP_WAIT: not all. */
static int begin(struct iwarp_reader *r, const uint8_t *b, uint32_t n, uint32_t *hdr_len)
{
	uint32_t ulpdu = get_be16(b), len;
	struct ddp_seg seg;

	len = ddp_hdr_len(b[MPA_HDR_LEN]);
	if (ulpdu < len)
		return ERR_LLP_MARKER; /* shorter than its own header */
	if (n < MPA_HDR_LEN + len)
		return IWARP_WAIT;
	seg = ddp_get(b + MPA_HDR_LEN);
	*hdr_len = MPA_HDR_LEN + len;
	r->off = 0;
	r->left = ulpdu - len;
	r->trailer = mpa_pad(ulpdu) + MPA_CRC_LEN;
	return r->ops->begin(r->arg, &seg, b + MPA_HDR_LEN, r->left);
}

/* ---- straight to its place ---- */
static int direct_head(struct iwarp_reader *r, bool *more)
{
	const uint8_t *b = r->stage + r->head;
	uint32_t n = have(r), hdr_len = 0;
	int v;

	*more = n > MPA_HDR_LEN;
	if (!*more)
		return IWARP_GO;
	if (!get_be16(b)) {
		*more = n >= mpa_fpdu_len(0);
		v = *more ? r->ops->empty(r->arg) : IWARP_GO;
		if (*more && !v)
			consume(r, mpa_fpdu_len(0));
		return v;
	}
	v = begin(r, b, n, &hdr_len);
	if (v == IWARP_WAIT && !hdr_len) {
		*more = false;
		return IWARP_GO;
	}
	if (v)
		return v;
	consume(r, hdr_len);
	r->state = READ_BODY;
	return IWARP_GO;
}

static int direct_body(struct iwarp_reader *r, bool *more)
{
	uint32_t n = have(r) < r->left ? have(r) : r->left;
	int v = put(r, r->stage + r->head, n);

	if (v)
		return v;
	consume(r, n);
	*more = !r->left;
	if (*more)
		r->state = READ_TAIL;
	return IWARP_GO;
}

static int direct_tail(struct iwarp_reader *r, bool *more)
{
	*more = have(r) >= r->trailer;
	if (!*more)
		return IWARP_GO;
	consume(r, r->trailer);
	r->state = READ_HEAD;
	return r->ops->end(r->arg);
}

static int run_direct(struct iwarp_reader *r)
{
	static int (*const step[])(struct iwarp_reader *, bool *) = {
		[READ_HEAD] = direct_head, [READ_BODY] = direct_body, [READ_TAIL] = direct_tail};
	bool more = true;
	int v = IWARP_GO;

	while (more && !v)
		v = step[r->state](r, &more);
	return v;
}

/* ---- whole segments ---- */
/* Takes the markers out of n bytes of FPDU that take `span` bytes here. false: one does not point to its
 * beginning. */
static bool squeeze(struct iwarp_reader *r, uint32_t n, uint32_t span)
{
	uint8_t *b = r->stage + r->head;
	uint64_t pos = r->pos, begin = r->pos % MPA_MARKER_EVERY ? r->pos : r->pos + MPA_MARKER_LEN;
	uint32_t from = 0, to = 0;

	while (to < n) {
		uint32_t part;

		if (pos % MPA_MARKER_EVERY == 0) {
			if (get_be16(b + from + 2) != (pos < begin ? 0 : pos - begin))
				return false;
			from += MPA_MARKER_LEN;
			pos += MPA_MARKER_LEN;
		}
		part = MPA_MARKER_EVERY - pos % MPA_MARKER_EVERY;
		if (part > n - to)
			part = n - to;
		memmove(b + to, b + from, part);
		from += part;
		to += part;
		pos += part;
	}
	return from == span;
}

/* IWARP_WAIT: not all of it is here. */
static int check_whole(struct iwarp_reader *r)
{
	const uint8_t *b = r->stage + r->head;
	uint32_t lead = r->markers && r->pos % MPA_MARKER_EVERY == 0 ? MPA_MARKER_LEN : 0, n, span;
	uint8_t crc[MPA_CRC_LEN];

	if (have(r) < lead + MPA_HDR_LEN)
		return IWARP_WAIT;
	n = mpa_fpdu_len(get_be16(b + lead));
	span = r->markers ? mpa_span(r->pos, n) : n;
	if (have(r) < span)
		return IWARP_WAIT;
	if (r->crc) {
		mpa_crc_end(mpa_crc_add(MPA_CRC_INIT, b, span - MPA_CRC_LEN), crc);
		if (memcmp(crc, b + span - MPA_CRC_LEN, MPA_CRC_LEN))
			return ERR_LLP_CRC;
	}
	if (r->markers && !squeeze(r, n, span))
		return ERR_LLP_MARKER;
	r->span = span;
	return IWARP_GO;
}

static int take_whole(struct iwarp_reader *r)
{
	const uint8_t *b = r->stage + r->head;
	uint32_t hdr_len = 0;
	int v;

	if (!get_be16(b)) {
		v = r->ops->empty(r->arg);
	} else {
		v = begin(r, b, r->span, &hdr_len);
		if (!v)
			v = put(r, b + hdr_len, r->left);
		if (!v)
			v = r->ops->end(r->arg);
	}
	if (!v || v == IWARP_STOP) {
		consume(r, r->span);
		r->span = 0;
	}
	return v;
}

static int run_whole(struct iwarp_reader *r)
{
	int v;

	do {
		if (!r->span) {
			v = check_whole(r);
			if (v)
				return v == IWARP_WAIT ? IWARP_GO : v;
		}
		v = take_whole(r);
	} while (!v);
	return v;
}

static bool is_staged(const struct iwarp_reader *r)
{
	return r->crc || r->markers;
}

int iwarp_reader_run(struct iwarp_reader *r)
{
	return is_staged(r) ? run_whole(r) : run_direct(r);
}

/* ---- reading ---- */
static void want_stage(struct iwarp_reader *r, uint32_t most, struct iovec *iov, unsigned *n)
{
	uint32_t room;

	if (r->head && r->size - r->tail < r->size / 2) {
		memmove(r->stage, r->stage + r->head, have(r));
		r->tail -= r->head;
		r->head = 0;
	}
	room = r->size - r->tail;
	if (room > most)
		room = most;
	if (room)
		iov[(*n)++] = (struct iovec){r->stage + r->tail, room};
}

int iwarp_reader_want(struct iwarp_reader *r, struct iovec *iov, unsigned max, unsigned *n)
{
	uint32_t ahead = r->off + r->left >= IWARP_LARGE && !is_staged(r) ? IWARP_AHEAD : r->size;
	int v;

	*n = 0;
	r->direct = 0;
	if (!is_staged(r) && r->state == READ_BODY && r->left) {
		v = r->ops->place(r->arg, r->off, r->left, iov, max - 1, n);
		if (v)
			return v;
		for (unsigned i = 0; i < *n; i++)
			r->direct += (uint32_t)iov[i].iov_len;
		if (r->direct < r->left)
			return IWARP_GO; /* more pieces than one read takes */
	}
	want_stage(r, ahead, iov, n);
	return IWARP_GO;
}

int iwarp_reader_got(struct iwarp_reader *r, size_t n)
{
	uint32_t direct = n < r->direct ? (uint32_t)n : r->direct;

	assert_that(n - direct <= r->size - r->tail);
	r->direct = 0;
	r->off += direct;
	r->left -= direct;
	r->pos += direct;
	r->tail += (uint32_t)(n - direct);
	return iwarp_reader_run(r);
}

bool iwarp_reader_between(const struct iwarp_reader *r)
{
	return r->state == READ_HEAD && !have(r);
}
