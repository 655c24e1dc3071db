/* SPDX-License-Identifier: MIT */
#include "fabric/listens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum state { TO_TELL, TOLD, TO_DROP };

struct fabric_listen {
	struct attach_listen what;
	enum state state;
};

/* Those that are to be dropped are the fabric's still. */
static int add(struct fabric_listens *l, const struct attach_listen *what)
{
	if (l->n == ATTACH_LISTENERS)
		return -ENOSPC;
	if (l->n == l->room) {
		unsigned room = l->room ? l->room * 2 : 8;
		struct fabric_listen *more = realloc(l->of, room * sizeof(*more));

		if (!more)
			return -ENOMEM;
		l->of = more;
		l->room = room;
	}
	l->of[l->n++] = (struct fabric_listen){*what, TO_TELL};
	return 0;
}

static void drop_at(struct fabric_listens *l, unsigned i)
{
	l->of[i] = l->of[--l->n];
}

static void drop(struct fabric_listens *l, const struct attach_listen *what)
{
	for (unsigned i = 0; i < l->n; i++) {
		if (l->of[i].state == TO_DROP || memcmp(&l->of[i].what, what, sizeof(*what)))
			continue;
		if (l->of[i].state == TOLD)
			l->of[i].state = TO_DROP;
		else
			drop_at(l, i);
		return;
	}
}

int fabric_listens_change(struct fabric_listens *l, const struct cm_listen *what, bool on)
{
	struct attach_listen m;

	memset(&m, 0, sizeof(m)); /* compared as a whole */
	m.type = ATTACH_LISTEN;
	m.families = (uint8_t)((what->v4 ? ATTACH_V4 : 0) | (what->v6 ? ATTACH_V6 : 0) |
			       (what->gid ? ATTACH_GID : 0));
	m.service_id = what->service_id;
	memcpy(m.addr, what->addr, 16);
	if (on)
		return add(l, &m);
	drop(l, &m);
	return 0;
}

static bool say(const struct fabric_listen *one, int fd)
{
	struct attach_listen m = one->what;

	if (one->state == TO_DROP)
		m.type = ATTACH_UNLISTEN;
	return send(fd, &m, sizeof(m), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(m);
}

/* What is dropped first: it may come again. */
void fabric_listens_tell(struct fabric_listens *l, int fd)
{
	for (unsigned i = 0; i < l->n;) {
		if (l->of[i].state != TO_DROP) {
			i++;
			continue;
		}
		if (!say(&l->of[i], fd))
			return;
		drop_at(l, i);
	}
	for (unsigned i = 0; i < l->n; i++) {
		if (l->of[i].state == TO_TELL && !say(&l->of[i], fd))
			return;
		l->of[i].state = TOLD;
	}
}

void fabric_listens_again(struct fabric_listens *l)
{
	for (unsigned i = 0; i < l->n;) {
		if (l->of[i].state == TO_DROP) {
			drop_at(l, i);
			continue;
		}
		l->of[i++].state = TO_TELL;
	}
}

void fabric_listens_fini(struct fabric_listens *l)
{
	free(l->of);
	*l = (struct fabric_listens){0};
}
