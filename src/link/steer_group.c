/* SPDX-License-Identifier: MIT */
#include "link/steer_group.h"

#include "base/bytes.h"

#include <assert.h>
#include <string.h>

enum { MAGIC = 0x616e7973 };

static_assert((int)SLOTS == (int)STEER_SLOTS, "a slot is part of a QP number");

/* A file that was cut off has zeros for members. */
static bool is_whole(const struct steer_group *g)
{
	if (g->magic != MAGIC || g->members >= STEER_SLOTS || g->order > STEER_MIXED)
		return false;
	for (uint32_t i = 0; i < g->members; i++) {
		if (!g->member[i] || g->member[i] >= STEER_SLOTS)
			return false;
	}
	return true;
}

bool steer_group_check(struct steer_group *g)
{
	if (is_whole(g))
		return true;
	memset(g, 0, sizeof(*g));
	g->magic = MAGIC;
	return false;
}

uint32_t steer_group_count(const struct steer_group *g)
{
	return g->members < STEER_SLOTS ? g->members : STEER_SLOTS;
}

int steer_group_find(const struct steer_group *g, uint32_t slot)
{
	uint32_t n = steer_group_count(g);

	for (uint32_t i = 0; i < n && slot != STEER_UNKNOWN; i++) {
		if (g->member[i] == slot)
			return (int)i;
	}
	return -1;
}

bool steer_group_has(const struct steer_group *g, uint32_t slot)
{
	return steer_group_find(g, slot) >= 0;
}

bool steer_group_add(struct steer_group *g, uint32_t slot)
{
	uint32_t n = steer_group_count(g);

	if (n >= STEER_SLOTS - 1)
		return false;
	slots_del(&g->arriving, slot % STEER_SLOTS);
	g->member[n] = slot;
	g->answer[n] = 0;
	g->members = n + 1;
	return true;
}

void steer_group_remove(struct steer_group *g, uint32_t i)
{
	uint32_t n = steer_group_count(g);

	if (i >= n)
		return;
	g->member[i] = g->member[n - 1];
	g->member[n - 1] = 0;
	g->members = n - 1;
}

/* ---- indexes ---- */
/* -1: did not tell. */
static int index_of(const struct steer_group *g, uint64_t answer)
{
	uint64_t v = answer ^ g->nonce;

	return v && v <= STEER_SLOTS ? (int)(v - 1) : -1;
}

/*
 * More indexes are asked for than there are where a socket belongs to somebody who is not in the file: the
 * kernel gives those packets to anybody. Each member has got its own too, which has a lower number than any
 * of those.
 */
uint64_t steer_group_answer(const struct steer_group *g, uint32_t i, const uint8_t *pkt, uint32_t len)
{
	uint64_t answer;
	int before = index_of(g, g->answer[i]);

	if (len < INDEX_LEN || get_be64(pkt + NONCE_OFF) != g->nonce)
		return g->answer[i];
	answer = g->nonce ^ ((uint64_t)get_be16(pkt + INDEX_OFF) + 1);
	return before < 0 || index_of(g, answer) < before ? answer : g->answer[i];
}

uint32_t steer_group_known(const struct steer_group *g)
{
	uint32_t n = steer_group_count(g), known = 0;

	for (uint32_t i = 0; i < n; i++)
		known += g->member[i] != STEER_UNKNOWN;
	return known;
}

uint32_t steer_group_told(const struct steer_group *g)
{
	uint32_t n = steer_group_count(g), told = 0;

	for (uint32_t i = 0; i < n; i++)
		told += g->member[i] != STEER_UNKNOWN && index_of(g, g->answer[i]) >= 0;
	return told;
}

void steer_group_sort(struct steer_group *g)
{
	uint32_t at_index[STEER_SLOTS] = {0}, silent[STEER_SLOTS];
	uint32_t n = steer_group_count(g), indexes = steer_group_known(g), nsilent = 0, at = 0;

	for (uint32_t i = 0; i < n; i++) {
		int p = index_of(g, g->answer[i]);

		if (g->member[i] == STEER_UNKNOWN)
			continue;
		if (p < 0 || p >= STEER_SLOTS - 1 || at_index[p]) {
			silent[nsilent++] = g->member[i];
			continue;
		}
		at_index[p] = g->member[i];
		if ((uint32_t)p >= indexes)
			indexes = (uint32_t)p + 1;
	}
	/* Those that did not answer (stopped?) sit in what is left, in some order; others we do not know. */
	for (uint32_t i = 0; i < nsilent; i++) {
		while (at_index[at])
			at++;
		at_index[at] = silent[i];
	}
	for (uint32_t i = 0; i < indexes; i++)
		g->member[i] = at_index[i] ? at_index[i] : STEER_UNKNOWN;
	g->members = indexes;
}

/* ---- the program ---- */
unsigned steer_group_program(const struct steer_group *g, struct sock_filter code[STEER_CODE])
{
	uint32_t members = steer_group_count(g);
	unsigned n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0);
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OPCODE_INDEX, 0, 2);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_H | BPF_ABS, INDEX_OFF);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 5);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, QPN_SLOT_SHIFT - 8);
	for (uint32_t i = 0; i < members; i++) {
		if (g->member[i] == STEER_UNKNOWN)
			continue;
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, g->member[i], 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, i);
	}
	/* Nobody's: out of range, the kernel picks by hash. */
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
	return n;
}
