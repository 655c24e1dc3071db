/* SPDX-License-Identifier: MIT */
/*
 * The handshakes of two processes on one host. Of the memory link: others connect to it, and one listens
 * where it connects to; each says any words in any order, right or wrong, and passes any descriptor. Nobody
 * is taken for what it did not show, who does as it should is let in, and no descriptor is left. And the
 * record by which the two ends of an iWARP stream find each other.
 */
#include "base/memfile.h"
#include "input.h"
#include "local/channel_parts.h"
#include "wire/mpa.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HERE = 3, THERE = 7, ENDS = 4, EXPORT = 8192, FDS = 64 };

/* What can be passed. */
enum { NOTHING, RING, WRONG_RING, SHORT, BELL, WRONG_BELL, EXPORTED, UNSEALED, NO_MEMORY, THINGS };
static int thing[THINGS];
static unsigned fds_before;

/* A socket of ours: who connected to it, or (accepted) whom it connected to. */
struct end {
	int fd; /* -1: none */
	bool accepted, spoken;
	const uint8_t *nonce; /* as WELCOME says; NULL: it did not */
	bool proved;
};

static uint16_t port;
static struct local_channel *link_here;
static int listener;
static struct end end[ENDS];
static unsigned newest;                         /* the last that was accepted */
static uint64_t token;                          /* of the last HELLO that we got */
static bool welcomed, exported, proved, paired; /* what was said rightly, ever */

/* ---- a wire that takes and has nothing ---- */
static int wire_send(struct link *l, const struct frame_batch *b)
{
	return 0;
}

static int wire_receive(struct link *l, unsigned max, link_deliver_fn *deliver, void *arg)
{
	return 0;
}

static int wire_fds(struct link *l, int fds[4])
{
	return 0;
}

static void wire_close(struct link *l)
{
	free(l);
}

static bool ours(void *arg, const uint8_t gid[16])
{
	return true;
}

static void deliver(void *arg, const struct frame_in *in)
{
	abort(); /* nobody has put a frame into any ring */
}

/* ---- what stands afterwards ---- */
static unsigned open_files(void)
{
	unsigned n = 0;

	for (int fd = 0; fd < FDS; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void check(void)
{
	struct local_writer *w = link_here->writer[THERE];

	must(!w || w->state != WRITER_UP || welcomed);
	must(!w || !w->there.export || exported);
	must(!w || !w->reverse || paired);
	for (unsigned i = 0; i < link_here->nreaders; i++) {
		struct local_reader *r = link_here->reader[i];

		if (r->state != READER_UP)
			continue;
		must(r->begun && ring_is_one(r->rx.ring) && r->slot < QPN_SLOTS);
		if (r->slot != HERE) /* that may be itself */
			must((!r->exported || proved) && (!r->verified || paired));
	}
}

static void attend(void)
{
	local_peers_attend(link_here, true);
	link_here->link.ops->receive(&link_here->link, 0, deliver, NULL);
	check();
}

/* ---- moves ---- */
static void add_end(int fd, bool accepted)
{
	for (unsigned i = 0; i < ENDS; i++) {
		if (end[i].fd >= 0)
			continue;
		end[i] = (struct end){.fd = fd, .accepted = accepted};
		newest = accepted ? i : newest;
		return;
	}
	close(fd);
}

static void connect_to_it(struct input *in)
{
	int fd = handshake_connect(port, HERE);

	if (fd >= 0)
		add_end(fd, false);
	attend();
}

static void accept_all(void)
{
	for (int fd; (fd = handshake_accept(listener)) >= 0;)
		add_end(fd, true);
}

/* It connects to us. */
static void be_asked(struct input *in)
{
	uint64_t who;

	must(local_channel_try_connect(link_here, THERE, true, &who) < 1 || welcomed);
	accept_all();
	attend();
}

static void hear_word(struct end *e, const struct handshake_msg *word, int passed)
{
	struct ring *ring;

	switch (word->kind) {
	case HANDSHAKE_HELLO:
		ring = memfile_map(passed, sizeof(*ring), PROT_READ | PROT_WRITE, NULL);
		must(e->accepted && word->slot == HERE && ring && ring_is_one(ring));
		munmap(ring, sizeof(*ring));
		token = word->token;
		break;
	case HANDSHAKE_WELCOME:
		must(!e->accepted && word->slot == HERE && passed >= 0);
		e->nonce = (const uint8_t *)(uintptr_t)word->at;
		break;
	case HANDSHAKE_EXPORT: /* to be read, by who has shown that it may */
		must(e->proved && !memfile_map(passed, EXPORT, PROT_READ | PROT_WRITE, NULL));
		break;
	case HANDSHAKE_PROOF:
	case HANDSHAKE_PAIR:
		must(e->accepted && welcomed && passed < 0);
		break;
	default:
		abort();
	}
}

static void hear(struct end *e)
{
	struct handshake_msg word;
	int passed, got;

	while (e->fd >= 0 && (got = handshake_receive(e->fd, &word, &passed)) >= 0) {
		if (got)
			hear_word(e, &word, passed);
		if (passed >= 0)
			close(passed);
	}
}

static void hear_all(struct input *in)
{
	accept_all();
	for (unsigned i = 0; i < ENDS; i++)
		hear(&end[i]);
}

static struct handshake_msg draw_word(struct input *in, const struct end *e, uint8_t how)
{
	struct handshake_msg w = {.magic = HANDSHAKE_MAGIC, .version = HANDSHAKE_VERSION, .kind = how & 7};

	w.slot = how & 8 ? draw_u32(in) : THERE;
	w.token = how & 16 ? draw_u32(in) : token;
	w.at = how & 32 ? draw_u32(in) : (uintptr_t)thing;
	if (how & 64 || !e->nonce)
		draw(in, w.nonce, sizeof(w.nonce));
	else
		memcpy(w.nonce, e->nonce, sizeof(w.nonce));
	if (how & 128)
		w.version += draw_u8(in);
	return w;
}

/* What the word rightly shows, if it comes from whom it should. */
static void note_word(struct end *e, const struct handshake_msg *w, unsigned what)
{
	bool valid = w->version == HANDSHAKE_VERSION;

	welcomed |= valid && e->accepted && w->kind == HANDSHAKE_WELCOME && w->slot == THERE && what == BELL;
	exported |= valid && e->accepted && w->kind == HANDSHAKE_EXPORT && what == EXPORTED;
	paired |= valid && !e->accepted && w->kind == HANDSHAKE_PAIR && w->token == token;
	if (valid && !e->accepted && w->kind == HANDSHAKE_PROOF && e->nonce &&
		!memcmp(w->nonce, e->nonce, sizeof(w->nonce)))
		e->proved = proved = true;
}

/* Who is new and does as it should gets its way. */
static bool must_succeed(const struct end *e, const struct handshake_msg *w, unsigned what)
{
	struct local_writer *to = link_here->writer[THERE];

	if (e->spoken || w->version != HANDSHAKE_VERSION)
		return false;
	if (!e->accepted)
		return w->kind == HANDSHAKE_HELLO && what == RING;
	return w->kind == HANDSHAKE_WELCOME && what == BELL && w->slot == THERE && e == &end[newest] && to &&
	       to->state == WRITER_ASKED;
}

static void say(struct input *in)
{
	uint8_t how = draw_u8(in), which = draw_u8(in);
	struct end *e = &end[which % ENDS];
	unsigned what = which / ENDS % THINGS;
	struct handshake_msg w;
	bool right;

	if (e->fd < 0)
		return;
	attend(); /* it is accepted, and nothing is left to be heard */
	hear(e);
	w = draw_word(in, e, how);
	right = must_succeed(e, &w, what);
	note_word(e, &w, what);
	e->spoken = true;
	if (w.version != HANDSHAKE_VERSION)
		send(e->fd, &w, draw_u8(in) % sizeof(w) + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
	else if (handshake_send(e->fd, &w, what == NOTHING ? -1 : thing[what]))
		return; /* it has hung up */
	attend();
	if (right && e->accepted)
		must(link_here->writer[THERE]->state == WRITER_UP);
	hear(e);
	if (right && !e->accepted)
		must(e->nonce);
}

static void ring_bell(struct input *in)
{
	struct end *e = &end[draw_u8(in) % ENDS];

	if (e->fd >= 0)
		handshake_ring(e->fd);
	e->spoken = true;
	attend();
}

static void hang_up(struct input *in)
{
	struct end *e = &end[draw_u8(in) % ENDS];

	if (e->fd >= 0)
		close(e->fd);
	e->fd = -1;
	attend();
}

/* What is parsed can be said again, and is then the same. */
static void read_record(struct input *in)
{
	uint8_t b[MPA_UPGRADE_LEN], again[MPA_UPGRADE_LEN];
	bool keyed = draw_u8(in) & 1;
	struct mpa_upgrade m, same;

	draw(in, b, sizeof(b));
	if (keyed)
		memcpy(b, "anyrdma\1", 8);
	if (!mpa_upgrade_get(b, &m)) {
		must(memcmp(b, "anyrdma", 7));
		return;
	}
	must(!m.ok || b[7] == 1);
	mpa_upgrade_put(again, &m);
	must(mpa_upgrade_get(again, &same) && !memcmp(&m, &same, sizeof(m)));
	if (b[7] == 1)
		must(!memcmp(b + 12, again + 12, sizeof(b) - 12));
}

/* ---- the whole ---- */
static int memory(size_t size, uint32_t magic, uint32_t version)
{
	uint32_t head[2] = {magic, version};
	int fd = memfile_make("fuzz", size);

	must(fd >= 0 && pwrite(fd, head, sizeof(head), 0) == sizeof(head));
	return fd;
}

static void prepare(void)
{
	port = (uint16_t)getpid(); /* only a name here */
	thing[NOTHING] = -1;
	thing[RING] = memory(sizeof(struct ring), RING_MAGIC, RING_VERSION);
	thing[WRONG_RING] = memory(sizeof(struct ring), RING_MAGIC, RING_VERSION - 1);
	thing[SHORT] = memory(4096, RING_MAGIC, RING_VERSION);
	thing[BELL] = memory(sizeof(struct local_bell), BELL_MAGIC, BELL_VERSION);
	thing[WRONG_BELL] = memory(sizeof(struct local_bell), RING_MAGIC, BELL_VERSION);
	thing[EXPORTED] = memory(EXPORT, 1, 2);
	thing[UNSEALED] = memfd_create("fuzz", MFD_CLOEXEC);
	must(!ftruncate(thing[UNSEALED], sizeof(struct ring)));
	thing[NO_MEMORY] = open("/dev/null", O_RDWR);
	must(thing[NO_MEMORY] >= 0);
}

static bool begin(void)
{
	static const struct link_ops wire_ops = {
		.send = wire_send, .receive = wire_receive, .fds = wire_fds, .close = wire_close};
	struct link *wire = calloc(1, sizeof(*wire));
	void *export;

	if (!port)
		prepare();
	for (unsigned i = 0; i < ENDS; i++)
		end[i].fd = -1;
	welcomed = exported = proved = paired = false;
	token = 1;
	fds_before = open_files();
	wire->ops = &wire_ops;
	listener = handshake_listen(port, THERE);
	if (listener >= 0 && !local_channel_open(&link_here, wire, port, HERE, ours, NULL, EXPORT, &export))
		return true;
	free(wire);
	if (listener >= 0)
		close(listener);
	return false;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const moves[])(struct input *) = {
		connect_to_it, be_asked, say, say, hear_all, ring_bell, hang_up, read_record};
	struct input in = {data, data + size};

	if (!begin())
		return 0;
	while (in.at < in.end)
		moves[*in.at++ % 8](&in);
	for (unsigned i = 0; i < ENDS; i++)
		if (end[i].fd >= 0)
			close(end[i].fd);
	close(listener);
	link_here->link.ops->close(&link_here->link);
	must(open_files() == fds_before);
	return 0;
}
