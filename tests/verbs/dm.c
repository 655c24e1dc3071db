/* SPDX-License-Identifier: MIT */
/*
 * Device memory: ibv_alloc_dm, ibv_memcpy_to_dm and _from_dm, ibv_reg_dm_mr. It is reached by requests and
 * copies alone, by offsets and not by addresses, and bounded; peers of this host map it.
 */
#include "files.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

enum { LEN = 200000, REQUESTS = 150 };
#define DM_ACCESS (VT_ALL_ACCESS | IBV_ACCESS_ZERO_BASED)

static struct ibv_dm *alloc(const struct vt *t, size_t len)
{
	return ibv_alloc_dm(t->ctx, &(struct ibv_alloc_dm_attr){.length = len});
}

static uint64_t max_size(const struct vt *t)
{
	struct ibv_device_attr_ex attr;

	assert_int_equal(ibv_query_device_ex(t->ctx, NULL, &attr), 0);
	return attr.max_dm_size;
}

static void fill(struct ibv_dm *dm, size_t len, uint32_t seed)
{
	size_t words = (len + 3) & ~(size_t)3;
	char *own = calloc(1, words);

	vt_fill(own, len, seed);
	assert_int_equal(ibv_memcpy_to_dm(dm, 0, own, words), 0);
	free(own);
}

static void compare(struct ibv_dm *dm, const void *want, size_t len)
{
	char *own = malloc(len);

	assert_int_equal(ibv_memcpy_from_dm(own, dm, 0, len), 0);
	assert_memory_equal(own, want, len);
	free(own);
}

/* ---- the object ---- */
static void holds_what_is_copied(void **state)
{
	struct ibv_dm *dm = alloc(*state, LEN);
	char own[300];

	assert_non_null(dm);
	assert_int_equal(ibv_memcpy_from_dm(own, dm, 1000, 300), 0);
	vt_check_all(own, 300, 0); /* nobody else's bytes */
	vt_fill(own, 300, 4);
	assert_int_equal(ibv_memcpy_to_dm(dm, LEN - 300, own, 300), 0);
	memset(own, 0, 300);
	assert_int_equal(ibv_memcpy_from_dm(own, dm, LEN - 300, 300), 0);
	vt_check(own, 300, 4);
	assert_int_not_equal(ibv_memcpy_to_dm(dm, LEN - 296, own, 300), 0);
	assert_int_equal(ibv_memcpy_to_dm(dm, 2, own, 8), EINVAL); /* whole words */
	assert_int_equal(ibv_memcpy_from_dm(own, dm, 8, 6), EINVAL);
	assert_int_not_equal(ibv_memcpy_from_dm(own, dm, UINT64_MAX - 3, 8), 0);
	assert_int_not_equal(ibv_memcpy_from_dm(own, dm, 4, UINT64_MAX - 3), 0);
	assert_int_not_equal(ibv_memcpy_to_dm(dm, 0, NULL, 8), 0);
	assert_int_equal(ibv_memcpy_to_dm(dm, LEN, own, 0), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
}

static void bad_requests_are_refused(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_dm *dm;

	errno = 0;
	assert_null(alloc(t, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_alloc_dm(t->ctx, &(struct ibv_alloc_dm_attr){.length = 8, .log_align_req = 40}));
	assert_null(ibv_alloc_dm(t->ctx, &(struct ibv_alloc_dm_attr){.length = 8, .comp_mask = 1u << 20}));
	dm = ibv_alloc_dm(t->ctx, &(struct ibv_alloc_dm_attr){.length = LEN, .log_align_req = 12});
	assert_non_null(dm);
	errno = 0;
	assert_null(ibv_reg_dm_mr(pd, dm, 0, LEN, VT_ALL_ACCESS)); /* it has no address */
	assert_int_equal(errno, EINVAL);
	assert_null(ibv_reg_dm_mr(pd, dm, 0, LEN + 1, DM_ACCESS));
	assert_null(ibv_reg_dm_mr(pd, dm, LEN, 1, DM_ACCESS));
	assert_null(ibv_reg_dm_mr(pd, dm, UINT64_MAX, 2, DM_ACCESS));
	assert_null(ibv_reg_dm_mr(pd, dm, 0, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED));
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static void is_busy_while_regions_are_left(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	struct ibv_dm *dm = alloc(t, LEN);
	struct ibv_mr *a = ibv_reg_dm_mr(pd, dm, 0, LEN, DM_ACCESS);
	struct ibv_mr *b = ibv_reg_dm_mr(pd, dm, 100, 1000, DM_ACCESS);

	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(b->length, 1000);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_not_equal(
		ibv_rereg_mr(a, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE), 0);
	assert_int_equal(ibv_dereg_mr(a), 0);
	assert_int_equal(ibv_free_dm(dm), EBUSY);
	assert_int_equal(ibv_dereg_mr(b), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

static bool has_memory(uint64_t bytes)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kb = 0;
	char line[128];

	while (fgets(line, sizeof(line), f) && sscanf(line, "MemAvailable: %llu", &kb) != 1)
		;
	fclose(f);
	return kb * 1024 > bytes;
}

static void size_is_what_the_device_says(void **state)
{
	struct vt *t = *state;
	uint64_t max = max_size(t);
	struct ibv_dm *dm[4];

	assert_true(max >= 1 << 20);
	errno = 0;
	assert_null(alloc(t, max + 1));
	assert_int_equal(errno, ENOMEM);
	if (!has_memory(2 * max))
		skip_because("little memory is free");
	for (int i = 0; i < 4; i++) {
		dm[i] = alloc(t, max / 4);
		assert_non_null(dm[i]);
	}
	assert_null(alloc(t, 1));
	assert_int_equal(errno, ENOMEM);
	assert_int_equal(ibv_free_dm(dm[2]), 0);
	dm[2] = alloc(t, max / 4);
	assert_non_null(dm[2]);
	for (int i = 0; i < 4; i++)
		assert_int_equal(ibv_free_dm(dm[i]), 0);
	dm[0] = alloc(t, max);
	assert_non_null(dm[0]);
	assert_int_equal(ibv_free_dm(dm[0]), 0);
}

static void nothing_is_left_of_many(void **state)
{
	struct vt *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);
	unsigned maps = 0, descriptors = 0;

	for (int i = 0; i < 500; i++) {
		struct ibv_dm *dm = alloc(t, 3 * PAGE);
		struct ibv_mr *mr = ibv_reg_dm_mr(pd, dm, 0, 3 * PAGE, DM_ACCESS);

		assert_non_null(mr);
		assert_int_equal(ibv_dereg_mr(mr), 0);
		assert_int_equal(ibv_free_dm(dm), 0);
		if (i == 10) {
			maps = lines_of("/proc/self/maps");
			descriptors = open_descriptors();
		}
	}
	assert_true(lines_of("/proc/self/maps") <= maps + 3);
	assert_true(open_descriptors() <= descriptors + 2);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* A device's memory has no copy in a child. */
static void child_reaches_nothing(void **state)
{
	struct ibv_dm *dm = alloc(*state, LEN);
	pid_t child;
	int status;
	char own[8];

	fill(dm, LEN, 6);
	child = fork();
	if (!child)
		_exit(ibv_memcpy_from_dm(own, dm, 0, 8) && ibv_memcpy_to_dm(dm, 0, own, 8) ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(ibv_memcpy_from_dm(own, dm, 0, 8), 0);
	vt_check(own, 8, 6);
	assert_int_equal(ibv_free_dm(dm), 0);
}

/* ---- messages out of it and into it ---- */
static void send_dm(struct vt_ep *ep, const struct ibv_mr *mr, uint64_t off, uint32_t len)
{
	struct ibv_sge sge = {off, len, mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 2,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};

	assert_int_equal(ibv_post_send(ep->qp, &wr, &bad), 0);
}

static void recv_dm(struct vt_ep *ep, const struct ibv_mr *mr, uint64_t off, uint32_t len)
{
	struct ibv_sge sge = {off, len, mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};

	assert_int_equal(ibv_post_recv(ep->qp, &wr, &bad), 0);
}

static const uint32_t lengths[] = {1, 40, 3000, 50000, LEN - 128};

static void role_receiver(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct ibv_dm *dm = alloc(t, LEN);
	struct ibv_mr *mr = ibv_reg_dm_mr(ep->pd, dm, 64, LEN - 64, DM_ACCESS);
	char *own = malloc(LEN);
	struct vt_addr peer;

	vt_meet(ep, fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		recv_dm(ep, mr, 64, lengths[i]);
		vt_tell(fd, "", 1);
		assert_int_equal(vt_ok(ep, 1).byte_len, lengths[i]);
		assert_int_equal(ibv_memcpy_from_dm(own, dm, 128, (lengths[i] + 3) & ~3u), 0);
		vt_check(own, lengths[i], (uint32_t)i);
	}
	free(own);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
}

static void messages_go_from_device_memory_to_device_memory(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t);
	struct ibv_dm *dm = alloc(t, LEN);
	struct ibv_mr *mr = ibv_reg_dm_mr(a->pd, dm, 0, LEN, DM_ACCESS);
	struct vt_addr peer;
	struct vt_peer p;
	char byte;

	vt_peer_start(&p, "receiver");
	vt_meet(a, p.fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		vt_hear(p.fd, &byte, 1);
		fill(dm, lengths[i], (uint32_t)i);
		send_dm(a, mr, 0, lengths[i]);
		vt_ok(a, 2);
	}
	vt_peer_finish(&p);
	send_dm(a, mr, LEN - 10, 11); /* one byte too many */
	assert_int_not_equal(vt_wait(a).status, IBV_WC_SUCCESS);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
}

/* ---- a peer reads and writes it ---- */
static void role_owner(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t), *other = vt_ep(t, .pd = ep->pd);
	struct ibv_dm *dm = alloc(t, LEN);
	struct ibv_mr *mr, *readable;
	char *want = malloc(LEN);
	struct vt_addr peer;

	fill(dm, LEN, 5);
	mr = ibv_reg_dm_mr(ep->pd, dm, 104, LEN - 200, DM_ACCESS);
	readable = ibv_reg_dm_mr(ep->pd, dm, 0, LEN, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ZERO_BASED);
	vt_meet(ep, fd, NULL, &peer);
	vt_meet(other, fd, NULL, &peer);
	vt_tell(fd, &(struct place){.len = mr->length, .rkey = mr->rkey}, sizeof(struct place));
	vt_tell(fd, &(struct place){.len = LEN, .rkey = readable->rkey}, sizeof(struct place));
	vt_hear(fd, want, LEN);
	compare(dm, want, LEN);
	free(want);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dereg_mr(readable), 0);
	assert_int_equal(ibv_free_dm(dm), 0);
	vt_tell(fd, "", 1);
}

static void one_request(struct vt_ep *a, const struct place *to, char *copy, uint32_t *seed)
{
	uint32_t len = vt_random(seed) % 3 ? vt_random(seed) % 64 : vt_random(seed) % 60000;
	uint64_t off = vt_random(seed) % (to->len - len + 1), was;

	switch (vt_random(seed) % 4) {
	case 0:
		must_read(a, to, off, 0, len);
		assert_memory_equal(a->buf, copy + off, len);
		break;
	case 1:
		off = off / 8 * 8;
		if (!vt_can("ATOMIC") || off + 8 > to->len)
			break;
		memcpy(&was, copy + off, 8);
		vt_post(a, .op = IBV_WR_ATOMIC_CMP_AND_SWP, .id = 2, .len = 8, .raddr = off, .rkey = to->rkey,
			.add = was, .swap = *seed);
		vt_ok(a, 2);
		assert_memory_equal(a->buf, &was, 8);
		was = *seed;
		memcpy(copy + off, &was, 8);
		break;
	default:
		vt_fill(a->buf, len, *seed);
		memcpy(copy + off, a->buf, len);
		must_write(a, to, off, 0, len);
	}
}

/* How often this process has device memory of others mapped, with these rights. */
static unsigned windows(const char *rights)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned n = 0;

	while (fgets(line, sizeof(line), f))
		n += strstr(line, "anyrdma-dm") && strstr(line, rights);
	fclose(f);
	return n;
}

static void peer_reads_and_writes_it(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = 128 << 10), *b = vt_ep(t);
	char *copy = malloc(LEN), byte;
	struct place to, readable;
	uint32_t seed = 7;
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "owner");
	vt_meet(a, p.fd, NULL, &peer);
	vt_meet(b, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	vt_hear(p.fd, &readable, sizeof(readable));
	vt_fill(copy, LEN, 5);
	for (int i = 0; i < REQUESTS; i++)
		one_request(a, &to, copy + 104, &seed);
	for (int i = 0; i < 2; i++) {
		must_read(a, &readable, 0, 0, 2000); /* over all that is there */
		assert_memory_equal(a->buf, copy, 2000);
	}
	if (peers_act()) {
		assert_int_equal(windows("rw-s"), 1);
		assert_int_equal(windows("r--s"), 1);
	}
	assert_int_not_equal(act_on(b, vt_refusable(), &to, to.len - 7, 0, 8), IBV_WC_SUCCESS);
	vt_tell(p.fd, copy, LEN);
	vt_hear(p.fd, &byte, 1);
	free(copy);
	vt_peer_finish(&p);
}

/* ---- what is left of a process that was killed, while a peer that has used its memory is stopped ---- */
enum { MUCH = 16 << 20 };

static void role_killed(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	char *p = mmap(NULL, MUCH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte;
	struct ibv_dm *dm = alloc(t, MUCH);
	struct ibv_mr *mr = ibv_reg_mr(ep->pd, p, MUCH, VT_ALL_ACCESS), *dm_mr = NULL;
	struct place place[2] = {{.addr = (uintptr_t)p, .len = MUCH, .rkey = mr->rkey}};
	struct vt_addr peer;

	if (dm)
		dm_mr = ibv_reg_dm_mr(ep->pd, dm, 0, MUCH, DM_ACCESS);
	if (dm_mr)
		place[1] = (struct place){.len = MUCH, .rkey = dm_mr->rkey};
	vt_meet(ep, fd, NULL, &peer);
	vt_tell(fd, place, sizeof(place));
	vt_hear(fd, &byte, 1); /* never */
}

static void role_user(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t, .len = 1 << 20);
	struct vt_addr peer;
	struct place place[2];
	char byte;

	vt_meet(ep, fd, NULL, &peer);
	vt_hear(fd, place, sizeof(place));
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 2; i++) {
			for (uint64_t off = 0; off < place[i].len; off += ep->len)
				must_write(ep, &place[i], off, 0, (uint32_t)ep->len);
		}
	}
	vt_tell(fd, "", 1);
	vt_hear(fd, &byte, 1); /* asleep: it makes no call of verbs any more */
}

/* Bytes of a process's mappings whose name has this in it. */
static uint64_t mapped_bytes(pid_t pid, const char *name)
{
	unsigned long start, end;
	char path[32], line[512];
	uint64_t sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "re");
	while (fgets(line, sizeof(line), f)) {
		if (strstr(line, name) && sscanf(line, "%lx-%lx", &start, &end) == 2)
			sum += end - start;
	}
	fclose(f);
	return sum;
}

/* What one says to the other; both believe that they speak to each other. */
static void relay(int a, int b, size_t len)
{
	char buf[256];

	assert_true(len <= sizeof(buf));
	vt_hear(a, buf, len);
	vt_tell(b, buf, len);
}

static void introduce(const struct vt_peer *a, const struct vt_peer *b)
{
	relay(a->fd, b->fd, sizeof(struct vt_addr));
	relay(b->fd, a->fd, sizeof(struct vt_addr));
	relay(a->fd, b->fd, 1);
	relay(b->fd, a->fd, 1);
	relay(a->fd, b->fd, 2 * sizeof(struct place));
}

static void gone_soon(pid_t pid, const char *name, uint64_t own)
{
	double end = vt_deadline();

	while (mapped_bytes(pid, name) > own) {
		if (vt_now() > end)
			fail_msg("%s of a killed process is still mapped", name);
		usleep(1000);
	}
}

static bool moves_pages(void)
{
	const char *v = getenv("ANYRDMA_LOCAL");

	return v && !strcmp(v, "map") && vt_userfaultfd();
}

static void little_is_left_of_a_killed_process(void **state)
{
	struct vt *t = *state;
	struct vt_peer killed, user;
	int status;
	char byte;

	if (vt_by_cm(t))
		skip_because("the peers are not connected by rdma_cm");
	vt_peer_start(&killed, "killed");
	vt_peer_start(&user, "user");
	introduce(&killed, &user);
	vt_hear(user.fd, &byte, 1);
	assert_int_equal(kill(user.pid, SIGSTOP), 0);
	assert_int_equal(waitpid(user.pid, &status, WUNTRACED), user.pid);
	vt_peer_kill(&killed);
	/* By default nothing of its ordinary memory; of its device memory what the device gives at most. */
	if (!moves_pages())
		assert_int_equal(mapped_bytes(user.pid, "anyrdma-memory"), 0);
	assert_true(mapped_bytes(user.pid, "anyrdma-dm") <= max_size(t));
	assert_int_equal(kill(user.pid, SIGCONT), 0);
	gone_soon(user.pid, "anyrdma-memory", moves_pages() ? MUCH / 2 : 0); /* its own has moved, too */
	gone_soon(user.pid, "anyrdma-dm", 0);
	vt_tell(user.fd, "", 1);
	vt_peer_finish(&user);
}

static const struct vt_role roles[] = {{"receiver", role_receiver}, {"owner", role_owner},
	{"killed", role_killed}, {"user", role_user}, {NULL, NULL}};

static const struct CMUnitTest tests[] = {
	VT_TEST(holds_what_is_copied),
	VT_TEST(bad_requests_are_refused),
	VT_TEST(is_busy_while_regions_are_left),
	VT_TEST(size_is_what_the_device_says),
	VT_TEST(nothing_is_left_of_many),
	VT_TEST(child_reaches_nothing),
	VT_TEST(messages_go_from_device_memory_to_device_memory),
	VT_TEST(peer_reads_and_writes_it),
	VT_TEST(little_is_left_of_a_killed_process),
};

VT_MAIN("dm", tests, roles)
