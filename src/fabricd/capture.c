/* SPDX-License-Identifier: MIT */
/*
 * Captures: what passes on links, as a pcapng file that tshark and wireshark read (wire/pcapng.h). An
 * interface for each link, made when the first packet passes there. Both directions of a link are that
 * link's. Inside the subnet packets have no CRCs, unless it checks them; here they get the ones that the link
 * would have carried.
 */
#include "fabricd/fabricd.h"

#include "base/clock.h"
#include "base/log.h"
#include "subnet/packet.h"
#include "wire/erf.h"
#include "wire/pcapng.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOT_WATCHED, WATCHED, FIRST }; /* what is known of a port: its interface's number is behind FIRST */

struct capture {
	FILE *file; /* NULL: none is being written */
	char path[PATH_MAX];
	uint32_t *interface; /* by the index of the port */
	uint32_t ninterfaces;
	uint64_t packets;
	bool failed;
	struct subnet_port **watched;
	unsigned nwatched;
};

int capture_open(struct fabricd *d)
{
	d->capture = calloc(1, sizeof(*d->capture));
	return d->capture ? 0 : -ENOMEM;
}

void capture_close(struct fabricd *d)
{
	if (!d->capture)
		return;
	capture_stop(d);
	free(d->capture);
	d->capture = NULL;
}

static unsigned count_ports(const struct subnet *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < subnet_nodes(s); i++)
		n += subnet_node(s, i)->nports + 1;
	return n;
}

static void put_block(struct capture *c, const uint8_t *block, size_t len)
{
	if (!len || fwrite(block, 1, len, c->file) != len)
		c->failed = true;
}

/* All cables, at both of their ends. */
static int watch_all(struct capture *c, const struct subnet *s)
{
	c->watched = calloc(count_ports(s), sizeof(*c->watched));
	if (!c->watched)
		return -ENOMEM;
	for (unsigned i = 0; i < subnet_nodes(s); i++)
		for (unsigned p = 1; p <= subnet_node(s, i)->nports; p++) {
			struct subnet_port *port = subnet_port(subnet_node(s, i), p);

			if (port->peer)
				c->watched[c->nwatched++] = port;
		}
	return 0;
}

static int watch_some(struct capture *c, struct subnet_port *const *ports, unsigned nports)
{
	c->watched = calloc(2 * (size_t)nports, sizeof(*c->watched));
	if (!c->watched)
		return -ENOMEM;
	for (unsigned i = 0; i < nports; i++) {
		if (!ports[i]->peer)
			return -ENOTCONN;
		c->watched[c->nwatched++] = ports[i];
		c->watched[c->nwatched++] = ports[i]->peer;
	}
	return 0;
}

static void forget(struct capture *c)
{
	if (c->file && fclose(c->file))
		c->failed = true;
	c->file = NULL;
	free(c->interface);
	free(c->watched);
	c->interface = NULL;
	c->watched = NULL;
	c->nwatched = c->ninterfaces = 0;
}

/* A pipe without a reader would stop us all: descriptor, or -errno, -ENXIO where it is no regular file. */
static int open_file(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0600);
	struct stat st;

	if (fd < 0)
		return -errno;
	if (!fstat(fd, &st) && S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return -ENXIO;
}

int capture_start(struct fabricd *d, const char *path, struct subnet_port *const *ports, unsigned nports)
{
	struct capture *c = d->capture;
	uint8_t block[PCAPNG_BLOCK_MAX];
	int fd, err;

	if (c->file)
		return -EALREADY;
	c->packets = 0;
	c->failed = false;
	err = nports ? watch_some(c, ports, nports) : watch_all(c, d->subnet);
	c->interface = calloc(count_ports(d->subnet), sizeof(*c->interface));
	if (!err && !c->interface)
		err = -ENOMEM;
	fd = err ? err : open_file(path);
	if (fd < 0) {
		forget(c);
		return fd;
	}
	c->file = fdopen(fd, "w");
	if (!c->file) {
		close(fd);
		forget(c);
		return -ENOMEM;
	}
	snprintf(c->path, sizeof(c->path), "%s", path);
	put_block(c, block, pcapng_section(block, sizeof(block)));
	for (unsigned i = 0; i < c->nwatched; i++) {
		subnet_set_watched(c->watched[i], true);
		c->interface[c->watched[i]->index] = WATCHED;
	}
	return 0;
}

long capture_stop(struct fabricd *d)
{
	struct capture *c = d->capture;

	if (!c->file)
		return -ESRCH;
	for (unsigned i = 0; i < c->nwatched; i++)
		subnet_set_watched(c->watched[i], false);
	forget(c);
	return c->failed ? -EIO : (long)c->packets;
}

const char *capture_path(const struct fabricd *d, uint64_t *packets)
{
	*packets = d->capture->packets;
	return d->capture->file ? d->capture->path : NULL;
}

/* The number of the link at this port, whichever of its ends: its block is written when it is first asked
 * for. */
static uint32_t interface_of(struct capture *c, const struct subnet_port *p)
{
	uint8_t block[PCAPNG_BLOCK_MAX];
	char name[2 * SUBNET_NAME + 16];

	if (c->interface[p->index] == WATCHED) {
		snprintf(name, sizeof(name), "%s[%u] - %s[%u]", p->node->id, p->num, p->peer->node->id,
			p->peer->num);
		put_block(c, block, pcapng_interface(block, sizeof(block), LINKTYPE_ERF, name));
		c->interface[p->index] = c->interface[p->peer->index] = FIRST + c->ninterfaces++;
	}
	return c->interface[p->index] - FIRST;
}

void capture_seen(struct fabricd *d, struct subnet_port *from, const struct packet *p)
{
	uint8_t bytes[PCAPNG_PACKET_MAX], block[PCAPNG_BLOCK_MAX];
	struct capture *c = d->capture;
	size_t len;

	if (!c || !c->file || c->failed || c->interface[from->index] == NOT_WATCHED)
		return;
	len = packet_put_crcs(p, bytes, sizeof(bytes));
	if (!len)
		return;
	put_block(c, block,
		pcapng_infiniband(
			block, sizeof(block), interface_of(c, from), clock_read(CLOCK_REALTIME), bytes, len));
	c->packets += !c->failed;
	if (c->failed)
		log_error("%s cannot be written any more: %s", c->path, strerror(errno));
}
