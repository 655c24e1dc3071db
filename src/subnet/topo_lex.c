/* SPDX-License-Identifier: MIT */
#include "subnet/topo_lex.h"

#include <string.h>

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static void skip_blanks(struct lex *l)
{
	while (l->at < l->end && is_blank(*l->at))
		l->at++;
}

bool lex_char(struct lex *l, char c)
{
	skip_blanks(l);
	if (l->at == l->end || *l->at != c)
		return false;
	l->at++;
	return true;
}

static int digit_of(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

static bool digits(struct lex *l, unsigned base, uint64_t max, uint64_t *out)
{
	const char *begin = l->at;

	for (*out = 0; l->at < l->end && digit_of(*l->at) < (int)base; l->at++) {
		unsigned digit = (unsigned)digit_of(*l->at);

		if (digit > max || *out > (max - digit) / base)
			return false;
		*out = *out * base + digit;
	}
	return l->at != begin;
}

bool lex_number(struct lex *l, uint64_t max, uint64_t *out)
{
	skip_blanks(l);
	if (l->end - l->at > 2 && l->at[0] == '0' && (l->at[1] | 0x20) == 'x') {
		l->at += 2;
		return digits(l, 16, max, out);
	}
	return digits(l, 10, max, out);
}

bool lex_hex(struct lex *l, uint64_t *out)
{
	skip_blanks(l);
	if (l->end - l->at > 2 && l->at[0] == '0' && (l->at[1] | 0x20) == 'x')
		l->at += 2;
	return digits(l, 16, UINT64_MAX, out);
}

bool lex_quoted(struct lex *l, struct lex_word *out)
{
	const char *close;

	skip_blanks(l);
	if (l->at == l->end || *l->at != '"')
		return false;
	close = memchr(l->at + 1, '"', (size_t)(l->end - l->at - 1));
	if (!close)
		return false;
	*out = (struct lex_word){l->at + 1, (size_t)(close - l->at - 1)};
	l->at = close + 1;
	return true;
}

bool lex_word(struct lex *l, struct lex_word *out)
{
	skip_blanks(l);
	out->at = l->at;
	while (l->at < l->end && !is_blank(*l->at))
		l->at++;
	out->len = (size_t)(l->at - out->at);
	return out->len;
}

bool lex_name(struct lex *l, struct lex_word *out)
{
	return lex_quoted(l, out) || (!lex_char(l, '"') && lex_word(l, out));
}

bool lex_done(struct lex *l)
{
	skip_blanks(l);
	return l->at == l->end;
}

struct lex lex_comment(struct lex *l)
{
	bool quoted = false;

	for (const char *p = l->at; p < l->end; p++) {
		quoted ^= *p == '"';
		if (*p == '#' && !quoted) {
			struct lex comment = {p + 1, l->end};

			l->end = p;
			return comment;
		}
	}
	return (struct lex){l->end, l->end};
}

bool lex_same(struct lex_word w, const char *text)
{
	return w.len == strlen(text) && !memcmp(w.at, text, w.len);
}

bool lex_copy(struct lex_word w, char *out, size_t n)
{
	if (w.len >= n)
		return false;
	for (size_t i = 0; i < w.len; i++)
		if ((unsigned char)w.at[i] < ' ' || w.at[i] == 0x7f)
			return false;
	memcpy(out, w.at, w.len);
	out[w.len] = '\0';
	return true;
}
