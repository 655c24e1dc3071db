/* SPDX-License-Identifier: MIT */
/*
 * What other processes of this host may have written: the group file with any content, PLACE packets, frames
 * handed over by a Unix socket, names in the run directory. The first byte says which.
 */
#include "hca/registry.h"
#include "link/steer.h"
#include "link/steer_group.h"

#include <stdlib.h>
#include <string.h>

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* A copy in a block of its own, so that a read past the end is seen. */
static uint8_t *exact(const uint8_t *data, size_t size)
{
	uint8_t *p = malloc(size ? size : 1);

	memcpy(p, data, size);
	return p;
}

static uint64_t sum_of_slots(const struct steer_group *g)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < steer_group_count(g); i++)
		sum += g->member[i].slot;
	return sum;
}

/* The head as it is; then four bytes a member, so that small inputs make large groups. */
static void fill(struct steer_group *g, const uint8_t *data, size_t size)
{
	size_t head =
		offsetof(struct steer_group, member) < size ? offsetof(struct steer_group, member) : size;

	memcpy(g, data, head);
	data += head;
	size -= head;
	for (uint32_t i = 0; i < STEER_SLOTS && size >= 4; i++, data += 4, size -= 4) {
		g->member[i].slot = (uint32_t)(data[0] | data[1] << 8);
		g->member[i].answer = g->nonce ^ (uint64_t)(data[2] | data[3] << 8);
	}
}

static void group(const uint8_t *data, size_t size)
{
	static struct sock_filter code[STEER_CODE];
	struct steer_group *g = calloc(1, sizeof(*g));
	uint8_t *pkt;
	uint32_t n;
	uint64_t sum;

	fill(g, data, size);
	pkt = exact(data, size);
	steer_group_placed(g, size ? data[size - 1] : 0, pkt, (uint32_t)size);
	for (int locked = 0; locked < 2; locked++) { /* as it is, then as who has the lock leaves it */
		if (locked)
			steer_group_check(g);
		n = steer_group_count(g);
		sum = sum_of_slots(g);
		must(steer_group_told(g) <= n);
		must(steer_group_program(g, code) == 7 + 2 * n);
		steer_group_sort(g);
		must(steer_group_count(g) == n && sum_of_slots(g) == sum); /* nobody lost, nobody new */
		if (steer_group_add(g, 5)) {
			must(steer_group_has(g, 5) && steer_group_count(g) == n + 1);
			steer_group_remove(g, n);
		}
		steer_group_remove(g, size ? data[0] : 0);
	}
	free(pkt);
	free(g);
}

static void hand(const uint8_t *data, size_t size)
{
	uint8_t *datagram = exact(data, size);
	struct frame_in in;

	if (steer_hand_parse(datagram, size, &in)) {
		must(in.len >= BTH_LEN && in.bytes + in.len == datagram + size);
		must(bth_psn(in.bytes) <= PSN_MASK); /* the BTH is there to be read */
	}
	free(datagram);
}

static void name(const uint8_t *data, size_t size)
{
	char *s = malloc(size + 1), again[64];
	uint32_t slot, pid;

	memcpy(s, data, size);
	s[size] = '\0';
	if (hca_registry_name_parse(s, &slot, &pid)) {
		hca_registry_name(again, sizeof(again), slot, pid);
		must(!strcmp(s, again)); /* one name for one process */
	}
	free(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const parsers[])(const uint8_t *, size_t) = {group, hand, name};

	if (size)
		parsers[data[0] % 3](data + 1, size - 1);
	return 0;
}
