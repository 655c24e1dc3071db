/* SPDX-License-Identifier: MIT */
/* Writes the sysfs-like tree.
 *
 * The whole tree is first composed as one text, the manifest: a line per file, "path TAB content".
 * The manifest is written into the tree as well (.manifest), so whether anything changed is one read
 * and one comparison, without a lock: the usual case of a program listing its devices.
 *
 * Otherwise, under a file lock that a crash releases, the new tree is built beside the old one and the
 * two directories change names in one step (RENAME_EXCHANGE). Directories rather than a symbolic link
 * that changes its target: a program that took realpath() of a device keeps a path that stays good.
 *
 * Contents follow drivers/infiniband/core/sysfs.c and uverbs_main.c of Linux. */
#include "sysfs/sysfs.h"

#include "base/rmtree.h"
#include "host/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MANIFEST  ".manifest"
#define LINK_MARK "-> " /* content of a manifest line that stands for a symbolic link */

/* ---- composing the manifest ---- */

__attribute__((format(printf, 4, 5))) static void entry(
	FILE *m, const char *dir, const char *name, const char *fmt, ...)
{
	va_list ap;

	fprintf(m, "%s/%s\t", dir, name);
	va_start(ap, fmt);
	vfprintf(m, fmt, ap);
	va_end(ap);
	fputc('\n', m);
}

static const char *state_name(int state)
{
	static const char *const names[] = {"NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER"};

	return state >= 0 && state < (int)(sizeof(names) / sizeof(*names)) ? names[state] : "INVALID";
}

static const char *phys_state_name(int state)
{
	static const char *const names[] = {"<unknown>", "Sleep", "Polling", "Disabled",
		"PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"};

	return state >= 0 && state < (int)(sizeof(names) / sizeof(*names)) ? names[state] : "<unknown>";
}

/* Only these rates exist as width and speed; take the largest that the link has. */
static const char *rate_name(unsigned gbps)
{
	static const struct {
		unsigned gbps;
		const char *name;
	} rates[] = {
		{800, "800 Gb/sec (4X XDR)"},
		{400, "400 Gb/sec (4X NDR)"},
		{200, "200 Gb/sec (4X HDR)"},
		{100, "100 Gb/sec (4X EDR)"},
		{56, "56 Gb/sec (4X FDR)"},
		{50, "50 Gb/sec (1X HDR)"},
		{40, "40 Gb/sec (4X QDR)"},
		{25, "25 Gb/sec (1X EDR)"},
		{20, "20 Gb/sec (4X DDR)"},
		{10, "10 Gb/sec (4X)"},
		{5, "5 Gb/sec (1X DDR)"},
	};

	for (size_t i = 0; i < sizeof(rates) / sizeof(*rates); i++)
		if (gbps >= rates[i].gbps)
			return rates[i].name;
	return "2.5 Gb/sec (1X)";
}

static void compose_gids(FILE *m, const char *port, const struct sysfs_port *d)
{
	static const uint8_t zero[16];
	const char *type = strcmp(d->link_layer, "Ethernet") ? "IB/RoCE v1" : "RoCE v2";
	char name[64];

	for (int i = 0; i < d->ngids; i++) {
		const uint8_t *g = d->gids[i].raw;
		/* The kernel fails the read of an empty slot's attributes (EINVAL). A file cannot, and a
		 * missing one is fatal to NCCL, so it is there and empty. */
		bool used = memcmp(g, zero, sizeof(zero)) != 0;

		snprintf(name, sizeof(name), "gids/%d", i);
		entry(m, port, name,
			"%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1],
			g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14],
			g[15]);
		snprintf(name, sizeof(name), "gid_attrs/types/%d", i);
		entry(m, port, name, "%s", used ? type : "");
		snprintf(name, sizeof(name), "gid_attrs/ndevs/%d", i);
		entry(m, port, name, "%.16s", used ? d->gids[i].ndev : "");
	}
}

static void compose_pkeys(FILE *m, const char *port, const struct sysfs_port *d)
{
	char name[64];

	for (int i = 0; i < d->npkeys; i++) {
		snprintf(name, sizeof(name), "pkeys/%d", i);
		entry(m, port, name, "0x%04x", d->pkeys[i]);
	}
}

/* umadN and issmN, by which libibumad and subnet managers find a port. */
static void compose_mad(FILE *m, const char *device, const struct sysfs_port *d)
{
	static const char *const kinds[] = {"umad", "issm"};
	char dir[96], name[32];

	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s%d", kinds[i], d->mad_index);
		snprintf(dir, sizeof(dir), "class/infiniband_mad/%s", name);
		entry(m, dir, "ibdev", "%s", device);
		entry(m, dir, "port", "%d", d->num);
		entry(m, dir, "dev", "231:%d", 64 * i + d->mad_index);
		entry(m, "dev/infiniband", name, LINK_MARK "%s", i ? d->issm : "/dev/null");
	}
}

static void compose_port(FILE *m, const char *device, const struct sysfs_port *d)
{
	char port[128];

	snprintf(port, sizeof(port), "class/infiniband/%s/ports/%d", device, d->num);
	entry(m, port, "state", "%d: %s", d->state, state_name(d->state));
	entry(m, port, "phys_state", "%d: %s", d->phys_state, phys_state_name(d->phys_state));
	entry(m, port, "rate", "%s", d->rate ? d->rate : rate_name(d->rate_gbps));
	entry(m, port, "lid", "0x%x", d->lid);
	entry(m, port, "lid_mask_count", "%d", d->lmc);
	entry(m, port, "sm_lid", "0x%x", d->sm_lid);
	entry(m, port, "sm_sl", "%d", d->sm_sl);
	entry(m, port, "cap_mask", "0x%08x", d->cap_mask);
	entry(m, port, "link_layer", "%s", d->link_layer);
	compose_gids(m, port, d);
	compose_pkeys(m, port, d);
	if (d->counters)
		entry(m, port, "counters", LINK_MARK "%s", d->counters);
	if (d->issm)
		compose_mad(m, device, d);
}

static void write_guid(char out[24], uint64_t be)
{
	uint8_t g[8];

	memcpy(g, &be, sizeof(g));
	snprintf(out, 24, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4], g[5], g[6],
		g[7]);
}

static void compose_verbs(FILE *m, const struct sysfs_dev *d)
{
	char dir[96];

	snprintf(dir, sizeof(dir), "class/infiniband_verbs/uverbs%d", d->index);
	entry(m, dir, "ibdev", "%s", d->name);
	entry(m, dir, "dev", "231:%d", 192 + d->index);
	entry(m, dir, "abi_version", "1");
	snprintf(dir, sizeof(dir), "uverbs%d", d->index);
	entry(m, "dev/infiniband", dir, LINK_MARK "/dev/null");
}

static void compose_dev(FILE *m, const struct sysfs_dev *d)
{
	char dir[96], net[32];
	char guid[24];

	write_guid(guid, d->node_guid);
	snprintf(dir, sizeof(dir), "class/infiniband/%s", d->name);
	entry(m, dir, "node_type", "%s", d->node_type);
	entry(m, dir, "node_guid", "%s", guid);
	write_guid(guid, d->sys_guid ? d->sys_guid : d->node_guid);
	entry(m, dir, "sys_image_guid", "%s", guid);
	entry(m, dir, "node_desc", "%s%s", d->desc ? LINK_MARK : "anyrdma ", d->desc ? d->desc : d->name);
	entry(m, dir, "fw_ver", "%s", ANYRDMA_VERSION);
	entry(m, dir, "hw_rev", "0x0");
	entry(m, dir, "hca_type", "anyrdma");
	entry(m, dir, "board_id", "anyrdma");
	for (int i = 0; i < d->nports; i++)
		compose_port(m, d->name, &d->ports[i]);
	if (d->netdev) {
		/* Of its hardware only this: rdma-core's tests and scripts find the addresses by it. */
		snprintf(net, sizeof(net), "device/net/%.16s", d->netdev);
		entry(m, dir, net, LINK_MARK "/sys/class/net/%.16s", d->netdev);
	}
	if (d->index >= 0)
		compose_verbs(m, d);
}

static bool has_mads(const struct sysfs_dev *devs, int n)
{
	for (int i = 0; i < n; i++)
		for (int p = 0; p < devs[i].nports; p++)
			if (devs[i].ports[p].issm)
				return true;
	return false;
}

/* The manifest as a string for the caller to free, or NULL. */
static char *compose(const struct sysfs_dev *devs, int n, size_t *len)
{
	char *text = NULL;
	FILE *m = open_memstream(&text, len);

	if (!m)
		return NULL;
	/* a line without content is a directory: these are there with no device too */
	fputs("class/infiniband\n", m);
	fputs("dev/infiniband\n", m);
	entry(m, "class/infiniband_verbs", "abi_version", "6");
	if (has_mads(devs, n))
		entry(m, "class/infiniband_mad", "abi_version", "5");
	for (int i = 0; i < n; i++)
		compose_dev(m, &devs[i]);
	if (fclose(m)) {
		free(text);
		return NULL;
	}
	return text;
}

/* ---- files ---- */

static int write_file(int at, const char *name, const char *data, size_t len)
{
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
	int err = 0;

	if (fd < 0)
		return -errno;
	while (len && !err) {
		ssize_t n = write(fd, data, len);

		if (n < 0) {
			err = errno == EINTR ? 0 : -errno;
			continue;
		}
		data += n;
		len -= n;
	}
	if (close(fd) && !err)
		err = -errno;
	return err;
}

static int make_parents(int at, char *path)
{
	for (char *p = strchr(path, '/'); p; p = strchr(p + 1, '/')) {
		int failed;

		*p = '\0';
		failed = mkdirat(at, path, 0755) && errno != EEXIST;
		*p = '/';
		if (failed)
			return -errno;
	}
	return 0;
}

static int write_entry(int at, char *line)
{
	char *content = strchr(line, '\t');
	size_t len;
	int err;

	if (content)
		*content++ = '\0';
	err = make_parents(at, line);
	if (err)
		return err;
	if (!content)
		return mkdirat(at, line, 0755) && errno != EEXIST ? -errno : 0;
	if (!strncmp(content, LINK_MARK, strlen(LINK_MARK)))
		return symlinkat(content + strlen(LINK_MARK), at, line) ? -errno : 0;
	len = strlen(content);
	if (len)
		content[len++] = '\n'; /* in place of the line's own end */
	return write_file(at, line, content, len);
}

/* Writes every line of the manifest, which stays unchanged; the manifest itself comes last. */
static int write_tree(int at, const char *manifest, size_t len)
{
	char *copy = strdup(manifest);
	char *line = copy;
	int err = copy ? 0 : -ENOMEM;

	while (!err && *line) {
		char *end = strchr(line, '\n');

		*end = '\0';
		err = write_entry(at, line);
		line = end + 1;
	}
	free(copy);
	return err ? err : write_file(at, MANIFEST, manifest, len);
}

static bool up_to_date(int at, const char *manifest, size_t len)
{
	int fd = openat(at, "sys/" MANIFEST, O_RDONLY | O_CLOEXEC);
	struct stat st;
	char *have = NULL;
	bool same = false;

	if (fd < 0)
		return false;
	if (!fstat(fd, &st) && (size_t)st.st_size == len && (have = malloc(len)))
		same = read(fd, have, len) == (ssize_t)len && !memcmp(have, manifest, len);
	free(have);
	close(fd);
	return same;
}

/* ---- the change-over ---- */

static int swap_in(int at)
{
	if (mkdirat(at, "sys", 0700) && errno != EEXIST)
		return -errno;
	if (!renameat2(at, "sys.new", at, "sys", RENAME_EXCHANGE))
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* A file system that cannot exchange: a reader may find nothing for a moment. */
	rmtree(at, "sys.old");
	if (renameat(at, "sys", at, "sys.old"))
		return -errno;
	if (renameat(at, "sys.new", at, "sys"))
		return -errno;
	rmtree(at, "sys.old");
	return 0;
}

static int rebuild(int at, const char *manifest, size_t len)
{
	int fd, err;

	rmtree(at, "sys.new"); /* what a killed writer left */
	if (mkdirat(at, "sys.new", 0700))
		return -errno;
	fd = openat(at, "sys.new", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = write_tree(fd, manifest, len);
	close(fd);
	if (!err)
		err = swap_in(at);
	rmtree(at, "sys.new"); /* now the old tree, or the failed one */
	return err;
}

/* Waits a second at most: a writer that was stopped must not stop everybody. */
static int lock_wait(int fd)
{
	for (int i = 0; i < 200; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	}
	return -EBUSY;
}

static int update_locked(int at, const char *manifest, size_t len)
{
	int fd = openat(at, "sys.lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return -errno;
	err = lock_wait(fd);
	if (!err && !up_to_date(at, manifest, len))
		err = rebuild(at, manifest, len);
	flock(fd, LOCK_UN); /* a child forked meanwhile holds the descriptor too */
	close(fd);
	return err;
}

int sysfs_root(char *buf, size_t len)
{
	int err = host_rundir(buf, len);
	size_t at = err ? 0 : strlen(buf);

	if (err)
		return err;
	if (len - at < sizeof("/sys"))
		return -ENAMETOOLONG;
	memcpy(buf + at, "/sys", sizeof("/sys"));
	return mkdir(buf, 0700) && errno != EEXIST ? -errno : 0;
}

int sysfs_update(const struct sysfs_dev *devs, int n)
{
	char dir[PATH_MAX];
	int err = host_rundir(dir, sizeof(dir));

	return err ? err : sysfs_update_in(dir, devs, n);
}

int sysfs_update_in(const char *dir, const struct sysfs_dev *devs, int n)
{
	char *manifest;
	size_t len;
	int at, err = 0;

	manifest = compose(devs, n, &len);
	if (!manifest)
		return -ENOMEM;
	at = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		err = -errno;
	else if (!up_to_date(at, manifest, len))
		err = update_locked(at, manifest, len);
	if (at >= 0)
		close(at);
	free(manifest);
	return err;
}
