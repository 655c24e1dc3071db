/* SPDX-License-Identifier: MIT */
/* A row of the table for each word of the console. */
#include "fabricd/console.h"
#include "fabricd/describe.h"

#include "base/clock.h"
#include "base/gid.h"
#include "fabric/shared.h"
#include "subnet/counters.h"
#include "subnet/map.h"
#include "subnet/topo_write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const state_names[] = {"?", "DOWN", "INIT", "ARMED", "ACTIVE"};

static const char *state_name(unsigned state)
{
	return state <= PORT_ACTIVE ? state_names[state] : "?";
}

static const char *plural(unsigned n)
{
	return n == 1 ? "" : "s";
}

/* ---- status ---- */

struct census {
	unsigned hosts, switches, routers, cables, cut, state[PORT_ACTIVE + 1];
};

/* Ports that have a cable; those of switches too. */
static struct census count_all(const struct subnet *s)
{
	struct census c = {0};

	for (unsigned i = 0; i < subnet_nodes(s); i++) {
		const struct subnet_node *n = subnet_node(s, i);

		c.hosts += n->type == SUBNET_CA;
		c.switches += n->type == SUBNET_SWITCH;
		c.routers += n->type == SUBNET_ROUTER;
		for (unsigned p = 1; p <= n->nports; p++) {
			const struct subnet_port *port = &n->port[p];

			if (!port->peer)
				continue;
			c.cables++;
			c.cut += port->cut;
			if (port->shared->state <= PORT_ACTIVE)
				c.state[port->shared->state]++;
		}
	}
	c.cables /= 2;
	c.cut /= 2;
	return c;
}

static const char *host_of(const struct fabricd *d, const struct subnet_node *n)
{
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->topo.host[i].nhcas; k++)
			if (d->topo.host[i].hca[k] == n)
				return d->topo.host[i].name;
	return n->id;
}

static void put_sm(struct fabricd *d, FILE *out)
{
	const struct subnet_port *home = manager_home(d);
	bool any = false;

	if (home) {
		fprintf(out, "Subnet manager: built in, on %s, port %u (LID %u).\n", host_of(d, home->node),
			home->num, home->shared->lid);
		return;
	}
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->topo.host[i].nhcas; k++) {
			struct subnet_node *n = d->topo.host[i].hca[k];

			for (unsigned p = 1; p <= n->nports; p++)
				if (trees_issm_held(d, &n->port[p])) {
					fprintf(out, "%s %s, port %u (LID %u)",
						any ? "," : "Subnet manager on", d->topo.host[i].name, p,
						n->port[p].shared->lid);
					any = true;
				}
		}
	if (!any)
		fputs(d->manager ? "No subnet manager; the built-in one returns when a link moves"
				 : "No subnet manager: `anyrdma fabric sm opensm` starts one",
			out);
	else if (d->sm)
		fprintf(out, "; opensm on %s is ours (process %d)", d->sm_host, (int)d->sm);
	fputs(".\n", out);
}

static int do_status(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	struct census c = count_all(d->subnet);
	uint64_t seconds = (clock_ns() - d->started) / 1000000000, packets;
	const char *path = capture_path(d, &packets);
	bool first = true;

	fprintf(out, "Fabric '%s', process %d, up for %" PRIu64 " s: %u host%s, %u switch%s, %u cable%s%s",
		d->name, (int)getpid(), seconds, c.hosts, plural(c.hosts), c.switches,
		c.switches == 1 ? "" : "es", c.cables, plural(c.cables), c.cut ? "" : ".\n");
	if (c.cut)
		fprintf(out, ", %u cut.\n", c.cut);
	fputs("Ports with a cable: ", out);
	for (unsigned s = PORT_ACTIVE; s >= PORT_DOWN; s--)
		if (c.state[s]) {
			fprintf(out, "%s%u %s", first ? "" : ", ", c.state[s], state_name(s));
			first = false;
		}
	fputs(".\n", out);
	put_sm(d, out);
	attach_describe(d, out);
	if (subnet_checks_crcs(d->subnet))
		fputs("All packets go by the switches, and their CRCs are checked there.\n", out);
	if (path)
		fprintf(out, "A capture is being written to %s: %" PRIu64 " packets so far.\n", path,
			packets);
	return 0;
}

static bool is_managed_from(struct fabricd *d, const char *host)
{
	const struct topo_host *h = topo_host(&d->topo, host);

	for (unsigned k = 0; h && k < h->nhcas; k++)
		for (unsigned p = 1; p <= h->hca[k]->nports; p++)
			if (trees_issm_held(d, &h->hca[k]->port[p]))
				return true;
	return false;
}

/* One number each, for those who wait: active and all ports with a cable that conducts; whether our opensm
 * runs, its status when it does not, whether its host has a manager that has begun. */
static int do_ready(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	struct census c = count_all(d->subnet);

	sm_reap(d);
	fprintf(out, "%u %u %d %d %d\n", c.state[PORT_ACTIVE], 2 * (c.cables - c.cut), d->sm ? 1 : 0,
		d->sm_status, is_managed_from(d, d->sm_host) && manager_is_relieved(d));
	return 0;
}

/* ---- hosts ---- */

/* The first address of each port, by the port's index: asked for one by one, those of a large subnet take
 * minutes. */
static const struct topo_ip **first_ips(const struct fabricd *d)
{
	const struct topo_ip **of = calloc(subnet_table(d->subnet)->n.ports + 1u, sizeof(*of));

	for (unsigned i = d->topo.nips; of && i--;)
		of[d->topo.ip[i].port->index] = &d->topo.ip[i];
	return of;
}

static void put_ip(const struct topo_ip *ip, char *buf, size_t len)
{
	bool v4 = ip && gid_is_v4(ip->addr);

	snprintf(buf, len, "-");
	if (ip)
		inet_ntop(v4 ? AF_INET : AF_INET6, ip->addr + (v4 ? 12 : 0), buf, (socklen_t)len);
}

static int do_hosts(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	const struct topo_ip **ips = first_ips(d);

	if (!ips)
		return fprintf(out, "out of memory\n"), -ENOMEM;
	fprintf(out, "%-16s %-6s %4s  %-7s %5s  %-18s %-15s %s\n", "HOST", "DEVICE", "PORT", "STATE", "LID",
		"GUID", "IP", "CABLE TO");
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->topo.host[i].nhcas; k++) {
			struct subnet_node *n = d->topo.host[i].hca[k];

			for (unsigned p = 1; p <= n->nports; p++) {
				const struct subnet_port *port = &n->port[p];
				char ip[INET6_ADDRSTRLEN], dev[16], cable[SUBNET_NAME + 16] = "-";

				put_ip(ips[port->index], ip, sizeof(ip));
				snprintf(dev, sizeof(dev), "ib%u", k);
				if (port->peer)
					snprintf(cable, sizeof(cable), "%s[%u]%s", port->peer->node->id,
						port->peer->num, port->cut ? " (cut)" : "");
				fprintf(out, "%-16s %-6s %4u  %-7s %5u  0x%016" PRIx64 " %-15s %s\n",
					d->topo.host[i].name, dev, p, state_name(port->shared->state),
					port->shared->lid, port->guid, ip, cable);
			}
		}
	free(ips);
	return 0;
}

/* ---- map, topology ---- */

static int put_text(char *text, size_t len, FILE *out)
{
	if (!text)
		return fprintf(out, "out of memory\n"), -ENOMEM;
	fwrite(text, 1, len, out);
	free(text);
	return 0;
}

/* map COLUMNS utf8|ascii, or map svg */
static int do_map(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	struct map_style style = {.columns = 80};
	char title[SUBNET_NAME + 16];
	size_t len = 0;
	char *text;

	if (nwords > 1 && !strcmp(words[1], "svg")) {
		snprintf(title, sizeof(title), "Fabric %s", d->name);
		text = map_svg(d->subnet, title, &len);
	} else {
		if (nwords > 1)
			style.columns = (unsigned)strtoul(words[1], NULL, 10);
		if (style.columns < 40 || style.columns > 1000)
			style.columns = 80;
		style.utf8 = nwords > 2 && !strcmp(words[2], "utf8");
		text = map_text(d->subnet, &style, &len);
	}
	return put_text(text, len, out);
}

static int do_topology(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	size_t len = 0;
	char *text = topo_write(d->subnet, &d->topo, &len);

	return put_text(text, len, out);
}

/* ---- counters ---- */

static const struct {
	enum port_counter which;
	const char *name;
} errors[] = {
	{CNT_SYMBOL_ERRORS, "symbol errors"},
	{CNT_LINK_RECOVERY, "link recoveries"},
	{CNT_LINK_DOWNED, "link downed"},
	{CNT_RCV_ERRORS, "receive errors"},
	{CNT_RCV_REMOTE_PHYSICAL, "remote physical errors"},
	{CNT_RCV_SWITCH_RELAY, "switch relay errors"},
	{CNT_XMIT_DISCARDS, "discards"},
	{CNT_XMIT_CONSTRAINT, "transmit constraint errors"},
	{CNT_RCV_CONSTRAINT, "receive constraint errors"},
	{CNT_LINK_INTEGRITY, "link integrity errors"},
	{CNT_BUFFER_OVERRUN, "buffer overruns"},
	{CNT_VL15_DROPPED, "VL15 dropped"},
};

static void put_counters(const struct subnet_port *p, FILE *out)
{
	char name[SUBNET_NAME + 16];
	bool first = true;

	snprintf(name, sizeof(name), "%s[%u]", p->node->id, p->num);
	fprintf(out, "%-20s %12" PRIu64 " %14" PRIu64 " %12" PRIu64 " %14" PRIu64 " ", name,
		subnet_counted(p, CNT_XMIT_PKTS), 4 * subnet_counted(p, CNT_XMIT_DATA),
		subnet_counted(p, CNT_RCV_PKTS), 4 * subnet_counted(p, CNT_RCV_DATA));
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (subnet_counted(p, errors[i].which)) {
			fprintf(out, "%s%" PRIu64 " %s", first ? " " : ", ",
				subnet_counted(p, errors[i].which), errors[i].name);
			first = false;
		}
	fputc('\n', out);
}

static int do_counters(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	struct subnet_port *only[CONSOLE_WORDS];
	char err[TOPO_ERROR];

	for (unsigned i = 1; i < nwords; i++) {
		only[i] = describe_port(d->subnet, words[i], err);
		if (!only[i])
			return fprintf(out, "%s\n", err), -ENOENT;
	}
	subnet_take_tallies(d->subnet);
	fprintf(out, "%-20s %12s %14s %12s %14s  %s\n", "PORT", "SENT", "BYTES", "RECEIVED", "BYTES",
		"ERRORS");
	for (unsigned i = 1; i < nwords; i++)
		put_counters(only[i], out);
	for (unsigned i = 0; nwords == 1 && i < subnet_nodes(d->subnet); i++) {
		const struct subnet_node *n = subnet_node(d->subnet, i);

		for (unsigned p = 1; p <= n->nports; p++)
			if (n->port[p].peer)
				put_counters(&n->port[p], out);
	}
	return 0;
}

/* ---- cables ---- */

static int cut_or_mend(struct fabricd *d, char **words, unsigned nwords, FILE *out, bool cut)
{
	struct subnet_port *ports[CONSOLE_WORDS];
	char err[TOPO_ERROR];

	if (nwords < 2)
		return fprintf(out, "which cable? For example: anyrdma fabric %s 'S1[3]'\n", words[0]),
		       -EINVAL;
	for (unsigned i = 1; i < nwords; i++) { /* all or none */
		ports[i] = describe_port(d->subnet, words[i], err);
		if (!ports[i])
			return fprintf(out, "%s\n", err), -ENOENT;
		if (!ports[i]->peer)
			return fprintf(out, "there is no cable at %s\n", words[i]), -ENOTCONN;
	}
	for (unsigned i = 1; i < nwords; i++) {
		const struct subnet_port *p = ports[i];
		int status = cut ? subnet_cut(ports[i], loop_now(d->loop))
				 : subnet_mend(ports[i], loop_now(d->loop));

		fprintf(out, "%s[%u] - %s[%u] %s\n", p->node->id, p->num, p->peer->node->id, p->peer->num,
			status ? (cut ? "was cut already" : "was whole already")
			       : (cut ? "is cut" : "is whole again"));
	}
	return 0;
}

static int do_cut(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	return cut_or_mend(d, words, nwords, out, true);
}

static int do_mend(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	return cut_or_mend(d, words, nwords, out, false);
}

static int do_inject(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	char text[256] = "", err[TOPO_ERROR];
	struct subnet_fault f;
	struct subnet_port *p;

	if (nwords < 2)
		return fprintf(out, "at which cable? For example: anyrdma fabric inject 'S1[3]' loss=1%%\n"),
		       -EINVAL;
	p = describe_port(d->subnet, words[1], err);
	if (!p)
		return fprintf(out, "%s\n", err), -ENOENT;
	for (unsigned i = 2; i < nwords; i++) {
		size_t at = strlen(text);

		snprintf(text + at, sizeof(text) - at, "%s ", words[i]);
	}
	if (describe_fault(text, &f, err))
		return fprintf(out, "%s\n", err), -EINVAL;
	if (subnet_set_fault(p, &f))
		return fprintf(out, "there is no cable at %s\n", words[1]), -ENOTCONN;
	fprintf(out, "%s[%u] - %s[%u]: %s\n", p->node->id, p->num, p->peer->node->id, p->peer->num,
		f.loss || f.corrupt || f.duplicate || f.delay ? text : "no fault");
	return 0;
}

/* ---- capture ---- */

static int stop_capture(struct fabricd *d, FILE *out)
{
	long n = capture_stop(d);

	if (n == -ESRCH)
		return fprintf(out, "no capture is being written\n"), -ESRCH;
	if (n < 0)
		return fprintf(out, "the capture is not whole: the disk is full, or it cannot be written\n"),
		       -EIO;
	fprintf(out, "%ld packet%s\n", n, plural((unsigned)n));
	return 0;
}

static int do_capture(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	struct subnet_port *ports[CONSOLE_WORDS];
	char err[TOPO_ERROR];
	int status;

	if (nwords < 2)
		return fprintf(out, "to which file? For example: anyrdma fabric capture all.pcapng\n"),
		       -EINVAL;
	if (!strcmp(words[1], "stop"))
		return stop_capture(d, out);
	if (*words[1] != '/')
		return fprintf(out, "the path of a capture begins with a slash here\n"), -EINVAL;
	for (unsigned i = 2; i < nwords; i++) {
		ports[i - 2] = describe_port(d->subnet, words[i], err);
		if (!ports[i - 2])
			return fprintf(out, "%s\n", err), -ENOENT;
	}
	status = capture_start(d, words[1], ports, nwords - 2);
	if (status == -EALREADY)
		fputs("a capture is already being written; `anyrdma fabric capture stop` ends it\n", out);
	else if (status == -ENOTCONN)
		fputs("there is no cable at one of these ports\n", out);
	else if (status == -ENXIO)
		fprintf(out, "%s is no regular file, and a capture is written to one\n", words[1]);
	else if (status)
		fprintf(out, "%s cannot be written: %s\n", words[1], strerror(-status));
	else
		fprintf(out, "Capturing to %s; `anyrdma fabric capture stop` ends it.\n", words[1]);
	return status;
}

/* ---- subnet managers, trees, the end ---- */

/* sm start HOST WORD…, sm stop, sm running, sm */
static int do_sm(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	const char *what = nwords > 1 ? words[1] : "";
	struct topo_host *h;
	int err;

	if (!strcmp(what, "stop")) {
		err = sm_stop(d);
		return err ? fprintf(out, "no opensm was started by `anyrdma fabric sm`\n"), err : 0;
	}
	if (!strcmp(what, "running")) {
		fputs(d->sm ? "yes\n" : "no\n", out);
		return 0;
	}
	if (strcmp(what, "start")) {
		put_sm(d, out);
		return 0;
	}
	h = nwords > 2 && *words[2] ? topo_host(&d->topo, words[2])
	    : d->topo.nhosts        ? &d->topo.host[0]
				    : NULL;
	if (!h)
		return fprintf(out, "there is no host '%s'; `anyrdma fabric hosts` lists them\n",
			       nwords > 2 ? words[2] : ""),
		       -ENOENT;
	err = sm_start(d, h->name, words + 3, nwords > 3 ? nwords - 3 : 0);
	if (err == -EALREADY)
		fprintf(out, "opensm is already running on %s; `anyrdma fabric sm stop` ends it\n",
			d->sm_host);
	else if (err)
		fprintf(out, "opensm cannot be started: %s\n", strerror(-err));
	else
		fprintf(out, "%s/opensm/opensm.log\n", d->dir);
	return err;
}

/* Where a host's files are, for `anyrdma run --host`: the name that it is called by, and the directory. */
static int do_tree(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	struct topo_host *h = nwords < 2 ? NULL : topo_host(&d->topo, words[1]);
	char path[PATH_MAX];
	int err;

	if (nwords > 1 && !strcmp(words[1], "auto") && !h && d->topo.nhosts)
		h = &d->topo.host[d->next_host++ % d->topo.nhosts];
	if (!h)
		return fprintf(out,
			       "there is no host '%s' in the fabric '%s'; `anyrdma fabric hosts` lists "
			       "them\n",
			       nwords > 1 ? words[1] : "", d->name),
		       -ENOENT;
	err = trees_path(d, h, path, sizeof(path));
	if (err)
		return fprintf(out, "the files of %s cannot be written: %s\n", h->name, strerror(-err)), err;
	fprintf(out, "%s\n%s\n", h->name, path);
	return 0;
}

static int do_down(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	sm_leave(d);
	return 0;
}

static const struct {
	const char *word;
	int (*fn)(struct fabricd *d, char **words, unsigned nwords, FILE *out);
} table[] = {
	{"status", do_status},
	{"ready", do_ready},
	{"hosts", do_hosts},
	{"map", do_map},
	{"topology", do_topology},
	{"counters", do_counters},
	{"tables", console_tables},
	{"cut", do_cut},
	{"mend", do_mend},
	{"inject", do_inject},
	{"capture", do_capture},
	{"sm", do_sm},
	{"tree", do_tree},
	{"down", do_down},
};

int console_do(struct fabricd *d, char **words, unsigned nwords, FILE *out)
{
	for (size_t i = 0; nwords && i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(words[0], table[i].word))
			return table[i].fn(d, words, nwords, out);
	fputs("the fabric does not know this command: is it of another version?\n", out);
	return -ENOSYS;
}
