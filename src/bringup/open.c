/* SPDX-License-Identifier: MIT */
/* Putting a real adapter together: links, providers, the registry, the helper. */
#include "base/asserts.h"
#include "base/env.h"
#include "base/fd.h"
#include "base/guard.h"
#include "base/log.h"
#include "fabric/clear.h"
#include "fabric/link.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/mr.h"
#include "host/ports.h"
#include "host/process.h"
#include "host/registry.h"
#include "ib/port.h"
#include "iwarp/port.h"
#include "link/link.h"
#include "link/none.h"
#include "link/udp.h"
#include "local/channel.h"
#include "wire/ibt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool is_ours(void *arg, const uint8_t gid[16])
{
	return hca_devices_have(arg, gid);
}

/* ---- on a fabric: each process is the program of a host, and has that host's addresses alone ---- */
static uint32_t home(void *arg, uint32_t slot, int pid)
{
	const struct hca_adapter *a = arg;

	return fabric_host_of(a->table, slot, pid);
}

static bool is_anothers(void *arg, uint32_t slot, int pid)
{
	const struct hca_adapter *a = arg;

	return fabric_is_anothers(a->table, slot, pid);
}

static bool may_come(void *arg, uint32_t host, const struct frame_dest *path)
{
	const struct hca_adapter *a = arg;
	const struct fabric_claim claim = {path->slid, path->dlid, path->has_grh ? path->grh.sgid : NULL};
	uint8_t sgid[16], dgid[16];

	gid_of_lid(path->slid, sgid);
	gid_of_lid(path->dlid, dgid);
	return gid_same(sgid, path->sgid) && gid_same(dgid, path->dgid) &&
	       fabric_may_claim(a->table, host, a->slot, &claim);
}

static uint64_t epoch_of(void *arg)
{
	return hca_adapter_epoch(arg);
}

/* The channel to processes of this host, before the wire, if the user wants it and the host has it; or NULL.
 */
static struct local_channel *open_channel(struct hca_adapter *a, struct link *wire)
{
	struct local_channel *channel;
	void *export;
	int err;

	if (a->local == HCA_LOCAL_OFF)
		return NULL;
	guard_install(); /* others' memory may be short of pages */
	err = local_channel_open(&channel, wire, a->udp_port, a->slot, is_ours, a,
		a->local >= HCA_LOCAL_COPY ? sizeof(struct local_export) : 0, &export);
	if (err) {
		log_info("shared memory unavailable: %s", fd_reason(-err));
		return NULL;
	}
	if (a->on_fabric)
		local_channel_set_trust(
			channel, &(struct local_channel_trust){home, may_come, is_anothers, epoch_of, a});
	hca_export_to(a, export);
	return channel;
}

static void close_shared(struct hca_adapter *a)
{
	host_ports_close(atomic_exchange(&a->ports, NULL));
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

static int open_fabric(struct hca_adapter *a, struct link **link)
{
	int err = fabric_link_open(link, a->udp_port, &a->slot, &a->table, &a->tallies);

	if (err)
		log_error("cannot attach to the fabric: %s", fd_reason(-err));
	return err;
}

static int open_link(struct hca_adapter *a, struct link **link)
{
	int err;

	a->no_udp = 0;
	if (a->on_fabric)
		return open_fabric(a, link);
	err = link_udp_open(link, a->udp_port, &a->slot);

	if (is_without_udp(err)) {
		a->no_udp = err;
		log_info("no RoCE, no UDP port %u: %s", a->udp_port, strerror(-err));
		err = link_none_open(link, a->udp_port, &a->slot);
	}
	if (err == -EMFILE)
		log_error("cannot open the adapter's sockets: %s", fd_reason(EMFILE));
	return err;
}

static void asked_to_look(void *arg)
{
	hca_engine_look(arg, true);
}

static int has_roce(struct hca_adapter *a)
{
	if (a->no_udp == -EADDRINUSE)
		log_error("UDP port %u is in use by another program or user on this host; "
			  "`anyrdma doctor` says by whom",
			a->udp_port);
	else if (a->no_udp)
		log_error("no UDP socket can be had, and RoCE needs one: %s", strerror(-a->no_udp));
	return a->no_udp;
}

int hca_adapter_has(struct hca_adapter *a, enum hca_kind kind)
{
	if (kind == HCA_ROCE)
		return has_roce(a);
	if (a->engine.provider[hca_kinds[kind].carrier])
		return 0;
	log_error(
		"no descriptors were left for iWARP connections: close some, or raise the limit (ulimit -n)");
	return -EMFILE;
}

static int open_providers(struct hca_adapter *a)
{
	struct local_channel *channel;
	struct link *link;
	int err = open_link(a, &link);

	if (err)
		return err;
	link->look = asked_to_look;
	link->look_arg = &a->engine;
	channel = open_channel(a, link);
	hca_engine_init(&a->engine, a, NULL, NULL);
	if (channel)
		link = local_channel_link(channel);
	err = ibt_port_open(a, link, channel);
	if (err) {
		hca_export_to(a, NULL); /* it lies in the link's memory */
		link->ops->close(link);
	} else if (!a->on_fabric) {
		err = iwarp_port_open(a);
	}
	if (err) {
		hca_export_to(a, NULL);
		hca_engine_fini(&a->engine);
		return err;
	}
	hca_engine_open(&a->engine);
	return 0;
}

static int enter(struct hca_adapter *a)
{
	struct host_ports *ports;
	int err = host_ports_open(&ports, a->udp_port, a->slot, host_registry_segment(a->registry));

	if (!err)
		atomic_store(&a->ports, ports);
	return err;
}

/* In the helper, which is not there any more when it is closed. */
void hca_adapter_look(struct hca_adapter *a, bool asked)
{
	if (a->ports)
		host_ports_look(a->ports, asked);
	else
		enter(a);
	if (a->on_fabric)
		hca_qp1_changed(a); /* who has told it something may have to tell it again */
}

/* What other processes see of us; without it we go on. */
static void open_shared(struct hca_adapter *a)
{
	int err = host_registry_open(&a->registry, a->slot);

	if (err)
		log_info("no registry (%s): nobody can read this process's counters", strerror(-err));
	a->count = host_registry_adapter(a->registry, &a->own_count);
	err = enter(a);
	if (err)
		log_warn("no file of processes (%s): no program can be connected to by address",
			strerror(-err));
	host_processes_ask(a->udp_port, 0);
}

int bringup_open(struct hca_adapter *a)
{
	int err;

	assert_that(a->qp1.ops != &hca_qp1_none); /* others' MADs come to us, too */
	a->udp_port = (uint16_t)env_value(ANYRDMA_PORT);
	err = open_providers(a);
	if (err)
		return err;
	open_shared(a);
	err = hca_engine_start_helper(&a->engine);
	if (err) {
		log_error("cannot start the helper thread: %s", fd_reason(-err));
		close_shared(a);
		hca_export_to(a, NULL);
		hca_engine_fini(&a->engine);
	}
	return err;
}

void bringup_close(struct hca_adapter *a)
{
	hca_engine_drive(&a->engine); /* what lies in our socket may be another process's */
	hca_engine_stop_helper(&a->engine);
	lock_take(&a->engine.drive);
	hca_export_to(a, NULL);
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
}

void bringup_abandon(struct hca_adapter *a)
{
	hca_engine_abandon(&a->engine);
	host_registry_abandon(a->registry);
	a->parents.ports = atomic_exchange(&a->ports, NULL);
	host_ports_abandon(a->parents.ports);
	a->export.table = NULL;
}
