/* SPDX-License-Identifier: MIT */
/* A test that runs seeds: its command line, and the word it says when one of them crashes. */
#ifndef TESTS_SIM_SEEDS_H
#define TESTS_SIM_SEEDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct seeds {
	const char *program;
	uint64_t first, count; /* what the command line asks for */
	uint64_t now;          /* the one that runs: whoever loops over them keeps it true */
	bool trace;
	bool digests; /* prints a digest of the whole run at its end */
};

extern struct seeds seeds;

/* Reads --seed N, --seeds COUNT, --trace and --digest; ends the process with a word when they are wrong. */
void seeds_init(int argc, char **argv);

/*
 * A seed must give the same run every time, or nobody can replay what failed. What is told here, packets and
 * completions, goes into the digest, which two runs in differently laid-out processes must share (replay.sh).
 */
void seeds_note(const void *bytes, size_t len);

#endif
