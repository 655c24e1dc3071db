/* SPDX-License-Identifier: MIT */
/*
 * fork() with an adapter in the process: how the child comes by a state that it can use. See fork.c.
 */
#ifndef HCA_FORK_H
#define HCA_FORK_H

struct hca_adapter;

/* Before fork: waits until nobody is in the middle of something that a child needs whole. `a` may be NULL. */
void hca_fork_prepare(struct hca_adapter *a);
/* After it, in the parent: everybody goes on. */
void hca_fork_parent(struct hca_adapter *a);
/*
 * After it, in the child: lets go of the parent's sockets and files. The adapter is dead from here on: its
 * objects are the parent's, and none of their locks may be touched.
 */
void hca_fork_child(struct hca_adapter *a);
/* The child's own adapter takes over the devices of the dead one: programs keep pointers to them. */
void hca_fork_adopt(struct hca_adapter *to, struct hca_adapter *dead);

#endif
