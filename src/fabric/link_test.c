/* SPDX-License-Identifier: MIT */
/* A program's end of a fabric that a thread plays. */
#include "base/memfile.h"
#include "fabric/attach.h"
#include "fabric/link.h"
#include "fabric/names.h"
#include "fabric/shared.h"
#include "fabric/trunk.h"
#include "host/rundir.h"
#include "wire/cm_msg.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { UDP_PORT = 4791, PATIENCE_MS = 10000 };

static char top[] = "/tmp/anyrdma-link-XXXXXX", run[200], dir[256];
static struct sockaddr_un name = {.sun_family = AF_UNIX};
static int listener;

/* ---- the fabric ---- */
static struct trunk *trunk;
static int conn;

static void *shared(size_t size, int *fd)
{
	void *at;

	*fd = memfile_make("test", size);
	at = memfile_map(*fd, size, PROT_READ | PROT_WRITE, NULL);
	assert_non_null(at);
	return at;
}

/* One program comes. */
static void *welcome(void *arg)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(3 * sizeof(int))] = {0};
	struct attach_welcome w = {.magic = ATTACH_MAGIC,
		.version = ATTACH_VERSION,
		.table_size = sizeof(struct fabric_table),
		.names_size = fabric_names_size(0, 0)};
	struct iovec iov = {&w, sizeof(w)};
	struct msghdr m = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
	struct cmsghdr *head = CMSG_FIRSTHDR(&m);
	struct attach_hello hello;
	int fd[3];
	struct fabric_table *t = shared(sizeof(*t), &fd[0]);

	t->magic = FABRIC_MAGIC;
	t->version = FABRIC_VERSION;
	t->size = sizeof(*t);
	munmap(fabric_names_init(shared(w.names_size, &fd[1]), 0, 0), w.names_size);
	trunk = shared(sizeof(*trunk), &fd[2]);
	conn = accept(listener, NULL, NULL);
	assert_int_equal(recv(conn, &hello, sizeof(hello), 0), sizeof(hello));
	*head = (struct cmsghdr){CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS};
	memcpy(CMSG_DATA(head), fd, sizeof(fd));
	assert_int_equal(sendmsg(conn, &m, 0), sizeof(w));
	for (unsigned i = 0; i < 3; i++)
		close(fd[i]);
	munmap(t, sizeof(*t));
	return NULL;
}

static void hang_up(void)
{
	munmap(trunk, sizeof(*trunk));
	close(conn);
}

static int begin(void **state)
{
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&name, sizeof(name)), 0);
	assert_int_equal(listen(listener, 8), 0);
	return 0;
}

static int end(void **state)
{
	close(listener);
	return unlink(name.sun_path);
}

/* ---- the program ---- */
static const struct fabric_table *_Atomic table;
static struct tally_pool tallies;
static unsigned packets;

static void count(void *arg, const struct frame_in *in)
{
	packets++;
}

static void receive_one(struct link *l)
{
	struct trunk_tx tx = {.ring = &trunk->to_program};
	const struct trunk_packet head = {.slid = 1, .dlid = 2};

	assert_non_null(trunk_reserve(&tx, 12));
	trunk_commit(&tx, &head, 12);
	packets = 0;
	while (!packets)
		l->ops->receive(l, 0, count, NULL);
}

static void ruined_ring_is_left_for_a_new_one(void **state)
{
	const struct fabric_table *first;
	pthread_t fabric;
	struct link *l;
	uint32_t slot;
	uint8_t byte;

	assert_int_equal(pthread_create(&fabric, NULL, welcome, NULL), 0);
	assert_int_equal(fabric_link_open(&l, UDP_PORT, &slot, &table, &tallies), 0);
	pthread_join(fabric, NULL);
	receive_one(l);
	first = table;
	assert_int_equal(first->magic, FABRIC_MAGIC);
	assert_false(l->ops->waits(l));
	atomic_store(&trunk->to_program.head, 1);
	assert_true(l->ops->waits(l));
	assert_int_equal(l->ops->receive(l, 0, count, NULL), 0);
	assert_ptr_equal(table, &fabric_none);
	assert_int_equal(first->magic, 0);                       /* who has looked there may go on reading */
	assert_int_equal(recv(conn, &byte, 1, MSG_DONTWAIT), 0); /* it hung up */
	assert_true(l->ops->sleep(l));
	hang_up();
	assert_int_equal(pthread_create(&fabric, NULL, welcome, NULL), 0);
	while (pthread_tryjoin_np(fabric, NULL))
		l->ops->receive(l, 0, count, NULL);
	receive_one(l);
	assert_int_equal(((const struct fabric_table *)table)->magic, FABRIC_MAGIC);
	l->ops->close(l);
	assert_ptr_equal(table, &fabric_none);
	hang_up();
}

static void hear_listen(void)
{
	struct attach_listen m;

	assert_int_equal(recv(conn, &m, sizeof(m), MSG_DONTWAIT), sizeof(m));
	assert_int_equal(m.type, ATTACH_LISTEN);
	assert_int_equal(m.service_id, 7);
}

/* Nobody calls the link again: who listens sleeps until a request comes. */
static void new_fabric_is_told_what_it_listens_for(void **state)
{
	const struct cm_listen what = {.service_id = 7, .v4 = true};
	pthread_t fabric;
	struct link *l;
	uint32_t slot;

	assert_int_equal(pthread_create(&fabric, NULL, welcome, NULL), 0);
	assert_int_equal(fabric_link_open(&l, UDP_PORT, &slot, &table, &tallies), 0);
	pthread_join(fabric, NULL);
	assert_int_equal(l->ops->listen(l, &what, true), 0);
	hear_listen();
	hang_up();
	assert_int_equal(pthread_create(&fabric, NULL, welcome, NULL), 0);
	l->ops->receive(l, 0, count, NULL);
	assert_ptr_equal(table, &fabric_none);
	while (table == &fabric_none)
		l->ops->receive(l, 0, count, NULL);
	pthread_join(fabric, NULL);
	hear_listen();
	l->ops->close(l);
	hang_up();
}

/* Whether who sleeps is rung for a packet; if so, somebody else hears it. */
static bool rings(struct link *l, struct trunk_tx *tx)
{
	static const uint8_t ring = ATTACH_RING;
	const struct trunk_packet head = {.slid = 1, .dlid = 2};
	bool rung;

	assert_non_null(trunk_reserve(tx, 12));
	trunk_commit(tx, &head, 12);
	rung = trunk_must_ring(tx);
	if (rung)
		assert_int_equal(send(conn, &ring, 1, 0), 1);
	packets = 0;
	assert_int_equal(l->ops->receive(l, 0, count, NULL), 1);
	return rung;
}

/* One sleeps; another one polls, hears the bell and takes the packet, and may never poll again. */
static void who_sleeps_is_rung_again(void **state)
{
	struct trunk_tx tx;
	pthread_t fabric;
	struct link *l;
	uint32_t slot;

	assert_int_equal(pthread_create(&fabric, NULL, welcome, NULL), 0);
	assert_int_equal(fabric_link_open(&l, UDP_PORT, &slot, &table, &tallies), 0);
	pthread_join(fabric, NULL);
	tx = (struct trunk_tx){.ring = &trunk->to_program};
	assert_false(rings(l, &tx));
	assert_true(l->ops->sleep(l));
	for (int i = 0; i < 3; i++)
		assert_true(rings(l, &tx));
	l->ops->woke(l);
	rings(l, &tx);
	assert_false(rings(l, &tx));
	l->ops->close(l);
	hang_up();
}

/*
 * One polls and has looked who sleeps; before it hears the bell another one goes to sleep, and is rung for
 * two packets. recv() is ours, and does that in the place of time.
 */
static struct falls_asleep {
	struct link *l;
	struct trunk_tx *tx;
} falls_asleep;

static void fall_asleep(void)
{
	static const uint8_t ring = ATTACH_RING;
	const struct trunk_packet head = {.slid = 1, .dlid = 2};
	struct falls_asleep f = falls_asleep;

	falls_asleep.l = NULL;
	assert_true(f.l->ops->sleep(f.l));
	for (int i = 0; i < 2; i++) {
		assert_non_null(trunk_reserve(f.tx, 12));
		trunk_commit(f.tx, &head, 12);
		assert_int_equal(trunk_must_ring(f.tx), !i);
	}
	assert_int_equal(send(conn, &ring, 1, 0), 1);
}

ssize_t recv(int fd, void *to, size_t len, int flags)
{
	if (falls_asleep.l)
		fall_asleep();
	return recvfrom(fd, to, len, flags, NULL, NULL);
}

static void who_hears_the_bell_of_a_sleeper_takes_all(void **state)
{
	struct trunk_tx tx;
	pthread_t fabric;
	struct link *l;
	uint32_t slot;

	assert_int_equal(pthread_create(&fabric, NULL, welcome, NULL), 0);
	assert_int_equal(fabric_link_open(&l, UDP_PORT, &slot, &table, &tallies), 0);
	pthread_join(fabric, NULL);
	tx = (struct trunk_tx){.ring = &trunk->to_program};
	falls_asleep = (struct falls_asleep){l, &tx};
	assert_int_equal(l->ops->receive(l, 1, count, NULL), 2);
	assert_false(l->ops->waits(l));
	l->ops->woke(l);
	l->ops->close(l);
	hang_up();
}

static void who_does_not_answer_is_not_waited_for(void **state)
{
	struct fabric_attachment a;

	assert_int_equal(fabric_attach(&a, 0, 1), -ETIMEDOUT);
	assert_int_equal(a.fd, -1);
}

static void no_fabric_leaves_no_descriptor(void **state)
{
	struct fabric_attachment a = {.fd = 0};

	assert_int_equal(fabric_attach(&a, 0, PATIENCE_MS), -ENOENT);
	assert_true(a.fd < 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(ruined_ring_is_left_for_a_new_one, begin, end),
		cmocka_unit_test_setup_teardown(new_fabric_is_told_what_it_listens_for, begin, end),
		cmocka_unit_test_setup_teardown(who_sleeps_is_rung_again, begin, end),
		cmocka_unit_test_setup_teardown(who_hears_the_bell_of_a_sleeper_takes_all, begin, end),
		cmocka_unit_test_setup_teardown(who_does_not_answer_is_not_waited_for, begin, end),
		cmocka_unit_test(no_fabric_leaves_no_descriptor),
	};
	int failed;

	if (!mkdtemp(top) || setenv("ANYRDMA_DIR", top, 1) || setenv("ANYRDMA_FABRIC", "x", 1) ||
		host_rundir(run, sizeof(run)))
		return 1;
	snprintf(dir, sizeof(dir), "%s/fabric-x", run);
	if (mkdir(dir, 0700) || (size_t)snprintf(name.sun_path, sizeof(name.sun_path), "%s/fabric-x/attach",
					run) >= sizeof(name.sun_path))
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	rmdir(dir);
	rmdir(run);
	rmdir(top);
	return failed;
}
