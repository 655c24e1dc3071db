/* SPDX-License-Identifier: MIT */
#include "local/ring.h"

#include "base/random.h"
#include "wire/ibt.h"

#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

struct pair {
	struct ring *ring;
	struct ring_tx tx;
	struct ring_rx rx;
	struct frame_batch b;
	uint8_t payload[RING_PAYLOAD_MAX];
	bool refuse;
};

static int make(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	p->ring = aligned_alloc(4096, sizeof(*p->ring));
	memset(p->ring, 0, sizeof(*p->ring));
	ring_tx_init(&p->tx, p->ring);
	ring_rx_init(&p->rx, p->ring);
	for (unsigned i = 0; i < sizeof(p->payload); i++)
		p->payload[i] = (uint8_t)(i * 7 + 3);
	p->b.nframes = p->b.niov = 1;
	p->b.dest.hop_limit = 64;
	*state = p;
	return 0;
}

static int unmake(void **state)
{
	struct pair *p = *state;

	free(p->ring);
	free(p);
	return 0;
}

static bool allow(void *arg, const struct ring_path *path)
{
	return !((struct pair *)arg)->refuse;
}

/* A frame whose PSN is n, with len bytes of payload from place n % 64 on. */
static enum ring_put put(struct pair *p, uint32_t n, uint32_t len)
{
	struct frame_out *f = &p->b.frame[0];

	*f = (struct frame_out){
		.hdr_len = BTH_LEN, .pad = (uint8_t)(-len & 3), .iov_count = 1, .payload_len = len};
	bth_put(f->hdr, IBT_RC | OP_SEND_ONLY, false, f->pad, PKEY_DEFAULT, 0x123456, false, n & PSN_MASK);
	p->b.iov[0] = (struct iovec){p->payload + n % 64, len};
	f->cookie = 0x123456;
	f->psn = n;
	return ring_put(&p->tx, ring_path_to(&p->tx, &p->b.dest), f, p->b.iov, NULL);
}

/* What was taken is given back. */
static int done(struct pair *p)
{
	struct ring_note note[4];

	ring_publish(&p->rx);
	return ring_collect(&p->tx, p->ring->taken, note, 4);
}

static void take(struct pair *p, uint32_t n, uint32_t len)
{
	uint32_t pad = -len & 3;
	struct frame_in in;
	const uint8_t *payload;

	assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
	assert_int_equal(in.len, BTH_LEN + len + pad);
	assert_int_equal(bth_psn(in.bytes), n & PSN_MASK);
	payload = in.payload_ext ? in.payload_ext : in.bytes + BTH_LEN;
	assert_memory_equal(payload, p->payload + n % 64, len);
	for (uint32_t i = 0; i < pad; i++)
		assert_int_equal(payload[len + i], 0);
	ring_took(&p->rx, true);
}

static void frames_come_whole_and_in_order(void **state)
{
	struct pair *p = *state;
	uint64_t seed = 1;
	uint32_t put_n = 0, taken_n = 0, len[1024];

	/* Several times round, with up to a thousand on their way. */
	while (taken_n < 100000) {
		for (uint32_t k = random_seeded(&seed) % 200; k && put_n - taken_n < 1000; k--) {
			uint32_t l = random_seeded(&seed) % 3 ? random_seeded(&seed) % 60
							      : random_seeded(&seed) % 4097;
			enum ring_put how = put(p, put_n, l);

			if (how == RING_FULL)
				break;
			assert_int_equal(how, RING_PUT);
			len[put_n++ % 1024] = l;
		}
		for (uint32_t k = random_seeded(&seed) % 200; k && taken_n != put_n; k--, taken_n++)
			take(p, taken_n, len[taken_n % 1024]);
		if (random_seeded(&seed) % 4)
			done(p);
	}
}

static void slot_holds_what_fits(void **state)
{
	struct pair *p = *state;
	struct frame_in in;

	for (uint32_t len = 0; len <= RING_BYTES; len += 4) {
		put(p, len, len);
		assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
		assert_true(!in.payload_ext == (BTH_LEN + len <= RING_BYTES));
	}
}

/* The places of a payload that goes by reference: as many as there may be, in the slot or beside it. */
static void frame_by_reference_says_where(void **state)
{
	struct pair *p = *state;
	struct frame_out *f = &p->b.frame[0];
	struct frame_ref refs[FRAME_REFS + 1];
	struct frame_in in;

	for (unsigned i = 0; i <= FRAME_REFS; i++)
		refs[i] = (struct frame_ref){0x123456789abcull * i, 1u << 31, ~i};
	for (unsigned n = 0; n <= FRAME_REFS + 1; n++) {
		uint32_t len = n * (uint32_t)sizeof(refs[0]);

		put(p, n, 0);
		ring_take(&p->rx, &in, allow, p);
		assert_int_equal(in.by_ref, 0);
		f->by_ref = 5;
		f->payload_len = len;
		p->b.iov[0] = (struct iovec){refs, len};
		assert_int_equal(ring_put(&p->tx, 0, f, p->b.iov, NULL), RING_PUT);
		assert_int_equal(ring_take(&p->rx, &in, allow, p), n && n <= FRAME_REFS ? 1 : -1);
		if (!n || n > FRAME_REFS)
			continue;
		/* A copy: the writer has no hand in it any more. */
		memset(p->ring->data, 0, 4096);
		assert_int_equal(in.by_ref, 5);
		assert_int_equal(in.nrefs, n);
		assert_int_equal(in.ref_len, (uint64_t)n << 31);
		assert_memory_equal(in.refs, refs, len);
	}
}

static void put_by_ref(struct pair *p, const struct frame_ref *refs, unsigned n)
{
	struct frame_out *f = &p->b.frame[0];

	*f = (struct frame_out){.hdr_len = BTH_LEN,
		.by_ref = 5,
		.iov_count = 1,
		.payload_len = n * (uint32_t)sizeof(refs[0])};
	bth_put(f->hdr, IBT_RC | OP_SEND_ONLY_IMM, false, 0, PKEY_DEFAULT, 0x123456, false, 7);
	p->b.iov[0] = (struct iovec){(void *)refs, f->payload_len};
	assert_int_equal(ring_put(&p->tx, ring_path_to(&p->tx, &p->b.dest), f, p->b.iov, NULL), RING_PUT);
}

/* Frames by reference of one place can be seen before their turn, and nothing else; they come all the same.
 */
static void frames_by_reference_are_seen_ahead(void **state)
{
	static const struct frame_ref refs[2] = {{1000, 5000, 1}, {2000, 6000, 2}};
	struct pair *p = *state;
	struct frame_ahead a;
	struct frame_in in;

	put(p, 0, 8);
	put_by_ref(p, &refs[1], 1);
	put_by_ref(p, refs, 2);
	put(p, 1, 16);
	p->b.dest.tclass = 1; /* another path */
	put_by_ref(p, refs, 1);
	assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
	assert_true(ring_ahead(&p->rx, 0, &a));
	assert_int_equal(a.dqpn, 0x123456);
	assert_int_equal(a.opcode, IBT_RC | OP_SEND_ONLY_IMM);
	assert_memory_equal(&a.ref, &refs[1], sizeof(a.ref));
	for (uint32_t i = 1; i < 5; i++)
		assert_false(ring_ahead(&p->rx, i, &a));
	for (uint32_t place = 1; place < 5; place++) {
		assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
		assert_int_equal(in.place, place);
	}
	assert_false(ring_ahead(&p->rx, 0, &a)); /* there is none */
}

static void full_ring_goes_on_when_read(void **state)
{
	struct pair *p = *state;
	uint32_t n = 0, slots = 0;

	while (put(p, n, 4096) == RING_PUT)
		n++;
	assert_int_equal(n, RING_DATA / 4096);
	assert_int_equal(put(p, n, 4096), RING_FULL);
	for (uint32_t i = 0; i < n; i++)
		take(p, i, 4096);
	assert_int_equal(put(p, n, 4096), RING_FULL); /* not given back yet */
	done(p);
	assert_int_equal(put(p, n, 4096), RING_PUT);
	take(p, n, 4096);
	done(p);
	while (put(p, slots, 8) == RING_PUT)
		slots++;
	assert_int_equal(slots, RING_SLOTS);
	take(p, 0, 8);
	done(p);
	assert_int_equal(put(p, slots, 8), RING_PUT);
}

static void empty_ring_begins_where_it_is_warm(void **state)
{
	struct pair *p = *state;
	struct frame_in in;

	for (uint32_t n = 0; n < 100; n++) {
		assert_int_equal(put(p, n, 4096), RING_PUT);
		assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
		assert_ptr_equal(in.payload_ext, p->ring->data);
		ring_took(&p->rx, true);
		done(p);
	}
}

static void frame_without_its_stamp_is_not_there(void **state)
{
	struct pair *p = *state;
	struct frame_in in;

	put(p, 0, 100);
	p->ring->slot[0].stamp = 0; /* as a writer leaves it that is killed before its last store */
	assert_int_equal(ring_take(&p->rx, &in, allow, p), 0);
}

static void reader_that_lies_is_found_out(void **state)
{
	struct pair *p = *state;
	struct ring_note note[4];

	put(p, 0, 100);
	assert_int_equal(ring_collect(&p->tx, 2, note, 4), -1);
	assert_int_equal(ring_collect(&p->tx, 0x80000000, note, 4), -1);
	assert_int_equal(ring_collect(&p->tx, 0, note, 4), 0);
	assert_int_equal(ring_collect(&p->tx, UINT32_MAX, note, 4), 0); /* less than before is no news */
	assert_int_equal(ring_collect(&p->tx, 1, note, 4), 1);
}

static void what_was_executed_is_told(void **state)
{
	struct pair *p = *state;
	struct ring_note note[4];
	struct frame_in in;

	/* Twice round, so that every place has been refused and executed. */
	for (uint32_t n = 0; n < 3 * RING_SLOTS; n++) {
		bool refuse = n / RING_SLOTS % 2;

		assert_int_equal(put(p, 3 * n, 8), RING_PUT);
		assert_int_equal(put(p, 3 * n + 1, 8), RING_PUT);
		assert_int_equal(put(p, 3 * n + 2, 8), RING_PUT);
		for (unsigned k = 0; k < 3; k++) {
			assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
			ring_took(&p->rx, k < 2 || !refuse);
		}
		ring_publish(&p->rx);
		assert_true(ring_has_ack(&p->tx));
		assert_int_equal(ring_collect(&p->tx, p->ring->taken, note, 4), refuse ? 2 : 1);
		assert_false(ring_has_ack(&p->tx));
		assert_int_equal(note[0].psn, 3 * n + (refuse ? 1 : 2));
		assert_false(note[0].refused);
		if (refuse) {
			assert_int_equal(note[1].psn, 3 * n + 2);
			assert_true(note[1].refused);
		}
	}
}

static void what_finds_no_room_is_told_the_next_time(void **state)
{
	struct pair *p = *state;
	struct ring_note note[2];

	for (uint32_t n = 0; n < 6; n++) {
		put(p, n, 8);
		p->tx.sent[n].note.cookie += n; /* of six QPs */
		take(p, n, 8);
	}
	ring_publish(&p->rx);
	for (uint32_t n = 0; n < 6; n += 2) {
		assert_int_equal(ring_collect(&p->tx, p->ring->taken, note, 2), 2);
		assert_int_equal(note[0].psn, n);
		assert_int_equal(note[1].psn, n + 1);
	}
	assert_int_equal(ring_collect(&p->tx, p->ring->taken, note, 2), 0);
}

static void no_slot_leads_out_of_the_ring(void **state)
{
	struct pair *p = *state;
	uint64_t seed = 7;
	unsigned good = 0, by_ref = 0;

	for (uint32_t n = 0; n < 200000; n++) {
		struct ring_slot *s = &p->ring->slot[n % RING_SLOTS];
		struct frame_in in;
		int got;

		for (unsigned i = 0; i < sizeof(*s); i += 8) {
			uint64_t r = random_seeded(&seed);

			memcpy((char *)s + i, &r, 8);
		}
		if (n % 2) /* near what can be */
			s->hdr_len %= 64, s->path %= 140, s->place %= RING_DATA + 64, s->len %= 9000;
		if (n % 4 == 1)
			s->place |= 5u << RING_BY_REF_SHIFT, s->len %= 3 * FRAME_REFS * 16 / 2;
		s->stamp = n + 1;
		ring_ahead(&p->rx, 0, &(struct frame_ahead){0});
		got = ring_take(&p->rx, &in, allow, p);
		assert_true(got == 1 || got == -1);
		if (got < 0)
			continue;
		good++;
		by_ref += !!in.by_ref;
		assert_true(!in.by_ref || (in.refs == p->rx.refs && in.nrefs && in.nrefs <= FRAME_REFS));
		assert_ptr_equal(in.bytes, p->rx.slot.bytes);
		assert_true(in.payload_ext || in.len <= RING_BYTES);
		assert_true(!in.payload_ext ||
			    (in.head_len <= RING_BYTES && in.payload_ext >= p->ring->data &&
				    in.payload_ext + (in.len - in.head_len) <= p->ring->data + RING_DATA));
	}
	assert_true(good > 1000 && by_ref > 100);
}

static void path_is_looked_at_until_it_may_be(void **state)
{
	struct pair *p = *state;
	struct frame_in in;

	p->refuse = true;
	put(p, 0, 8);
	assert_int_equal(ring_take(&p->rx, &in, allow, p), -1);
	p->refuse = false; /* as when the address is new */
	put(p, 1, 8);
	assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
	/* From then on it is what it was, whatever the writer does. */
	p->refuse = true;
	p->ring->path[0].tclass = 9;
	put(p, 2, 8);
	assert_int_equal(ring_take(&p->rx, &in, allow, p), 1);
	assert_int_equal(in.tclass, 0);
}

static void too_many_paths_do_not_fit(void **state)
{
	struct pair *p = *state;

	for (unsigned i = 0; i < RING_PATHS; i++) {
		p->b.dest.tclass = (uint8_t)i;
		assert_int_equal(put(p, i, 8), RING_PUT);
	}
	p->b.dest.tclass = RING_PATHS;
	assert_int_equal(put(p, 0, 8), RING_UNFIT);
	p->b.dest.tclass = 3;
	assert_int_equal(put(p, 0, 8), RING_PUT);
}

#define T(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(frames_come_whole_and_in_order),
		T(slot_holds_what_fits),
		T(frame_by_reference_says_where),
		T(frames_by_reference_are_seen_ahead),
		T(full_ring_goes_on_when_read),
		T(empty_ring_begins_where_it_is_warm),
		T(frame_without_its_stamp_is_not_there),
		T(reader_that_lies_is_found_out),
		T(what_was_executed_is_told),
		T(what_finds_no_room_is_told_the_next_time),
		T(no_slot_leads_out_of_the_ring),
		T(path_is_looked_at_until_it_may_be),
		T(too_many_paths_do_not_fit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
