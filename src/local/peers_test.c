/* SPDX-License-Identifier: MIT */
/* The handshake of the channel: who is let in, what it is shown, and why not. */
#include "base/memfile.h"
#include "local/channel_pair_test.h"
#include "local/handshake.h"
#include "local/ring.h"
#include "tests/skip.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

/* Who was told by other means whom to expect can see whether that is who is there. */
static void others_are_known_by_a_number(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	uint64_t who = 0;

	assert_true(local_channel_identity(a.channel) != local_channel_identity(b.channel));
	assert_true(local_channel_try_connect(a.channel, THERE + 1, true, &who) < 0);
	assert_int_equal(local_channel_try_connect(a.channel, THERE, true, &who), 0);
	assert_true(reach(&a, THERE, &b));
	assert_int_equal(local_channel_try_connect(a.channel, THERE, false, &who), 1);
	assert_true(who == local_channel_identity(b.channel));
	close_host(&b);
	assert_true(local_channel_try_connect(a.channel, THERE, false, &who) < 0);
	close_host(&a);
}

/* A crowd that comes and says nothing takes few descriptors, and keeps nobody out. */
static void silent_crowd_keeps_nobody_out(void **state)
{
	enum { CROWD = 600, FEW = 40 };
	struct host b = open_host(THERE), a;
	int before = dup(STDERR_FILENO), after, fd[CROWD];

	for (int i = 0; i < CROWD; i++) {
		fd[i] = handshake_connect(port, THERE);
		assert_true(fd[i] >= 0);
		receive(&b);
	}
	after = dup(STDERR_FILENO);
	assert_true(after - before < CROWD + FEW); /* their ends are ours, too */
	a = open_host(HERE);
	assert_true(reach(&a, THERE, &b));
	for (int i = 0; i < CROWD; i++)
		close(fd[i]);
	close(before);
	close(after);
	close_host(&a);
	close_host(&b);
}

/* Who wants to reach another does no I/O; who receives, and was not woken for it, asks. */
static void who_is_wanted_is_asked_by_who_receives(void **state)
{
	struct host a = open_host(HERE);
	int listener = handshake_listen(port, THERE), fd;

	local_channel_want(a.channel, THERE);
	assert_true(local_channel_has_wanted(a.channel));
	assert_true(handshake_accept(listener) < 0);
	a.link->ops->receive(a.link, 1, check, &a);
	assert_false(local_channel_has_wanted(a.channel));
	fd = handshake_accept(listener);
	assert_true(fd >= 0);
	assert_false(local_channel_is_up(a.channel, THERE)); /* it has not answered */
	close(fd);
	close(listener);
	close_host(&a);
}

/* ---- why not ---- */
/* What is said at level info while a asks whoever listens there. */
static const char *said_to(struct host *a, int (*answer)(int fd))
{
	static char text[1000];
	FILE *f = tmpfile();
	int err = dup(STDERR_FILENO), listener = answer ? handshake_listen(port, THERE) : -1, fd = -1;
	ssize_t n;

	log_level = LOG_INFO;
	dup2(fileno(f), STDERR_FILENO);
	ask(a, THERE);
	if (answer) {
		fd = handshake_accept(listener);
		assert_int_equal(answer(fd), 0);
	}
	receive(a);
	dup2(err, STDERR_FILENO);
	log_level = LOG_WARN;
	n = pread(fileno(f), text, sizeof(text) - 1, 0);
	text[n < 0 ? 0 : n] = 0;
	assert_false(local_channel_is_up(a->channel, THERE));
	send_one(a, THERE, 0);
	assert_int_equal(a->wire->sent, 1);
	close(fd);
	close(listener);
	close(err);
	fclose(f);
	return text;
}

static int answers_as_an_older_one(int fd)
{
	struct handshake_msg h = {.magic = HANDSHAKE_MAGIC, .version = HANDSHAKE_VERSION - 1, .slot = THERE};

	return send(fd, &h, sizeof(h), 0) == (ssize_t)sizeof(h) ? 0 : -1;
}

static int hangs_up(int fd)
{
	return shutdown(fd, SHUT_RDWR);
}

static void other_version_means_the_wire(void **state)
{
	struct host a = open_host(HERE);

	assert_non_null(strstr(said_to(&a, answers_as_an_older_one), "it is of another version"));
	close_host(&a);
}

/* As one of an older version does that does not understand us. */
static void who_hangs_up_means_the_wire(void **state)
{
	struct host a = open_host(HERE);

	assert_non_null(strstr(said_to(&a, hangs_up), "it does not want to"));
	close_host(&a);
}

/* Another user has the name, whose process it may be or not. */
static void another_users_process_means_the_wire(void **state)
{
	struct host a = open_host(HERE);
	int ready[2];
	char byte;
	pid_t pid;

	if (geteuid()) {
		close_host(&a);
		skip_because("needs root, to be another user");
	}
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setuid(65534) || handshake_listen(port, THERE) < 0)
			_exit(1);
		(void)!write(ready[1], "", 1);
		pause();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	assert_non_null(strstr(said_to(&a, NULL), "it is another user's"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(ready[0]);
	close_host(&a);
}

/*
 * Where we have no number in our user namespace, nobody else has one either, and all look alike.
 * `of_another`: the one who connects is root outside, else it is our own child.
 */
static int accepted_without_a_number(bool of_another)
{
	int ready[2], status = 0;
	char byte;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		int fd, err;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setuid(1234) || unshare(CLONE_NEWUSER))
			_exit(UINT8_MAX);
		fd = handshake_listen(port, THERE);
		if (!of_another && !fork()) {
			close(fd); /* or the name stays taken */
			_exit(handshake_connect(port, THERE) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) ||
				pause());
		}
		(void)!write(ready[1], "", 1);
		while ((err = handshake_accept(fd)) == -EAGAIN)
			usleep(1000);
		_exit(err < 0 ? -err : 0);
	}
	close(ready[1]);
	of_another &= read(ready[0], &byte, 1) == 1; /* no namespace to be had otherwise */
	close(ready[0]);
	if (of_another)
		assert_int_equal(
			handshake_connect(port, THERE), -EPERM); /* it is not shy, though: it was there */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void user_without_a_number_is_not_every_other(void **state)
{
	int own = geteuid() ? UINT8_MAX : accepted_without_a_number(false);

	if (own == UINT8_MAX)
		skip_because("needs root, and children without a thread of a sanitizer");
	assert_int_equal(own, 0);
	assert_int_equal(accepted_without_a_number(true), EPERM);
}

static void nonsense_at_the_door_harms_nobody(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	struct handshake_msg hello = {.kind = HANDSHAKE_HELLO, .slot = HERE},
			     proof = {.kind = HANDSHAKE_PROOF};
	uint8_t noise[16] = {1, 2, 3};
	struct ring *ring;
	int fd[7], memory = memfile_make("test", 4096), loose = memfd_create("test", MFD_ALLOW_SEALING);

	for (int i = 0; i < 7; i++)
		fd[i] = handshake_connect(port, THERE);
	assert_true(send(fd[0], noise, sizeof(noise), 0) > 0);
	assert_int_equal(handshake_send(fd[1], &hello, memory), 0);        /* too short for a ring */
	assert_int_equal(handshake_send(fd[2], &hello, STDOUT_FILENO), 0); /* no memory at all */
	assert_int_equal(handshake_send(fd[4], &proof, -1), 0);            /* of what nobody asked for */
	assert_int_equal(handshake_send(fd[5], &hello, -1), 0);            /* nothing to write to */
	assert_int_equal(ftruncate(loose, sizeof(*ring)), 0);
	ring = mmap(NULL, sizeof(*ring), PROT_READ | PROT_WRITE, MAP_SHARED, loose, 0);
	ring->magic = RING_MAGIC;
	ring->version = RING_VERSION;
	munmap(ring, sizeof(*ring));
	assert_int_equal(handshake_send(fd[6], &hello, loose), 0); /* a ring that its owner can cut short */
	handshake_ring(fd[3]);                                     /* a bell before a message */
	for (int i = 0; i < 10; i++)
		receive(&b);
	for (int i = 0; i < 7; i++) {
		if (i != 3)
			assert_int_equal(recv(fd[i], noise, 1, 0), 0); /* thrown out */
	}
	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	for (int i = 0; i < 7; i++)
		close(fd[i]);
	close(memory);
	close(loose);
	close_host(&a);
	close_host(&b);
}

/* Who cannot be accepted is sent away: a connection that stays would keep whoever sleeps awake. */
static void connection_without_descriptors_left_ends(void **state)
{
	struct host b = open_host(THERE);
	int fd = handshake_connect(port, THERE);
	struct rlimit all, few;

	assert_true(fd >= 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &all), 0);
	few = all;
	few.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	receive(&b);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &all), 0);
	assert_false(rung(&b));
	close(fd);
	close_host(&b);
}

/* ---- what a stranger gets, who may be any process of this user ---- */
struct stranger {
	struct host *b;
	int fd;
	struct ring *ring;
	struct handshake_msg msg;
	int passed;
};

static void hear(struct stranger *s)
{
	for (int i = 0; i < 3; i++)
		receive(s->b);
	assert_int_equal(handshake_receive(s->fd, &s->msg, &s->passed), 1);
}

/* Says HELLO, as whoever it likes, and is welcome. */
static struct stranger greet(struct host *b, uint32_t slot)
{
	struct handshake_msg hello = {.kind = HANDSHAKE_HELLO, .slot = slot, .token = 1};
	struct stranger s = {.b = b, .fd = handshake_connect(port, THERE)};
	int memory = memfile_make("test", sizeof(struct ring));

	s.ring = memfile_map(memory, sizeof(*s.ring), PROT_READ | PROT_WRITE, NULL);
	s.ring->magic = RING_MAGIC;
	s.ring->version = RING_VERSION;
	assert_int_equal(handshake_send(s.fd, &hello, memory), 0);
	close(memory);
	hear(&s);
	assert_int_equal(s.msg.kind, HANDSHAKE_WELCOME);
	assert_int_equal(s.msg.slot, THERE);
	return s;
}

static void leave(struct stranger *s)
{
	munmap(s->ring, sizeof(*s->ring));
	if (s->passed >= 0)
		close(s->passed);
	close(s->fd);
}

static off_t size_of(int fd)
{
	return lseek(fd, 0, SEEK_END);
}

static void assert_read_only(int fd)
{
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	assert_int_equal(errno, EPERM);
	assert_int_not_equal(ftruncate(fd, 0), 0);
}

static void who_proves_nothing_gets_a_bell_and_no_more(void **state)
{
	struct host b = open_host(THERE);
	struct handshake_msg proof = {.kind = HANDSHAKE_PROOF};
	struct stranger s;

	strcpy(b.export, "keys");
	s = greet(&b, HERE);
	assert_true(size_of(s.passed) < 4096); /* a count of sleepers */
	assert_read_only(s.passed);
	close(s.passed);
	assert_int_equal(handshake_send(s.fd, &proof, -1), 0); /* guessed */
	for (int i = 0; i < 3; i++)
		receive(&b);
	assert_int_equal(handshake_receive(s.fd, &s.msg, &s.passed), -ECONNRESET);
	leave(&s);
	close_host(&b);
}

static void who_can_read_our_memory_gets_the_export(void **state)
{
	struct host b = open_host(THERE);
	struct handshake_msg proof = {.kind = HANDSHAKE_PROOF};
	struct stranger s = greet(&b, HERE);
	void *seen;

	assert_true(s.msg.at);
	close(s.passed);
	memcpy(proof.nonce, (void *)(uintptr_t)s.msg.at, HANDSHAKE_NONCE); /* it is our own here */
	assert_int_equal(handshake_send(s.fd, &proof, -1), 0);
	hear(&s);
	assert_int_equal(s.msg.kind, HANDSHAKE_EXPORT);
	assert_int_equal(size_of(s.passed), EXPORT);
	assert_read_only(s.passed);
	strcpy(b.export, "keys");
	seen = mmap(NULL, EXPORT, PROT_READ, MAP_SHARED, s.passed, 0);
	assert_string_equal(seen, "keys");
	munmap(seen, EXPORT);
	/* Once: the same again is no proof of anything. */
	assert_int_equal(handshake_send(s.fd, &proof, -1), 0);
	for (int i = 0; i < 3; i++)
		receive(&b);
	close(s.passed);
	assert_int_equal(handshake_receive(s.fd, &s.msg, &s.passed), -ECONNRESET);
	leave(&s);
	close_host(&b);
}

/* Asked for each who comes: a program may have closed itself since it began. */
static void who_may_not_be_looked_into_asks_for_no_proof(void **state)
{
	struct host b = open_host(THERE);
	struct handshake_msg proof = {.kind = HANDSHAKE_PROOF};
	struct stranger s = greet(&b, HERE), later;

	assert_true(s.msg.at);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 0), 0);
	later = greet(&b, HERE);
	assert_true(!later.msg.at);
	/* And of who was asked before the answer does not count any more. */
	memcpy(proof.nonce, (void *)(uintptr_t)s.msg.at, HANDSHAKE_NONCE);
	close(s.passed);
	assert_int_equal(handshake_send(s.fd, &proof, -1), 0);
	for (int i = 0; i < 3; i++)
		receive(&b);
	assert_int_equal(handshake_receive(s.fd, &s.msg, &s.passed), 1);
	assert_int_equal(s.passed, -1);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
	leave(&s);
	leave(&later);
	close_host(&b);
}

static uint32_t came_from;

static void note_slot(void *arg, const struct frame_in *in)
{
	came_from = in->slot;
	((struct host *)arg)->got++;
}

static void *receives(void *arg)
{
	struct host *h = arg;

	while (!h->got)
		h->link->ops->receive(h->link, 0, note_slot, h);
	return NULL;
}

/*
 * A queue pair does not hear frames before it is known whose they are, which there are no proofs to wait for
 * where a process may not be looked into.
 */
static void first_frame_is_known_to_be_ours(void **state)
{
	enum { ROUNDS = 50 };

	assert_int_equal(prctl(PR_SET_DUMPABLE, 0), 0);
	for (int i = 0; i < ROUNDS; i++) {
		struct host a = open_host(HERE), b = open_host(THERE);
		pthread_t thread;

		came_from = 0;
		assert_int_equal(pthread_create(&thread, NULL, receives, &b), 0);
		assert_true(local_channel_connect(a.channel, THERE));
		send_one(&a, THERE, 0);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(came_from, HERE);
		close_host(&a);
		close_host(&b);
	}
	assert_int_equal(prctl(PR_SET_DUMPABLE, 1), 0);
}

/* Frames of a process are known to be its own; those of one that claims to be it are not. */
static void who_claims_another_slot_is_not_believed(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	struct handshake_msg pair = {.kind = HANDSHAKE_PAIR, .token = 12345};
	struct frame_dest dest = {.hop_limit = 64};
	struct ring_tx *tx = calloc(1, sizeof(*tx));
	struct frame_out f = {.hdr_len = BTH_LEN};
	struct stranger s;

	assert_true(reach(&a, THERE, &b));
	assert_true(reach(&b, HERE, &a));
	send_one(&a, THERE, 0);
	b.link->ops->receive(b.link, 0, note_slot, &b);
	assert_int_equal(came_from, HERE);

	s = greet(&b, HERE);
	assert_int_equal(handshake_send(s.fd, &pair, -1), 0); /* guessed */
	ring_tx_init(tx, s.ring);
	dest.sgid[0] = dest.dgid[0] = 1;
	bth_put(f.hdr, IBT_RC | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, THERE << QPN_SLOT_SHIFT | 5, false, 0);
	assert_int_equal(ring_put(tx, ring_path_to(tx, &dest), &f, NULL, NULL), RING_PUT);
	b.got = 0;
	for (int i = 0; i < 3 && !b.got; i++)
		b.link->ops->receive(b.link, 0, note_slot, &b);
	assert_int_equal(b.got, 1);
	assert_int_equal(came_from, 0);
	free(tx);
	leave(&s);
	close_host(&a);
	close_host(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_wanted_is_asked_by_who_receives),
		cmocka_unit_test(others_are_known_by_a_number),
		cmocka_unit_test(silent_crowd_keeps_nobody_out),
		cmocka_unit_test(other_version_means_the_wire),
		cmocka_unit_test(who_hangs_up_means_the_wire),
		cmocka_unit_test(another_users_process_means_the_wire),
		cmocka_unit_test(user_without_a_number_is_not_every_other),
		cmocka_unit_test(nonsense_at_the_door_harms_nobody),
		cmocka_unit_test(connection_without_descriptors_left_ends),
		cmocka_unit_test(who_proves_nothing_gets_a_bell_and_no_more),
		cmocka_unit_test(who_can_read_our_memory_gets_the_export),
		cmocka_unit_test(who_may_not_be_looked_into_asks_for_no_proof),
		cmocka_unit_test(first_frame_is_known_to_be_ours),
		cmocka_unit_test(who_claims_another_slot_is_not_believed),
	};

	log_init();
	port = (uint16_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
