/* SPDX-License-Identifier: MIT */
#include "seeds.h"

#include "observe/row.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct seeds seeds = {.first = 1, .count = 1};
static uint64_t digest = 0xcbf29ce484222325ull; /* FNV-1a */

void seeds_note(const void *bytes, size_t len)
{
	const uint8_t *b = bytes;

	for (size_t i = 0; seeds.digests && i < len; i++)
		digest = (digest ^ b[i]) * 0x100000001b3ull;
}

static void print_digest(void)
{
	printf("digest %016llx\n", (unsigned long long)digest);
}

/* Packets, requests and completions have lines of their own, with what the model knows of them. */
static bool is_news(enum probe p)
{
	return p != PROBE_FRAME_TX && p != PROBE_FRAME_RX && p != PROBE_WR_POSTED && p != PROBE_RECV_POSTED &&
	       p != PROBE_CQE;
}

static void print_probe(enum probe p, const void *values)
{
	char line[300];

	probe_in_fields(p, values, line, sizeof(line));
	printf("%17s%s\n", "", line);
}

static void on_crash(int sig)
{
	char line[200];
	int n = snprintf(line, sizeof(line), "seed %llu: signal %d\nreplay: %s --seed %llu --trace\n",
		(unsigned long long)seeds.now, sig, seeds.program, (unsigned long long)seeds.now);

	if (write(2, line, (size_t)n) < 0)
		_exit(2);
	signal(sig, SIG_DFL);
	raise(sig);
}

void seeds_init(int argc, char **argv)
{
	static const struct option options[] = {{"seed", required_argument, NULL, 's'},
		{"seeds", required_argument, NULL, 'n'}, {"trace", no_argument, NULL, 't'},
		{"digest", no_argument, NULL, 'd'}, {0}};
	int c;

	seeds.program = argv[0];
	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c == 's') {
			seeds.first = strtoull(optarg, NULL, 0);
		} else if (c == 'n') {
			seeds.count = strtoull(optarg, NULL, 0);
		} else if (c == 't') {
			static const struct probe_subscriber printer = {
				.wants = is_news, .tell = print_probe};

			seeds.trace = true;
			probe_subscribe(&printer);
			setvbuf(stdout, NULL, _IOLBF, 0); /* nothing is lost in a crash */
		} else if (c == 'd') {
			seeds.digests = true;
			atexit(print_digest);
		} else {
			fprintf(stderr, "usage: %s [--seed N] [--seeds COUNT] [--trace] [--digest]\n",
				argv[0]);
			exit(2);
		}
	}
	signal(SIGABRT, on_crash);
	signal(SIGSEGV, on_crash);
}
