/* SPDX-License-Identifier: MIT */
/*
 * Writer and reader against each other: messages of all lengths become a stream, in every combination of CRC
 * and markers, and the stream is cut at every byte.
 */
#include "iwarp/reader.h"
#include "iwarp/writer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MESSAGES = 9, STREAM_MAX = 1 << 18 };

static const uint32_t lengths[MESSAGES] = {0, 1, 2, 3, 4, 5, 483, 508, 1100};

struct bench {
	struct iwarp_writer w;
	struct iwarp_reader r;
	uint8_t tx_stage[IWARP_STAGE], rx_stage[IWARP_STAGE];
	uint8_t source[4096], target[MESSAGES][70000];
	uint8_t stream[STREAM_MAX];
	size_t len;
	bool gone; /* the source */
	uint32_t done, begun, ended, empties;
	uint32_t payload[MESSAGES];
	bool wait;
};

static struct bench b;

/* ---- the owner of both ---- */
static bool gather(void *arg, const struct iwarp_fpdu *f, uint32_t off, uint32_t len, struct iovec *iov,
	unsigned max, unsigned *n)
{
	uint32_t half = len / 2;

	assert_int_equal(f->source, 1);
	*n = 1;
	iov[0] = (struct iovec){b.source + f->off + off, len};
	if (half && max > 1) {
		iov[0].iov_len = half;
		iov[1] = (struct iovec){b.source + f->off + off + half, len - half};
		*n = 2;
	}
	return !b.gone;
}

static void done(void *arg, const struct iwarp_fpdu *f)
{
	b.done++;
}

static const struct iwarp_writer_ops writer_ops = {.gather = gather, .done = done};

static int begin(void *arg, const struct ddp_seg *seg, const uint8_t *hdr, uint32_t len)
{
	if (b.wait)
		return IWARP_WAIT;
	assert_true(seg->tagged && seg->stag == 0x1000 + b.begun);
	b.payload[b.begun++] = len;
	return IWARP_GO;
}

static int empty(void *arg)
{
	b.empties++;
	return IWARP_GO;
}

static int place(void *arg, uint32_t off, uint32_t len, struct iovec *iov, unsigned max, unsigned *n)
{
	uint8_t *to = b.target[b.begun - 1] + off;

	*n = 1;
	iov[0] = (struct iovec){to, len};
	if (len > 3 && max > 1) {
		iov[0].iov_len = 3;
		iov[1] = (struct iovec){to + 3, len - 3};
		*n = 2;
	}
	return IWARP_GO;
}

static int fault(void *arg)
{
	return ERR_RDMAP_LOCAL;
}

static int end(void *arg)
{
	b.ended++;
	return IWARP_GO;
}

static const struct iwarp_reader_ops reader_ops = {begin, empty, place, fault, end};

static void start(bool crc, bool markers)
{
	memset(&b, 0, sizeof(b));
	for (unsigned i = 0; i < sizeof(b.source); i++)
		b.source[i] = (uint8_t)(i * 31 + (i >> 8));
	iwarp_writer_init(&b.w, &writer_ops, NULL, b.tx_stage, IWARP_STAGE, 1400, crc, markers);
	iwarp_reader_init(&b.r, &reader_ops, NULL, b.rx_stage, IWARP_STAGE, crc, markers);
}

static bool add(uint32_t i, bool copy)
{
	struct iwarp_fpdu f = {
		.hdr_len = MPA_HDR_LEN + DDP_TAGGED_LEN, .source = 1, .len = lengths[i], .off = i};

	ddp_put(f.hdr + MPA_HDR_LEN,
		&(struct ddp_seg){.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 0x1000 + i});
	assert_true(iwarp_writer_has_room(&b.w, f.len, copy));
	return iwarp_writer_add(&b.w, &f, copy);
}

/* The socket takes at most `each` bytes at a time. */
static void send_all(size_t each)
{
	struct iovec iov[8];
	unsigned n;

	while (iwarp_writer_iov(&b.w, true, iov, 8, &n) && n) {
		size_t left = each;

		for (unsigned i = 0; i < n && left; i++) {
			size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

			memcpy(b.stream + b.len, iov[i].iov_base, part);
			b.len += part;
			left -= part;
		}
		iwarp_writer_sent(&b.w, each - left);
	}
}

static void write_stream(bool crc, bool markers, size_t each)
{
	start(crc, markers);
	for (uint32_t i = 0; i < MESSAGES; i++)
		assert_true(add(i, i & 1));
	send_all(each);
	assert_int_equal(b.done, MESSAGES);
	assert_true(iwarp_writer_empty(&b.w));
	assert_int_equal(b.len, b.w.pos);
}

/* Gives the reader stream bytes [from, to), as many at once as it wants. */
static int feed(size_t from, size_t to)
{
	struct iovec iov[8];
	unsigned n;
	int v = IWARP_GO;

	while (from < to && !v) {
		size_t got = 0;

		v = iwarp_reader_want(&b.r, iov, 8, &n);
		assert_int_equal(v, IWARP_GO);
		assert_true(n > 0);
		for (unsigned i = 0; i < n && from < to; i++) {
			size_t part = iov[i].iov_len < to - from ? iov[i].iov_len : to - from;

			memcpy(iov[i].iov_base, b.stream + from, part);
			from += part;
			got += part;
		}
		v = iwarp_reader_got(&b.r, got);
	}
	return v;
}

static void restart_reader(void)
{
	iwarp_reader_init(&b.r, &reader_ops, NULL, b.rx_stage, IWARP_STAGE, b.r.crc, b.r.markers);
	b.begun = b.ended = 0;
	for (uint32_t i = 0; i < MESSAGES; i++)
		memset(b.target[i], 0xee, lengths[i] + 8);
}

static void check_all_arrived(void)
{
	assert_int_equal(b.ended, MESSAGES);
	assert_true(iwarp_reader_between(&b.r));
	for (uint32_t i = 0; i < MESSAGES; i++) {
		assert_int_equal(b.payload[i], lengths[i]);
		assert_memory_equal(b.target[i], b.source + i, lengths[i]);
		assert_int_equal(b.target[i][lengths[i]], 0xee);
	}
}

/* ---- the tests ---- */
static void stream_may_be_cut_at_every_byte(void **state)
{
	for (unsigned mode = 0; mode < 4; mode++) {
		write_stream(mode & 1, mode & 2, SIZE_MAX);
		for (size_t cut = 0; cut <= b.len; cut++) {
			restart_reader();
			assert_int_equal(feed(0, cut), IWARP_GO);
			assert_int_equal(feed(cut, b.len), IWARP_GO);
			check_all_arrived();
		}
	}
}

static void stream_may_come_byte_by_byte(void **state)
{
	for (unsigned mode = 0; mode < 4; mode++) {
		write_stream(mode & 1, mode & 2, SIZE_MAX);
		restart_reader();
		for (size_t i = 0; i < b.len; i++)
			assert_int_equal(feed(i, i + 1), IWARP_GO);
		check_all_arrived();
	}
}

static void socket_may_take_any_part(void **state)
{
	uint8_t *whole = malloc(STREAM_MAX);

	for (unsigned mode = 0; mode < 4; mode++) {
		write_stream(mode & 1, mode & 2, SIZE_MAX);
		memcpy(whole, b.stream, b.len);
		for (size_t each = 1; each < 40; each++) {
			size_t len = b.len;

			write_stream(mode & 1, mode & 2, each);
			assert_int_equal(b.len, len);
			assert_memory_equal(b.stream, whole, len);
		}
	}
	free(whole);
}

static void every_damaged_bit_is_caught_by_the_crc(void **state)
{
	for (unsigned markers = 0; markers < 2; markers++) {
		write_stream(true, markers, SIZE_MAX);
		for (size_t bit = 0; bit < b.len * 8; bit++) {
			int v;

			restart_reader();
			b.stream[bit / 8] ^= 1 << bit % 8;
			v = feed(0, b.len);
			b.stream[bit / 8] ^= 1 << bit % 8;
			/* A length that grew makes it wait for the rest; nothing of it is placed. */
			assert_true(v == ERR_LLP_CRC || (!v && b.ended < MESSAGES));
			for (uint32_t i = b.ended; i < MESSAGES; i++)
				assert_true(!lengths[i] || b.target[i][0] == 0xee);
		}
	}
}

static void markers_that_point_elsewhere_are_caught(void **state)
{
	write_stream(false, true, SIZE_MAX);
	for (size_t at = 0; at + MPA_MARKER_LEN <= b.len; at += MPA_MARKER_EVERY) {
		restart_reader();
		b.stream[at + 3] ^= 4;
		assert_int_equal(feed(0, b.len), ERR_LLP_MARKER);
		b.stream[at + 3] ^= 4;
	}
}

static void length_shorter_than_the_header_is_refused(void **state)
{
	for (unsigned mode = 0; mode < 2; mode++) {
		for (uint16_t len = 1; len < DDP_UNTAGGED_LEN; len++) {
			start(false, mode);
			memset(b.stream, 0, 64);
			put_be16(b.stream + (mode ? MPA_MARKER_LEN : 0), len);
			b.stream[(mode ? MPA_MARKER_LEN : 0) + MPA_HDR_LEN] = DDP_VERSION;
			assert_int_equal(feed(0, 64), ERR_LLP_MARKER);
		}
	}
}

static void payload_is_received_straight_into_its_place(void **state)
{
	struct iovec iov[8];
	unsigned n;

	write_stream(false, false, SIZE_MAX);
	restart_reader();
	/* up to behind the header of the last and longest */
	assert_int_equal(
		feed(0, b.len - mpa_fpdu_len(DDP_TAGGED_LEN + 1100) + MPA_HDR_LEN + DDP_TAGGED_LEN), 0);
	assert_int_equal(iwarp_reader_want(&b.r, iov, 8, &n), IWARP_GO);
	assert_int_equal(n, 3);
	assert_ptr_equal(iov[0].iov_base, b.target[MESSAGES - 1]);
	assert_ptr_equal(iov[1].iov_base, b.target[MESSAGES - 1] + 3);
	assert_int_equal(iov[0].iov_len + iov[1].iov_len, 1100);
}

static void payload_is_sent_straight_from_its_place(void **state)
{
	struct iovec iov[8];
	unsigned n;

	start(true, false);
	assert_true(add(MESSAGES - 1, false));
	assert_true(iwarp_writer_iov(&b.w, true, iov, 8, &n));
	assert_int_equal(n, 4); /* header, two pieces, trailer */
	assert_ptr_equal(iov[1].iov_base, b.source + MESSAGES - 1);
}

/* With the CRC, what may change is copied first; its CRC is that of the copy. */
static void what_may_change_is_copied(void **state)
{
	start(true, false);
	assert_true(add(0, true) && add(1, true) && add(2, true));
	memset(b.source, 0x55, sizeof(b.source));
	send_all(SIZE_MAX);
	assert_int_equal(feed(0, b.len), IWARP_GO);
	assert_int_equal(b.ended, 3);
	assert_int_equal(b.target[2][0], (uint8_t)(2 * 31));
}

/* They do not need their source any more, and leave as one piece, however much of it has left. */
static void small_ones_are_copied(void **state)
{
	struct iovec iov[8];
	unsigned n;

	start(true, false);
	assert_true(add(0, false) && add(1, false) && add(2, false));
	b.gone = true;
	assert_true(iwarp_writer_iov(&b.w, true, iov, 8, &n));
	assert_int_equal(n, 1);
	assert_int_equal(iov[0].iov_len, b.w.pos);
	send_all(5);
	assert_int_equal(feed(0, b.len), IWARP_GO);
	assert_int_equal(b.ended, 3);
}

static void waiting_reader_goes_on_where_it_stood(void **state)
{
	for (unsigned mode = 0; mode < 4; mode++) {
		write_stream(mode & 1, mode & 2, SIZE_MAX);
		restart_reader();
		b.wait = true;
		assert_int_equal(feed(0, b.len), IWARP_WAIT);
		assert_int_equal(iwarp_reader_run(&b.r), IWARP_WAIT);
		b.wait = false;
		assert_int_equal(iwarp_reader_run(&b.r), IWARP_GO);
		assert_int_equal(feed((size_t)(b.r.pos + b.r.tail - b.r.head), b.len), IWARP_GO);
		check_all_arrived();
	}
}

static void what_has_begun_to_leave_is_finished_from_a_copy(void **state)
{
	uint8_t *whole = malloc(STREAM_MAX);
	size_t first = mpa_fpdu_len(DDP_TAGGED_LEN + lengths[MESSAGES - 1]);

	for (unsigned mode = 0; mode < 4; mode++) {
		size_t span = mode & 2 ? mpa_span(0, first) : first;

		start(mode & 1, mode & 2);
		assert_true(add(MESSAGES - 1, false));
		send_all(SIZE_MAX);
		memcpy(whole, b.stream, b.len);
		for (size_t cut = 0; cut < span; cut += 3) {
			struct iovec iov[8];
			unsigned n;

			start(mode & 1, mode & 2);
			assert_true(add(MESSAGES - 1, false) && add(3, false));
			if (cut) {
				assert_true(iwarp_writer_iov(&b.w, true, iov, 8, &n));
				memcpy(b.stream, whole, cut);
				b.len = cut;
				iwarp_writer_sent(&b.w, cut);
			}
			assert_true(iwarp_writer_cut(&b.w));
			b.gone = true;
			send_all(7);
			assert_int_equal(b.len, cut ? span : 0);
			assert_memory_equal(b.stream, whole, b.len);
			assert_int_equal(b.w.pos, b.len);
			assert_true(iwarp_writer_empty(&b.w));
		}
	}
	free(whole);
}

static void source_that_is_gone_is_noticed(void **state)
{
	struct iovec iov[8];
	unsigned n;

	start(true, false);
	assert_true(add(2, false) && add(MESSAGES - 1, false));
	iwarp_writer_sent(&b.w, mpa_fpdu_len(DDP_TAGGED_LEN + lengths[2]) + 17);
	b.gone = true;
	assert_false(add(4, false));
	assert_false(iwarp_writer_iov(&b.w, true, iov, 8, &n));
	assert_false(iwarp_writer_cut(&b.w));
}

static void an_fpdu_of_no_bytes_is_one(void **state)
{
	for (unsigned mode = 0; mode < 4; mode++) {
		struct iwarp_fpdu f = {.hdr_len = MPA_HDR_LEN};

		start(mode & 1, mode & 2);
		assert_true(iwarp_writer_add(&b.w, &f, false));
		send_all(SIZE_MAX);
		assert_int_equal(b.len, mode & 2 ? 12 : 8);
		for (size_t i = 0; i < b.len; i++)
			assert_int_equal(feed(i, i + 1), IWARP_GO);
		assert_int_equal(b.empties, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stream_may_be_cut_at_every_byte),
		cmocka_unit_test(stream_may_come_byte_by_byte),
		cmocka_unit_test(socket_may_take_any_part),
		cmocka_unit_test(every_damaged_bit_is_caught_by_the_crc),
		cmocka_unit_test(markers_that_point_elsewhere_are_caught),
		cmocka_unit_test(length_shorter_than_the_header_is_refused),
		cmocka_unit_test(payload_is_received_straight_into_its_place),
		cmocka_unit_test(payload_is_sent_straight_from_its_place),
		cmocka_unit_test(what_may_change_is_copied),
		cmocka_unit_test(small_ones_are_copied),
		cmocka_unit_test(waiting_reader_goes_on_where_it_stood),
		cmocka_unit_test(what_has_begun_to_leave_is_finished_from_a_copy),
		cmocka_unit_test(source_that_is_gone_is_noticed),
		cmocka_unit_test(an_fpdu_of_no_bytes_is_one),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
