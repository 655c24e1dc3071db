/* SPDX-License-Identifier: MIT */
#include "fabricd/describe.h"

#include "base/gid.h"
#include "subnet/topo_make.h"
#include "subnet/topo_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 64 << 20 };

/* The whole file for the caller to free, or NULL with a sentence. */
static char *read_whole(const char *path, size_t *len, char err[TOPO_ERROR])
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char *text = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0) {
		snprintf(err, TOPO_ERROR, "%.100s: %s; give a topology (star:4, fat-tree:4, ...) or a file",
			path, strerror(errno));
		return NULL;
	}
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		snprintf(err, TOPO_ERROR, "%.100s is no file of at most 64 MiB", path);
	} else if ((text = malloc((size_t)st.st_size + 1))) {
		for (*len = 0; *len < (size_t)st.st_size; *len += (size_t)n) {
			n = read(fd, text + *len, (size_t)st.st_size - *len);
			if (n <= 0)
				break;
		}
	} else {
		snprintf(err, TOPO_ERROR, "out of memory");
	}
	close(fd);
	return text;
}

static int from_file(struct fabricd *d, const char *path, unsigned hca_ports, char err[TOPO_ERROR])
{
	char *text, why[TOPO_ERROR] = "out of memory";
	size_t len;
	int status;

	if (hca_ports > 1) {
		snprintf(
			err, TOPO_ERROR, "--ports-per-hca is for topologies like star:4; a file has its own");
		return -EINVAL;
	}
	text = read_whole(path, &len, err);
	if (!text)
		return -EINVAL;
	status = topo_parse(d->subnet, &d->topo, text, len, why);
	if (status)
		snprintf(err, TOPO_ERROR, "%.60s, %.120s", path, why);
	free(text);
	return status;
}

/* ---- what all links can do ---- */

static int limit_speed(struct subnet_link_caps *caps, const char *name)
{
	static const struct {
		const char *name;
		uint8_t speed, ext;
	} rows[] = {{"SDR", 1, 0}, {"DDR", 3, 0}, {"QDR", 7, 0}, {"FDR", 7, 1}, {"EDR", 7, 3}, {"HDR", 7, 7},
		{"NDR", 7, 15}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcasecmp(name, rows[i].name)) {
			caps->speed = rows[i].speed;
			caps->speed_ext = rows[i].ext;
			return 0;
		}
	return -EINVAL;
}

static int limit_links(struct subnet *s, const struct describe_options *o, char err[TOPO_ERROR])
{
	struct subnet_link_caps caps = {0};
	uint8_t mtu = 0;

	if (o->speed && limit_speed(&caps, o->speed)) {
		snprintf(err, TOPO_ERROR, "there is no speed '%.20s': SDR, DDR, QDR, FDR, EDR, HDR or NDR",
			o->speed);
		return -EINVAL;
	}
	for (uint8_t code = 1; code <= 5 && o->mtu; code++)
		if (o->mtu == 128u << code)
			mtu = code;
	if (o->mtu && !mtu) {
		snprintf(
			err, TOPO_ERROR, "there is no MTU of %u bytes: 256, 512, 1024, 2048 or 4096", o->mtu);
		return -EINVAL;
	}
	for (unsigned i = 0; i < subnet_nodes(s); i++)
		for (unsigned p = 0; p <= subnet_node(s, i)->nports; p++) {
			struct subnet_link_caps *c = &subnet_node(s, i)->port[p].caps;

			if (o->speed) {
				c->speed = caps.speed;
				c->speed_ext = caps.speed_ext;
			}
			if (mtu)
				c->mtu = mtu;
		}
	return 0;
}

/* ---- addresses ---- */

static int number_hosts(struct topo *t, const char *range, char err[TOPO_ERROR])
{
	uint8_t net[16] = {[10] = 0xff, [11] = 0xff};
	char text[INET6_ADDRSTRLEN + 4], *slash, *end;
	unsigned long prefix;
	bool v4;
	int status;

	snprintf(text, sizeof(text), "%s", range);
	slash = strchr(text, '/');
	if (slash)
		*slash = '\0';
	v4 = inet_pton(AF_INET, text, net + 12) == 1;
	prefix = slash ? strtoul(slash + 1, &end, 10) : 0;
	if (!slash || !slash[1] || *end || prefix > (v4 ? 32 : 128) ||
		(!v4 && inet_pton(AF_INET6, text, net) != 1)) {
		snprintf(err, TOPO_ERROR, "'%.40s' is no range of IP addresses; for example 10.47.0.0/16",
			range);
		return -EINVAL;
	}
	prefix += v4 ? 96 : 0;
	for (unsigned bit = (unsigned)prefix; bit < 128; bit++)
		net[bit / 8] &= (uint8_t) ~(0x80 >> bit % 8);
	status = topo_number(t, net, (uint8_t)prefix);
	if (status)
		snprintf(err, TOPO_ERROR,
			status == -ENOSPC ? "%.40s has too few addresses for all ports" : "out of memory%.0s",
			range);
	return status;
}

int describe(struct fabricd *d, const struct describe_options *o, char err[TOPO_ERROR])
{
	int status;

	snprintf(err, TOPO_ERROR, "out of memory");
	status = topo_is_spec(o->what) ? topo_make(d->subnet, o->what, o->hca_ports, err)
				       : from_file(d, o->what, o->hca_ports, err);
	if (!status)
		status = limit_links(d->subnet, o, err);
	if (!status) {
		status = topo_complete(&d->topo, d->subnet);
		if (status == -EEXIST)
			snprintf(err, TOPO_ERROR, "a @host is called like an adapter that is not its own");
	}
	if (!status && o->ip)
		status = number_hosts(&d->topo, o->ip, err);
	return status;
}

/* ---- GUIDs ---- */

struct owned {
	uint64_t guid;
	const struct subnet_node *node;
};

static int by_guid(const void *a, const void *b)
{
	const struct owned *x = a, *y = b;

	if (x->guid != y->guid)
		return x->guid < y->guid ? -1 : 1;
	return (x->node->index > y->node->index) - (x->node->index < y->node->index);
}

/* GUIDs of a node and of its ports with a cable: those of others are made up when a description has none. */
static unsigned own_guids(const struct subnet_node *n, struct owned *own)
{
	unsigned count = 0;

	own[count++] = (struct owned){n->guid, n};
	for (unsigned i = 1; i <= n->nports && n->type != SUBNET_SWITCH; i++)
		if (n->port[i].peer)
			own[count++] = (struct owned){n->port[i].guid, n};
	return count;
}

bool describe_twins(const struct subnet *s, char sentence[TOPO_ERROR])
{
	unsigned room = 0, n = 0, i = 1;
	struct owned *own;
	bool found;

	for (unsigned k = 0; k < subnet_nodes(s); k++)
		room += 1u + subnet_node(s, k)->nports;
	own = calloc(room + 1u, sizeof(*own));
	for (unsigned k = 0; own && k < subnet_nodes(s); k++)
		n += own_guids(subnet_node(s, k), own + n);
	if (n)
		qsort(own, n, sizeof(*own), by_guid);
	while (i < n && (own[i].guid != own[i - 1].guid || own[i].node == own[i - 1].node))
		i++;
	found = i < n;
	if (found)
		snprintf(sentence, TOPO_ERROR,
			"%.40s has a GUID of %.40s, 0x%016" PRIx64 ": a subnet manager takes them for one",
			own[i].node->id, own[i - 1].node->id, own[i].guid);
	free(own);
	return found;
}

/* ---- words of the console ---- */

/* "1%" or "0.001" of a million. */
static bool share_of(const char *text, uint32_t *out)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || !(v >= 0))
		return false;
	if (*end == '%') {
		v /= 100;
		end++;
	}
	if (*end || v > 1)
		return false;
	*out = (uint32_t)(v * 1e6 + 0.5);
	return true;
}

static bool time_of(const char *text, uint64_t *out)
{
	static const struct {
		const char *unit;
		double ns;
	} units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
	char *end;
	double v = strtod(text, &end);

	if (end == text || !(v >= 0))
		return false;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++)
		if (!strcmp(end, units[i].unit) && v * units[i].ns <= 60e9) {
			*out = (uint64_t)(v * units[i].ns);
			return true;
		}
	return false;
}

static bool fault_word(const char *key, const char *value, struct subnet_fault *f)
{
	if (!strcmp(key, "loss"))
		return share_of(value, &f->loss);
	if (!strcmp(key, "corrupt"))
		return share_of(value, &f->corrupt);
	if (!strcmp(key, "duplicate"))
		return share_of(value, &f->duplicate);
	return !strcmp(key, "delay") && time_of(value, &f->delay);
}

int describe_fault(const char *text, struct subnet_fault *f, char err[TOPO_ERROR])
{
	char copy[256], *save = NULL;
	bool any = false;

	*f = (struct subnet_fault){0};
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *word = strtok_r(copy, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		char *value = strchr(word, '=');

		any = true;
		if (!strcmp(word, "none"))
			continue;
		if (value)
			*value++ = '\0';
		if (!strcmp(word, "rate")) {
			snprintf(err, TOPO_ERROR,
				"links with a rate are not there yet: loss, corrupt, duplicate, delay");
			return -EINVAL;
		}
		if (!value || !fault_word(word, value, f)) {
			snprintf(err, TOPO_ERROR,
				"'%.40s%s%.40s' is no fault; for example: loss=1%% corrupt=0.1%% "
				"duplicate=1%% delay=50us, or none",
				word, value ? "=" : "", value ? value : "");
			return -EINVAL;
		}
	}
	if (!any)
		snprintf(err, TOPO_ERROR, "which fault? For example loss=1%%, or none");
	return any ? 0 : -EINVAL;
}

struct subnet_port *describe_port(const struct subnet *s, const char *text, char err[TOPO_ERROR])
{
	const char *bracket = strrchr(text, '[');
	size_t len = bracket ? (size_t)(bracket - text) : strlen(text);
	struct subnet_port *p = NULL;
	char name[SUBNET_NAME], *end;
	unsigned long num = 1;
	struct subnet_node *n;

	if (len >= sizeof(name))
		len = sizeof(name) - 1;
	memcpy(name, text, len);
	name[len] = '\0';
	n = subnet_find(s, name);
	if (!n) {
		snprintf(err, TOPO_ERROR, "there is no node '%s'; `anyrdma fabric map` shows them", name);
		return NULL;
	}
	if (bracket)
		num = strtoul(bracket + 1, &end, 10);
	if (bracket ? end != bracket + 1 && !strcmp(end, "]") : n->nports == 1)
		p = num && num <= n->nports ? subnet_port(n, (unsigned)num) : NULL;
	if (!p)
		snprintf(err, TOPO_ERROR, "%.60s has ports [1] to [%u]", name, n->nports);
	return p;
}
