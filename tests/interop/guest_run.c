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

/* Prints all but the last byte, which it returns. */
static int copy_output(int s)
{
	unsigned char text[65536];
	size_t held = 0; /* the last byte so far, which may be the status */
	ssize_t n;

	while ((n = read(s, text + held, sizeof(text) - held)) > 0) {
		size_t have = held + (size_t)n;

		if (write(STDOUT_FILENO, text, have - 1) != (ssize_t)have - 1)
			die("write");
		text[0] = text[have - 1];
		held = 1;
	}
	if (n < 0 || !held)
		die("guest_run");
	return text[0];
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
