/* SPDX-License-Identifier: MIT */
/* The channel between processes: frames, and the bell for who sleeps. */
#include "local/channel_pair_test.h"

static void frames_go_through_shared_memory(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	for (uint32_t n = 0; n < 20000; n++) {
		assert_int_equal(send_one(&a, THERE, n), 0);
		if (n % 64 == 0) {
			receive(&b);
			receive(&a); /* hears how far b is */
		}
	}
	while (receive(&b))
		;
	assert_int_equal(b.got, 20000);
	assert_int_equal(a.wire->sent, 0);
	close_host(&a);
	close_host(&b);
}

/* ---- one direction through shared memory, the other over UDP ---- */
static struct {
	struct host a, b;
	link_deliver_fn *deliver;
	void *arg;
	unsigned heard;
} pair;

static void executed(void *arg, uint32_t note, uint32_t psn, bool done)
{
	pair.heard++;
}

static void answer_comes(void *arg, const struct frame_in *in)
{
	assert_int_equal(pair.heard, 1); /* that what it answers was executed */
	pair.a.got++;
}

/* b's program has its completion, and answers; who received for it has not come to telling yet. */
static void took_and_answers(void *arg, const struct frame_in *in)
{
	struct frame_in answer = {.len = 0};

	local_channel_took(in, true);
	by_wire = true;
	send_one(&pair.b, HERE, 0);
	by_wire = false;
	assert_int_equal(pair.b.wire->sent, 1);
	pair.deliver(pair.arg, &answer);
}

/* a has just looked into its rings. */
static void meanwhile(link_deliver_fn *deliver, void *arg)
{
	pair.deliver = deliver;
	pair.arg = arg;
	pair.a.wire->looks = NULL;
	pair.b.link->ops->receive(pair.b.link, 0, took_and_answers, &pair.b);
}

static void answer_by_the_wire_does_not_overtake(void **state)
{
	pair.a = open_host(HERE);
	pair.b = open_host(THERE);
	local_channel_set_events(pair.a.channel, &(struct local_channel_events){.executed = executed});
	assert_true(reach(&pair.a, THERE, &pair.b));
	send_noted(&pair.a, THERE, 0, 5);
	pair.a.wire->looks = meanwhile;
	pair.a.link->ops->receive(pair.a.link, 0, answer_comes, NULL);
	assert_int_equal(pair.a.got, 1);
	close_host(&pair.a);
	close_host(&pair.b);
}

static void process_reaches_itself(void **state)
{
	struct host a = open_host(HERE);

	assert_true(local_channel_connect(a.channel, HERE));
	for (uint32_t n = 0; n < 100; n++)
		send_one(&a, HERE, n);
	receive(&a);
	assert_int_equal(a.got, 100);
	close_host(&a);
}

static void nobody_there_means_the_wire(void **state)
{
	struct host a = open_host(HERE);

	assert_false(local_channel_connect(a.channel, THERE));
	send_one(&a, THERE, 0);
	assert_int_equal(a.wire->sent, 1);
	close_host(&a);
}

/* ---- the bell ---- */
static void sleeper_is_woken_once(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	assert_false(rung(&b));                       /* it did not sleep */
	assert_false(local_channel_sleep(b.channel)); /* nor should it */
	local_channel_woke(b.channel);
	receive(&b);
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 1);
	assert_true(rung(&b));
	send_one(&a, THERE, 2);
	local_channel_woke(b.channel);
	receive(&b);
	assert_int_equal(b.got, 3);
	assert_false(rung(&b)); /* the second frame did not ring again */
	/* A second time. */
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 3);
	assert_true(rung(&b));
	local_channel_woke(b.channel);
	close_host(&a);
	close_host(&b);
}

/* One thread lies down to sleep; another, which polls, takes the frame and hears the bell; then it polls no
 * more. */
static void bell_that_another_heard_rings_again(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	assert_false(rung(&b));
	send_one(&a, THERE, 1);
	assert_true(rung(&b));
	local_channel_woke(b.channel);
	close_host(&a);
	close_host(&b);
}

/* Who waits for something else attends to the sockets too, but takes no frames: the bell is not for it. */
static void bell_is_for_who_receives(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 0);
	assert_true(local_channel_connect(b.channel, THERE));
	local_channel_settle(b.channel);
	assert_true(rung(&b));
	local_channel_woke(b.channel);
	close_host(&a);
	close_host(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames_go_through_shared_memory),
		cmocka_unit_test(answer_by_the_wire_does_not_overtake),
		cmocka_unit_test(process_reaches_itself),
		cmocka_unit_test(nobody_there_means_the_wire),
		cmocka_unit_test(sleeper_is_woken_once),
		cmocka_unit_test(bell_that_another_heard_rings_again),
		cmocka_unit_test(bell_is_for_who_receives),
	};

	log_init();
	port = (uint16_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
