/* SPDX-License-Identifier: MIT */
/* The words of `anyrdma fabric` that a running fabric is asked. */
#ifndef FABRICD_CONSOLE_H
#define FABRICD_CONSOLE_H

#include "fabricd/fabricd.h"

#include <stdio.h>

enum { CONSOLE_WORDS = 128, CONSOLE_REQUEST = 16384 };

/*
 * Does what the words say and writes the answer to out: text for the user, or after a failure one sentence.
 * 0, or -errno.
 */
int console_do(struct fabricd *d, char **words, unsigned nwords, FILE *out);

/* One of them: the forwarding tables of the switches that are named, or of all. */
int console_tables(struct fabricd *d, char **words, unsigned nwords, FILE *out);

#endif
