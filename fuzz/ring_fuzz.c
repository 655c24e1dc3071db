/* SPDX-License-Identifier: MIT */
/*
 * The other process of a ring: as its writer it fills slots and paths with anything, as its reader it says
 * anything about what it has taken, and when two meet it says anything by the socket. The input is a list of
 * moves, each a byte and what it needs.
 */
#include "base/memfile.h"
#include "input.h"
#include "local/handshake.h"
#include "local/pages/file.h"
#include "local/ring.h"
#include "wire/ibt.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

/* One ring that we read and one that we write; the other process has both in its hands. */
struct world {
	struct ring *in, *out;
	struct ring_tx tx;
	struct ring_rx rx;
	uint32_t sent;
};

static bool allow(void *arg, const struct ring_path *p)
{
	return p->tclass != 7;
}

/* Any slot, and the stamp that makes us look at it. */
static void fill_slot(struct world *w, struct input *in)
{
	struct ring_slot *s = &w->in->slot[w->rx.next % RING_SLOTS];

	draw(in, s, sizeof(*s));
	s->stamp = w->rx.next + 1;
}

static void take(struct world *w)
{
	struct frame_in f;
	uint32_t sum = 0;
	int got = ring_take(&w->rx, &f, allow, NULL);

	if (got <= 0)
		return;
	must(f.bytes == w->rx.slot.bytes && f.len >= BTH_LEN);
	must(f.payload_ext ? f.head_len <= RING_BYTES : f.len <= RING_BYTES);
	if (f.by_ref) {
		must(f.refs == w->rx.refs && f.nrefs && f.nrefs <= FRAME_REFS);
		for (unsigned i = 0; i < f.nrefs; i++)
			sum += f.refs[i].len;
		must(sum == (uint32_t)f.ref_len);
	}
	if (f.payload_ext) {
		const uint8_t *end = f.payload_ext + (f.len - f.head_len);

		must(f.payload_ext >= w->in->data && end <= w->in->data + RING_DATA);
		for (const uint8_t *p = f.payload_ext; p < end; p++)
			sum += *p;
	}
	ring_took(&w->rx, sum % 2);
	must(w->rx.done == w->rx.next);
	ring_publish(&w->rx);
	ring_publish_aside(&w->rx);
	must(w->in->taken == w->rx.done);
}

static void put(struct world *w, struct input *in)
{
	static uint8_t payload[RING_PAYLOAD_MAX];
	uint32_t ack = draw_u32(in), len = ack % sizeof(payload);
	struct frame_dest d = {.tclass = (uint8_t)(ack >> 24)};
	struct frame_out f = {.hdr_len = BTH_LEN,
		.pad = (uint8_t)(-len & 3),
		.iov_count = 1,
		.payload_len = len,
		.cookie = 1 + ack % 3,
		.psn = w->sent};
	struct iovec iov = {payload, len};

	if (ring_put(&w->tx, ring_path_to(&w->tx, &d), &f, &iov, ack % 2 ? &ack : NULL) == RING_PUT)
		w->sent++;
}

/* What it says it has taken, near the truth or not, and what it says it refused. */
static void collect(struct world *w, struct input *in)
{
	struct ring_note note[4];
	uint32_t lie = draw_u32(in), before = w->tx.taken;
	int n;

	draw(in, (void *)&w->out->refused[before % RING_SLOTS / 64], 8);
	n = ring_collect(&w->tx, lie % 2 ? before + lie % 16 : lie, note, 4);
	must(n <= 4 && w->tx.taken - before <= w->tx.head - before && w->tx.head - w->tx.taken <= RING_SLOTS);
	for (int i = 0; i < n; i++)
		must(note[i].cookie >= 1 && note[i].cookie <= 3 && note[i].psn < w->sent);
}

static void spoil_path(struct world *w, struct input *in)
{
	draw(in, &w->in->path[draw_u32(in) % RING_PATHS], sizeof(struct ring_path));
}

static unsigned open_files(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Bytes by the socket, with a descriptor or without: nothing is believed, and no descriptor is left. */
static void say(struct input *in)
{
	uint8_t bytes[sizeof(struct handshake_msg) + 8];
	struct iovec iov = {bytes, sizeof(bytes)};
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {0};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
	unsigned fds = draw_u32(in), before = open_files();
	struct handshake_msg word;
	int s[2], passed, got;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, s))
		return;
	draw(in, bytes, sizeof(bytes));
	iov.iov_len = fds / 3 % (sizeof(bytes) + 1);
	if (fds % 3) {
		struct cmsghdr *c;

		m.msg_control = control;
		m.msg_controllen = CMSG_SPACE(fds % 3 * sizeof(int));
		c = CMSG_FIRSTHDR(&m);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(fds % 3 * sizeof(int));
		memcpy(CMSG_DATA(c), s, fds % 3 * sizeof(int));
	}
	sendmsg(s[0], &m, MSG_DONTWAIT | MSG_NOSIGNAL);
	got = handshake_receive(s[1], &word, &passed);
	if (got > 0) {
		must(passed < 0 ||
			!memfile_map(passed, sizeof(struct ring), 1, NULL)); /* a socket is no memory */
		if (passed >= 0)
			close(passed);
	}
	close(s[0]);
	close(s[1]);
	must(open_files() == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct world w;
	struct input in = {data, data + size};

	if (!w.in) {
		w.in = aligned_alloc(4096, sizeof(*w.in));
		w.out = aligned_alloc(4096, sizeof(*w.out));
	}
	memset(w.in->slot, 0, 64 * sizeof(w.in->slot[0])); /* as far as an input gets */
	memset(w.in->path, 0, sizeof(w.in->path));
	memset(w.out->refused, 0, sizeof(w.out->refused));
	w.in->taken = w.out->taken = 0;
	ring_tx_init(&w.tx, w.out);
	ring_rx_init(&w.rx, w.in);
	w.sent = 0;
	while (in.at < in.end && w.rx.next < 60) {
		switch (*in.at++ % 6) {
		case 0:
			fill_slot(&w, &in);
			break;
		case 1:
			take(&w);
			break;
		case 2:
			put(&w, &in);
			break;
		case 3:
			collect(&w, &in);
			break;
		case 4:
			spoil_path(&w, &in);
			break;
		default:
			say(&in);
		}
	}
	return 0;
}
