/* SPDX-License-Identifier: MIT */
/* The words of one line of a description. Bounded by its end, which need not be a zero. */
#ifndef SUBNET_TOPO_LEX_H
#define SUBNET_TOPO_LEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lex {
	const char *at, *end;
};

struct lex_word {
	const char *at;
	size_t len;
};

/* Each takes what it names from the front of the line, blanks before it too; false: it is not there. */
bool lex_char(struct lex *l, char c);
bool lex_number(struct lex *l, uint64_t max, uint64_t *out); /* decimal, 0x… */
bool lex_hex(struct lex *l, uint64_t *out);                  /* without 0x */
bool lex_quoted(struct lex *l, struct lex_word *out);        /* without its quotes */
bool lex_word(struct lex *l, struct lex_word *out);          /* up to a blank */
bool lex_name(struct lex *l, struct lex_word *out);          /* quoted, or a word */
/* Nothing but blanks is left. */
bool lex_done(struct lex *l);

/* Cuts the comment off the line, and returns it. A # in quotes begins none. */
struct lex lex_comment(struct lex *l);

bool lex_same(struct lex_word w, const char *text);
/* Copies a word of printable characters that has room in n bytes, with its end. */
bool lex_copy(struct lex_word w, char *out, size_t n);

#endif
