/* SPDX-License-Identifier: MIT */
/* The channel where processes have more than their user in common: whom it believes, and for how long. */
#include "local/channel_pair_test.h"

static struct {
	int pid;
	uint32_t slot;
	bool may;
	uint64_t epoch;
	unsigned asked;
	uint16_t slid;
	uint8_t grh_sgid;
	bool anothers;
} truth;

enum { HOME = 77 };

static uint32_t home(void *arg, uint32_t slot, int pid)
{
	truth.slot = slot;
	return pid == truth.pid && !truth.anothers ? HOME : 0;
}

static bool is_anothers(void *arg, uint32_t slot, int pid)
{
	return truth.anothers;
}

static bool may_come(void *arg, uint32_t from, const struct frame_dest *path)
{
	if (!from)
		return false;
	assert_int_equal(from, HOME);
	truth.asked++;
	truth.slid = path->slid;
	truth.grh_sgid = path->has_grh ? path->grh.sgid[0] : 0;
	return truth.may;
}

static uint64_t epoch(void *arg)
{
	return truth.epoch;
}

static struct host open_trusting(uint32_t slot)
{
	static const struct local_channel_trust trust = {home, may_come, is_anothers, epoch, NULL};
	struct host h = open_host(slot);

	local_channel_set_trust(h.channel, &trust);
	return h;
}

static int begin(void **state)
{
	truth.pid = getpid();
	truth.may = true;
	truth.epoch = 2;
	truth.anothers = false;
	truth.asked = 0;
	return 0;
}

/* ---- who ---- */
static bool meet(struct host *a, struct host *b)
{
	for (int i = 0; i < 10; i++) {
		ask(a, THERE);
		receive(b);
	}
	return local_channel_is_up(a->channel, THERE);
}

static void who_listens_has_to_be_known(void **state)
{
	struct host a = open_trusting(HERE), b = open_host(THERE);

	truth.pid++;
	assert_false(meet(&a, &b));
	assert_int_equal(truth.slot, THERE);
	close_host(&a);
	close_host(&b);
}

static void who_connects_has_to_be_known(void **state)
{
	struct host a = open_host(HERE), b = open_trusting(THERE);

	truth.pid++;
	assert_false(meet(&a, &b));
	assert_int_equal(truth.slot, HERE);
	truth.pid--;
	assert_true(local_channel_connect(a.channel, HERE)); /* nobody else is refused */
	close_host(&a);
	close_host(&b);
}

static void who_is_known_is_reached(void **state)
{
	struct host a = open_trusting(HERE), b = open_trusting(THERE);

	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	assert_int_equal(truth.slot, HERE);
	close_host(&a);
	close_host(&b);
}

/* ---- with which addresses ---- */
static void send_from(struct host *from, uint16_t slid, uint32_t n)
{
	static struct frame_batch b;

	b = (struct frame_batch){.slot = THERE, .nframes = 1};
	b.dest.slid = slid;
	b.dest.has_grh = 1;
	b.dest.grh.sgid[0] = 0xfe;
	b.frame[0] = (struct frame_out){.hdr_len = BTH_LEN};
	bth_put(b.frame[0].hdr, IBT_RC | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, THERE << QPN_SLOT_SHIFT | 5,
		false, n);
	assert_int_equal(from->link->ops->send(from->link, &b), 0);
}

static void count(void *arg, const struct frame_in *in)
{
	assert_int_equal(in->slot, HERE); /* before its PAIR has come, too */
	((struct host *)arg)->got++;
}

static unsigned take(struct host *h)
{
	h->got = 0;
	h->link->ops->receive(h->link, 0, count, h);
	return h->got;
}

static void slot_of_who_is_known_needs_no_pair(void **state)
{
	struct host a = open_host(HERE), b = open_trusting(THERE);

	for (int i = 0; i < 100 && !ask(&a, THERE); i++)
		local_channel_connect(b.channel, THERE); /* it attends, and takes nothing */
	assert_true(local_channel_is_up(a.channel, THERE));
	send_from(&a, 5, 0);
	assert_int_equal(take(&b), 1);
	close_host(&a);
	close_host(&b);
}

static void each_address_is_asked_about_once(void **state)
{
	struct host a = open_trusting(HERE), b = open_trusting(THERE);

	assert_true(reach(&a, THERE, &b));
	truth.asked = 0;
	for (uint32_t n = 0; n < 10; n++)
		send_from(&a, 5, n);
	assert_int_equal(take(&b), 10);
	assert_int_equal(truth.asked, 1);
	assert_int_equal(truth.slid, 5);
	assert_int_equal(truth.grh_sgid, 0xfe);
	send_from(&a, 6, 10);
	assert_int_equal(take(&b), 1);
	assert_int_equal(truth.asked, 2);
	close_host(&a);
	close_host(&b);
}

static void address_of_another_is_dropped_until_it_is_its_own(void **state)
{
	struct host a = open_trusting(HERE), b = open_trusting(THERE);

	assert_true(reach(&a, THERE, &b));
	truth.may = false;
	send_from(&a, 5, 0);
	assert_int_equal(take(&b), 0);
	truth.may = true;
	send_from(&a, 5, 1);
	assert_int_equal(take(&b), 1);
	truth.may = false;
	send_from(&a, 5, 2);
	assert_int_equal(take(&b), 1); /* nothing has changed, as far as it knows */
	truth.epoch += 2;
	send_from(&a, 5, 3);
	assert_int_equal(take(&b), 0);
	close_host(&a);
	close_host(&b);
}

/* The fabric knows that it has ended before we have taken what it sent. */
static void last_words_are_heard(void **state)
{
	struct host a = open_trusting(HERE), b = open_trusting(THERE);

	assert_true(reach(&a, THERE, &b));
	send_from(&a, 5, 0);
	truth.pid++;
	truth.epoch += 2;
	close_host(&a);
	assert_int_equal(take(&b), 1);
	close_host(&b);
}

/* One that has left the fabric keeps its rings, and another program gets its slot. */
static void who_has_lost_its_slot_to_another_is_nobody(void **state)
{
	struct host a = open_trusting(HERE), b = open_trusting(THERE);

	assert_true(reach(&a, THERE, &b));
	send_from(&a, 5, 0);
	assert_int_equal(take(&b), 1);
	truth.anothers = true;
	truth.epoch += 2;
	send_from(&a, 5, 1);
	assert_int_equal(take(&b), 0);
	take(&a);
	assert_false(local_channel_is_up(a.channel, THERE)); /* nor does it get what is for the other */
	close_host(&a);
	close_host(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(who_listens_has_to_be_known, begin),
		cmocka_unit_test_setup(who_connects_has_to_be_known, begin),
		cmocka_unit_test_setup(who_is_known_is_reached, begin),
		cmocka_unit_test_setup(slot_of_who_is_known_needs_no_pair, begin),
		cmocka_unit_test_setup(each_address_is_asked_about_once, begin),
		cmocka_unit_test_setup(address_of_another_is_dropped_until_it_is_its_own, begin),
		cmocka_unit_test_setup(last_words_are_heard, begin),
		cmocka_unit_test_setup(who_has_lost_its_slot_to_another_is_nobody, begin),
	};

	log_init();
	port = (uint16_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
