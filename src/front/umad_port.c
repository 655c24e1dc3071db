/* SPDX-License-Identifier: MIT */
/*
 * Ports that are open: a connection to the fabric each.
 *
 *	            OPEN                        the fabric ends
 *	 open --------------------> CONNECTED --------------------> DOWN
 *	                               ^                              |
 *	                               '------------------------------'
 *	                      it is back: OPEN, REGISTER of all agents
 *
 * A program does not notice a fabric that is started again, except that requests on their way time out. It
 *must not: OpenSM, told of an error by umad_recv(), calls it again at once and for ever. While DOWN, requests
 *are taken and time out as on a cable that was cut, and umad_recv() waits.
 */
#include "front/umad_front.h"

#include "base/asserts.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <infiniband/umad.h>

enum { LOOK_MS = 200, TOLD_MS = 1000 };
#define MS 1000000ull

_Static_assert(sizeof(struct fabric_mad) == sizeof(struct ib_user_mad) && FABRIC_AGENTS == UMAD_CA_MAX_AGENTS,
	"fabric/proto.h has what umad.h has");

static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static struct list ports = {&ports, &ports};

/* ---- which there are ---- */
struct umad_handle *umad_handle_get(int portid)
{
	struct umad_handle *found = NULL;

	pthread_mutex_lock(&table);
	list_for_each(pos, &ports)
	{
		struct umad_handle *p = container_of(pos, struct umad_handle, node);

		if (p->fd == portid)
			found = p;
	}
	if (found)
		found->refs++;
	else
		errno = EINVAL;
	pthread_mutex_unlock(&table);
	return found;
}

static void free_list(struct list *l)
{
	for (struct list *n; (n = list_pop(l));)
		free(container_of(n, struct umad_waiting, node));
}

void umad_handle_put(struct umad_handle *p)
{
	bool last;

	pthread_mutex_lock(&table);
	last = !--p->refs;
	pthread_mutex_unlock(&table);
	if (!last)
		return;
	close(p->fd);
	close(p->timer);
	free_list(&p->waiting);
	free_list(&p->timed_out);
	free(p->body);
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->sending);
	free(p);
}

/* ---- connecting ---- */
static int open_connection(struct umad_handle *p, uint64_t *secret)
{
	struct fabric_opened opened;
	int fd = fabric_connect(p->fabric), n;

	if (fd < 0)
		return fd;
	n = fabric_ask_over(fd, FABRIC_OPEN, &p->where, sizeof(p->where), &opened, sizeof(opened));
	if (n != sizeof(opened)) {
		close(fd);
		return n < 0 ? n : -EPROTO;
	}
	*secret = opened.secret;
	/* A fabric that is stopped for a while is not gone: sending waits for it. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){0}, sizeof(struct timeval));
	return fd;
}

int umad_handle_agent(struct umad_handle *p, enum fabric_umad_type type, struct fabric_register r)
{
	struct fabric_done done;
	int n;

	r.secret = p->secret;
	n = fabric_ask(p->fabric, type, &r, sizeof(r), &done, sizeof(done));
	return n < 0 ? -n : 0;
}

void umad_handle_set_alarm(struct umad_handle *p)
{
	uint64_t at = p->look_at;
	struct itimerspec t = {0};

	assert_that(mutex_is_locked(&p->lock));
	list_for_each(pos, &p->waiting)
	{
		const struct umad_waiting *w = container_of(pos, struct umad_waiting, node);

		if (w->deadline < at)
			at = w->deadline;
	}
	if (!list_empty(&p->timed_out) || !at)
		at = 1; /* at once; 0 would be never */
	t.it_value = (struct timespec){(time_t)(at / (1000 * MS)), (long)(at % (1000 * MS))};
	timerfd_settime(p->timer, TFD_TIMER_ABSTIME, &t, NULL);
}

void umad_handle_forget(struct umad_handle *p)
{
	assert_that(mutex_is_locked(&p->lock));
	free(p->body);
	p->body = NULL;
	p->have = 0;
}

/* Both locks are held. Whoever sleeps on the connection wakes up by the shutdown. */
static void go_down(struct umad_handle *p)
{
	assert_that(mutex_is_locked(&p->sending) && mutex_is_locked(&p->lock));
	shutdown(p->fd, SHUT_RDWR);
	dup3(p->timer, p->fd, O_CLOEXEC);
	p->down = true;
	p->lost_at = clock_ns();
	p->look_at = 0;
	umad_handle_forget(p);
	list_for_each_safe(pos, &p->waiting)
	{
		list_del(pos);
		list_add_tail(&p->timed_out, pos);
	}
	umad_handle_set_alarm(p);
}

void umad_handle_lost(struct umad_handle *p)
{
	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	if (!p->down && !p->closed)
		go_down(p);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&p->sending);
}

/* False: the fabric has gone again. What it refuses stays refused: somebody else was faster. */
static bool register_again(struct umad_handle *p)
{
	for (unsigned i = 0; i < FABRIC_AGENTS; i++) {
		int err = p->agents >> i & 1 ? umad_handle_agent(p, FABRIC_REGISTER, p->agent[i]) : 0;

		if (err == EPERM || err == EINVAL)
			log_warn("the fabric is back, but an agent for class 0x%x cannot register again: %s",
				p->agent[i].mgmt_class, strerror(err));
		else if (err)
			return false;
	}
	return true;
}

/*
 * The lock is held. Requests of the time without a fabric are sent now. Whoever sleeps on the timer must wake
 * up, and look again by the number: it sleeps on the file that was behind it.
 */
static void come_up(struct umad_handle *p, int fd)
{
	assert_that(mutex_is_locked(&p->lock));
	list_for_each(pos, &p->waiting)
	{
		struct umad_waiting *w = container_of(pos, struct umad_waiting, node);

		umad_handle_write(fd, &w->mad, w->msg, w->len);
	}
	timerfd_settime(p->timer, TFD_TIMER_ABSTIME, &(struct itimerspec){.it_value = {0, 1}}, NULL);
	if (dup3(fd, p->fd, O_CLOEXEC) >= 0)
		p->down = false;
}

/*
 * Not before the program knows which requests were lost: the connection is not readable for them, as the
 * timer is. Who does not ask within a second does not poll for them.
 */
static bool is_time_to_look(struct umad_handle *p)
{
	uint64_t now = clock_ns(), expired;
	bool look;

	pthread_mutex_lock(&p->lock);
	look = p->down && !p->closed && now >= p->look_at &&
	       (list_empty(&p->timed_out) || now >= p->lost_at + TOLD_MS * MS);
	if (look) {
		if (read(p->timer, &expired, sizeof(expired)) < 0)
			expired = 0; /* it had not come to that */
		p->look_at = now + LOOK_MS * MS;
		umad_handle_set_alarm(p);
	}
	pthread_mutex_unlock(&p->lock);
	return look;
}

void umad_handle_mend(struct umad_handle *p)
{
	int fd;

	if (!p->down || pthread_mutex_trylock(&p->sending))
		return;
	fd = is_time_to_look(p) ? open_connection(p, &p->secret) : -EAGAIN;
	if (fd >= 0 && register_again(p)) {
		pthread_mutex_lock(&p->lock);
		if (!p->closed)
			come_up(p, fd);
		pthread_mutex_unlock(&p->lock);
	}
	if (fd >= 0)
		close(fd);
	pthread_mutex_unlock(&p->sending);
}

/* ---- open and close ---- */
static int open_port(const char *ca_name, int portnum)
{
	struct umad_handle *p = calloc(1, sizeof(*p));
	char ca[FABRIC_CA_NAME];
	uint32_t num;
	int err;

	if (!p)
		return umad_error(ENOMEM);
	err = umad_resolve(ca_name, portnum, ca, &num);
	if (!err) {
		p->timer = fd_above_stdio(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
		err = p->timer < 0 ? errno : 0;
	}
	if (!err) {
		fabric_where(&p->where, ca, num);
		p->fd = open_connection(p, &p->secret);
		err = p->fd < 0 ? EIO : 0;
		if (err)
			close(p->timer);
	}
	if (err) {
		free(p);
		return umad_error(err);
	}
	p->refs = 1;
	list_init(&p->waiting);
	list_init(&p->timed_out);
	pthread_mutex_init(&p->lock, NULL);
	pthread_mutex_init(&p->sending, NULL);
	pthread_mutex_lock(&table);
	list_add_tail(&ports, &p->node);
	pthread_mutex_unlock(&table);
	return p->fd;
}

int umad_open_port(const char *ca_name, int portnum)
{
	CANCEL_SAFE;

	return open_port(ca_name, portnum);
}

int umad_open_smi_port(const char *ca_name, int portnum);
int umad_open_smi_port(const char *ca_name, int portnum)
{
	CANCEL_SAFE;

	return open_port(ca_name, portnum);
}

/* Whoever is in another call for this port leaves by itself; the descriptor is closed when the last one has.
 */
int umad_close_port(int portid)
{
	CANCEL_SAFE;
	struct umad_handle *p = umad_handle_get(portid);

	if (!p)
		return -EINVAL;
	pthread_mutex_lock(&table);
	list_del(&p->node);
	pthread_mutex_unlock(&table);
	pthread_mutex_lock(&p->lock);
	p->closed = true;
	shutdown(p->fd, SHUT_RDWR); /* wakes whoever waits for it */
	pthread_mutex_unlock(&p->lock);
	umad_handle_put(p);
	umad_handle_put(p);
	return 0;
}

int umad_get_fd(int portid)
{
	CANCEL_SAFE;
	struct umad_handle *p = umad_handle_get(portid);

	if (!p)
		return -EINVAL;
	umad_handle_put(p);
	return portid;
}
