/* SPDX-License-Identifier: MIT */
/*
 * across PORT [-c HOST] CASE...: the target listens on the TCP port, the caller (-c) connects to it. "all"
 * stands for every case but "killed". VERBS_DEVICE and VERBS_GID choose the device and the address family;
 * where GIDs are no addresses (siw), VERBS_ADDRESS is the device's.
 */
#include "across.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* And over iWARP, where it is another. */
static const struct {
	const char *name;
	void (*run)(struct end *e), (*stream)(struct end *e);
} cases[] = {
	{"lengths", data_of_every_length, data_of_every_length},
	{"unreliable", unreliable_data_of_every_length, NULL},
	{"gaps", unreliable_data_with_gaps, NULL},
	{"reads", reads_at_full_depth, reads_at_full_depth},
	{"atomics", atomics_at_full_depth, NULL},
	{"both", everything_in_both_directions, everything_in_both_directions},
	{"requests", bad_requests, stream_requests},
	{"receives", bad_receives, stream_receives},
	{"rnr", no_receive, NULL},
	{"late", late_receive, NULL},
	{"destroyed", destroyed, stream_destroyed},
	{"words", NULL, stream_words},
	{"killed", killed, stream_killed},
};

void turn(struct end *e)
{
	char c = 't';

	vt_tell(e->fd, &c, 1);
	vt_hear(e->fd, &c, 1);
}

struct vt_conn usual(const struct end *e)
{
	struct vt_conn c = vt_conn(e->t);

	c.mtu = e->t->port.active_mtu;
	c.retry = 6;    /* rxe takes 7 for "for ever" */
	c.timeout = 16; /* 268 ms: a busy machine may keep an end from running for longer than the usual 67 */
	return c;
}

void meet(struct end *e, const struct vt_opts *opts, const struct vt_conn *conn)
{
	struct vt_conn c = conn ? *conn : usual(e);

	e->ep = vt_ep_open(e->t, opts);
	vt_meet(e->ep, e->fd, &c, &e->peer);
}

/* The one end may still need the other's answers, so both part at once. */
void part(struct end *e)
{
	turn(e);
	vt_ep_close(e->ep);
	e->ep = NULL;
}

static int join(const char *host, int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int s = socket(AF_INET, SOCK_STREAM, 0), fd = s, yes = 1;

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (host) {
		assert_int_equal(inet_pton(AF_INET, host, &a.sin_addr), 1);
		assert_int_equal(connect(s, (struct sockaddr *)&a, sizeof(a)), 0);
	} else {
		assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof(a)), 0);
		assert_int_equal(listen(s, 1), 0);
		fd = accept(s, NULL, NULL);
		close(s);
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return fd;
}

/* Who is who. */
static void introduce(struct end *e)
{
	const char *name = ibv_get_device_name(e->t->ctx->device);
	bool mine = !strncmp(name, "rxe", 3) || !strncmp(name, "siw", 3);

	e->kernel[e->calls ? CALLER : TARGET] = mine;
	vt_tell(e->fd, &mine, sizeof(mine));
	vt_hear(e->fd, &e->kernel[e->calls ? TARGET : CALLER], sizeof(mine));
}

static bool wanted(const char *name, char **list)
{
	for (; *list; list++)
		if (!strcmp(*list, name) || (!strcmp(*list, "all") && strcmp(name, "killed")))
			return true;
	return false;
}

int main(int argc, char **argv)
{
	bool calls = argc > 3 && !strcmp(argv[2], "-c");
	struct end e = {.calls = calls};
	void *state = NULL;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3)
		return 2;
	if (vt_setup(&state))
		return 1;
	e.t = state;
	e.fd = join(calls ? argv[3] : NULL, atoi(argv[1]));
	introduce(&e);
	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		void (*run)(struct end *) = vt_by_cm(e.t) ? cases[i].stream : cases[i].run;

		if (!run || !wanted(cases[i].name, argv + (calls ? 4 : 2)))
			continue;
		print_message("%s\n", cases[i].name);
		run(&e);
	}
	print_message("done\n");
	return vt_teardown(&state) != 0;
}
