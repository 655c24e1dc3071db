/* SPDX-License-Identifier: MIT */
/*
 * How guest_run and the guest's agent talk. A connection is a command. To the agent: four bytes, big endian,
 * that say how many follow; then the command's words, each ended by a 0. From the agent: the command's
 * output, then AGENT_END and the exit status as the last byte; what ends otherwise was broken off. When the
 * connection breaks, the command is killed with all that it started.
 */
#ifndef INTEROP_AGENT_H
#define INTEROP_AGENT_H

#define AGENT_END                                                                                            \
	"\xff"                                                                                               \
	"end"

enum { AGENT_PORT = 7700, AGENT_WORDS = 64, AGENT_TEXT = 16384, AGENT_LAST = sizeof(AGENT_END) };

#endif
