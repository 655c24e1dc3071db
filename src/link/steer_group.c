/* SPDX-License-Identifier: MIT */
#include "link/steer_group.h"

#include "base/bytes.h"

enum { MAGIC = 0x616e7972 };

void steer_group_check(struct steer_group *g)
{
	if (g->magic == MAGIC && g->members < STEER_SLOTS)
		return;
	g->magic = MAGIC;
	g->members = 0;
}

uint32_t steer_group_count(const struct steer_group *g)
{
	uint32_t n = atomic_load_explicit(&g->members, memory_order_relaxed);

	return n < STEER_SLOTS ? n : STEER_SLOTS;
}

bool steer_group_has(const struct steer_group *g, uint32_t slot)
{
	uint32_t n = steer_group_count(g);

	for (uint32_t i = 0; i < n; i++) {
		if (g->member[i].slot == slot)
			return true;
	}
	return false;
}

bool steer_group_add(struct steer_group *g, uint32_t slot)
{
	uint32_t n = steer_group_count(g);

	if (n == STEER_SLOTS)
		return false;
	g->member[n].slot = slot;
	g->members = n + 1;
	return true;
}

void steer_group_remove(struct steer_group *g, uint32_t i)
{
	uint32_t n = steer_group_count(g);

	if (i >= n)
		return;
	g->member[i].slot = g->member[n - 1].slot;
	g->member[n - 1].slot = 0;
	g->members = n - 1;
}

/* ---- places ---- */
void steer_group_placed(struct steer_group *g, uint32_t slot, const uint8_t *pkt, uint32_t len)
{
	uint64_t nonce = g->nonce;

	if (len < PLACE_LEN || get_be64(pkt + NONCE_OFF) != nonce)
		return;
	for (uint32_t i = 0; i < STEER_SLOTS; i++) {
		if (g->member[i].slot == slot)
			atomic_store(&g->member[i].answer, nonce ^ ((uint64_t)get_be16(pkt + PLACE_OFF) + 1));
	}
}

/* -1: did not tell. */
static int place_of(const struct steer_group *g, uint32_t i)
{
	uint64_t v = atomic_load(&g->member[i].answer) ^ g->nonce;

	return v && v <= STEER_SLOTS ? (int)(v - 1) : -1;
}

uint32_t steer_group_told(const struct steer_group *g)
{
	uint32_t n = steer_group_count(g), told = 0;

	for (uint32_t i = 0; i < n; i++)
		told += place_of(g, i) >= 0;
	return told;
}

void steer_group_sort(struct steer_group *g)
{
	uint32_t slots[STEER_SLOTS], silent[STEER_SLOTS], n = steer_group_count(g), nsilent = 0, at = 0;
	bool taken[STEER_SLOTS] = {false};

	for (uint32_t i = 0; i < n; i++) {
		int p = place_of(g, i);
		uint32_t slot = g->member[i].slot;

		if (p < 0 || p >= (int)n || taken[p]) {
			silent[nsilent++] = slot;
			continue;
		}
		slots[p] = slot;
		taken[p] = true;
	}
	/* Those that did not answer (stopped?) sit in what is left, in some order. */
	for (uint32_t i = 0; i < nsilent; i++) {
		while (taken[at])
			at++;
		slots[at++] = silent[i];
	}
	for (uint32_t i = 0; i < n; i++)
		g->member[i].slot = slots[i];
}

/* ---- the program ---- */
unsigned steer_group_program(const struct steer_group *g, struct sock_filter code[STEER_CODE])
{
	uint32_t members = steer_group_count(g);
	unsigned n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0);
	code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OPCODE_PLACE, 0, 2);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_H | BPF_ABS, PLACE_OFF);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_A, 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 5);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, QPN_SLOT_SHIFT - 8);
	for (uint32_t i = 0; i < members; i++) {
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, g->member[i].slot, 0, 1);
		code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, i);
	}
	/* Nobody's: out of range, the kernel picks by hash. */
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, 0xffffffff);
	return n;
}
