/* SPDX-License-Identifier: MIT */
/* The end of a ring of the channel: its writer or reader leaves, is killed, or is cut off. */
#include "base/random.h"
#include "local/channel_pair_test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* ---- one leaves, and another may have its slot ---- */
/* The bell of the dead was not heard yet when another process has its slot. */
static void slot_of_a_dead_one_is_asked_anew(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b); /* and tells, by the bell, since it does not know the way back */
	close_host(&b);
	b = open_host(THERE);
	assert_false(local_channel_connect(a.channel, THERE)); /* nobody drives b */
	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	assert_int_equal(a.wire->sent, 0);
	close_host(&a);
	close_host(&b);
}

static void what_a_writer_left_is_still_read(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	for (uint32_t n = 0; n < 100; n++)
		send_one(&a, THERE, n);
	close_host(&a);
	while (receive(&b))
		;
	assert_int_equal(b.got, 100);
	close_host(&b);
}

/* More than one look takes: nothing else would wake who sleeps for it. */
static void nobody_sleeps_before_what_a_writer_left(void **state)
{
	enum { MANY = 600 };
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	for (uint32_t n = 0; n < MANY; n++)
		send_one(&a, THERE, n);
	close_host(&a);
	while (b.got < MANY) {
		assert_false(local_channel_sleep(b.channel) && !rung(&b));
		local_channel_woke(b.channel);
		receive(&b);
	}
	receive(&b);
	assert_true(local_channel_sleep(b.channel));
	local_channel_woke(b.channel);
	close_host(&b);
}

static void count(void *arg, uint32_t note, uint32_t psn, bool done)
{
	((struct host *)arg)->executed++;
}

/* What the dead said about frames to it is not about those to who has its slot now. */
static void word_of_the_dead_is_not_the_heirs(void **state)
{
	enum { N = 3 };
	struct host a = open_host(HERE), b = open_host(THERE), heir;

	local_channel_set_events(a.channel, &(struct local_channel_events){.executed = count});
	assert_true(reach(&a, THERE, &b));
	assert_true(reach(&b, HERE, &a));
	for (uint32_t n = 0; n < N; n++)
		send_one(&b, HERE, n);
	receive(&a); /* knows that both rings are of one process */
	for (uint32_t n = 0; n < N; n++)
		send_noted(&a, THERE, n, 1);
	receive(&b);
	send_one(&b, HERE, N); /* tells, and dies */
	close_host(&b);
	heir = open_host(THERE);
	assert_false(local_channel_connect(a.channel, THERE));
	while (!local_channel_connect(a.channel, THERE))
		receive(&heir);
	for (uint32_t n = 0; n < N; n++)
		send_noted(&a, THERE, n, 1);
	a.executed = 0;
	receive(&a);
	assert_int_equal(a.got, N + 1);
	assert_int_equal(a.executed, 0);
	receive(&heir);
	assert_int_equal(heir.got, N);
	close_host(&a);
	close_host(&heir);
}

static void reader_that_left_means_the_wire(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	close_host(&b);
	receive(&a);
	send_one(&a, THERE, 0);
	assert_int_equal(a.wire->sent, 1);
	/* Another process has the slot now. */
	b = open_host(THERE);
	assert_false(ask(&a, THERE)); /* not asked again so soon */
	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	close_host(&a);
	close_host(&b);
}

/* ---- taking away what another acts on ---- */
static const struct local_process *enter(struct host *a, struct host *b)
{
	const struct local_process *there = NULL;
	struct timespec ms = {.tv_nsec = 1000000};

	assert_true(reach(a, THERE, b));
	for (int i = 0; i < PATIENCE_MS && !there; i++) {
		receive(b);
		receive(a);
		there = local_channel_enter(a->channel, THERE);
		nanosleep(&ms, NULL);
	}
	assert_non_null(there);
	return there;
}

static void who_acts_is_waited_for(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	const struct local_process *there = enter(&a, &b);

	local_channel_leave(a.channel, THERE);
	local_channel_settle(b.channel);
	assert_int_equal(*there->revoked, 0);
	assert_true(local_channel_is_up(a.channel, THERE));
	close_host(&a);
	close_host(&b);
}

/* It has stopped in the middle, or says so for ever. */
static void who_acts_for_ever_is_cut_off(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	const struct local_process *there = enter(&a, &b);
	struct timespec cpu, before;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	local_channel_settle(b.channel); /* ends, though nobody else runs */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	assert_true((cpu.tv_sec - before.tv_sec) * 1000 + (cpu.tv_nsec - before.tv_nsec) / 1000000 < 40);
	assert_int_equal(*there->revoked, 1);
	local_channel_leave(a.channel, THERE);
	for (int i = 0; i < 3; i++) {
		receive(&a);
		receive(&b);
	}
	send_one(&a, THERE, 0);
	assert_int_equal(a.wire->sent, 1);
	close_host(&a);
	close_host(&b);
}

static void count_promises(void *arg, uint64_t ns)
{
	++*(unsigned *)arg;
}

/* Its bell goes with its socket: who was about to be woken by it is told otherwise. */
static void what_was_said_before_the_cut_is_heard(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	unsigned promises = 0;

	enter(&a, &b);
	local_channel_set_events(b.channel,
		&(struct local_channel_events){.promise = count_promises, .promise_arg = &promises});
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 0);
	assert_true(rung(&b));
	local_channel_settle(b.channel);
	assert_false(rung(&b));
	assert_int_equal(promises, 1);
	local_channel_woke(b.channel);
	receive(&b);
	assert_int_equal(b.got, 1);
	local_channel_leave(a.channel, THERE);
	close_host(&a);
	close_host(&b);
}

/* ---- kill -9 ---- */
static void write_for_ever(void)
{
	struct host a = open_host(HERE);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!local_channel_connect(a.channel, THERE))
		;
	for (uint32_t n = 0;; n++)
		send_one(&a, THERE, n); /* what does not fit is lost, as on a wire */
}

/* Numbers may be missing where the ring was full; each frame must be whole. */
static void check_killed(void *arg, const struct frame_in *in)
{
	struct host *h = arg;
	uint32_t psn = bth_psn(in->bytes);

	assert_true(((psn - h->next) & PSN_MASK) < PSN_MASK / 2);
	h->next = psn;
	check(h, in);
	h->next &= PSN_MASK;
}

static void killed_writer_leaves_whole_frames(void **state)
{
	enum { ROUNDS = 30 };
	uint64_t seed = (uint64_t)getpid();
	struct host b = open_host(THERE);

	for (int round = 0; round < ROUNDS; round++) {
		pid_t pid = fork();
		unsigned quiet = 0;

		if (!pid)
			write_for_ever();
		b.next = b.got = 0;
		while (b.got < random_seeded(&seed) % 3000)
			b.link->ops->receive(b.link, 0, check_killed, &b);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		while (quiet < 3) /* what it left, and its end */
			quiet = b.link->ops->receive(b.link, 0, check_killed, &b) ? 0 : quiet + 1;
	}
	close_host(&b);
}

static void killed_reader_means_the_wire(void **state)
{
	enum { ROUNDS = 20 };
	uint64_t seed = (uint64_t)getpid();
	struct host a = open_host(HERE);

	for (int round = 0; round < ROUNDS; round++) {
		pid_t pid = fork();
		uint32_t stop = random_seeded(&seed) % 20000;

		if (!pid) {
			struct host b = open_host(THERE);

			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				b.link->ops->receive(b.link, 0, check_killed, &b);
		}
		while (!local_channel_connect(a.channel, THERE))
			;
		a.wire->sent = 0;
		for (uint32_t n = 0; n < stop; n++)
			send_one(&a, THERE, n);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		receive(&a);
		send_one(&a, THERE, 0);
		assert_int_equal(a.wire->sent, 1);
	}
	close_host(&a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(slot_of_a_dead_one_is_asked_anew),
		cmocka_unit_test(what_a_writer_left_is_still_read),
		cmocka_unit_test(nobody_sleeps_before_what_a_writer_left),
		cmocka_unit_test(word_of_the_dead_is_not_the_heirs),
		cmocka_unit_test(reader_that_left_means_the_wire),
		cmocka_unit_test(who_acts_is_waited_for),
		cmocka_unit_test(who_acts_for_ever_is_cut_off),
		cmocka_unit_test(what_was_said_before_the_cut_is_heard),
		cmocka_unit_test(killed_writer_leaves_whole_frames),
		cmocka_unit_test(killed_reader_means_the_wire),
	};

	log_init();
	port = (uint16_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
