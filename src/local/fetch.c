/* SPDX-License-Identifier: MIT */
#include "local/fetch.h"

#include "base/guard.h"
#include "local/copy.h"
#include "memory/file.h"
#include "memory/window.h"

#include <errno.h>

/* Where the next byte goes. */
struct cursor {
	const struct iovec *to;
	unsigned left;
	size_t off; /* in *to */
};

/* The next `len` bytes of it as pieces. How many; 0: there is no such room. */
static unsigned cut(struct cursor *c, uint32_t len, struct iovec *out)
{
	unsigned n = 0;

	while (len) {
		size_t part;

		if (!c->left)
			return 0;
		part = c->to->iov_len - c->off < len ? c->to->iov_len - c->off : len;
		if (part)
			out[n++] = (struct iovec){(char *)c->to->iov_base + c->off, part};
		len -= (uint32_t)part;
		c->off += part;
		if (c->off == c->to->iov_len) {
			c->to++;
			c->left--;
			c->off = 0;
		}
	}
	return n;
}

/* ---- what the board says ---- */
static bool see(struct hca_seen *s, const struct local_peer *p, uint32_t key)
{
	uint32_t changes = hca_board_changes(p->board);

	if (!hca_board_lives(p->board))
		return false;
	if (s->number == p->number && s->changes == changes && s->rkey == key)
		return true;
	s->number = 0;
	if (!hca_board_find_key(p->board, key, &s->key))
		return false;
	s->rkey = key;
	s->changes = changes;
	s->number = p->number;
	return true;
}

/* Where [addr, addr + len) of the key is in the peer; 0: nowhere. */
static uint64_t range(const struct hca_board_key *k, uint64_t addr, uint32_t len)
{
	uint64_t off = addr - k->iova; /* wraps to something huge when below */

	return off > k->length || len > k->length - off ? 0 : k->host + off;
}

/*
 * The first part of [host, host + *len) that is mapped as a whole, or not at all: cuts *len to it, and says
 * where we have it; NULL: not mapped.
 */
static const char *first_part(
	const struct hca_board_key *k, const struct local_peer *p, uint64_t host, uint32_t *len)
{
	uint64_t in = host - k->map_host, off = k->map_off + in, room;

	if (p->memory->fd < 0)
		return NULL;
	if (p->self)
		return (const char *)(uintptr_t)host;
	if (in >= k->map_len) {
		if (host < k->map_host && k->map_host - host < *len)
			*len = (uint32_t)(k->map_host - host);
		return NULL;
	}
	room = k->map_len - in;
	if (room > MEMORY_WINDOW - off % MEMORY_WINDOW)
		room = MEMORY_WINDOW - off % MEMORY_WINDOW;
	if (room < *len)
		*len = (uint32_t)room;
	return windows_at(p->memory, off);
}

/* ---- copying ---- */
static enum local_act by_kernel(uint64_t host, const struct iovec *to, unsigned n, uint32_t len, pid_t pid)
{
	struct iovec theirs = {(void *)(uintptr_t)host, len};
	ssize_t moved;

	if (!pid)
		return LOCAL_LEFT;
	moved = process_vm_readv(pid, to, n, &theirs, 1, 0);
	if (moved == (ssize_t)len)
		return LOCAL_DONE;
	return moved < 0 && (errno == EPERM || errno == ENOSYS) ? LOCAL_CLOSED : LOCAL_LEFT;
}

static enum local_act fetch_one(const struct hca_board_key *k, const struct local_peer *p, uint64_t host,
	uint32_t len, struct cursor *c)
{
	while (len) {
		struct local_job job = {.len = len};
		enum local_act act;

		job.at = (char *)first_part(k, p, host, &job.len);
		job.n = cut(c, job.len, job.own);
		if (!job.n)
			return LOCAL_LEFT;
		act = job.at ? (local_place(&job) ? LOCAL_DONE : LOCAL_LEFT)
			     : by_kernel(host, job.own, job.n, job.len, p->pid);
		if (act != LOCAL_DONE)
			return act;
		host += job.len;
		len -= job.len;
	}
	return LOCAL_DONE;
}

enum local_act local_fetch(struct hca_seen *seen, const struct local_peer *p, const struct local_far *far,
	const struct iovec *to, unsigned n)
{
	struct cursor c = {to, n, 0};
	uint32_t off = far->off, left = far->len;
	enum local_act act = LOCAL_DONE;

	for (unsigned i = 0; i < far->nrefs && left && act == LOCAL_DONE; i++) {
		const struct frame_ref *r = &far->refs[i];
		uint32_t len = r->len;
		uint64_t host;

		if (off >= len) {
			off -= len;
			continue;
		}
		len = len - off < left ? len - off : left;
		host = see(seen, p, r->key) ? range(&seen->key, r->addr + off, len) : 0;
		if (!host)
			return LOCAL_LEFT;
		act = fetch_one(&seen->key, p, host, len, &c);
		left -= len;
		off = 0;
	}
	return act == LOCAL_DONE && left ? LOCAL_LEFT : act;
}
