/* SPDX-License-Identifier: MIT */
/*
 * Regions that lie in files mapped MAP_SHARED: a peer on this host maps the same file, with the rights of the
 * region and no more. What it reads and writes is what it would be over the wire, whatever becomes of the
 * file.
 */
#include "files.h"

#include <errno.h>
#include <pthread.h>

enum { LEN = 300000, REQUESTS = 120 };

/* ---- kinds of files: each gives LEN bytes, or NULL when this host has none of it ---- */
struct memory {
	char *p;
	int fd; /* -1: closed */
	uint64_t inode;
};

static bool get_memfd(struct memory *m)
{
	m->fd = new_memfd(LEN);
	m->inode = inode_of(m->fd);
	m->p = map_file(m->fd, LEN, PROT_READ | PROT_WRITE);
	return true;
}

static bool get_closed_memfd(struct memory *m)
{
	get_memfd(m);
	close(m->fd);
	m->fd = -1;
	return true;
}

static bool get_named(struct memory *m, const char *dir, bool unlinked, bool closed)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/anyrdma-shareable.XXXXXX", dir);
	m->fd = mkostemp(path, O_CLOEXEC);
	if (m->fd < 0)
		return false;
	assert_int_equal(ftruncate(m->fd, LEN), 0);
	m->inode = inode_of(m->fd);
	m->p = map_file(m->fd, LEN, PROT_READ | PROT_WRITE);
	if (unlinked)
		unlink(path);
	if (closed) {
		close(m->fd);
		m->fd = -1;
	}
	return true;
}

static char to_unlink[64];

static bool get_tmpfs(struct memory *m)
{
	return get_named(m, "/dev/shm", true, false);
}

/* Only its name leads to it: that goes when the peer has found it. */
static bool get_closed_tmpfs(struct memory *m)
{
	strcpy(to_unlink, "/dev/shm/anyrdma-closed.XXXXXX");
	m->fd = mkostemp(to_unlink, O_CLOEXEC);
	if (m->fd < 0)
		return false;
	assert_int_equal(ftruncate(m->fd, LEN), 0);
	m->inode = inode_of(m->fd);
	m->p = map_file(m->fd, LEN, PROT_READ | PROT_WRITE);
	close(m->fd);
	m->fd = -1;
	return true;
}

static bool get_lost(struct memory *m)
{
	return get_named(m, "/dev/shm", true, true);
}

static bool get_on_disk(struct memory *m)
{
	return get_named(m, "/var/tmp", true, false);
}

static bool get_huge(struct memory *m)
{
	m->fd = memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
	if (m->fd < 0 || ftruncate(m->fd, 2 << 20))
		return false;
	m->inode = inode_of(m->fd);
	m->p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 0);
	return m->p != MAP_FAILED;
}

static bool get_anonymous(struct memory *m)
{
	m->p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	m->fd = -1;
	return m->p != MAP_FAILED;
}

/* The first half in one file, the second in another. */
static bool get_two(struct memory *m)
{
	size_t half = LEN / 2 / PAGE * PAGE;
	int second = new_memfd(LEN);

	get_memfd(m);
	assert_ptr_equal(
		mmap(m->p + half, LEN - half, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, second, 0),
		m->p + half);
	close(second);
	return true;
}

/* The program's view of it begins somewhere in the file. */
static bool get_offset(struct memory *m)
{
	m->fd = new_memfd(LEN + 5 * PAGE);
	m->inode = inode_of(m->fd);
	m->p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, m->fd, 5 * PAGE);
	return m->p != MAP_FAILED;
}

static const struct kind {
	const char *name;
	bool (*get)(struct memory *m);
	bool mapped; /* by peers */
	size_t off;  /* of the region */
} kinds[] = {
	{"memfd", get_memfd, true, 0},
	{"part of a memfd", get_memfd, true, 4099},
	{"memfd, descriptor closed", get_closed_memfd, false, 0},
	{"tmpfs file without a name", get_tmpfs, true, 0},
	{"tmpfs file, descriptor closed", get_closed_tmpfs, true, 17},
	{"tmpfs file without name and descriptor", get_lost, false, 0},
	{"file on disk", get_on_disk, true, 0},
	{"huge pages", get_huge, true, 0},
	{"shared memory without a file", get_anonymous, false, 0},
	{"two files", get_two, false, 0},
	{"a file from its middle on", get_offset, true, 8},
};

/* ---- the owner: registers each in turn, and compares ---- */
static void offer(int fd, const struct ibv_mr *mr, uint64_t inode)
{
	struct place place = {.inode = inode};

	if (mr) {
		place.addr = (uintptr_t)mr->addr;
		place.len = mr->length;
		place.rkey = mr->rkey;
	}
	vt_tell(fd, &place, sizeof(place));
}

static void compare(int fd, const void *p, size_t len)
{
	char *want = malloc(len);

	vt_hear(fd, want, len);
	assert_memory_equal(p, want, len);
	free(want);
}

static void serve(struct vt_ep *ep, int fd, const struct kind *k)
{
	struct memory m = {.fd = -1};
	struct ibv_mr *mr;

	to_unlink[0] = 0;
	if (!k->get(&m)) {
		offer(fd, NULL, 0);
		return;
	}
	vt_fill(m.p, LEN, 5);
	mr = ibv_reg_mr(ep->pd, m.p + k->off, LEN - k->off - 1, VT_ALL_ACCESS);
	assert_non_null(mr);
	offer(fd, mr, m.inode);
	compare(fd, m.p, LEN);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	if (m.fd >= 0)
		close(m.fd);
	if (to_unlink[0])
		unlink(to_unlink);
	munmap(m.p, LEN);
	vt_tell(fd, "", 1);
}

static void role_kinds(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;

	vt_meet(ep, fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
		serve(ep, fd, &kinds[i]);
}

/* ---- the initiator: does to the place what it does to its own copy ---- */
static void add(struct vt_ep *a, const struct place *to, char *copy, uint64_t off)
{
	uint64_t was;

	off += -(to->addr + off) & 7;
	if (!vt_can("ATOMIC") || off + 8 > to->len)
		return;
	memcpy(&was, copy + off, 8);
	vt_post(a, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .id = 2, .len = 8, .raddr = to->addr + off,
		.rkey = to->rkey, .add = 0x0102030405060708);
	vt_ok(a, 2);
	assert_memory_equal(a->buf, &was, 8);
	was += 0x0102030405060708;
	memcpy(copy + off, &was, 8);
}

static void one_request(struct vt_ep *a, const struct place *to, char *copy, uint32_t *seed)
{
	uint32_t len = vt_random(seed) % 3 ? vt_random(seed) % 64 : vt_random(seed) % 70000;
	uint64_t off = vt_random(seed) % (to->len - len + 1);

	switch (vt_random(seed) % 4) {
	case 0:
		must_read(a, to, off, 0, len);
		assert_memory_equal(a->buf, copy + off, len);
		break;
	case 1:
		add(a, to, copy, off);
		break;
	default:
		vt_fill(a->buf, len, *seed);
		memcpy(copy + off, a->buf, len);
		must_write(a, to, off, 0, len);
	}
}

/* The first request opens the window. A cancellation that is due waits until the call is over. */
struct first {
	struct vt_ep *ep;
	const struct place *to;
	bool posted;
};

static void *write_when_cancelled(void *arg)
{
	struct first *f = arg;

	pthread_cancel(pthread_self());
	f->posted = !vt_try(
		f->ep, .op = IBV_WR_RDMA_WRITE, .id = 9, .len = 8, .raddr = f->to->addr, .rkey = f->to->rkey);
	pthread_testcancel();
	return NULL;
}

static void write_first(struct vt_ep *a, const struct place *to, const char *copy)
{
	struct first f = {a, to, false};
	pthread_t thread;

	memcpy(a->buf, copy, 8);
	assert_int_equal(pthread_create(&thread, NULL, write_when_cancelled, &f), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(f.posted);
	vt_ok(a, 9);
}

static void check_window(const struct kind *k, uint64_t inode)
{
	char rights[8];

	if (!inode || !peers_act())
		return;
	rights_to(inode, rights);
	if (strcmp(rights, k->mapped ? "rw-s" : ""))
		fail_msg("%s: mapped as '%s'", k->name, rights);
}

static void every_file_is_read_and_written(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = 128 << 10);
	char *copy = malloc(LEN), byte;
	uint32_t seed = 7;
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "kinds");
	vt_meet(a, p.fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
		struct place to;

		vt_hear(p.fd, &to, sizeof(to));
		if (!to.len)
			continue;
		vt_fill(copy, LEN, 5);
		write_first(a, &to, copy + kinds[i].off);
		for (int n = 0; n < REQUESTS; n++)
			one_request(a, &to, copy + kinds[i].off, &seed);
		vt_landed(a,
			&(struct vt_ep){.buf = (void *)(uintptr_t)to.addr,
				.mr = &(struct ibv_mr){.rkey = to.rkey, .addr = (void *)(uintptr_t)to.addr}});
		check_window(&kinds[i], to.inode);
		vt_tell(p.fd, copy, LEN);
		vt_hear(p.fd, &byte, 1);
	}
	free(copy);
	vt_peer_finish(&p);
}

/* ---- rights and bounds ---- */
/* One memfd with regions of several rights in its middle; says at the end whether all else is as it was. */
static const int rights[] = {IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE,
	VT_ALL_ACCESS, IBV_ACCESS_LOCAL_WRITE};

static void role_rights(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct ibv_mr *mr[ARRAY_LEN(rights)];
	struct vt_addr peer;

	for (size_t i = 0; i < ARRAY_LEN(rights); i++) {
		struct memory m;

		get_memfd(&m);
		vt_fill(m.p, LEN, 5);
		mr[i] = ibv_reg_mr(ep->pd, m.p + 2 * PAGE, PAGE, rights[i]);
		assert_non_null(mr[i]);
		offer(fd, mr[i], m.inode);
	}
	for (size_t i = 0; i < 2 * ARRAY_LEN(rights); i++) {
		ep = vt_ep(t, .pd = ep->pd);
		vt_meet(ep, fd, NULL, &peer);
	}
	for (size_t i = 0; i < ARRAY_LEN(rights); i++)
		compare(fd, (char *)mr[i]->addr - 2 * PAGE, LEN);
	for (size_t i = 0; i < ARRAY_LEN(rights); i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
}

static void refused(struct vt *t, struct vt_peer *p, const struct place *to, enum ibv_wr_opcode op,
	uint64_t off, uint32_t len)
{
	struct vt_ep *a = vt_ep(t, .len = 2 * PAGE);
	struct vt_addr peer;

	vt_meet(a, p->fd, NULL, &peer);
	if (to->rkey && vt_can("ACK"))
		assert_int_equal(act_on(a, op, to, off, 0, len), IBV_WC_REM_ACCESS_ERR);
	else
		act_on(a, op, to, off, 0, len); /* told later, if at all; the owner will look */
}

static void region_is_mapped_with_its_rights(void **state)
{
	static const char *const want[] = {"r--s", "r--s", "rw-s", ""};
	struct place to[ARRAY_LEN(rights)];
	char *copy = malloc(LEN), perms[8];
	struct vt *t = *state;
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "rights");
	for (size_t i = 0; i < ARRAY_LEN(rights); i++)
		vt_hear(p.fd, &to[i], sizeof(to[i]));
	for (size_t i = 0; i < ARRAY_LEN(rights); i++) {
		struct vt_ep *a = vt_ep(t);

		vt_meet(a, p.fd, NULL, &peer);
		if (rights[i] & IBV_ACCESS_REMOTE_READ) {
			must_read(a, &to[i], 100, 0, 200);
			must_read(a, &to[i], 100, 0, 200);
		}
		rights_to(to[i].inode, perms);
		if (peers_act())
			assert_string_equal(perms, want[i]);
	}
	refused(t, &p, &to[0], IBV_WR_RDMA_WRITE, 0, 8);
	refused(t, &p, &to[1], IBV_WR_RDMA_WRITE, 0, 8);
	refused(t, &p, &to[2], IBV_WR_RDMA_WRITE, PAGE - 7, 8);
	refused(t, &p, &to[3], IBV_WR_RDMA_WRITE, 0, 8);
	vt_fill(copy, LEN, 5);
	for (size_t i = 0; i < ARRAY_LEN(rights); i++)
		vt_tell(p.fd, copy, LEN);
	free(copy);
	vt_peer_finish(&p);
}

/* A file that its owner may only read. */
static void role_read_only(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;
	struct memory m;
	struct ibv_mr *mr;
	char path[32], *p, byte;
	int only;

	get_memfd(&m);
	vt_fill(m.p, LEN, 5);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", m.fd);
	only = open(path, O_RDONLY | O_CLOEXEC);
	munmap(m.p, LEN);
	close(m.fd);
	p = map_file(only, LEN, PROT_READ);
	vt_meet(ep, fd, NULL, &peer);
	mr = ibv_reg_mr(ep->pd, p, LEN, IBV_ACCESS_REMOTE_READ);
	offer(fd, mr, m.inode);
	vt_hear(fd, &byte, 1);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void read_only_file_is_read(void **state)
{
	struct vt_ep *a = vt_ep(*state, .len = LEN);
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;
	char perms[8];

	vt_peer_start(&p, "read_only");
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	for (int i = 0; i < 2; i++) {
		memset(a->buf, 0, LEN);
		must_read(a, &to, 0, 0, LEN);
		vt_check(a->buf, LEN, 5);
	}
	rights_to(to.inode, perms);
	if (peers_act())
		assert_string_equal(perms, "r--s");
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- the file becomes shorter under the peer's hands ---- */
static void role_shrinks(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t), *other = vt_ep(t, .pd = ep->pd);
	struct vt_addr peer;
	struct ibv_mr *mr;
	struct memory m;
	char byte;

	get_memfd(&m);
	vt_meet(ep, fd, NULL, &peer);
	vt_meet(other, fd, NULL, &peer);
	mr = ibv_reg_mr(ep->pd, m.p, LEN, VT_ALL_ACCESS);
	offer(fd, mr, m.inode);
	vt_hear(fd, &byte, 1);
	assert_int_equal(ftruncate(m.fd, PAGE), 0);
	vt_tell(fd, "", 1);
	vt_hear(fd, &byte, 1);
	vt_check(m.p, PAGE, 3);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void shorter_file_is_an_error_and_no_crash(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a = vt_ep(t, .len = LEN), *b = vt_ep(t, .len = LEN);
	struct vt_conn c = vt_conn(t);
	enum ibv_wc_status status;
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;
	char byte;

	c.timeout = VT_UNANSWERED;
	vt_peer_start(&p, "shrinks");
	vt_meet(a, p.fd, NULL, &peer);
	vt_meet(b, p.fd, &c, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	for (int i = 0; i < 3; i++)
		must_write(a, &to, 0, 0, LEN);
	must_read(a, &to, 0, LEN - 1, 1); /* all that is there */
	vt_tell(p.fd, "", 1);
	vt_hear(p.fd, &byte, 1);
	vt_fill(a->buf, PAGE, 3);
	must_write(a, &to, 0, 0, PAGE); /* this much is left */
	must_read(a, &to, 0, LEN - 1, 1);
	status = act_on(a, vt_refusable(), &to, 2 * PAGE, 0, LEN - 2 * PAGE);
	assert_int_not_equal(status, IBV_WC_SUCCESS);
	if (vt_can("ACK"))
		assert_true(status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR);
	/* A READ that cannot be answered is not; a stream that goes by shared memory waits a minute for it.
	 */
	if (!vt_by_cm(t))
		assert_int_not_equal(act_on(b, IBV_WR_RDMA_READ, &to, PAGE, 0, LEN - PAGE), IBV_WC_SUCCESS);
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- messages out of files and into files ---- */
static struct ibv_mr *own_file(struct vt_ep *ep, char **p)
{
	struct memory m;

	get_memfd(&m);
	*p = m.p;
	return ibv_reg_mr(ep->pd, m.p, LEN, IBV_ACCESS_LOCAL_WRITE);
}

static const uint32_t lengths[] = {1, 47, 100, 5000, 40000, LEN};

static void post_recv_into(struct vt_ep *ep, struct ibv_mr *mr)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, LEN, mr->lkey};
	struct ibv_recv_wr *bad, wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1};

	assert_int_equal(ibv_post_recv(ep->qp, &wr, &bad), 0);
}

static void post_send_from(struct vt_ep *ep, struct ibv_mr *mr, uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, len, mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 2,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};

	assert_int_equal(ibv_post_send(ep->qp, &wr, &bad), 0);
}

static void role_receiver(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;
	struct ibv_mr *mr;
	char *p;

	mr = own_file(ep, &p);
	vt_meet(ep, fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		post_recv_into(ep, mr);
		vt_tell(fd, "", 1);
		assert_int_equal(vt_ok(ep, 1).byte_len, lengths[i]);
		vt_check(p, lengths[i], (uint32_t)i);
	}
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void messages_go_from_file_to_file(void **state)
{
	struct vt_ep *a = vt_ep(*state);
	struct vt_addr peer;
	struct ibv_mr *mr;
	struct vt_peer p;
	char *own, byte;

	mr = own_file(a, &own);
	vt_peer_start(&p, "receiver");
	vt_meet(a, p.fd, NULL, &peer);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		vt_hear(p.fd, &byte, 1);
		vt_fill(own, lengths[i], (uint32_t)i);
		post_send_from(a, mr, lengths[i]);
		vt_ok(a, 2);
	}
	vt_peer_finish(&p);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static const struct vt_role roles[] = {{"kinds", role_kinds}, {"rights", role_rights},
	{"read_only", role_read_only}, {"shrinks", role_shrinks}, {"receiver", role_receiver}, {NULL, NULL}};

static const struct CMUnitTest tests[] = {
	VT_TEST(every_file_is_read_and_written),
	VT_TEST(region_is_mapped_with_its_rights),
	VT_TEST(read_only_file_is_read),
	VT_TEST(shorter_file_is_an_error_and_no_crash),
	VT_TEST(messages_go_from_file_to_file),
};

VT_MAIN("shareable", tests, roles)
