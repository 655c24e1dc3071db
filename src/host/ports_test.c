/* SPDX-License-Identifier: MIT */
/* Processes are told apart by their own open file: two in one program are as good as two programs. */
#include "host/ports.h"

#include "host/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { TCP = 0x0106, UDP = 0x0111, UDP_PORT = 4791, PORT = 7471 };

#define ANY                                                                                                  \
	{                                                                                                    \
		0                                                                                            \
	}
#define V4(last)                                                                                             \
	{                                                                                                    \
		[10] = 0xff, 0xff, 10, 0, 0, last                                                            \
	}
#define V6(last)                                                                                             \
	{                                                                                                    \
		0xfd, [15] = last                                                                            \
	}
#define MANY 5000

static struct host_ports *at(uint32_t slot)
{
	struct host_ports *p;

	assert_int_equal(host_ports_open(&p, UDP_PORT, slot, -1), 0);
	return p;
}

static int claim(struct host_ports *p, struct host_port_claim c, host_port_id *id)
{
	return host_ports_claim(p, &c, id);
}

/* ---- the rules ---- */
static const struct {
	const char *what;
	struct host_port_claim first, second;
	int err;
} rules[] = {
	{"one address", {.addr = V4(1)}, {.addr = V4(1)}, -EADDRINUSE},
	{"two addresses", {.addr = V4(1)}, {.addr = V4(2)}, 0},
	{"a wildcard and an address", {.addr = ANY}, {.addr = V4(1)}, -EADDRNOTAVAIL},
	{"an address and a wildcard", {.addr = V4(1)}, {.addr = ANY}, -EADDRNOTAVAIL},
	{"two wildcards", {.addr = ANY}, {.addr = ANY}, -EADDRNOTAVAIL},
	{"another port space", {.ps = UDP}, {.addr = ANY}, 0},
	{"another port", {.port = PORT + 1}, {.addr = ANY}, 0},
	{"both reuse", {.addr = V4(1), .reuse = true}, {.addr = V4(1), .reuse = true}, 0},
	{"wildcards, both reuse", {.reuse = true}, {.reuse = true}, 0},
	{"only the first reuses", {.addr = V4(1), .reuse = true}, {.addr = V4(1)}, -EADDRINUSE},
	{"only the second reuses", {.addr = V4(1)}, {.addr = V4(1), .reuse = true}, -EADDRINUSE},
	{"the first listens", {.addr = V4(1), .reuse = true, .listening = true},
		{.addr = V4(1), .reuse = true}, -EADDRINUSE},
	{"IPv4 and IPv6", {.addr = V4(1)}, {.v6 = true, .addr = V6(1)}, 0},
	{"wildcards of two families", {.addr = ANY}, {.v6 = true}, -EADDRNOTAVAIL},
	{"the same, both for their family only", {.afonly = true}, {.v6 = true, .afonly = true}, 0},
	{"the same, one of them", {.afonly = true}, {.v6 = true}, -EADDRNOTAVAIL},
	{"one family, both for it only", {.v6 = true, .afonly = true}, {.v6 = true, .afonly = true},
		-EADDRNOTAVAIL},
	{"IPv6 for itself, an IPv4 address", {.v6 = true, .afonly = true}, {.addr = V4(1)}, -EADDRNOTAVAIL},
};

static struct host_port_claim filled(struct host_port_claim c)
{
	if (!c.ps)
		c.ps = TCP;
	if (!c.port)
		c.port = PORT;
	return c;
}

static void claims_get_in_each_others_way_by_the_kernels_rules(void **state)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		struct host_ports *a = at(1), *b = at(2);
		struct host_port_claim first = filled(rules[i].first);
		bool listen = first.listening;
		host_port_id id;
		int err;

		first.listening = false;
		assert_int_equal(claim(a, first, &id), 0);
		if (listen)
			assert_int_equal(host_ports_listen(a, id), 0);
		err = claim(b, filled(rules[i].second), &id);
		if (err != rules[i].err)
			fail_msg("%s: %d, not %d", rules[i].what, err, rules[i].err);
		host_ports_close(a);
		host_ports_close(b);
	}
}

static void who_shares_a_port_cannot_listen(void **state)
{
	struct host_port_claim c = {.ps = TCP, .port = PORT, .addr = V4(1), .reuse = true};
	struct host_ports *a = at(1), *b = at(2);
	host_port_id in_a, in_b;

	assert_int_equal(claim(a, c, &in_a), 0);
	assert_int_equal(claim(b, c, &in_b), 0);
	assert_int_equal(host_ports_listen(a, in_a), -EADDRINUSE);
	host_ports_release(b, in_b);
	assert_int_equal(host_ports_listen(b, in_b), -EINVAL);
	assert_int_equal(host_ports_listen(a, in_a), 0);
	assert_int_equal(host_ports_listen(b, in_a), -EINVAL); /* not b's */
	host_ports_release(b, in_a);
	assert_int_equal(claim(b, c, &in_b), -EADDRINUSE);
	host_ports_close(a);
	host_ports_close(b);
}

/* ---- whom a request is for ---- */
static const struct {
	const char *what;
	struct host_port_claim claim;
	uint8_t dgid[16];
	bool found;
} requests[] = {
	{"its address", {.addr = V4(1)}, V4(1), true},
	{"another address", {.addr = V4(1)}, V4(2), false},
	{"the wildcard", {.addr = ANY}, V4(2), true},
	{"the wildcard, IPv6", {.addr = ANY}, V6(2), true},
	{"the wildcard of IPv6, IPv4", {.v6 = true}, V4(2), true},
	{"that for itself, IPv4", {.v6 = true, .afonly = true}, V4(2), false},
	{"that for itself, IPv6", {.v6 = true, .afonly = true}, V6(2), true},
	{"an IPv6 address", {.v6 = true, .addr = V6(1)}, V6(1), true},
	{"another port", {.port = PORT + 1}, V4(1), false},
	{"another port space", {.ps = UDP}, V4(1), false},
};

static void requests_find_who_listens(void **state)
{
	struct host_ports *b = at(2);

	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
		struct host_ports *a = at(1);
		struct slots slots;
		host_port_id id;
		uint32_t slot;

		assert_int_equal(claim(a, filled(requests[i].claim), &id), 0);
		assert_int_equal(host_ports_owner(b, TCP, requests[i].dgid, PORT), 0);
		host_ports_listeners(b, &slots);
		assert_int_equal(slots.bits[0], 0);
		assert_int_equal(host_ports_listen(a, id), 0);
		slot = host_ports_owner(b, TCP, requests[i].dgid, PORT);
		if (slot != requests[i].found)
			fail_msg("%s: slot %u", requests[i].what, slot);
		host_ports_listeners(b, &slots);
		assert_int_equal(slots.bits[0], 1 << 1);
		host_ports_release(a, id);
		assert_int_equal(host_ports_owner(b, TCP, requests[i].dgid, PORT), 0);
		host_ports_close(a);
	}
	host_ports_close(b);
}

static void hosts_of_a_fabric_have_ports_of_their_own(void **state)
{
	struct host_ports *a = at(1), *b = at(2);
	struct host_port_claim c = {.ps = TCP, .port = PORT, .host = 7};
	const uint8_t any4[16] = {[10] = 0xff, [11] = 0xff};
	host_port_id id;

	assert_int_equal(claim(a, c, &id), 0);
	assert_int_equal(host_ports_listen(a, id), 0);
	assert_int_equal(host_ports_owner(b, TCP, any4, PORT), 0); /* the machine's requests are not for it */
	assert_int_equal(claim(b, c, &id), -EADDRNOTAVAIL);
	c.host = 8;
	assert_int_equal(claim(b, c, &id), 0);
	c.host = 0;
	assert_int_equal(claim(b, c, &id), 0);
	host_ports_close(a);
	host_ports_close(b);
}

/* ---- processes that die ---- */
/* A process that claims the port, says so, and is killed when told. */
static pid_t claimer(uint32_t slot, int *said)
{
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		struct host_port_claim c = {.ps = TCP, .port = PORT};
		struct host_ports *p;
		host_port_id id;
		char ok = !host_ports_open(&p, UDP_PORT, slot, -1) && !host_ports_claim(p, &c, &id) &&
			  !host_ports_listen(p, id);

		if (write(fds[1], &ok, 1) == 1)
			pause();
		_exit(1);
	}
	close(fds[1]);
	*said = fds[0];
	return pid;
}

static void kill_it(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void a_killed_process_has_no_ports(void **state)
{
	struct host_port_claim c = {.ps = TCP, .port = PORT};
	struct host_ports *p = at(2);
	uint8_t any[16] = {1};
	host_port_id id;
	char ok = 0;
	int said;
	pid_t pid = claimer(7, &said);

	assert_int_equal(read(said, &ok, 1), 1);
	assert_true(ok);
	assert_int_equal(claim(p, c, &id), -EADDRNOTAVAIL);
	assert_int_equal(host_ports_owner(p, TCP, any, PORT), 7);
	kill_it(pid);
	close(said);
	assert_int_equal(claim(p, c, &id), 0);
	assert_int_equal(host_ports_owner(p, TCP, any, PORT), 0);
	host_ports_close(p);
}

static void a_new_process_of_a_slot_does_not_inherit(void **state)
{
	struct host_ports *p = at(2), *next;
	uint8_t any[16] = {1};
	host_port_id id;
	char ok = 0;
	int said;
	pid_t pid = claimer(7, &said);

	assert_int_equal(read(said, &ok, 1), 1);
	assert_true(ok);
	kill_it(pid);
	close(said);
	next = at(7);
	assert_int_equal(host_ports_owner(p, TCP, any, PORT), 0);
	assert_int_equal(claim(p, (struct host_port_claim){.ps = TCP, .port = PORT}, &id), 0);
	host_ports_close(next);
	assert_int_equal(host_ports_open(&next, UDP_PORT, 2, -1), -EAGAIN); /* it is there */
	host_ports_close(p);
}

/* Killed anywhere: two that claim and release without end, one of them killed again and again. */
static void a_kill_at_any_moment_leaves_nothing(void **state)
{
	struct host_ports *p = at(2);

	for (unsigned i = 0; i < 100; i++) {
		struct host_port_claim c = {.ps = TCP, .port = PORT};
		volatile char *going =
			mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		host_port_id id;
		pid_t pid = fork();

		if (!pid) {
			struct host_ports *own;

			if (host_ports_open(&own, UDP_PORT, 7, -1))
				_exit(1);
			for (;;) {
				*going = 1;
				if (!host_ports_claim(own, &c, &id) && !host_ports_listen(own, id))
					host_ports_release(own, id);
			}
		}
		while (!*going)
			usleep(100);
		usleep(i * 7);
		kill_it(pid);
		munmap((void *)going, 4096);
		assert_int_equal(claim(p, c, &id), 0);
		host_ports_release(p, id);
	}
	host_ports_close(p);
}

/* ---- many ---- */
static off_t file_blocks(void)
{
	char path[256];
	struct stat st;

	assert_int_equal(host_rundir(path, sizeof(path) - 20), 0);
	strcat(path, "/processes-4791");
	assert_int_equal(stat(path, &st), 0);
	return st.st_blocks;
}

static void ports_come_from_the_hosts_range_and_differ(void **state)
{
	static host_port_id id[2][MANY];
	static uint8_t seen[65536];
	struct host_ports *p[2] = {at(1), at(2)};
	unsigned low, high;
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%u %u", &low, &high), 2);
	fclose(f);
	for (unsigned i = 0; i < MANY; i++) {
		struct host_port_claim c = {.ps = TCP};

		assert_int_equal(host_ports_claim(p[i % 2], &c, &id[i % 2][i / 2]), 0);
		assert_in_range(c.port, low, high);
		assert_false(seen[c.port]++);
	}
	for (unsigned i = 0; i < MANY; i++)
		host_ports_release(p[i % 2], id[i % 2][i / 2]);
	host_ports_close(p[0]);
	host_ports_close(p[1]);
}

static void cycles_do_not_grow(void **state)
{
	struct host_ports *p = at(1);
	off_t before = file_blocks();

	for (unsigned i = 0; i < MANY; i++) {
		struct host_port_claim listener = {.ps = TCP, .port = PORT}, client = {.ps = TCP};
		host_port_id l, c;

		assert_int_equal(host_ports_claim(p, &listener, &l), 0);
		assert_int_equal(host_ports_listen(p, l), 0);
		assert_int_equal(host_ports_claim(p, &client, &c), 0);
		host_ports_release(p, l);
		host_ports_release(p, c);
	}
	assert_int_equal(file_blocks(), before);
	host_ports_close(p);
}

/* ---- a file that somebody tore ---- */
static void a_torn_file_leads_nobody_out_of_bounds(void **state)
{
	struct ports_table *t = malloc(sizeof(*t)); /* exact, for the address sanitizer */
	struct host_port_claim c = {.ps = TCP, .port = PORT, .slot = 3};
	host_port_id id;
	uint8_t any[16] = {1};

	memset(t, 0xff, sizeof(*t));
	assert_false(ports_header_is_whole(&t->h, PORTS_MAX));
	assert_int_equal(ports_table_count(t), PORTS_MAX);
	assert_int_equal(ports_table_add(t, &c, UINT32_MAX), 0);
	assert_int_equal(ports_table_owner(t, TCP, any, PORT), 0);
	assert_true(ports_table_owner(t, 0xffff, any, 0xffff) < 512 + 1);
	ports_table_drop(t, UINT64_MAX, 3);
	assert_false(ports_table_listen(t, UINT64_MAX));
	ports_table_trim(t);
	ports_table_clear(t);
	assert_true(ports_header_is_whole(&t->h, 0));
	assert_int_equal(ports_table_count(t), 0);
	id = ports_table_add(t, &c, PORTS_STEP);
	assert_true(id && ports_table_listen(t, id));
	assert_int_equal(ports_table_owner(t, TCP, any, PORT), 3);
	free(t);
}

static void a_torn_file_works_again(void **state)
{
	char path[256];
	struct host_ports *p;
	host_port_id id;
	int fd;

	assert_int_equal(host_rundir(path, sizeof(path) - 20), 0);
	strcat(path, "/processes-4791");
	fd = open(path, O_RDWR | O_CREAT, 0600);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(write(fd, "nonsense in every single entry..", 32), 32);
	close(fd);
	p = at(1);
	assert_int_equal(claim(p, (struct host_port_claim){.ps = TCP, .port = PORT}, &id), 0);
	host_ports_close(p);
	truncate(path, 0); /* between two processes */
	p = at(1);
	assert_int_equal(claim(p, (struct host_port_claim){.ps = TCP, .port = PORT}, &id), 0);
	host_ports_close(p);
}

/* ---- the file is lost while processes have claims ---- */
static char dir[] = "/tmp/ports-test-XXXXXX";

static void path_of_file(char path[256])
{
	assert_int_equal(host_rundir(path, 256 - 20), 0);
	strcat(path, "/processes-4791");
}

static void remove_all(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(mkdir(dir, 0700), 0);
}

static void empty_it(void)
{
	char path[256];

	path_of_file(path);
	assert_int_equal(truncate(path, 0), 0);
}

static void cut_it(void)
{
	char path[256];

	path_of_file(path);
	assert_int_equal(truncate(path, offsetof(struct ports_table, entry) + 7), 0);
}

static void fill_it(void)
{
	char path[256];
	int fd;

	path_of_file(path);
	fd = open(path, O_WRONLY);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(write(fd, "nonsense in every single entry..", 32), 32);
	close(fd);
}

static void claims_outlive_the_file(void **state)
{
	static void (*const lose[])(void) = {remove_all, empty_it, cut_it, fill_it};
	struct host_port_claim c = {.ps = TCP, .port = PORT, .addr = V4(1)};
	static const uint8_t addr[16] = V4(1);

	for (unsigned i = 0; i < sizeof(lose) / sizeof(lose[0]); i++) {
		struct host_ports *old = at(1), *older = at(2), *young;
		host_port_id id, other, third;

		assert_int_equal(
			claim(older, (struct host_port_claim){.ps = TCP, .port = PORT + 1}, &other), 0);
		assert_int_equal(claim(old, c, &id), 0);
		assert_int_equal(host_ports_listen(old, id), 0);
		lose[i]();
		young = at(3);
		host_ports_look(old, true); /* as the young one's LOOK asks */
		host_ports_look(older, true);
		assert_int_equal(host_ports_owner(young, TCP, addr, PORT), 1);
		assert_int_equal(host_ports_owner(older, TCP, addr, PORT), 1);
		assert_int_equal(claim(young, c, &third), -EADDRINUSE);
		assert_int_equal(host_ports_listen(older, other), 0); /* names are still good */
		assert_int_equal(host_ports_owner(young, TCP, addr, PORT + 1), 2);
		host_ports_release(old, id);
		assert_int_equal(claim(young, c, &third), 0);
		host_ports_close(old);
		host_ports_close(older);
		host_ports_close(young);
	}
}

/* Between the loss and the repair a request is nobody's to refuse. */
static void a_lost_file_refuses_nobody(void **state)
{
	struct host_ports *p = at(1);
	uint8_t any[16] = {1};
	host_port_id id;

	assert_int_equal(claim(p, (struct host_port_claim){.ps = TCP, .port = PORT}, &id), 0);
	assert_int_equal(host_ports_listen(p, id), 0);
	assert_int_equal(host_ports_owner(p, TCP, any, PORT), 1);
	empty_it();
	assert_int_equal(host_ports_owner(p, TCP, any, PORT), -EAGAIN);
	host_ports_look(p, false);
	assert_int_equal(host_ports_owner(p, TCP, any, PORT), 1);
	host_ports_close(p);
}

/* ---- a directory of our own ---- */
static int own_dir(void **state)
{
	return !mkdtemp(dir) || setenv("ANYRDMA_DIR", dir, 1);
}

static int remove_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(claims_get_in_each_others_way_by_the_kernels_rules),
		cmocka_unit_test(who_shares_a_port_cannot_listen),
		cmocka_unit_test(requests_find_who_listens),
		cmocka_unit_test(hosts_of_a_fabric_have_ports_of_their_own),
		cmocka_unit_test(a_killed_process_has_no_ports),
		cmocka_unit_test(a_new_process_of_a_slot_does_not_inherit),
		cmocka_unit_test(a_kill_at_any_moment_leaves_nothing),
		cmocka_unit_test(ports_come_from_the_hosts_range_and_differ),
		cmocka_unit_test(cycles_do_not_grow),
		cmocka_unit_test(a_torn_file_leads_nobody_out_of_bounds),
		cmocka_unit_test(a_torn_file_works_again),
		cmocka_unit_test(claims_outlive_the_file),
		cmocka_unit_test(a_lost_file_refuses_nobody),
	};

	return cmocka_run_group_tests(tests, own_dir, remove_dir);
}
