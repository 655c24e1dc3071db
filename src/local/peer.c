/* SPDX-License-Identifier: MIT */
#include "local/peer.h"

#include "local/pages/window.h"
#include "local/revocable.h"
#include "local/walk.h"

#include <errno.h>
#include <infiniband/verbs.h>

static bool is_exported(void *arg, uint32_t id, uint32_t version)
{
	struct local_export_key k;

	return local_export_find_key(arg, id, &k) && k.seq == version;
}

bool local_look(struct local_seen *s, const struct local_peer *p, uint32_t key)
{
	uint32_t changes = local_export_changes(p->export);

	s->number = 0;
	s->window = NULL;
	s->closed = p->windows->closed - 1; /* not looked for yet */
	windows_sweep(p->windows, is_exported, (void *)p->export);
	if (!local_export_find_key(p->export, key, &s->key))
		return false;
	s->rkey = key;
	s->changes = changes;
	s->number = p->number;
	return true;
}

/* ---- by our own instructions ---- */
static void open_window(struct local_seen *s, const struct local_peer *p)
{
	const struct local_export_key *k = &s->key;
	struct window_source from = {.id = s->rkey,
		.version = k->seq,
		.pid = p->pid,
		.host = k->map_host,
		.off = k->map_off,
		.len = k->map_len,
		.write = k->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)};

	s->window = NULL;
	if (p->pid && k->map_len && k->map_off + k->map_len > k->map_off &&
		local_export_find_file(p->export, k->file, &from.file))
		s->window = windows_open(p->windows, &from);
	s->closed = p->windows->closed;
}

static struct window *window_of(struct local_seen *s, const struct local_peer *p)
{
	if (s->closed != p->windows->closed)
		open_window(s, p);
	return s->window;
}

char *local_mapped(struct local_seen *s, const struct local_peer *p, uint64_t host, uint32_t *len)
{
	const struct local_export_key *k = &s->key;
	uint64_t in = host - k->map_host;
	struct window *w;

	if (p->self)
		return (char *)(uintptr_t)host;
	if (!k->file)
		return NULL;
	if (in >= k->map_len) {
		if (host < k->map_host && k->map_host - host < *len)
			*len = (uint32_t)(k->map_host - host);
		return NULL;
	}
	if (k->map_len - in < *len)
		*len = (uint32_t)(k->map_len - in);
	w = window_of(s, p);
	return w && window_is_ready(w, in, *len) ? w->base + in : NULL;
}

/* ---- by the kernel's ---- */
static void touched(struct local_seen *s, const struct local_peer *p, uint64_t host, uint32_t len)
{
	uint64_t in = host - s->key.map_host;
	struct window *w = s->key.file ? window_of(s, p) : NULL;

	if (w && in < s->key.map_len && len <= s->key.map_len - in)
		window_touched(w, in, len);
}

static struct iovec piece_of(uint64_t at, const struct walk_piece *w)
{
	return (struct iovec){(void *)(uintptr_t)(at + w->off), w->len};
}

static ssize_t copy(struct local_seen *s, const struct local_peer *p, const struct iovec *own, unsigned n,
	uint64_t host, uint32_t len, bool write)
{
	struct iovec theirs[WALK_PIECES] = {{(void *)(uintptr_t)host, len}}, ours[WALK_PIECES];
	struct walk_piece w[WALK_PIECES];

	if (n > 1 || !walk_turns(&s->back, len))
		return revocable_vm(p->revoked, p->pid, own, n, theirs, 1, write);
	n = walk_back(len, w);
	for (unsigned i = 0; i < n; i++) {
		theirs[i] = piece_of(host, &w[i]);
		ours[i] = piece_of((uintptr_t)own->iov_base, &w[i]);
	}
	return revocable_vm(p->revoked, p->pid, ours, n, theirs, n, write);
}

enum local_act local_by_kernel(struct local_seen *s, const struct local_peer *p, const struct iovec *own,
	unsigned n, uint64_t host, uint32_t len, bool write)
{
	ssize_t moved;

	if (!p->pid)
		return LOCAL_DECLINED;
	moved = copy(s, p, own, n, host, len, write);
	if (moved == (ssize_t)len) {
		touched(s, p, host, len);
		return LOCAL_DONE;
	}
	/* Memory that is gone, ours or theirs, or more than one call moves: all of it again, the usual way.
	 */
	return moved < 0 && (errno == EPERM || errno == ENOSYS) ? LOCAL_CLOSED : LOCAL_DECLINED;
}
