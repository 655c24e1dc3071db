/* SPDX-License-Identifier: MIT */
/* A subnet on a stage (stage_test.h) with the built-in manager, for the tests of the manager and of its SA.
 */
#ifndef SUBNET_SM_STAGE_TEST_H
#define SUBNET_SM_STAGE_TEST_H

#include "subnet/stage_test.h"

#include "subnet/sm.h"
#include "subnet/topo_make.h"

#include <stdarg.h>
#include <setjmp.h>
#include <cmocka.h>

static struct stage t;
static struct subnet_sm *sm;

static inline struct subnet_port *first_host(void)
{
	unsigned i = 0;

	while (subnet_node(t.s, i)->type != SUBNET_CA)
		i++;
	return subnet_port(subnet_node(t.s, i), 1);
}

static inline void open_spec(const char *spec)
{
	char err[TOPO_ERROR];

	stage_open(&t, 1);
	assert_int_equal(topo_make(t.s, spec, 1, err), 0);
	assert_int_equal(subnet_start(t.s, t.now), 0);
	sm = subnet_sm_open(t.s, first_host());
	assert_non_null(sm);
}

static inline void close_spec(void)
{
	subnet_sm_close(sm);
	stage_close(&t);
}

/* Port 1 of a host. */
static inline struct subnet_port *host(const char *name)
{
	return subnet_port(subnet_find(t.s, name), 1);
}

#endif
