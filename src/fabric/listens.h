/* SPDX-License-Identifier: MIT */
/*
 * What a program listens for, which it says to its fabric. The socket may have no room just now, and a fabric
 * that ends forgets it: so what the program listens for, and what the fabric knows of that, is kept here.
 */
#ifndef FABRIC_LISTENS_H
#define FABRIC_LISTENS_H

#include "fabric/attach.h"
#include "wire/cm_msg.h"

struct fabric_listen;

/* Zeroed: none. Its owner has the lock. */
struct fabric_listens {
	struct fabric_listen *of;
	unsigned n, room;
};

/* Adds one, or takes it back: 0; -ENOSPC: more than a fabric allows; -ENOMEM. */
int fabric_listens_change(struct fabric_listens *l, const struct cm_listen *what, bool on);
/* Says by the socket what the fabric does not know yet, as far as there is room. */
void fabric_listens_tell(struct fabric_listens *l, int fd);
/* The fabric is another one, and knows nothing. */
void fabric_listens_again(struct fabric_listens *l);
void fabric_listens_fini(struct fabric_listens *l);

#endif
