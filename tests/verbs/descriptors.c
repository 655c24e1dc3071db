/* SPDX-License-Identifier: MIT */
/* The library's file descriptors in a program that has closed its standard streams, or may not open many. */
#include "fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void role_closed_streams(struct vt *t, int fd)
{
	void *state = NULL;
	struct vt_ep *a, *b;
	char clean = 'y';

	(void)t;
	for (int i = 0; i < 3; i++)
		close(i);
	assert_int_equal(vt_setup(&state), 0);
	vt_pair(state, IBV_QPT_RC, &a, &b);
	vt_ping_pong(a, b);
	for (int i = 0; i < 3; i++)
		if (fcntl(i, F_GETFD) >= 0)
			clean = 'n';
	vt_tell(fd, &clean, 1);
	assert_int_equal(vt_teardown(&state), 0);
}

static void standard_streams_are_never_ours(void **state)
{
	struct vt_peer p;
	char clean;

	(void)state;
	vt_peer_start(&p, "closed_streams");
	vt_hear(p.fd, &clean, 1);
	vt_peer_finish(&p);
	assert_int_equal(clean, 'y');
}

static int open_files(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = -1; /* its own */

	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* All that a program needs to talk, closed again; 0 or what errno said. */
static int build_all(struct ibv_device *dev)
{
	struct ibv_context *ctx = ibv_open_device(dev);
	struct ibv_comp_channel *ch = ctx ? ibv_create_comp_channel(ctx) : NULL;
	struct ibv_cq *cq = ch ? ibv_create_cq(ctx, 4, NULL, ch, 0) : NULL;
	struct ibv_pd *pd = cq ? ibv_alloc_pd(ctx) : NULL;
	struct ibv_qp_init_attr attr = {.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = pd ? ibv_create_qp(pd, &attr) : NULL;
	int err = qp ? 0 : errno;

	if (qp)
		assert_int_equal(ibv_destroy_qp(qp), 0);
	if (pd)
		assert_int_equal(ibv_dealloc_pd(pd), 0);
	if (cq)
		assert_int_equal(ibv_destroy_cq(cq), 0);
	if (ch)
		assert_int_equal(ibv_destroy_comp_channel(ch), 0);
	if (ctx)
		assert_int_equal(ibv_close_device(ctx), 0);
	return err;
}

/* What came out of the pipe so far. */
static void drain(int fd, char *buf, size_t len)
{
	ssize_t n = read(fd, buf, len - 1);

	buf[n > 0 ? n : 0] = '\0';
}

/*
 * With room for 0, 1, 2, ... more descriptors: either all of it works or it fails by EMFILE, says what to do
 * about it, and leaves nothing open.
 */
static void role_few_descriptors(struct vt *t, int fd)
{
	struct ibv_device *dev = t->ctx->device;
	int words[2], last = -1, base;
	char said[4096];

	(void)fd;
	ibv_close_device(t->ctx);
	t->ctx = NULL;
	assert_int_equal(pipe2(words, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(dup2(words[1], STDERR_FILENO), STDERR_FILENO);
	assert_int_equal(build_all(dev), 0); /* what is opened once and kept, by anyone, is open now */
	base = open_files();
	for (int room = 0; room < 24; room++) {
		struct rlimit few, before;

		assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
		few = before;
		few.rlim_cur = (rlim_t)(base + room);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		last = build_all(dev);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
		drain(words[0], said, sizeof(said));
		assert_int_equal(open_files(), base);
		if (last) {
			assert_int_equal(last, EMFILE);
			assert_non_null(strstr(said, "ulimit -n"));
		}
	}
	assert_int_equal(last, 0);
	assert_string_equal(said, "");
}

static void too_few_descriptors_are_said_in_words(void **state)
{
	struct vt_peer p;

	(void)state;
	vt_peer_start(&p, "few_descriptors");
	vt_peer_finish(&p);
}

static const struct vt_role roles[] = {
	{"closed_streams", role_closed_streams},
	{"few_descriptors", role_few_descriptors},
	{NULL, NULL},
};

static const struct CMUnitTest tests[] = {
	VT_TEST(standard_streams_are_never_ours),
	VT_TEST(too_few_descriptors_are_said_in_words),
};

VT_MAIN("descriptors", tests, roles)
