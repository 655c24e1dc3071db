/* SPDX-License-Identifier: MIT */
/* Devices of InfiniBand while their fabric goes, and comes back as another one. */
#include "fabric/attach.h"
#include "fabric/shared.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 8, TAG = 77 };

static struct hca_adapter adapter;

/* ---- the fabric, in the place of fabric/attach.c ---- */
static struct fabric_table *table;
static struct attach_welcome said;
static bool is_there, hung_up;
static int attached;

/* What a child of fork would find meanwhile is whole, or nothing. */
int fabric_attach(struct fabric_attachment *a, uint32_t slot, unsigned patience_ms)
{
	assert_null(adapter.fabric);
	if (!is_there)
		return -ENOENT;
	*a = (struct fabric_attachment){.fd = -1, .table = table, .welcome = said};
	attached++;
	return 0;
}

void fabric_detach(struct fabric_attachment *a)
{
	assert_null(adapter.fabric);
	attached--;
}

bool fabric_read_news(int fd, bool *gone)
{
	*gone = hung_up;
	hung_up = false;
	return *gone;
}

bool fabric_is_ours(void)
{
	return true;
}

bool fabric_is_timer(int fd)
{
	return false;
}

bool fabric_timer_rang(int fd)
{
	return false;
}

void fabric_ring(int fd)
{
}

int fabric_watch(void)
{
	return -ENOENT;
}

void fabric_watch_drain(int fd)
{
}

static void fabric_goes(void)
{
	is_there = false;
	hung_up = true;
	hca_devices_refresh_ib(&adapter);
}

static void fabric_comes(const struct attach_hca *hca, uint32_t nhcas)
{
	is_there = true;
	said = (struct attach_welcome){.nhcas = nhcas, .host_tag = TAG};
	memcpy(said.hca, hca, nhcas * sizeof(*hca));
	hca_devices_refresh_ib(&adapter);
}

/* ---- the program ---- */
static const struct attach_hca two[] = {
	{.name = "ib0", .nports = 2, .node_guid = 10, .port = {1, 2}},
	{.name = "ib1", .nports = 1, .node_guid = 20, .port = {3}},
};

static struct hca_device *device(const char *name)
{
	list_for_each(n, &adapter.devices)
	{
		struct hca_device *d = container_of(n, struct hca_device, node);

		if (!strcmp(d->vd.ibv.name, name))
			return d;
	}
	return NULL;
}

static uint16_t lid_of(const char *name, unsigned port)
{
	return hca_port_lids(hca_device_port(device(name), port)).base;
}

static bool is_up(const char *name, unsigned port)
{
	return hca_device_port(device(name), port)->up;
}

static int begin(void **state)
{
	const struct fabric_counts n = {.ports = PORTS};

	hca_adapter_init(&adapter);
	adapter.on_fabric = true;
	table = fabric_table_init(calloc(1, fabric_table_size(&n)), &n);
	for (uint32_t i = 0; i < PORTS; i++) {
		fabric_port(table, i)->state = PORT_ACTIVE;
		fabric_port(table, i)->lid = (uint16_t)(100 + i);
	}
	fabric_comes(two, 2);
	return 0;
}

static int end(void **state)
{
	fabric_goes();
	assert_int_equal(attached, 0);
	for (struct list *n; (n = list_pop(&adapter.devices));)
		free(container_of(n, struct hca_device, node));
	hca_adapter_fini(&adapter);
	free(table);
	return 0;
}

static void devices_stay_while_there_is_no_fabric(void **state)
{
	assert_true(is_up("ib0", 1) && is_up("ib0", 2) && is_up("ib1", 1));
	assert_int_equal(lid_of("ib0", 2), 102);
	fabric_goes();
	assert_false(is_up("ib0", 1) || is_up("ib0", 2) || is_up("ib1", 1));
	assert_false(device("ib0")->gone || device("ib1")->gone);
	fabric_comes(two, 2);
	assert_true(is_up("ib0", 1) && is_up("ib0", 2) && is_up("ib1", 1));
}

/* Ports that it claims meanwhile are its host's, too. */
static void host_is_the_same_while_there_is_no_fabric(void **state)
{
	assert_int_equal(adapter.host_tag, TAG);
	fabric_goes();
	assert_int_equal(adapter.host_tag, TAG);
}

static void devices_are_those_of_the_fabric_that_came(void **state)
{
	const struct attach_hca other = {.name = "ib0", .nports = 1, .node_guid = 30, .port = {7}};

	fabric_goes();
	fabric_comes(&other, 1);
	assert_true(is_up("ib0", 1) && lid_of("ib0", 1) == 107);
	assert_int_equal(device("ib0")->guid, 30);
	assert_false(is_up("ib0", 2)); /* it has no second port any more */
	assert_true(device("ib1")->gone && !is_up("ib1", 1));
	fabric_goes();
	fabric_comes(two, 2);
	assert_true(!device("ib1")->gone && is_up("ib1", 1) && lid_of("ib0", 1) == 101);
}

/* ---- events ---- */
static bool is_told(struct hca_context *ctx)
{
	struct pollfd p = {ctx->v.context.async_fd, POLLIN, 0};

	return poll(&p, 1, 0) == 1;
}

/* Of the second port, and of nothing else. */
static void tells(struct hca_context *ctx, enum ibv_event_type type)
{
	struct ibv_async_event ev;

	hca_devices_refresh_ib(&adapter);
	assert_true(is_told(ctx));
	assert_int_equal(hca_async_get(ctx, &ev), 0);
	assert_int_equal(ev.event_type, type);
	assert_int_equal(ev.element.port_num, 2);
	assert_false(is_told(ctx));
}

static void what_happens_to_a_port_is_told_to_who_has_its_device_open(void **state)
{
	struct hca_context *ctx = hca_context_open(device("ib0")), *other = hca_context_open(device("ib1"));
	struct fabric_port *p = fabric_port(table, 2);

	p->lid = 9;
	tells(ctx, IBV_EVENT_LID_CHANGE);
	p->sm_lid = 5;
	tells(ctx, IBV_EVENT_SM_CHANGE);
	p->pkey[1] = 0x8123;
	tells(ctx, IBV_EVENT_PKEY_CHANGE);
	p->guid[1] = 77;
	tells(ctx, IBV_EVENT_GID_CHANGE);
	p->reregisters++;
	tells(ctx, IBV_EVENT_CLIENT_REREGISTER);
	p->state = PORT_INIT;
	tells(ctx, IBV_EVENT_PORT_ERR);
	p->state = PORT_ACTIVE;
	tells(ctx, IBV_EVENT_PORT_ACTIVE);
	assert_false(is_told(other));
	hca_context_close(other);
	hca_context_close(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(devices_stay_while_there_is_no_fabric, begin, end),
		cmocka_unit_test_setup_teardown(host_is_the_same_while_there_is_no_fabric, begin, end),
		cmocka_unit_test_setup_teardown(devices_are_those_of_the_fabric_that_came, begin, end),
		cmocka_unit_test_setup_teardown(
			what_happens_to_a_port_is_told_to_who_has_its_device_open, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
