/* SPDX-License-Identifier: MIT */
/*
 * The files of hosts. A host gets its directory when somebody first asks for it, since a thousand hosts would
 * be a hundred thousand files:
 *
 *   <dir>/host-<name>/issm0      opened by a subnet manager for as long as it runs: watched by inotify
 *   <dir>/host-<name>/counters0, node_desc0 (host_live.h)
 *   <dir>/host-<name>/sys/…      class/ and dev/ (sysfs/sysfs.h), written anew when something changed
 *
 * A tree is replaced as a whole, and a file that is open must not be: so the issm files lie beside it. They
 * outlive a fabric that is killed, and so does the subnet manager that has one open: the next fabric finds it
 * there.
 */
#include "fabricd/fabricd.h"

#include "fabricd/host_live.h"
#include "fabricd/host_tree.h"

#include "base/log.h"
#include "wire/smp.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REFRESH_NS 20000000ull

/* The issm file of a port. */
struct issm {
	int wd; /* inotify's; -1 none */
	struct subnet_port *port;
	unsigned openers;
};

struct tree {
	bool made;
	bool dirty;        /* something changed since it was written */
	struct issm *issm; /* of all ports of all adapters, in order */
	unsigned nissms;
	struct host_live *live;
};

struct trees {
	int inotify;
	int own;  /* its watch of the fabric's directory */
	int live; /* inotify of files that are read often: nothing of the other is lost by them */
	struct loop_timer timer; /* runs while a tree is dirty */
	uint32_t *host_of;       /* by the index of the node; that of its host, for adapters */
	struct tree *tree;       /* by the index of the host */
};

static struct tree *tree_of(const struct fabricd *d, const struct topo_host *h)
{
	return &d->trees->tree[h - d->topo.host];
}

/* Names of hosts come from descriptions: what is no plain file name becomes a number. */
static int host_dir(const struct fabricd *d, const struct topo_host *h, char *buf, size_t len)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	int n;

	if (strspn(h->name, plain) == strlen(h->name))
		n = snprintf(buf, len, "%s/host-%s", d->dir, h->name);
	else
		n = snprintf(buf, len, "%s/host%u", d->dir, (unsigned)(h - d->topo.host));
	return (size_t)n < len ? 0 : -ENAMETOOLONG;
}

/* ---- issm ---- */

static struct issm *issm_by_wd(const struct fabricd *d, int wd)
{
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->trees->tree[i].nissms; k++)
			if (d->trees->tree[i].issm[k].wd == wd)
				return &d->trees->tree[i].issm[k];
	return NULL;
}

static void tell_is_sm(struct fabricd *d, const struct issm *i)
{
	manager_issm(d, i->openers); /* first: it may have been at this port */
	subnet_set_capability(i->port, PORT_CAP_IS_SM, i->openers ? PORT_CAP_IS_SM : 0, loop_now(d->loop));
}

/* Two that open in the same moment may be told as one; the second cannot register for the port anyway. */
static void issm_event(struct fabricd *d, const struct inotify_event *e)
{
	struct issm *i = issm_by_wd(d, e->wd);
	bool held;

	if (!i)
		return;
	held = i->openers;
	if (e->mask & IN_OPEN)
		i->openers++;
	else if (e->mask & IN_CLOSE && i->openers)
		i->openers--;
	if (held != (i->openers > 0))
		tell_is_sm(d, i);
}

static void own_event(struct fabricd *d, const struct inotify_event *e)
{
	if (e->wd != d->trees->own)
		issm_event(d, e);
	else if (!e->len || !strcmp(e->name, "lock"))
		sm_leave(d); /* our directory is going: nobody can reach us any more */
}

static void live_event(struct fabricd *d, const struct inotify_event *e)
{
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		if (d->trees->tree[i].live && host_live_event(d->trees->tree[i].live, e))
			return;
}

static void each_event(
	struct fabricd *d, int inotify, void (*on)(struct fabricd *d, const struct inotify_event *e))
{
	char buf[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	while ((n = read(inotify, buf, sizeof(buf))) > 0)
		for (char *p = buf; p < buf + n;) {
			const struct inotify_event *e = (const struct inotify_event *)p;

			on(d, e);
			p += sizeof(*e) + e->len;
		}
}

static void read_events(void *arg, uint32_t events)
{
	struct fabricd *d = arg;

	each_event(d, d->trees->inotify, own_event);
}

static void read_live(void *arg, uint32_t events)
{
	struct fabricd *d = arg;

	each_event(d, d->trees->live, live_event);
}

void trees_read(struct fabricd *d)
{
	read_events(d, EPOLLIN);
}

/* Whether another process has the file open: the kernel gives a write lease to no other. */
static bool is_held(int fd)
{
	if (!fcntl(fd, F_SETLEASE, F_WRLCK)) {
		fcntl(fd, F_SETLEASE, F_UNLCK);
		return false;
	}
	return errno == EAGAIN;
}

/* issmN is that of the N-th port of the host. Watched only when we have closed it, or we would hear
 * ourselves. */
static int make_issm(struct fabricd *d, const char *dir, struct issm *i, unsigned number)
{
	char path[PATH_MAX];
	int fd;

	if ((size_t)snprintf(path, sizeof(path), "%s/issm%u", dir, number) >= sizeof(path))
		return -ENAMETOOLONG;
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	i->openers = is_held(fd);
	close(fd);
	i->wd = inotify_add_watch(d->trees->inotify, path, IN_OPEN | IN_CLOSE);
	return i->wd < 0 ? -errno : 0;
}

static unsigned count_ports(const struct topo_host *h)
{
	unsigned n = 0;

	for (unsigned k = 0; k < h->nhcas; k++)
		n += h->hca[k]->nports;
	return n;
}

static int make_issms(struct fabricd *d, const struct topo_host *h, struct tree *t, const char *dir)
{
	int err = 0;

	t->issm = calloc(count_ports(h), sizeof(*t->issm));
	if (!t->issm)
		return -ENOMEM;
	for (unsigned k = 0; k < h->nhcas; k++)
		for (unsigned p = 1; p <= h->hca[k]->nports && !err; p++) {
			struct issm *i = &t->issm[t->nissms];

			*i = (struct issm){.wd = -1, .port = &h->hca[k]->port[p]};
			err = make_issm(d, dir, i, t->nissms++);
			if (!err && i->openers)
				tell_is_sm(d, i);
		}
	return err;
}

/* ---- trees ---- */

int trees_need(struct fabricd *d, struct topo_host *h)
{
	struct tree *t = tree_of(d, h);
	char dir[PATH_MAX];
	int err;

	if (t->made)
		return 0;
	err = host_dir(d, h, dir, sizeof(dir));
	if (!err && mkdir(dir, 0700) && errno != EEXIST)
		err = -errno;
	if (!err)
		err = make_issms(d, h, t, dir);
	if (!err)
		err = host_live_open(d, h, dir, d->trees->live, &t->live);
	if (!err)
		err = host_tree_write(d, h, dir);
	if (err) {
		log_error("the files of %s cannot be written: %s", h->name, strerror(-err));
		host_live_close(t->live);
		t->live = NULL;
		free(t->issm);
		t->issm = NULL;
		t->nissms = 0;
		return err;
	}
	t->made = true;
	return 0;
}

/* Brings one dirty tree up to date: a hundred files take milliseconds, and the subnet must go on in between.
 */
static void refresh(void *arg, uint64_t now)
{
	struct fabricd *d = arg;
	bool written = false;
	char dir[PATH_MAX];

	for (unsigned i = 0; i < d->topo.nhosts; i++) {
		struct tree *t = &d->trees->tree[i];

		if (!t->dirty)
			continue;
		if (written) {
			loop_timer_set(d->loop, &d->trees->timer, now + REFRESH_NS);
			return;
		}
		t->dirty = false;
		written = true;
		if (!host_dir(d, &d->topo.host[i], dir, sizeof(dir)))
			host_tree_write(d, &d->topo.host[i], dir);
	}
}

int trees_path(struct fabricd *d, struct topo_host *h, char *buf, size_t len)
{
	int err = trees_need(d, h);
	size_t n;

	if (!err)
		err = host_dir(d, h, buf, len);
	if (!err) { /* whoever asks is about to read */
		host_tree_write(d, h, buf);
		host_live_refresh(tree_of(d, h)->live);
	}
	n = err ? 0 : strlen(buf);
	if (!err && (size_t)snprintf(buf + n, len - n, "/sys") >= len - n)
		err = -ENAMETOOLONG;
	return err;
}

int trees_issm_path(
	struct fabricd *d, struct topo_host *h, unsigned hca, unsigned port, char *buf, size_t len)
{
	unsigned number = port - 1;
	size_t n;
	int err;

	if (hca >= h->nhcas || !port || port > h->hca[hca]->nports)
		return -ENOENT;
	err = trees_need(d, h);
	if (!err)
		err = host_dir(d, h, buf, len);
	if (err)
		return err;
	for (unsigned k = 0; k < hca; k++)
		number += h->hca[k]->nports;
	n = strlen(buf);
	return (size_t)snprintf(buf + n, len - n, "/issm%u", number) < len - n ? 0 : -ENAMETOOLONG;
}

bool trees_issm_held(const struct fabricd *d, const struct subnet_port *port)
{
	const struct tree *t = &d->trees->tree[d->trees->host_of[port->node->index]];

	for (unsigned k = 0; k < t->nissms; k++)
		if (t->issm[k].port == port)
			return t->issm[k].openers > 0;
	return false;
}

unsigned trees_issms_held(const struct fabricd *d)
{
	unsigned n = 0;

	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->trees->tree[i].nissms; k++)
			n += d->trees->tree[i].issm[k].openers > 0;
	return n;
}

/* Soon, not at once: a subnet manager changes a port three times in a millisecond. */
void trees_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what)
{
	struct tree *t;

	if (!d->trees || at->node->type != SUBNET_CA)
		return;
	t = &d->trees->tree[d->trees->host_of[at->node->index]];
	if (!t->made)
		return;
	t->dirty = true;
	if (d->trees->timer.at == UINT64_MAX)
		loop_timer_set(d->loop, &d->trees->timer, loop_now(d->loop) + REFRESH_NS);
}

/* Hosts that had files when the fabric before us was killed: a subnet manager may be running on one of them.
 */
static void adopt_trees(struct fabricd *d)
{
	for (unsigned i = 0; i < d->topo.nhosts; i++) {
		char path[PATH_MAX];

		if (host_dir(d, &d->topo.host[i], path, sizeof(path) - sizeof("/issm0")))
			continue;
		strcat(path, "/issm0");
		if (!access(path, F_OK))
			trees_need(d, &d->topo.host[i]);
	}
}

static int index_hosts(struct fabricd *d)
{
	struct trees *t = d->trees;

	t->host_of = calloc(subnet_nodes(d->subnet) + 1u, sizeof(*t->host_of));
	t->tree = calloc(d->topo.nhosts + 1u, sizeof(*t->tree));
	if (!t->host_of || !t->tree)
		return -ENOMEM;
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->topo.host[i].nhcas; k++)
			t->host_of[d->topo.host[i].hca[k]->index] = i;
	return 0;
}

static int watch(struct fabricd *d, struct trees *t)
{
	int err;

	t->inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	t->live = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (t->inotify < 0 || t->live < 0)
		return -errno;
	t->own = inotify_add_watch(t->inotify, d->dir, IN_DELETE | IN_MOVE_SELF);
	if (t->own < 0)
		return -errno;
	err = loop_add(d->loop, t->inotify, EPOLLIN, read_events, d);
	return err ? err : loop_add(d->loop, t->live, EPOLLIN, read_live, d);
}

int trees_open(struct fabricd *d)
{
	struct trees *t = calloc(1, sizeof(*t));
	int err;

	if (!t)
		return -ENOMEM;
	d->trees = t;
	loop_timer_init(&t->timer, refresh, d);
	err = watch(d, t);
	if (!err)
		err = index_hosts(d);
	if (err)
		trees_close(d);
	else
		adopt_trees(d);
	return err;
}

static void stop_watching(struct fabricd *d, int inotify)
{
	if (inotify < 0)
		return;
	loop_remove(d->loop, inotify);
	close(inotify);
}

void trees_close(struct fabricd *d)
{
	struct trees *t = d->trees;

	if (!t)
		return;
	for (unsigned i = 0; t->tree && i < d->topo.nhosts; i++) {
		host_live_close(t->tree[i].live);
		free(t->tree[i].issm);
	}
	free(t->tree);
	free(t->host_of);
	loop_timer_stop(&t->timer);
	stop_watching(d, t->inotify);
	stop_watching(d, t->live);
	free(t);
	d->trees = NULL;
}
