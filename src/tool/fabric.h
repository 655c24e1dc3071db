/* SPDX-License-Identifier: MIT */
/* What the parts of `anyrdma fabric` share: finding a fabric, and asking it. */
#ifndef TOOL_FABRIC_H
#define TOOL_FABRIC_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#define FABRIC_DEFAULT "default"

/* The name is taken from the option, else ANYRDMA_FABRIC, else it is the one fabric that is up, else
 * "default". */
struct fabric_ref {
	char name[64];
	char dir[PATH_MAX];
	bool up;
	bool others; /* it was not named, and several are up */
};

/* 0, or -1 after a message. */
int fabric_find(const char *name, struct fabric_ref *f);
/* The same, and it must be up. */
int fabric_find_up(const char *name, struct fabric_ref *f);

/* Whether somebody holds the lock of a fabric's directory. */
bool fabric_is_up(const char *dir);

/* Waits for one that is up, but comes up or ends: false when it has ended. */
bool fabric_stays(const struct fabric_ref *f);

/*
 * Asks a fabric: words, ended by NULL. The answer, for the caller to free, or NULL after a message that is
 * the fabric's own sentence.
 */
char *fabric_ask(const struct fabric_ref *f, const char *const *words);

/* Sets the environment of a program on a host, "auto" for the next one: 0, or -1 after a message. */
int fabric_enter(const char *fabric, const char *host);

/*
 * Uses the fabric that is up, or brings one up of this topology (NULL: as fabric up does), which ends when
 * all who use it like this have ended: this process and whatever it executes and starts. 0, or -1 after a
 * message.
 */
int fabric_use(const char *topology);
/* Uses this one in the same manner. 0: it does, or the fabric stays whoever does. -ENXIO: it ends. */
int fabric_hold(const struct fabric_ref *f);

int fabric_up(int argc, char **argv);
/* The same, and says which: the last --name of its options. */
int fabric_up_as(int argc, char **argv, struct fabric_ref *f);
int fabric_down(const struct fabric_ref *f);
/* Waits until its ports are ACTIVE: 0, or -1 after a message. */
int fabric_wait_active(const struct fabric_ref *f, unsigned seconds);
void fabric_print_map(const struct fabric_ref *f);

#endif
