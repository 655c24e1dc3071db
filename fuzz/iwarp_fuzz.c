/* SPDX-License-Identifier: MIT */
/*
 * An iWARP connection from its first byte on: the input decides the moves of the attacker of
 * sim.iwarp_hostile, how the stream is cut, and what the victim posts meanwhile.
 */
#include "iwarp_attack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct choices c = {.bytes = data, .left = size};

	iwarp_attack(&c, 100);
	return 0;
}
