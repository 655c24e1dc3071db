/* SPDX-License-Identifier: MIT */
#include "local/fetch.h"

#include "base/guard.h"
#include "local/copy.h"
#include "local/revocable.h"

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

static bool see(struct local_seen *s, const struct local_peer *p, uint32_t key)
{
	return local_export_lives(p->export) && (local_has_seen(s, p, key) || local_look(s, p, key));
}

static enum local_act fetch_one(
	struct local_seen *s, const struct local_peer *p, uint64_t host, uint32_t len, struct cursor *c)
{
	while (len) {
		struct local_job job;
		enum local_act act;

		local_job_begin(&job, len, &s->back);
		job.at = local_mapped(s, p, host, &job.len);
		job.n = cut(c, job.len, job.own);
		if (!job.n)
			return LOCAL_DECLINED;
		act = job.at ? (local_place(&job) ? LOCAL_DONE : LOCAL_DECLINED)
			     : local_by_kernel(s, p, job.own, job.n, host, job.len, false);
		if (act != LOCAL_DONE)
			return act;
		host += job.len;
		len -= job.len;
	}
	return LOCAL_DONE;
}

enum local_act local_fetch(struct local_seen *seen, const struct local_peer *p,
	const struct local_source *from, const struct iovec *to, unsigned n)
{
	struct cursor c = {to, n, 0};
	uint32_t off = from->off, left = from->len;
	enum local_act act = LOCAL_DONE;

	for (unsigned i = 0; i < from->nrefs && left && act == LOCAL_DONE; i++) {
		const struct frame_ref *r = &from->refs[i];
		uint32_t len = r->len;
		uint64_t host;

		if (off >= len) {
			off -= len;
			continue;
		}
		len = len - off < left ? len - off : left;
		host = see(seen, p, r->key) ? local_range(&seen->key, r->addr + off, len) : 0;
		if (!host)
			return LOCAL_DECLINED;
		act = fetch_one(seen, p, host, len, &c);
		left -= len;
		off = 0;
	}
	if (act == LOCAL_DONE && (left || local_is_revoked(p)))
		return LOCAL_DECLINED;
	return act;
}

/* Where a message lies that only the kernel can fetch; 0: elsewhere, or nowhere. */
static uint64_t place_of(struct local_seen *seen, const struct local_peer *p, const struct frame_ref *r)
{
	return see(seen, p, r->key) && !seen->key.file ? local_range(&seen->key, r->addr, r->len) : 0;
}

bool local_fetch_row(struct local_seen *seen, const struct local_peer *p, const struct frame_ref *refs,
	const struct iovec *to, unsigned n)
{
	struct iovec theirs[LOCAL_ROW];
	size_t len = 0;

	if (!p->pid || p->self)
		return false;
	for (unsigned i = 0; i < n; i++) {
		uint64_t host = place_of(seen, p, &refs[i]);

		if (!host)
			return false;
		theirs[i] = (struct iovec){(void *)(uintptr_t)host, refs[i].len};
		len += refs[i].len;
	}
	return revocable_vm(p->revoked, p->pid, to, n, theirs, n, false) == (ssize_t)len &&
	       !local_is_revoked(p);
}
