/* SPDX-License-Identifier: MIT */
/* The processes that we send to: asking them, what they answer, and the proof that their export is ours to
 * use. */
#include "local/channel_parts.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/memfile.h"
#include "base/list.h"
#include "base/log.h"
#include "base/random.h"
#include "local/handshake.h"
#include "observe/probe.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum { ASK_AGAIN_MS = 1000 };

static void set_state(struct local_writer *w, enum local_writer_state to)
{
	static const char *const names[] = {
		[WRITER_DOWN] = "DOWN", [WRITER_ASKED] = "ASKED", [WRITER_UP] = "UP"};

	if (w->state != to)
		PROBE(CHANNEL_STATE, .slot = w->slot, .from = names[w->state], .to = names[to]);
	atomic_store(&w->state, to);
}

void local_writer_drop(struct local_channel *c, struct local_writer *w)
{
	if (w->state == WRITER_UP)
		log_info("process in slot %u: no more shared memory, it is gone", w->slot);
	set_state(w, WRITER_DOWN);
	atomic_store(&w->reverse, NULL);
	w->ended = w->proving = w->paired = false;
	local_end_close(c, &w->end);
	local_end_close(c, &w->process);
	lock_take(&w->act);
	if (w->tx.ring)
		memfile_vacate(w->tx.ring, sizeof(*w->tx.ring));
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
	if (fd >= 0 && local_end_watch(c, &w->process))
		w->there.pid = 0;
}

void local_writer_attend_process(struct local_channel *c, struct local_end *end)
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
		local_end_close(c, &w->process);
	lock_drop(&w->lock);
}

/* w->lock held. 0 or -errno. */
static int ask(struct local_channel *c, struct local_writer *w)
{
	struct ring *ring = NULL;
	int err, memory;

	assert_locked(&w->lock);
	w->asked_at = clock_ms();
	w->times++;
	w->end.fd = handshake_connect(c->port, w->slot);
	if (w->end.fd < 0)
		return w->end.fd;
	find_process(c, w);
	memory = memfile_make("anyrdma-ring", sizeof(*ring));
	err = memory < 0 ? memory : 0;
	if (!err) {
		ring = memfile_map(memory, sizeof(*ring), PROT_READ | PROT_WRITE, w->tx.ring);
		err = ring ? 0 : -ENOMEM;
	}
	if (!err) {
		ring_tx_init(&w->tx, ring);
		err = say_hello(c, w, memory);
	}
	if (memory >= 0)
		close(memory);
	if (!err)
		err = local_end_watch(c, &w->end);
	if (err) {
		local_writer_drop(c, w);
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
			  : err == -ESRCH      ? "it is not whom the fabric knows there"
			  : err == -ECONNRESET ? "it does not want to, or is gone"
					       : fd_reason(-err);

	log_info("process in slot %u: shared memory unavailable (%s)", w->slot, why);
}

void local_writer_say_pair(struct local_writer *w, const struct local_reader *r)
{
	struct handshake_msg pair = {.kind = HANDSHAKE_PAIR, .token = r->token};

	if (w->state == WRITER_UP)
		w->paired |= !handshake_send(w->end.fd, &pair, -1);
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
	w->bell = memfile_map(passed, sizeof(*w->bell), PROT_READ, NULL);
	return w->state == WRITER_ASKED && msg->slot == w->slot && w->bell && w->bell->magic == BELL_MAGIC &&
	       w->bell->version == BELL_VERSION;
}

/* Which process listened, where it matters that it is not just any of this user. */
static bool is_known(const struct local_channel *c, struct local_writer *w)
{
	if (!c->trust.home)
		return true;
	w->pid = handshake_pid(w->end.fd);
	return c->trust.home(c->trust.arg, w->slot, w->pid);
}

static void welcome(
	struct local_channel *c, struct local_writer *w, const struct handshake_msg *msg, int passed)
{
	bool known = is_known(c, w);

	if (w->bell || !known || !take_bell(w, msg, passed)) {
		say_why_not(w, known ? -EPROTO : -ESRCH);
		local_writer_drop(c, w);
		return;
	}
	w->rung = atomic_load(&w->bell->wakes) - 1;
	set_state(w, WRITER_UP);
	for (unsigned i = 0; i < c->nreaders; i++) {
		struct local_reader *r = c->reader[i];

		if (atomic_load(&r->state) == READER_UP && r->slot == w->slot)
			local_writer_say_pair(w, r);
	}
	log_info("process in slot %u: using shared memory", w->slot);
	prove(c, w, msg->at);
}

static void take_export(struct local_channel *c, struct local_writer *w, int passed)
{
	void *export = w->proving ? memfile_map(passed, c->export_size, PROT_READ, NULL) : NULL;

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

void local_writer_attend(struct local_channel *c, struct local_writer *w, bool receives)
{
	struct handshake_msg msg;
	int passed, got, bells = 0;

	lock_take(&w->lock);
	/* A bell, or the end, before which there may be something to collect: for who receives. */
	if (!receives && w->state == WRITER_UP && !w->proving) {
		lock_drop(&w->lock);
		return;
	}
	for (int i = 0; i < LOCAL_AT_ONCE && w->end.fd >= 0 &&
			(got = handshake_receive(w->end.fd, &msg, &passed)) != -EAGAIN;
		i++) {
		if (got > 0)
			hear_writer(c, w, &msg, passed);
		else if (!got)
			bells++;
		if (got < 0 && w->state == WRITER_UP) {
			bells++; /* its end has woken those that sleep, and does so no more */
			w->ended = true;
			w->proving = false;
			epoll_ctl(c->ep_fd, EPOLL_CTL_DEL, w->end.fd, NULL);
			break;
		}
		if (got < 0) {
			say_why_not(w, got);
			local_writer_drop(c, w);
		}
	}
	lock_drop(&w->lock);
	if (bells)
		local_bells_taken(c, receives);
}

struct local_writer *local_writer_of(struct local_channel *c, uint32_t slot)
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

static bool is_anothers(const struct local_channel *c, const struct local_writer *w)
{
	return c->trust.is_anothers && c->trust.is_anothers(c->trust.arg, w->slot, w->pid);
}

/* Whether the other one has died and nobody noticed: a new process may have its slot. */
static void see_end(struct local_channel *c, struct local_writer *w)
{
	if (w->state == WRITER_UP && (local_end_has_ended(&w->end) || is_anothers(c, w)))
		local_writer_drop(c, w);
}

void local_writer_recheck(struct local_channel *c, struct local_writer *w)
{
	lock_take(&w->lock);
	if (w->state == WRITER_UP && is_anothers(c, w))
		local_writer_drop(c, w);
	lock_drop(&w->lock);
}

void local_writer_begin(struct local_channel *c, struct local_writer *w, bool now)
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

/* ---- what lies in its ring ---- */
/* A child that it left behind may have its socket still: then the process tells. */
static bool is_alive(const struct local_writer *w)
{
	struct pollfd p = {.fd = w->process.fd, .events = POLLIN};

	return w->state == WRITER_UP && !w->ended && w->there.pid && !local_end_has_ended(&w->end) &&
	       (p.fd < 0 || poll(&p, 1, 0) <= 0);
}

static bool lies_before(const struct local_writer *w, uint32_t mark)
{
	return (int32_t)(mark - atomic_load_explicit(&w->tx.taken, memory_order_relaxed)) > 0 &&
	       (int32_t)(mark - atomic_load_explicit(&w->tx.ring->taken, memory_order_relaxed)) > 0;
}

uint64_t local_channel_mark(struct local_channel *c, uint32_t slot)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);
	uint64_t mark = 0;

	if (!w)
		return 0;
	lock_take(&w->lock);
	if (is_alive(w) && lies_before(w, w->tx.head))
		mark = (uint64_t)w->times << 32 | w->tx.head;
	lock_drop(&w->lock);
	return mark;
}

bool local_channel_holds(struct local_channel *c, uint32_t slot, uint64_t mark)
{
	struct local_writer *w = atomic_load_explicit(&c->writer[slot], memory_order_acquire);
	bool holds;

	if (!w)
		return false;
	lock_take(&w->lock);
	holds = mark >> 32 == w->times && is_alive(w) && lies_before(w, (uint32_t)mark);
	lock_drop(&w->lock);
	return holds;
}
