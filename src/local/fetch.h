/* SPDX-License-Identifier: MIT */
/*
 * The bytes of a message out of the memory of the peer that sent it, where it says they lie. The peer's
 * export knows the keys; what we have mapped is copied by ourselves, the rest (the pages at the edges of a
 * region, or all of it) by the kernel.
 */
#ifndef LOCAL_FETCH_H
#define LOCAL_FETCH_H

#include "base/frame.h"
#include "local/direct.h"

#include <sys/uio.h>

/* Bytes [off, off + len) of those that lie in these places. */
struct local_source {
	const struct frame_ref *refs;
	unsigned nrefs;
	uint32_t off, len;
};

/*
 * Copies them to to[0..n), which has room, the last ones last. seen: what is remembered of the export from
 * one call to the next. Nothing that the peer says can do more than make it fail.
 */
enum local_act local_fetch(struct local_seen *seen, const struct local_peer *p,
	const struct local_source *from, const struct iovec *to, unsigned n);

enum { LOCAL_ROW = 8 }; /* messages */

/*
 * The same for several messages, the bytes of each in one place here and there, by one call of the kernel:
 * all of them, or it is as if none had been. n is at most LOCAL_ROW.
 */
bool local_fetch_row(struct local_seen *seen, const struct local_peer *p, const struct frame_ref *refs,
	const struct iovec *to, unsigned n);

#endif
