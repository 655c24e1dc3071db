/* SPDX-License-Identifier: MIT */
/*
 * How guest_run and the guest's agent talk. A connection is a command. To the agent: four bytes, big endian,
 * that say how many follow; then the command's words, each ended by a 0. From the agent: the command's
 * output, and as the last byte its exit status. When the connection breaks, the command is killed with all
 * that it started.
 */
#ifndef INTEROP_AGENT_H
#define INTEROP_AGENT_H

enum { AGENT_PORT = 7700, AGENT_WORDS = 64, AGENT_TEXT = 16384 };

#endif
