/* SPDX-License-Identifier: MIT */
/* The socket `attach`: programs that have devices of this fabric. Whatever is wrong with one ends its
 * connection, and with it all that it had. */
#include "fabricd/attach_parts.h"

#include "base/log.h"
#include "base/memfile.h"
#include "base/random.h"
#include "fabric/shared.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- the table ---- */
void *attach_table(struct fabricd *d, size_t len)
{
	void *at = NULL;
	int fd = memfile_make("anyrdma-fabric", len);

	if (fd >= 0)
		at = memfile_map(fd, len, PROT_READ | PROT_WRITE, NULL);
	if (at && memfile_read_only(fd)) {
		munmap(at, len);
		at = NULL;
	}
	if (!at && fd >= 0)
		close(fd);
	d->table_fd = at ? fd : -1;
	return at;
}

/* Programs remember at which epoch they looked: no other table of theirs ever has the same. */
static void begin_epoch(struct fabric_table *t)
{
	uint64_t first;

	random_bytes(&first, sizeof(first));
	fabric_change_begin(t);
	t->epoch += first >> 1 & ~1ull;
	fabric_change_end(t);
}

static uint32_t host_number(const struct attach_conn *c)
{
	return (uint32_t)(c->host - c->all->d->topo.host) + 1;
}

void attach_tell(const struct attach_conn *c, bool there)
{
	struct fabric_table *t = subnet_table(c->all->d->subnet);
	struct ucred who = {0};
	socklen_t len = sizeof(who);

	getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &who, &len);
	fabric_change_begin(t);
	*fabric_program(t, c->slot) =
		there ? (struct fabric_program){host_number(c), who.pid} : (struct fabric_program){0};
	fabric_change_end(t);
}

/* ---- connections ---- */
static void hang_up(struct attach_conn *c)
{
	struct attach *all = c->all;

	loop_remove(all->d->loop, c->fd);
	loop_timer_stop(&c->timer);
	sa_client_forget(c);
	members_forget(c);
	trunk_close(c);
	close(c->fd);
	free(c->listen);
	free(c->tally);
	list_del(&c->node);
	all->nconns--;
	free(c);
}

static void lost_patience(void *arg, uint64_t now)
{
	hang_up(arg);
}

static struct topo_host *host_of(const struct fabricd *d, const struct attach_hello *h)
{
	if (!memchr(h->host, '\0', sizeof(h->host)))
		return NULL;
	if (!h->host[0])
		return d->topo.nhosts ? &d->topo.host[0] : NULL;
	return topo_host(&d->topo, h->host);
}

static void describe_hca(const struct subnet_node *n, unsigned index, struct attach_hca *to)
{
	snprintf(to->name, sizeof(to->name), "ib%u", index);
	to->node_guid = n->guid;
	to->sys_guid = n->sys_guid;
	for (unsigned i = 1; i <= n->nports && to->nports < FABRIC_CA_PORTS; i++)
		to->port[to->nports++] = subnet_port(n, i)->index;
}

static int check_hello(
	const struct attach_conn *c, const struct attach_hello *h, const struct topo_host *host)
{
	if (h->version != ATTACH_VERSION)
		return EPROTO;
	if (!host)
		return ENODEV;
	if (h->slot >= SLOTS)
		return EINVAL;
	return h->slot && c->all->slot[h->slot] ? EADDRINUSE : 0;
}

enum { WELCOME_FDS = 3 };

static int send_welcome(struct attach_conn *c, const struct attach_welcome *w, const int *fd, unsigned nfds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(WELCOME_FDS * sizeof(int))] = {0};
	struct iovec iov = {(void *)(uintptr_t)w, sizeof(*w)};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

	if (nfds) {
		struct cmsghdr *head;

		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		head = CMSG_FIRSTHDR(&m);
		head->cmsg_level = SOL_SOCKET;
		head->cmsg_type = SCM_RIGHTS;
		head->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(head), fd, nfds * sizeof(int));
	}
	return sendmsg(c->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*w) ? 0 : -errno;
}

static int refuse(struct attach_conn *c, struct attach_welcome *w, int err)
{
	w->error = err;
	send_welcome(c, w, NULL, 0);
	return -err;
}

static int welcome(struct attach_conn *c, const struct attach_hello *h)
{
	struct fabricd *d = c->all->d;
	struct attach_welcome w = {.magic = ATTACH_MAGIC, .version = ATTACH_VERSION};
	struct topo_host *host = host_of(d, h);
	int err = check_hello(c, h, host), fd[WELCOME_FDS] = {d->table_fd, c->all->names_fd, -1};

	if (err)
		return refuse(c, &w, err);
	if (trees_path(d, host, w.tree, sizeof(w.tree)))
		w.tree[0] = '\0';
	c->host = host;
	if (h->slot) {
		fd[2] = trunk_open(c);
		if (fd[2] < 0)
			return refuse(c, &w, -fd[2]);
		c->slot = h->slot;
		c->all->slot[c->slot] = c;
		attach_tell(c, true);
	}
	w.table_size = subnet_table(d->subnet)->size;
	w.names_size = c->all->names_size;
	w.host_tag = attach_host_tag(d, host);
	for (; w.nhcas < host->nhcas && w.nhcas < FABRIC_CAS; w.nhcas++)
		describe_hca(host->hca[w.nhcas], w.nhcas, &w.hca[w.nhcas]);
	err = send_welcome(c, &w, fd, h->slot ? 3 : 2);
	if (fd[2] >= 0)
		close(fd[2]);
	return err;
}

union message {
	uint8_t type;
	struct attach_hello hello;
	struct attach_listen listen;
};

/* Whether it is something that a program says once it is there. */
static bool take_message(struct attach_conn *c, const union message *m, size_t len)
{
	if (len == 1)
		return m->type == ATTACH_RING;
	if (len != sizeof(m->listen) || !c->slot || (m->type != ATTACH_LISTEN && m->type != ATTACH_UNLISTEN))
		return false;
	attach_listen(c, &m->listen);
	return true;
}

static bool take_hello(struct attach_conn *c, const union message *m, size_t len)
{
	if (len != sizeof(m->hello) || m->hello.magic != ATTACH_MAGIC)
		return false;
	loop_timer_stop(&c->timer);
	return true;
}

/* 1: go on; 0: nothing more; -errno: it is over. */
static int read_one(struct attach_conn *c)
{
	union message m;
	ssize_t n = recv(c->fd, &m, sizeof(m), MSG_DONTWAIT | MSG_TRUNC);

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!n)
		return -ECONNRESET;
	if (c->host && take_message(c, &m, (size_t)n))
		return 1;
	if (!c->host && take_hello(c, &m, (size_t)n))
		return welcome(c, &m.hello) ? -EPROTO : 1;
	c->all->count.nonsense++;
	return -EPROTO;
}

void attach_read(struct attach_conn *c)
{
	enum { AT_ONCE = 64 };
	int more = 1;

	for (int i = 0; i < AT_ONCE && more > 0; i++)
		more = read_one(c);
	if (more > 0 && c->slot)
		fabric_ring(c->fd); /* it may have more to say, and found no room */
	if (more >= 0 && !c->broken)
		return;
	trunk_finish(c);
	hang_up(c);
}

static void on_conn(void *arg, uint32_t events)
{
	attach_read(arg);
}

/* The first that came and has not said who it is goes. False: each has a host. */
static bool make_place(struct attach *all)
{
	if (all->nconns < ATTACH_CONNS)
		return true;
	list_for_each(n, &all->conns)
	{
		struct attach_conn *c = container_of(n, struct attach_conn, node);

		if (!c->host) {
			hang_up(c);
			return true;
		}
	}
	return false;
}

static void take_in(struct attach *all, int fd)
{
	struct attach_conn *c = make_place(all) ? calloc(1, sizeof(*c)) : NULL;

	if (!c || loop_add(all->d->loop, fd, EPOLLIN, on_conn, c)) {
		free(c);
		close(fd);
		return;
	}
	c->all = all;
	c->fd = fd;
	loop_timer_init(&c->timer, lost_patience, c);
	loop_timer_set(all->d->loop, &c->timer, loop_now(all->d->loop) + ATTACH_PATIENCE_S * 1000000000ull);
	list_add_tail(&all->conns, &c->node);
	all->nconns++;
}

void attach_accept(struct attach *all)
{
	for (int fd; (fd = fabricd_accept(all->listener)) >= 0;)
		take_in(all, fd);
}

static void on_listener(void *arg, uint32_t events)
{
	attach_accept(arg);
}

/* ---- what changes ---- */
void attach_changed(struct fabricd *d, struct subnet_port *at, enum subnet_change what)
{
	static const uint8_t changed = ATTACH_CHANGED;
	struct topo_host *host = d->attach ? topo_host_of(&d->topo, at->node) : NULL;

	if (!host)
		return;
	if (what == SUBNET_REREGISTER)
		members_renew(d->attach, at);
	list_for_each(n, &d->attach->conns)
	{
		const struct attach_conn *c = container_of(n, struct attach_conn, node);

		/* Full: it has enough to wake up for. */
		if (c->host == host)
			(void)!send(c->fd, &changed, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	}
}

/* ---- looking ---- */
void attach_describe(const struct fabricd *d, FILE *out)
{
	const struct attach_counts *c = &d->attach->count;
	unsigned n = 0;

	for (unsigned i = 0; i < SLOTS; i++)
		n += d->attach->slot[i] != NULL;
	if (n)
		fprintf(out, "Programs with queue pairs: %u.\n", n);
	if (c->refused || c->unknown || c->overruns)
		fprintf(out,
			"Packets of programs that were refused: %" PRIu64
			"; for programs that are not there: %" PRIu64 "; that found no room: %" PRIu64 ".\n",
			c->refused, c->unknown, c->overruns);
	if (c->nonsense || c->listeners)
		fprintf(out,
			"Programs cut off for what they said: %" PRIu64
			"; listeners that were refused: %" PRIu64 ".\n",
			c->nonsense, c->listeners);
}

/* ---- life ---- */
static int list_ports(struct attach *all, const struct subnet *s)
{
	all->nports = subnet_table(s)->n.ports;
	all->port = calloc(all->nports + 1, sizeof(*all->port));
	if (!all->port)
		return -ENOMEM;
	for (unsigned i = 0; i < subnet_nodes(s); i++) {
		struct subnet_node *n = subnet_node(s, i);

		for (unsigned p = 0; p <= n->nports; p++)
			if (subnet_port(n, p) && subnet_port(n, p)->index < all->nports)
				all->port[subnet_port(n, p)->index] = subnet_port(n, p);
	}
	return 0;
}

/* Which ports are whose: programs of other hosts have to know. */
static void tell_hosts(const struct fabricd *d)
{
	for (unsigned i = 0; i < d->topo.nhosts; i++)
		for (unsigned k = 0; k < d->topo.host[i].nhcas; k++) {
			struct subnet_node *hca = d->topo.host[i].hca[k];

			for (unsigned p = 1; p <= hca->nports; p++)
				subnet_port(hca, p)->shared->host = i + 1;
		}
}

int attach_open(struct fabricd *d)
{
	struct attach *all = calloc(1, sizeof(*all));
	int err = all ? list_ports(all, d->subnet) : -ENOMEM;

	if (!err) {
		all->names_fd = attach_names(&d->topo, &all->names_size);
		err = all->names_fd < 0 ? all->names_fd : 0;
	}
	if (err) {
		free(all ? all->port : NULL);
		free(all);
		return err;
	}
	all->d = d;
	list_init(&all->conns);
	begin_epoch(subnet_table(d->subnet));
	tell_hosts(d);
	all->listener = fabricd_listen(d, "attach", SOCK_SEQPACKET);
	err = all->listener < 0 ? all->listener : loop_add(d->loop, all->listener, EPOLLIN, on_listener, all);
	if (err) {
		if (all->listener >= 0)
			close(all->listener);
		close(all->names_fd);
		free(all->port);
		free(all);
		return err;
	}
	sa_client_open(all);
	loop_before_sleep(d->loop, trunk_before_sleep, all);
	d->attach = all;
	return 0;
}

void attach_close(struct fabricd *d)
{
	struct attach *all = d->attach;

	if (!all)
		return;
	while (!list_empty(&all->conns))
		hang_up(container_of(all->conns.next, struct attach_conn, node));
	loop_remove(d->loop, all->listener);
	close(all->listener);
	sa_client_close(all);
	close(all->names_fd);
	free(all->port);
	free(all);
	d->attach = NULL;
}
