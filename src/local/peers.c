/* SPDX-License-Identifier: MIT */
/*
 * Who is there: connections to the processes that we send to (writers.c) and from those that send to us
 * (readers.c). One direction each, so that two who want to talk to each other at the same moment do not get
 * in each other's way. Whoever drives attends to the sockets, or whoever waits for an answer.
 */
#include "local/channel_parts.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/memfile.h"
#include "base/fence.h"
#include "base/log.h"
#include "base/random.h"
#include "local/handshake.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WAIT_MS = 100 }; /* for an answer: who does not give one is stopped */

/* ---- sockets ---- */
int local_end_watch(struct local_channel *c, struct local_end *end)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = end};

	return epoll_ctl(c->ep_fd, EPOLL_CTL_ADD, end->fd, &ev) ? -errno : 0;
}

void local_end_close(struct local_channel *c, struct local_end *end)
{
	if (end->fd < 0)
		return;
	epoll_ctl(c->ep_fd, EPOLL_CTL_DEL, end->fd, NULL);
	close(fd_take(&end->fd));
}

bool local_end_has_ended(const struct local_end *end)
{
	struct pollfd p = {.fd = end->fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

/* ---- the doorbell ---- */
/*
 * From now on the next frame rings again. One that was put before has not, since the bell was rung already;
 * and who sleeps does not hear that bell any more. So whoever took it looks in their place: behind a heavy
 * fence, since the frame may be on its way out of its writer's core, which looked at the bell meanwhile. Who
 * does not receive has somebody look who does.
 */
void local_bells_taken(struct local_channel *c, bool receives)
{
	atomic_fetch_add(&c->bell->wakes, 1);
	if (!atomic_load(&c->bell->asleep))
		return; /* who lies down from now on looks by itself */
	if (!receives && c->events.promise)
		c->events.promise(c->events.promise_arg, 0);
	else if (c->bell->heavy)
		fence_heavy();
}

/* ---- who has something to say, who is wanted ---- */
void local_channel_want(struct local_channel *c, uint32_t slot)
{
	_Atomic uint64_t *word = &c->wanted[slot / 64];
	uint64_t bit = 1ull << slot % 64;

	if (atomic_load_explicit(word, memory_order_relaxed) & bit)
		return;
	atomic_fetch_or(word, bit);
	atomic_store(&c->any_wanted, true);
}

bool local_channel_has_wanted(const struct local_channel *c)
{
	return atomic_load_explicit(&c->any_wanted, memory_order_relaxed);
}

void local_peers_ask_wanted(struct local_channel *c)
{
	atomic_store(&c->any_wanted, false);
	for (uint32_t i = 0; i < QPN_SLOTS / 64; i++) {
		uint64_t bits = atomic_exchange(&c->wanted[i], 0);

		for (; bits; bits &= bits - 1) {
			struct local_writer *w = local_writer_of(c, i * 64 + (uint32_t)__builtin_ctzll(bits));

			if (w)
				local_writer_begin(c, w, false);
		}
	}
}

void local_peers_attend(struct local_channel *c, bool receives)
{
	struct epoll_event ev[16];
	int n;

	if (!lock_try(&c->handshake))
		return; /* somebody does */
	n = epoll_wait(c->ep_fd, ev, sizeof(ev) / sizeof(ev[0]), 0);
	for (int i = 0; i < n; i++) {
		struct local_end *end = ev[i].data.ptr;

		if (end->kind == END_LISTENER)
			local_readers_accept(c);
		else if (end->kind == END_PROCESS)
			local_writer_attend_process(c, end);
		else if (end->kind == END_WRITER)
			local_writer_attend(c, (struct local_writer *)end, receives);
		else if (end->fd >= 0)
			local_reader_attend(c, (struct local_reader *)end, receives);
	}
	lock_drop(&c->handshake);
}

/*
 * Its answer, and its export. And its own HELLO, which it said before it answered: until we have said whose
 * that is, a connected queue pair there does not hear our frames.
 */
static bool is_settling(struct local_writer *w)
{
	bool settling;

	lock_take(&w->lock);
	settling = w->state == WRITER_ASKED || w->proving ||
		   (w->state == WRITER_UP && !w->paired && clock_ms() < w->asked_at + WAIT_MS);
	lock_drop(&w->lock);
	return settling;
}

bool local_channel_connect(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = local_writer_of(c, slot);
	uint64_t until;
	int cancel;

	if (!w)
		return false;
	cancel = cancel_off();
	local_writer_begin(c, w, true);
	until = clock_ms() + WAIT_MS;
	while (is_settling(w) && clock_ms() < until) {
		struct pollfd p = {.fd = c->ep_fd, .events = POLLIN};

		poll(&p, 1, 1);
		local_peers_attend(c, false);
	}
	cancel_restore(cancel);
	return w->state == WRITER_UP;
}

int local_channel_try_connect(struct local_channel *c, uint32_t slot, bool ask, uint64_t *identity)
{
	struct local_writer *w = local_writer_of(c, slot);
	int cancel, state;

	if (!w)
		return -ESRCH;
	cancel = cancel_off();
	local_writer_begin(c, w, ask);
	lock_take(&w->lock);
	state = w->state == WRITER_UP ? 1 : w->state == WRITER_ASKED ? 0 : -ENOTCONN;
	if (state > 0)
		*identity = w->bell->identity;
	lock_drop(&w->lock);
	cancel_restore(cancel);
	return state;
}

/* ---- life ---- */
/* Shared memory of our own that others can only read. */
static int open_shown(const char *name, size_t size, int *fd, void **at)
{
	int err;

	*fd = memfile_make(name, size);
	if (*fd < 0)
		return *fd;
	*at = memfile_map(*fd, size, PROT_READ | PROT_WRITE, NULL);
	err = *at ? memfile_read_only(*fd) : -ENOMEM;
	if (!err)
		return 0;
	if (*at)
		munmap(*at, size);
	close(*fd);
	*at = NULL;
	*fd = -1;
	return err;
}

static int open_bell(struct local_channel *c)
{
	int err = open_shown("anyrdma-bell", sizeof(*c->bell), &c->bell_fd, (void **)&c->bell);

	if (err)
		return err;
	c->bell->magic = BELL_MAGIC;
	c->bell->version = BELL_VERSION;
	c->bell->heavy = fence_heavy_works();
	c->bell->identity = (uint64_t)random_u32() << 32 | random_u32();
	return 0;
}

static void close_shown(struct local_channel *c)
{
	munmap(c->bell, sizeof(*c->bell));
	close(c->bell_fd);
	if (!c->export)
		return;
	munmap(c->export, c->export_size);
	close(c->export_fd);
}

int local_peers_open(struct local_channel *c)
{
	int err = open_bell(c);

	if (err)
		return err;
	c->export_fd = -1;
	if (c->export_size)
		err = open_shown("anyrdma-export", c->export_size, &c->export_fd, &c->export);
	if (err)
		log_info("no memory is exported to other processes: %s", fd_reason(-err));
	lock_init(&c->handshake);
	c->ep_fd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	if (c->ep_fd < 0) {
		err = -errno;
		goto close_shown;
	}
	c->listener = (struct local_end){END_LISTENER, handshake_listen(c->port, c->slot)};
	err = c->listener.fd < 0 ? c->listener.fd : local_end_watch(c, &c->listener);
	c->spare_fd = local_readers_spare(c);
	if (!err)
		return 0;
	if (c->spare_fd >= 0)
		close(c->spare_fd);
	if (c->listener.fd >= 0)
		close(c->listener.fd);
	close(c->ep_fd);
close_shown:
	close_shown(c);
	return err;
}

void local_peers_close(struct local_channel *c)
{
	for (unsigned i = 0; i < QPN_SLOTS; i++) {
		struct local_writer *w = c->writer[i];

		if (!w)
			continue;
		local_writer_drop(c, w);
		if (w->tx.ring)
			munmap(w->tx.ring, sizeof(*w->tx.ring));
		lock_fini(&w->lock);
		lock_fini(&w->act);
		free(w);
	}
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		local_end_close(c, &r->end);
		if (r->rx.ring)
			munmap(r->rx.ring, sizeof(struct ring));
		free(r);
	}
	close(c->listener.fd);
	close(c->ep_fd);
	close_shown(c);
	if (c->spare_fd >= 0)
		close(c->spare_fd);
	lock_fini(&c->handshake);
}
