/* SPDX-License-Identifier: MIT */
/* A malicious iWARP peer, from seeds: iwarp_hostile_test [--seed N] [--seeds COUNT] */
#include "iwarp_attack.h"
#include "seeds.h"

#include <stdio.h>

int main(int argc, char **argv)
{
	unsigned long long moves = 0;

	seeds_init(argc, argv);
	for (uint64_t i = 0; i < seeds.count; i++) {
		struct choices c = {.seed = (seeds.now = seeds.first + i) * 0x9e3779b97f4a7c15ull};

		moves += iwarp_attack(&c, 200);
	}
	printf("%llu seeds from %llu on: all held; %llu moves\n", (unsigned long long)seeds.count,
		(unsigned long long)seeds.first, moves);
	return 0;
}
