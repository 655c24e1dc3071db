/* SPDX-License-Identifier: MIT */
/* Adapters and ports: what a host is told of its own. */
#include "world.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void names_are_those_of_the_host(void **state)
{
	char names[4][UMAD_CA_NAME_LEN];
	struct umad_device_node *list;

	assert_int_equal(umad_get_cas_names(names, 4), 1);
	assert_string_equal(names[0], "ib0");
	assert_int_equal(umad_get_cas_names(names, 0), 0);
	list = umad_get_ca_device_list();
	assert_non_null(list);
	assert_string_equal(list->ca_name, "ib0");
	assert_null(list->next);
	assert_int_equal(umad_sort_ca_device_list(&list, 0), 0);
	umad_free_ca_device_list(list);
}

static void lists_are_sorted_by_name(void **state)
{
	struct umad_device_node n[] = {{&n[1], "ib2"}, {&n[2], "ib0"}, {NULL, "ib1"}}, *list = n;

	assert_int_equal(umad_sort_ca_device_list(&list, 3), 0);
	assert_string_equal(list->ca_name, "ib0");
	assert_string_equal(list->next->ca_name, "ib1");
	assert_string_equal(list->next->next->ca_name, "ib2");
	assert_null(list->next->next->next);
}

static void an_adapter_has_its_ports(void **state)
{
	umad_ca_t ca, other;
	umad_port_t port;
	__be64 guids[4];

	assert_int_equal(umad_get_ca(NULL, &ca), 0);
	assert_string_equal(ca.ca_name, "ib0");
	assert_int_equal(ca.node_type, 1);
	assert_int_equal(ca.numports, 1);
	assert_true(ca.node_guid != 0 && ca.ports[1] && !ca.ports[0]);
	assert_int_equal(umad_get_port("ib0", 1, &port), 0);
	assert_string_equal(port.ca_name, "ib0");
	assert_string_equal(port.link_layer, "InfiniBand");
	assert_int_equal(port.portnum, 1);
	assert_int_equal(port.base_lid, 1);
	assert_int_equal(port.state, 4);
	assert_int_equal(port.phys_state, 5);
	assert_true(port.pkeys_size == 32 && port.pkeys[0] == 0xffff);
	assert_true(be64toh(port.gid_prefix) == 0xfe80000000000000);
	assert_true(port.port_guid == ca.ports[1]->port_guid);
	assert_int_equal(umad_get_ca_portguids("ib0", guids, 4), 2);
	assert_true(guids[1] == port.port_guid);
	assert_int_equal(umad_get_ca_portguids("ib0", guids, 1), -ENOMEM);
	assert_int_equal(umad_get_ca_portguids("ib0", NULL, 0), 2);
	umad_release_port(&port);

	world_be("node2");
	assert_int_equal(umad_get_ca("ib0", &other), 0);
	assert_true(other.node_guid != ca.node_guid);
	assert_int_equal(other.ports[1]->base_lid, 2);
	umad_release_ca(&other);
	umad_release_ca(&ca);
}

static void the_file_of_a_subnet_manager_has_a_path(void **state)
{
	char path[256];

	assert_int_equal(umad_get_issm_path("ib0", 1, path, sizeof(path)), 0);
	assert_string_equal(path, "/issm/node1/0/1");
	assert_int_equal(umad_get_issm_path(NULL, 0, path, sizeof(path)), 0);
	assert_int_equal(umad_get_issm_path("ib0", 1, path, 4), -ENAMETOOLONG);
}

/* Since rdma-core 50: not in the header that this is built with. */
struct umad_ca_pair {
	char smi_name[UMAD_CA_NAME_LEN];
	uint32_t smi_preferred_port;
	char gsi_name[UMAD_CA_NAME_LEN];
	uint32_t gsi_preferred_port;
};
int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max);
int umad_get_smi_gsi_pair_by_ca_name(
	const char *devname, uint8_t portnum, struct umad_ca_pair *pair, unsigned enforce_smi);
int umad_open_smi_port(const char *ca_name, int portnum);

static void check_pair(const struct umad_ca_pair *pair)
{
	assert_string_equal(pair->smi_name, "ib0");
	assert_string_equal(pair->gsi_name, "ib0");
	assert_int_equal(pair->smi_preferred_port, 1);
	assert_int_equal(pair->gsi_preferred_port, 1);
}

static void one_device_has_both_queue_pairs_of_management(void **state)
{
	struct umad_ca_pair pair[4];
	int p;

	world_be("node1");
	assert_int_equal(umad_get_smi_gsi_pairs(pair, 4), 1);
	check_pair(pair);
	assert_int_equal(umad_get_smi_gsi_pairs(pair, 0), 0);
	assert_int_equal(umad_get_smi_gsi_pair_by_ca_name("ib0", 1, pair + 1, 1), 0);
	check_pair(pair + 1);
	assert_int_equal(umad_get_smi_gsi_pair_by_ca_name("ib1", 1, pair, 0), -ENODEV);
	p = umad_open_smi_port("ib0", 1);
	assert_true(p >= 0);
	assert_true(world_agent(p, SMP_DIRECTED, 0) >= 0);
	assert_true(world_agent(p, PING, 0) >= 0);
	umad_close_port(p);
}

static void what_is_not_there_is_not_found(void **state)
{
	umad_ca_t ca;
	umad_port_t port;
	char path[64];

	assert_int_equal(umad_get_ca("mlx5_0", &ca), -ENODEV);
	assert_int_equal(errno, ENODEV);
	assert_int_equal(umad_get_port("ib0", 2, &port), -ENODEV);
	assert_int_equal(umad_get_issm_path("ib0", 7, path, sizeof(path)), -ENODEV);
	assert_true(umad_open_port("ib1", 1) < 0);
	assert_true(umad_open_port("ib0", 3) < 0);
}

static void a_host_that_is_not_there_has_nothing(void **state)
{
	umad_ca_t ca;

	world_be("node3");
	assert_int_equal(umad_get_cas_names(NULL, 8), 0);
	assert_null(umad_get_ca_device_list());
	assert_int_equal(umad_get_ca(NULL, &ca), -ENODEV);
	assert_true(umad_open_port(NULL, 0) < 0);
}

static void without_a_fabric_there_is_nothing(void **state)
{
	umad_ca_t ca;

	world_kill();
	assert_int_equal(umad_init(), 0);
	assert_int_equal(umad_get_cas_names(NULL, 8), 0);
	assert_int_equal(umad_get_ca(NULL, &ca), -ENODEV);
	assert_int_equal(umad_get_ca("ib0", &ca), -ENODEV);
	assert_int_equal(umad_open_port(NULL, 0), -ENODEV);
	assert_int_equal(umad_done(), 0);
}

/* As the tool has it: the only one, or `default`, or the one that is named. */
static void of_two_fabrics_one_must_be_named(void **state)
{
	int p = world_open("node1"), other = world_another("aaa");

	assert_int_equal(world_agent(p, PING, 0), 0); /* it stays where it was opened */
	assert_true(umad_open_port(NULL, 0) < 0);
	setenv("ANYRDMA_FABRIC", "test", 1);
	umad_close_port(world_open("node1"));
	umad_close_port(p);
	close(other);
	unsetenv("ANYRDMA_FABRIC");
	umad_close_port(world_open("node1")); /* the other one is down */
}

static void a_directory_may_have_a_long_name(void **state)
{
	char to[200];

	snprintf(to, sizeof(to), "%s-%0120d", getenv("ANYRDMA_DIR"), 1);
	world_move(to);
	umad_close_port(world_open("node1"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, world_up, world_down)
	const struct CMUnitTest tests[] = {
		TEST(names_are_those_of_the_host),
		TEST(lists_are_sorted_by_name),
		TEST(an_adapter_has_its_ports),
		TEST(the_file_of_a_subnet_manager_has_a_path),
		TEST(one_device_has_both_queue_pairs_of_management),
		TEST(what_is_not_there_is_not_found),
		TEST(a_host_that_is_not_there_has_nothing),
		TEST(without_a_fabric_there_is_nothing),
		TEST(of_two_fabrics_one_must_be_named),
		TEST(a_directory_may_have_a_long_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
