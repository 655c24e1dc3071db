/* SPDX-License-Identifier: MIT */
/* anyrdma demo: Debian's own RDMA benchmarks over anyrdma, as by default on one host, with shareable buffers
 * and by packets, and TCP beside them, all on the loopback.
 *
 * A step is one program run as server and client. Steps are taken in rounds, RDMA and TCP in turn, so that
 * a busy moment of the machine meets all; the median of the rounds counts. A row of the final table sets
 * an RDMA step, on one host and by packets, against a TCP step. Whether packets were used the programs say
 * themselves: the library logs it. */
#include "tool/demo_buffers.h"
#include "tool/proc.h"
#include "tool/tool.h"
#include "tool/devlist.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEVICE     "roce_lo"
#define HOST       "127.0.0.1"
#define MAX_ROUNDS 21
#define BAR_WIDTH  24

enum { START_TIMEOUT = 30, EXTRA_TIME = 120 }; /* on a busy machine all takes its time */
enum { PINGS = 10000, PINGS_FEW = 100 };       /* a second, about */

enum kind { PERFTEST_BW, PERFTEST_LAT, IPERF, SOCKPERF };

enum step_id {
	WRITE_BW,
	WRITE_BW_SHARED,
	WRITE_BW_WIRE,
	TCP_BW,
	WRITE_LAT,
	WRITE_LAT_SHARED,
	WRITE_LAT_WIRE,
	SEND_LAT,
	SEND_LAT_WIRE,
	READ_LAT,
	READ_LAT_WIRE,
	TCP_LAT,
	NSTEPS
};

enum path {
	AS_USUAL,
	SHARED, /* the program's buffers are shareable */
	WIRE,   /* packets, though both ends are here */
};

static const struct step {
	const char *program, *package;
	enum kind kind;
	enum path path;
} steps[NSTEPS] = {
	[WRITE_BW] = {"ib_write_bw", "perftest", PERFTEST_BW, AS_USUAL},
	[WRITE_BW_SHARED] = {"ib_write_bw", "perftest", PERFTEST_BW, SHARED},
	[WRITE_BW_WIRE] = {"ib_write_bw", "perftest", PERFTEST_BW, WIRE},
	[TCP_BW] = {"iperf3", "iperf3", IPERF, AS_USUAL},
	[WRITE_LAT] = {"ib_write_lat", "perftest", PERFTEST_LAT, AS_USUAL},
	[WRITE_LAT_SHARED] = {"ib_write_lat", "perftest", PERFTEST_LAT, SHARED},
	[WRITE_LAT_WIRE] = {"ib_write_lat", "perftest", PERFTEST_LAT, WIRE},
	[SEND_LAT] = {"ib_send_lat", "perftest", PERFTEST_LAT, AS_USUAL},
	[SEND_LAT_WIRE] = {"ib_send_lat", "perftest", PERFTEST_LAT, WIRE},
	[READ_LAT] = {"ib_read_lat", "perftest", PERFTEST_LAT, AS_USUAL},
	[READ_LAT_WIRE] = {"ib_read_lat", "perftest", PERFTEST_LAT, WIRE},
	[TCP_LAT] = {"sockperf", "sockperf", SOCKPERF, AS_USUAL},
};

/* ib_read_lat gives a round trip, the others and sockperf half of one: hence the factor. */
static const struct row {
	const char *what, *id, *unit;
	enum step_id ours, wire, tcp;
	double tcp_factor;
	bool more_is_better;
} rows[] = {
	{"WRITE bandwidth, 64 KiB", "write_bw", "Gb/s", WRITE_BW, WRITE_BW_WIRE, TCP_BW, 1, true},
	{"  with shareable memory", "write_bw_shareable", "Gb/s", WRITE_BW_SHARED, WRITE_BW_WIRE, TCP_BW, 1,
		true},
	{"WRITE latency, one way", "write_lat", "us", WRITE_LAT, WRITE_LAT_WIRE, TCP_LAT, 1, false},
	{"  with shareable memory", "write_lat_shareable", "us", WRITE_LAT_SHARED, WRITE_LAT_WIRE, TCP_LAT, 1,
		false},
	{"SEND latency, one way", "send_lat", "us", SEND_LAT, SEND_LAT_WIRE, TCP_LAT, 1, false},
	{"READ latency, round trip", "read_lat", "us", READ_LAT, READ_LAT_WIRE, TCP_LAT, 2, false},
};

#define NROWS (sizeof(rows) / sizeof(rows[0]))

static struct {
	char self[PATH_MAX];
	char gid_index[16], seconds_arg[16], iterations[16];
	int rounds, seconds;
	bool json;
	bool by_wire; /* what should have gone through shared memory did not */
	double results[NSTEPS][MAX_ROUNDS];
} demo;

/* ---- progress ---- */

static struct {
	bool tty;
	int round, step;
	double since, shown;
} progress;

static void clear_progress(void)
{
	if (progress.tty)
		fputs("\r\033[K", stderr);
}

static const char *path_name(const struct step *s)
{
	static const char *const names[] = {
		[AS_USUAL] = "", [SHARED] = ", shareable memory", [WIRE] = " over UDP"};

	return names[s->path];
}

static void tick(void)
{
	double now = proc_now();
	int done = progress.round * NSTEPS + progress.step, all = demo.rounds * NSTEPS, i;

	if (!progress.tty || now - progress.shown < 0.2)
		return;
	progress.shown = now;
	fputs("\r\033[K  [", stderr);
	for (i = 0; i < 20; i++)
		fputc(i < done * 20 / all ? '#' : '.', stderr);
	fprintf(stderr, "] round %d of %d  %s%s  %.0f s", progress.round + 1, demo.rounds,
		steps[progress.step].program, path_name(&steps[progress.step]), now - progress.since);
}

static void report_step(double value)
{
	const struct step *s = &steps[progress.step];

	if (!progress.tty)
		fprintf(stderr, "round %d of %d: %-12s %8.2f %s%s\n", progress.round + 1, demo.rounds,
			s->program, value, s->kind == PERFTEST_BW || s->kind == IPERF ? "Gb/s" : "us",
			path_name(s));
}

/* ---- what the programs print ---- */

/* The n-th number (from 0) of the line after perftest's heading. */
static bool parse_perftest(const char *text, int n, double *value)
{
	const char *p = strstr(text, "#bytes");
	char *end;

	p = p ? strchr(p, '\n') : NULL;
	for (; p && n >= 0; n--, p = end) {
		*value = strtod(p, &end);
		if (end == p)
			return false;
	}
	return p && *value > 0;
}

static bool parse_iperf(const char *text, double *value)
{
	const char *p = strstr(text, "\"sum_received\"");

	p = p ? strstr(p, "\"bits_per_second\":") : NULL;
	if (!p)
		return false;
	*value = strtod(p + strlen("\"bits_per_second\":"), NULL) / 1e9;
	return *value > 0;
}

static bool parse_sockperf(const char *text, double *value)
{
	const char *p = strstr(text, "percentile 50.000 =");

	if (!p)
		return false;
	*value = strtod(p + strlen("percentile 50.000 ="), NULL);
	return *value > 0;
}

static bool parse(enum kind kind, const char *text, double *value)
{
	switch (kind) {
	case PERFTEST_BW:
		return parse_perftest(text, 3, value); /* bytes, iterations, peak, average */
	case PERFTEST_LAT:
		return parse_perftest(text, 4, value); /* bytes, iterations, min, max, typical */
	case IPERF:
		return parse_iperf(text, value);
	default:
		return parse_sockperf(text, value);
	}
}

/* ---- one step ---- */

/* The command line of a step's server or client, ended by NULL. */
static void command(const struct step *s, char *port, bool client, char *argv[])
{
	char *const *tail;
	int n = 0;

	switch (s->kind) {
	case PERFTEST_BW:
	case PERFTEST_LAT: {
		char *run[] = {"env", "-u", "ANYRDMA_LOCAL", "ANYRDMA_LOG=info",
			s->path == WIRE ? "ANYRDMA_LOCAL=off" : "ANYRDMA_LOG=info", demo.self, "run", "--",
			(char *)s->program, "-F", "-d", DEVICE, "-x", demo.gid_index, "-p", port,
			s->path == SHARED ? "--mmap" : NULL, (char *)demo_buffer(client), NULL};
		char *bw[] = {
			"-s", "65536", "-D", demo.seconds_arg, "--report_gbits", client ? HOST : NULL, NULL};
		char *lat[] = {"-s", "64", "-n", demo.iterations, client ? HOST : NULL, NULL};

		for (tail = run; *tail; tail++)
			argv[n++] = *tail;
		for (tail = s->kind == PERFTEST_BW ? bw : lat; *tail; tail++)
			argv[n++] = *tail;
		break;
	}
	case IPERF: {
		char *server[] = {"iperf3", "-s", "-1", "-B", HOST, "-p", port, NULL};
		char *cl[] = {"iperf3", "-c", HOST, "-p", port, "-t", demo.seconds_arg, "-J", NULL};

		for (tail = client ? cl : server; *tail; tail++)
			argv[n++] = *tail;
		break;
	}
	case SOCKPERF: {
		char *server[] = {"sockperf", "server", "--tcp", "-i", HOST, "-p", port, NULL};
		char *cl[] = {"sockperf", "pp", "--tcp", "-i", HOST, "-p", port, "-m", "64", "-t",
			demo.seconds_arg, NULL};

		for (tail = client ? cl : server; *tail; tail++)
			argv[n++] = *tail;
		break;
	}
	}
	argv[n] = NULL;
}

/* The last lines of what a program said, for the message that it failed. */
static void quote(const char *who, const struct proc *p)
{
	char *text = proc_output(p), *from;
	int lines = 0;

	if (!text || !*text) {
		free(text);
		return;
	}
	for (from = text + strlen(text); from > text && lines < 13; from--)
		lines += from[-1] == '\n';
	fprintf(stderr, "  the %s said:\n", who);
	for (char *line = strtok(from, "\n"); line; line = strtok(NULL, "\n"))
		fprintf(stderr, "    %s\n", line);
	free(text);
}

static int fail(const struct step *s, const char *what, const struct proc *server, const struct proc *client)
{
	clear_progress();
	if (proc_interrupted()) {
		tool_warn("stopped");
		return -EINTR;
	}
	tool_warn("%s %s", s->program, what);
	if (client)
		quote("client", client);
	quote("server", server);
	fprintf(stderr, "  `anyrdma doctor` may know why.\n");
	return -EIO;
}

static int run_client(const struct step *s, char *port, struct proc *server, double *value)
{
	char *argv[32], *text;
	struct proc client;
	int err = 0;
	bool good;

	command(s, port, true, argv);
	if (proc_start(&client, argv))
		return fail(s, "could not be started", server, NULL);
	if (!proc_wait(&client, proc_now() + demo.seconds + EXTRA_TIME, tick)) {
		err = fail(s, "did not finish in time", server, &client);
	} else {
		text = proc_output(&client);
		good = proc_succeeded(&client) && text && parse(s->kind, text, value);
		demo.by_wire |= good && s->path != WIRE && strstr(text, " over UDP\n");
		free(text);
		if (!good)
			err = fail(s, proc_succeeded(&client) ? "gave no result" : "failed", server, &client);
	}
	proc_end(&client);
	return err;
}

/* ---- how many pings ---- */
static int count_cpus(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) ? 2 : CPU_COUNT(&cpus);
}

/* Who wants a CPU right now, us included; 0: not known. */
static int count_running(void)
{
	FILE *f = fopen("/proc/loadavg", "re");
	int n = 0;

	if (f && fscanf(f, "%*f %*f %*f %d", &n) != 1)
		n = 0;
	if (f)
		fclose(f);
	return n;
}

/*
 * Both ends of a latency test spin: on one CPU, and among many others, each step waits for the end of a time
 * slice.
 */
static void choose_pings(void)
{
	int cpus = count_cpus();
	bool few = cpus < 2 || count_running() > 2 * cpus;

	snprintf(demo.iterations, sizeof(demo.iterations), "%d", demo.seconds * (few ? PINGS_FEW : PINGS));
}

static int run_step(const struct step *s, double *value)
{
	char *argv[32], port[16];
	struct proc server;
	int number = proc_free_port(), err;

	progress.since = proc_now();
	progress.shown = 0;
	choose_pings();
	snprintf(port, sizeof(port), "%d", number);
	command(s, port, false, argv);
	if (number < 0 || proc_start(&server, argv)) {
		clear_progress();
		tool_warn("%s could not be started", s->program);
		return -EIO;
	}
	if (!proc_wait_listen(&server, number, proc_now() + START_TIMEOUT, tick))
		err = fail(
			s, server.pid ? "did not start to listen in time" : "ended at once", &server, NULL);
	else
		err = run_client(s, port, &server, value);
	if (!err && s->kind != SOCKPERF) /* whose server goes on until it is ended */
		proc_wait(&server, proc_now() + 5, tick);
	proc_end(&server);
	return err;
}

/* ---- the table ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(enum step_id step)
{
	double *v = demo.results[step];
	int n = steps[step].path == WIRE ? 1 : demo.rounds;

	qsort(v, n, sizeof(*v), compare);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

struct outcome {
	double ours, wire, tcp, ratio;
};

static void evaluate(struct outcome *o)
{
	for (size_t i = 0; i < NROWS; i++) {
		o[i].ours = median(rows[i].ours);
		o[i].wire = median(rows[i].wire);
		o[i].tcp = median(rows[i].tcp) * rows[i].tcp_factor;
		o[i].ratio = rows[i].more_is_better ? o[i].ours / o[i].tcp : o[i].tcp / o[i].ours;
	}
}

/* A bar as long as the ratio, with a stroke put in where TCP's would end. */
static void print_bar(double ratio, double max)
{
	static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
	bool utf8 = tool_utf8();
	int length = lround(ratio / max * BAR_WIDTH * 8), mark = lround(BAR_WIDTH / max);

	for (int cell = 0; cell <= BAR_WIDTH; cell++) {
		int fill = length - cell * 8;

		if (cell == mark)
			fputs(utf8 ? "│" : "|", stdout);
		if (fill >= 8)
			fputs(utf8 ? "█" : "#", stdout);
		else if (fill > 0)
			fputs(utf8 ? eighths[fill] : fill >= 4 ? "#" : " ", stdout);
		else if (cell < mark)
			putchar(' ');
	}
}

static void print_table(const struct outcome *o)
{
	bool colour = tool_colour(stdout);
	double max = 1;

	for (size_t i = 0; i < NROWS; i++)
		max = fmax(max, o[i].ratio);
	printf("\n%s%-26s %14s %14s %14s %8s%s\n", colour ? "\033[1m" : "", "what",
		demo.by_wire ? "anyrdma" : "shared memory", "by packets", "TCP", "ratio",
		colour ? "\033[0m" : "");
	for (size_t i = 0; i < NROWS; i++) {
		const struct row *r = &rows[i];

		printf("%-26s %9.2f %-4s %9.2f %-4s %9.2f %-4s %7.2fx  %s", r->what, o[i].ours, r->unit,
			o[i].wire, r->unit, o[i].tcp, r->unit, o[i].ratio,
			colour ? o[i].ratio >= 1 ? "\033[32m" : "\033[33m" : "");
		print_bar(o[i].ratio, max);
		puts(colour ? "\033[0m" : "");
	}
	printf("\n"
	       "The same two programs: through shared memory, the default on one host, where the kernel\n"
	       "copies from one to the other; with buffers that are shareable (perftest --mmap), which\n"
	       "they copy themselves; and by RoCEv2 packets, as between hosts (ANYRDMA_LOCAL=off), once.\n"
	       "The ratio is the first to TCP, above 1 is better; the stroke in the bars is TCP.\n"
	       "Latency: 64 bytes.\n"
	       "Median of %d round%s on the loopback; TCP is one stream of iperf3, and sockperf ping-pong.\n",
		demo.rounds, demo.rounds == 1 ? "" : "s");
	if (demo.by_wire)
		puts("Shared memory was not possible here: ANYRDMA_LOG=info says why.");
	if (count_cpus() < 2)
		puts("There is one CPU: of two programs that spin, each waits for the other's time slice.");
}

static void print_json(const struct outcome *o)
{
	printf("[");
	for (size_t i = 0; i < NROWS; i++)
		printf("%s\n"
		       "  {\"what\": \"%s\", \"unit\": \"%s\", \"anyrdma\": %.4g, \"path\": \"%s\", "
		       "\"packets\": %.4g, \"tcp\": %.4g, \"ratio\": %.4g}",
			i ? "," : "", rows[i].id, rows[i].unit, o[i].ours,
			demo.by_wire ? "packets" : "memory", o[i].wire, o[i].tcp, o[i].ratio);
	puts("\n]");
}

/* ---- before the start ---- */

static int check_programs(void)
{
	char path[PATH_MAX], packages[128] = "", programs[128] = "";

	for (int i = 0; i < NSTEPS; i++) {
		if (!tool_which(steps[i].program, path, sizeof(path)))
			continue;
		if (steps[i].path != AS_USUAL)
			continue;
		if (!strstr(packages, steps[i].package)) {
			strcat(packages, " ");
			strcat(packages, steps[i].package);
		}
		strcat(programs, " ");
		strcat(programs, steps[i].program);
	}
	if (!*programs)
		return 0;
	tool_warn("demo needs programs that are not installed:%s\n"
		  "  On Debian, as root: apt install%s",
		programs, packages);
	return -1;
}

/* Finds the GID that is the loopback's IPv4 address. */
static int find_gid(void)
{
	struct verbs_dev *devs;
	char why[512], text[INET6_ADDRSTRLEN];
	bool seen = false, found = false;
	int n;

	if (verbs_load(&devs, &n, why, sizeof(why))) {
		tool_warn("%s", why);
		return -1;
	}
	for (int i = 0; i < n; i++) {
		if (strcmp(devs[i].name, DEVICE))
			continue;
		seen = true;
		for (int j = 0; !found && j < devs[i].ngids; j++) {
			verbs_gid_str(devs[i].gids[j].raw, text);
			found = !strcmp(text, HOST);
			if (found)
				snprintf(demo.gid_index, sizeof(demo.gid_index), "%d", devs[i].gids[j].index);
		}
	}
	verbs_free(devs, n);
	if (!seen)
		tool_warn("there is no device " DEVICE
			  ": the loopback interface must be up, and ANYRDMA_DEVICES, if set, must name it");
	else if (!found)
		tool_warn("device " DEVICE " has no GID for " HOST "; is the loopback interface up?");
	return found ? 0 : -1;
}

static bool number(const char *what, const char *text, int max, int *value)
{
	char *end;
	long n = strtol(text, &end, 10);

	if (*end || end == text || n < 1 || n > max) {
		tool_warn("demo: --%s takes a number from 1 to %d", what, max);
		return false;
	}
	*value = n;
	return true;
}

static int options(int argc, char **argv)
{
	static const struct option longs[] = {{"rounds", required_argument, NULL, 'r'},
		{"seconds", required_argument, NULL, 's'}, {"json", no_argument, NULL, 'j'}, {0}};
	int c;

	demo.rounds = 3;
	demo.seconds = 1;
	while ((c = getopt_long(argc, argv, "r:s:", longs, NULL)) != -1) {
		if (c == 'r' && number("rounds", optarg, MAX_ROUNDS, &demo.rounds))
			continue;
		if (c == 's' && number("seconds", optarg, 60, &demo.seconds))
			continue;
		if (c != 'j')
			return -1;
		demo.json = true;
	}
	if (optind < argc) {
		tool_warn("demo: '%s' was not expected; see anyrdma help demo", argv[optind]);
		return -1;
	}
	snprintf(demo.seconds_arg, sizeof(demo.seconds_arg), "%d", demo.seconds);
	return 0;
}

static int run_rounds(void)
{
	int err = 0;

	for (progress.round = 0; !err && progress.round < demo.rounds; progress.round++) {
		for (progress.step = 0; !err && progress.step < NSTEPS; progress.step++) {
			double *value = &demo.results[progress.step][progress.round];

			if (steps[progress.step].path == WIRE && progress.round)
				continue; /* once is enough to be set beside, and half a minute is long */
			err = run_step(&steps[progress.step], value);
			if (!err)
				report_step(*value);
		}
	}
	return err;
}

static int run(int argc, char **argv)
{
	struct outcome outcomes[NROWS];
	int err;

	if (options(argc, argv))
		return 2;
	if (check_programs() || tool_self(demo.self, sizeof(demo.self)) || find_gid())
		return 1;
	proc_catch_signals();
	err = demo_buffers_make();
	if (err) {
		tool_warn("no place for two files of a megabyte, neither /dev/shm nor /tmp: %s",
			strerror(-err));
		return 1;
	}
	progress.tty = isatty(2);
	err = run_rounds();
	demo_buffers_remove();
	if (err)
		return err == -EINTR ? 130 : 1;
	clear_progress();
	evaluate(outcomes);
	if (demo.json)
		print_json(outcomes);
	else
		print_table(outcomes);
	return 0;
}

const struct tool_cmd tool_cmd_demo = {
	.name = "demo",
	.synopsis = "[--rounds N] [--seconds N] [--json]",
	.summary = "measure RDMA programs against TCP on this machine",
	.help = "Runs Debian's ib_write_bw, ib_write_lat, ib_send_lat and ib_read_lat over anyrdma on this\n"
		"host, through shared memory and by packets, with iperf3 and sockperf over TCP beside\n"
		"them, and shows the results in one table. Takes about half a minute.\n\n"
		"  -r, --rounds N   how often each is run; the median counts (default 3)\n"
		"  -s, --seconds N  how long each is run (default 1)\n"
		"      --json       the result for programs",
	.run = run,
};
