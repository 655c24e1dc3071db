/* SPDX-License-Identifier: MIT */
/*
 * Who is there: connections to the processes that we send to (writers) and from those that send to us
 * (readers). One direction each, so that two who want to talk to each other at the same moment do not get in
 * each other's way. Whoever drives attends to the sockets, or whoever waits for an answer.
 */
#include "local/channel_parts.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fence.h"
#include "base/list.h"
#include "base/log.h"
#include "base/random.h"
#include "local/handshake.h"
#include "observe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	ASK_AGAIN_MS = 1000,
	WAIT_MS = 100,    /* for an answer: who does not give one is stopped */
	AT_ONCE = 1024,   /* words of one: more than a socket holds, but not without end */
	SILENT_MOST = 32, /* who came and has not said HELLO, which everybody says at once */
};

static int watch(struct local_channel *c, struct local_end *end)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = end};

	return epoll_ctl(c->ep_fd, EPOLL_CTL_ADD, end->fd, &ev) ? -errno : 0;
}

/* Closing takes it out of the epoll set, since nobody else has the socket. */
static void end_close(struct local_channel *c, struct local_end *end)
{
	if (end->fd < 0)
		return;
	epoll_ctl(c->ep_fd, EPOLL_CTL_DEL, end->fd, NULL);
	close(fd_take(&end->fd));
}

/* ---- writers ---- */
static void set_state(struct local_writer *w, enum local_writer_state to)
{
	static const char *const names[] = {
		[WRITER_DOWN] = "DOWN", [WRITER_ASKED] = "ASKED", [WRITER_UP] = "UP"};

	if (w->state != to)
		PROBE(CHANNEL_STATE, .slot = w->slot, .from = names[w->state], .to = names[to]);
	atomic_store(&w->state, to);
}

void local_peers_drop_writer(struct local_channel *c, struct local_writer *w)
{
	if (w->state == WRITER_UP)
		log_info("process in slot %u: no more shared memory, it is gone", w->slot);
	set_state(w, WRITER_DOWN);
	atomic_store(&w->reverse, NULL);
	w->ended = w->proving = false;
	end_close(c, &w->end);
	end_close(c, &w->process);
	lock_take(&w->act);
	if (w->tx.ring)
		handshake_vacate(w->tx.ring, sizeof(*w->tx.ring));
	if (w->bell)
		munmap((void *)w->bell, sizeof(*w->bell));
	if (w->there.export)
		munmap((void *)w->there.export, c->export_size);
	windows_fini(&w->windows);
	w->bell = NULL;
	w->there.export = NULL;
	lock_drop(&w->act);
}

static int say_hello(struct local_channel *c, struct local_writer *w, int memory)
{
	struct handshake_msg hello = {.kind = HANDSHAKE_HELLO, .slot = c->slot};

	random_bytes(&w->token, sizeof(w->token));
	hello.token = w->token;
	return handshake_send(w->end.fd, &hello, memory);
}

/*
 * Who we act on: the process that listened. When it ends its number may become another's, while one that it
 * left behind still has the socket: then that number means nothing any more.
 */
static void find_process(struct local_channel *c, struct local_writer *w)
{
	int fd = handshake_process(w->end.fd);

	w->there.pid = fd >= 0 || fd == -ENOPROTOOPT ? handshake_pid(w->end.fd) : 0;
	w->process.fd = fd < 0 ? -1 : fd;
	if (fd >= 0 && watch(c, &w->process))
		w->there.pid = 0;
}

static void attend_process(struct local_channel *c, struct local_end *end)
{
	struct local_writer *w = container_of(end, struct local_writer, process);
	struct pollfd p = {.events = POLLIN};

	lock_take(&w->lock);
	lock_take(&w->act);
	p.fd = w->process.fd;
	if (w->process.fd >= 0 && poll(&p, 1, 0) > 0)
		w->there.pid = 0;
	lock_drop(&w->act);
	if (!w->there.pid)
		end_close(c, &w->process);
	lock_drop(&w->lock);
}

/* w->lock held. 0 or -errno. */
static int ask(struct local_channel *c, struct local_writer *w)
{
	struct ring *ring = NULL;
	int err, memory;

	assert_locked(&w->lock);
	w->asked_at = clock_ms();
	w->end.fd = handshake_connect(c->port, w->slot);
	if (w->end.fd < 0)
		return w->end.fd;
	find_process(c, w);
	memory = handshake_memory("anyrdma-ring", sizeof(*ring));
	err = memory < 0 ? memory : 0;
	if (!err) {
		ring = handshake_map(memory, sizeof(*ring), PROT_READ | PROT_WRITE, w->tx.ring);
		err = ring ? 0 : -ENOMEM;
	}
	if (!err) {
		ring_tx_init(&w->tx, ring);
		err = say_hello(c, w, memory);
	}
	if (memory >= 0)
		close(memory);
	if (!err)
		err = watch(c, &w->end);
	if (err) {
		local_peers_drop_writer(c, w);
		return err;
	}
	set_state(w, WRITER_ASKED);
	return 0;
}

static void say_why_not(const struct local_writer *w, int err)
{
	const char *why = err == -ECONNREFUSED ? "it does not offer it"
			  : err == -EPERM      ? "it is another user's"
			  : err == -EPROTO     ? "it is of another version"
			  : err == -ECONNRESET ? "it does not want to, or is gone"
					       : fd_reason(-err);

	log_info("process in slot %u: shared memory unavailable (%s)", w->slot, why);
}

/* It connected to us before, and says it is that slot's; who listens there can tell. Locks of both ends held.
 */
static void say_pair(const struct local_writer *w, const struct local_reader *r)
{
	struct handshake_msg pair = {.kind = HANDSHAKE_PAIR, .token = r->token};

	if (w->state == WRITER_UP)
		handshake_send(w->end.fd, &pair, -1);
}

/*
 * Whoever may look into another process can read there what only that process can have written. What it
 * exports tells such a one nothing that it could not find out by itself.
 */
static void prove(struct local_channel *c, struct local_writer *w, uint64_t at)
{
	struct handshake_msg proof = {.kind = HANDSHAKE_PROOF};
	struct iovec own = {proof.nonce, HANDSHAKE_NONCE}, theirs = {(void *)(uintptr_t)at, HANDSHAKE_NONCE};
	const char *why = NULL;

	if (!c->export)
		return;
	if (!w->there.pid)
		why = "it is in another PID namespace, or is not who listened";
	else if (!at)
		why = "it is not dumpable";
	else if (process_vm_readv(w->there.pid, &own, 1, &theirs, 1, 0) != HANDSHAKE_NONCE)
		why = strerror(errno);
	if (why) {
		log_info("process in slot %u: no access to its memory (%s); one-sided requests go through "
			 "the ring",
			w->slot, why);
		return;
	}
	w->proving = !handshake_send(w->end.fd, &proof, -1);
}

static bool take_bell(struct local_writer *w, const struct handshake_msg *msg, int passed)
{
	w->bell = handshake_map(passed, sizeof(*w->bell), PROT_READ, NULL);
	return w->state == WRITER_ASKED && msg->slot == w->slot && w->bell && w->bell->magic == BELL_MAGIC &&
	       w->bell->version == BELL_VERSION;
}

static void welcome(
	struct local_channel *c, struct local_writer *w, const struct handshake_msg *msg, int passed)
{
	if (w->bell || !take_bell(w, msg, passed)) {
		say_why_not(w, -EPROTO);
		local_peers_drop_writer(c, w);
		return;
	}
	w->rung = atomic_load(&w->bell->wakes) - 1;
	set_state(w, WRITER_UP);
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		if (atomic_load(&r->state) == READER_UP && r->slot == w->slot)
			say_pair(w, r);
	}
	log_info("process in slot %u: using shared memory", w->slot);
	prove(c, w, msg->at);
}

static void take_export(struct local_channel *c, struct local_writer *w, int passed)
{
	void *export = w->proving ? handshake_map(passed, c->export_size, PROT_READ, NULL) : NULL;

	w->proving = false;
	if (!export)
		return;
	lock_take(&w->act);
	windows_init(&w->windows);
	w->there.export = export;
	w->there.windows = &w->windows;
	w->there.revoked = &w->tx.ring->revoked;
	w->there.number = ++c->connections;
	w->there.self = w->slot == c->slot;
	lock_drop(&w->act);
}

/* Whether the other one is gone; it may have rung the bell before. */
static bool has_ended(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

static void hear_writer(
	struct local_channel *c, struct local_writer *w, const struct handshake_msg *msg, int passed)
{
	if (msg->kind == HANDSHAKE_WELCOME)
		welcome(c, w, msg, passed);
	else if (msg->kind == HANDSHAKE_EXPORT)
		take_export(c, w, passed);
	if (passed >= 0)
		close(passed);
}

static void attend_writer(struct local_channel *c, struct local_writer *w, bool receives)
{
	struct handshake_msg msg;
	int passed, got;

	lock_take(&w->lock);
	/* A bell, or the end, before which there may be something to collect: for who receives. */
	if (!receives && w->state == WRITER_UP && !w->proving) {
		lock_drop(&w->lock);
		return;
	}
	for (int i = 0; i < AT_ONCE && w->end.fd >= 0 &&
			(got = handshake_receive(w->end.fd, &msg, &passed)) != -EAGAIN;
		i++) {
		if (got > 0)
			hear_writer(c, w, &msg, passed);
		else if (!got)
			atomic_fetch_add(&c->bell->wakes, 1); /* as for readers */
		if (got < 0 && w->state == WRITER_UP) {
			w->ended = true;
			w->proving = false;
			epoll_ctl(c->ep_fd, EPOLL_CTL_DEL, w->end.fd, NULL);
			break;
		}
		if (got < 0) {
			say_why_not(w, got);
			local_peers_drop_writer(c, w);
		}
	}
	lock_drop(&w->lock);
}

static struct local_writer *writer_of(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w, *none = NULL;

	if (!slot || slot >= QPN_SLOTS - 1)
		return NULL;
	w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);
	if (w)
		return w;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->end = (struct local_end){END_WRITER, -1};
	w->process = (struct local_end){END_PROCESS, -1};
	w->slot = slot;
	lock_init(&w->lock);
	lock_init(&w->act);
	if (atomic_compare_exchange_strong(&c->writer[slot], &none, w)) {
		/* Who looks meanwhile finds an empty place, and looks again later. */
		atomic_store(&c->made[atomic_fetch_add(&c->nmade, 1)], w);
		return w;
	}
	free(w);
	return none;
}

/* Whether the other one has died and nobody noticed: a new process may have its slot. */
static void see_end(struct local_channel *c, struct local_writer *w)
{
	if (w->state == WRITER_UP && has_ended(w->end.fd))
		local_peers_drop_writer(c, w);
}

static void begin(struct local_channel *c, struct local_writer *w, bool now)
{
	int err;

	lock_take(&w->lock);
	see_end(c, w);
	if (w->state == WRITER_DOWN && (now || clock_ms() > w->asked_at + ASK_AGAIN_MS)) {
		err = ask(c, w);
		if (err)
			say_why_not(w, err);
	}
	lock_drop(&w->lock);
}

/* ---- readers ---- */
/* A free place; NULL: there is none. */
static struct local_reader *reader_place(struct local_channel *c)
{
	struct local_reader *r;

	for (unsigned i = 0; i < c->nreaders; i++) {
		r = c->reader[i];
		if (atomic_load(&r->state) == READER_FREE)
			return r;
	}
	r = c->nreaders < CHANNEL_READERS ? calloc(1, sizeof(*r)) : NULL;
	if (r) {
		r->end.fd = -1;
		atomic_store(&c->reader[c->nreaders], r);
		atomic_fetch_add(&c->nreaders, 1);
	}
	return r;
}

/* Who comes and says nothing keeps nobody out, nor takes all descriptors: the oldest of many goes. */
static void send_silent_away(struct local_channel *c)
{
	struct local_reader *oldest = NULL;
	unsigned silent = 0;

	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		if (atomic_load(&r->state) != READER_MET)
			continue;
		silent++;
		if (!oldest || r->came < oldest->came)
			oldest = r;
	}
	if (silent < SILENT_MOST)
		return;
	end_close(c, &oldest->end);
	atomic_store(&oldest->state, READER_FREE);
}

static void reader_add(struct local_channel *c, int fd)
{
	struct local_reader *r;

	send_silent_away(c);
	r = reader_place(c);
	if (!r) {
		close(fd);
		return;
	}
	r->end = (struct local_end){END_READER, fd};
	r->came = ++c->came;
	r->begun = false;
	if (watch(c, &r->end))
		end_close(c, &r->end);
	else
		atomic_store(&r->state, READER_MET);
}

static int spare(const struct local_channel *c)
{
	return fcntl(c->bell_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* There is no descriptor left to accept them by; one that stays in the backlog would keep us awake. */
static void send_away(struct local_channel *c)
{
	int fd;

	if (c->spare_fd >= 0)
		close(fd_take(&c->spare_fd));
	for (int i = 0; i < AT_ONCE && ((fd = handshake_accept(c->listener.fd)) >= 0 || fd == -EPERM); i++) {
		if (fd >= 0)
			close(fd);
	}
	c->spare_fd = spare(c);
}

static void attend_listener(struct local_channel *c)
{
	int fd = -EAGAIN;

	for (int i = 0; i < AT_ONCE && (fd = handshake_accept(c->listener.fd)) != -EAGAIN; i++) {
		if (fd >= 0)
			reader_add(c, fd);
		else if (fd != -EPERM)
			break;
	}
	if (fd == -EMFILE || fd == -ENFILE)
		send_away(c);
}

static void reader_init(struct local_reader *r, struct ring *ring, const struct handshake_msg *hello)
{
	ring_rx_init(&r->rx, ring);
	r->begun = true;
	r->slot = hello->slot < QPN_SLOTS ? hello->slot : 0;
	r->token = hello->token;
	r->asked = false;
	r->exported = false;
	r->verified = false;
	r->reverse = NULL;
	r->looks = 0;
	r->acked = 0;
	r->batch_over = false;
	r->piggyback = (struct streak){0};
	r->ack_at = 0;
	r->piggybacked = 0;
}

/* A process that others of its user may not look into shows them nothing. */
static bool may_export(const struct local_channel *c)
{
	return c->export && prctl(PR_GET_DUMPABLE) == 1;
}

static int welcome_reader(struct local_channel *c, struct local_reader *r)
{
	struct handshake_msg welcome = {.kind = HANDSHAKE_WELCOME, .slot = c->slot};

	r->asked = may_export(c);
	if (r->asked) {
		random_bytes(r->nonce, sizeof(r->nonce));
		welcome.at = (uintptr_t)r->nonce;
	} else if (c->export) {
		log_info("no memory is exported to other processes: this one is not dumpable "
			 "(PR_SET_DUMPABLE)");
	}
	return handshake_send(r->end.fd, &welcome, c->bell_fd);
}

static int reader_begin(
	struct local_channel *c, struct local_reader *r, const struct handshake_msg *hello, int passed)
{
	struct ring *ring =
		r->begun ? NULL : handshake_map(passed, sizeof(*ring), PROT_READ | PROT_WRITE, r->rx.ring);
	struct local_writer *w;

	if (!ring)
		return -EPROTO;
	reader_init(r, ring, hello);
	if (!ring_is_one(ring))
		return -EPROTO;
	atomic_store(&r->state, READER_UP);
	/* Rings come in pairs; and it knows who it is before it knows that we are there. */
	w = writer_of(c, r->slot);
	if (w) {
		begin(c, w, false);
		lock_take(&w->lock);
		say_pair(w, r);
		lock_drop(&w->lock);
	}
	return welcome_reader(c, r) ? -EPROTO : 0;
}

/* It takes the same time whatever is wrong. */
static bool is_nonce(const uint8_t *a, const uint8_t *b)
{
	uint8_t differs = 0;

	for (unsigned i = 0; i < HANDSHAKE_NONCE; i++)
		differs |= a[i] ^ b[i];
	return !differs;
}

static int check_proof(struct local_channel *c, struct local_reader *r, const struct handshake_msg *proof)
{
	struct handshake_msg export = {.kind = HANDSHAKE_EXPORT};

	if (!r->asked || !is_nonce(r->nonce, proof->nonce))
		return -EPROTO;
	r->asked = false;
	r->exported = may_export(c); /* it may not be so any more: then it gets nothing */
	return handshake_send(r->end.fd, &export, r->exported ? c->export_fd : -1);
}

/* Who listens in the slot that the reader names has told it the token of our HELLO there. */
static void take_pair(struct local_channel *c, struct local_reader *r, uint64_t token)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[r->slot], memory_order_acquire);

	if (!w)
		return;
	lock_take(&w->lock);
	if (w->state != WRITER_DOWN && w->token == token) {
		r->verified = true;
		r->reverse = w;
		atomic_store(&w->reverse, r);
	}
	lock_drop(&w->lock);
}

static int hear_reader(
	struct local_channel *c, struct local_reader *r, const struct handshake_msg *msg, int passed)
{
	int err = -EPROTO;

	if (msg->kind == HANDSHAKE_HELLO)
		err = reader_begin(c, r, msg, passed);
	else if (msg->kind == HANDSHAKE_PROOF && r->begun)
		err = check_proof(c, r, msg);
	else if (msg->kind == HANDSHAKE_PAIR && r->begun)
		err = 0;
	if (msg->kind == HANDSHAKE_PAIR && !err)
		take_pair(c, r, msg->token);
	if (passed >= 0)
		close(passed);
	return err;
}

static void attend_reader(struct local_channel *c, struct local_reader *r, bool receives)
{
	struct handshake_msg msg;
	int passed, got;

	if (!receives && atomic_load(&r->state) == READER_UP && !r->asked && !has_ended(r->end.fd))
		return;
	for (int i = 0; i < AT_ONCE && (got = handshake_receive(r->end.fd, &msg, &passed)) != -EAGAIN; i++) {
		if (got > 0)
			got = hear_reader(c, r, &msg, passed);
		else if (!got) /* We look now; who slept and did not hear it in time has to be woken by the
				  next. */
			atomic_fetch_add(&c->bell->wakes, 1);
		if (got < 0) {
			local_peers_drop_reader(c, r);
			return;
		}
	}
}

void local_peers_drop_reader(struct local_channel *c, struct local_reader *r)
{
	end_close(c, &r->end);
	atomic_store(&r->state, READER_GONE); /* whoever receives takes what is left */
}

void local_peers_find_reverse(struct local_channel *c, struct local_reader *r)
{
	enum { AT_FIRST = 16, EVERY = 64 };

	if (!ring_waiting(&r->rx) || (r->looks++ >= AT_FIRST && r->looks % EVERY) || !lock_try(&c->handshake))
		return;
	if (atomic_load(&r->state) == READER_UP)
		attend_reader(c, r, true);
	lock_drop(&c->handshake);
}

/* ---- both ---- */
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
			struct local_writer *w = writer_of(c, i * 64 + (uint32_t)__builtin_ctzll(bits));

			if (w)
				begin(c, w, false);
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
			attend_listener(c);
		else if (end->kind == END_PROCESS)
			attend_process(c, end);
		else if (end->kind == END_WRITER)
			attend_writer(c, (struct local_writer *)end, receives);
		else if (end->fd >= 0)
			attend_reader(c, (struct local_reader *)end, receives);
	}
	lock_drop(&c->handshake);
}

bool local_channel_connect(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = writer_of(c, slot);
	uint64_t until;
	int cancel;

	if (!w)
		return false;
	cancel = cancel_off();
	begin(c, w, true);
	until = clock_ms() + WAIT_MS;
	while ((w->state == WRITER_ASKED || w->proving) && clock_ms() < until) {
		struct pollfd p = {.fd = c->ep_fd, .events = POLLIN};

		poll(&p, 1, 1);
		local_peers_attend(c, false);
	}
	cancel_restore(cancel);
	return w->state == WRITER_UP;
}

int local_channel_try_connect(struct local_channel *c, uint32_t slot, bool ask, uint64_t *identity)
{
	struct local_writer *w = writer_of(c, slot);
	int cancel, state;

	if (!w)
		return -ESRCH;
	cancel = cancel_off();
	begin(c, w, ask);
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

	*fd = handshake_memory(name, size);
	if (*fd < 0)
		return *fd;
	*at = handshake_map(*fd, size, PROT_READ | PROT_WRITE, NULL);
	err = *at ? handshake_read_only(*fd) : -ENOMEM;
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
	err = c->listener.fd < 0 ? c->listener.fd : watch(c, &c->listener);
	c->spare_fd = spare(c);
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
		local_peers_drop_writer(c, w);
		if (w->tx.ring)
			munmap(w->tx.ring, sizeof(*w->tx.ring));
		lock_fini(&w->lock);
		lock_fini(&w->act);
		free(w);
	}
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		end_close(c, &r->end);
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
