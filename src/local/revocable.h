/* SPDX-License-Identifier: MIT */
/*
 * Writing into another process's memory as long as it has not been forbidden: the look whether it has, and
 * what follows, are one as far as being stopped goes. A process that is stopped between them (SIGSTOP, a
 * frozen container) looks again when it goes on: the kernel sees to that (restartable sequences, rseq(2)),
 * where the C library has registered the thread. Elsewhere, and on processors other than x86-64, a process
 * that is stopped in these few instructions goes on with what it had begun.
 *
 * Memory that we have mapped is written in steps, each of which is such a sequence; a step that was
 * interrupted is written again from its beginning.
 */
#ifndef LOCAL_REVOCABLE_H
#define LOCAL_REVOCABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

/* process_vm_writev or _readv; -1 with errno, ECANCELED: it is forbidden. */
ssize_t revocable_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write);

/* memcpy(); false: it is forbidden, and some of it may have been written before. */
bool revocable_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len);
/* One aligned word at once. */
bool revocable_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value);
bool revocable_store_byte(const _Atomic uint32_t *revoked, char *to, char value);
bool revocable_fetch_add(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t add, uint64_t *original);
/* *original: what to compare with; what was there. */
bool revocable_compare_swap(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t *original, uint64_t swap);

#endif
