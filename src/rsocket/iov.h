/* SPDX-License-Identifier: MIT */
/* The program's pieces of memory, front to back. */
#ifndef RSOCKET_IOV_H
#define RSOCKET_IOV_H

#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

struct rs_iov {
	const struct iovec *iov;
	size_t skip; /* of iov[0]: done with */
};

static inline size_t rs_iov_total(const struct iovec *iov, int n)
{
	size_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += iov[i].iov_len;
	return sum;
}

/* The next bytes, at most len, and how many; the caller knows that there are so many. It may be none. */
static inline size_t rs_iov_next(struct rs_iov *v, size_t len, uint8_t **at)
{
	size_t here = v->iov->iov_len - v->skip, now = here < len ? here : len;

	*at = now ? (uint8_t *)v->iov->iov_base + v->skip : NULL;
	v->skip += now;
	if (now == here) {
		v->iov++;
		v->skip = 0;
	}
	return now;
}

/* len bytes into the program's memory, and out of it. */
static inline void rs_iov_put(struct rs_iov *v, const uint8_t *from, size_t len)
{
	uint8_t *at;

	for (size_t n; len; from += n, len -= n) {
		n = rs_iov_next(v, len, &at);
		if (n)
			memcpy(at, from, n);
	}
}

static inline void rs_iov_get(struct rs_iov *v, uint8_t *to, size_t len)
{
	uint8_t *at;

	for (size_t n; len; to += n, len -= n) {
		n = rs_iov_next(v, len, &at);
		if (n)
			memcpy(to, at, n);
	}
}

#endif
