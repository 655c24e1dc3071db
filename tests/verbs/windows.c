/* SPDX-License-Identifier: MIT */
/*
 * What a process has mapped of its peers' memory: it stays little, whatever the peers register, goes with
 * them, and the program finds everything of its own as it was: its record locks, its children, its
 * descriptors.
 */
#include "files.h"

#include <sched.h>
#include <sys/wait.h>

enum { REGIONS = 600, CYCLES = 10000, MAPPINGS = 1200 };

static void offer(int fd, const struct ibv_mr *mr, uint64_t inode)
{
	struct place place = {
		.addr = (uintptr_t)mr->addr, .len = mr->length, .inode = inode, .rkey = mr->rkey};

	vt_tell(fd, &place, sizeof(place));
}

/* ---- more regions than there are windows ---- */
static void role_many(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	int file = new_memfd(REGIONS * PAGE);
	char *p = map_file(file, REGIONS * PAGE, PROT_READ | PROT_WRITE), byte;
	struct ibv_mr *mr[REGIONS];
	struct vt_addr peer;

	vt_meet(ep, fd, NULL, &peer);
	for (unsigned i = 0; i < REGIONS; i++) {
		mr[i] = ibv_reg_mr(ep->pd, p + i * PAGE, PAGE, VT_ALL_ACCESS);
		assert_non_null(mr[i]);
		offer(fd, mr[i], 0);
	}
	vt_hear(fd, &byte, 1);
	for (unsigned i = 0; i < REGIONS; i++) {
		vt_check(p + i * PAGE, 100, i);
		vt_check_all(p + i * PAGE + 100, PAGE - 100, 0);
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	}
}

static void more_regions_than_windows(void **state)
{
	struct vt_ep *a = vt_ep(*state);
	unsigned maps = lines_of("/proc/self/maps"), descriptors;
	static struct place to[REGIONS];
	struct vt_addr peer;
	struct vt_peer p;

	vt_peer_start(&p, "many");
	vt_meet(a, p.fd, NULL, &peer);
	descriptors = open_descriptors();
	vt_hear(p.fd, to, sizeof(to));
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < REGIONS; i++) {
			vt_fill(a->buf, 100, i);
			must_write(a, &to[i], 0, 0, 100);
		}
	}
	must_read(a, &to[0], 0, 0, 1);
	assert_true(lines_of("/proc/self/maps") < maps + MAPPINGS);
	assert_true(open_descriptors() <= descriptors + 2); /* a thread may have one open just now */
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

/* ---- regions that come and go ---- */
static void role_cycles(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	int file = new_memfd(64 * PAGE);
	char *p = map_file(file, 64 * PAGE, PROT_READ | PROT_WRITE), byte;
	struct vt_addr peer;

	vt_meet(ep, fd, NULL, &peer);
	for (uint32_t i = 1; i <= CYCLES; i++) {
		struct ibv_mr *mr = ibv_reg_mr(ep->pd, p + i % 60 * PAGE, PAGE, VT_ALL_ACCESS);

		assert_non_null(mr);
		offer(fd, mr, 0);
		vt_hear(fd, &byte, 1);
		assert_int_equal(*(volatile uint32_t *)mr->addr, i);
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
}

static void regions_come_and_go(void **state)
{
	struct vt_ep *a = vt_ep(*state);
	unsigned maps = lines_of("/proc/self/maps"), descriptors, most = 0;
	struct vt_addr peer;
	struct vt_peer p;
	struct place to;

	vt_peer_start(&p, "cycles");
	vt_meet(a, p.fd, NULL, &peer);
	descriptors = open_descriptors();
	for (uint32_t i = 1; i <= CYCLES; i++) {
		vt_hear(p.fd, &to, sizeof(to));
		memcpy(a->buf, &i, sizeof(i));
		must_write(a, &to, 0, 0, sizeof(i));
		if (!vt_can("ACK"))
			must_read(a, &to, 0, 64, 1);
		vt_tell(p.fd, "", 1);
		if (i % 500 == 0 && lines_of("/proc/self/maps") > most)
			most = lines_of("/proc/self/maps");
	}
	assert_true(most < maps + MAPPINGS);
	assert_true(open_descriptors() <= descriptors + 2); /* a thread may have one open just now */
	vt_peer_finish(&p);
}

/* ---- deregistered while the peer writes ---- */
static void role_writer(struct vt *t, int fd)
{
	struct vt_addr peer;
	struct place to;
	char byte;

	while (read(fd, &byte, 1) == 1) {
		struct vt_ep *ep = vt_ep(t, .len = 64 * PAGE);
		enum ibv_wc_status status;

		memset(ep->buf, 0xee, ep->len);
		vt_meet(ep, fd, NULL, &peer);
		vt_hear(fd, &to, sizeof(to));
		do
			status = act_on(ep, IBV_WR_RDMA_WRITE, &to, 0, 0, 64 * PAGE);
		while (status == IBV_WC_SUCCESS);
		vt_tell(fd, &status, sizeof(status));
		vt_ep_close(ep);
	}
}

static void nothing_lands_after_deregistration(void **state)
{
	struct vt *t = *state;
	char *p = map_file(new_memfd(64 * PAGE), 64 * PAGE, PROT_READ | PROT_WRITE);
	enum ibv_wc_status status;
	struct vt_addr peer;
	struct vt_peer other;

	vt_peer_start(&other, "writer");
	for (int i = 0; i < 10; i++) {
		struct vt_ep *ep = vt_ep(t);
		struct ibv_mr *mr = ibv_reg_mr(ep->pd, p, 64 * PAGE, VT_ALL_ACCESS);

		memset(p, 0, 64 * PAGE);
		vt_tell(other.fd, "", 1);
		vt_meet(ep, other.fd, NULL, &peer);
		offer(other.fd, mr, 0);
		while (!((volatile char *)p)[i * PAGE])
			sched_yield();
		assert_int_equal(ibv_dereg_mr(mr), 0);
		vt_fill(p, 64 * PAGE, 8);
		vt_hear(other.fd, &status, sizeof(status));
		vt_check(p, 64 * PAGE, 8);
		vt_ep_close(ep);
	}
	vt_peer_finish(&other);
}

/* ---- record locks ---- */
static void lock_at(int fd, short type, off_t at)
{
	struct flock l = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 10};

	assert_int_equal(fcntl(fd, F_SETLK, &l), 0);
}

/* Who holds the lock there, as a third process sees it; 0: nobody. */
static pid_t holder(const char *path, off_t at)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = at, .l_len = 10};
	pid_t child = fork();
	int status;

	if (!child) {
		fcntl(open(path, O_RDWR), F_GETLK, &l);
		/* A process number may have more bits than a status: which of the two it is will do. */
		_exit(l.l_type == F_UNLCK ? 0 : l.l_pid == getppid() ? 1 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status) == 1 ? getpid() : WEXITSTATUS(status);
}

static void role_locked(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	struct vt_addr peer;
	struct ibv_mr *mr;
	char path[64], *p, byte;
	int file;

	vt_hear(fd, path, sizeof(path));
	file = open(path, O_RDWR | O_CLOEXEC);
	lock_at(file, F_WRLCK, 100);
	p = map_file(file, 16 * PAGE, PROT_READ | PROT_WRITE);
	vt_meet(ep, fd, NULL, &peer);
	mr = ibv_reg_mr(ep->pd, p, 16 * PAGE, VT_ALL_ACCESS);
	offer(fd, mr, inode_of(file));
	vt_hear(fd, &byte, 1);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	vt_tell(fd, "", 1);
	vt_hear(fd, &byte, 1);
}

/* The initiator has the file too, opened in one way or another, and a lock on it. */
static void locks_survive(struct vt *t, const int *modes, unsigned n)
{
	struct vt_ep *a = vt_ep(t, .len = 16 * PAGE);
	char path[64] = "/dev/shm/anyrdma-locks.XXXXXX", byte;
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;
	int fd[4], made = mkostemp(path, O_CLOEXEC);

	assert_int_equal(ftruncate(made, 16 * PAGE), 0);
	close(made);
	for (unsigned i = 0; i < n; i++)
		fd[i] = open(path, modes[i] | O_CLOEXEC);
	lock_at(fd[0], modes[0] == O_RDONLY ? F_RDLCK : F_WRLCK, 0);
	vt_peer_start(&p, "locked");
	vt_tell(p.fd, path, sizeof(path));
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	for (int i = 0; i < 4; i++)
		must_write(a, &to, 0, 0, 16 * PAGE);
	must_read(a, &to, 0, 0, 16 * PAGE);
	assert_int_equal(holder(path, 0), getpid());
	assert_int_equal(holder(path, 100), 2);
	vt_tell(p.fd, "", 1);
	vt_hear(p.fd, &byte, 1);
	assert_int_equal(holder(path, 0), getpid());
	assert_int_equal(holder(path, 100), 2);
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
	vt_ep_close(a);
	assert_int_equal(holder(path, 0), getpid());
	for (unsigned i = 0; i < n; i++)
		close(fd[i]);
	unlink(path);
}

static void record_locks_survive(void **state)
{
	locks_survive(*state, (int[]){O_RDWR}, 1);
	locks_survive(*state, (int[]){O_RDONLY}, 1);
	locks_survive(*state, (int[]){O_WRONLY}, 1);
	locks_survive(*state, (int[]){O_RDONLY, O_RDWR}, 2);
}

/* ---- children ---- */
static void role_forks(struct vt *t, int fd)
{
	struct vt_ep *ep = vt_ep(t);
	int file = new_memfd(16 * PAGE), status;
	char *p = map_file(file, 16 * PAGE, PROT_READ | PROT_WRITE), byte;
	struct ibv_mr *mr = ibv_reg_mr(ep->pd, p, 16 * PAGE, VT_ALL_ACCESS);
	struct vt_addr peer;
	pid_t child;

	vt_meet(ep, fd, NULL, &peer);
	offer(fd, mr, inode_of(file));
	vt_hear(fd, &byte, 1);
	child = fork();
	if (!child) { /* it shares the file, as it would without us */
		vt_check(p, PAGE, 1);
		vt_fill(p + PAGE, PAGE, 2);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	vt_tell(fd, "", 1);
	vt_hear(fd, &byte, 1);
	vt_check(p, PAGE, 3);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void children_have_no_windows(void **state)
{
	struct vt_ep *a = vt_ep(*state);
	struct vt_addr peer;
	struct place to;
	struct vt_peer p;
	char rights[8], byte;
	pid_t child;
	int status;

	vt_peer_start(&p, "forks");
	vt_meet(a, p.fd, NULL, &peer);
	vt_hear(p.fd, &to, sizeof(to));
	vt_fill(a->buf, PAGE, 1);
	for (int i = 0; i < 2; i++)
		must_write(a, &to, 0, 0, PAGE);
	must_read(a, &to, 0, 2 * PAGE, 1);
	child = fork();
	if (!child) {
		rights_to(to.inode, rights);
		_exit(rights[0]);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	vt_tell(p.fd, "", 1);
	vt_hear(p.fd, &byte, 1);
	must_read(a, &to, PAGE, PAGE, PAGE);
	vt_check(a->buf + PAGE, PAGE, 2);
	vt_fill(a->buf, PAGE, 3);
	must_write(a, &to, 0, 0, PAGE);
	must_read(a, &to, 0, 2 * PAGE, 1);
	vt_tell(p.fd, "", 1);
	vt_peer_finish(&p);
}

static const struct vt_role roles[] = {{"many", role_many}, {"cycles", role_cycles}, {"writer", role_writer},
	{"locked", role_locked}, {"forks", role_forks}, {NULL, NULL}};

static const struct CMUnitTest tests[] = {
	VT_TEST(more_regions_than_windows),
	VT_TEST(regions_come_and_go),
	VT_TEST(nothing_lands_after_deregistration),
	VT_TEST(record_locks_survive),
	VT_TEST(children_have_no_windows),
};

VT_MAIN("windows", tests, roles)
