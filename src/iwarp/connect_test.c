/* SPDX-License-Identifier: MIT */
/* Both ends of MPA's set-up against each other, and against what a stranger might say. */
#include "iwarp/connect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { ALL_RTR = MPA_RTR_ZERO | MPA_RTR_WRITE | MPA_RTR_READ };

static struct iwarp_options plain(uint8_t revision)
{
	return (struct iwarp_options){.revision = revision, .rtr = ALL_RTR, .ird = 8, .ord = 4};
}

/* Moves what there is, at most `each` bytes at a time; false: nothing. */
static bool move(struct iwarp_connect *from, struct iwarp_connect *to, size_t each)
{
	struct iovec out = iwarp_connect_out(from), in = iwarp_connect_in(to);
	size_t n = out.iov_len < in.iov_len ? out.iov_len : in.iov_len;

	n = n < each ? n : each;
	if (!n)
		return false;
	memcpy(in.iov_base, out.iov_base, n);
	iwarp_connect_sent(from, n);
	iwarp_connect_got(to, n);
	return true;
}

struct ends {
	struct iwarp_connect i, r;
};

static void ask(struct ends *e, const struct iwarp_options *oi, const struct iwarp_options *ro, size_t each)
{
	assert_true(iwarp_connect_start(&e->i, oi, "question", 8));
	iwarp_connect_await(&e->r, ro);
	while (move(&e->i, &e->r, each))
		;
}

static void answer(struct ends *e, size_t each)
{
	assert_int_equal(e->r.state, CONNECT_ASKED);
	assert_true(iwarp_connect_accept(&e->r, e->r.opt.ird, e->r.opt.ord, "reply", 5));
	while (move(&e->r, &e->i, each))
		;
}

static void check_private(struct iwarp_connect *c, const char *expect)
{
	uint32_t len;
	const uint8_t *p = iwarp_connect_private(c, &len);

	assert_int_equal(len, strlen(expect));
	assert_memory_equal(p, expect, len);
}

static void both_ends_agree_however_the_bytes_are_cut(void **state)
{
	for (size_t each = 1; each < 50; each++) {
		for (uint8_t rev = 1; rev <= 2; rev++) {
			struct iwarp_options o = plain(rev);
			struct ends e;

			ask(&e, &o, &o, each);
			check_private(&e.r, "question");
			answer(&e, each);
			assert_int_equal(e.i.state, CONNECT_DONE);
			assert_int_equal(e.r.state, CONNECT_DONE);
			check_private(&e.i, "reply");
			assert_int_equal(e.i.params.revision, rev);
			assert_true(e.i.params.initiator && !e.r.params.initiator);
		}
	}
}

/* CRC when either asks, markers where the receiver asks. */
static void crc_and_markers_are_agreed_on(void **state)
{
	for (unsigned m = 0; m < 16; m++) {
		struct iwarp_options oi = plain(2), ro = plain(2);
		struct ends e;

		oi.crc = m & 1;
		ro.crc = m & 2;
		oi.markers = m & 4;
		ro.markers = m & 8;
		ask(&e, &oi, &ro, SIZE_MAX);
		answer(&e, SIZE_MAX);
		assert_int_equal(e.i.params.crc, !!(m & 3));
		assert_int_equal(e.r.params.crc, !!(m & 3));
		assert_int_equal(e.i.params.expect_markers, !!(m & 4));
		assert_int_equal(e.r.params.send_markers, !!(m & 4));
		assert_int_equal(e.r.params.expect_markers, !!(m & 8));
		assert_int_equal(e.i.params.send_markers, !!(m & 8));
	}
}

static void markers_may_be_refused(void **state)
{
	struct iwarp_options oi = plain(2), ro = plain(2);
	struct ends e;

	oi.markers = ro.no_markers = true;
	ask(&e, &oi, &ro, SIZE_MAX);
	answer(&e, SIZE_MAX);
	assert_int_equal(e.i.state, CONNECT_REFUSED);
	assert_int_equal(e.r.state, CONNECT_REFUSED);
	oi = ro = plain(2);
	oi.no_markers = ro.markers = true;
	ask(&e, &oi, &ro, SIZE_MAX);
	answer(&e, SIZE_MAX);
	assert_int_equal(e.i.state, CONNECT_BROKEN);
}

static void depths_are_the_lesser_of_both(void **state)
{
	struct iwarp_options oi = plain(2), ro = plain(2);
	struct ends e;

	oi.ird = 3;
	oi.ord = 9;
	ro.ird = 5;
	ro.ord = 7;
	ask(&e, &oi, &ro, SIZE_MAX);
	answer(&e, SIZE_MAX);
	assert_int_equal(e.i.params.ord, 5); /* what the responder takes */
	assert_int_equal(e.r.params.ird, 5);
	assert_int_equal(e.r.params.ord, 3); /* what the initiator takes */
	assert_int_equal(e.i.params.ird, 3);
}

/* Revision 1 says nothing of depths: each end goes by its own. */
static void revision_1_leaves_depths_alone(void **state)
{
	struct iwarp_options o = plain(1);
	struct ends e;

	ask(&e, &o, &o, SIZE_MAX);
	answer(&e, SIZE_MAX);
	assert_int_equal(e.i.params.ord, 4);
	assert_int_equal(e.r.params.ird, 8);
	assert_false(e.i.params.peer_to_peer);
}

static void every_kind_of_rtr_is_agreed_on(void **state)
{
	static const uint8_t kinds[] = {MPA_RTR_ZERO, MPA_RTR_WRITE, MPA_RTR_READ};

	for (unsigned k = 0; k < 3; k++) {
		for (unsigned side = 0; side < 2; side++) {
			struct iwarp_options oi = plain(2), ro = plain(2);
			struct ends e;

			oi.peer_to_peer = true;
			*(side ? &oi.rtr : &ro.rtr) = kinds[k];
			ask(&e, &oi, &ro, SIZE_MAX);
			answer(&e, SIZE_MAX);
			assert_int_equal(e.i.state, CONNECT_DONE);
			assert_true(e.i.params.peer_to_peer && e.r.params.peer_to_peer);
			assert_int_equal(e.i.params.rtr, kinds[k]);
			assert_int_equal(e.r.params.rtr, kinds[k]);
		}
	}
}

static void no_common_rtr_is_a_refusal(void **state)
{
	struct iwarp_options oi = plain(2), ro = plain(2);
	struct ends e;

	oi.peer_to_peer = true;
	oi.rtr = MPA_RTR_READ;
	ro.rtr = MPA_RTR_WRITE;
	ask(&e, &oi, &ro, SIZE_MAX);
	answer(&e, SIZE_MAX);
	assert_int_equal(e.i.state, CONNECT_REFUSED);
	assert_int_equal(e.r.error, ERR_LLP_RTR);
}

static void extensions_only_when_both_have_them(void **state)
{
	for (unsigned m = 0; m < 4; m++) {
		struct iwarp_options oi = plain(2), ro = plain(2);
		struct ends e;

		oi.extended = m & 1;
		ro.extended = m & 2;
		ask(&e, &oi, &ro, SIZE_MAX);
		answer(&e, SIZE_MAX);
		assert_int_equal(e.i.params.extended, m == 3);
		assert_int_equal(e.r.params.extended, m == 3);
	}
}

/* siw answers with the flags it was asked with. */
static void repeated_flags_are_no_extension(void **state)
{
	struct mpa_frame f = {.reply = true,
		.revision = 2,
		.flags = MPA_ENHANCED | MPA_EXTENDED_ASK | MPA_MEMORY,
		.private_len = 4};
	struct iwarp_options o = plain(2);
	struct iwarp_connect c;
	struct iovec in;

	o.extended = o.memory = true;
	assert_true(iwarp_connect_start(&c, &o, NULL, 0));
	in = iwarp_connect_in(&c);
	mpa_frame_put(in.iov_base, &f);
	iwarp_connect_got(&c, in.iov_len);
	in = iwarp_connect_in(&c);
	mpa_v2_put(in.iov_base, &(struct mpa_v2){.ird = 1, .ord = 1});
	iwarp_connect_got(&c, in.iov_len);
	assert_int_equal(c.state, CONNECT_DONE);
	assert_false(c.params.extended);
}

/* Moves until both have to decide something, or are through. */
static void talk(struct ends *e, size_t each)
{
	while (move(&e->i, &e->r, each) || move(&e->r, &e->i, each))
		;
}

static void ends_on_one_host_upgrade_however_the_bytes_are_cut(void **state)
{
	for (size_t each = 1; each < 100; each++) {
		for (unsigned m = 0; m < 4; m++) {
			struct iwarp_options o = plain(2);
			struct ends e;

			o.extended = o.memory = true;
			ask(&e, &o, &o, each);
			e.r.own.qpn = 7;
			answer(&e, each);
			check_private(&e.i, "reply");
			assert_int_equal(e.i.state, CONNECT_UPGRADE_READY);
			assert_int_equal(e.r.state, CONNECT_UPGRADE_WAIT);
			assert_true(e.i.theirs.ok && e.i.theirs.qpn == 7);
			e.i.own.qpn = 8;
			iwarp_connect_upgrade(&e.i, m & 1);
			talk(&e, each);
			if (m & 1) {
				assert_int_equal(e.i.state, CONNECT_UPGRADE_WAIT);
				assert_int_equal(e.r.state, CONNECT_UPGRADE_READY);
				assert_true(e.r.theirs.ok && e.r.theirs.qpn == 8);
				iwarp_connect_upgrade(&e.r, m & 2);
				talk(&e, each);
			}
			assert_int_equal(e.i.state, CONNECT_DONE);
			assert_int_equal(e.r.state, CONNECT_DONE);
			assert_int_equal(e.i.params.memory, m == 3);
			assert_int_equal(e.r.params.memory, m == 3);
		}
	}
}

static void ends_upgrade_only_when_both_offer_it(void **state)
{
	for (unsigned m = 0; m < 16; m++) {
		struct iwarp_options oi = plain(2), ro = plain(2);
		struct ends e;

		oi.memory = m & 1;
		ro.memory = m & 2;
		oi.extended = m & 4;
		ro.extended = m & 8;
		ask(&e, &oi, &ro, SIZE_MAX);
		answer(&e, SIZE_MAX);
		assert_int_equal(e.i.state, m == 15 ? CONNECT_UPGRADE_READY : CONNECT_DONE);
		assert_int_equal(e.r.state, m == 15 ? CONNECT_UPGRADE_WAIT : CONNECT_DONE);
	}
}

static void nonsense_in_place_of_an_upgrade_ends_it(void **state)
{
	struct iwarp_options o = plain(2);
	struct ends e;
	struct iovec in;

	o.extended = o.memory = true;
	ask(&e, &o, &o, SIZE_MAX);
	answer(&e, SIZE_MAX);
	in = iwarp_connect_in(&e.r);
	assert_int_equal(in.iov_len, MPA_UPGRADE_LEN);
	memset(in.iov_base, 0x55, in.iov_len);
	iwarp_connect_got(&e.r, in.iov_len);
	assert_int_equal(e.r.state, CONNECT_BROKEN);
	iwarp_connect_lost(&e.i);
	assert_int_equal(e.i.state, CONNECT_BROKEN);
}

static void private_data_goes_up_to_the_limit(void **state)
{
	static char data[MPA_PRIVATE_MAX + 1];

	memset(data, 'x', sizeof(data));
	for (uint8_t rev = 1; rev <= 2; rev++) {
		uint32_t max = iwarp_private_max(rev), len;
		struct iwarp_options o = plain(rev);
		struct ends e;

		assert_int_equal(max, rev == 1 ? 512 : 508);
		assert_false(iwarp_connect_start(&e.i, &o, data, max + 1));
		assert_true(iwarp_connect_start(&e.i, &o, data, max));
		iwarp_connect_await(&e.r, &o);
		while (move(&e.i, &e.r, 100))
			;
		iwarp_connect_private(&e.r, &len);
		assert_int_equal(len, max);
		assert_false(iwarp_connect_accept(&e.r, 1, 1, data, max + 1));
		assert_true(iwarp_connect_reject(&e.r, data, max));
		while (move(&e.r, &e.i, 100))
			;
		assert_int_equal(e.i.state, CONNECT_REFUSED);
		iwarp_connect_private(&e.i, &len);
		assert_int_equal(len, max);
	}
}

static void request_of_a_later_revision_is_refused(void **state)
{
	struct iwarp_options oi = plain(2), ro = plain(1);
	struct ends e;

	ask(&e, &oi, &ro, SIZE_MAX);
	while (move(&e.r, &e.i, SIZE_MAX))
		;
	assert_int_equal(e.i.state, CONNECT_REFUSED);
	assert_int_equal(e.i.peer.revision, 1); /* so that it can try again */
}

/* A frame by hand into either end. */
static enum iwarp_connect_state hear(bool initiator, struct mpa_frame f, const struct mpa_v2 *v2)
{
	struct iwarp_options o = plain(2);
	uint8_t bytes[MPA_FRAME_LEN + MPA_V2_LEN];
	struct iwarp_connect c;
	size_t at = 0;

	o.peer_to_peer = true;
	o.rtr = MPA_RTR_WRITE | MPA_RTR_READ;
	if (initiator)
		assert_true(iwarp_connect_start(&c, &o, NULL, 0));
	else
		iwarp_connect_await(&c, &o);
	mpa_frame_put(bytes, &f);
	if (v2)
		mpa_v2_put(bytes + MPA_FRAME_LEN, v2);
	for (;;) {
		struct iovec in = iwarp_connect_in(&c);

		if (!in.iov_len || at == MPA_FRAME_LEN + (size_t)f.private_len)
			return c.state;
		*(uint8_t *)in.iov_base = bytes[at++];
		iwarp_connect_got(&c, 1);
	}
}

static void frames_out_of_place_are_refused(void **state)
{
	struct mpa_v2 v2 = {.ird = 4, .ord = 4, .peer_to_peer = true, .rtr = MPA_RTR_WRITE};
	struct mpa_frame f = {.reply = true, .revision = 2, .flags = MPA_ENHANCED, .private_len = 4};

	assert_int_equal(hear(true, f, &v2), CONNECT_DONE);
	assert_int_equal(hear(false, f, &v2), CONNECT_BROKEN); /* a reply nobody asked for */
	v2.rtr = MPA_RTR_WRITE | MPA_RTR_READ;
	assert_int_equal(hear(true, f, &v2), CONNECT_BROKEN); /* two kinds chosen */
	v2.rtr = 0;
	assert_int_equal(hear(true, f, &v2), CONNECT_BROKEN); /* none */
	v2.rtr = MPA_RTR_ZERO;
	assert_int_equal(hear(true, f, &v2), CONNECT_BROKEN); /* one that was not offered */
	v2 = (struct mpa_v2){.ird = 4, .ord = 9};
	assert_int_equal(hear(true, f, &v2), CONNECT_BROKEN); /* more than we said we take */
	v2.ord = MPA_DEPTH_UNTOLD;
	assert_int_equal(hear(true, f, &v2), CONNECT_DONE);
	f.revision = 1;
	assert_int_equal(hear(true, f, &v2), CONNECT_BROKEN);
	f = (struct mpa_frame){.revision = 2, .flags = MPA_ENHANCED, .private_len = 3};
	assert_int_equal(hear(false, f, &v2), CONNECT_BROKEN); /* no room for its depths */
	f = (struct mpa_frame){.revision = 2, .flags = MPA_REJECT};
	assert_int_equal(hear(false, f, NULL), CONNECT_BROKEN); /* a request that refuses */
	f = (struct mpa_frame){.revision = 0};
	assert_int_equal(hear(false, f, NULL), CONNECT_BROKEN);
	f = (struct mpa_frame){.revision = 2};
	assert_int_equal(hear(false, f, NULL), CONNECT_ASKED); /* revision 2 without its words */
	assert_int_equal(hear(true, f, NULL), CONNECT_BROKEN); /* a request in return */
}

static void connection_lost_at_each_step(void **state)
{
	struct iwarp_options o = plain(2);

	for (size_t cut = 0; cut < 100; cut++) {
		struct ends e;
		size_t left = cut;

		assert_true(iwarp_connect_start(&e.i, &o, "question", 8));
		iwarp_connect_await(&e.r, &o);
		for (bool on = true; on && left;) {
			on = move(&e.i, &e.r, 1) || move(&e.r, &e.i, 1);
			left -= on;
			if (e.r.state == CONNECT_ASKED)
				on = iwarp_connect_accept(&e.r, 1, 1, "reply", 5);
		}
		iwarp_connect_lost(&e.i);
		iwarp_connect_lost(&e.r);
		assert_true(e.i.state == CONNECT_DONE || e.i.state == CONNECT_BROKEN);
		assert_true(e.r.state == CONNECT_DONE || e.r.state == CONNECT_BROKEN);
		if (e.i.state == CONNECT_DONE)
			assert_int_equal(e.r.state, CONNECT_DONE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ends_agree_however_the_bytes_are_cut),
		cmocka_unit_test(crc_and_markers_are_agreed_on),
		cmocka_unit_test(markers_may_be_refused),
		cmocka_unit_test(depths_are_the_lesser_of_both),
		cmocka_unit_test(revision_1_leaves_depths_alone),
		cmocka_unit_test(every_kind_of_rtr_is_agreed_on),
		cmocka_unit_test(no_common_rtr_is_a_refusal),
		cmocka_unit_test(extensions_only_when_both_have_them),
		cmocka_unit_test(repeated_flags_are_no_extension),
		cmocka_unit_test(ends_on_one_host_upgrade_however_the_bytes_are_cut),
		cmocka_unit_test(ends_upgrade_only_when_both_offer_it),
		cmocka_unit_test(nonsense_in_place_of_an_upgrade_ends_it),
		cmocka_unit_test(private_data_goes_up_to_the_limit),
		cmocka_unit_test(request_of_a_later_revision_is_refused),
		cmocka_unit_test(frames_out_of_place_are_refused),
		cmocka_unit_test(connection_lost_at_each_step),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
