/* SPDX-License-Identifier: MIT */
/*
 * The socket `console`. A client connects, sends its words, each with a zero behind it, and ends its side. We
 * answer "ok\n" or "error\n" and the text, and hang up. A client that is slow, or sends too much, harms
 * nobody: nothing waits for it, there are few at a time, and the oldest makes room for one that comes.
 */
#include "fabricd/console.h"

#include "base/list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_MAX = 32, PATIENCE_S = 10 };

struct client {
	struct list node;
	struct console *console;
	int fd;
	struct loop_timer timer; /* one that has said nothing for long is closed */
	char request[CONSOLE_REQUEST];
	size_t len;
	char *answer; /* NULL: still listening */
	size_t answer_len, sent;
};

struct console {
	struct fabricd *d;
	int listener;
	struct list clients;
	unsigned nclients;
};

static void client_close(struct client *c)
{
	list_del(&c->node);
	c->console->nclients--;
	loop_timer_stop(&c->timer);
	loop_remove(c->console->d->loop, c->fd);
	close(c->fd);
	free(c->answer);
	free(c);
}

static void client_late(void *arg, uint64_t now)
{
	client_close(arg);
}

static void wait_on(struct client *c)
{
	struct loop *l = c->console->d->loop;

	loop_timer_set(l, &c->timer, loop_now(l) + PATIENCE_S * 1000000000ull);
}

static void client_send(struct client *c)
{
	while (c->sent < c->answer_len) {
		ssize_t n = send(
			c->fd, c->answer + c->sent, c->answer_len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			loop_change(c->console->d->loop, c->fd, EPOLLOUT);
			wait_on(c);
			return;
		}
		if (n < 0)
			break;
		c->sent += (size_t)n;
	}
	client_close(c);
}

static unsigned split(char *text, size_t len, char *words[CONSOLE_WORDS])
{
	unsigned n = 0;

	for (char *p = text; p < text + len && n < CONSOLE_WORDS; p += strlen(p) + 1)
		words[n++] = p;
	return n;
}

static void answer(struct client *c)
{
	char *words[CONSOLE_WORDS], *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);
	int err = -ENOMEM;

	c->request[c->len] = '\0';
	if (out) {
		err = console_do(c->console->d, words, split(c->request, c->len, words), out);
		fclose(out);
	}
	if (!text || asprintf(&c->answer, "%s\n%s", err ? "error" : "ok", text) < 0) {
		free(text);
		client_close(c);
		return;
	}
	free(text);
	c->answer_len = strlen(c->answer);
	client_send(c);
}

static void client_ready(void *arg, uint32_t events)
{
	struct client *c = arg;
	ssize_t n;

	if (c->answer) {
		client_send(c);
		return;
	}
	n = recv(c->fd, c->request + c->len, sizeof(c->request) - 1 - c->len, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0)
		c->len += (size_t)n;
	if (n < 0 || c->len == sizeof(c->request) - 1)
		client_close(c);
	else if (!n)
		answer(c);
	else
		wait_on(c);
}

/* Of those who have not said what they want, else of all, the one that came first goes. */
static void make_room(struct console *con)
{
	struct client *first = container_of(con->clients.next, struct client, node);

	if (con->nclients < CLIENTS_MAX)
		return;
	list_for_each(pos, &con->clients)
	{
		struct client *c = container_of(pos, struct client, node);

		if (!c->answer) {
			first = c;
			break;
		}
	}
	client_close(first);
}

static void accept_clients(void *arg, uint32_t events)
{
	struct console *con = arg;
	int fd;

	while ((fd = fabricd_accept(con->listener)) >= 0) {
		struct client *c = calloc(1, sizeof(*c));

		make_room(con);
		if (!c || loop_add(con->d->loop, fd, EPOLLIN, client_ready, c)) {
			free(c);
			close(fd);
			continue;
		}
		c->console = con;
		c->fd = fd;
		list_add_tail(&con->clients, &c->node);
		con->nclients++;
		loop_timer_init(&c->timer, client_late, c);
		wait_on(c);
	}
}

int console_open(struct fabricd *d)
{
	struct console *con = calloc(1, sizeof(*con));
	int err;

	if (!con)
		return -ENOMEM;
	con->d = d;
	list_init(&con->clients);
	con->listener = fabricd_listen(d, "console", SOCK_STREAM);
	err = con->listener < 0 ? con->listener
				: loop_add(d->loop, con->listener, EPOLLIN, accept_clients, con);
	if (err) {
		if (con->listener >= 0)
			close(con->listener);
		free(con);
		return err;
	}
	d->console = con;
	return 0;
}

void console_close(struct fabricd *d)
{
	struct console *con = d->console;

	if (!con)
		return;
	while (!list_empty(&con->clients))
		client_close(container_of(con->clients.next, struct client, node));
	loop_remove(d->loop, con->listener);
	close(con->listener);
	free(con);
	d->console = NULL;
}
