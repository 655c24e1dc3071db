/* SPDX-License-Identifier: MIT */
/* Putting a real adapter together: the UDP link, the transports, the registry, the helper. */
#include "hca/engine_parts.h"

#include "base/fd.h"
#include "base/guard.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/board.h"
#include "hca/device.h"
#include "hca/flow.h"
#include "hca/mr.h"
#include "host/ports.h"
#include "host/registry.h"
#include "ib/ibt.h"
#include "iwarp/stream.h"
#include "link/link.h"
#include "link/none.h"
#include "link/shm.h"
#include "link/udp.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct hca_transport *hca_engine_iwarp(void)
{
	return &iwarp_transport;
}

static uint16_t wanted_port(void)
{
	const char *v = getenv("ANYRDMA_PORT");
	char *end;
	long port;

	if (!v || !*v)
		return ROCE_UDP_PORT;
	port = strtol(v, &end, 10);
	if (!*end && port > 0 && port < 65536)
		return (uint16_t)port;
	log_warn("ANYRDMA_PORT=%s is not a UDP port: using %d", v, ROCE_UDP_PORT);
	return ROCE_UDP_PORT;
}

static bool is_ours(void *arg, const uint8_t gid[16])
{
	return hca_devices_have(arg, gid);
}

/* Puts the way by memory before the wire, if the user wants it and the host has it. */
static void add_memory(struct hca_adapter *a, struct link **link, uint16_t port)
{
	void *board;
	int err;

	if (a->local == HCA_LOCAL_OFF)
		return;
	guard_install(); /* others' memory may be short of pages */
	err = link_shm_open(link, *link, port, a->slot, is_ours, a,
		a->local >= HCA_LOCAL_COPY ? sizeof(struct hca_board) : 0, &board);
	if (err)
		log_info("not by memory: %s", fd_reason(-err));
	else
		hca_keys_show(a, board);
}

/* What other processes see of us. */
static void close_shared(struct hca_adapter *a)
{
	host_ports_close(a->ports);
	a->ports = NULL;
	host_registry_close(a->registry);
	a->registry = NULL;
	a->count = &a->own_count;
}

/* No UDP here, or not this port. iWARP needs neither. */
static bool is_without_udp(int err)
{
	static const int reasons[] = {
		EADDRINUSE, EADDRNOTAVAIL, EACCES, EPERM, EAFNOSUPPORT, EPROTONOSUPPORT, EPROTOTYPE};

	for (unsigned i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		if (err == -reasons[i])
			return true;
	}
	return false;
}

static int open_link(struct hca_adapter *a, struct link **link)
{
	int err = link_udp_open(link, a->udp_port, &a->slot);

	a->no_udp = 0;
	if (is_without_udp(err)) {
		a->no_udp = err;
		log_info("no RoCE, no UDP port %u: %s", a->udp_port, strerror(-err));
		err = link_none_open(link, a->udp_port, &a->slot);
	}
	if (err == -EMFILE)
		log_error("cannot open the adapter's sockets: %s", fd_reason(EMFILE));
	return err;
}

enum hca_look { LOOK_ASKED = 1, LOOK_OWN = 2 };

void hca_engine_look(struct hca_engine *e, bool asked)
{
	atomic_fetch_or(&e->look, asked ? LOOK_ASKED : LOOK_OWN);
	hca_engine_wake_helper(e);
}

void hca_engine_look_now(struct hca_engine *e)
{
	unsigned look =
		atomic_load_explicit(&e->look, memory_order_relaxed) ? atomic_exchange(&e->look, 0) : 0;

	if (!look)
		return;
	host_ports_look(e->adapter->ports, !(look & LOOK_OWN));
	host_registry_look(e->adapter->registry);
}

void hca_engine_interfaces_changed(struct hca_engine *e)
{
	if (e->wire && e->wire->ops->interfaces_changed)
		e->wire->ops->interfaces_changed(e->wire);
}

static void asked_to_look(void *arg)
{
	hca_engine_look(arg, true);
}

int hca_engine_udp(struct hca_adapter *a)
{
	if (a->no_udp == -EADDRINUSE)
		log_error("UDP port %u is in use by another program or user on this host; "
			  "`anyrdma doctor` says by whom",
			a->udp_port);
	else if (a->no_udp)
		log_error("no UDP socket can be had, and RoCE needs one: %s", strerror(-a->no_udp));
	return a->no_udp;
}

int hca_engine_open(struct hca_adapter *a)
{
	struct hca_engine *e = &a->engine;
	struct link *link;
	int err;

	a->udp_port = wanted_port();
	err = open_link(a, &link);
	if (err)
		return err;
	link->look = asked_to_look;
	link->look_arg = e;
	e->wire = link;
	add_memory(a, &link, a->udp_port);
	err = hca_engine_init(e, a, link, NULL, NULL);
	if (err) {
		hca_keys_show(a, NULL);
		link->ops->close(link);
		return err;
	}
	a->transport = &ibt_transport;
	err = hca_streams_open(e);
	if (err) {
		hca_engine_fini(e);
		return err;
	}
	err = host_registry_open(&a->registry, a->slot);
	if (err)
		log_info("no registry (%s): nobody can read this process's counters", strerror(-err));
	host_registry_ask(a->udp_port, 0);
	a->count = host_registry_adapter(a->registry, &a->own_count);
	err = host_ports_open(&a->ports, a->udp_port, a->slot);
	if (err)
		log_warn("no file of RDMA ports (%s): no program can be connected to by address",
			strerror(-err));
	err = hca_engine_start_helper(e);
	if (err) {
		log_error("cannot start the helper thread: %s", fd_reason(-err));
		close_shared(a);
		hca_keys_show(a, NULL);
		hca_engine_fini(e);
	}
	return err;
}

void hca_engine_close(struct hca_adapter *a)
{
	hca_engine_drive(&a->engine); /* what lies in our socket may be another process's */
	hca_engine_stop_helper(&a->engine);
	lock_take(&a->engine.drive);
	hca_keys_show(a, NULL);
	a->qp1.ops->down(a);
	hca_engine_fini(&a->engine);
	host_counters_log_adapter(a->count);
	close_shared(a);
	lock_drop(&a->engine.drive);
}

void hca_adapter_exit(struct hca_adapter *a)
{
	if (!a->up || a->dead)
		return;
	hca_engine_at_exit(&a->engine);
	host_counters_log_adapter(a->count);
	host_registry_retire(a->registry);
}

void hca_engine_abandon(struct hca_adapter *a)
{
	struct hca_engine *e = &a->engine;

	if (e->link && e->link->ops->abandon)
		e->link->ops->abandon(e->link);
	e->abandoned.link = e->link;
	e->link = NULL;
	hca_streams_abandon(e);
	if (e->running)
		hca_engine_close_helper_fds(e);
	e->running = false;
	host_registry_abandon(a->registry);
	host_ports_abandon(a->ports);
	a->ports = NULL;
	a->board = NULL;
}
