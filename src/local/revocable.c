/* SPDX-License-Identifier: MIT */
/*
 * A restartable sequence is a stretch of code, from `1:` up to `2:`, of which the kernel is told by a record
 * (struct rseq_cs) that the thread points to. When the thread is preempted, stopped or takes a signal inside,
 * it goes on at the abort handler, `4:`, and not where it was: there it begins again. The last instruction is
 * what must not happen once it is forbidden: the system call, the store, the copy. A thread that has been
 * stopped behind it has done it.
 *
 * A debugger that steps through never gets to the end: after a number of attempts it is done without.
 */
#include "local/revocable.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_revoked(const _Atomic uint32_t *revoked)
{
	return atomic_load_explicit(revoked, memory_order_acquire);
}

/* ---- without sequences ---- */
static ssize_t plain_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write)
{
	if (is_revoked(revoked)) {
		errno = ECANCELED;
		return -1;
	}
	return write ? process_vm_writev(pid, own, n, theirs, ntheirs, 0)
		     : process_vm_readv(pid, own, n, theirs, ntheirs, 0);
}

static bool plain_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len)
{
	if (is_revoked(revoked))
		return false;
	memcpy(to, from, len);
	return true;
}

static bool plain_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value)
{
	if (is_revoked(revoked))
		return false;
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
	return true;
}

static bool plain_store_byte(const _Atomic uint32_t *revoked, char *to, char value)
{
	if (is_revoked(revoked))
		return false;
	__atomic_store_n(to, value, __ATOMIC_RELEASE);
	return true;
}

static bool plain_fetch_add(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t add, uint64_t *original)
{
	if (is_revoked(revoked))
		return false;
	*original = __atomic_fetch_add(at, add, __ATOMIC_SEQ_CST);
	return true;
}

static bool plain_compare_swap(
	const _Atomic uint32_t *revoked, uint64_t *at, uint64_t *original, uint64_t swap)
{
	if (is_revoked(revoked))
		return false;
	__atomic_compare_exchange_n(at, original, swap, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return true;
}

#if defined(__x86_64__) && __has_include(<sys/rseq.h>) && !defined(__SANITIZE_THREAD__)
#include <sys/rseq.h>

/* Weak: a C library before 2.35 has none. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

enum { ATTEMPTS = 64, STEP = 16384 };
enum outcome { DONE, FORBIDDEN, INTERRUPTED };

/* Where this thread points to its record; NULL: it is not registered. */
static uint64_t *record_of_thread(void)
{
	char *thread;

	if (!&__rseq_size || !__rseq_size)
		return NULL;
	__asm__("mov %%fs:0, %0" : "=r"(thread));
	return (uint64_t *)&((struct rseq *)(thread + __rseq_offset))->rseq_cs;
}

/*
 * The frame of each: the record, the look, and at `4:` the way out. RSEQ_SIG stands before the handler, in an
 * instruction that is never run. %[result] is what it ends with.
 */
#define SEQUENCE(body)                                                                                       \
	".pushsection __rseq_cs, \"aw\"\n\t"                                                                 \
	".balign 32\n"                                                                                       \
	"3:\n\t"                                                                                             \
	".long 0, 0\n\t"                                                                                     \
	".quad 1f, (2f - 1f), 4f\n\t"                                                                        \
	".popsection\n\t"                                                                                    \
	"leaq 3b(%%rip), %%r11\n\t"                                                                          \
	"movq %%r11, (%[record])\n"                                                                          \
	"1:\n\t"                                                                                             \
	"cmpl $0, (%[revoked])\n\t"                                                                          \
	"jne 5f\n\t" body "\n"                                                                               \
	"2:\n\t"                                                                                             \
	"movl %[done], %[result]\n\t"                                                                        \
	"jmp 6f\n\t"                                                                                         \
	".byte 0x0f, 0xb9, 0x3d\n\t"                                                                         \
	".long %c[signature]\n"                                                                              \
	"4:\n\t"                                                                                             \
	"movl %[interrupted], %[result]\n\t"                                                                 \
	"jmp 6f\n"                                                                                           \
	"5:\n\t"                                                                                             \
	"movl %[forbidden], %[result]\n"                                                                     \
	"6:"
#define FRAME                                                                                                \
	[record] "r"(record), [revoked] "r"(revoked), [done] "i"(DONE), [forbidden] "i"(FORBIDDEN),          \
		[interrupted] "i"(INTERRUPTED), [signature] "i"(RSEQ_SIG)

static enum outcome vm_once(uint64_t *record, const _Atomic uint32_t *revoked, long number, pid_t pid,
	const struct iovec *own, unsigned long n, const struct iovec *theirs, unsigned long ntheirs,
	long *moved)
{
	register unsigned long own_count __asm__("rdx") = n;
	register const struct iovec *there __asm__("r10") = theirs;
	register unsigned long there_count __asm__("r8") = ntheirs;
	register unsigned long flags __asm__("r9") = 0;
	register long rax __asm__("rax") = number;
	register enum outcome result __asm__("ebx");

	__asm__ volatile(
		SEQUENCE("syscall")
		: "+a"(rax), [result] "=&r"(result)
		: FRAME, "D"((long)pid), "S"(own), "r"(own_count), "r"(there), "r"(there_count), "r"(flags)
		: "rcx", "r11", "memory", "cc");
	*moved = rax;
	return result;
}

ssize_t revocable_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write)
{
	uint64_t *record = record_of_thread();
	enum outcome o = INTERRUPTED;
	long moved = 0;

	for (int i = 0; record && i < ATTEMPTS && o == INTERRUPTED; i++)
		o = vm_once(record, revoked, write ? SYS_process_vm_writev : SYS_process_vm_readv, pid, own,
			n, theirs, ntheirs, &moved);
	if (o == INTERRUPTED)
		return plain_vm(revoked, pid, own, n, theirs, ntheirs, write);
	if (o == FORBIDDEN)
		moved = -ECANCELED;
	if (moved >= 0)
		return moved;
	errno = (int)-moved;
	return -1;
}

/* Each attempt until it was not interrupted; the plain one when it always was. */
#define TRY(attempt, plain)                                                                                  \
	do {                                                                                                 \
		uint64_t *record = record_of_thread();                                                       \
		enum outcome o = INTERRUPTED;                                                                \
                                                                                                             \
		for (int i = 0; record && i < ATTEMPTS && o == INTERRUPTED; i++)                             \
			o = attempt;                                                                         \
		return o == INTERRUPTED ? plain : o == DONE;                                                 \
	} while (0)

static enum outcome copy_once(
	uint64_t *record, const _Atomic uint32_t *revoked, void *to, const void *from, size_t len)
{
	enum outcome result;

	__asm__ volatile(SEQUENCE("rep movsb")
			 : "+D"(to), "+S"(from), "+c"(len), [result] "=&r"(result)
			 : FRAME
			 : "r11", "memory", "cc");
	return result;
}

static bool copy_step(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len)
{
	TRY(copy_once(record, revoked, to, from, len), plain_copy(revoked, to, from, len));
}

bool revocable_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len)
{
	size_t step;

	for (size_t done = 0; done < len; done += step) {
		step = len - done < STEP ? len - done : STEP;
		if (!copy_step(revoked, (char *)to + done, (const char *)from + done, step))
			return false;
	}
	return true;
}

static enum outcome store_once(
	uint64_t *record, const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value)
{
	enum outcome result;

	__asm__ volatile(SEQUENCE("movq %[value], (%[to])")
			 : [result] "=&r"(result)
			 : FRAME, [to] "r"(to), [value] "r"(value)
			 : "r11", "memory", "cc");
	return result;
}

bool revocable_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value)
{
	TRY(store_once(record, revoked, to, value), plain_store(revoked, to, value));
}

static enum outcome store_byte_once(uint64_t *record, const _Atomic uint32_t *revoked, char *to, char value)
{
	enum outcome result;

	__asm__ volatile(SEQUENCE("movb %[value], (%[to])")
			 : [result] "=&r"(result)
			 : FRAME, [to] "r"(to), [value] "q"(value)
			 : "r11", "memory", "cc");
	return result;
}

bool revocable_store_byte(const _Atomic uint32_t *revoked, char *to, char value)
{
	TRY(store_byte_once(record, revoked, to, value), plain_store_byte(revoked, to, value));
}

static enum outcome add_once(
	uint64_t *record, const _Atomic uint32_t *revoked, uint64_t *at, uint64_t add, uint64_t *original)
{
	enum outcome result;

	*original = add;
	__asm__ volatile(SEQUENCE("lock xaddq %[value], (%[at])")
			 : [result] "=&r"(result), [value] "+&r"(*original)
			 : FRAME, [at] "r"(at)
			 : "r11", "memory", "cc");
	return result;
}

bool revocable_fetch_add(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t add, uint64_t *original)
{
	TRY(add_once(record, revoked, at, add, original), plain_fetch_add(revoked, at, add, original));
}

static enum outcome swap_once(uint64_t *record, const _Atomic uint32_t *revoked, uint64_t *at,
	uint64_t compare, uint64_t swap, uint64_t *original)
{
	enum outcome result;

	__asm__ volatile(SEQUENCE("lock cmpxchgq %[swap], (%[at])")
			 : [result] "=&r"(result), "+a"(compare)
			 : FRAME, [at] "r"(at), [swap] "r"(swap)
			 : "r11", "memory", "cc");
	*original = compare;
	return result;
}

bool revocable_compare_swap(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t *original, uint64_t swap)
{
	uint64_t compare = *original;

	TRY(swap_once(record, revoked, at, compare, swap, original),
		plain_compare_swap(revoked, at, (*original = compare, original), swap));
}

#else

ssize_t revocable_vm(const _Atomic uint32_t *revoked, pid_t pid, const struct iovec *own, unsigned n,
	const struct iovec *theirs, unsigned ntheirs, bool write)
{
	return plain_vm(revoked, pid, own, n, theirs, ntheirs, write);
}

bool revocable_copy(const _Atomic uint32_t *revoked, void *to, const void *from, size_t len)
{
	return plain_copy(revoked, to, from, len);
}

bool revocable_store(const _Atomic uint32_t *revoked, uint64_t *to, uint64_t value)
{
	return plain_store(revoked, to, value);
}

bool revocable_store_byte(const _Atomic uint32_t *revoked, char *to, char value)
{
	return plain_store_byte(revoked, to, value);
}

bool revocable_fetch_add(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t add, uint64_t *original)
{
	return plain_fetch_add(revoked, at, add, original);
}

bool revocable_compare_swap(const _Atomic uint32_t *revoked, uint64_t *at, uint64_t *original, uint64_t swap)
{
	return plain_compare_swap(revoked, at, original, swap);
}

#endif
