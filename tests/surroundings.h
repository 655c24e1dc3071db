/* SPDX-License-Identifier: MIT */
/*
 * What tests ask of the machine they are started on. Where UDP port 4791 is a stranger's (Linux's rdma_rxe,
 * another user's program), the programs that link surroundings.c take another one by themselves.
 */
#ifndef TESTS_SURROUNDINGS_H
#define TESTS_SURROUNDINGS_H

#include <stdbool.h>

/* CTest's SKIP_RETURN_CODE; say "SKIP  " and why before. */
enum { SURROUNDINGS_SKIP = 77 };

/* Whether the loopback has an IPv6 address. */
bool surroundings_ipv6(void);

#endif
