/* SPDX-License-Identifier: MIT */
/*
 * A bad wire between two network namespaces, for machines whose kernel has no netem.
 *
 *   lossy_wire NAME_A NAME_B PID_B [loss=PERMILLE] [double=PERMILLE] [swap=PERMILLE] [frames=N] [seed=N]
 *
 * Makes a TAP interface NAME_A in its own namespace and NAME_B in that of process PID_B, and carries frames
 * between them until it is killed. Only RoCEv2 (UDP port 4791) suffers: lost, sent twice, or held back until
 * the next frame has passed; with frames=N only the first N of them, then the wire is good. Says "ready" when
 * both interfaces exist.
 */
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { FRAME = 65536, ROCE = 4791, BURST = 64 };

struct side {
	int fd;
	uint8_t held[FRAME]; /* a frame that the next one overtakes */
	ssize_t held_len;
};

static unsigned loss, twice, swap_, frames = UINT32_MAX;
static uint64_t seed = 1;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static bool chance(unsigned permille)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % 1000 < permille;
}

static int tap(const char *name)
{
	struct ifreq r = {.ifr_flags = IFF_TAP | IFF_NO_PI};
	int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		die("/dev/net/tun");
	snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
	if (ioctl(fd, TUNSETIFF, &r))
		die(name);
	return fd;
}

static void enter_network_of(const char *pid)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%s/ns/net", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		die(path);
	close(fd);
}

/* UDP to the RoCE port, IPv4 without options or IPv6 without extensions. */
static bool is_roce(const uint8_t *f, ssize_t len)
{
	bool v6 = len > 13 && f[12] == 0x86 && f[13] == 0xdd;
	size_t udp = v6 ? 14 + 40 : 14 + 20;

	return len >= (ssize_t)udp + 8 && f[v6 ? 14 + 6 : 14 + 9] == 17 && f[udp + 2] == ROCE >> 8 &&
	       f[udp + 3] == (ROCE & 0xff);
}

static void put(int fd, const uint8_t *f, ssize_t len)
{
	while (len && write(fd, f, (size_t)len) < 0 && (poll(&(struct pollfd){fd, POLLOUT, 0}, 1, 100) > 0))
		;
}

static void flush_held(struct side *from, int to)
{
	put(to, from->held, from->held_len);
	from->held_len = 0;
}

/* A burst of frames from one side to the other; how many. */
static unsigned carry(struct side *from, int to)
{
	uint8_t f[FRAME];
	ssize_t len;
	unsigned n = 0;

	while (n < BURST && (len = read(from->fd, f, sizeof(f))) > 0) {
		n++;
		if (is_roce(f, len) && frames) {
			frames -= frames != UINT32_MAX;
			if (chance(loss))
				continue;
			if (!from->held_len && chance(swap_)) {
				memcpy(from->held, f, (size_t)len);
				from->held_len = len;
				continue;
			}
			if (chance(twice))
				put(to, f, len);
		}
		put(to, f, len);
		flush_held(from, to);
	}
	return n;
}

int main(int argc, char **argv)
{
	static struct side a, b;

	if (argc < 4)
		return 2;
	for (int i = 4; i < argc; i++) {
		if (sscanf(argv[i], "loss=%u", &loss) != 1 && sscanf(argv[i], "double=%u", &twice) != 1 &&
			sscanf(argv[i], "swap=%u", &swap_) != 1 &&
			sscanf(argv[i], "frames=%u", &frames) != 1 && sscanf(argv[i], "seed=%lu", &seed) != 1)
			return 2;
	}
	a.fd = tap(argv[1]);
	enter_network_of(argv[3]);
	b.fd = tap(argv[2]);
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct pollfd p[2] = {{a.fd, POLLIN, 0}, {b.fd, POLLIN, 0}};

		/* What is held back and overtaken by nothing goes on after a moment. */
		if (poll(p, 2, a.held_len || b.held_len ? 1 : -1) == 0) {
			flush_held(&a, b.fd);
			flush_held(&b, a.fd);
		}
		while (carry(&a, b.fd) + carry(&b, a.fd))
			;
	}
}
