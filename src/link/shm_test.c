/* SPDX-License-Identifier: MIT */
/* The memory link between processes, over a wire that only counts. */
#include "link/shm.h"

#include "base/log.h"
#include "base/random.h"
#include "link/meet.h"
#include "link/ring.h"
#include "wire/ibt.h"
#include "wire/qpn.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { HERE = 3, THERE = 7, PATIENCE_MS = 20000, EXPORT = 8192 };

static uint16_t port; /* only a name here; our process's own */

/* ---- a wire ---- */
struct wire {
	struct link link;
	unsigned sent;
	void (*looks)(link_deliver_fn *deliver, void *arg); /* what may be there by now */
};

static int wire_send(struct link *l, const struct frame_batch *b)
{
	((struct wire *)l)->sent += b->nframes;
	return 0;
}

static int wire_receive(struct link *l, unsigned max, link_deliver_fn *deliver, void *arg)
{
	struct wire *w = (struct wire *)l;

	if (w->looks)
		w->looks(deliver, arg);
	return 0;
}

static int wire_fds(struct link *l, int fds[4])
{
	return 0;
}

static void wire_close(struct link *l)
{
	free(l);
}

static const struct link_ops wire_ops = {.send = wire_send,
	.receive = wire_receive,
	.fds = wire_fds,
	.close = wire_close,
	.abandon = wire_close};

static bool ours(void *arg, const uint8_t gid[16])
{
	return gid[0] == 1;
}

struct host {
	struct link *link;
	struct wire *wire;
	void *export;
	uint32_t next; /* PSN expected */
	unsigned got;
	unsigned executed; /* of what it sent, as it was told */
};

static struct host open_host(uint32_t slot)
{
	struct host h = {.wire = calloc(1, sizeof(struct wire))};

	h.wire->link.ops = &wire_ops;
	assert_int_equal(link_shm_open(&h.link, &h.wire->link, port, slot, ours, NULL, EXPORT, &h.export), 0);
	return h;
}

static void close_host(struct host *h)
{
	h->link->ops->close(h->link);
}

/* ---- frames whose contents follow from their number ---- */
static uint32_t len_of(uint32_t n)
{
	return n * 2654435761u % 5 ? n % 48 : n * 2246822519u % 4097;
}

static void fill(uint8_t *p, uint32_t n)
{
	for (uint32_t i = 0; i < len_of(n); i++)
		p[i] = (uint8_t)(n + i * 5);
}

static bool by_wire; /* what is sent: its QP was late, and knows no other way */

static int send_noted(struct host *h, uint32_t slot, uint32_t n, uint32_t note)
{
	static struct frame_batch b;
	static uint8_t payload[4096];
	struct frame_out *f = &b.frame[0];
	uint32_t len = len_of(n);

	fill(payload, n);
	b.dest.sgid[0] = b.dest.dgid[0] = 1;
	b.dest.local = !by_wire;
	b.nframes = b.niov = 1;
	*f = (struct frame_out){.hdr_len = BTH_LEN,
		.pad = (uint8_t)(-len & 3),
		.iov_count = 1,
		.payload_len = len,
		.note = note};
	bth_put(f->hdr, IBT_RC | OP_SEND_ONLY, false, f->pad, PKEY_DEFAULT, slot << QPN_SLOT_SHIFT | 5, false,
		n & PSN_MASK);
	b.iov[0] = (struct iovec){payload, len};
	return h->link->ops->send(h->link, &b);
}

static int send_one(struct host *h, uint32_t slot, uint32_t n)
{
	return send_noted(h, slot, n, 0);
}

static void check(void *arg, const struct frame_in *in)
{
	static uint8_t payload[4096];
	struct host *h = arg;
	uint32_t n = h->next;

	fill(payload, n);
	assert_true(in->local);
	assert_int_equal(bth_psn(in->bytes), n & PSN_MASK);
	assert_int_equal(in->len, BTH_LEN + ((len_of(n) + 3) & ~3u));
	assert_memory_equal(in->apart ? in->apart : in->bytes + BTH_LEN, payload, len_of(n));
	h->next++;
	h->got++;
}

static int receive(struct host *h)
{
	return h->link->ops->receive(h->link, 0, check, h);
}

static bool reach(struct host *from, uint32_t slot, struct host *to)
{
	struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; i < PATIENCE_MS && !from->link->ops->reach(from->link, slot, false); i++) {
		if (to)
			receive(to);
		receive(from);
		nanosleep(&ms, NULL);
	}
	/* The ring the other way, the proofs, the exports: a few words more. */
	for (int i = 0; i < 6 && to; i++) {
		receive(to);
		receive(from);
	}
	return from->link->ops->reach(from->link, slot, false);
}

/* The doorbell is the descriptor behind the wire's. */
static bool rung(struct host *h)
{
	int fds[4], n = h->link->ops->fds(h->link, fds);
	struct pollfd p = {.fd = fds[n - 1], .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

/* ---- tests ---- */
static void frames_go_by_memory(void **state)
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

/* ---- one way by memory, the other by the wire ---- */
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

	pair.b.link->ops->took(pair.b.link, in, true);
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
	pair.a.link->executed = executed;
	assert_true(reach(&pair.a, THERE, &pair.b));
	send_noted(&pair.a, THERE, 0, 5);
	pair.a.wire->looks = meanwhile;
	pair.a.link->ops->receive(pair.a.link, 0, answer_comes, NULL);
	assert_int_equal(pair.a.got, 1);
	close_host(&pair.a);
	close_host(&pair.b);
}

/* Who was told by other means whom to expect can see whether that is who is there. */
static void others_are_known_by_a_number(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	uint64_t who = 0;

	assert_true(a.link->who != b.link->who);
	assert_true(a.link->ops->meet(a.link, THERE + 1, true, &who) < 0);
	assert_int_equal(a.link->ops->meet(a.link, THERE, true, &who), 0);
	assert_true(reach(&a, THERE, &b));
	assert_int_equal(a.link->ops->meet(a.link, THERE, false, &who), 1);
	assert_true(who == b.link->who);
	close_host(&b);
	assert_true(a.link->ops->meet(a.link, THERE, false, &who) < 0);
	close_host(&a);
}

static void process_reaches_itself(void **state)
{
	struct host a = open_host(HERE);

	assert_true(a.link->ops->reach(a.link, HERE, true));
	for (uint32_t n = 0; n < 100; n++)
		send_one(&a, HERE, n);
	receive(&a);
	assert_int_equal(a.got, 100);
	close_host(&a);
}

static void nobody_there_means_the_wire(void **state)
{
	struct host a = open_host(HERE);

	assert_false(a.link->ops->reach(a.link, THERE, true));
	send_one(&a, THERE, 0);
	assert_int_equal(a.wire->sent, 1);
	close_host(&a);
}

/* ---- why not ---- */
/* What is said at level info while a asks whoever listens there. */
static const char *said_to(struct host *a, int (*answer)(int fd))
{
	static char text[1000];
	FILE *f = tmpfile();
	int err = dup(STDERR_FILENO), listener = answer ? meet_listen(port, THERE) : -1, fd = -1;
	ssize_t n;

	log_level = LOG_INFO;
	dup2(fileno(f), STDERR_FILENO);
	a->link->ops->reach(a->link, THERE, false);
	if (answer) {
		fd = meet_accept(listener);
		assert_int_equal(answer(fd), 0);
	}
	receive(a);
	dup2(err, STDERR_FILENO);
	log_level = LOG_WARN;
	n = pread(fileno(f), text, sizeof(text) - 1, 0);
	text[n < 0 ? 0 : n] = 0;
	assert_false(a->link->ops->reach(a->link, THERE, false));
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
	struct meet_word h = {.magic = MEET_MAGIC, .version = MEET_VERSION - 1, .slot = THERE};

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
		skip();
	}
	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (setuid(65534) || meet_listen(port, THERE) < 0)
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
		fd = meet_listen(port, THERE);
		if (!of_another && !fork()) {
			close(fd); /* or the name stays taken */
			_exit(meet_connect(port, THERE) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) || pause());
		}
		(void)!write(ready[1], "", 1);
		while ((err = meet_accept(fd)) == -EAGAIN)
			usleep(1000);
		_exit(err < 0 ? -err : 0);
	}
	close(ready[1]);
	of_another &= read(ready[0], &byte, 1) == 1; /* no namespace to be had otherwise */
	close(ready[0]);
	if (of_another)
		assert_int_equal(meet_connect(port, THERE), -EPERM); /* it is not shy, though: it was there */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WEXITSTATUS(status);
}

static void user_without_a_number_is_not_every_other(void **state)
{
	int own = geteuid() ? UINT8_MAX : accepted_without_a_number(false);

	if (own == UINT8_MAX) /* also where a sanitizer has a thread of its own */
		skip();
	assert_int_equal(own, 0);
	assert_int_equal(accepted_without_a_number(true), EPERM);
}

/* The bell of the dead was not heard yet when another process has its slot. */
static void slot_of_a_dead_one_is_asked_anew(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b); /* and tells, by the bell, since it does not know the way back */
	close_host(&b);
	b = open_host(THERE);
	assert_false(a.link->ops->reach(a.link, THERE, true)); /* nobody drives b */
	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	assert_int_equal(a.wire->sent, 0);
	close_host(&a);
	close_host(&b);
}

static void sleeper_is_woken_once(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	assert_false(rung(&b));                   /* it did not sleep */
	assert_false(b.link->ops->sleep(b.link)); /* nor should it */
	b.link->ops->woke(b.link);
	receive(&b);
	assert_true(b.link->ops->sleep(b.link));
	send_one(&a, THERE, 1);
	assert_true(rung(&b));
	send_one(&a, THERE, 2);
	b.link->ops->woke(b.link);
	receive(&b);
	assert_int_equal(b.got, 3);
	assert_false(rung(&b)); /* the second frame did not ring again */
	/* A second time. */
	assert_true(b.link->ops->sleep(b.link));
	send_one(&a, THERE, 3);
	assert_true(rung(&b));
	b.link->ops->woke(b.link);
	close_host(&a);
	close_host(&b);
}

/* One thread lies down to sleep; another, which polls, takes the frame and hears the bell; then it polls no
 * more. */
static void bell_that_another_heard_rings_again(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	assert_true(b.link->ops->sleep(b.link));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	assert_false(rung(&b));
	send_one(&a, THERE, 1);
	assert_true(rung(&b));
	b.link->ops->woke(b.link);
	close_host(&a);
	close_host(&b);
}

/* Who waits for something else attends to the sockets too, but takes no frames: the bell is not for it. */
static void bell_is_for_who_receives(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);

	assert_true(reach(&a, THERE, &b));
	assert_true(b.link->ops->sleep(b.link));
	send_one(&a, THERE, 0);
	assert_true(b.link->ops->reach(b.link, THERE, true));
	b.link->ops->settle(b.link);
	assert_true(rung(&b));
	b.link->ops->woke(b.link);
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

static void count(void *arg, uint32_t note, uint32_t psn, bool done)
{
	((struct host *)arg)->executed++;
}

/* What the dead said about frames to it is not about those to who has its slot now. */
static void word_of_the_dead_is_not_the_heirs(void **state)
{
	enum { N = 3 };
	struct host a = open_host(HERE), b = open_host(THERE), heir;

	a.link->executed = count;
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
	assert_false(a.link->ops->reach(a.link, THERE, true));
	while (!a.link->ops->reach(a.link, THERE, true))
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
	assert_false(a.link->ops->reach(a.link, THERE, false)); /* not asked again so soon */
	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	close_host(&a);
	close_host(&b);
}

static void nonsense_at_the_door_harms_nobody(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	struct meet_word hello = {.kind = MEET_HELLO, .slot = HERE}, proof = {.kind = MEET_PROOF};
	uint8_t noise[16] = {1, 2, 3};
	int fd[6], memory = meet_memory("test", 4096);

	for (int i = 0; i < 6; i++)
		fd[i] = meet_connect(port, THERE);
	assert_true(send(fd[0], noise, sizeof(noise), 0) > 0);
	assert_int_equal(meet_say(fd[1], &hello, memory), 0);        /* too short for a ring */
	assert_int_equal(meet_say(fd[2], &hello, STDOUT_FILENO), 0); /* no memory at all */
	assert_int_equal(meet_say(fd[4], &proof, -1), 0);            /* of what nobody asked for */
	assert_int_equal(meet_say(fd[5], &hello, -1), 0);            /* nothing to write to */
	meet_ring(fd[3]);                                            /* a bell before a word */
	for (int i = 0; i < 10; i++)
		receive(&b);
	for (int i = 0; i < 6; i++) {
		if (i != 3)
			assert_int_equal(recv(fd[i], noise, 1, 0), 0); /* thrown out */
	}
	assert_true(reach(&a, THERE, &b));
	send_one(&a, THERE, 0);
	receive(&b);
	assert_int_equal(b.got, 1);
	for (int i = 0; i < 6; i++)
		close(fd[i]);
	close(memory);
	close_host(&a);
	close_host(&b);
}

/* Who cannot be let in is sent away: a knock that stays would keep whoever sleeps awake. */
static void knock_without_descriptors_left_ends(void **state)
{
	struct host b = open_host(THERE);
	int fd = meet_connect(port, THERE);
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
	struct meet_word word;
	int passed;
};

static void hear(struct stranger *s)
{
	for (int i = 0; i < 3; i++)
		receive(s->b);
	assert_int_equal(meet_hear(s->fd, &s->word, &s->passed), 1);
}

/* Says HELLO, as whoever it likes, and is welcome. */
static struct stranger greet(struct host *b, uint32_t slot)
{
	struct meet_word hello = {.kind = MEET_HELLO, .slot = slot, .token = 1};
	struct stranger s = {.b = b, .fd = meet_connect(port, THERE)};
	int memory = meet_memory("test", sizeof(struct ring));

	s.ring = meet_map(memory, sizeof(*s.ring), PROT_READ | PROT_WRITE, NULL);
	s.ring->magic = RING_MAGIC;
	s.ring->version = RING_VERSION;
	assert_int_equal(meet_say(s.fd, &hello, memory), 0);
	close(memory);
	hear(&s);
	assert_int_equal(s.word.kind, MEET_WELCOME);
	assert_int_equal(s.word.slot, THERE);
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
	struct meet_word proof = {.kind = MEET_PROOF};
	struct stranger s;

	strcpy(b.export, "keys");
	s = greet(&b, HERE);
	assert_true(size_of(s.passed) < 4096); /* a count of sleepers */
	assert_read_only(s.passed);
	close(s.passed);
	assert_int_equal(meet_say(s.fd, &proof, -1), 0); /* guessed */
	for (int i = 0; i < 3; i++)
		receive(&b);
	assert_int_equal(meet_hear(s.fd, &s.word, &s.passed), -ECONNRESET);
	leave(&s);
	close_host(&b);
}

static void who_can_read_our_memory_gets_the_export(void **state)
{
	struct host b = open_host(THERE);
	struct meet_word proof = {.kind = MEET_PROOF};
	struct stranger s = greet(&b, HERE);
	void *seen;

	assert_true(s.word.at);
	close(s.passed);
	memcpy(proof.nonce, (void *)(uintptr_t)s.word.at, MEET_NONCE); /* it is our own here */
	assert_int_equal(meet_say(s.fd, &proof, -1), 0);
	hear(&s);
	assert_int_equal(s.word.kind, MEET_EXPORT);
	assert_int_equal(size_of(s.passed), EXPORT);
	assert_read_only(s.passed);
	strcpy(b.export, "keys");
	seen = mmap(NULL, EXPORT, PROT_READ, MAP_SHARED, s.passed, 0);
	assert_string_equal(seen, "keys");
	munmap(seen, EXPORT);
	/* Once: the same again is no proof of anything. */
	assert_int_equal(meet_say(s.fd, &proof, -1), 0);
	for (int i = 0; i < 3; i++)
		receive(&b);
	close(s.passed);
	assert_int_equal(meet_hear(s.fd, &s.word, &s.passed), -ECONNRESET);
	leave(&s);
	close_host(&b);
}

/* Asked for each who comes: a program may have closed itself since it began. */
static void who_may_not_be_looked_into_asks_for_no_proof(void **state)
{
	struct host b = open_host(THERE);
	struct meet_word proof = {.kind = MEET_PROOF};
	struct stranger s = greet(&b, HERE), later;

	assert_true(s.word.at);
	assert_int_equal(prctl(PR_SET_DUMPABLE, 0), 0);
	later = greet(&b, HERE);
	assert_true(!later.word.at);
	/* And of who was asked before the answer does not count any more. */
	memcpy(proof.nonce, (void *)(uintptr_t)s.word.at, MEET_NONCE);
	close(s.passed);
	assert_int_equal(meet_say(s.fd, &proof, -1), 0);
	for (int i = 0; i < 3; i++)
		receive(&b);
	assert_int_equal(meet_hear(s.fd, &s.word, &s.passed), 1);
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

/* Frames of a process are known to be its own; those of one that claims to be it are not. */
static void who_claims_another_slot_is_not_believed(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	struct meet_word twin = {.kind = MEET_TWIN, .token = 12345};
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
	assert_int_equal(meet_say(s.fd, &twin, -1), 0); /* guessed */
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

/* ---- taking away what another acts on ---- */
static const struct link_there *enter(struct host *a, struct host *b)
{
	const struct link_there *there = NULL;
	struct timespec ms = {.tv_nsec = 1000000};

	assert_true(reach(a, THERE, b));
	for (int i = 0; i < PATIENCE_MS && !there; i++) {
		receive(b);
		receive(a);
		there = a->link->ops->enter(a->link, THERE);
		nanosleep(&ms, NULL);
	}
	assert_non_null(there);
	return there;
}

static void who_acts_is_waited_for(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	const struct link_there *there = enter(&a, &b);

	a.link->ops->leave(a.link, THERE);
	b.link->ops->settle(b.link);
	assert_int_equal(*there->revoked, 0);
	assert_true(a.link->ops->reach(a.link, THERE, false));
	close_host(&a);
	close_host(&b);
}

/* It has stopped in the middle, or says so for ever. */
static void who_acts_for_ever_is_cut_off(void **state)
{
	struct host a = open_host(HERE), b = open_host(THERE);
	const struct link_there *there = enter(&a, &b);
	struct timespec cpu, before;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	b.link->ops->settle(b.link); /* ends, though nobody else runs */
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	assert_true((cpu.tv_sec - before.tv_sec) * 1000 + (cpu.tv_nsec - before.tv_nsec) / 1000000 < 40);
	assert_int_equal(*there->revoked, 1);
	a.link->ops->leave(a.link, THERE);
	for (int i = 0; i < 3; i++) {
		receive(&a);
		receive(&b);
	}
	send_one(&a, THERE, 0);
	assert_int_equal(a.wire->sent, 1);
	close_host(&a);
	close_host(&b);
}

/* ---- kill -9 ---- */
static void write_for_ever(void)
{
	struct host a = open_host(HERE);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!a.link->ops->reach(a.link, THERE, true))
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
		while (!a.link->ops->reach(a.link, THERE, true))
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
		cmocka_unit_test(frames_go_by_memory),
		cmocka_unit_test(answer_by_the_wire_does_not_overtake),
		cmocka_unit_test(others_are_known_by_a_number),
		cmocka_unit_test(process_reaches_itself),
		cmocka_unit_test(nobody_there_means_the_wire),
		cmocka_unit_test(other_version_means_the_wire),
		cmocka_unit_test(who_hangs_up_means_the_wire),
		cmocka_unit_test(another_users_process_means_the_wire),
		cmocka_unit_test(user_without_a_number_is_not_every_other),
		cmocka_unit_test(slot_of_a_dead_one_is_asked_anew),
		cmocka_unit_test(sleeper_is_woken_once),
		cmocka_unit_test(bell_that_another_heard_rings_again),
		cmocka_unit_test(bell_is_for_who_receives),
		cmocka_unit_test(what_a_writer_left_is_still_read),
		cmocka_unit_test(word_of_the_dead_is_not_the_heirs),
		cmocka_unit_test(reader_that_left_means_the_wire),
		cmocka_unit_test(nonsense_at_the_door_harms_nobody),
		cmocka_unit_test(knock_without_descriptors_left_ends),
		cmocka_unit_test(who_proves_nothing_gets_a_bell_and_no_more),
		cmocka_unit_test(who_can_read_our_memory_gets_the_export),
		cmocka_unit_test(who_may_not_be_looked_into_asks_for_no_proof),
		cmocka_unit_test(who_claims_another_slot_is_not_believed),
		cmocka_unit_test(who_acts_is_waited_for),
		cmocka_unit_test(who_acts_for_ever_is_cut_off),
		cmocka_unit_test(killed_writer_leaves_whole_frames),
		cmocka_unit_test(killed_reader_means_the_wire),
	};

	log_init();
	port = (uint16_t)getpid();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
