/* SPDX-License-Identifier: MIT */
/* Connections that a child process inherits. */
#ifndef PRELOAD_RELAY_H
#define PRELOAD_RELAY_H

struct sock;

/* The program has closed a connection that a child has too: carries its data from now on, and closes it. */
void relay_start(struct sock *s);

#endif
