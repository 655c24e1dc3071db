/* SPDX-License-Identifier: MIT */
/*
 * Four processes share a UDP port on the loopback: three that manage connections and one that does not. A
 * forger sends MADs from ever other source ports, so that the kernel picks now this, now that process to
 * receive them; each must reach the one it concerns.
 */
#include "mad/gsi.h"

#include "base/random.h"
#include "cm/router.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "host/ports.h"
#include "wire/cm_msg.h"
#include "wire/ibt.h"
#include "wire/icrc.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { TCP = 0x0106, UDP = 0x0111, PORT = 7471, MANAGERS = 3, PLAIN = MANAGERS, PROCESSES, ROUNDS = 60 };
enum { REQ = 0x10, REJ = 0x12, REP, RTU, SIDR_REQ = 0x17, SIDR_REP };
enum { BODY = 24, ALL = 0xee, NOBODY = 0xff };
enum { MAD_AT = BTH_LEN + DETH_LEN, PACKET = MAD_AT + MAD_LEN + ICRC_LEN };

/* What a process says of itself, and hears. */
struct process {
	pid_t pid;
	_Atomic int ready, rang, right, wrong, unclaimed, rejected;
	_Atomic uint32_t slot, comm_id;
	_Atomic int last_word_to; /* whom it is to send its last MAD; -1: nobody */
	struct hca_adapter adapter;
	struct host_adapter_counters seen; /* a copy of its counters */
};

static struct process *process;
static uint16_t udp_port;
static const uint8_t lo[16] = {[10] = 0xff, 0xff, 127, 0, 0, 1};

/* ---- a process ---- */
/* The last byte of the TID says whom the forger had in mind. */
static void receive(void *arg, const uint8_t mad[MAD_LEN], const struct mad_from *from, uint64_t now)
{
	struct process *me = arg;

	if (memcmp(from->sgid, lo, 16) || memcmp(from->dgid, lo, 16) || from->src_qpn != QP_GSI ||
		from->pkey != PKEY_DEFAULT)
		me->wrong++;
	else if (mad[15] == NOBODY && mad[17] == REJ)
		me->rejected++;
	else if (mad[15] == NOBODY)
		me->unclaimed++;
	else if (mad[15] == me - process || mad[15] == ALL)
		me->right++;
	else
		me->wrong++;
}

static void timer(void *arg, uint64_t now)
{
	((struct process *)arg)->rang++;
}

static void listen_on(struct hca_adapter *a, uint16_t ps, uint16_t port)
{
	struct host_port_claim c = {.ps = ps, .port = port};
	host_port_id id;

	if (host_ports_claim(a->ports, &c, &id) || host_ports_listen(a->ports, id))
		abort();
}

static void manage_connections(struct process *me)
{
	static const struct mad_class takes = {
		MAD_CLASS_CM, CM_CLASS_VERSION, .methods = {1ull << MAD_METHOD_SEND}};
	static const struct mad_agent_ops ops = {.receive = receive, .timer = timer};
	uint16_t port = (uint16_t)(PORT + (me - process));
	struct hca_adapter *a = &me->adapter;
	int agent = mad_register(a, &takes, &ops, me);

	if (agent < 0 || mad_register(a, &takes, &ops, me) != -EBUSY)
		abort();
	listen_on(a, TCP, port);
	listen_on(a, UDP, port);
	mad_arm(a, agent, hca_engine_now(&a->engine) + 1000000);
}

/* A packet to QP1 with an empty MAD. */
static void prepare(uint8_t pkt[PACKET], uint16_t attribute, uint8_t whom)
{
	static const uint8_t head[] = {1, 7, 2, 3};

	memset(pkt, 0, PACKET);
	bth_put(pkt, IBT_UD | OP_SEND_ONLY, false, 0, PKEY_DEFAULT, QP_GSI, false, 0);
	put_be32(pkt + BTH_LEN, GSI_QKEY);
	put_be32(pkt + BTH_LEN + 4, QP_GSI);
	memcpy(pkt + MAD_AT, head, sizeof(head));
	pkt[MAD_AT + 15] = whom;
	put_be16(pkt + MAD_AT + 16, attribute);
}

/* Sends, and stops before any of its threads could receive. */
static void say_last_word(struct process *me)
{
	struct hca_adapter *a = &me->adapter;
	int whom = atomic_exchange(&me->last_word_to, -1);
	struct frame_dest to = {.hop_limit = 64};
	uint8_t pkt[PACKET];

	if (whom < 0)
		return;
	memcpy(to.sgid, lo, 16);
	memcpy(to.dgid, lo, 16);
	prepare(pkt, REP, (uint8_t)whom);
	put_be32(pkt + MAD_AT + BODY + 4, process[whom].comm_id);
	lock_take(&a->engine.drive);
	mad_send(a, &to, pkt + MAD_AT);
	kill(getpid(), SIGSTOP);
	lock_drop(&a->engine.drive);
}

static void be_process(struct process *me)
{
	static const struct mad_router *const routers[] = {&cm_router, NULL};
	struct hca_adapter *a = &me->adapter;

	hca_adapter_init(a);
	if (mad_gsi_open(a, routers) || hca_devices_refresh(a))
		abort();
	if (me != process + PLAIN)
		manage_connections(me);
	else if (hca_adapter_up(a))
		abort();
	me->slot = a->slot;
	me->comm_id = comm_id_make(a->slot, random_u32());
	me->ready = 1;
	for (;;) {
		struct timespec ms = {.tv_nsec = 1000000};

		say_last_word(me);
		lock_take(&a->engine.drive);
		me->seen = *a->count;
		lock_drop(&a->engine.drive);
		nanosleep(&ms, NULL);
	}
}

static void start(unsigned i)
{
	pid_t pid;

	process[i].last_word_to = -1;
	pid = fork();
	if (!pid)
		be_process(&process[i]);
	assert_true(pid > 0);
	process[i].pid = pid;
}

/* All its threads have stopped when it returns. */
static void halt(unsigned i)
{
	int status;

	kill(process[i].pid, SIGSTOP);
	assert_int_equal(waitpid(process[i].pid, &status, WUNTRACED), process[i].pid);
	assert_true(WIFSTOPPED(status));
}

static void stop(unsigned i)
{
	kill(process[i].pid, SIGKILL);
	waitpid(process[i].pid, NULL, 0);
}

/* ---- the forger ---- */
static int total(size_t counter)
{
	int n = 0;

	for (int i = 0; i < PROCESSES; i++)
		n += *(_Atomic int *)((char *)&process[i] + counter);
	return n;
}
#define TOTAL(counter) total(offsetof(struct process, counter))

static void say_counts(void)
{
	for (int i = 0; i < PROCESSES; i++)
		print_message("process %d: %d right, %d wrong, %d unclaimed, %d rejected; %u late, %llu "
			      "handed over, %llu dropped, "
			      "%llu unclaimed\n",
			i, process[i].right, process[i].wrong, process[i].unclaimed, process[i].rejected,
			process[i].adapter.qp1.kept, (unsigned long long)process[i].seen.mads_handed_over,
			(unsigned long long)process[i].seen.mads_dropped,
			(unsigned long long)process[i].seen.mads_unclaimed);
}

static void wait_until(bool (*is_so)(int), int arg)
{
	for (int ms = 0; !is_so(arg); ms++) {
		struct timespec t = {.tv_nsec = 1000000};

		if (ms == 20000) {
			say_counts();
			fail_msg("waited in vain");
		}
		nanosleep(&t, NULL);
	}
}

static bool heard(int n)
{
	return TOTAL(right) + TOTAL(wrong) >= n;
}

static bool is_ready(int i)
{
	return process[i].ready;
}

/* At a source port the kernel picks: the hash differs every time. */
static int forger(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), probe = IP_PMTUDISC_PROBE;

	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
	assert_int_equal(bind(fd, (struct sockaddr *)&sa, sizeof(sa)), 0);
	return fd;
}

static void send_by(int fd, uint8_t *pkt, size_t len)
{
	struct icrc_flow flow = {.dport = udp_port};
	struct sockaddr_in sa;
	socklen_t salen = sizeof(sa);

	getsockname(fd, (struct sockaddr *)&sa, &salen);
	memcpy(flow.src, lo, 16);
	memcpy(flow.dst, lo, 16);
	flow.sport = ntohs(sa.sin_port);
	icrc_put(pkt + len - ICRC_LEN, icrc_packet(&flow, pkt, len - ICRC_LEN, 0));
	sa.sin_port = htons(udp_port);
	assert_int_equal(sendto(fd, pkt, len, 0, (struct sockaddr *)&sa, sizeof(sa)), len);
}

static void send_packet(uint8_t *pkt, size_t len)
{
	int fd = forger();

	send_by(fd, pkt, len);
	close(fd);
}

static void forge_answer(uint16_t attribute, uint32_t id, uint8_t whom)
{
	uint8_t pkt[PACKET];

	prepare(pkt, attribute, whom);
	put_be32(pkt + MAD_AT + BODY + (attribute == SIDR_REP ? 0 : 4), id);
	send_packet(pkt, sizeof(pkt));
}

static void forge_request(uint16_t attribute, uint16_t ps, uint16_t port, uint32_t id, uint8_t whom)
{
	uint8_t pkt[PACKET];

	prepare(pkt, attribute, whom);
	put_be32(pkt + MAD_AT + BODY, id);
	put_be64(pkt + MAD_AT + BODY + 8, (uint64_t)ps << 16 | port);
	send_packet(pkt, sizeof(pkt));
}

static void reset(void)
{
	for (int i = 0; i < PROCESSES; i++)
		process[i].right = process[i].wrong = process[i].unclaimed = process[i].rejected = 0;
}

static void mads_reach_whom_they_concern(void **state)
{
	static const uint16_t attributes[] = {REQ, REP, RTU, SIDR_REQ, SIDR_REP, REJ};
	uint64_t handed_over = 0;

	reset();
	for (int i = 0; i < MANAGERS * ROUNDS; i++) {
		uint16_t attribute = attributes[i / MANAGERS % 6];
		unsigned whom = (unsigned)i % MANAGERS;

		if (attribute == REQ || attribute == SIDR_REQ)
			forge_request(attribute, attribute == REQ ? TCP : UDP, (uint16_t)(PORT + whom), 1,
				(uint8_t)whom);
		else
			forge_answer(attribute, process[whom].comm_id, (uint8_t)whom);
		wait_until(heard, i + 1);
	}
	assert_int_equal(TOTAL(wrong), 0);
	for (int i = 0; i < MANAGERS; i++) {
		assert_int_equal(process[i].right, ROUNDS);
		handed_over += process[i].seen.mads_handed_over;
	}
	/* The kernel finds the right one by chance once in four times. */
	assert_true(handed_over > 0);
}

/* Any of them may be the one that the kernel picks for what it sends itself. */
static void last_word_is_heard_while_its_sender_is_stopped(void **state)
{
	reset();
	for (int i = 0; i < PROCESSES; i++) {
		int status;

		process[i].last_word_to = (i + 1) % MANAGERS;
		assert_int_equal(waitpid(process[i].pid, &status, WUNTRACED), process[i].pid);
		assert_true(WIFSTOPPED(status));
		wait_until(heard, i + 1);
		kill(process[i].pid, SIGCONT);
	}
	assert_int_equal(TOTAL(wrong), 0);
}

static bool is_answered(int n)
{
	return TOTAL(unclaimed) + process[0].rejected >= n;
}

/* Nobody listens: who receives it answers, and be it the adapter itself where nobody manages connections. */
static void what_concerns_nobody_is_answered(void **state)
{
	reset();
	for (int i = 1; !process[0].rejected || !TOTAL(unclaimed); i++) {
		assert_true(i <= 1000); /* the kernel picks each of them by chance */
		forge_request(REQ, TCP, 1, process[0].comm_id, NOBODY);
		wait_until(is_answered, i);
	}
	assert_int_equal(TOTAL(wrong) + TOTAL(right), 0);
}

/* The request and its end come from one port, as a peer's do. */
static void who_gives_up_early_is_heard_by_whom_it_asked(void **state)
{
	reset();
	for (int i = 0; i < MANAGERS * 10; i++) {
		uint8_t whom = (uint8_t)(i % MANAGERS), pkt[PACKET];
		int fd = forger();

		prepare(pkt, REQ, whom);
		put_be32(pkt + MAD_AT + BODY, 1000 + (uint32_t)i);
		put_be64(pkt + MAD_AT + BODY + 8, (uint64_t)TCP << 16 | (PORT + whom));
		send_by(fd, pkt, sizeof(pkt));
		wait_until(heard, 2 * i + 1);
		prepare(pkt, REJ, whom);
		put_be32(pkt + MAD_AT + BODY, 1000 + (uint32_t)i);
		pkt[MAD_AT + BODY + 11] = 4; /* timeout */
		send_by(fd, pkt, sizeof(pkt));
		wait_until(heard, 2 * i + 2);
		close(fd);
	}
	assert_int_equal(TOTAL(wrong), 0);
	for (int i = 0; i < MANAGERS; i++)
		assert_int_equal(process[i].right, 2 * 10);
}

static uint64_t handed_over(void)
{
	uint64_t n = 0;

	for (int i = 0; i < PROCESSES; i++)
		n += process[i].seen.mads_handed_over;
	return n;
}

/* Packets that were looked at by who received them; those in flight between processes are missing. */
static int settled_packets(void)
{
	uint64_t looked = 0;

	for (int i = 0; i < PROCESSES; i++)
		looked += process[i].seen.mads_received + process[i].seen.mads_unclaimed;
	return (int)(looked - handed_over());
}

static bool is_settled(int n)
{
	return settled_packets() >= n;
}

/* Every listener has to look at one that names nothing: four a process, and one a second. */
static void rejections_of_nothing_are_bounded(void **state)
{
	struct timespec begin, end;
	uint64_t before, after;
	int seen;

	reset();
	usleep(20000); /* the counters that others see are copied now and then */
	before = handed_over();
	seen = settled_packets();
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (int i = 1; i <= 200; i++) {
		uint8_t pkt[PACKET];

		prepare(pkt, REJ, ALL);
		put_be32(pkt + MAD_AT + BODY, 0x10000 + (uint32_t)i);
		pkt[MAD_AT + BODY + 11] = i % 2 ? 4 : 8; /* timeout; or what cannot come without an id */
		send_packet(pkt, sizeof(pkt));
		wait_until(is_settled, seen + i);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	after = handed_over();
	assert_true(after - before <=
		    (uint64_t)PROCESSES * MANAGERS * (uint64_t)(4 + 1 + end.tv_sec - begin.tv_sec));
	assert_true(after > before); /* the first ones were not lost */
}

static int dropped(void)
{
	uint64_t n = 0;

	for (int i = 0; i < PROCESSES; i++)
		n += process[i].seen.mads_dropped;
	return (int)n;
}

static bool all_dropped(int n)
{
	return dropped() >= n;
}

static void other_packets_are_dropped(void **state)
{
	uint8_t pkt[PACKET + 4];
	int before = dropped();

	reset();
	prepare(pkt, REP, 0);
	send_packet(pkt, PACKET - 4);
	prepare(pkt, REP, 0);
	send_packet(pkt, PACKET + 4);
	prepare(pkt, REP, 0);
	put_be32(pkt + BTH_LEN, 0x11111111);
	send_packet(pkt, PACKET);
	prepare(pkt, REP, 0);
	put_be16(pkt + 2, 0x1234); /* P_Key */
	send_packet(pkt, PACKET);
	prepare(pkt, REP, 0);
	pkt[0] = IBT_RC | OP_SEND_ONLY;
	send_packet(pkt, PACKET);
	prepare(pkt, REP, 0);
	send_packet(pkt, BTH_LEN + ICRC_LEN);
	wait_until(all_dropped, before + 6);
	assert_int_equal(TOTAL(right) + TOTAL(wrong) + TOTAL(unclaimed), 0);
}

static bool has_rung(int i)
{
	return process[i].rang;
}

static void the_timer_rings(void **state)
{
	for (int i = 0; i < MANAGERS; i++)
		wait_until(has_rung, i);
}

static bool nobody_wanted(int n)
{
	return TOTAL(unclaimed) + (int)process[PLAIN].seen.mads_unclaimed >= n;
}

/* It leaves one process less. */
static void mads_of_the_dead_concern_nobody(void **state)
{
	int last = MANAGERS - 1, before;

	reset();
	before = (int)process[PLAIN].seen.mads_unclaimed;
	stop((unsigned)last);
	for (int i = 1; i <= 20; i++) {
		forge_answer(REP, process[last].comm_id, NOBODY);
		forge_request(REQ, TCP, (uint16_t)(PORT + last), process[0].comm_id, NOBODY);
		wait_until(nobody_wanted, before + 2 * i);
	}
	assert_int_equal(TOTAL(right) + TOTAL(wrong), 0);
}

static bool some_are_late(int dropped_before)
{
	unsigned n = 0;

	for (int i = 0; i < PROCESSES; i++)
		n += process[i].adapter.qp1.kept;
	return n || dropped() > dropped_before;
}

/* More than its socket holds, while it does not run: each comes when it does, and once. */
static void mads_wait_for_a_process_without_room(void **state)
{
	enum { BURST = 60 };
	int before = dropped();

	reset();
	halt(1);
	for (int i = 0; i < BURST; i++)
		forge_answer(RTU, process[1].comm_id, 1);
	wait_until(some_are_late, before);
	kill(process[1].pid, SIGCONT);
	wait_until(heard, BURST);
	assert_int_equal(process[1].right, BURST);
	assert_int_equal(TOTAL(right) + TOTAL(wrong), BURST);
	assert_int_equal(dropped(), before);
}

/* Its requests are not refused in its name: their senders will try again. Last: some come late. */
static void a_stopped_process_loses_mads_but_no_connections(void **state)
{
	uint64_t refused = process[PLAIN].seen.mads_unclaimed;
	int before = dropped();

	reset();
	halt(1);
	for (int i = 0; dropped() == before && i < 100000; i++)
		forge_request(REQ, TCP, PORT + 1, 1, 1);
	kill(process[1].pid, SIGCONT);
	assert_true(dropped() > before);
	wait_until(heard, 10); /* what a Unix socket holds at least */
	assert_int_equal(TOTAL(unclaimed) + TOTAL(wrong), 0);
	assert_int_equal(process[PLAIN].seen.mads_unclaimed, refused);
}

/* ---- the world ---- */
static char dir[] = "/tmp/gsi-test-XXXXXX";

static uint16_t free_udp_port(void)
{
	struct sockaddr_in sa = {.sin_family = AF_INET};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (bind(fd, (struct sockaddr *)&sa, sizeof(sa)) || getsockname(fd, (struct sockaddr *)&sa, &len))
		abort();
	close(fd);
	return ntohs(sa.sin_port);
}

static int start_all(void **state)
{
	char port[16];

	process = mmap(NULL, PROCESSES * sizeof(*process), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	udp_port = free_udp_port();
	snprintf(port, sizeof(port), "%u", udp_port);
	if (process == MAP_FAILED || !mkdtemp(dir) || setenv("ANYRDMA_DIR", dir, 1) ||
		setenv("ANYRDMA_PORT", port, 1))
		return 1;
	for (unsigned i = 0; i < PROCESSES; i++)
		start(i);
	for (int i = 0; i < PROCESSES; i++)
		wait_until(is_ready, i);
	return 0;
}

static int stop_all(void **state)
{
	char command[64];

	for (unsigned i = 0; i < PROCESSES; i++)
		kill(process[i].pid, SIGKILL);
	while (wait(NULL) > 0)
		;
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mads_reach_whom_they_concern),
		cmocka_unit_test(last_word_is_heard_while_its_sender_is_stopped),
		cmocka_unit_test(what_concerns_nobody_is_answered),
		cmocka_unit_test(who_gives_up_early_is_heard_by_whom_it_asked),
		cmocka_unit_test(rejections_of_nothing_are_bounded),
		cmocka_unit_test(other_packets_are_dropped),
		cmocka_unit_test(the_timer_rings),
		cmocka_unit_test(mads_of_the_dead_concern_nobody),
		cmocka_unit_test(mads_wait_for_a_process_without_room),
		cmocka_unit_test(a_stopped_process_loses_mads_but_no_connections),
	};

	return cmocka_run_group_tests(tests, start_all, stop_all);
}
