/* SPDX-License-Identifier: MIT */
/*
 * Who is there: connections to the processes that we send to (writers) and from those that send to us
 * (readers). One direction each, so that two who want to talk to each other at the same moment do not get in
 * each other's way. Whoever drives attends to the sockets, or whoever waits for an answer.
 */
#include "link/shm_parts.h"

#include "base/cancel.h"
#include "base/fd.h"
#include "base/fence.h"
#include "base/log.h"
#include "base/random.h"
#include "link/meet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	ASK_AGAIN_MS = 1000,
	WAIT_MS = 100,  /* for an answer: who does not give one is stopped */
	AT_ONCE = 1024, /* words of one: more than a socket holds, but not without end */
};

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int watch(struct shm_link *l, struct shm_end *end)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = end};

	return epoll_ctl(l->ep_fd, EPOLL_CTL_ADD, end->fd, &ev) ? -errno : 0;
}

/* Closing takes it out of the epoll set, since nobody else has the socket. */
static void end_close(struct shm_link *l, struct shm_end *end)
{
	if (end->fd < 0)
		return;
	epoll_ctl(l->ep_fd, EPOLL_CTL_DEL, end->fd, NULL);
	close(end->fd);
	end->fd = -1;
}

/* ---- writers ---- */
void link_shm_drop_writer(struct shm_link *l, struct shm_writer *w)
{
	if (w->state == SHM_UP)
		log_info("process in slot %u: no more by memory, it is gone", w->slot);
	atomic_store(&w->state, SHM_DOWN);
	atomic_store(&w->twin, NULL);
	w->ended = false;
	end_close(l, &w->end);
	lock_take(&w->act);
	if (w->tx.ring)
		meet_vacate(w->tx.ring, sizeof(*w->tx.ring));
	if (w->board)
		munmap((void *)w->board, l->board_size);
	windows_fini(&w->windows);
	w->board = NULL;
	lock_drop(&w->act);
}

/* w->lock held. 0 or -errno. */
static int ask(struct shm_link *l, struct shm_writer *w)
{
	struct ring *ring = NULL;
	int err, memory;

	w->asked_at = now_ms();
	w->end.fd = meet_connect(l->port, w->slot);
	if (w->end.fd < 0)
		return w->end.fd;
	w->there.pid = meet_pid(w->end.fd);
	w->pid = w->there.pid;
	memory = meet_memory("anyrdma-ring", sizeof(*ring));
	err = memory < 0 ? memory : 0;
	if (!err) {
		ring = meet_map(memory, sizeof(*ring), PROT_READ | PROT_WRITE, w->tx.ring);
		err = ring ? 0 : -ENOMEM;
	}
	if (!err) {
		ring_tx_init(&w->tx, ring);
		err = meet_say(w->end.fd, l->slot, memory, -1);
	}
	if (memory >= 0)
		close(memory);
	if (!err)
		err = watch(l, &w->end);
	if (err) {
		link_shm_drop_writer(l, w);
		return err;
	}
	atomic_store(&w->state, SHM_ASKED);
	return 0;
}

static void say_why_not(const struct shm_writer *w, int err)
{
	const char *why = err == -ECONNREFUSED ? "it does not offer it"
			  : err == -EPERM      ? "it is another user's"
			  : err == -EPROTO     ? "it is of another version"
			  : err == -ECONNRESET ? "it does not want to, or is gone"
					       : fd_reason(-err);

	log_info("process in slot %u: not by memory (%s)", w->slot, why);
}

/* The other one's answer: its board, and its file. */
static void take_board(struct shm_link *l, struct shm_writer *w, uint32_t slot, int passed[MEET_PASSED])
{
	w->board = meet_map(passed[0], l->board_size, PROT_READ, NULL);
	close(passed[0]);
	if (windows_init(&w->windows, passed[1]))
		log_info("process in slot %u: its file of memory makes no sense", w->slot);
	if (w->state != SHM_ASKED || slot != w->slot || !w->board || w->board->magic != BOARD_MAGIC ||
		w->board->version != BOARD_VERSION) {
		say_why_not(w, -EPROTO);
		link_shm_drop_writer(l, w);
		return;
	}
	w->rung = atomic_load(&w->board->wakes) - 1;
	w->there.board = w->board->above;
	w->there.memory = &w->windows;
	w->there.number = ++l->met;
	w->there.self = w->slot == l->slot;
	atomic_store(&w->state, SHM_UP);
	log_info("process in slot %u: by memory from now on%s", w->slot,
		w->there.pid ? ""
			     : "; one-sided requests go through its adapter, it is in another PID namespace");
}

/* Whether the other one is gone; it may have rung the bell before. */
static bool has_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

static void attend_writer(struct shm_link *l, struct shm_writer *w, bool receives)
{
	uint32_t slot;
	int passed[MEET_PASSED], got;

	lock_take(&w->lock);
	/* A bell, or the end, before which there may be something to collect: for who receives. */
	if (!receives && w->state == SHM_UP) {
		lock_drop(&w->lock);
		return;
	}
	for (int i = 0;
		i < AT_ONCE && w->end.fd >= 0 && (got = meet_hear(w->end.fd, &slot, passed)) != -EAGAIN;
		i++) {
		if (got > 0 && !w->board)
			take_board(l, w, slot, passed);
		else if (got > 0)
			meet_close(passed);
		else if (!got)
			atomic_fetch_add(&l->board->wakes, 1); /* as for readers */
		if (got < 0 && w->state == SHM_UP) {
			w->ended = true;
			epoll_ctl(l->ep_fd, EPOLL_CTL_DEL, w->end.fd, NULL);
			break;
		}
		if (got < 0) {
			say_why_not(w, got);
			link_shm_drop_writer(l, w);
		}
	}
	lock_drop(&w->lock);
}

/* ---- readers ---- */
/* A free place; NULL: there is none. */
static struct shm_reader *reader_place(struct shm_link *l)
{
	struct shm_reader *r;

	for (unsigned i = 0; i < l->nreaders; i++) {
		r = l->reader[i];
		if (atomic_load(&r->state) == READER_FREE)
			return r;
	}
	r = l->nreaders < SHM_READERS ? calloc(1, sizeof(*r)) : NULL;
	if (r) {
		r->end.fd = -1;
		atomic_store(&l->reader[l->nreaders], r);
		atomic_fetch_add(&l->nreaders, 1);
	}
	return r;
}

static void reader_add(struct shm_link *l, int fd)
{
	struct shm_reader *r = reader_place(l);

	if (!r) {
		close(fd);
		return;
	}
	r->end = (struct shm_end){SHM_READER, fd};
	r->begun = false;
	if (watch(l, &r->end))
		end_close(l, &r->end);
	else
		atomic_store(&r->state, READER_MET);
}

static int spare(const struct shm_link *l)
{
	return fcntl(l->board_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* There is no descriptor left to let them in by; who is left knocking would keep us awake. */
static void send_away(struct shm_link *l)
{
	int fd;

	if (l->spare_fd >= 0)
		close(l->spare_fd);
	for (int i = 0; i < AT_ONCE && ((fd = meet_accept(l->listener.fd)) >= 0 || fd == -EPERM); i++) {
		if (fd >= 0)
			close(fd);
	}
	l->spare_fd = spare(l);
}

static void attend_listener(struct shm_link *l)
{
	int fd = -EAGAIN;

	for (int i = 0; i < AT_ONCE && (fd = meet_accept(l->listener.fd)) != -EAGAIN; i++) {
		if (fd >= 0)
			reader_add(l, fd);
		else if (fd != -EPERM)
			break;
	}
	if (fd == -EMFILE || fd == -ENFILE)
		send_away(l);
}

static int reader_begin(struct shm_link *l, struct shm_reader *r, uint32_t slot, int passed[MEET_PASSED])
{
	struct ring *ring = meet_map(passed[0], sizeof(*ring), PROT_READ | PROT_WRITE, r->rx.ring);

	meet_close(passed);
	if (!ring)
		return -EPROTO;
	ring_rx_init(&r->rx, ring);
	r->begun = true;
	r->slot = slot < QPN_SLOTS ? slot : 0;
	r->pid = meet_pid(r->end.fd);
	r->twin = NULL;
	r->heard = 0;
	r->ended = false;
	r->riders = 0;
	r->hold_until = 0;
	r->carried = 0;
	if (!ring_is_one(ring) || meet_say(r->end.fd, l->slot, l->board_fd, l->memory_fd))
		return -EPROTO;
	atomic_store(&r->state, READER_UP);
	return 0;
}

static void attend_reader(struct shm_link *l, struct shm_reader *r, bool receives)
{
	uint32_t slot;
	int passed[MEET_PASSED], got;

	if (!receives && atomic_load(&r->state) == READER_UP && !has_ended(r->end.fd))
		return;
	for (int i = 0; i < AT_ONCE && (got = meet_hear(r->end.fd, &slot, passed)) != -EAGAIN; i++) {
		if (got > 0 && !r->begun) {
			got = reader_begin(l, r, slot, passed);
		} else if (got > 0) {
			meet_close(passed);
			got = -EPROTO;
		} else if (!got) {
			/* We look now; who slept and did not hear it in time has to be woken by the next. */
			atomic_fetch_add(&l->board->wakes, 1);
		}
		if (got < 0) {
			end_close(l, &r->end);
			atomic_store(&r->state, READER_GONE); /* whoever receives takes what is left */
			return;
		}
	}
}

/* ---- both ---- */
void link_shm_attend(struct shm_link *l, bool receives)
{
	struct epoll_event ev[16];
	int n;

	if (!lock_try(&l->meet))
		return; /* somebody does */
	n = epoll_wait(l->ep_fd, ev, sizeof(ev) / sizeof(ev[0]), 0);
	for (int i = 0; i < n; i++) {
		struct shm_end *end = ev[i].data.ptr;

		if (end->kind == SHM_LISTENER)
			attend_listener(l);
		else if (end->kind == SHM_WRITER)
			attend_writer(l, (struct shm_writer *)end, receives);
		else if (end->fd >= 0)
			attend_reader(l, (struct shm_reader *)end, receives);
	}
	lock_drop(&l->meet);
}

static struct shm_writer *writer_of(struct shm_link *l, uint32_t slot)
{
	struct shm_writer *w = atomic_load_explicit(&l->writer[slot], memory_order_acquire), *none = NULL;

	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->end = (struct shm_end){SHM_WRITER, -1};
	w->slot = slot;
	w->windows.fd = -1;
	lock_init(&w->lock);
	lock_init(&w->act);
	if (atomic_compare_exchange_strong(&l->writer[slot], &none, w)) {
		/* Who looks meanwhile finds an empty place, and looks again later. */
		atomic_store(&l->made[atomic_fetch_add(&l->nmade, 1)], w);
		return w;
	}
	free(w);
	return none;
}

/* Whether the other one has died and nobody noticed: a new process may have its slot. */
static void see_end(struct shm_link *l, struct shm_writer *w)
{
	if (w->state == SHM_UP && has_ended(w->end.fd))
		link_shm_drop_writer(l, w);
}

static void begin(struct shm_link *l, struct shm_writer *w, bool now)
{
	int err;

	lock_take(&w->lock);
	see_end(l, w);
	if (w->state == SHM_DOWN && (now || now_ms() > w->asked_at + ASK_AGAIN_MS)) {
		err = ask(l, w);
		if (err)
			say_why_not(w, err);
	}
	lock_drop(&w->lock);
}

bool link_shm_reach(struct link *link, uint32_t slot, bool wait)
{
	struct shm_link *l = (struct shm_link *)link;
	struct shm_writer *w = slot && slot < QPN_SLOTS - 1 ? writer_of(l, slot) : NULL;
	uint64_t until;
	int cancel;

	if (!w)
		return false;
	if (!wait && w->state == SHM_UP)
		return true;
	if (!wait && w->state == SHM_ASKED)
		return false;
	cancel = cancel_off();
	begin(l, w, wait);
	until = now_ms() + WAIT_MS;
	while (wait && w->state == SHM_ASKED && now_ms() < until) {
		struct pollfd p = {.fd = l->ep_fd, .events = POLLIN};

		poll(&p, 1, 1);
		link_shm_attend(l, false);
	}
	cancel_restore(cancel);
	return w->state == SHM_UP;
}

int link_shm_meet(struct link *link, uint32_t slot, bool ask, uint64_t *who)
{
	struct shm_link *l = (struct shm_link *)link;
	struct shm_writer *w = slot && slot < QPN_SLOTS - 1 ? writer_of(l, slot) : NULL;
	int cancel, state;

	if (!w)
		return -ESRCH;
	cancel = cancel_off();
	begin(l, w, ask);
	lock_take(&w->lock);
	state = w->state == SHM_UP ? 1 : w->state == SHM_ASKED ? 0 : -ENOTCONN;
	if (state > 0)
		*who = w->board->who;
	lock_drop(&w->lock);
	cancel_restore(cancel);
	return state;
}

/* Whether the one in this place still acts on what it saw before; *seen: its count, 0 at first. */
static bool still_acts(struct shm_link *l, unsigned i, uint32_t *seen)
{
	struct shm_reader *r = atomic_load(&l->reader[i]);
	uint32_t acting;

	if (atomic_load(&r->state) != READER_UP)
		return false;
	acting = atomic_load(&r->rx.ring->acting);
	if (!(acting & 1) || (*seen && *seen != acting))
		return false;
	*seen = acting;
	return true;
}

/*
 * Who acts is done in the time of a copy, or dead, which is seen by its socket. Or stopped in between: then
 * there is nothing for it but to wait. It is of our own user, who can also stop us.
 */
void link_shm_settle(struct link *link)
{
	struct shm_link *l = (struct shm_link *)link;

	fence_full();
	for (unsigned i = 0; i < l->nreaders; i++) {
		uint32_t seen = 0;

		while (still_acts(l, i, &seen)) {
			sched_yield();
			link_shm_attend(l, false);
		}
	}
}

/* ---- life ---- */
static int open_board(struct shm_link *l)
{
	int err;

	l->board_fd = meet_memory("anyrdma-board", l->board_size);
	if (l->board_fd < 0)
		return l->board_fd;
	l->board = meet_map(l->board_fd, l->board_size, PROT_READ | PROT_WRITE, NULL);
	err = l->board ? meet_read_only(l->board_fd) : -ENOMEM;
	if (err) {
		if (l->board)
			munmap(l->board, l->board_size);
		close(l->board_fd);
		return err;
	}
	l->board->magic = BOARD_MAGIC;
	l->board->version = BOARD_VERSION;
	l->board->heavy = fence_heavy_works();
	l->board->who = (uint64_t)random_u32() << 32 | random_u32();
	return 0;
}

int link_shm_meet_open(struct shm_link *l)
{
	int err = open_board(l);

	if (err)
		return err;
	lock_init(&l->meet);
	l->ep_fd = fd_above_stdio(epoll_create1(EPOLL_CLOEXEC));
	if (l->ep_fd < 0) {
		err = -errno;
		goto close_board;
	}
	l->listener = (struct shm_end){SHM_LISTENER, meet_listen(l->port, l->slot)};
	err = l->listener.fd < 0 ? l->listener.fd : watch(l, &l->listener);
	l->spare_fd = spare(l);
	if (!err)
		return 0;
	if (l->spare_fd >= 0)
		close(l->spare_fd);
	if (l->listener.fd >= 0)
		close(l->listener.fd);
	close(l->ep_fd);
close_board:
	munmap(l->board, l->board_size);
	close(l->board_fd);
	return err;
}

void link_shm_meet_close(struct shm_link *l)
{
	for (unsigned i = 0; i < QPN_SLOTS; i++) {
		struct shm_writer *w = l->writer[i];

		if (!w)
			continue;
		link_shm_drop_writer(l, w);
		if (w->tx.ring)
			munmap(w->tx.ring, sizeof(*w->tx.ring));
		lock_fini(&w->lock);
		lock_fini(&w->act);
		free(w);
	}
	for (unsigned i = 0; i < l->nreaders; i++) {
		struct shm_reader *r = l->reader[i];

		end_close(l, &r->end);
		if (r->rx.ring)
			munmap(r->rx.ring, sizeof(struct ring));
		free(r);
	}
	close(l->listener.fd);
	close(l->ep_fd);
	munmap(l->board, l->board_size);
	close(l->board_fd);
	if (l->spare_fd >= 0)
		close(l->spare_fd);
	lock_fini(&l->meet);
}
