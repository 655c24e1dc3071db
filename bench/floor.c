/* SPDX-License-Identifier: MIT */
/*
 * The floor of the method: what plain UDP sockets can do when nothing is left of RDMA but its packets. A
 * packet is 12 bytes of header (a sequence number and a kind, where the BTH would be), the payload, and a
 * CRC-32 over both, computed by the sender and checked by the receiver with the routine that our ICRC uses.
 * No queue pairs, keys, retransmission or completions: what our adapter loses against this pair is the
 * adapter's own cost.
 *
 *      floor sink [OPTION...]                  receives a stream
 *      floor stream ADDRESS [OPTION...]        sends it: UDP_SEGMENT messages, several per sendmmsg
 *      floor echo [OPTION...]                  answers pings
 *      floor ping ADDRESS [OPTION...]          one packet there and back at a time
 *
 * So that the sink is not overrun, the sender has at most a window of packets in flight. The sink returns the
 * highest sequence number it has seen after each quarter of a window, and when nothing came for a while. A
 * lost packet is counted, never sent again. Each end prints one line of JSON when it is done.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <isa-l/crc.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	CRC_LEN = 4,
	MESSAGE_MAX = 65000, /* bytes of one UDP_SEGMENT message: the UDP length field has 16 bits */
	BATCH_MAX = 64,      /* packets of one message: what every kernel with UDP_SEGMENT takes */
	BURST_MAX = 64,      /* messages per system call */
	PIECES = 3,          /* header, payload, CRC: the iovecs of one packet */
	IMPATIENCE_US = 50000,
};

enum kind { KIND_DATA, KIND_CREDIT, KIND_PING, KIND_STOP };

struct __attribute__((packed)) header {
	uint64_t seq; /* in a credit: packets seen so far */
	uint32_t kind;
};

enum into { INTO_BUFFER, INTO_COPY, INTO_SCATTER };
static const char *const into_name[] = {"buffer", "copy", "scatter"};

static struct {
	unsigned port, payload, batch, burst, window, sockbuf, region;
	double seconds;
	bool spin, no_crc;
	enum into into;
} opt = {
	.port = 4799,
	.payload = 4096,
	.batch = BATCH_MAX,
	.burst = 4,
	.window = 256 << 10,
	.sockbuf = 4 << 20,
	.region = 1 << 20,
	.seconds = 2,
};

struct end {
	int fd;
	struct sockaddr_in peer;
	uint8_t *region; /* the program's buffer, sent from or received into, again and again */
	uint64_t bad, lost, misplaced;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_seconds(void)
{
	struct rusage r;
	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static uint32_t packet_crc(const struct header *h, const void *payload, size_t len)
{
	uint32_t crc;

	if (opt.no_crc)
		return 0;
	crc = crc32_gzip_refl(0, (const uint8_t *)h, sizeof(*h));
	return len ? crc32_gzip_refl(crc, payload, len) : crc;
}

static bool crc_agrees(const uint8_t *crc, const struct header *h, const void *payload, size_t len)
{
	uint32_t got;

	memcpy(&got, crc, CRC_LEN);
	return got == packet_crc(h, payload, len);
}

static unsigned packet_len(void)
{
	return sizeof(struct header) + opt.payload + CRC_LEN;
}

/* Where a packet's payload belongs: as long as the region lasts, then from its start again. */
static uint8_t *place(const struct end *e, uint64_t seq)
{
	return e->region + seq % (opt.region / opt.payload) * opt.payload;
}

static void set(int fd, int level, int name, int value)
{
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		die("setsockopt");
}

/* An unconnected socket that forbids fragmentation, as our link has: see docs/wire/rocev2.md for why. */
static void open_end(struct end *e, const char *address)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(address ? 0 : opt.port)};
	struct timeval impatience = {.tv_usec = IMPATIENCE_US};

	*e = (struct end){.fd = socket(AF_INET, SOCK_DGRAM, 0)};
	e->peer = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(opt.port)};
	if (address && inet_pton(AF_INET, address, &e->peer.sin_addr) != 1)
		die(address);
	set(e->fd, SOL_SOCKET, SO_RCVBUF, (int)opt.sockbuf);
	set(e->fd, SOL_SOCKET, SO_SNDBUF, (int)opt.sockbuf);
	set(e->fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
	setsockopt(e->fd, SOL_SOCKET, SO_RCVTIMEO, &impatience, sizeof(impatience));
	if (bind(e->fd, (struct sockaddr *)&any, sizeof(any)))
		die("bind");
	e->region = mmap(NULL, opt.region, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (e->region == MAP_FAILED)
		die("mmap");
	memset(e->region, 0x5a, opt.region);
}

static void send_note(struct end *e, enum kind kind, uint64_t seq)
{
	struct header h = {.seq = seq, .kind = kind};

	sendto(e->fd, &h, sizeof(h), 0, (struct sockaddr *)&e->peer, sizeof(e->peer));
}

/* ---- stream: the sender ---- */
struct burst {
	struct mmsghdr msg[BURST_MAX];
	struct iovec iov[BURST_MAX][BATCH_MAX * PIECES];
	struct header hdr[BURST_MAX][BATCH_MAX];
	uint32_t crc[BURST_MAX][BATCH_MAX];
};

static void fill_message(struct end *e, struct burst *b, unsigned m, uint64_t seq)
{
	struct iovec *iov = b->iov[m];

	for (unsigned i = 0; i < opt.batch; i++, seq++) {
		b->hdr[m][i] = (struct header){.seq = seq, .kind = KIND_DATA};
		b->crc[m][i] = packet_crc(&b->hdr[m][i], place(e, seq), opt.payload);
		*iov++ = (struct iovec){&b->hdr[m][i], sizeof(struct header)};
		*iov++ = (struct iovec){place(e, seq), opt.payload};
		*iov++ = (struct iovec){&b->crc[m][i], CRC_LEN};
	}
	b->msg[m].msg_hdr = (struct msghdr){.msg_iov = b->iov[m],
		.msg_iovlen = (size_t)(iov - b->iov[m]),
		.msg_name = &e->peer,
		.msg_namelen = sizeof(e->peer)};
}

/* Sends n messages; what the kernel does not take is lost. */
static void send_burst(struct end *e, struct burst *b, unsigned n)
{
	for (unsigned done = 0; done < n;) {
		int sent = sendmmsg(e->fd, b->msg + done, n - done, 0);

		if (sent < 0 && errno != EAGAIN && errno != ENOBUFS)
			die("sendmmsg");
		done += sent > 0 ? (unsigned)sent : 1;
	}
}

/* Takes the credits that are there; with wait, at least one. false: the sink was silent for too long. */
static bool take_credits(struct end *e, uint64_t *acked, bool wait)
{
	double give_up = now() + IMPATIENCE_US / 1e6;
	struct header h;

	for (;;) {
		ssize_t n = recv(e->fd, &h, sizeof(h), wait && !opt.spin ? 0 : MSG_DONTWAIT);

		if (n == sizeof(h) && h.kind == KIND_CREDIT && h.seq > *acked) {
			*acked = h.seq;
			wait = false;
		} else if (n < 0 && !wait) {
			return true;
		} else if (n < 0 && now() > give_up) {
			return false;
		}
	}
}

static void stream(struct end *e)
{
	static struct burst b;
	uint64_t next = 0, acked = 0, window = opt.window / opt.payload, stalls = 0;
	double start = now(), stop = start + opt.seconds, took;

	set(e->fd, IPPROTO_UDP, UDP_SEGMENT, (int)packet_len());
	for (double t = start; t < stop; t = now()) {
		unsigned n = 0;

		for (; n < opt.burst && next + opt.batch <= acked + window; n++, next += opt.batch)
			fill_message(e, &b, n, next);
		send_burst(e, &b, n);
		if (!take_credits(e, &acked, next + opt.batch > acked + window)) {
			acked = next;
			stalls++;
		}
	}
	took = now() - start;
	set(e->fd, IPPROTO_UDP, UDP_SEGMENT, 0);
	send_note(e, KIND_STOP, next);
	printf("{\"gbps\": %.3f, \"seconds\": %.3f, \"cpu\": %.3f, \"stalls\": %ju}\n",
		(double)acked * opt.payload * 8 / 1e9 / took, took, cpu_seconds(), (uintmax_t)stalls);
}

/* ---- stream: the sink ---- */
struct sink {
	struct end *e;
	struct mmsghdr msg[BURST_MAX];
	struct sockaddr_in from[BURST_MAX];
	char control[BURST_MAX][64];
	uint8_t *buffer[BURST_MAX]; /* for whole messages */
	struct iovec iov[BURST_MAX][BATCH_MAX * PIECES];
	struct header hdr[BURST_MAX][BATCH_MAX];
	uint8_t crc[BURST_MAX][BATCH_MAX][CRC_LEN];
	uint64_t seen, credited, bytes; /* packets in sequence, packets told of, payload that was good */
	bool stop;
};

/* One buffer per message, or each packet's payload straight to where the packets to come should belong. */
static unsigned aim(struct sink *s, unsigned m)
{
	struct iovec *iov = s->iov[m];

	if (opt.into != INTO_SCATTER) {
		*iov = (struct iovec){s->buffer[m], MESSAGE_MAX};
		return 1;
	}
	for (unsigned i = 0; i < opt.batch; i++) {
		*iov++ = (struct iovec){&s->hdr[m][i], sizeof(struct header)};
		*iov++ = (struct iovec){place(s->e, s->seen + (uint64_t)m * opt.batch + i), opt.payload};
		*iov++ = (struct iovec){s->crc[m][i], CRC_LEN};
	}
	return opt.batch * PIECES;
}

static int receive_burst(struct sink *s)
{
	for (unsigned m = 0; m < opt.burst; m++)
		s->msg[m].msg_hdr = (struct msghdr){.msg_name = &s->from[m],
			.msg_namelen = sizeof(s->from[m]),
			.msg_control = s->control[m],
			.msg_controllen = sizeof(s->control[m]),
			.msg_iov = s->iov[m],
			.msg_iovlen = aim(s, m)};
	return recvmmsg(s->e->fd, s->msg, opt.burst, opt.spin ? MSG_DONTWAIT : MSG_WAITFORONE, NULL);
}

/* One packet, wherever its three parts are. */
static void take_packet(struct sink *s, const struct header *h, const uint8_t *payload, const uint8_t *crc)
{
	if (!crc_agrees(crc, h, payload, opt.payload)) {
		s->e->bad++;
		return;
	}
	if (opt.into == INTO_COPY)
		memcpy(place(s->e, h->seq), payload, opt.payload);
	else if (opt.into == INTO_SCATTER && payload != place(s->e, h->seq))
		s->e->misplaced++;
	if (h->seq > s->seen)
		s->e->lost += h->seq - s->seen;
	s->seen = h->seq + 1;
	s->bytes += opt.payload;
}

static void take_message(struct sink *s, unsigned m)
{
	const struct header *first = s->iov[m][0].iov_base;
	unsigned n = s->msg[m].msg_len / packet_len();

	s->e->peer = s->from[m];
	if (s->msg[m].msg_len == sizeof(*first))
		s->stop = first->kind == KIND_STOP;
	for (unsigned i = 0; i < n && opt.into == INTO_SCATTER; i++)
		take_packet(s, &s->hdr[m][i], s->iov[m][i * PIECES + 1].iov_base, s->crc[m][i]);
	for (unsigned i = 0; i < n && opt.into != INTO_SCATTER; i++) {
		const uint8_t *p = s->buffer[m] + (size_t)i * packet_len();

		take_packet(s, (const struct header *)p, p + sizeof(*first), p + packet_len() - CRC_LEN);
	}
}

static void sink(struct end *e)
{
	static struct sink s;
	uint64_t quarter = opt.window / opt.payload / 4;
	double start = 0;

	s.e = e;
	set(e->fd, IPPROTO_UDP, UDP_GRO, 1);
	for (unsigned m = 0; m < opt.burst; m++)
		s.buffer[m] = malloc(MESSAGE_MAX);
	while (!s.stop) {
		int n = receive_burst(&s);

		for (int m = 0; m < n; m++)
			take_message(&s, (unsigned)m);
		if (n > 0 && !start)
			start = now();
		if (start && ((n < 0 && !opt.spin) || s.seen - s.credited >= quarter)) {
			send_note(e, KIND_CREDIT, s.seen);
			s.credited = s.seen;
		}
	}
	printf("{\"bytes\": %ju, \"into\": \"%s\", \"bad\": %ju, \"lost\": %ju, \"misplaced\": %ju, \"cpu\": "
	       "%.3f}\n",
		(uintmax_t)s.bytes, into_name[opt.into], (uintmax_t)e->bad, (uintmax_t)e->lost,
		(uintmax_t)e->misplaced, cpu_seconds());
}

/* ---- ping-pong ---- */
static void send_ping(struct end *e, uint64_t seq, enum kind kind)
{
	struct header h = {.seq = seq, .kind = kind};
	uint32_t crc = packet_crc(&h, e->region, opt.payload);
	struct iovec iov[PIECES] = {{&h, sizeof(h)}, {e->region, opt.payload}, {&crc, CRC_LEN}};
	struct msghdr m = {
		.msg_name = &e->peer, .msg_namelen = sizeof(e->peer), .msg_iov = iov, .msg_iovlen = PIECES};

	sendmsg(e->fd, &m, 0);
}

/* The next good packet's header; the peer is whoever sent it. false: none came for too long. */
static bool receive_ping(struct end *e, struct header *h)
{
	uint8_t crc[CRC_LEN];
	struct iovec iov[PIECES] = {{h, sizeof(*h)}, {e->region, opt.payload}, {crc, CRC_LEN}};
	double give_up = now() + IMPATIENCE_US / 1e6;

	for (unsigned tries = 1;; tries++) {
		struct msghdr m = {.msg_name = &e->peer,
			.msg_namelen = sizeof(e->peer),
			.msg_iov = iov,
			.msg_iovlen = PIECES};
		ssize_t n = recvmsg(e->fd, &m, opt.spin ? MSG_DONTWAIT : 0);

		if (n == packet_len() && crc_agrees(crc, h, e->region, opt.payload))
			return true;
		if (n >= 0)
			e->bad++;
		else if (!opt.spin || (tries % 1024 == 0 && now() > give_up))
			return false;
	}
}

static void echo(struct end *e)
{
	struct header h = {.kind = KIND_PING};

	while (h.kind != KIND_STOP)
		if (receive_ping(e, &h))
			send_ping(e, h.seq, h.kind);
	printf("{\"bad\": %ju, \"cpu\": %.3f}\n", (uintmax_t)e->bad, cpu_seconds());
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Half of a round trip, as the benchmarks of this trade count. */
static void ping(struct end *e)
{
	enum { MAX = 1 << 22, WARM = 1000 };
	double *half = malloc(MAX * sizeof(*half)), sum = 0, stop = now() + opt.seconds;
	uint64_t seq = 0;
	unsigned n = 0;

	for (double t = now(), end; t < stop && n < MAX; t = end) {
		struct header h;

		send_ping(e, ++seq, KIND_PING);
		if (!receive_ping(e, &h))
			e->lost++;
		end = now();
		if (seq > WARM)
			sum += half[n++] = (end - t) * 1e6 / 2;
	}
	send_ping(e, ++seq, KIND_STOP);
	qsort(half, n, sizeof(*half), by_value);
	printf("{\"n\": %u, \"avg\": %.3f, \"median\": %.3f, \"p99\": %.3f, \"lost\": %ju, \"cpu\": %.3f}\n",
		n, n ? sum / n : 0, n ? half[n / 2] : 0, n ? half[n - n / 100 - 1] : 0, (uintmax_t)e->lost,
		cpu_seconds());
}

/* ---- the command line ---- */
static const struct option options[] = {
	{"port", required_argument, NULL, 'p'},
	{"payload", required_argument, NULL, 's'},
	{"batch", required_argument, NULL, 'b'},
	{"burst", required_argument, NULL, 'm'},
	{"window", required_argument, NULL, 'w'},
	{"sockbuf", required_argument, NULL, 'B'},
	{"region", required_argument, NULL, 'r'},
	{"seconds", required_argument, NULL, 't'},
	{"into", required_argument, NULL, 'i'},
	{"spin", no_argument, NULL, 'z'},
	{"no-crc", no_argument, NULL, 'n'},
	{0},
};

static void usage(void)
{
	fputs("usage: floor sink | stream ADDRESS | echo | ping ADDRESS [OPTION...]\n"
	      "  -p, --port=N      UDP port (4799)\n"
	      "  -s, --payload=N   bytes of payload per packet (4096); header and CRC are 16 more\n"
	      "  -b, --batch=N     packets per UDP_SEGMENT message (as many as fit)\n"
	      "  -m, --burst=N     messages per sendmmsg or recvmmsg (4)\n"
	      "  -w, --window=N    bytes of payload in flight (262144); the same at both ends\n"
	      "  -B, --sockbuf=N   socket buffers asked for (4194304)\n"
	      "  -r, --region=N    bytes of the buffer sent from and received into (1048576)\n"
	      "  -t, --seconds=N   how long (2)\n"
	      "  -i, --into=HOW    buffer: the sink checks packets where they were received (default);\n"
	      "                    copy: and copies payload to its place; scatter: receives it there by "
	      "iovec\n"
	      "  -z, --spin        poll the socket instead of sleeping on it\n"
	      "  -n, --no-crc      neither compute nor check the CRC\n",
		stderr);
	exit(2);
}

static enum into parse_into(const char *name)
{
	for (unsigned i = 0; i < sizeof(into_name) / sizeof(into_name[0]); i++)
		if (!strcmp(name, into_name[i]))
			return (enum into)i;
	usage();
	return INTO_BUFFER;
}

static const struct number {
	char letter;
	unsigned *value, low, high;
} numbers[] = {
	{'p', &opt.port, 1, 65535},
	{'s', &opt.payload, 1, MESSAGE_MAX - sizeof(struct header) - CRC_LEN},
	{'b', &opt.batch, 1, BATCH_MAX},
	{'m', &opt.burst, 1, BURST_MAX},
	{'w', &opt.window, 1, 1 << 30},
	{'B', &opt.sockbuf, 1, 1 << 30},
	{'r', &opt.region, 1, 1 << 30},
};

static bool parse_number(int letter)
{
	for (unsigned i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		const struct number *n = &numbers[i];

		if (n->letter != letter)
			continue;
		*n->value = (unsigned)strtoul(optarg, NULL, 0);
		return *n->value >= n->low && *n->value <= n->high;
	}
	return false;
}

static void parse_option(int letter)
{
	if (letter == 't')
		opt.seconds = atof(optarg);
	else if (letter == 'i')
		opt.into = parse_into(optarg);
	else if (letter == 'z')
		opt.spin = true;
	else if (letter == 'n')
		opt.no_crc = true;
	else if (!parse_number(letter))
		usage();
}

static const struct role {
	const char *name;
	void (*run)(struct end *);
	bool needs_address;
} roles[] = {{"sink", sink, false}, {"stream", stream, true}, {"echo", echo, false}, {"ping", ping, true}};

int main(int argc, char **argv)
{
	const struct role *role = roles, *end = roles + sizeof(roles) / sizeof(roles[0]);
	struct end e;

	for (int c; (c = getopt_long(argc, argv, "p:s:b:m:w:B:r:t:i:zn", options, NULL)) != -1;)
		parse_option(c);
	while (role < end && (optind >= argc || strcmp(role->name, argv[optind])))
		role++;
	if (role == end || argc - optind != 1 + role->needs_address)
		usage();
	if (opt.batch * packet_len() > MESSAGE_MAX)
		opt.batch = MESSAGE_MAX / packet_len();
	if (opt.region < opt.payload)
		opt.region = opt.payload;
	if (opt.window < 2 * opt.batch * opt.payload)
		opt.window = 2 * opt.batch * opt.payload;
	open_end(&e, role->needs_address ? argv[optind + 1] : NULL);
	role->run(&e);
	return 0;
}
