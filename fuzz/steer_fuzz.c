/* SPDX-License-Identifier: MIT */
/*
 * What other processes of this host may have written: the group file with any content, INDEX packets, frames
 * handed over by a Unix socket, the claims of ports with any content. The first byte says which.
 */
#include "host/ports_table.h"
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
		sum += g->member[i] == STEER_UNKNOWN ? 0 : g->member[i];
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
		g->member[i] = (uint32_t)(data[0] | data[1] << 8);
		g->answer[i] = g->nonce ^ (uint64_t)(data[2] | data[3] << 8);
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
	g->answer[0] = steer_group_answer(g, 0, pkt, (uint32_t)size);
	for (int locked = 0; locked < 2; locked++) { /* as it is, then as who has the lock leaves it */
		if (locked)
			steer_group_check(g);
		n = steer_group_count(g);
		sum = sum_of_slots(g);
		must(steer_group_told(g) <= n);
		must(steer_group_program(g, code) == 7 + 2 * steer_group_known(g));
		steer_group_sort(g);
		must(sum_of_slots(g) == sum); /* nobody lost, nobody new */
		n = steer_group_count(g);
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

static bool even_slots_live(void *arg, uint32_t slot)
{
	return slot % 2 == 0;
}

/* Every function over the table, whatever it holds. */
static void use_ports(struct ports_table *t, const struct host_port_claim *c)
{
	uint32_t n = ports_table_count(t), owner;
	uint16_t port;
	host_port_id id;

	must(n <= PORTS_MAX);
	owner = ports_table_owner(t, c->ps, c->addr, c->port);
	must(owner < STEER_SLOTS);
	port = ports_table_pick(t, c->ps, c->port, (uint16_t)(c->port + 9), c->slot);
	must(!port || (uint16_t)(port - c->port) <= 9);
	if (ports_table_allows(t, c, 0, c->reuse, even_slots_live, NULL))
		return;
	id = ports_table_add(t, c, n + 1);
	if (!id)
		return;
	must(ports_table_count(t) >= n && ports_table_listen(t, id));
	if (!c->addr[0] && !c->afonly) {
		owner = ports_table_owner(t, c->ps, c->addr, c->port);
		must(owner || !c->slot);
	}
	ports_table_drop(t, id, c->slot + 1u);
	must(ports_table_listen(t, id)); /* not his to drop */
	ports_table_drop(t, id, c->slot);
	must(!ports_table_listen(t, id));
	ports_table_trim(t);
}

static void ports(const uint8_t *data, size_t size)
{
	static struct ports_table t;
	struct host_port_claim c = {.ps = 0x0106};

	if (size < 8)
		return;
	c.port = (uint16_t)(data[0] | data[1] << 8);
	c.v6 = data[2] & 1;
	c.reuse = data[2] & 2;
	c.afonly = data[2] & 4;
	c.slot = data[3];
	memset(c.addr, data[4], sizeof(c.addr));
	memset(&t, 0, sizeof(t));
	memcpy(&t.h, data, size < sizeof(t.h) ? size : sizeof(t.h));
	if (size > sizeof(t.h))
		memcpy(t.entry, data + sizeof(t.h),
			size - sizeof(t.h) < sizeof(t.entry) ? size - sizeof(t.h) : sizeof(t.entry));
	use_ports(&t, &c);
	if (!ports_header_is_whole(&t.h, PORTS_MAX))
		ports_table_clear(&t);
	use_ports(&t, &c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const parsers[])(const uint8_t *, size_t) = {group, hand, ports};

	if (size)
		parsers[data[0] % 3](data + 1, size - 1);
	return 0;
}
