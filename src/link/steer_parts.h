/* SPDX-License-Identifier: MIT */
/* What the parts of steering call of each other: steer.c joins and leaves, steer_hand.c hands over. */
#ifndef LINK_STEER_PARTS_H
#define LINK_STEER_PARTS_H

#include "link/steer.h"

struct steer_group;

/* ---- steer_file.c ---- */
enum { STEER_LOCK_MS = 2000 };

/* 0 or -errno, which the log explains. */
int steer_file_open(struct steer *s);
/* As it is now, believed by nobody. */
void steer_file_read(const struct steer *s, struct steer_group *g);
/* All but the answers, which are their members' to write. */
void steer_file_write(struct steer *s, const struct steer_group *g);
/*
 * Locks the file that is there now, and reads it. Waits, but not for ever: who holds the lock may be stopped.
 * Less than STEER_LOCK_MS: not for our own threads either.
 */
bool steer_file_lock(struct steer *s, unsigned wait_ms, struct steer_group *g);
void steer_file_unlock(struct steer *s);

/* ---- under the lock ---- */
/* Attaches the program made from the group. */
void steer_attach(struct steer *s, struct steer_group *g);
/* How many were removed. */
unsigned steer_remove_dead(struct steer *s, struct steer_group *g);
/* Asks who has each index and sorts the group by that: whether everyone answered. */
bool steer_find_indexes(struct steer *s, struct steer_group *g);

/* ---- without it ---- */
/* Asks those who have a slot to enter, and waits for them; not for long: anybody can bind their names. */
void steer_gather(struct steer *s, struct steer_group *g);

/* ---- steer.c ---- */
/*
 * Makes sure that we are in the group's file, and that it is the file others will find. `asked`: another
 * process did that asks everybody; else, if the file turns out to be new or empty, we do.
 */
void steer_look(struct steer *s, bool asked);

#endif
