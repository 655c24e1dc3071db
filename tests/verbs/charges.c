/* SPDX-License-Identifier: MIT */
/*
 * Whose memory it is pays for it: pages that come into being when a peer writes are the target's, and an
 * initiator that locks its memory locks none of the peer's.
 */
#include "fixture.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)

static long status_kib(const char *field)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[256];
	long kib = -1;

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, field, strlen(field)))
			kib = atol(line + strlen(field));
	}
	fclose(f);
	return kib;
}

enum { SOME_KIB = 8 << 10, CHARGED = 64, TARGET_MIB = 1024 };

/* Writes into the test's memory, which nobody has touched, and looks at its own. */
struct bill {
	uint64_t addr;
	uint32_t rkey, mib, lock;
};

static void role_initiator(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = MIB);
	struct vt_addr peer;
	struct bill b;
	long rss, locked;
	char ok;

	vt_meet(ep, fd, NULL, &peer);
	vt_fill(ep->buf, MIB, 3);
	vt_hear(fd, &b, sizeof(b));
	mallopt(M_ARENA_MAX, 1); /* a thread's first malloc() would reserve 64 MiB, which count as locked */
	ok = !b.lock || !mlockall(MCL_CURRENT | MCL_FUTURE);
	vt_tell(fd, &ok, 1);
	if (!ok)
		return;
	rss = status_kib("VmRSS:");
	locked = status_kib("VmLck:");
	for (uint32_t i = 0; i < b.mib; i++) {
		vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = 1, .len = MIB, .raddr = b.addr + i * MIB,
			.rkey = b.rkey);
		vt_ok(ep, 1);
	}
	vt_post(ep, .op = IBV_WR_RDMA_WRITE, .id = 2, .len = 8, .raddr = b.addr, .rkey = b.rkey);
	vt_ok(ep, 2);
	rss = status_kib("VmRSS:") - rss;
	locked = status_kib("VmLck:") - locked;
	if (rss > SOME_KIB || locked > SOME_KIB)
		fail_msg("writing into a peer's memory took %ld KiB of memory, %ld KiB locked", rss, locked);
	vt_tell(fd, "", 1);
}

/* `mib` are written to a gigabyte that nobody has touched; false: mlockall() is refused. */
static bool written_to(struct vt *t, uint32_t mib, bool lock)
{
	struct vt_ep *ep = vt_ep(t);
	uint8_t *memory = mmap(NULL, TARGET_MIB * MIB, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(ep->pd, memory, TARGET_MIB * MIB, VT_ALL_ACCESS);
	struct bill b = {.addr = (uintptr_t)memory, .mib = mib, .lock = lock};
	struct vt_addr peer;
	struct vt_peer p;
	long rss;
	char ok, byte;

	assert_non_null(mr);
	b.rkey = mr->rkey;
	vt_peer_start(&p, "initiator");
	vt_meet(ep, p.fd, NULL, &peer);
	rss = status_kib("VmRSS:");
	vt_tell(p.fd, &b, sizeof(b));
	vt_hear(p.fd, &ok, 1);
	if (ok)
		vt_hear(p.fd, &byte, 1);
	rss = status_kib("VmRSS:") - rss;
	vt_peer_finish(&p);
	assert_true(!ok || rss + SOME_KIB >= (long)(mib * MIB >> 10)); /* the kernel counts roughly */
	for (uint32_t i = 0; ok && i < mib; i++)
		vt_check(memory + i * MIB, MIB, 3);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(memory, TARGET_MIB * MIB);
	return ok;
}

static void an_initiator_that_locks_its_memory_locks_none_of_the_peer(void **state)
{
	if (!written_to(*state, 0, true))
		skip_because("mlockall is refused");
}

static void new_pages_are_charged_to_whose_memory_it_is(void **state)
{
	assert_true(written_to(*state, CHARGED, false));
}

static const struct vt_role roles[] = {
	{"initiator", role_initiator},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(an_initiator_that_locks_its_memory_locks_none_of_the_peer),
	VT_TEST(new_pages_are_charged_to_whose_memory_it_is),
};

VT_MAIN("charges", tests, roles)
