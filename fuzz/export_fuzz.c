/* SPDX-License-Identifier: MIT */
/*
 * The export of a neighbour that puts anything there, also while it is read: keys, queue pairs, files,
 * levels, changes. The input is a list of moves. What is found is what was asked for; what is fetched lies in
 * the neighbour's memory (here this process's own), and is written where it should be and nowhere else; a
 * file that the neighbour names but has not mapped there is never looked into.
 */
#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/mr.h"
#include "input.h"
#include "local/fetch.h"
#include "local/pages/window.h"

#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, LEN = 8 * PAGE, SECRET = 0xee, KEYS = 4, MARGIN = 64, TOUCHED = 256 };

static struct local_export *export;
static struct local_export_key *place[KEYS + 1], honest; /* where a key is looked for first */
static uint8_t *source, fetched[MARGIN + LEN + MARGIN];
static struct shared_file file, secret;
static void *touched[TOUCHED]; /* entries that an input wrote */
static unsigned ntouched;
static bool racing;
static struct windows windows;
static struct local_seen seen;
static struct local_peer neighbour;
static _Atomic uint32_t revoked;

/* ---- what the neighbour does ---- */
static void touch(void *entry)
{
	touched[ntouched++] = entry;
}

static uint64_t draw_u64(struct input *in)
{
	uint64_t v;

	draw(in, &v, sizeof(v));
	return v;
}

/* Near something that is there, or anything. */
static uint64_t draw_near(struct input *in, uint64_t there)
{
	uint8_t how = draw_u8(in);

	return how & 128 ? draw_u64(in) : there + (uint64_t)(how % 16 - 4) * (how & 16 ? PAGE : 1);
}

static struct local_export_key draw_key(struct input *in, uint32_t key)
{
	struct local_export_key k = honest;
	uint8_t lies = draw_u8(in);

	k.key = key;
	k.seq = lies & 1 ? draw_u32(in) : 2;
	k.iova = lies & 2 ? draw_near(in, k.iova) : k.iova;
	k.length = lies & 4 ? draw_near(in, LEN) : k.length;
	k.host = lies & 8 ? draw_near(in, k.host) : k.host;
	k.map_host = lies & 16 ? draw_near(in, k.map_host) : k.map_host;
	k.map_off = lies & 32 ? draw_near(in, 0) : k.map_off;
	k.map_len = lies & 64 ? draw_near(in, LEN) : k.map_len;
	k.file = lies & 128 ? draw_u16(in) : k.file;
	return k;
}

/* Where it is looked for, or anywhere. */
static void show_key(struct input *in)
{
	uint8_t how = draw_u8(in);
	uint32_t key = 1 + how % KEYS;
	struct local_export_key *at =
		how & 128 ? &export->key[draw_u32(in) % (sizeof(export->key) / 64)] : place[key];

	*at = draw_key(in, how & 64 ? draw_u32(in) : key);
	touch(at);
}

static void show_file(struct input *in)
{
	uint8_t how = draw_u8(in);
	struct local_export_file *f = &export->file[how / 4 % 2];
	const struct shared_file *of = how & 1 ? &secret : &file;

	*f = (struct local_export_file){.seq = how & 2 ? draw_u32(in) : 4,
		.id = how & 16 ? draw_u32(in) : how / 4 % 2 + 1u,
		.fd = how & 32 ? (int)draw_u32(in) : of->fd,
		.dev = how & 64 ? draw_u64(in) : of->dev,
		.inode = how & 128 ? draw_u64(in) : of->inode};
	touch(f);
}

static void show_qp(struct input *in)
{
	struct local_export_qp *q = &export->qp[draw_u32(in) % (sizeof(export->qp) / 64)];

	draw(in, q, sizeof(*q));
	touch(q);
}

static void change_head(struct input *in)
{
	uint8_t how = draw_u8(in);

	export->changes += how & 1;
	export->key_levels = how & 2 ? draw_u32(in) : 1;
	export->qp_levels = how & 2 ? draw_u32(in) : 1;
	export->life.__data.__lock = how & 4 ? (int)draw_u32(in) : getpid();
	revoked = how == 255;
}

/* ---- what we do ---- */
static void find(struct input *in)
{
	uint32_t id = draw_u32(in);
	struct local_export_key k;
	struct local_export_qp q;
	struct shared_file f;

	id = id % 2 ? id : id / 2 % (KEYS + 2);
	if (local_export_find_key(export, id, &k))
		must(id && k.key == id && !(k.seq & 1));
	if (local_export_find_qp(export, id, &q))
		must(id && q.qpn == id && !(q.seq & 1));
	if (local_export_find_file(export, (uint16_t)id, &f))
		must((uint16_t)id && (uint16_t)id <= EXPORT_FILES);
}

static bool is_source(uint64_t host, uint32_t len)
{
	return host - (uintptr_t)source <= LEN && len <= LEN - (host - (uintptr_t)source);
}

/* What we have mapped is what the neighbour has there. */
static void look_by_hand(struct input *in)
{
	uint32_t key = 1 + draw_u8(in) % KEYS, asked = draw_u16(in) % LEN, len = asked;
	uint64_t host;
	char *at;

	if (!local_look(&seen, &neighbour, key))
		return;
	host = local_range(&seen.key, draw_near(in, seen.key.iova), len);
	if (!host || !len)
		return;
	must(host - seen.key.host <= seen.key.length && len <= seen.key.length - (host - seen.key.host));
	at = local_mapped(&seen, &neighbour, host, &len);
	must(len && len <= asked);
	if (at && is_source(host, len) && !racing)
		must(!memcmp(at, (void *)(uintptr_t)host, len));
	else if (at)
		must(guard_copy(fetched + MARGIN, at, len) && fetched[MARGIN] != SECRET);
}

/* The bytes that it names, as the export has them now; false: not all of them lie in the source. */
static bool expect(const struct local_source *from, uint8_t *to)
{
	uint32_t off = from->off, left = from->len;

	for (unsigned i = 0; i < from->nrefs && left; i++) {
		uint32_t skip = off < from->refs[i].len ? off : from->refs[i].len,
			 len = from->refs[i].len - skip;
		struct local_export_key k;
		uint64_t host;

		off -= skip;
		len = len < left ? len : left;
		if (!len)
			continue;
		host = local_export_find_key(export, from->refs[i].key, &k)
			       ? local_range(&k, from->refs[i].addr + skip, len)
			       : 0;
		if (!is_source(host, len))
			return false;
		memcpy(to, (void *)(uintptr_t)host, len);
		to += len;
		left -= len;
	}
	return !left;
}

static void fetch(struct input *in)
{
	static uint8_t expected[LEN];
	uint8_t how = draw_u8(in);
	struct frame_ref refs[3];
	struct local_source from = {.refs = refs, .nrefs = 1 + how % 3u, .off = how & 16 ? draw_u8(in) : 0};
	struct iovec to[2] = {{fetched + MARGIN, how}, {fetched + MARGIN + how, LEN - how}};
	bool known;

	for (unsigned i = 0; i < from.nrefs; i++) {
		uint32_t len = draw_u16(in);

		refs[i] = (struct frame_ref){draw_near(in, honest.iova), len % (LEN + 9), 1 + len % KEYS};
		from.len += refs[i].len;
	}
	from.len = from.len < from.off ? 0 : from.len - from.off;
	from.len = from.len < LEN ? from.len : LEN;
	memset(fetched, 0x77, sizeof(fetched));
	seen.changes--; /* looks anew: what was seen stands only until the export says that it changed */
	known = expect(&from, expected);
	if (local_fetch(&seen, &neighbour, &from, to, 2) == LOCAL_DONE) {
		must(racing || !from.len || local_export_lives(export));
		must(!known || racing || !memcmp(fetched + MARGIN, expected, from.len));
		for (uint32_t i = from.len; i < LEN; i++)
			must(fetched[MARGIN + i] == 0x77);
	}
	for (unsigned i = 0; i < MARGIN; i++)
		must(fetched[i] == 0x77 && fetched[MARGIN + LEN + i] == 0x77);
}

/* ---- while it is read ---- */
/* Words of the first key and file become others and what they were, over and over. */
static void *race(void *arg)
{
	struct input *in = arg;
	uint64_t *at[2] = {(uint64_t *)place[1], (uint64_t *)&export->file[0]}, lie[16], was[2][8];

	draw(in, lie, sizeof(lie));
	memcpy(was[0], at[0], 64);
	memcpy(was[1], at[1], 64);
	for (unsigned i = 0; i < 4000; i++) {
		unsigned e = i / 8 % 2, w = i % 8;

		__atomic_store_n(&at[e][w], i / 16 % 2 ? lie[e * 8 + w] : was[e][w], __ATOMIC_RELAXED);
	}
	return NULL;
}

/* ---- the whole ---- */
/* The place of each key: where the neighbour itself would put it. */
static void find_places(void)
{
	struct hca_adapter *a = calloc(1, sizeof(*a));
	struct hca_pd pd = {.number = 1};

	a->export.table = export;
	lock_init(&a->export.lock);
	for (uint32_t key = 1; key <= KEYS; key++) {
		struct hca_key k = {.kind = KEY_MR, .key = key, .pd = &pd};

		hca_export_key(a, &k);
		for (unsigned i = 0; i < EXPORT_KEYS; i++)
			if (export->key[i].key == key)
				place[key] = &export->key[i];
	}
	lock_fini(&a->export.lock);
	free(a);
}

static uint8_t *make_file(struct shared_file *f, uint8_t (*byte)(unsigned i))
{
	int fd = memfd_create("neighbour", MFD_CLOEXEC);
	uint8_t *p;

	must(fd >= 0 && !ftruncate(fd, LEN) && shared_file_of(fd, f));
	p = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must(p != MAP_FAILED);
	for (unsigned i = 0; i < LEN; i++)
		p[i] = byte(i);
	return p;
}

static uint8_t any_byte(unsigned i)
{
	return (uint8_t)(i * 7 + i / 100) % SECRET;
}

static uint8_t secret_byte(unsigned i)
{
	return SECRET;
}

static void prepare(void)
{
	guard_install();
	export = mmap(NULL, sizeof(*export), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	must(export != MAP_FAILED);
	source = make_file(&file, any_byte);
	munmap(make_file(&secret, secret_byte), LEN);
	find_places();
	honest = (struct local_export_key){.iova = (uintptr_t)source,
		.length = LEN,
		.host = (uintptr_t)source,
		.file = 1,
		.map_host = (uintptr_t)source,
		.map_len = LEN};
}

static void begin(void)
{
	export->changes = export->qp_levels = 0;
	export->key_levels = 1;
	export->life.__data.__lock = getpid();
	export->file[0] =
		(struct local_export_file){.id = 1, .fd = file.fd, .dev = file.dev, .inode = file.inode};
	for (uint32_t key = 1; key <= KEYS; key++) {
		*place[key] = honest;
		place[key]->key = key;
	}
	windows_init(&windows);
	memset(&seen, 0, sizeof(seen));
	revoked = 0;
	neighbour = (struct local_peer){
		.export = export, .number = 1, .windows = &windows, .revoked = &revoked, .pid = getpid()};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const moves[])(struct input *) = {
		show_key, show_file, show_qp, change_head, find, look_by_hand, fetch, fetch};
	struct input in = {data, data + size}, lies;
	pthread_t thread;

	if (!export)
		prepare();
	begin();
	racing = draw_u8(&in) % 16 == 0;
	lies = in;
	if (racing && pthread_create(&thread, NULL, race, &lies))
		return 0;
	while (in.at < in.end && ntouched < TOUCHED)
		moves[*in.at++ % 8](&in);
	if (racing)
		pthread_join(thread, NULL);
	windows_fini(&windows);
	while (ntouched)
		memset(touched[--ntouched], 0, 64);
	return 0;
}
