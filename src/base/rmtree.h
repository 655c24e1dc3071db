/* SPDX-License-Identifier: MIT */
/* Removing a directory that we made, and what is below it. */
#ifndef BASE_RMTREE_H
#define BASE_RMTREE_H

/*
 * Best effort, at most 16 levels deep: more than of what we write. Never follows a link, so it removes
 * nothing that lies elsewhere, whatever somebody has put there.
 */
void rmtree(int at, const char *name);

#endif
