/* SPDX-License-Identifier: MIT */
/* guest_run ADDRESS COMMAND...: runs a command in the guest; its output and exit status become ours
 * (agent.h). */
#include "agent.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NO_ANSWER = 125 };

static void die(const char *what)
{
	perror(what);
	exit(NO_ANSWER);
}

static int connect_to(const char *address)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(AGENT_PORT)};
	int s = socket(AF_INET, SOCK_STREAM, 0);

	if (s < 0 || inet_pton(AF_INET, address, &a.sin_addr) != 1 ||
		connect(s, (struct sockaddr *)&a, sizeof(a)))
		die(address);
	return s;
}

static void send_words(int s, char **words)
{
	static char text[sizeof(uint32_t) + AGENT_TEXT];
	size_t len = sizeof(uint32_t);
	uint32_t n;

	for (; *words; words++) {
		size_t more = strlen(*words) + 1;

		if (more > sizeof(text) - len)
			exit(2);
		memcpy(text + len, *words, more);
		len += more;
	}
	n = htonl((uint32_t)(len - sizeof(n)));
	memcpy(text, &n, sizeof(n));
	if (send(s, text, len, MSG_NOSIGNAL) != (ssize_t)len)
		die("send");
}

/* Prints all but the agent's last words, and returns the status in them. */
static int copy_output(int s)
{
	char text[65536];
	size_t held = 0; /* what may be the last words */
	ssize_t n;

	while ((n = read(s, text + held, sizeof(text) - held)) > 0) {
		size_t have = held + (size_t)n, out = have > AGENT_LAST ? have - AGENT_LAST : 0;

		if (write(STDOUT_FILENO, text, out) != (ssize_t)out)
			die("write");
		held = have - out;
		memmove(text, text + out, held);
	}
	if (n < 0 || held != AGENT_LAST || memcmp(text, AGENT_END, AGENT_LAST - 1)) {
		fprintf(stderr, "guest_run: the guest broke off\n");
		exit(NO_ANSWER);
	}
	return (unsigned char)text[AGENT_LAST - 1];
}

int main(int argc, char **argv)
{
	int s;

	if (argc < 3)
		return 2;
	s = connect_to(argv[1]);
	send_words(s, argv + 2);
	return copy_output(s);
}
