/* SPDX-License-Identifier: MIT */
#include "base/gid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

union any {
	struct sockaddr sa;
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	struct sockaddr_storage storage;
};

static void read_gid(const char *text, uint8_t gid[16])
{
	assert_int_equal(inet_pton(AF_INET6, text, gid), 1);
}

static void addresses_are_gids_and_back(void **state)
{
	static const struct {
		const char *gid;
		int family;
		uint32_t scope;
	} cases[] = {
		{"::ffff:192.0.2.7", AF_INET, 0},
		{"2001:db8::7", AF_INET6, 0},
		{"fe80::7", AF_INET6, 3},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t gid[16], back[16];
		union any a;

		read_gid(cases[i].gid, gid);
		gid_to_sockaddr(gid, 4791, 3, &a.storage);
		assert_int_equal(a.sa.sa_family, cases[i].family);
		assert_int_equal(sockaddr_port(&a.sa), 4791);
		assert_int_equal(sockaddr_scope(&a.sa), cases[i].scope);
		sockaddr_set_port(&a.sa, 1);
		assert_int_equal(sockaddr_port(&a.sa), 1);
		gid_of_sockaddr(&a.sa, back);
		assert_memory_equal(gid, back, 16);
	}
	assert_int_equal(sockaddr_port(&(struct sockaddr){.sa_family = AF_UNIX, .sa_data = "name"}), 0);
}

static void addresses_by_gid_have_a_port_in_their_service_id(void **state)
{
	struct sockaddr_ib ib = {.sib_family = AF_IB, .sib_sid = htobe64(0x01061234)};
	const uint8_t gid[16] = {0xfe, 0x80, [15] = 7};
	uint8_t back[16];

	memcpy(&ib.sib_addr, gid, 16);
	assert_int_equal(sockaddr_port((struct sockaddr *)&ib), 0x1234);
	sockaddr_set_port((struct sockaddr *)&ib, 0xffff);
	assert_int_equal(be64toh(ib.sib_sid), 0x0106ffff);
	gid_of_sockaddr((struct sockaddr *)&ib, back);
	assert_memory_equal(gid, back, 16);
	assert_int_equal(sockaddr_len((struct sockaddr *)&ib), sizeof(ib));
	assert_false(sockaddr_is_ip((struct sockaddr *)&ib));
	assert_int_equal(sockaddr_scope((struct sockaddr *)&ib), 0);
}

static void mapped_addresses_are_those_of_ipv4(void **state)
{
	union any a = {.in = {.sin_family = AF_INET, .sin_port = htons(18515)}}, four = a, six;

	sockaddr_map(&a.in6);
	assert_int_equal(a.sa.sa_family, AF_INET6);
	assert_true(IN6_IS_ADDR_V4MAPPED(&a.in6.sin6_addr));
	assert_int_equal(sockaddr_port(&a.sa), 18515);
	six = a;
	sockaddr_map(&a.in6); /* is one already */
	assert_memory_equal(&a.in6, &six.in6, sizeof(six.in6));
	sockaddr_unmap(&a.in6);
	assert_memory_equal(&a.in6, &four.in6, sizeof(four.in6));
	sockaddr_unmap(&a.in6);
	assert_memory_equal(&a.in6, &four.in6, sizeof(four.in6));
	a = six = (union any){.in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT}};
	sockaddr_unmap(&a.in6);
	assert_memory_equal(&a.in6, &six.in6, sizeof(six.in6));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses_are_gids_and_back),
		cmocka_unit_test(addresses_by_gid_have_a_port_in_their_service_id),
		cmocka_unit_test(mapped_addresses_are_those_of_ipv4),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
