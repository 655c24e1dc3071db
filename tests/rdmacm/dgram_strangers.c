/* SPDX-License-Identifier: MIT */
/*
 * dgram_strangers ADDRESS: packets to a datagram rsocket in the name of neighbours that are not there. The
 * one thread that serves all rsockets must not wait for any of them.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <rdma/rsocket.h>

enum { STRANGERS = 50, PATIENCE_MS = 30000 };

static struct sockaddr_in here = {.sin_family = AF_INET};
static atomic_int came;

/* A header of the stock library, with a QP number by which we know it. */
static const uint8_t packet[] = {0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 10, 0, 0, 1};

/* The library receives by this: such a packet is from a neighbour, each from another. */
__attribute__((visibility("default"))) ssize_t recvfrom(
	int fd, void *buf, size_t len, int flags, struct sockaddr *addr, socklen_t *alen)
{
	ssize_t got = syscall(SYS_recvfrom, fd, buf, len, flags, addr, alen);

	if (got == sizeof(packet) && !memcmp((uint8_t *)buf + 9, packet + 9, 3))
		((struct sockaddr_in *)addr)->sin_addr.s_addr =
			htonl((ntohl(here.sin_addr.s_addr) & ~0xffu) + 100 + (uint32_t)came++);
	return got;
}

static int open_rsocket(struct sockaddr_in *at)
{
	int fd = rsocket(AF_INET, SOCK_DGRAM, 0);
	socklen_t len = sizeof(*at);

	*at = here;
	assert_int_equal(rbind(fd, (struct sockaddr *)at, len), 0);
	assert_int_equal(rgetsockname(fd, (struct sockaddr *)at, &len), 0);
	return fd;
}

static void nobody_waits_for_a_stranger(void **state)
{
	struct sockaddr_in asked, other;
	int a = open_rsocket(&asked), b = open_rsocket(&other), udp = socket(AF_INET, SOCK_DGRAM, 0);
	struct pollfd p = {.fd = b, .events = POLLIN};
	char c;

	for (int i = 0; i < STRANGERS; i++)
		assert_int_equal(
			sendto(udp, packet, sizeof(packet), 0, (struct sockaddr *)&asked, sizeof(asked)),
			sizeof(packet));
	/* the first by UDP: the service thread's */
	assert_int_equal(rsendto(a, "x", 1, 0, (struct sockaddr *)&other, sizeof(other)), 1);
	assert_int_equal(rpoll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(rrecv(b, &c, 1, 0), 1);
	p.fd = a;
	while (came < STRANGERS) {
		assert_int_equal(rpoll(&p, 1, PATIENCE_MS), 1);
		assert_int_equal(rrecv(a, &c, 1, 0), 0);
	}
	rclose(a);
	rclose(b);
	close(udp);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_waits_for_a_stranger)};

	if (argc < 2 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1)
		return 2;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
