/* SPDX-License-Identifier: MIT */
#include "world.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/env.h"
#include "fabric/shared.h"
#include "fabricd/fabricd.h"
#include "host/rundir.h"
#include "subnet/packet.h"
#include "subnet/topo_make.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/anyrdma-umad.XXXXXX";
static char dir[256];
static pid_t fabric;

/* ---- its clock, which the linker puts in place of the kernel's ---- */
static struct {
	atomic_bool stands;
	atomic_uint_fast64_t at; /* then: nanoseconds */
} * shared_clock;
static bool is_fabric;

int __real_clock_gettime(clockid_t which, struct timespec *t);
/* Not hidden: the sanitizers' library asks for it, too. */
__attribute__((visibility("default"))) int __wrap_clock_gettime(clockid_t which, struct timespec *t);
int __wrap_clock_gettime(clockid_t which, struct timespec *t)
{
	uint64_t at;

	if (!is_fabric || !atomic_load(&shared_clock->stands))
		return __real_clock_gettime(which, t);
	at = atomic_load(&shared_clock->at);
	*t = (struct timespec){.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
	return 0;
}

void world_clock_stop(void)
{
	atomic_store(&shared_clock->at, clock_ns());
	atomic_store(&shared_clock->stands, true);
}

void world_clock_go(uint64_t ms)
{
	atomic_fetch_add(&shared_clock->at, ms * 1000000);
	umad_close_port(world_open("node1")); /* wakes it: what is due is done before it answers */
}

static void clock_new(void)
{
	if (!shared_clock)
		shared_clock = mmap(NULL, sizeof(*shared_clock), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared_clock != MAP_FAILED);
	atomic_store(&shared_clock->stands, false);
}

/* ---- the process ---- */
static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	umad_arrived(arg, at, p);
}

static void changed(void *arg, struct subnet_port *at, enum subnet_change what)
{
	umad_changed(arg, at, what);
}

/* What a subnet manager would do. */
static void make_active(struct fabricd *d, const char *host, uint16_t lid)
{
	struct subnet_port *p = subnet_port(topo_host(&d->topo, host)->hca[0], 1);

	p->shared->lid = lid;
	p->shared->sm_lid = 1;
	p->shared->state = PORT_ACTIVE;
}

static void run_fabric(int ready)
{
	static struct fabricd d;
	const struct subnet_ops ops = {.arrived = arrived, .changed = changed};
	char run[PATH_MAX - SUBNET_NAME], err[TOPO_ERROR];

	is_fabric = true;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	host_rundir(run, sizeof(run));
	snprintf(d.dir, sizeof(d.dir), "%s/fabric-test", run);
	mkdir(d.dir, 0700);
	d.loop = loop_open();
	d.subnet = subnet_open(&ops, &d, 1);
	if (topo_make(d.subnet, "pair", 1, err) || topo_complete(&d.topo, d.subnet) ||
		subnet_start(d.subnet, clock_ns()))
		_exit(1);
	make_active(&d, "node1", 1);
	make_active(&d, "node2", 2);
	if (umad_open(&d))
		_exit(1);
	close(ready);
	_exit(-loop_run(d.loop));
}

void world_start(void)
{
	int ready[2];
	struct pollfd f;

	clock_new();
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	fabric = fork();
	assert_true(fabric >= 0);
	if (!fabric) {
		close(ready[0]);
		run_fabric(ready[1]);
	}
	close(ready[1]);
	f = (struct pollfd){.fd = ready[0], .events = POLLIN};
	assert_int_equal(poll(&f, 1, 10000), 1);
	close(ready[0]);
}

void world_kill(void)
{
	if (!fabric)
		return;
	kill(fabric, SIGKILL);
	waitpid(fabric, NULL, 0);
	fabric = 0;
}

void world_stop(void)
{
	kill(fabric, SIGSTOP);
}

void world_continue(void)
{
	kill(fabric, SIGCONT);
}

int world_up(void **state)
{
	memcpy(dir, top, sizeof(top));
	assert_non_null(mkdtemp(dir));
	setenv("ANYRDMA_DIR", dir, 1);
	unsetenv("ANYRDMA_HOST");
	unsetenv("ANYRDMA_FABRIC");
	umad_init();  /* reads them */
	env_forget(); /* and so do we, whose copy is another */
	world_start();
	return 0;
}

int world_down(void **state)
{
	char command[sizeof(dir) + 16];

	world_kill();
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int world_another(const char *name)
{
	char run[PATH_MAX - SUBNET_NAME];
	struct fabricd d = {0};
	int fd;

	assert_int_equal(host_rundir(run, sizeof(run)), 0);
	snprintf(d.dir, sizeof(d.dir), "%s/fabric-%s", run, name);
	assert_int_equal(mkdir(d.dir, 0700), 0);
	fd = fabricd_listen(&d, "umad", SOCK_STREAM);
	assert_true(fd >= 0);
	return fd;
}

void world_move(const char *to)
{
	assert_int_equal(rename(dir, to), 0);
	snprintf(dir, sizeof(dir), "%s", to);
	setenv("ANYRDMA_DIR", dir, 1);
	umad_init(); /* reads it */
}

/* ---- programs ---- */
void world_be(const char *host)
{
	setenv("ANYRDMA_HOST", host, 1);
	umad_init(); /* reads it */
}

int world_open(const char *host)
{
	int port;

	world_be(host);
	port = umad_open_port(NULL, 0);
	assert_true(port >= 0);
	return port;
}

int world_agent(int port, int mgmt_class, uint64_t methods)
{
	long mask[16 / sizeof(long)] = {(long)methods};
	int version = mgmt_class == SA ? 2 : 1;

	return umad_register(port, mgmt_class, version, mgmt_class == SA, mask);
}

struct message *message_new(size_t len)
{
	struct message *m = calloc(1, sizeof(*m) + len);

	assert_non_null(m);
	return m;
}

struct message *message_to(unsigned lid, uint8_t mgmt_class, uint8_t method, uint32_t tid, size_t len)
{
	struct message *m = message_new(len);

	m->mad[0] = 1;
	m->mad[1] = mgmt_class;
	m->mad[2] = mgmt_class == SA ? 2 : 1;
	m->mad[3] = method;
	put_be32(m->mad + 12, tid);
	if (mgmt_class == PING)
		memcpy(m->mad + 37, (uint8_t[]){0, 0x14, 5}, 3);
	if (mgmt_class == SMP_DIRECTED) {
		put_be16(m->mad + 16, 0x11); /* NodeInfo */
		memset(m->mad + 32, 0xff, 4);
		umad_set_addr(m, 0xffff, 0, 0, 0);
	} else {
		umad_set_addr(m, (int)lid, 1, 0, (int)0x80010000);
	}
	return m;
}

int receive(int port, struct message **m, int *len)
{
	int agent;

	*m = message_new((size_t)*len);
	agent = umad_recv(port, *m, len, 10000);
	assert_true(agent >= 0);
	return agent;
}

uint32_t tid_of(const struct message *m)
{
	return get_be32(m->mad + 12);
}

uint64_t milliseconds(void)
{
	return clock_ms();
}

/* ---- what the parts of the process need of others, which are not part of this ---- */
int fabricd_listen(struct fabricd *d, const char *name, int type)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%.80s/%.16s", d->dir, name);
	unlink(a.sun_path);
	return bind(fd, (struct sockaddr *)&a, sizeof(a)) || listen(fd, 64) ? -errno : fd;
}

int fabricd_accept(int listener)
{
	int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int trees_issm_path(
	struct fabricd *d, struct topo_host *h, unsigned hca, unsigned port, char *buf, size_t len)
{
	snprintf(buf, len, "/issm/%s/%u/%u", h->name, hca, port);
	return 0;
}

/* There is no subnet manager, and it takes nothing. */
void manager_look(struct fabricd *d)
{
}

bool manager_arrived(struct fabricd *d, struct subnet_port *at, unsigned qp, const struct ibmad_addr *from,
	const uint8_t *mad)
{
	return false;
}
