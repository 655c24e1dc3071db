/* SPDX-License-Identifier: MIT */
/* anyrdma devices: what a program will see. */
#include "tool/tool.h"
#include "base/env.h"
#include "tool/devlist.h"

#include <getopt.h>
#include <string.h>

static void guid_str(uint64_t guid, char buf[24])
{
	uint8_t g[8];

	memcpy(g, &guid, sizeof(g));
	snprintf(buf, 24, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6],
		g[7]);
}

static int wider(int width, const char *s)
{
	int n = strlen(s);

	return n > width ? n : width;
}

/* The first GID stands in the device's own line, the others below it. */
static void print_gids(const struct verbs_dev *d, int indent)
{
	char gid[INET6_ADDRSTRLEN];

	for (int i = 0; i < d->ngids; i++) {
		verbs_gid_str(d->gids[i].raw, gid);
		printf("%*s%3d  %s  (%s)\n", i ? indent : 0, "", d->gids[i].index, gid, d->gids[i].type);
	}
	if (!d->ngids)
		puts("  -");
}

static void print_table(const struct verbs_dev *devs, int n)
{
	int name = strlen("DEVICE"), netdev = strlen("NETDEV"), state = strlen("STATE");
	bool bold = tool_colour(stdout);

	for (int i = 0; i < n; i++) {
		name = wider(name, devs[i].name);
		netdev = wider(netdev, devs[i].netdev);
		state = wider(state, devs[i].state);
	}
	printf("%s%-*s  %-*s  %-*s  %4s  %9s%3s  GID%s\n", bold ? "\033[1m" : "", name, "DEVICE", netdev,
		"NETDEV", state, "STATE", "MTU", "RATE", "#", bold ? "\033[0m" : "");
	for (int i = 0; i < n; i++) {
		const struct verbs_dev *d = &devs[i];

		printf("%-*s  %-*s  %-*s  %4d  %4g Gb/s", name, d->name, netdev, *d->netdev ? d->netdev : "-",
			state, d->state, d->mtu, d->rate_gbps);
		print_gids(d, name + netdev + state + 21);
	}
}

static void print_all(const struct verbs_dev *devs, int n)
{
	print_table(devs, n);
	tool_print_paths();
}

static void json_gid(const struct verbs_gid *g)
{
	char text[INET6_ADDRSTRLEN];

	verbs_gid_str(g->raw, text);
	printf("{\"index\": %d, \"gid\": \"", g->index);
	for (int i = 0; i < 16; i++)
		printf("%s%02x", i && i % 2 == 0 ? ":" : "", g->raw[i]);
	printf("\", \"address\": \"%s\", \"type\": \"%s\", \"netdev\": ", text, g->type);
	tool_json_str(stdout, g->netdev);
	putchar('}');
}

static void print_json(const struct verbs_dev *devs, int n)
{
	char guid[24];

	putchar('[');
	for (int i = 0; i < n; i++) {
		const struct verbs_dev *d = &devs[i];

		guid_str(d->guid, guid);
		printf("%s\n  {\"name\": ", i ? "," : "");
		tool_json_str(stdout, d->name);
		printf(", \"netdev\": ");
		tool_json_str(stdout, d->netdev);
		printf(", \"node_guid\": \"%s\", \"link_layer\": \"%s\", \"state\": \"%s\", \"mtu\": %d, "
		       "\"max_mtu\": %d, \"rate_gbps\": %g,\n"
		       "   \"gids\": [",
			guid, d->link_layer, d->state, d->mtu, d->max_mtu, d->rate_gbps);
		for (int j = 0; j < d->ngids; j++) {
			if (j)
				printf(",\n            ");
			json_gid(&d->gids[j]);
		}
		printf("]}");
	}
	puts(n ? "\n]" : "]");
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	struct verbs_dev *devs;
	char why[512];
	bool json = false;
	int n, c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'j')
			return 2;
		json = true;
	}
	if (optind < argc) {
		tool_warn("devices: '%s' was not expected; see anyrdma help devices", argv[optind]);
		return 2;
	}
	if (verbs_load(&devs, &n, why, sizeof(why))) {
		tool_warn("%s", why);
		return 1;
	}
	if (json)
		print_json(devs, n);
	else if (n)
		print_all(devs, n);
	else if (env_text(ANYRDMA_HOST))
		tool_warn("no devices: that host of a fabric (ANYRDMA_HOST) cannot be reached; see `anyrdma "
			  "fabric hosts`");
	else
		tool_warn(
			"no devices: no network interface is up, or ANYRDMA_DEVICES names none that exists; "
			"see anyrdma doctor");
	verbs_free(devs, n);
	return 0;
}

const struct tool_cmd tool_cmd_devices = {
	.name = "devices",
	.synopsis = "[--json]",
	.summary = "list the devices a program will see",
	.help = "Shows each device with its network interface, state, path MTU and GIDs, as a program\n"
		"started by `anyrdma run` will see them. The number before a GID is its index.\n"
		"Below, for programs of yours that run: how many of their queue pairs talk to a peer on\n"
		"this host through shared memory, without packets, and how many over the network (see\n"
		"ANYRDMA_LOCAL in anyrdma(1); `anyrdma doctor` says what limits the first).\n\n"
		"  --json  the same for programs",
	.run = run,
};
