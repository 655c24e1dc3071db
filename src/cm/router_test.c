/* SPDX-License-Identifier: MIT */
/* Golden MADs: how those begin that Linux's rdma_cm sent (tests/wire/pcaps: rping, udaddy, rping refused). */
#include "cm/router.h"

#include "host/ports.h"
#include "wire/qpn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

enum { TCP = 0x0106, UDP = 0x0111, RPING = 7174, SLOT = 9 };
#define CLIENT 0x7b089c1au
#define SERVER 0xbbce5ffeu

static const uint8_t client[16] = {[10] = 0xff, 0xff, 10, 77, 0, 1};
static const uint8_t server[16] = {[10] = 0xff, 0xff, 10, 77, 0, 2};

static const struct golden {
	const char *name;
	uint8_t attribute, body[20];
	enum mad_whom whom;
	uint32_t slot;
} goldens[] = {
	{"REQ", 0x10, {0x7b, 8, 0x9c, 0x1a, [12] = 1, 6, 0x1c, 6}, MAD_FOR_SLOT, SLOT},
	{"REP", 0x13, {0xbb, 0xce, 0x5f, 0xfe, 0x7b, 8, 0x9c, 0x1a}, MAD_FOR_SLOT, CLIENT >> 23},
	{"RTU", 0x14, {0x7b, 8, 0x9c, 0x1a, 0xbb, 0xce, 0x5f, 0xfe}, MAD_FOR_SLOT, SERVER >> 23},
	{"DREQ", 0x15, {0x7b, 8, 0x9c, 0x1a, 0xbb, 0xce, 0x5f, 0xfe, [10] = 0x11}, MAD_FOR_SLOT,
		SERVER >> 23},
	{"DREP", 0x16, {0xbb, 0xce, 0x5f, 0xfe, 0x7b, 8, 0x9c, 0x1a}, MAD_FOR_SLOT, CLIENT >> 23},
	{"REJ", 0x12, {[4] = 0x79, 8, 0x9c, 0x1a, [11] = 8}, MAD_FOR_SLOT, 0x79089c1a >> 23},
	{"SIDR_REQ", 0x17, {0x7f, 8, 0x9c, 0x1a, 0xff, 0xff, [12] = 1, 0x11, 0x1c, 6}, MAD_FOR_SLOT, SLOT},
	{"SIDR_REP", 0x18, {0x7f, 8, 0x9c, 0x1a, [10] = 0x14, [16] = 1, 0x11, 0x1c, 6}, MAD_FOR_SLOT,
		0x7f089c1a >> 23},
	/* not seen, but meant (IBA 12.6.7.2, and what else may come) */
	{"REJ by who gave up", 0x12, {0x7b, 8, 0x9c, 0x1a, [11] = 4}, MAD_FOR_SLOT, SLOT},
	{"REJ by who gave up what we did not see", 0x12, {0x7b, 8, 0x9c, 0x1b, [11] = 4}, MAD_FOR_LISTENERS,
		0},
	{"REJ without an id, for another reason", 0x12, {0x7b, 8, 0x9c, 0x1a, [11] = 8}, MAD_FOR_NOBODY, 0},
	{"REJ that names nothing", 0x12, {[11] = 4}, MAD_FOR_NOBODY, 0},
	{"REQ to another port", 0x10, {0x7b, 8, 0x9c, 0x1a, [12] = 1, 6, 0x1c, 7}, MAD_FOR_NOBODY, 0},
	{"REQ to another service", 0x10, {0x7b, 8, 0x9c, 0x1a, [11] = 1, 1, 6, 0x1c, 6}, MAD_FOR_NOBODY, 0},
	{"RTU without an id", 0x14, {0x7b, 8, 0x9c, 0x1a}, MAD_FOR_NOBODY, 0},
	{"no message", 0x0f, {0}, MAD_FOR_NOBODY, 0},
	{"no message", 0x1b, {0}, MAD_FOR_NOBODY, 0},
};

static void fill(const struct golden *g, uint8_t mad[MAD_LEN])
{
	static const uint8_t head[] = {1, 7, 2, 3, [11] = 2, 0x1a, 0x9c, 8, 0x79};

	memset(mad, 0, MAD_LEN);
	memcpy(mad, head, sizeof(head));
	mad[17] = g->attribute;
	memcpy(mad + 24, g->body, sizeof(g->body));
}

struct world {
	struct host_ports *ports;
	void *state; /* the router's */
};

static enum mad_whom route(struct world *w, const uint8_t mad[MAD_LEN], uint64_t now, uint32_t *slot)
{
	struct mad_from from = {0};

	memcpy(from.sgid, client, 16);
	memcpy(from.dgid, server, 16);
	return cm_router.route(w->state, w->ports, mad, &from, now, slot);
}

static void mads_name_whom_they_concern(void **state)
{
	struct world *w = *state;

	for (const struct golden *g = goldens; g < goldens + sizeof(goldens) / sizeof(*g); g++) {
		uint8_t mad[MAD_LEN];
		uint32_t slot = 0;
		enum mad_whom whom;

		fill(g, mad);
		whom = route(w, mad, 0, &slot);
		if (whom != g->whom || (whom == MAD_FOR_SLOT && slot != g->slot))
			fail_msg("%s: %d, slot %u", g->name, whom, slot);
		mad[1] = 4; /* another class */
		assert_int_equal(route(w, mad, 0, &slot), MAD_FOR_NOBODY);
	}
}

/* Each of them wakes every listener: four, and one more a second. */
static void not_all_are_asked_for_ever(void **state)
{
	static const struct golden rej = {.attribute = 0x12, .body = {1, 2, 3, 4, [11] = 4}};
	const uint64_t second = 1000000000, start = 100 * second;
	struct world *w = *state;
	unsigned asked = 0;
	uint8_t mad[MAD_LEN];
	uint32_t slot;

	fill(&rej, mad);
	for (unsigned i = 0; i < 1000; i++)
		asked += route(w, mad, start + i, &slot) == MAD_FOR_LISTENERS;
	assert_int_equal(asked, 4);
	for (unsigned i = 0; i < 1000; i++)
		asked += route(w, mad, start + 2 * second + i, &slot) == MAD_FOR_LISTENERS;
	assert_int_equal(asked, 6);
}

static void requests_are_refused_as_the_kernel_does(void **state)
{
	static const struct golden req = {.attribute = 0x10,
					   .body = {0x79, 8, 0x9c, 0x1a, [12] = 1, 6, 0x1c, 6}},
				   rej = {.attribute = 0x12, .body = {[4] = 0x79, 8, 0x9c, 0x1a, [11] = 8}},
				   sidr_req = {.attribute = 0x17,
					   .body = {0x7f, 8, 0x9c, 0x1a, [12] = 1, 0x11, 0x1c, 6}},
				   sidr_rep = {.attribute = 0x18,
					   .body = {0x7f, 8, 0x9c, 0x1a, 1, [16] = 1, 0x11, 0x1c, 6}};
	uint8_t mad[MAD_LEN], expected[MAD_LEN], answer[MAD_LEN];

	fill(&req, mad);
	fill(&rej, expected);
	assert_true(cm_router.refuse(mad, answer));
	assert_memory_equal(answer, expected, MAD_LEN);
	assert_false(cm_router.refuse(answer, expected)); /* or two hosts would never stop */
	fill(&sidr_req, mad);
	fill(&sidr_rep, expected);
	assert_true(cm_router.refuse(mad, answer));
	assert_memory_equal(answer, expected, MAD_LEN);
	assert_false(cm_router.refuse(answer, expected));
}

/* ---- a host on which somebody listens ---- */
static char dir[] = "/tmp/cm-router-test-XXXXXX";

static int open_ports(void **state)
{
	static struct world w;

	w.state = calloc(1, cm_router.state_size);
	if (!w.state || !mkdtemp(dir) || setenv("ANYRDMA_DIR", dir, 1) ||
		host_ports_open(&w.ports, 4791, SLOT, -1))
		return 1;
	for (int i = 0; i < 2; i++) {
		struct host_port_claim c = {.ps = i ? UDP : TCP, .port = RPING};
		host_port_id id;

		if (host_ports_claim(w.ports, &c, &id) || host_ports_listen(w.ports, id))
			return 1;
	}
	*state = &w;
	return 0;
}

static int close_ports(void **state)
{
	struct world *w = *state;
	char command[64];

	host_ports_close(w->ports);
	free(w->state);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(mads_name_whom_they_concern),
		cmocka_unit_test(not_all_are_asked_for_ever),
		cmocka_unit_test(requests_are_refused_as_the_kernel_does),
	};

	return cmocka_run_group_tests(tests, open_ports, close_ports);
}
