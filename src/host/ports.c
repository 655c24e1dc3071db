/* SPDX-License-Identifier: MIT */
#include "host/ports_parts.h"

#include "base/cancel.h"
#include "base/random.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- opening and closing ---- */
static void read_range(struct host_ports *p)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");

	if (!f || fscanf(f, "%hu %hu", &p->low, &p->high) != 2 || p->low > p->high) {
		p->low = 32768;
		p->high = 60999;
	}
	if (f)
		fclose(f);
}

static struct host_process describe(int32_t segment)
{
	struct host_process self = {
		.version = PROCESS_VERSION, .pid = (uint32_t)getpid(), .segment = segment};

	prctl(PR_GET_NAME, self.comm);
	return self;
}

int host_ports_open(struct host_ports **out, uint16_t udp_port, uint32_t slot, int32_t segment)
{
	struct host_ports *p = calloc(1, sizeof(*p));
	char name[32];
	bool locked;
	int err = -ENOMEM;

	if (!p)
		return err;
	p->table = calloc(1, sizeof(*p->table));
	if (!p->table)
		goto free_p;
	p->slot = slot;
	p->udp_port = udp_port;
	p->self = describe(segment);
	host_process_file(name, sizeof(name), udp_port);
	err = runfile_open(&p->file, name, ports_room(PORTS_STEP));
	if (err)
		goto free_p;
	read_range(p);
	ports_own_init(&p->own);
	pthread_mutex_init(&p->mutex, NULL);
	locked = ports_lock_table(p);
	ports_reap(p, slot); /* who had it before us */
	ports_reap(p, 0);
	err = host_process_lock(p->file.fd, slot, F_WRLCK);
	if (!err)
		err = ports_drop_lock(p, locked);
	else
		ports_unlock_table(p, locked);
	if (err)
		goto close_file;
	locked = ports_take_lock(p);
	ports_drop_lock(p, locked);
	*out = p;
	return 0;

close_file:
	runfile_close(&p->file);
free_p:
	free(p->table);
	free(p);
	return err;
}

void host_ports_close(struct host_ports *p)
{
	bool locked;

	if (!p)
		return;
	locked = ports_lock_table(p);
	ports_reap(p, p->slot);
	ports_write_record(p, &(struct host_process){0});
	ports_drop_lock(p, locked);
	pthread_mutex_destroy(&p->mutex);
	runfile_close(&p->file);
	ports_own_fini(&p->own);
	free(p->table);
	free(p);
}

void host_ports_abandon(struct host_ports *p)
{
	if (p)
		runfile_close(&p->file);
}

void host_ports_look(struct host_ports *p, bool asked)
{
	bool locked;

	if (!p)
		return;
	locked = asked ? ports_lock_table(p) : ports_take_lock(p);
	ports_enter_own(p);
	ports_drop_lock(p, locked);
}

/* ---- claims ---- */
static int pick_port(struct host_ports *p, struct host_port_claim *c)
{
	uint32_t start = random_u32();

	c->port = ports_table_pick(p->table, c->ps, p->low, p->high, start);
	if (!c->port) {
		ports_reap(p, 0);
		c->port = ports_table_pick(p->table, c->ps, p->low, p->high, start);
	}
	return c->port ? 0 : -EADDRNOTAVAIL;
}

int host_ports_claim(struct host_ports *p, struct host_port_claim *c, host_port_id *id)
{
	bool locked = ports_take_lock(p), any = !c->port;
	host_port_id at = 0;
	int err, written;

	c->slot = (uint16_t)p->slot;
	err = any ? pick_port(p, c) : ports_table_allows(p->table, c, 0, c->reuse, ports_is_alive, p);
	if (!err)
		err = ports_add(p, c, &at);
	if (!err) {
		*id = ports_own_add(&p->own, c, at);
		err = *id ? 0 : -ENOMEM;
	}
	if (err)
		ports_table_drop(p->table, at, p->slot);
	written = ports_drop_lock(p, locked);
	if (!err && written) {
		err = written;
		host_ports_release(p, *id);
	}
	if (err && any)
		c->port = 0;
	return err;
}

int host_ports_listen(struct host_ports *p, host_port_id id)
{
	bool locked = ports_take_lock(p);
	struct ports_own_claim *own;
	int err = -EINVAL;

	lock_take(&p->own.lock);
	own = ports_own_find(&p->own, id);
	/* Who shares a port cannot listen on it, nor share it while he listens. */
	if (own)
		err = own->claim.reuse
			      ? ports_table_allows(p->table, &own->claim, own->at, false, ports_is_alive, p)
			      : 0;
	if (!err && !ports_table_listen(p->table, own->at))
		err = -EINVAL;
	if (!err) {
		own->claim.listening = true;
		own->claim.reuse = false;
	}
	lock_drop(&p->own.lock);
	ports_drop_lock(p, locked);
	return err;
}

/* Without the table's lock, which may have to be waited for: while we live the entry is ours alone. */
static void free_entry(struct host_ports *p, host_port_id at)
{
	uint32_t i = (uint32_t)at - 1;
	struct host_port_claim c;
	struct ports_entry e;
	host_port_id now;

	runfile_read(&p->file, ports_room(i), &e, sizeof(e));
	if (!ports_entry_get(&e, i, &c, &now) || now != at || c.slot != p->slot)
		return;
	ports_entry_free(&e);
	runfile_write(&p->file, ports_room(i), &e.head, sizeof(e.head));
}

void host_ports_release(struct host_ports *p, host_port_id id)
{
	int cancel = cancel_off();
	host_port_id at = ports_own_remove(&p->own, id);

	if (at)
		free_entry(p, at);
	cancel_restore(cancel);
}

/* ---- whom a request is for ---- */
enum { AT_ONCE = 128 }; /* entries read by one call */

/* The header, if it can be believed. */
static bool read_header(struct host_ports *p, struct ports_header *h)
{
	runfile_read(&p->file, PORTS_HEADER_AT, h, sizeof(*h));
	return ports_header_is_whole(h, ports_entries(p)) && h->formed;
}

/* What was read may have been half of two claims: it is there if it is there twice. */
static bool is_still(struct host_ports *p, uint32_t i, const struct ports_entry *e)
{
	struct ports_entry again;

	runfile_read(&p->file, ports_room(i), &again, sizeof(again));
	return !memcmp(e, &again, sizeof(again));
}

int host_ports_owner(struct host_ports *p, uint16_t ps, const uint8_t dgid[16], uint16_t port)
{
	struct ports_entry e[AT_ONCE];
	struct host_port_claim c;
	struct ports_header h;
	host_port_id id;

	if (!p)
		return 0;
	if (!read_header(p, &h))
		return -EAGAIN;
	for (uint32_t i = 0; i < h.used; i++) {
		if (i % AT_ONCE == 0)
			runfile_read(&p->file, ports_room(i), e, sizeof(e));
		if (ports_entry_listens(&e[i % AT_ONCE], ps, dgid, port) && is_still(p, i, &e[i % AT_ONCE]))
			return ports_entry_get(&e[i % AT_ONCE], i, &c, &id) ? c.slot : 0;
	}
	return 0;
}

void host_ports_listeners(struct host_ports *p, struct slots *slots)
{
	struct ports_entry e[AT_ONCE];
	struct ports_header h;

	memset(slots, 0, sizeof(*slots));
	if (!p || !read_header(p, &h))
		return;
	for (uint32_t i = 0; i < h.used; i++) {
		struct host_port_claim c;
		host_port_id id;

		if (i % AT_ONCE == 0)
			runfile_read(&p->file, ports_room(i), e, sizeof(e));
		if (ports_entry_get(&e[i % AT_ONCE], i, &c, &id) && c.listening)
			slots_add(slots, c.slot);
	}
}
