/* SPDX-License-Identifier: MIT */
/* The program's epoll sets: the sockets of ours in them. The kernel's set keeps all others. */
#ifndef PRELOAD_EPOLL_H
#define PRELOAD_EPOLL_H

#include "preload/file.h"
#include "preload/wait.h"

struct set;
struct sock;

void set_end(struct set *set);

/* Without members it is the kernel's alone. */
bool set_has_members(struct set *set);

/* The socket is gone; or has become the kernel's, whose sets take over. */
void set_remove(struct sock *s);
void set_hand_over(struct sock *s);

/* EPOLLET: the program has used up what was reported, so it may be reported again. */
void set_used(struct sock *s, int events);

/* The slots of all members, for the owner; what is ready at once. */
int set_wait_add(struct wait *w, int owner, struct set *set);

/* After fork: sets know nothing of the parent's sockets. */
void set_after_fork(void);

#endif
