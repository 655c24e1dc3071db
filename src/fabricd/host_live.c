/* SPDX-License-Identifier: MIT */
/*
 * A counter's file is replaced by a new one, so that nobody reads half a number, and only when it has
 * changed. Reads are watched for, not opens: our own writing opens files too. The first read after a pause
 * brings what there was at the last one, and makes us write the present.
 */
#include "fabricd/host_live.h"

#include "base/log.h"
#include "subnet/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECOND_NS 1000000000ull

/* As Linux has them in ports/P/counters; data in words. */
static const struct {
	const char *name;
	enum port_counter which;
} counters[] = {
	{"symbol_error", CNT_SYMBOL_ERRORS},
	{"link_error_recovery", CNT_LINK_RECOVERY},
	{"link_downed", CNT_LINK_DOWNED},
	{"port_rcv_errors", CNT_RCV_ERRORS},
	{"port_rcv_remote_physical_errors", CNT_RCV_REMOTE_PHYSICAL},
	{"port_rcv_switch_relay_errors", CNT_RCV_SWITCH_RELAY},
	{"port_xmit_discards", CNT_XMIT_DISCARDS},
	{"port_xmit_constraint_errors", CNT_XMIT_CONSTRAINT},
	{"port_rcv_constraint_errors", CNT_RCV_CONSTRAINT},
	{"local_link_integrity_errors", CNT_LINK_INTEGRITY},
	{"excessive_buffer_overrun_errors", CNT_BUFFER_OVERRUN},
	{"VL15_dropped", CNT_VL15_DROPPED},
	{"port_xmit_data", CNT_XMIT_DATA},
	{"port_rcv_data", CNT_RCV_DATA},
	{"port_xmit_packets", CNT_XMIT_PKTS},
	{"port_rcv_packets", CNT_RCV_PKTS},
	{"port_xmit_wait", CNT_XMIT_WAIT},
	{"unicast_xmit_packets", CNT_UNICAST_XMIT},
	{"unicast_rcv_packets", CNT_UNICAST_RCV},
	{"multicast_xmit_packets", CNT_MCAST_XMIT},
	{"multicast_rcv_packets", CNT_MCAST_RCV},
};
enum { COUNTERS = sizeof(counters) / sizeof(counters[0]) };

struct live_port {
	int wd; /* of counters<N> */
	const struct subnet_port *port;
	uint64_t shown[COUNTERS];
};

struct live_node {
	int wd; /* of node_desc<N> */
	struct subnet_node *node;
};

struct host_live {
	struct fabricd *d;
	int dir, inotify;
	struct loop_timer timer; /* runs for a second after a read */
	bool read;               /* since it was set */
	unsigned nports, nnodes;
	struct live_port *port; /* of all adapters, in order */
	struct live_node *node;
};

static int watch(const struct host_live *l, const char *dir, const char *name, uint32_t events)
{
	char path[PATH_MAX];
	int wd;

	if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >= sizeof(path))
		return -ENAMETOOLONG;
	wd = inotify_add_watch(l->inotify, path, events);
	return wd < 0 ? -errno : wd;
}

/* ---- counters ---- */

static int replace(int dir, const char *name, const char *text, int len)
{
	int fd = openat(dir, "counter.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	bool written;

	if (fd < 0)
		return -errno;
	written = write(fd, text, (size_t)len) == len;
	close(fd);
	if (!written)
		return -EIO;
	return renameat(dir, "counter.new", dir, name) ? -errno : 0;
}

static int show_counter(struct host_live *l, unsigned port, unsigned which, uint64_t value)
{
	char name[64], text[24];
	int err;

	snprintf(name, sizeof(name), "counters%u/%s", port, counters[which].name);
	err = replace(l->dir, name, text, snprintf(text, sizeof(text), "%" PRIu64 "\n", value));
	if (!err)
		l->port[port].shown[which] = value;
	return err;
}

static int make_counters(struct host_live *l, unsigned n, const char *dir)
{
	char name[32];
	int err = 0;

	snprintf(name, sizeof(name), "counters%u", n);
	if (mkdirat(l->dir, name, 0700) && errno != EEXIST)
		return -errno;
	for (unsigned i = 0; i < COUNTERS && !err; i++)
		err = show_counter(l, n, i, subnet_counted(l->port[n].port, counters[i].which));
	if (err)
		return err;
	l->port[n].wd = watch(l, dir, name, IN_ACCESS | IN_ONLYDIR);
	return l->port[n].wd < 0 ? l->port[n].wd : 0;
}

void host_live_refresh(struct host_live *l)
{
	int err = 0;

	subnet_take_tallies(l->d->subnet);
	for (unsigned n = 0; n < l->nports && !err; n++)
		for (unsigned i = 0; i < COUNTERS && !err; i++) {
			uint64_t value = subnet_counted(l->port[n].port, counters[i].which);

			if (value != l->port[n].shown[i])
				err = show_counter(l, n, i, value);
		}
	if (err)
		log_warn("counters of a host cannot be written: %s", strerror(-err));
}

static void second_over(void *arg, uint64_t now)
{
	struct host_live *l = arg;

	if (!l->read)
		return; /* nobody looks any more */
	l->read = false;
	host_live_refresh(l);
	loop_timer_set(l->d->loop, &l->timer, now + SECOND_NS);
}

static void counters_are_read(struct host_live *l)
{
	l->read = true;
	if (l->timer.at != UINT64_MAX)
		return;
	host_live_refresh(l);
	loop_timer_set(l->d->loop, &l->timer, loop_now(l->d->loop) + SECOND_NS);
}

/* ---- descriptions ---- */

static int open_desc(const struct host_live *l, unsigned n, int flags)
{
	char name[32];
	int fd;

	snprintf(name, sizeof(name), "node_desc%u", n);
	fd = openat(l->dir, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : fd;
}

/* Writing wakes our own watch, which then finds nothing new. */
static int show_desc(struct host_live *l, unsigned n)
{
	int fd = open_desc(l, n, O_WRONLY | O_CREAT | O_TRUNC), err = 0;

	if (fd < 0)
		return fd;
	if (dprintf(fd, "%s\n", l->node[n].node->desc) < 0)
		err = -errno;
	close(fd);
	return err;
}

static int make_desc(struct host_live *l, unsigned n, const char *dir)
{
	char name[32];
	int err = show_desc(l, n);

	if (err)
		return err;
	snprintf(name, sizeof(name), "node_desc%u", n);
	l->node[n].wd = watch(l, dir, name, IN_CLOSE_WRITE);
	return l->node[n].wd < 0 ? l->node[n].wd : 0;
}

/* What somebody wrote, up to the first control character: one line, at most what the attribute holds. */
static void read_desc(struct host_live *l, unsigned n, char text[SUBNET_NAME + 1])
{
	int fd = open_desc(l, n, O_RDONLY);
	ssize_t len = fd < 0 ? 0 : read(fd, text, SUBNET_NAME);
	ssize_t i = 0;

	if (fd >= 0)
		close(fd);
	while (i < len && (unsigned char)text[i] >= ' ' && text[i] != 0x7f)
		i++;
	text[i] = '\0';
}

/* An empty one is none. What was cut is written again, as a reader would find it in /sys. */
static void desc_is_written(struct host_live *l, unsigned n)
{
	struct subnet_node *node = l->node[n].node;
	char text[SUBNET_NAME + 1];

	read_desc(l, n, text);
	if (!*text || !strcmp(text, node->desc))
		return;
	subnet_set_description(node, text, loop_now(l->d->loop));
	show_desc(l, n);
}

/* ---- of a host ---- */

bool host_live_event(struct host_live *l, const struct inotify_event *e)
{
	for (unsigned n = 0; n < l->nports; n++)
		if (l->port[n].wd == e->wd) {
			if (e->mask & IN_ACCESS)
				counters_are_read(l);
			return true;
		}
	for (unsigned n = 0; n < l->nnodes; n++)
		if (l->node[n].wd == e->wd) {
			if (e->mask & IN_CLOSE_WRITE)
				desc_is_written(l, n);
			return true;
		}
	return false;
}

static int make_files(struct host_live *l, const char *dir)
{
	int err = 0;

	for (unsigned n = 0; n < l->nports && !err; n++)
		err = make_counters(l, n, dir);
	for (unsigned n = 0; n < l->nnodes && !err; n++)
		err = make_desc(l, n, dir);
	return err;
}

/* Room for the ports of all adapters; -ENOMEM. */
static int list_ports(struct host_live *l, const struct topo_host *h)
{
	unsigned n = 0;

	for (unsigned k = 0; k < h->nhcas; k++)
		n += h->hca[k]->nports;
	l->port = calloc(n, sizeof(*l->port));
	l->node = calloc(h->nhcas, sizeof(*l->node));
	if (!l->port || !l->node)
		return -ENOMEM;
	for (unsigned k = 0; k < h->nhcas; k++) {
		l->node[l->nnodes++] = (struct live_node){.wd = -1, .node = h->hca[k]};
		for (unsigned p = 1; p <= h->hca[k]->nports; p++)
			l->port[l->nports++] = (struct live_port){.wd = -1, .port = &h->hca[k]->port[p]};
	}
	return 0;
}

int host_live_open(
	struct fabricd *d, const struct topo_host *h, const char *dir, int inotify, struct host_live **out)
{
	struct host_live *l = calloc(1, sizeof(*l));
	int err;

	if (!l)
		return -ENOMEM;
	l->d = d;
	l->inotify = inotify;
	loop_timer_init(&l->timer, second_over, l);
	l->dir = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	err = l->dir < 0 ? -errno : list_ports(l, h);
	if (!err)
		err = make_files(l, dir);
	if (err) {
		host_live_close(l);
		return err;
	}
	*out = l;
	return 0;
}

void host_live_close(struct host_live *l)
{
	if (!l)
		return;
	loop_timer_stop(&l->timer);
	if (l->dir >= 0)
		close(l->dir);
	free(l->port);
	free(l->node);
	free(l);
}
