/* SPDX-License-Identifier: MIT */
/*
 * A long talk with a hostile peer. The input decides every move of the attacker of tests/sim (attacker.h) and
 * what its prey posts meanwhile, so that an input is a sequence of frames that are right where the input does
 * not say otherwise: right ICRC, QP number, PSN, keys. What must hold is checked as in sim.hostile (prey.h).
 */
#include "prey.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct choices c = {.bytes = data, .left = size};
	struct prey *p;

	if (!size)
		return 0;
	p = prey_open(&c, 1, false);
	while (c.left)
		prey_suffer(p);
	prey_close(p);
	return 0;
}
