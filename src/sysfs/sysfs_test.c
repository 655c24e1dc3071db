/* SPDX-License-Identifier: MIT */
#include "sysfs/sysfs.h"

#include "base/env.h"
#include "host/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char top[64]; /* ANYRDMA_DIR of the test at hand */

static const struct sysfs_gid gids[] = {
	{.raw = {0xfe, 0x80, [8] = 0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55}, .ndev = "eth0"},
	{.raw = {[10] = 0xff, 0xff, 192, 0, 2, 1}, .ndev = "eth0"},
	{.raw = {0}},
};

static const uint16_t pkeys[] = {0xffff, 0x0001};

static struct sysfs_port port = {
	.num = 1,
	.state = 4,
	.phys_state = 5,
	.link_layer = "Ethernet",
	.rate_gbps = 100,
	.ngids = 3,
	.gids = gids,
	.npkeys = 2,
	.pkeys = pkeys,
};

static struct sysfs_dev device(const char *name, int index)
{
	struct sysfs_dev d = {
		.netdev = "eth0", .index = index, .node_type = "1: CA", .nports = 1, .ports = &port};
	uint8_t guid[8] = {0x02, 0x11, 0x22, 0xff, 0xfe, 0x33, 0x44, 0x55};

	snprintf(d.name, sizeof(d.name), "%s", name);
	memcpy(&d.node_guid, guid, sizeof(guid));
	return d;
}

static void set_dir(const char *dir)
{
	setenv("ANYRDMA_DIR", dir, 1);
	env_forget();
}

static int setup(void **state)
{
	(void)state;
	strcpy(top, "/tmp/sysfs-test-XXXXXX");
	assert_non_null(mkdtemp(top));
	set_dir(top);
	return 0;
}

static int teardown(void **state)
{
	char cmd[128];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", top);
	return system(cmd);
}

static char *in_tree(const char *path)
{
	static char buf[PATH_MAX + 256];
	char root[PATH_MAX];

	assert_int_equal(sysfs_root(root, sizeof(root)), 0);
	snprintf(buf, sizeof(buf), "%s/%s", root, path);
	return buf;
}

static void assert_reads(const char *path, const char *content)
{
	char buf[256];
	int fd = open(in_tree(path), O_RDONLY);
	ssize_t n;

	if (fd < 0)
		fail_msg("%s: %s", path, strerror(errno));
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	assert_true(n >= 0);
	buf[n] = '\0';
	assert_string_equal(buf, content);
}

static void assert_links(const char *path, const char *to)
{
	char buf[256];
	ssize_t n = readlink(in_tree(path), buf, sizeof(buf) - 1);

	assert_true(n >= 0);
	buf[n] = '\0';
	assert_string_equal(buf, to);
}

static ino_t root_inode(void)
{
	struct stat st;

	assert_int_equal(stat(in_tree("."), &st), 0);
	return st.st_ino;
}

static void files_read_as_the_kernels(void **state)
{
	struct sysfs_dev d = device("roce_eth0", 0);
	struct stat st;

	(void)state;
	assert_int_equal(sysfs_update(&d, 1), 0);
#define DEV  "class/infiniband/roce_eth0/"
#define PORT DEV "ports/1/"
	assert_reads(DEV "node_type", "1: CA\n");
	assert_reads(DEV "node_guid", "0211:22ff:fe33:4455\n");
	assert_reads(DEV "sys_image_guid", "0211:22ff:fe33:4455\n");
	assert_reads(DEV "fw_ver", ANYRDMA_VERSION "\n");
	assert_links(DEV "device/net/eth0", "/sys/class/net/eth0");
	assert_reads(PORT "state", "4: ACTIVE\n");
	assert_reads(PORT "phys_state", "5: LinkUp\n");
	assert_reads(PORT "rate", "100 Gb/sec (4X EDR)\n");
	assert_reads(PORT "lid", "0x0\n");
	assert_reads(PORT "link_layer", "Ethernet\n");
	assert_reads(PORT "gids/0", "fe80:0000:0000:0000:0211:22ff:fe33:4455\n");
	assert_reads(PORT "gids/1", "0000:0000:0000:0000:0000:ffff:c000:0201\n");
	assert_reads(PORT "gid_attrs/types/1", "RoCE v2\n");
	assert_reads(PORT "gid_attrs/ndevs/1", "eth0\n");
	assert_reads(PORT "pkeys/0", "0xffff\n");
	assert_reads(PORT "pkeys/1", "0x0001\n");
	assert_reads("class/infiniband_verbs/abi_version", "6\n");
	assert_reads("class/infiniband_verbs/uverbs0/ibdev", "roce_eth0\n");
	assert_reads("class/infiniband_verbs/uverbs0/dev", "231:192\n");
	assert_reads("class/infiniband_verbs/uverbs0/abi_version", "1\n");
	assert_int_equal(stat(in_tree("dev/infiniband/uverbs0"), &st), 0);
	assert_true(S_ISCHR(st.st_mode));
}

static void empty_gid_slot_reads_zeros(void **state)
{
	struct sysfs_dev d = device("roce_eth0", 0);

	(void)state;
	assert_int_equal(sysfs_update(&d, 1), 0);
	assert_reads(PORT "gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n");
	assert_reads(PORT "gid_attrs/types/2", "");
	assert_reads(PORT "gid_attrs/ndevs/2", "");
}

static void unchanged_is_not_written_again(void **state)
{
	struct sysfs_dev d = device("roce_eth0", 0);
	ino_t before;

	(void)state;
	assert_int_equal(sysfs_update(&d, 1), 0);
	before = root_inode();
	assert_int_equal(sysfs_update(&d, 1), 0);
	assert_int_equal(root_inode(), before);
	port.state = 1;
	assert_int_equal(sysfs_update(&d, 1), 0);
	assert_int_not_equal(root_inode(), before);
	assert_reads(PORT "state", "1: DOWN\n");
	port.state = 4;
}

/* A host of a fabric: two ports with LIDs and counters, in a directory of its own, for libibumad and subnet
 * managers. */
static void infiniband_host_has_its_files(void **state)
{
	const struct sysfs_port ports[] = {{.num = 1,
						   .state = 4,
						   .phys_state = 5,
						   .link_layer = "InfiniBand",
						   .lid = 3,
						   .sm_lid = 1,
						   .cap_mask = 0x26,
						   .rate_gbps = 200,
						   .counters = "/somewhere/counters2",
						   .mad_index = 2,
						   .issm = "/somewhere/issm2"},
		{.num = 2,
			.state = 1,
			.phys_state = 2,
			.link_layer = "InfiniBand",
			.mad_index = 3,
			.issm = "/somewhere/issm3"}};
	struct sysfs_dev d = {.name = "ib1",
		.desc = "/somewhere/node_desc1",
		.index = -1,
		.node_type = "1: CA",
		.nports = 2,
		.ports = ports};
	char dir[PATH_MAX];

	(void)state;
	assert_int_equal(host_rundir(dir, sizeof(dir)), 0);
	assert_int_equal(sysfs_update_in(dir, &d, 1), 0);
	assert_links("class/infiniband/ib1/node_desc", "/somewhere/node_desc1");
	assert_reads("class/infiniband/ib1/ports/1/lid", "0x3\n");
	assert_reads("class/infiniband/ib1/ports/1/rate", "200 Gb/sec (4X HDR)\n");
	assert_reads("class/infiniband/ib1/ports/1/cap_mask", "0x00000026\n");
	assert_links("class/infiniband/ib1/ports/1/counters", "/somewhere/counters2");
	assert_reads("class/infiniband/ib1/ports/2/state", "1: DOWN\n");
	assert_reads("class/infiniband_mad/abi_version", "5\n");
	assert_reads("class/infiniband_mad/umad2/ibdev", "ib1\n");
	assert_reads("class/infiniband_mad/issm3/port", "2\n");
	assert_links("dev/infiniband/issm2", "/somewhere/issm2");
	assert_int_equal(access(in_tree("class/infiniband_verbs/uverbs0"), F_OK), -1);
}

static void removed_device_is_gone(void **state)
{
	struct sysfs_dev two[] = {device("roce_eth0", 0), device("roce_lo", 1)};

	(void)state;
	assert_int_equal(sysfs_update(two, 2), 0);
	assert_int_equal(access(in_tree("class/infiniband/roce_lo"), F_OK), 0);
	assert_int_equal(sysfs_update(two, 1), 0);
	assert_int_equal(access(in_tree("class/infiniband/roce_lo"), F_OK), -1);
	assert_int_equal(sysfs_update(NULL, 0), 0);
	assert_int_equal(access(in_tree("class/infiniband"), F_OK), 0);
	assert_int_equal(access(in_tree("class/infiniband/roce_eth0"), F_OK), -1);
}

static void leftovers_of_a_killed_writer_do_no_harm(void **state)
{
	struct sysfs_dev d = device("roce_eth0", 0);
	char dir[PATH_MAX], path[PATH_MAX + 64];

	(void)state;
	assert_int_equal(host_rundir(dir, sizeof(dir)), 0);
	snprintf(path, sizeof(path), "%s/sys.new", dir);
	assert_int_equal(mkdir(path, 0700), 0);
	strcat(path, "/class");
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(sysfs_update(&d, 1), 0);
	assert_reads(DEV "node_type", "1: CA\n");
	assert_int_equal(access(path, F_OK), -1);
}

/* Every reader, whenever it looks, finds a device directory with all of its files. */
static int read_while(pid_t writer)
{
	while (waitpid(writer, NULL, WNOHANG) == 0) {
		char root[PATH_MAX], path[PATH_MAX + 64];
		int fd, missing;

		if (sysfs_root(root, sizeof(root)))
			return 1;
		snprintf(path, sizeof(path), "%s/class/infiniband/roce_eth0", root);
		fd = open(path, O_PATH | O_DIRECTORY);
		if (fd < 0)
			return 2;
		missing = faccessat(fd, "ports/1/pkeys/0", F_OK, 0);
		close(fd);
		/* gone altogether is fair: the tree was changed and the old one removed after we opened it */
		if (missing && access(path, F_OK))
			return 3;
	}
	return 0;
}

static void many_writers_and_a_reader(void **state)
{
	enum { WRITERS = 4, TURNS = 50 };
	struct sysfs_dev d = device("roce_eth0", 0);
	pid_t pids[WRITERS];
	char dir[PATH_MAX], path[PATH_MAX + 64];
	int status;

	(void)state;
	assert_int_equal(sysfs_update(&d, 1), 0);
	for (int w = 0; w < WRITERS; w++) {
		pids[w] = fork();
		if (pids[w])
			continue;
		for (int i = 0; i < TURNS; i++) {
			port.state = 1 + (w + i) % 4;
			int err = sysfs_update(&d, 1);

			/* a writer may be refused after its second of waiting, nothing else */
			if (err && err != -EBUSY)
				_exit(-err);
		}
		_exit(0);
	}
	assert_int_equal(read_while(pids[0]), 0);
	for (int w = 1; w < WRITERS; w++) {
		assert_int_equal(waitpid(pids[w], &status, 0), pids[w]);
		assert_int_equal(status, 0);
	}
	port.state = 4;
	assert_int_equal(sysfs_update(&d, 1), 0);
	assert_reads(PORT "state", "4: ACTIVE\n");
	assert_int_equal(host_rundir(dir, sizeof(dir)), 0);
	snprintf(path, sizeof(path), "%s/sys.new", dir);
	assert_int_equal(access(path, F_OK), -1);
}

static void rundir_is_private_and_per_namespace(void **state)
{
	char dir[PATH_MAX], again[PATH_MAX], want[128];
	struct stat st, ns;

	(void)state;
	assert_int_equal(host_rundir_find(dir, sizeof(dir)), -ENOENT);
	assert_int_equal(host_rundir(dir, sizeof(dir)), 0);
	assert_int_equal(host_rundir_find(again, sizeof(again)), 0);
	assert_string_equal(dir, again);
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_int_equal(stat("/proc/self/ns/net", &ns), 0);
	snprintf(want, sizeof(want), "%s/net-%lu", top, (unsigned long)ns.st_ino);
	assert_string_equal(dir, want);
	assert_int_equal(host_rundir(dir, 10), -ENAMETOOLONG);
	assert_int_equal(host_rundir(dir, strlen(want)), -ENAMETOOLONG);
	assert_int_equal(host_rundir(dir, strlen(want) + 1), 0);
}

static void rundir_refuses_what_is_not_ours(void **state)
{
	char dir[PATH_MAX], path[128];

	(void)state;
	set_dir("relative");
	assert_int_equal(host_rundir(dir, sizeof(dir)), -EINVAL);

	snprintf(path, sizeof(path), "%s/link", top);
	assert_int_equal(symlink(top, path), 0);
	set_dir(path);
	assert_int_equal(host_rundir(dir, sizeof(dir)), -EPERM);

	snprintf(path, sizeof(path), "%s/open", top);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(chmod(path, 0777), 0);
	set_dir(path);
	assert_int_equal(host_rundir(dir, sizeof(dir)), -EPERM);

	if (geteuid() == 0) {
		assert_int_equal(chmod(path, 0700), 0);
		assert_int_equal(chown(path, 65534, 65534), 0);
		assert_int_equal(host_rundir(dir, sizeof(dir)), -EPERM);
	}
}

static void rundir_refuses_a_namespace_folder_that_others_can_read(void **state)
{
	char dir[PATH_MAX], again[PATH_MAX];

	(void)state;
	assert_int_equal(host_rundir(dir, sizeof(dir)), 0);
	assert_int_equal(chmod(dir, 0755), 0);
	assert_int_equal(host_rundir(again, sizeof(again)), -EPERM);
	assert_int_equal(host_rundir_find(again, sizeof(again)), -EPERM);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(files_read_as_the_kernels),
		TEST(empty_gid_slot_reads_zeros),
		TEST(unchanged_is_not_written_again),
		TEST(infiniband_host_has_its_files),
		TEST(removed_device_is_gone),
		TEST(leftovers_of_a_killed_writer_do_no_harm),
		TEST(many_writers_and_a_reader),
		TEST(rundir_is_private_and_per_namespace),
		TEST(rundir_refuses_what_is_not_ours),
		TEST(rundir_refuses_a_namespace_folder_that_others_can_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
