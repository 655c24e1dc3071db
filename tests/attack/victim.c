/* SPDX-License-Identifier: MIT */
/*
 * A program that is attacked: it does what single lines on its standard input say, and answers each with one
 * line of NAME=NUMBER. What an attack is given to know (QPN, PSN, rkey) it thereby says itself. Between lines
 * it is asleep in read(), so all that happens to it then is the adapter's doing.
 *
 * Numbers may be decimal or 0x hexadecimal; endpoints and regions are called by the number of their line.
 */
#include "victim.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 12, LEN = 65536 };

static struct vt *t;
static struct vt_ep *eps[MAX];
static struct ibv_mr *mrs[MAX];
static unsigned neps, nmrs;

/* The line in hand: numbers by place; what is not there is 0. */
static char *word[WORDS];

uint64_t num(unsigned i)
{
	return word[i] ? strtoull(word[i], NULL, 0) : 0;
}

const char *text(unsigned i)
{
	return word[i] ? word[i] : "";
}

struct vt_ep *ep(void)
{
	return eps[num(1) % MAX];
}

static enum ibv_qp_type qp_type(void)
{
	return !strcmp(word[1], "ud") ? IBV_QPT_UD : !strcmp(word[1], "uc") ? IBV_QPT_UC : IBV_QPT_RC;
}

/* ep TYPE ACCESS [ENDPOINT whose protection domain to share, counted from 1] */
static void cmd_ep(void)
{
	struct vt_ep *e = vt_ep(t, .type = qp_type(), .len = LEN, .access = (int)num(2),
		.pd = num(3) ? eps[num(3) - 1]->pd : NULL);

	eps[neps] = e;
	printf("ep=%u qpn=%u rkey=%u addr=%lu\n", neps++, e->qp->qp_num, e->mr->rkey, (unsigned long)e->buf);
}

/* connect EP IP QPN PSN_OUT PSN_IN TIMEOUT RETRY */
static void cmd_connect(void)
{
	struct vt_conn c = vt_conn(t);
	struct vt_addr to = {.qpn = (uint32_t)num(3)};

	to.gid.raw[10] = to.gid.raw[11] = 0xff;
	inet_pton(AF_INET, word[2], to.gid.raw + 12);
	c.psn_out = (uint32_t)num(4);
	c.psn_in = (uint32_t)num(5);
	c.timeout = (uint8_t)num(6);
	c.retry = (uint8_t)num(7);
	vt_init(ep(), &c);
	vt_rtr(ep(), &to, &c);
	vt_rts(ep(), &c);
	printf("ok=1\n");
}

/* datagrams EP QKEY */
static void cmd_datagrams(void)
{
	vt_ud_start(ep(), (uint32_t)num(2));
	printf("ok=1\n");
}

/* post OPCODE EP OFF LEN ADDR RKEY, without waiting. */
static void cmd_post(void)
{
	static const enum ibv_wr_opcode ops[] = {
		['w'] = IBV_WR_RDMA_WRITE, ['r'] = IBV_WR_RDMA_READ, ['s'] = IBV_WR_SEND};

	printf("errno=%d\n", vt_try(eps[num(2)], .op = ops[(unsigned char)word[1][0]], .off = num(3),
				     .len = (uint32_t)num(4), .raddr = num(5), .rkey = (uint32_t)num(6)));
}

static int wait_for(struct vt_ep *e, struct ibv_wc *wc)
{
	double end = vt_deadline();

	while (!ibv_poll_cq(e->cq, 1, wc))
		if (vt_now() > end)
			return -1;
	return 0;
}

/* wait EP: the next completion; status -1 when none comes. */
static void cmd_wait(void)
{
	struct ibv_wc wc;

	if (wait_for(ep(), &wc))
		printf("status=-1\n");
	else
		printf("status=%d len=%u\n", wc.status, wc.status ? 0 : wc.byte_len);
}

/* poll EP: a completion that is there already; status -1 when there is none. */
static void cmd_poll(void)
{
	struct ibv_wc wc;

	printf("status=%d\n", ibv_poll_cq(ep()->cq, 1, &wc) ? (int)wc.status : -1);
}

static void cmd_recv(void)
{
	printf("errno=%d\n", vt_try_recv(ep(), 1, num(2), (uint32_t)num(3)));
}

static bool told(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

static int transfer(struct vt_ep *e, enum ibv_wr_opcode op, size_t off, uint32_t len)
{
	struct ibv_wc wc;

	if (vt_try(e, .op = op, .off = off, .len = len, .raddr = num(2), .rkey = (uint32_t)num(3)) ||
		wait_for(e, &wc))
		return -1;
	return (int)wc.status;
}

/* stream EP ADDR RKEY: writes and reads back, comparing, until the next line comes. */
static void cmd_stream(void)
{
	struct vt_ep *e = ep();
	uint32_t len = LEN / 4;
	unsigned long rounds = 0, wrong = 0;
	int status = 0;

	for (; !status && !told(); rounds++) {
		vt_fill(e->buf, len, (uint32_t)rounds);
		status = transfer(e, IBV_WR_RDMA_WRITE, 0, len);
		if (!status)
			status = transfer(e, IBV_WR_RDMA_READ, LEN / 2, len);
		wrong += !status && memcmp(e->buf, e->buf + LEN / 2, len) != 0;
	}
	printf("rounds=%lu wrong=%lu status=%d\n", rounds, wrong, status);
}

static void cmd_state(void)
{
	printf("state=%d\n", vt_state(ep()->qp));
}

static void cmd_timeout(void)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr attr;

	assert_int_equal(ibv_query_qp(ep()->qp, &attr, IBV_QP_TIMEOUT, &init), 0);
	printf("timeout=%u\n", attr.timeout);
}

/* touched EP OFF LEN: how many bytes there are not zero. */
static void cmd_touched(void)
{
	unsigned n = 0;

	for (uint64_t i = 0; i < num(3); i++)
		n += ep()->buf[num(2) + i] != 0;
	printf("bytes=%u\n", n);
}

/* mr EP ACCESS OFF LEN */
static void cmd_mr(void)
{
	struct ibv_mr *mr = ibv_reg_mr(ep()->pd, ep()->buf + num(3), num(4), (int)num(2));

	assert_non_null(mr);
	mrs[nmrs % MAX] = mr;
	printf("mr=%u rkey=%u\n", nmrs++ % MAX, mr->rkey);
}

static void cmd_dereg(void)
{
	printf("errno=%d\n", ibv_dereg_mr(mrs[num(1) % MAX]));
}

/* mw EP MR OFF LEN ACCESS: a type 2 window bound over the endpoint's QP. */
static void cmd_mw(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(ep()->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr *bad, wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	assert_non_null(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = mrs[num(2) % MAX],
		.addr = (uintptr_t)ep()->buf + num(3),
		.length = num(4),
		.mw_access_flags = (unsigned int)num(5)};
	assert_int_equal(ibv_post_send(ep()->qp, &wr, &bad), 0);
	assert_int_equal(wait_for(ep(), &wc), 0);
	printf("status=%d rkey=%u\n", wc.status, wr.bind_mw.rkey);
}

static void cmd_drop(void)
{
	vt_ep_drop_qp(ep());
	printf("ok=1\n");
}

/* keys N: as many regions, one after another and all at once. */
static void cmd_keys(void)
{
	struct ibv_mr **all = calloc(num(1), sizeof(*all));
	char *page = aligned_alloc(4096, 4096);
	struct ibv_pd *pd = ibv_alloc_pd(t->ctx);

	for (uint64_t i = 0; i < num(1); i++) {
		/* Half of them go again at once: what they leave must not come back. */
		all[i] = ibv_reg_mr(pd, page, 4096, IBV_ACCESS_LOCAL_WRITE);
		printf("k%lu=%u ", (unsigned long)i, all[i]->rkey);
		if (i % 2)
			ibv_dereg_mr(all[i]);
	}
	printf("\n");
	for (uint64_t i = 0; i < num(1); i += 2)
		ibv_dereg_mr(all[i]);
	ibv_dealloc_pd(pd);
	free(page);
	free(all);
}

/* ---- taking all there is ---- */
static struct ibv_cq *a_cq;
static struct ibv_pd *a_pd;
static char a_page[4096];

static void *take_qp(void)
{
	struct ibv_qp_init_attr a = {
		.send_cq = a_cq, .recv_cq = a_cq, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	return ibv_create_qp(a_pd, &a);
}
static int give_qp(void *p)
{
	return ibv_destroy_qp(p);
}
static void *take_mr(void)
{
	return ibv_reg_mr(a_pd, a_page, sizeof(a_page), IBV_ACCESS_LOCAL_WRITE);
}
static int give_mr(void *p)
{
	return ibv_dereg_mr(p);
}
static void *take_cq(void)
{
	return ibv_create_cq(t->ctx, 4096, NULL, NULL, 0);
}
static int give_cq(void *p)
{
	return ibv_destroy_cq(p);
}
static void *take_channel(void)
{
	return ibv_create_comp_channel(t->ctx);
}
static int give_channel(void *p)
{
	return ibv_destroy_comp_channel(p);
}
static void *take_device(void)
{
	return ibv_open_device(t->ctx->device);
}
static int give_device(void *p)
{
	return ibv_close_device(p);
}

static const struct greed {
	const char *name;
	void *(*take)(void);
	int (*give)(void *);
} greeds[] = {{"qp", take_qp, give_qp}, {"mr", take_mr, give_mr}, {"cq", take_cq, give_cq},
	{"channel", take_channel, give_channel}, {"device", take_device, give_device}};

/* exhaust WHAT LIMIT: takes until refused, at most LIMIT; says how many and why, and gives all back. */
static void cmd_exhaust(void)
{
	uint64_t limit = num(2), n = 0;
	void **all = calloc(limit, sizeof(*all));
	const struct greed *g = greeds;
	int err = 0, bad = 0;

	while (strcmp(g->name, word[1]))
		g++;
	a_pd = ibv_alloc_pd(t->ctx);
	a_cq = ibv_create_cq(t->ctx, 16, NULL, NULL, 0);
	for (; n < limit; n++) {
		errno = 0;
		all[n] = g->take();
		err = errno;
		if (!all[n])
			break;
	}
	printf("taken=%lu errno=%d ", (unsigned long)n, n < limit ? err : 0);
	while (n--)
		bad += g->give(all[n]) != 0;
	bad += ibv_destroy_cq(a_cq) != 0;
	bad += ibv_dealloc_pd(a_pd) != 0;
	free(all);
	printf("not_given_back=%d\n", bad);
}

/* limit MIB FILES: what the process may have from now on. */
static void cmd_limit(void)
{
	struct rlimit as = {num(1) << 20, RLIM_INFINITY}, files = {num(2), num(2)};

	printf("errno=%d\n",
		(num(1) && setrlimit(RLIMIT_AS, &as)) || (num(2) && setrlimit(RLIMIT_NOFILE, &files)));
}

/* put EP OFF NUMBER, and get EP OFF: eight bytes. */
static void cmd_put(void)
{
	uint64_t v = num(3);

	memcpy(ep()->buf + num(2), &v, sizeof(v));
	printf("ok=1\n");
}

static void cmd_get(void)
{
	uint64_t v;

	memcpy(&v, ep()->buf + num(2), sizeof(v));
	printf("value=%lu\n", (unsigned long)v);
}

/* open PATH: a file of its own, to read and write. */
static void cmd_open(void)
{
	printf("errno=%d\n", open(text(1), O_RDWR | O_CLOEXEC) < 0 ? errno : 0);
}

/* hide EP ON: nobody can read the endpoint's buffer, neither we nor who asks the kernel. */
static void cmd_hide(void)
{
	struct vt_ep *e = ep();

	printf("errno=%d\n",
		mprotect(e->buf, e->len, num(2) ? PROT_NONE : PROT_READ | PROT_WRITE) ? errno : 0);
}

static void cmd_dumpable(void)
{
	printf("errno=%d\n", prctl(PR_SET_DUMPABLE, (unsigned long)num(1), 0, 0, 0) ? errno : 0);
}

/* become USER: for good, as a daemon does that began as root. */
static void cmd_become(void)
{
	uid_t u = (uid_t)num(1);

	printf("errno=%d\n", setresuid(u, u, u) ? errno : 0);
}

static void cmd_error(void)
{
	printf("errno=%d\n", vt_modify_state(ep()->qp, IBV_QPS_ERR));
}

/* How long the command before took, and how much of that it computed. */
static double took_s, took_cpu;

static double cpu_of_thread(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void cmd_took(void)
{
	printf("us=%lu cpu=%lu\n", (unsigned long)(took_s * 1e6), (unsigned long)(took_cpu * 1e6));
}

static void cmd_cpu(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	printf("us=%lu\n", (unsigned long)((u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 +
					   u.ru_utime.tv_usec + u.ru_stime.tv_usec));
}

/* Of the main arena: MALLOC_ARENA_MAX=1 makes that all there is. */
static void cmd_memory(void)
{
	printf("bytes=%zu\n", mallinfo2().uordblks);
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {{"ep", cmd_ep}, {"connect", cmd_connect}, {"datagrams", cmd_datagrams}, {"post", cmd_post},
	{"wait", cmd_wait}, {"poll", cmd_poll}, {"recv", cmd_recv}, {"stream", cmd_stream},
	{"state", cmd_state}, {"touched", cmd_touched}, {"mr", cmd_mr}, {"dereg", cmd_dereg}, {"mw", cmd_mw},
	{"drop", cmd_drop}, {"keys", cmd_keys}, {"exhaust", cmd_exhaust}, {"limit", cmd_limit},
	{"cpu", cmd_cpu}, {"cm_listen", cm_listen}, {"cm_connect", cm_connect}, {"cm_event", cm_event},
	{"cm_accept", cm_accept}, {"cm_establish", cm_establish}, {"cm_drop", cm_drop},
	{"memory", cmd_memory}, {"timeout", cmd_timeout}, {"put", cmd_put}, {"get", cmd_get},
	{"dumpable", cmd_dumpable}, {"become", cmd_become}, {"error", cmd_error}, {"took", cmd_took},
	{"open", cmd_open}, {"hide", cmd_hide}};

static void timed(void (*run)(void))
{
	double began = vt_now(), cpu = cpu_of_thread();

	run();
	took_s = vt_now() - began;
	took_cpu = cpu_of_thread() - cpu;
}

static void obey(char *line)
{
	memset(word, 0, sizeof(word));
	for (unsigned i = 0; i < WORDS && (word[i] = strtok(i ? NULL : line, " \n")); i++)
		;
	for (size_t i = 0; word[0] && i < ARRAY_LEN(commands); i++)
		if (!strcmp(word[0], commands[i].name))
			timed(commands[i].run);
	fflush(stdout);
}

int main(void)
{
	char line[512];
	void *state = NULL;
	int err = vt_setup(&state);

	t = state;
	if (err)
		return 1;
	setvbuf(stdin, NULL, _IONBF, 0); /* told() looks at the descriptor */
	printf("pid=%d\n", (int)getpid());
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		obey(line);
	_exit(0);
}
