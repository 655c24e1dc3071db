/* SPDX-License-Identifier: MIT */
/*
 * Every byte that Linux's own siw sent in the captures under PCAP_DIR: TCP streams are put together, both
 * ends' set-up goes through our connection machine, every FPDU through our reader, with its CRC where they
 * agreed on one; and what we would have sent in its place must be the same bytes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "iwarp/connect.h"
#include "iwarp/reader.h"
#include "iwarp/writer.h"
#include "pcap_file.h"

enum { STREAMS = 64, STREAM_MAX = 1 << 18, CONNECTIONS = 19, FPDUS = 433 /* as tshark counts them */ };

/* One direction of a TCP connection. */
struct stream {
	const char *file;
	uint8_t ends[36];      /* addresses and ports: source first */
	uint32_t first;        /* sequence number of its first byte */
	uint8_t *bytes, *have; /* have: by byte, since segments may overtake each other */
	size_t len;
};

static struct stream streams[STREAMS];
static unsigned nstreams;

/* ---- TCP ---- */
static struct stream *stream_of(const char *file, const uint8_t ends[36])
{
	for (unsigned i = 0; i < nstreams; i++) {
		if (streams[i].file == file && !memcmp(streams[i].ends, ends, 36))
			return &streams[i];
	}
	return NULL;
}

static void take_segment(const char *file, const uint8_t *ends, const uint8_t *tcp, size_t len)
{
	struct stream *s = stream_of(file, ends);
	size_t hdr = (tcp[12] >> 4) * 4u, at;
	uint32_t seq = get_be32(tcp + 4);

	if (tcp[13] & 2 && !s) { /* SYN */
		assert_in_range(nstreams, 0, STREAMS - 1);
		s = &streams[nstreams++];
		s->file = file;
		memcpy(s->ends, ends, 36);
		s->first = seq + 1;
		s->bytes = malloc(STREAM_MAX);
		s->have = calloc(1, STREAM_MAX);
	}
	if (!s || hdr >= len)
		return;
	at = seq - s->first;
	assert_true(at + len - hdr <= STREAM_MAX);
	memcpy(s->bytes + at, tcp + hdr, len - hdr);
	memset(s->have + at, 1, len - hdr);
	if (at + len - hdr > s->len)
		s->len = at + len - hdr;
}

static void take_frame(void *arg, int frame, const uint8_t *eth, size_t caplen)
{
	enum { ETH = 14, V4 = 20, V6 = 40, TCP = 6 };
	const uint8_t *ip = eth + ETH, *tcp;
	uint8_t ends[36] = {0};
	size_t len;

	if (caplen < ETH + V6)
		return;
	if (get_be16(eth + 12) == 0x0800 && ip[9] == TCP) {
		memcpy(ends, ip + 12, 4);
		memcpy(ends + 16, ip + 16, 4);
		tcp = ip + V4;
		len = get_be16(ip + 2) - V4;
	} else if (get_be16(eth + 12) == 0x86dd && ip[6] == TCP) {
		memcpy(ends, ip + 8, 32);
		tcp = ip + V6;
		len = get_be16(ip + 4);
	} else {
		return;
	}
	assert_true(tcp + len <= eth + caplen);
	memcpy(ends + 32, tcp, 4);
	take_segment(arg, ends, tcp, len);
}

static struct stream *reverse(const struct stream *s)
{
	uint8_t ends[36];

	memcpy(ends, s->ends + 16, 16);
	memcpy(ends + 16, s->ends, 16);
	memcpy(ends + 32, s->ends + 34, 2);
	memcpy(ends + 34, s->ends + 32, 2);
	return stream_of(s->file, ends);
}

static glob_t captures;
static uint8_t *contents[64];

static int read_all(void **state)
{
	assert_int_equal(glob(PCAP_DIR "/iwarp/*.pcap", 0, NULL, &captures), 0);
	for (size_t i = 0; i < captures.gl_pathc; i++)
		contents[i] = pcap_file_read(captures.gl_pathv[i], take_frame, captures.gl_pathv[i]);
	return 0;
}

static int free_all(void **state)
{
	for (unsigned i = 0; i < nstreams; i++) {
		free(streams[i].bytes);
		free(streams[i].have);
	}
	for (size_t i = 0; i < captures.gl_pathc; i++)
		free(contents[i]);
	globfree(&captures);
	return 0;
}

/* ---- MPA ---- */
/* How many bytes from its beginning are there. */
static size_t whole(const struct stream *s)
{
	const uint8_t *gap = memchr(s->have, 0, STREAM_MAX);

	return (size_t)(gap - s->have);
}

static size_t hear(struct iwarp_connect *c, const struct stream *s)
{
	size_t at = 0;
	struct iovec in;

	while ((in = iwarp_connect_in(c)).iov_len && at < s->len) {
		size_t n = in.iov_len < s->len - at ? in.iov_len : s->len - at;

		memcpy(in.iov_base, s->bytes + at, n);
		at += n;
		iwarp_connect_got(c, n);
	}
	return at;
}

/* What siw offers, as the file's name says. */
static struct iwarp_options options_of(const char *file)
{
	bool p2p = strstr(file, "_p2p"), crc = p2p || strstr(file, "_crc");

	return (struct iwarp_options){.revision = 2,
		.crc = crc,
		.peer_to_peer = p2p,
		.rtr = MPA_RTR_WRITE | MPA_RTR_READ,
		.ird = MPA_DEPTH_MAX,
		.ord = MPA_DEPTH_MAX};
}

static void check_same(const struct stream *s, size_t at, const void *ours, size_t len)
{
	if (at + len > s->len || memcmp(s->bytes + at, ours, len))
		fail_msg("%s: our %zu bytes at %zu of a stream are not siw's", s->file, len, at);
}

static struct iovec all_of(struct iwarp_connect *c)
{
	return iwarp_connect_out(c);
}

/* Both ends through our machines; they say what siw said. */
static void shake_hands(
	const struct stream *i, const struct stream *r, struct iwarp_params params[2], size_t at[2])
{
	struct iwarp_options o = options_of(i->file);
	struct iwarp_connect a, b;
	struct iovec out;
	uint32_t len;
	const uint8_t *private_data;

	/* The responder hears siw's request; the request we would make of it is the same. */
	iwarp_connect_await(&b, &o);
	at[0] = hear(&b, i);
	assert_int_equal(b.state, CONNECT_ASKED);
	private_data = iwarp_connect_private(&b, &len);
	o.ird = b.peer_v2.ird;
	o.ord = b.peer_v2.ord;
	assert_true(iwarp_connect_start(&a, &o, private_data, len));
	out = all_of(&a);
	assert_int_equal(out.iov_len, at[0]);
	check_same(i, 0, out.iov_base, out.iov_len);
	/* The initiator hears siw's reply; the reply we would make is the same. */
	at[1] = hear(&a, r);
	assert_int_equal(a.state, CONNECT_DONE);
	private_data = iwarp_connect_private(&a, &len);
	assert_true(iwarp_connect_accept(&b, a.peer_v2.ird, a.peer_v2.ord, private_data, len));
	out = all_of(&b);
	assert_int_equal(out.iov_len, at[1]);
	check_same(r, 0, out.iov_base, out.iov_len);
	iwarp_connect_sent(&b, out.iov_len);
	assert_int_equal(b.state, CONNECT_DONE);
	params[0] = a.params;
	params[1] = b.params;
}

/* ---- FPDUs ---- */
static struct {
	struct iwarp_reader r;
	struct iwarp_writer w;
	uint8_t rx_stage[IWARP_STAGE], tx_stage[IWARP_STAGE], payload[65536];
	struct ddp_seg seg;
	uint32_t len;
	unsigned fpdus, padded, ops[RDMAP_OPCODES];
	const struct stream *s;
	size_t at; /* compared up to here */
} t;

static int begin(void *arg, const struct ddp_seg *seg, const uint8_t *hdr, uint32_t len)
{
	const struct rdmap_op *op = &rdmap_ops[seg->opcode];

	t.seg = *seg;
	t.len = len;
	assert_true(op->name && !(op->flags & ROF_EXT));
	assert_int_equal(seg->tagged, !!(op->flags & ROF_TAGGED));
	assert_true(seg->tagged || seg->qn == op->qn);
	assert_true((op->flags & ROF_DATA) || (len == op->len && seg->last));
	return IWARP_GO;
}

static int place(void *arg, uint32_t off, uint32_t len, struct iovec *iov, unsigned max, unsigned *n)
{
	*n = 1;
	iov[0] = (struct iovec){t.payload + off, len};
	return IWARP_GO;
}

static int never(void *arg)
{
	fail();
	return ERR_RDMAP_LOCAL;
}

static bool gather(void *arg, const struct iwarp_fpdu *f, uint32_t off, uint32_t len, struct iovec *iov,
	unsigned max, unsigned *n)
{
	*n = 1;
	iov[0] = (struct iovec){t.payload + off, len};
	return true;
}

static void done(void *arg, const struct iwarp_fpdu *f)
{
}

/*
 * siw leaves in the pad what was there, where we put zeroes; then the CRC, which the reader has checked, is
 * another one, too.
 */
static bool is_padded_otherwise(size_t fpdu, uint32_t pad)
{
	static const uint8_t zeroes[3];

	return memcmp(t.s->bytes + t.at + fpdu - MPA_CRC_LEN - pad, zeroes, pad);
}

/* The same FPDU, made by us. */
static int end(void *arg)
{
	struct iwarp_fpdu f = {.hdr_len = MPA_HDR_LEN};
	struct iovec iov[8];
	bool other_pad;
	unsigned n;

	f.hdr_len += (uint8_t)ddp_put(f.hdr + f.hdr_len, &t.seg);
	if (t.seg.opcode == RDMAP_READ_REQUEST) {
		struct rdmap_read r = rdmap_read_get(t.payload);

		rdmap_read_put(f.hdr + f.hdr_len, &r);
		f.hdr_len += RDMAP_READ_LEN;
	} else {
		f.len = t.len;
	}
	assert_true(iwarp_writer_add(&t.w, &f, false));
	assert_true(iwarp_writer_iov(&t.w, true, iov, 8, &n));
	other_pad = is_padded_otherwise(t.w.waiting, mpa_pad(f.hdr_len - MPA_HDR_LEN + f.len));
	t.padded += other_pad;
	for (unsigned i = 0; i < n; i++) {
		if (i + 1 < n || !other_pad)
			check_same(t.s, t.at, iov[i].iov_base, iov[i].iov_len);
		t.at += iov[i].iov_len;
	}
	iwarp_writer_sent(&t.w, t.w.waiting);
	t.fpdus++;
	t.ops[t.seg.opcode]++;
	return IWARP_GO;
}

static const struct iwarp_reader_ops reader_ops = {begin, never, place, never, end};
static const struct iwarp_writer_ops writer_ops = {gather, done};

static void read_fpdus(const struct stream *s, size_t from, const struct iwarp_params *p)
{
	struct iovec iov[8];
	unsigned n;

	t.s = s;
	t.at = from;
	iwarp_reader_init(&t.r, &reader_ops, NULL, t.rx_stage, IWARP_STAGE, p->crc, p->expect_markers);
	iwarp_writer_init(
		&t.w, &writer_ops, NULL, t.tx_stage, IWARP_STAGE, MPA_ULPDU_MAX, p->crc, p->expect_markers);
	while (from < s->len) {
		size_t got = 0;

		assert_int_equal(iwarp_reader_want(&t.r, iov, 8, &n), IWARP_GO);
		for (unsigned i = 0; i < n && from < s->len; i++) {
			size_t part = iov[i].iov_len < s->len - from ? iov[i].iov_len : s->len - from;

			memcpy(iov[i].iov_base, s->bytes + from, part);
			from += part;
			got += part;
		}
		assert_int_equal(iwarp_reader_got(&t.r, got), IWARP_GO);
	}
	assert_true(iwarp_reader_between(&t.r));
	assert_int_equal(t.at, s->len);
}

static void all_bytes_of_siw_are_understood_and_made_again(void **state)
{
	unsigned connections = 0;

	for (unsigned k = 0; k < nstreams; k++) {
		const struct stream *i = &streams[k], *r;
		struct iwarp_params params[2];
		size_t at[2];

		if (i->len < MPA_FRAME_LEN || memcmp(i->bytes, "MPA ID Req Frame", 16))
			continue;
		r = reverse(i);
		assert_non_null(r);
		assert_true(whole(i) == i->len && whole(r) == r->len);
		shake_hands(i, r, params, at);
		assert_int_equal(params[0].crc, options_of(i->file).crc);
		assert_int_equal(params[0].rtr, options_of(i->file).peer_to_peer ? MPA_RTR_WRITE : 0);
		read_fpdus(i, at[0], &params[1]);
		read_fpdus(r, at[1], &params[0]);
		connections++;
	}
	for (unsigned i = 0; i < RDMAP_OPCODES; i++) {
		if (t.ops[i])
			printf("%s x%u\n", rdmap_ops[i].name, t.ops[i]);
	}
	printf("%u connections, %u FPDUs, %u of them with another pad\n", connections, t.fpdus, t.padded);
	assert_int_equal(connections, CONNECTIONS);
	assert_int_equal(t.fpdus, FPDUS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_bytes_of_siw_are_understood_and_made_again),
	};
	return cmocka_run_group_tests(tests, read_all, free_all);
}
