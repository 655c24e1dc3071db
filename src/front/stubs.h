/* SPDX-License-Identifier: MIT */
#ifndef FRONT_STUBS_H
#define FRONT_STUBS_H

/*
 * Names that exist so that a program finds them. The bodies below are shared: a table gives one body as
 * many names as it needs, and none of them looks at its arguments, so the names' prototypes do not matter.
 * int64_t, because what a caller takes for int, ssize_t or off_t is then right in every width.
 *
 * One file of each library includes this, and not the public header, whose prototypes would contradict it.
 *
 * ALIAS(body, name)		name gets the version that the version script says
 * SYMVER(body, name, version)	name gets this version: "@@NODE" the default one, "@NODE" an older or newer
 *				one that only a program linked against it finds
 *
 * An ordinary function needs neither: define it, list it in the version script. A few names are macros in
 * verbs.h (ibv_get_device_list, ibv_query_port, ibv_reg_mr, ibv_reg_mr_iova); parentheses around the name
 * keep the macro away:
 *	struct ibv_mr *(ibv_reg_mr)(struct ibv_pd *pd, void *addr, size_t length, int access) { ... }
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define ALIAS(body, name)           extern __typeof__(body) name __attribute__((alias(#body)));
#define SYMVER(body, name, version) __asm__(".symver " #body "," #name version);

/* As verbs say it: the errno is the value. */
int64_t stub_errno(void)
{
	return errno = EOPNOTSUPP;
}

/* As librdmacm and most of libc say it. */
int64_t stub_minus_one(void)
{
	errno = EOPNOTSUPP;
	return -1;
}

void *stub_null(void)
{
	errno = EOPNOTSUPP;
	return NULL;
}

int64_t stub_zero(void)
{
	return 0;
}

void stub_nothing(void)
{
}

#endif
