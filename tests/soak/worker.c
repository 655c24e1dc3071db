/* SPDX-License-Identifier: MIT */
/*
 * A worker: one process, one adapter. Its loop sometimes spins over its completion queues and sometimes
 * sleeps on descriptors, as programs do. A second thread registers, creates and gives back all the while.
 */
#include "soak.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OWN_SESSIONS = 3, ALL_SESSIONS = 10, BEAT_MS = 500, SLEEP_MS = 10, MODE_MS = 300, SWEEP_MS = 1000 };

/* Asked all the time; when it was not for a while, this process was stopped, or had to wait for the CPU. */
uint64_t now_ms(void)
{
	enum { GAP_MS = 1000 };
	static uint64_t last, missed;
	struct timespec t;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
	if (last && now - last > GAP_MS)
		missed += now - last;
	last = now;
	return now - missed;
}

/* The parent may be gone: then so are we. */
bool worker_tell(struct worker *w, struct msg *m)
{
	m->from = w->index;
	if (send(w->fd, m, sizeof(*m), MSG_NOSIGNAL) == (ssize_t)sizeof(*m))
		return true;
	_exit(1);
}

void fail(struct worker *w, const char *fmt, ...)
{
	struct msg m = {.kind = MSG_FAILED};
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(m.why, sizeof(m.why), fmt, ap);
	va_end(ap);
	worker_tell(w, &m);
	pause(); /* as it is: the parent looks at our stacks, then ends us */
	_exit(1);
}

/* ---- what the process holds ---- */
static uint32_t count_dir(const char *path)
{
	DIR *d = opendir(path);
	uint32_t n = 0;

	for (struct dirent *e; d && (e = readdir(d));)
		n += e->d_name[0] != '.';
	if (d)
		closedir(d);
	return n;
}

static struct holdings holdings(void)
{
	struct holdings h = {.fds = count_dir("/proc/self/fd") - 1, .threads = count_dir("/proc/self/task")};
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	malloc_trim(0);
	if (f) {
		if (fscanf(f, "%*u %lu", &pages) != 1)
			pages = 0;
		fclose(f);
	}
	h.rss_kb = pages * (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
	return h;
}

/* ---- the adapter ---- */
void worker_post_srq(struct worker *w, uint32_t buffer)
{
	struct ibv_sge sge = {(uintptr_t)w->srq_buf + (size_t)buffer * SRQ_LEN, SRQ_LEN, w->srq_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 4ull << 32 | buffer, .sg_list = &sge, .num_sge = 1}, *bad;

	if (ibv_post_srq_recv(w->srq, &wr, &bad))
		fail(w, "the shared receive queue is full: a buffer came back twice");
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && list[i] && !ctx; i++) {
		if (!strcmp(ibv_get_device_name(list[i]), name))
			ctx = ibv_open_device(list[i]);
	}
	ibv_free_device_list(list);
	return ctx;
}

static void worker_open(struct worker *w)
{
	struct ibv_srq_init_attr sa = {.attr = {.max_wr = SRQ_WRS, .max_sge = 1}};
	const char *name = getenv("SOAK_DEVICE");
	struct ibv_port_attr port;

	w->ctx = open_device(name ? name : "roce_lo");
	if (!w->ctx || ibv_query_port(w->ctx, 1, &port) || ibv_query_gid(w->ctx, 1, w->gid_index, &w->gid))
		fail(w, "no device");
	w->mtu = 128u << port.active_mtu;
	w->pd = ibv_alloc_pd(w->ctx);
	w->channel = ibv_create_comp_channel(w->ctx);
	w->srq = w->pd ? ibv_create_srq(w->pd, &sa) : NULL;
	w->srq_buf = mmap(NULL, (size_t)SRQ_WRS * SRQ_LEN, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!w->channel || !w->srq || w->srq_buf == MAP_FAILED)
		fail(w, "the adapter gives nothing: %s", strerror(errno));
	w->srq_mr = ibv_reg_mr(w->pd, w->srq_buf, (size_t)SRQ_WRS * SRQ_LEN, IBV_ACCESS_LOCAL_WRITE);
	if (!w->srq_mr)
		fail(w, "ibv_reg_mr: %s", strerror(errno));
	for (uint32_t i = 0; i < SRQ_WRS; i++)
		worker_post_srq(w, i);
	fcntl(w->channel->fd, F_SETFL, O_NONBLOCK);
}

static void worker_close(struct worker *w)
{
	if (ibv_destroy_srq(w->srq) || ibv_dereg_mr(w->srq_mr) || ibv_destroy_comp_channel(w->channel) ||
		ibv_dealloc_pd(w->pd) || ibv_close_device(w->ctx))
		fail(w, "something cannot be given back at the end");
	munmap(w->srq_buf, (size_t)SRQ_WRS * SRQ_LEN);
}

/* ---- the other thread: everything comes and goes ---- */
struct churn {
	struct worker *w;
	uint64_t random;
	pthread_t thread;
	_Atomic bool stop, rest, resting;
};

static void churn_once(struct worker *w, uint64_t r)
{
	static uint8_t memory[1 << 16];
	struct ibv_context *ctx = r % 8 ? NULL : ibv_open_device(w->ctx->device);
	struct ibv_context *in = ctx ? ctx : w->ctx;
	struct ibv_pd *pd = ibv_alloc_pd(in);
	struct ibv_mr *mr =
		pd ? ibv_reg_mr(pd, memory + r % 4096, 1 + r % 60000, IBV_ACCESS_LOCAL_WRITE) : NULL;
	struct ibv_cq *cq = ibv_create_cq(in, 1 + (int)(r % 300), NULL, NULL, 0);
	struct ibv_qp_init_attr a = {.qp_type = r & 16 ? IBV_QPT_RC : IBV_QPT_UD,
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = pd && cq ? ibv_create_qp(pd, &a) : NULL;

	if (!mr || !qp)
		fail(w, "an object cannot be created: %s", strerror(errno));
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq) || ibv_dereg_mr(mr) || ibv_dealloc_pd(pd) ||
		(ctx && ibv_close_device(ctx)))
		fail(w, "an object cannot be destroyed");
}

static void *churn_main(void *arg)
{
	struct churn *c = arg;
	while (!atomic_load(&c->stop)) {
		struct timespec ms = {.tv_nsec = 1000000 * (long)(1 + random_next(&c->random) % 20)};
		bool rest = atomic_load(&c->rest);

		if (!rest)
			churn_once(c->w, random_next(&c->random));
		atomic_store(&c->resting, rest);
		nanosleep(&ms, NULL);
	}
	return NULL;
}

/* ---- the loop ---- */
struct loop {
	struct worker w;
	struct churn churn;
	bool paused, told_idle, quit, sleeps;
	uint64_t beat_at, mode_until, sweep_at;
};

static unsigned count_sessions(struct worker *w, bool own)
{
	unsigned n = 0;

	for (struct session *s = w->sessions; s; s = session_next(s))
		n += !own || !session_is_invited(s);
	return n;
}

static void on_msg(struct loop *l, const struct msg *m)
{
	struct worker *w = &l->w;
	struct session *s;

	switch (m->kind) {
	case MSG_PAUSE:
		l->paused = true;
		l->told_idle = false;
		break;
	case MSG_RESUME:
		l->paused = false;
		break;
	case MSG_QUIT:
		l->quit = true;
		break;
	case MSG_INVITE:
		if (!l->paused && !session_find(w, m->session) && count_sessions(w, false) < ALL_SESSIONS)
			session_invited(w, m);
		break;
	default:
		s = session_find(w, m->session);
		if (s)
			session_told(s, m);
	}
}

static void read_messages(struct loop *l)
{
	struct msg m;
	ssize_t n;

	while ((n = recv(l->w.fd, &m, sizeof(m), MSG_DONTWAIT)) == (ssize_t)sizeof(m))
		on_msg(l, &m);
	if (n == 0)
		_exit(1); /* the parent is gone */
}

static void step(struct session *s, bool woken)
{
	if (!session_step(s, woken))
		session_close(s);
}

/* Each event belongs to one session; an event of a queue that is gone cannot come. */
static void read_events(struct worker *w)
{
	struct ibv_cq *cq;
	void *context;

	while (!ibv_get_cq_event(w->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		if (ibv_req_notify_cq(cq, 0))
			fail(w, "ibv_req_notify_cq fails");
		step(context, true);
	}
}

/* All when spinning; when sleeping those with a channel only by an event, or by the sweep. */
static void step_all(struct loop *l)
{
	bool sweep = now_ms() >= l->sweep_at;

	for (struct session *s = l->w.sessions, *next; s; s = next) {
		next = session_next(s);
		if (!l->sleeps || !session_wants_event(s))
			step(s, true);
		else if (sweep)
			step(s, false);
	}
	if (sweep)
		l->sweep_at = now_ms() + SWEEP_MS;
}

static void sleep_on_all(struct loop *l)
{
	struct pollfd p[2] = {{.fd = l->w.fd, .events = POLLIN}, {.fd = l->w.channel->fd, .events = POLLIN}};

	poll(p, 2, SLEEP_MS);
}

static void beat(struct loop *l)
{
	struct msg m = {.kind = MSG_BEAT, .tally = l->w.tally};

	if (now_ms() < l->beat_at)
		return;
	l->beat_at = now_ms() + BEAT_MS;
	memset(&l->w.tally, 0, sizeof(l->w.tally));
	worker_tell(&l->w, &m);
}

static void choose_mode(struct loop *l)
{
	if (now_ms() < l->mode_until)
		return;
	l->mode_until = now_ms() + MODE_MS + random_next(&l->w.random) % MODE_MS;
	l->sleeps = random_next(&l->w.random) % 4; /* spinning for too long only starves the others */
}

static void close_all(struct worker *w)
{
	while (w->sessions)
		session_close(w->sessions);
}

/* Paused: everything closed, the other thread at rest. Then what is left is what leaks. */
static void rest(struct loop *l)
{
	struct msg m = {.kind = MSG_IDLE};

	close_all(&l->w);
	if (l->told_idle || !atomic_load(&l->churn.resting))
		return;
	m.holds = holdings();
	l->told_idle = true;
	worker_tell(&l->w, &m);
}

static void run(struct loop *l)
{
	while (!l->quit) {
		read_messages(l);
		read_events(&l->w);
		session_events(&l->w);
		atomic_store(&l->churn.rest, l->paused);
		if (l->paused)
			rest(l);
		else if (count_sessions(&l->w, true) < OWN_SESSIONS)
			session_invite(
				&l->w, (l->w.index + 1 + (int)(random_next(&l->w.random) % (WORKERS - 1))) %
					       WORKERS);
		step_all(l);
		beat(l);
		choose_mode(l);
		if (l->sleeps || l->paused)
			sleep_on_all(l);
	}
}

int worker_main(int index, int fd, uint64_t seed)
{
	struct loop l = {.w = {.index = index, .fd = fd, .random = seed}};
	struct holdings before = holdings(), after;

	l.churn.w = &l.w;
	l.churn.random = mix(seed);
	worker_open(&l.w);
	if (pthread_create(&l.churn.thread, NULL, churn_main, &l.churn))
		fail(&l.w, "no thread");
	run(&l);
	atomic_store(&l.churn.stop, true);
	pthread_join(l.churn.thread, NULL);
	close_all(&l.w);
	worker_close(&l.w);
	/* A thread that was joined may be seen for a moment more. */
	for (uint64_t end = now_ms() + 10000; COUNT_MEMORY_AND_THREADS && now_ms() < end; poll(NULL, 0, 1)) {
		if (holdings().threads == before.threads)
			break;
	}
	after = holdings();
	if (after.fds != before.fds || (COUNT_MEMORY_AND_THREADS && after.threads != before.threads))
		fail(&l.w,
			"%u descriptors and %u threads after all was closed, %u and %u before it was opened",
			after.fds, after.threads, before.fds, before.threads);
	return 0;
}
