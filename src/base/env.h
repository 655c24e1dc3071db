/* SPDX-License-Identifier: MIT */
/*
 * The environment variables that our libraries know, in one table. Each is read when it is first asked for,
 * and from then on is what it was, whatever the program does to its environment: it may set them in main(),
 * before it uses a device. In a child after fork() libibverbs and librdmacm read them anew (env_forget()).
 * Programs with more rights than their caller (setuid) have none of them.
 *
 * A value that is not allowed is told of once, with those that are, and the default holds.
 *
 * Each library has its own copy. Any thread, any moment; nothing here takes a lock or memory.
 */
#ifndef BASE_ENV_H
#define BASE_ENV_H

#include <stdbool.h>
#include <stdint.h>

enum env_kind {
	ENV_TEXT,   /* as it is: env_text() */
	ENV_WORD,   /* one of the words allowed: its place among them */
	ENV_WORDS,  /* some of them, with commas: a bit for each */
	ENV_NUMBER, /* within the bounds allowed */
};

/* man/anyrdma.1 has the same names, in the same order: tests/tree/check.py env. */
/* clang-format off */
#define ENV_VARIABLES(V) \
	/* name           kind        allowed                        default  meaning */ \
	V(ANYRDMA_CRC,     ENV_WORD,   "needed, always",              "needed", \
		"of a fabric's packets: enum crc of fabricd/main.c") \
	V(ANYRDMA_DEVICES, ENV_TEXT,   NULL,                          NULL, \
		"devices to offer, in this order: names, interfaces, kinds") \
	V(ANYRDMA_DIR,     ENV_TEXT,   NULL,                          NULL,    "the run directory") \
	V(ANYRDMA_FABRIC,  ENV_TEXT,   NULL,                          NULL,    "the fabric, where there are several") \
	V(ANYRDMA_GSO,     ENV_WORD,   "off, on",                     "on",    "packets in batches") \
	V(ANYRDMA_HOST,    ENV_TEXT,   NULL,                          NULL,    "the host of a fabric that a program is on") \
	V(ANYRDMA_IWARP,   ENV_WORDS, \
		"crc, markers, mpa1, client-server, plain, rtr-write, rtr-read, rtr-zero, mss", NULL, \
		"how iWARP connections are opened: enum option of iwarp/open.c") \
	V(ANYRDMA_LOCAL,   ENV_WORD,   "off, ring, copy, map",        "copy", \
		"how processes of one host talk: enum hca_local") \
	V(ANYRDMA_LOG,     ENV_WORD,   "none, error, warn, info, debug", "warn", "enum log_level") \
	V(ANYRDMA_PORT,    ENV_NUMBER, "1 to 65535",                  "4791",  "UDP port of RoCEv2") \
	V(ANYRDMA_SOCKETS, ENV_WORD,   "stream, dgram, all",          NULL,    "which sockets go by RDMA") \
	V(ANYRDMA_SOCKETS_SILENCE, ENV_NUMBER, "1 to 2147483647",     "3000", \
		"ms without a word until a socket connects by TCP") \
	V(ANYRDMA_TRACE,   ENV_TEXT,   NULL,                          NULL,    "probes, and a file: observe/to_trace.c") \
	V(RS_SQ_SIZE,      ENV_NUMBER, "1 to 2147483647",             NULL,    "of the stock rsockets: send queue") \
	V(RS_RQ_SIZE,      ENV_NUMBER, "1 to 2147483647",             NULL,    "receive queue") \
	V(RS_INLINE,       ENV_NUMBER, "1 to 2147483647",             NULL,    "inline data")
/* clang-format on */

enum env {
#define V(name, kind, allowed, fallback, meaning) name,
	ENV_VARIABLES(V)
#undef V
		ENV_COUNT,
};

enum { ENV_UNSET = -1 };

/* What it says, or the default; ENV_UNSET: there is neither. Of ENV_WORDS: 0 then. */
int64_t env_value(enum env v);
/* NULL: unset, or empty. Stays as it is until env_forget(). At most 4095 characters of it. */
const char *env_text(enum env v);

/* They are read anew. Nobody uses a text from before. */
void env_forget(void);
/* Bad values are told of by somebody else in this process, who reads the same. */
extern bool env_quiet __attribute__((visibility("hidden")));

#endif
