/* SPDX-License-Identifier: MIT */
#include "surroundings.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

bool surroundings_ipv6(void)
{
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool there = fd >= 0 && !bind(fd, (struct sockaddr *)&sa, sizeof(sa));

	if (fd >= 0)
		close(fd);
	return there;
}

/* Tried as adapters do it, which share the port, but at an address that nobody's packets go to. */
static bool is_taken(unsigned port)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
	bool taken;

	inet_pton(AF_INET, "127.99.99.99", &sa.sin_addr);
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
	taken = bind(fd, (struct sockaddr *)&sa, sizeof(sa)) && errno == EADDRINUSE;
	close(fd);
	return taken;
}

/* Before the program's own main(): peers that it starts inherit the choice. */
__attribute__((constructor)) static void choose_port(void)
{
	char port[8];

	if (getenv("ANYRDMA_PORT") || !is_taken(4791))
		return;
	for (unsigned p = 24791; p < 24800; p++) {
		if (is_taken(p))
			continue;
		snprintf(port, sizeof(port), "%u", p);
		setenv("ANYRDMA_PORT", port, 1);
		printf("UDP port 4791 is taken; here by port %s\n", port);
		fflush(stdout);
		return;
	}
}
