/* SPDX-License-Identifier: MIT */
/* The processes that send to us: accepting them, what they say, and which of them get our export. */
#include "local/channel_parts.h"

#include "base/fd.h"
#include "base/memfile.h"
#include "base/log.h"
#include "base/random.h"
#include "local/handshake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { SILENT_MOST = 32 }; /* connections without HELLO, which everybody says at once */

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
		r->channel = c;
		atomic_store(&c->reader[c->nreaders], r);
		atomic_fetch_add(&c->nreaders, 1);
	}
	return r;
}

/* Connections that say nothing keep nobody out, nor take all descriptors: the oldest of many is closed. */
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
	local_end_close(c, &oldest->end);
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
	if (local_end_watch(c, &r->end))
		local_end_close(c, &r->end);
	else
		atomic_store(&r->state, READER_MET);
}

int local_readers_spare(const struct local_channel *c)
{
	return fcntl(c->bell_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

/* There is no descriptor left to accept them by; one that stays in the backlog would keep us awake. */
static void send_away(struct local_channel *c)
{
	int fd;

	if (c->spare_fd >= 0)
		close(fd_take(&c->spare_fd));
	for (int i = 0; i < LOCAL_AT_ONCE && ((fd = handshake_accept(c->listener.fd)) >= 0 || fd == -EPERM);
		i++) {
		if (fd >= 0)
			close(fd);
	}
	c->spare_fd = local_readers_spare(c);
}

void local_readers_accept(struct local_channel *c)
{
	int fd = -EAGAIN;

	for (int i = 0; i < LOCAL_AT_ONCE && (fd = handshake_accept(c->listener.fd)) != -EAGAIN; i++) {
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
	r->epoch = 0;
	r->token = hello->token;
	r->asked = false;
	r->exported = false;
	r->verified = false;
	r->home = 0;
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

/* Which process connected, where it matters that it is not just any of this user. */
static bool is_known(const struct local_channel *c, struct local_reader *r)
{
	if (!c->trust.home)
		return true;
	r->pid = handshake_pid(r->end.fd);
	r->home = c->trust.home(c->trust.arg, r->slot, r->pid);
	return r->home;
}

static int reader_begin(
	struct local_channel *c, struct local_reader *r, const struct handshake_msg *hello, int passed)
{
	struct ring *ring =
		r->begun ? NULL : memfile_map(passed, sizeof(*ring), PROT_READ | PROT_WRITE, r->rx.ring);
	struct local_writer *w;

	if (!ring)
		return -EPROTO;
	reader_init(r, ring, hello);
	if (!ring_is_one(ring) || !is_known(c, r))
		return -EPROTO;
	atomic_store(&r->state, READER_UP);
	/* Rings come in pairs; and it knows who it is before it knows that we are there. */
	w = local_writer_of(c, r->slot);
	if (w) {
		local_writer_begin(c, w, false);
		lock_take(&w->lock);
		local_writer_say_pair(w, r);
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

/* The process that listens in the slot which the reader names gave it the token of our HELLO there. */
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

void local_reader_attend(struct local_channel *c, struct local_reader *r, bool receives)
{
	struct handshake_msg msg;
	int passed, got, bells = 0;

	if (!receives && atomic_load(&r->state) == READER_UP && !r->asked && !local_end_has_ended(&r->end))
		return;
	for (int i = 0; i < LOCAL_AT_ONCE && (got = handshake_receive(r->end.fd, &msg, &passed)) != -EAGAIN;
		i++) {
		if (got > 0)
			got = hear_reader(c, r, &msg, passed);
		else if (!got)
			bells++;
		if (got < 0) {
			local_reader_drop(c, r);
			break;
		}
	}
	if (bells)
		local_bells_taken(c, receives);
}

void local_reader_drop(struct local_channel *c, struct local_reader *r)
{
	local_end_close(c, &r->end);
	atomic_store(&r->state, READER_GONE); /* whoever receives takes what is left */
	/* The last ring, or its end, may have woken no sleeper: they went with the socket. */
	if (c->events.promise)
		c->events.promise(c->events.promise_arg, 0);
}

bool local_reader_find_reverse(struct local_channel *c, struct local_reader *r)
{
	enum { AT_FIRST = 16, EVERY = 64, AGAIN_NS = 50 * 1000 };

	if (atomic_load(&r->state) != READER_UP)
		return true;
	if (!ring_waiting(&r->rx))
		return false;
	if (r->looks++ >= AT_FIRST && r->looks % EVERY)
		return true;
	if (!lock_try(&c->handshake)) {
		/* The bell that rang for this frame may be taken, and who has the lock does not receive. */
		if (c->events.promise)
			c->events.promise(c->events.promise_arg, AGAIN_NS);
		return false;
	}
	if (atomic_load(&r->state) == READER_UP)
		local_reader_attend(c, r, true);
	lock_drop(&c->handshake);
	return true;
}
