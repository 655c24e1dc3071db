/* SPDX-License-Identifier: MIT */
/*
 * Sends one small forged packet for every PSN of a range, or for every QP number, as fast as the target takes
 * them: batches by UDP_SEGMENT, never more on their way than a default socket buffer holds. How many
 * the target has seen it reads from the target's counters, so that the target really judged every one.
 *
 *   sweep FROM TO OPCODE QPN PSN COUNT VARY COUNTERS OFFSET...
 *
 * VARY is "psn" or "qpn". COUNTERS is the target's segment (src/host/registry.h), the OFFSETs are 64-bit
 * counters in it whose sum grows by one with every packet. Says how many were sent, and how long it took.
 *
 * An acknowledge (opcode 17) claims a remote access error; every other opcode has no more than a BTH behind
 * which zeros stand.
 */
#include <arpa/inet.h>
#include <netinet/udp.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

enum { PORT = 4791, BATCH = 64, ACK = 17, NAK_ACCESS = 0x62, ON_THE_WAY = 64 * BATCH };

static uint32_t crc_table[256];

static void crc_init(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t c = i;

		for (int k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xedb88320u : c >> 1;
		crc_table[i] = c;
	}
}

static uint32_t crc(uint32_t c, const uint8_t *p, size_t n)
{
	while (n--)
		c = crc_table[(c ^ *p++) & 0xff] ^ c >> 8;
	return c;
}

struct sweep {
	int fd;
	struct sockaddr_in from, to;
	uint8_t opcode;
	uint32_t qpn, psn;
	int vary_qpn;
	size_t len; /* of a packet, with ICRC */
};

/* What the ICRC covers before the BTH: fields that change on the way are ones. */
static uint32_t crc_envelope(const struct sweep *s, uint16_t id)
{
	uint8_t h[8 + 20 + 8];
	uint16_t ip_len = htons((uint16_t)(28 + s->len)), udp_len = htons((uint16_t)(8 + s->len));

	memset(h, 0xff, sizeof(h));
	h[8] = 0x45;
	memcpy(h + 10, &ip_len, 2);
	h[12] = (uint8_t)(id >> 8);
	h[13] = (uint8_t)id;
	h[14] = 0x40; /* DF */
	h[15] = 0;
	h[17] = 17;
	memcpy(h + 20, &s->from.sin_addr, 4);
	memcpy(h + 24, &s->to.sin_addr, 4);
	memcpy(h + 28, &s->from.sin_port, 2);
	memcpy(h + 30, &s->to.sin_port, 2);
	memcpy(h + 32, &udp_len, 2);
	return crc(0xffffffffu, h, sizeof(h));
}

static void put24(uint8_t *p, uint32_t v)
{
	p[0] = (uint8_t)(v >> 16);
	p[1] = (uint8_t)(v >> 8);
	p[2] = (uint8_t)v;
}

static void make(const struct sweep *s, uint32_t i, uint32_t envelope, uint8_t *p)
{
	uint32_t c;

	memset(p, 0, s->len);
	p[0] = s->opcode;
	p[1] = 0x40;
	p[2] = p[3] = 0xff;
	put24(p + 5, s->vary_qpn ? s->qpn + i : s->qpn);
	put24(p + 9, s->vary_qpn ? s->psn : s->psn + i);
	if (s->opcode == ACK)
		p[12] = NAK_ACCESS;
	p[4] = 0xff;
	c = ~crc(envelope, p, s->len - 4);
	p[4] = 0;
	memcpy(p + s->len - 4, &(uint32_t){htole32(c)}, 4);
}

static void send_batch(const struct sweep *s, uint32_t first, uint32_t n, const uint32_t *envelopes)
{
	uint8_t buf[BATCH * 64];
	char control[CMSG_SPACE(2)] = {0};
	struct iovec iov = {buf, n * s->len};
	struct msghdr m = {.msg_name = (void *)&s->to,
		.msg_namelen = sizeof(s->to),
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	uint16_t size = (uint16_t)s->len;

	for (uint32_t i = 0; i < n; i++)
		make(s, first + i, envelopes[i], buf + i * s->len);
	c->cmsg_level = IPPROTO_UDP;
	c->cmsg_type = UDP_SEGMENT;
	c->cmsg_len = CMSG_LEN(2);
	memcpy(CMSG_DATA(c), &size, 2);
	if (sendmsg(s->fd, &m, 0) < 0) {
		perror("sweep: sendmsg");
		exit(1);
	}
}

static uint64_t seen(const volatile uint8_t *file, char **offset, int n)
{
	uint64_t sum = 0;

	for (int i = 0; i < n; i++)
		sum += *(const volatile uint64_t *)(file + strtoul(offset[i], NULL, 0));
	return sum;
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int open_socket(struct sweep *s)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), one = 1, probe = IP_PMTUDISC_PROBE;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &probe, sizeof(probe));
	if (fd < 0 || bind(fd, (struct sockaddr *)&s->from, sizeof(s->from))) {
		perror("sweep: bind");
		exit(1);
	}
	return fd;
}

int main(int argc, char **argv)
{
	struct sweep s = {.from = {.sin_family = AF_INET, .sin_port = htons(PORT)},
		.to = {.sin_family = AF_INET, .sin_port = htons(PORT)}};
	uint32_t envelopes[BATCH], count, done = 0;
	uint8_t *file;
	uint64_t before;
	double start, moved;

	if (argc < 10 || inet_pton(AF_INET, argv[1], &s.from.sin_addr) != 1 ||
		inet_pton(AF_INET, argv[2], &s.to.sin_addr) != 1)
		return 2;
	s.opcode = (uint8_t)strtoul(argv[3], NULL, 0);
	s.qpn = (uint32_t)strtoul(argv[4], NULL, 0);
	s.psn = (uint32_t)strtoul(argv[5], NULL, 0);
	count = (uint32_t)strtoul(argv[6], NULL, 0);
	s.vary_qpn = !strcmp(argv[7], "qpn");
	s.len = s.opcode == ACK ? 20 : 16;
	s.fd = open_socket(&s);
	crc_init();
	for (uint16_t i = 0; i < BATCH; i++)
		envelopes[i] = crc_envelope(&s, i);
	file = shmat(atoi(argv[8]), NULL, SHM_RDONLY);
	if (file == (void *)-1)
		return 2;
	before = seen(file, argv + 9, argc - 9);
	start = moved = now();
	while (done < count) {
		uint32_t n = count - done < BATCH ? count - done : BATCH;
		uint64_t last = 0, s1;

		send_batch(&s, done, n, envelopes);
		done += n;
		/* At the end, and when enough are on their way, waits for the target; 5 s without a sign is
		 * lost. */
		while ((s1 = seen(file, argv + 9, argc - 9) - before) + (done < count ? ON_THE_WAY : 0) <
			done) {
			if (s1 != last) {
				last = s1;
				moved = now();
			} else if (now() - moved > 5) {
				break;
			}
			sched_yield();
		}
		moved = now();
	}
	printf("sent=%u judged=%llu ms=%.0f\n", count,
		(unsigned long long)(seen(file, argv + 9, argc - 9) - before), (now() - start) * 1000);
	return 0;
}
