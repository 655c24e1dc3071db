/* SPDX-License-Identifier: MIT */
#include "base/env.h"

#include "base/log.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const struct variable {
	const char *name;
	enum env_kind kind;
	const char *allowed, *fallback;
} variables[ENV_COUNT] = {
#define V(name, kind, allowed, fallback, meaning) [name] = {#name, kind, allowed, fallback},
	ENV_VARIABLES(V)
#undef V
};

bool env_quiet;

/* ---- texts ---- */
enum text_state { UNREAD, BEING_READ, SET, UNSET };

/* In room of our own: programs overwrite their environment, to change what ps shows. */
static struct text {
	_Atomic enum text_state state;
	char s[4096];
} texts[ENV_COUNT];

static const char *given(enum env v)
{
	const char *s = secure_getenv(variables[v].name);

	return s && *s ? s : NULL;
}

const char *env_text(enum env v)
{
	struct text *t = &texts[v];
	enum text_state state = UNREAD;
	const char *s;

	if (atomic_compare_exchange_strong(&t->state, &state, BEING_READ)) {
		s = given(v);
		if (s)
			strncpy(t->s, s, sizeof(t->s) - 1); /* the last is 0 for ever */
		state = s ? SET : UNSET;
		atomic_store(&t->state, state);
	}
	/* Another thread is at it, or what our signal handler interrupted: that does not wait. */
	return state == SET ? t->s : state == UNSET ? NULL : given(v);
}

/* ---- words and numbers ---- */
enum { BAD = -2, UNKNOWN = -3 };

static _Atomic int64_t values[ENV_COUNT] = {[0 ... ENV_COUNT - 1] = UNKNOWN};

/* The place of s[0..n) in a list "a, b, c"; BAD: it is not there. */
static int place_of(const char *list, const char *s, size_t n)
{
	for (int place = 0;; place++) {
		size_t len = strcspn(list, ",");

		if (len == n && !strncmp(list, s, n))
			return place;
		if (!list[len])
			return BAD;
		list += len + 2;
	}
}

static int64_t parse_words(const char *list, const char *s, bool *bad)
{
	int64_t set = 0;

	for (size_t n; *s; s += n + (s[n] == ',')) {
		int place;

		n = strcspn(s, ",");
		place = n ? place_of(list, s, n) : -1;
		if (place >= 0)
			set |= 1ll << place;
		*bad |= place == BAD;
	}
	return set;
}

static int64_t parse_number(const char *bounds, const char *s)
{
	char *end;
	long long least = strtoll(bounds, &end, 10), most = strtoll(end + strlen(" to "), NULL, 10);
	long long number = strtoll(s, &end, 10);

	return *end || end == s || number < least || number > most ? BAD : number;
}

/* BAD, and *bad; of words only *bad, since the others hold. */
static int64_t parse(const struct variable *v, const char *s, bool *bad)
{
	int64_t value;

	if (v->kind == ENV_WORDS)
		return parse_words(v->allowed, s, bad);
	value = v->kind == ENV_WORD ? place_of(v->allowed, s, strlen(s)) : parse_number(v->allowed, s);
	*bad = value == BAD;
	return value;
}

static void complain(const struct variable *v, const char *s)
{
	if (v->kind == ENV_WORDS)
		log_warn("%s=%s: each must be one of %s; others are ignored", v->name, s, v->allowed);
	else
		log_warn("%s=%s is not %s %s: %s%s", v->name, s,
			v->kind == ENV_WORD ? "one of" : "a number from", v->allowed,
			v->fallback ? "using " : "ignored", v->fallback ? v->fallback : "");
}

static int64_t value_of(const struct variable *v, const char *s, bool *bad)
{
	int64_t value = s ? parse(v, s, bad) : BAD;
	bool unused;

	if (value != BAD)
		return value;
	if (v->fallback)
		return parse(v, v->fallback, &unused);
	return v->kind == ENV_WORDS ? 0 : ENV_UNSET;
}

int64_t env_value(enum env v)
{
	int64_t value, known = atomic_load(&values[v]);
	const char *s;
	bool bad = false;

	if (known != UNKNOWN)
		return known;
	s = given(v);
	value = value_of(&variables[v], s, &bad);
	if (!atomic_compare_exchange_strong(&values[v], &known, value))
		return known; /* another thread was first, and told */
	if (bad && !env_quiet)
		complain(&variables[v], s);
	return value;
}

void env_forget(void)
{
	for (unsigned v = 0; v < ENV_COUNT; v++) {
		atomic_store(&texts[v].state, UNREAD);
		atomic_store(&values[v], UNKNOWN);
	}
}
