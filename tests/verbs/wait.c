/* SPDX-License-Identifier: MIT */
/* Waiting for completions and events, buffer contents, peer processes, and a theme's main(). */
#include "fixture.h"

#include "../surroundings.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

double vt_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec + ts.tv_nsec / 1e9;
}

double vt_deadline(void)
{
	const char *v = getenv("VERBS_DEADLINE");

	return vt_now() + (v && *v ? atof(v) : 60);
}

bool vt_slow(void)
{
#ifdef __SANITIZE_THREAD__
	return true;
#else
	return getenv("VERBS_DEADLINE") != NULL; /* tests/sanitize/valgrind.py */
#endif
}

uint32_t vt_random(uint32_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 17;
	*s ^= *s << 5;
	return *s;
}

uint32_t vt_mtu_bytes(enum ibv_mtu mtu)
{
	return 128u << mtu;
}

static int poll_until(struct ibv_cq *cq, struct ibv_wc *wc, double end)
{
	int n;

	do {
		for (int i = 0; i < 16; i++) { /* an empty poll may yield the CPU for milliseconds */
			memset(wc, 0xEE, sizeof(*wc));
			n = ibv_poll_cq(cq, 1, wc);
			if (n)
				return n;
		}
	} while (vt_now() < end);
	return 0;
}

struct ibv_wc vt_wait_at(struct ibv_cq *cq, const char *file, int line)
{
	struct ibv_wc wc;
	int n = poll_until(cq, &wc, vt_deadline());

	if (n != 1) {
		print_error("%s\n", n ? "polling the CQ failed" : "no completion before the deadline");
		_fail(file, line);
	}
	return wc;
}

struct ibv_wc vt_deliver_at(struct vt_ep *from, const struct vt_req *r, struct vt_ep *to, uint64_t recv_id,
	const char *file, int line)
{
	assert_int_equal(vt_try_post(from, r), 0);
	vt_expect_at(from->cq, r->id, IBV_WC_SUCCESS, file, line);
	return vt_expect_at(to->cq, recv_id, IBV_WC_SUCCESS, file, line);
}

struct ibv_wc vt_expect_either_at(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status a, enum ibv_wc_status b,
	const char *file, int line)
{
	struct ibv_wc wc = vt_wait_at(cq, file, line);

	if (wc.wr_id != id || (wc.status != a && wc.status != b)) {
		print_error("completion of request %llu, %s; expected %llu, %s\n",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), (unsigned long long)id,
			ibv_wc_status_str(a));
		_fail(file, line);
	}
	return wc;
}

struct ibv_wc vt_expect_at(
	struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status, const char *file, int line)
{
	return vt_expect_either_at(cq, id, status, status, file, line);
}

static bool readable(int fd, int ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	int n;

	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR);
	return n == 1 && (p.revents & POLLIN);
}

bool vt_readable_soon(int fd)
{
	return readable(fd, (int)((vt_deadline() - vt_now()) * 1000));
}

bool vt_readable_now(int fd)
{
	return readable(fd, 0);
}

void vt_nonblock(int fd)
{
	assert_int_equal(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK), 0);
}

/* What a device may say at any time, about nothing the tests did. */
static bool is_weather(enum ibv_event_type type)
{
	return type == IBV_EVENT_COMM_EST || type == IBV_EVENT_GID_CHANGE || type == IBV_EVENT_PORT_ACTIVE ||
	       type == IBV_EVENT_PKEY_CHANGE || type == IBV_EVENT_LID_CHANGE ||
	       type == IBV_EVENT_CLIENT_REREGISTER || type == IBV_EVENT_SM_CHANGE;
}

void vt_expect_async_at(
	struct vt *t, enum ibv_event_type type, const void *element, const char *file, int line)
{
	struct ibv_async_event ev;

	do {
		if (!vt_readable_soon(t->ctx->async_fd)) {
			print_error("no asynchronous event: expected %s\n", ibv_event_type_str(type));
			_fail(file, line);
		}
		assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
		ibv_ack_async_event(&ev);
	} while (ev.event_type != type && is_weather(ev.event_type));
	if (ev.event_type != type || (const void *)ev.element.qp != element) {
		print_error("event %s on %p; expected %s on %p\n", ibv_event_type_str(ev.event_type),
			(void *)ev.element.qp, ibv_event_type_str(type), element);
		_fail(file, line);
	}
}

void vt_no_async(struct vt *t)
{
	while (vt_readable_now(t->ctx->async_fd)) {
		struct ibv_async_event ev;

		assert_int_equal(ibv_get_async_event(t->ctx, &ev), 0);
		ibv_ack_async_event(&ev);
		if (!is_weather(ev.event_type))
			fail_msg("unexpected event %s", ibv_event_type_str(ev.event_type));
	}
}

bool vt_userfaultfd(void)
{
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static uint8_t pattern(size_t i, uint32_t seed)
{
	return (uint8_t)(seed * 131 + i * 7 + (i >> 8) * 13 + (i >> 16) * 17 + 1);
}

void vt_fill(void *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++)
		((uint8_t *)p)[i] = pattern(i, seed);
}

/* Somebody else's memory is being written: what is seen may be anything, until it is right. */
__attribute__((no_sanitize("thread"))) static bool has_pattern(const uint8_t *p, size_t len, uint32_t seed)
{
	for (size_t i = 0; i < len; i++) {
		if (((const volatile uint8_t *)p)[i] != pattern(i, seed))
			return false;
	}
	return true;
}

/* Where a WRITE is done when it has left it may land later, by itself. */
static bool await_pattern(const uint8_t *p, size_t len, uint32_t seed)
{
	double until = vt_deadline();
	bool there;

	while (!(there = has_pattern(p, len, seed)) && vt_now() < until)
		sched_yield();
	return there;
}

void vt_check_at(const void *p, size_t len, uint32_t seed, const char *file, int line)
{
	for (size_t i = 0; i < len; i++) {
		if (((const uint8_t *)p)[i] != pattern(i, seed)) {
			print_error("byte %zu of %zu is %02x, not %02x (seed %u)\n", i, len,
				((const uint8_t *)p)[i], pattern(i, seed), seed);
			_fail(file, line);
		}
	}
}

void vt_check_written_at(const void *p, size_t len, uint32_t seed, const char *file, int line)
{
	if (vt_can("ACK") || !await_pattern(p, len, seed))
		vt_check_at(p, len, seed, file, line);
}

void vt_check_all_at(const void *p, size_t len, uint8_t byte, const char *file, int line)
{
	for (size_t i = 0; i < len; i++) {
		if (((const uint8_t *)p)[i] != byte) {
			print_error(
				"byte %zu of %zu is %02x, not %02x\n", i, len, ((const uint8_t *)p)[i], byte);
			_fail(file, line);
		}
	}
}

void vt_peer_start(struct vt_peer *p, const char *role)
{
	pid_t parent = getpid();
	char fd[16], exe[4096] = {0};
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
	/* By its name: under valgrind the link itself leads to valgrind. */
	assert_true(readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0);
	snprintf(fd, sizeof(fd), "%d", sv[1]);
	p->fd = sv[0];
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		const char *host = getenv("VERBS_PEER_HOST");

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent || fcntl(sv[1], F_SETFD, 0) ||
			(host && setenv("ANYRDMA_HOST", host, 1)))
			_exit(126);
		execl(exe, "peer", "--role", role, fd, NULL);
		_exit(127);
	}
	close(sv[1]);
}

void vt_peer_finish(struct vt_peer *p)
{
	int status = -1;

	close(p->fd);
	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
}

void vt_peer_kill(struct vt_peer *p)
{
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
	close(p->fd);
}

/* A peer that fails says so by itself; one that is killed by a signal cannot. */
static void tell_how_peers_ended(void)
{
	int status;

	for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
		print_error("the peer %d has ended: %s %d\n", (int)pid,
			WIFSIGNALED(status) ? "signal" : "exit",
			WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

void vt_tell(int fd, const void *data, size_t len)
{
	ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

	if (n < 0)
		tell_how_peers_ended();
	assert_int_equal(n, len);
}

void vt_hear(int fd, void *data, size_t len)
{
	for (size_t got = 0; got < len;) {
		ssize_t n;

		assert_true(vt_readable_soon(fd));
		n = recv(fd, (char *)data + got, len - got, 0);
		if (n <= 0)
			tell_how_peers_ended();
		assert_true(n > 0);
		got += (size_t)n;
	}
}

/* Both come here alike: the one with the larger number answers. */
static void meet_by_cm(struct vt_ep *ep, int fd, const struct vt_conn *c, const struct vt_addr *peer)
{
	uint16_t port;

	vt_cm_close(ep);
	if (ep->qp->qp_num > peer->qpn) {
		struct rdma_cm_id *listener = vt_cm_listen(ep->t, &port);

		vt_tell(fd, &port, sizeof(port));
		vt_cm_answer(ep, listener, c);
	} else {
		vt_hear(fd, &port, sizeof(port));
		vt_cm_ask(ep, &peer->gid, port, c);
		vt_cm_asked(ep);
	}
}

void vt_meet(struct vt_ep *ep, int fd, const struct vt_conn *c, struct vt_addr *peer)
{
	struct vt_conn d = c ? *c : vt_conn(ep->t);
	struct vt_addr own = vt_addr(ep);
	char ready = 'r';

	d.psn_in = d.psn_out; /* both sides come here with the same attributes */
	vt_init(ep, &d);
	vt_tell(fd, &own, sizeof(own));
	vt_hear(fd, peer, sizeof(*peer));
	if (vt_by_cm(ep->t)) {
		meet_by_cm(ep, fd, &d, peer);
	} else {
		vt_rtr(ep, peer, &d);
		vt_rts(ep, &d);
	}
	vt_tell(fd, &ready, 1);
	vt_hear(fd, &ready, 1);
}

/*
 * Stands in for cmocka's own, which keeps a failure's words until the test has ended: a thread or a peer that
 * fails ends its process before that.
 */
__attribute__((visibility("default"))) void cm_print_error(const char *format, ...);
void cm_print_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprint_error(format, args);
	va_end(args);
	if (!strchr(format, '\n'))
		print_error("\n");
}

static int run_role(const struct vt_role *roles, const char *name, int fd)
{
	void *state = NULL;

	for (const struct vt_role *r = roles; r && r->name; r++) {
		if (strcmp(r->name, name))
			continue;
		if (vt_setup(&state))
			return 1;
		r->run(state, fd);
		return vt_teardown(&state) != 0;
	}
	print_error("no role named %s\n", name);
	return 1;
}

int vt_main(int argc, char **argv, const char *theme, const struct CMUnitTest *tests, size_t n,
	const struct vt_role *roles)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (getenv("VERBS_GID") && !strcmp(getenv("VERBS_GID"), "6") && !surroundings_ipv6()) {
		puts("SKIP  there is no IPv6 here");
		return SURROUNDINGS_SKIP;
	}
	if (argc == 4 && !strcmp(argv[1], "--role"))
		return run_role(roles, argv[2], atoi(argv[3]));
	if (argc > 1 && argv[1][0] == '!')
		cmocka_set_skip_filter(argv[1] + 1);
	else if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return _cmocka_run_group_tests(theme, tests, n, NULL, NULL);
}
