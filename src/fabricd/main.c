/* SPDX-License-Identifier: MIT */
/*
 * anyrdma-fabricd: started by `anyrdma fabric up`, which gives it the description, the fabric's directory and
 * a pipe. On the pipe it says what it is doing, line by line: "…" progress, "warning …" and "error …" a
 * sentence for the user, "ready". Its standard error is the fabric's log. It ends by the console's word or by
 * SIGTERM, and then removes what it wrote.
 */
#include "fabricd/describe.h"
#include "fabricd/fabricd.h"

#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "base/rmtree.h"
#include "base/slice.h"
#include "subnet/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
	const char *name, *dir, *tool;
	struct describe_options describe;
	uint64_t seed;
	bool sm_auto, until_unused;
	int report; /* the pipe; -1: nobody listens any more */
};

__attribute__((format(printf, 2, 3))) static void report(struct options *o, const char *fmt, ...)
{
	va_list ap;

	if (o->report < 0)
		return;
	va_start(ap, fmt);
	vdprintf(o->report, fmt, ap);
	va_end(ap);
}

/* ---- what the subnet tells ---- */

static void arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
	if (bth_dqpn(p->bth) > GSI_QPN)
		trunk_arrived(arg, at, p);
	else if (!gsi_arrived(arg, at, p))
		umad_arrived(arg, at, p);
}

static void seen(void *arg, struct subnet_port *from, const struct packet *p)
{
	capture_seen(arg, from, p);
}

static void changed(void *arg, struct subnet_port *at, enum subnet_change what)
{
	trees_changed(arg, at, what);
	attach_changed(arg, at, what);
	umad_changed(arg, at, what);
	manager_changed(arg, at, what);
}

static void *table(void *arg, size_t len)
{
	return attach_table(arg, len);
}

static void tallies(void *arg)
{
	attach_take_tallies(arg);
}

static const struct subnet_ops ops = {
	.arrived = arrived, .seen = seen, .changed = changed, .tallies = tallies, .table = table};

/* ---- time ---- */

static void expire(void *arg, uint64_t now)
{
	struct fabricd *d = arg;

	subnet_expire(d->subnet, now);
}

static void set_timer(void *arg, uint64_t now)
{
	struct fabricd *d = arg;

	loop_timer_set(d->loop, &d->timer, subnet_deadline(d->subnet));
}

static void on_signal(void *arg, uint32_t events)
{
	struct signalfd_siginfo info;
	struct fabricd *d = arg;

	while (read(d->signals, &info, sizeof(info)) == sizeof(info))
		if (info.ssi_signo == SIGCHLD)
			sm_reap(d);
		else
			sm_leave(d);
}

static int watch_signals(struct fabricd *d)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGIO, SIG_IGN); /* of a lease (trees.c) that somebody's open ends */
	d->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return d->signals < 0 ? -errno : loop_add(d->loop, d->signals, EPOLLIN, on_signal, d);
}

/* ---- the directory ---- */

/* The lock says that the fabric is up; the kernel gives it back when we are killed. */
static int take_directory(struct fabricd *d, struct options *o)
{
	char path[PATH_MAX + 8];
	int fd;

	if (mkdir(d->dir, 0700) && errno != EEXIST) {
		report(o, "error %s cannot be made: %s\n", d->dir, strerror(errno));
		return -1;
	}
	snprintf(path, sizeof(path), "%s/lock", d->dir);
	fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) {
		report(o,
			errno == EWOULDBLOCK ? "error the fabric '%s' is already up; `anyrdma fabric down "
					       "--name %s` ends it\n"
					     : "error the directory of the fabric '%s' cannot be used (%s)\n",
			d->name, errno == EWOULDBLOCK ? d->name : strerror(errno));
		return -1;
	}
	if (ftruncate(fd, 0) || dprintf(fd, "%d\n", (int)getpid()) < 0)
		log_warn("%s cannot be written", path);
	return fd;
}

/* ---- parts ---- */

static const struct part {
	const char *name;
	int (*open)(struct fabricd *d);
	void (*close)(struct fabricd *d);
} parts[] = {
	{"trees", trees_open, trees_close},
	{"capture", capture_open, capture_close},
	{"umad", umad_open, umad_close},
	{"manager", manager_open, manager_close},
	{"attach", attach_open, attach_close},
	{"users", users_open, users_close},
	{"console", console_open, console_close},
};
enum { PARTS = sizeof(parts) / sizeof(parts[0]) };

static int open_parts(struct fabricd *d, struct options *o)
{
	for (unsigned i = 0; i < PARTS; i++) {
		int err = parts[i].open(d);

		if (err) {
			report(o, "error the fabric cannot be opened (%s): %s\n", parts[i].name,
				strerror(-err));
			while (i--)
				parts[i].close(d);
			return err;
		}
	}
	return 0;
}

static void close_parts(struct fabricd *d)
{
	for (unsigned i = PARTS; i--;)
		parts[i].close(d);
}

/* Faults that the description gives to links. */
static int set_faults(struct fabricd *d, char err[TOPO_ERROR])
{
	for (unsigned i = 0; i < d->topo.nfaults; i++) {
		struct subnet_fault f;

		if (describe_fault(d->topo.fault[i].what, &f, err))
			return -EINVAL;
		if (subnet_set_fault(d->topo.fault[i].port, &f)) {
			snprintf(err, TOPO_ERROR, "@fault: there is no cable at %s[%u]",
				d->topo.fault[i].port->node->id, d->topo.fault[i].port->num);
			return -EINVAL;
		}
	}
	return 0;
}

/* A subnet may have them, by mistake or for a test of a manager. */
static void warn_of_twins(struct fabricd *d, struct options *o)
{
	char sentence[TOPO_ERROR];

	if (!describe_twins(d->subnet, sentence))
		return;
	report(o, "warning %s\n", sentence);
	log_warn("%s", sentence);
}

/* A description of several machines is a whole subnet on this one. */
static void warn_of_sites(struct fabricd *d, struct options *o)
{
	if (d->topo.nsites)
		report(o, "warning @site has no effect yet: all nodes are on this machine\n");
}

enum crc { CRC_NEEDED, CRC_ALWAYS }; /* ANYRDMA_CRC */

static int make_subnet(struct fabricd *d, struct options *o)
{
	char err[TOPO_ERROR] = "out of memory";
	int status;

	report(o, "reading %s\n", o->describe.what);
	d->subnet = subnet_open(&ops, d, o->seed);
	status = d->subnet ? describe(d, &o->describe, err) : -ENOMEM;
	if (!status) {
		report(o, "%u nodes\n", subnet_nodes(d->subnet));
		warn_of_twins(d, o);
		warn_of_sites(d, o);
		if (env_value(ANYRDMA_CRC) == CRC_ALWAYS)
			subnet_check_crcs(d->subnet);
		d->started = clock_ns();
		status = subnet_start(d->subnet, d->started);
		if (status)
			snprintf(err, sizeof(err), "out of memory");
	}
	if (!status)
		status = set_faults(d, err);
	if (status)
		report(o, "error %s\n", err);
	return status;
}

static int run(struct fabricd *d, struct options *o)
{
	int err = make_subnet(d, o);

	if (err)
		return err;
	loop_timer_init(&d->timer, expire, d);
	err = watch_signals(d);
	if (!err)
		err = open_parts(d, o);
	if (err)
		return err;
	if (chdir("/"))
		log_warn("the working directory is kept: %s", strerror(errno));
	loop_before_sleep(d->loop, set_timer, d); /* behind those of the parts, which may send */
	report(o, "ready\n");
	close(o->report);
	o->report = -1;
	slice_ask_short(); /* behind what takes long: a large description */
	err = loop_run(d->loop);
	sm_close(d);
	close_parts(d);
	return err;
}

/* Whoever starts the fabric again makes a new directory at once: ours gets out of its way first, in one step.
 */
static void leave_directory(const struct fabricd *d, int lock)
{
	char gone[PATH_MAX + 32], path[PATH_MAX + 8];
	struct stat own, there;

	snprintf(path, sizeof(path), "%s/lock", d->dir);
	snprintf(gone, sizeof(gone), "%.*s/gone-%d", (int)(strrchr(d->dir, '/') - d->dir), d->dir,
		(int)getpid());
	if (fstat(lock, &own) || stat(path, &there) || own.st_ino != there.st_ino ||
		own.st_dev != there.st_dev)
		return;         /* it was removed under us, and may be another's by now */
	rmtree(AT_FDCWD, gone); /* of one that was killed here, long ago */
	rmtree(AT_FDCWD, rename(d->dir, gone) ? d->dir : gone);
}

static bool read_options(int argc, char **argv, struct options *o)
{
	static const struct option names[] = {{"name", 1, 0, 'n'}, {"dir", 1, 0, 'd'}, {"tool", 1, 0, 't'},
		{"seed", 1, 0, 's'}, {"mtu", 1, 0, 'm'}, {"speed", 1, 0, 'v'}, {"ports-per-hca", 1, 0, 'p'},
		{"ip", 1, 0, 'i'}, {"sm", 1, 0, 'S'}, {"report", 1, 0, 'r'}, {"until-unused", 0, 0, 'u'},
		{0}};
	int c;

	*o = (struct options){.report = -1, .describe = {.hca_ports = 1}, .seed = 1};
	while ((c = getopt_long(argc, argv, "", names, NULL)) >= 0)
		switch (c) {
		case 'n':
			o->name = optarg;
			break;
		case 'd':
			o->dir = optarg;
			break;
		case 't':
			o->tool = optarg;
			break;
		case 's':
			o->seed = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			o->describe.mtu = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'v':
			o->describe.speed = optarg;
			break;
		case 'p':
			o->describe.hca_ports = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'i':
			o->describe.ip = optarg;
			break;
		case 'S':
			o->sm_auto = !strcmp(optarg, "auto");
			break;
		case 'u':
			o->until_unused = true;
			break;
		case 'r':
			o->report = atoi(optarg);
			if (fcntl(o->report, F_SETFD, FD_CLOEXEC))
				return false; /* or a file of ours would get its number */
			break;
		default:
			return false;
		}
	o->describe.what = argv[optind];
	return o->name && o->dir && o->tool && o->describe.what && *o->dir == '/' &&
	       strlen(o->name) < SUBNET_NAME && strlen(o->dir) < PATH_MAX - 64;
}

/* Each program that talks to us has a descriptor here. */
static void raise_limit(void)
{
	struct rlimit l;

	if (!getrlimit(RLIMIT_NOFILE, &l)) {
		l.rlim_cur = l.rlim_max;
		setrlimit(RLIMIT_NOFILE, &l);
	}
}

int main(int argc, char **argv)
{
	static struct fabricd d = {.signals = -1, .table_fd = -1, .users = -1};
	struct options o;
	int lock, err;

	log_init();
	if (!read_options(argc, argv, &o)) {
		fputs("anyrdma-fabricd is started by `anyrdma fabric up`\n", stderr);
		return 2;
	}
	umask(077);
	raise_limit();
	strcpy(d.name, o.name);
	strcpy(d.dir, o.dir);
	d.tool = o.tool;
	d.sm_auto = o.sm_auto;
	d.until_unused = o.until_unused;
	lock = take_directory(&d, &o);
	if (lock < 0)
		return 1;
	d.loop = loop_open();
	err = d.loop ? run(&d, &o) : -errno;
	if (err)
		report(&o, "error %s\n", strerror(-err)); /* the tool heeds the first */
	subnet_close(d.subnet);
	topo_fini(&d.topo);
	loop_close(d.loop);
	leave_directory(&d, lock);
	close(lock);
	return err ? 1 : 0;
}
