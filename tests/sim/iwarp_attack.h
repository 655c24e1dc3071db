/* SPDX-License-Identifier: MIT */
/* A malicious iWARP peer: the moves come from choices (a seed, or a fuzzer's bytes), what must hold is
 * checked here. */
#ifndef TESTS_SIM_IWARP_ATTACK_H
#define TESTS_SIM_IWARP_ATTACK_H

#include "choices.h"

/* Plays up to that many moves; how many there were before the victim ended it. Aborts when something did not
 * hold. */
unsigned iwarp_attack(struct choices *c, unsigned moves);

#endif
