/* SPDX-License-Identifier: MIT */
/*
 * Bells that another thread takes than the one that sleeps. Heavy fences are those of this file (--wrap):
 * what a writer has put may be out of its core only by then.
 */
#include "base/fence.h"
#include "local/channel_pair_test.h"
#include "local/channel_parts.h"

#include <pthread.h>

static struct host a, b;

/* ---- a frame that has not left its writer's core yet, which has looked at the bell meanwhile ---- */
static struct {
	_Atomic uint32_t *stamp; /* NULL: there is none */
	uint32_t value;
} late;

static void leaves(void)
{
	if (late.stamp)
		atomic_store(late.stamp, late.value);
	late.stamp = NULL;
}

void __wrap_fence_heavy(void);
void __wrap_fence_heavy(void)
{
	leaves();
}

static void send_late(uint32_t n)
{
	struct ring_tx *tx = &a.channel->writer[THERE]->tx;

	send_one(&a, THERE, n);
	late.stamp = &tx->ring->slot[(tx->head - 1) % RING_SLOTS].stamp;
	late.value = atomic_exchange(late.stamp, 0);
}

/* ---- two processes; who receives puts off what it cannot do ---- */
static unsigned promises;

static void promise(void *arg, uint64_t ns)
{
	promises++;
}

static int begin(void **state)
{
	a = open_host(HERE);
	b = open_host(THERE);
	a.channel->bell->heavy = b.channel->bell->heavy = 1; /* those of this file work everywhere */
	local_channel_set_events(b.channel, &(struct local_channel_events){.promise = promise});
	assert_true(reach(&a, THERE, &b));
	promises = 0;
	return 0;
}

static int end(void **state)
{
	close_host(&a);
	close_host(&b);
	return 0;
}

static struct local_reader *reader_of_b(void)
{
	for (unsigned i = 0; i < b.channel->nreaders; i++) {
		if (b.channel->reader[i]->state == READER_UP)
			return b.channel->reader[i];
	}
	fail_msg("nobody writes to b");
	return NULL;
}

/* ---- the tests ---- */
/* A thread of b sleeps; the first frame rings, the second need not. Another thread takes the bell. */
static void who_takes_a_bell_sees_all_that_did_not_ring(void **state)
{
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 0);
	send_late(1);
	receive(&b);
	leaves();
	assert_true(b.got == 2 || rung(&b));
	local_channel_woke(b.channel);
}

/* And who lies down meanwhile looks by itself. */
static void who_lies_down_meanwhile_sees_it(void **state)
{
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 0);
	send_late(1);
	local_channel_woke(b.channel);
	receive(&b);
	assert_int_equal(b.got, 1); /* nobody slept: no fence */
	assert_false(local_channel_sleep(b.channel));
	local_channel_woke(b.channel);
	receive(&b);
	assert_int_equal(b.got, 2);
}

/* Who connects attends to a reader that has not given its proof yet, and with it to the bell behind that. */
static void a_bell_that_who_connects_takes_is_passed_on(void **state)
{
	reader_of_b()->asked = true;
	assert_true(local_channel_sleep(b.channel));
	send_one(&a, THERE, 0);
	assert_true(rung(&b));
	local_peers_attend(b.channel, false);
	assert_int_equal(b.got, 0);
	assert_true(rung(&b) || promises);
	local_channel_woke(b.channel);
}

static void *holds(void *arg)
{
	pthread_barrier_t *together = arg;

	lock_take(&b.channel->handshake);
	pthread_barrier_wait(together); /* it has it */
	pthread_barrier_wait(together); /* no more */
	lock_drop(&b.channel->handshake);
	return NULL;
}

/* Whose frame it is may have been said by its socket, at which somebody else is. */
static void a_frame_that_cannot_be_taken_yet_is_not_forgotten(void **state)
{
	pthread_barrier_t together;
	pthread_t other;

	send_one(&a, THERE, 0);
	reader_of_b()->reverse = NULL;
	reader_of_b()->looks = 0;
	pthread_barrier_init(&together, NULL, 2);
	assert_int_equal(pthread_create(&other, NULL, holds, &together), 0);
	pthread_barrier_wait(&together);
	receive(&b);
	assert_int_equal(b.got, 0);
	assert_true(promises);
	pthread_barrier_wait(&together);
	pthread_join(other, NULL);
	pthread_barrier_destroy(&together);
	receive(&b);
	assert_int_equal(b.got, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(who_takes_a_bell_sees_all_that_did_not_ring),
		TEST(who_lies_down_meanwhile_sees_it),
		TEST(a_bell_that_who_connects_takes_is_passed_on),
		TEST(a_frame_that_cannot_be_taken_yet_is_not_forgotten),
	};

	log_init();
	port = (uint16_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
