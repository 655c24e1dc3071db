/* SPDX-License-Identifier: MIT */
/* A test that runs seeds: its command line, and the word it says when one of them crashes. */
#ifndef TESTS_SIM_SEEDS_H
#define TESTS_SIM_SEEDS_H

#include <stdbool.h>
#include <stdint.h>

struct seeds {
	const char *program;
	uint64_t first, count; /* what the command line asks for */
	uint64_t now;          /* the one that runs: whoever loops over them keeps it true */
	bool trace;
};

extern struct seeds seeds;

/* Reads --seed N, --seeds COUNT and --trace; ends the process with a word when they are wrong. */
void seeds_init(int argc, char **argv);

#endif
