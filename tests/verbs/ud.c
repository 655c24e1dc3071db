/* SPDX-License-Identifier: MIT */
/* UD: datagrams to address handles, the 40 bytes in front of each, Q_Keys, and multicast. */
#include "fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static struct vt_ep *ud(struct vt *t)
{
	struct vt_ep *ep = vt_ep(t, .type = IBV_QPT_UD);

	vt_ud_start(ep, VT_QKEY);
	return ep;
}

static struct ibv_ah *ah_to(struct vt_ep *from, struct vt_ep *to)
{
	struct vt_addr addr = vt_addr(to);

	return vt_ah(from, &addr);
}

/* The words of a datagram to b, for vt_deliver(), vt_post() and vt_try(). */
#define TO(b, handle) .ah = handle, .qpn = (b)->qp->qp_num, .qkey = VT_QKEY

static uint16_t ip_checksum(const void *header)
{
	const uint16_t *w = header;
	uint32_t sum = 0;

	for (int i = 0; i < 10; i++)
		sum += w[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t) ~(sum + (sum >> 16));
}

static bool is_ipv4(const struct vt *t)
{
	return t->gid.raw[10] == 0xff && t->gid.raw[11] == 0xff;
}

static bool is_ethernet(const struct vt *t)
{
	return t->port.link_layer == IBV_LINK_LAYER_ETHERNET;
}

/* Of the flags of a datagram's completion: InfiniBand has a GRH only when the address had one. */
static unsigned int grh_flag(const struct vt_ep *from)
{
	struct ibv_ah_attr av;

	vt_fill_av(from->t, &from->at->gid, from->at->lid, &av);
	return av.is_global ? IBV_WC_GRH : 0;
}

/* What ibv_init_ah_from_wc() will read: an IPv4 header in the last 20 bytes, or a whole GRH. */
static void check_grh(const struct vt_ep *from, const struct vt_ep *to, const uint8_t *grh)
{
	const struct iphdr *ip = (const void *)(grh + 20);
	const struct ibv_grh *g = (const void *)grh;
	struct vt *t = from->t;

	if (!grh_flag(from))
		return;
	if (is_ipv4(t)) {
		assert_int_equal(ip->version, 4);
		assert_int_equal(ip->ihl, 5);
		assert_int_equal(ip->protocol, IPPROTO_UDP);
		assert_int_equal(ip_checksum(ip), 0);
		assert_memory_equal(&ip->saddr, t->gid.raw + 12, 4);
		assert_memory_equal(&ip->daddr, t->gid.raw + 12, 4);
	} else {
		assert_int_equal(ntohl(g->version_tclass_flow) >> 28, 6);
		assert_memory_equal(&g->sgid, &from->at->gid, 16);
		assert_memory_equal(&g->dgid, &to->at->gid, 16);
	}
}

/* UCX asks the service level of RoCE, which has none: over UDP, and IPv6 or IPv4. */
static void check_source(const struct vt_ep *from, const struct ibv_wc *wc)
{
	const struct vt *t = from->t;

	if (is_ethernet(t)) {
		assert_int_equal(wc->sl, 8 | (is_ipv4(t) ? 2 : 1));
		return;
	}
	assert_int_equal(wc->slid, from->at->lid);
	assert_int_equal(wc->sl, 0);
	assert_int_equal(wc->dlid_path_bits, 0);
}

static void every_length_arrives_behind_forty_bytes(void **state)
{
	struct vt *t = *state;
	uint32_t mtu = vt_mtu_bytes(t->port.active_mtu);
	const uint32_t lengths[] = {0, 1, 2, 3, 4, 5, 100, 1000, mtu - 1, mtu};
	struct vt_ep *a, *b;
	struct ibv_ah *ah;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	ah = ah_to(a, b);
	for (size_t i = 0; i < ARRAY_LEN(lengths); i++) {
		uint32_t len = lengths[i];
		struct ibv_wc wc;

		vt_fill(a->buf, len, i);
		memset(b->buf, 0x55, 8192);
		vt_recv(b, 2, 0, VT_GRH + mtu);
		wc = vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = len, TO(b, ah));
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_int_equal(wc.byte_len, VT_GRH + len);
		assert_int_equal(wc.src_qp, a->qp->qp_num);
		assert_int_equal(wc.qp_num, b->qp->qp_num);
		assert_int_equal(wc.wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM), grh_flag(a));
		assert_int_equal(wc.pkey_index, 0);
		check_grh(a, b, b->buf);
		check_source(a, &wc);
		vt_check(b->buf + VT_GRH, len, i);
		vt_check_all(b->buf + VT_GRH + len, 64, 0x55);
	}
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void immediate_data_comes_along(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	ah = ah_to(a, b);
	vt_recv(b, 2, 0, 1000);
	wc = vt_deliver(
		a, b, 2, .op = IBV_WR_SEND_WITH_IMM, .id = 1, .len = 100, .imm = 0x12345678, TO(b, ah));
	assert_int_equal(wc.wc_flags & (IBV_WC_GRH | IBV_WC_WITH_IMM), grh_flag(a) | IBV_WC_WITH_IMM);
	assert_int_equal(ntohl(wc.imm_data), 0x12345678);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void answer_goes_back_by_the_completion(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_ah *ah, *back;
	struct ibv_ah_attr attr;
	struct ibv_wc wc;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	ah = ah_to(a, b);
	vt_recv(b, 2, 0, 1000);
	wc = vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 10, TO(b, ah));
	assert_int_equal(ibv_init_ah_from_wc(t->ctx, b->at->port, &wc, (struct ibv_grh *)b->buf, &attr), 0);
	assert_int_equal(attr.port_num, b->at->port);
	assert_int_equal(attr.is_global, !!grh_flag(a));
	assert_int_equal(attr.dlid, is_ethernet(t) ? attr.dlid : a->at->lid);
	if (attr.is_global) {
		union ibv_gid sgid;

		assert_memory_equal(&attr.grh.dgid, &a->at->gid, 16);
		assert_int_equal(ibv_query_gid(t->ctx, b->at->port, attr.grh.sgid_index, &sgid), 0);
		assert_memory_equal(&sgid, &b->at->gid, 16);
	}
	back = ibv_create_ah_from_wc(b->pd, &wc, (struct ibv_grh *)b->buf, b->at->port);
	assert_non_null(back);
	vt_recv(a, 4, 0, 1000);
	vt_fill(b->buf, 50, 9);
	vt_deliver(b, a, 4, .op = IBV_WR_SEND, .id = 3, .len = 50, .ah = back, .qpn = wc.src_qp,
		.qkey = VT_QKEY);
	vt_check(a->buf + VT_GRH, 50, 9);
	assert_int_equal(ibv_destroy_ah(back), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void wrong_qkey_is_dropped_in_silence(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	ah = ah_to(a, b);
	vt_recv(b, 3, 0, 1000);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 10, .ah = ah, .qpn = b->qp->qp_num,
		.qkey = VT_QKEY ^ 1);
	vt_ok(a, 1);
	vt_fill(a->buf, 20, 5);
	wc = vt_deliver(a, b, 3, .op = IBV_WR_SEND, .id = 2, .len = 20, TO(b, ah));
	assert_int_equal(wc.byte_len, VT_GRH + 20);
	vt_check(b->buf + VT_GRH, 20, 5);
	vt_cq_is_empty(b);
	assert_int_equal(vt_state(b->qp), IBV_QPS_RTS);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* IBA 10.2.5: a Q_Key with its highest bit set asks for the sending QP's own. */
static void address_of_another_domain_is_refused(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *other;
	struct ibv_ah *ah;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	other = ud(t);
	ah = ah_to(other, b);
	assert_int_equal(vt_try(a, .op = IBV_WR_SEND, .id = 1, .len = 10, .ah = ah, .qpn = b->qp->qp_num,
				 .qkey = VT_QKEY),
		EINVAL);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void controlled_qkey_stands_for_the_senders_own(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_ah *ah;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	ah = ah_to(a, b);
	vt_recv(b, 2, 0, 1000);
	vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 10, .ah = ah, .qpn = b->qp->qp_num,
		.qkey = 0x80000000);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* IBA C10-93.1.1 wants no packet; whether the sender hears of it is the adapter's choice. */
static void datagram_longer_than_the_mtu_is_not_sent(void **state)
{
	struct vt *t = *state;
	uint32_t too_long = vt_mtu_bytes(t->port.active_mtu) + 1;
	struct vt_ep *a, *b, *c;
	struct ibv_ah *ah, *other;
	struct ibv_wc wc;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	c = ud(t);
	ah = ah_to(a, b);
	other = ah_to(c, b);
	vt_recv(b, 3, 0, 32768);
	if (!vt_try(a, .op = IBV_WR_SEND, .id = 1, .len = too_long, TO(b, ah)))
		vt_expect_either(a, 1, IBV_WC_LOC_LEN_ERR, IBV_WC_SUCCESS);
	wc = vt_deliver(c, b, 3, .op = IBV_WR_SEND, .id = 2, .len = 20, TO(b, other));
	assert_int_equal(wc.byte_len, VT_GRH + 20);
	assert_int_equal(ibv_destroy_ah(other), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void datagram_without_a_receive_is_dropped(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b, *c, *d;
	struct ibv_ah *ah;
	struct ibv_wc wc;

	vt_need("UD");
	a = ud(t);
	b = ud(t);
	vt_pair(t, IBV_QPT_RC, &c, &d);
	ah = ah_to(a, b);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 10, TO(b, ah));
	vt_ok(a, 1);
	for (int i = 0; i < 10; i++)
		vt_ping_pong(c, d);
	vt_recv(b, 3, 0, 1000);
	wc = vt_deliver(a, b, 3, .op = IBV_WR_SEND, .id = 2, .len = 30, TO(b, ah));
	assert_int_equal(wc.byte_len, VT_GRH + 30);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void one_qp_reaches_many(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *to[5];
	struct ibv_ah *ah[ARRAY_LEN(to)];

	vt_need("UD");
	a = ud(t);
	for (size_t i = 0; i < ARRAY_LEN(to); i++) {
		to[i] = ud(t);
		ah[i] = ah_to(a, to[i]);
	}
	for (int round = 0; round < 20; round++) {
		for (size_t i = 0; i < ARRAY_LEN(to); i++) {
			vt_recv(to[i], round, 0, 1000);
			vt_fill(a->buf, 100, round + i);
			vt_deliver(a, to[i], round, .op = IBV_WR_SEND, .id = i, .len = 100, TO(to[i], ah[i]));
			vt_check(to[i]->buf + VT_GRH, 100, round + i);
		}
	}
	for (size_t i = 0; i < ARRAY_LEN(ah); i++)
		assert_int_equal(ibv_destroy_ah(ah[i]), 0);
}

static void rdma_is_not_for_ud(void **state)
{
	static const enum ibv_wr_opcode op[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct vt *t = *state;

	vt_need("UD");
	for (size_t i = 0; i < ARRAY_LEN(op); i++) {
		struct vt_ep *a = ud(t);
		struct ibv_ah *ah = ah_to(a, a);
		int rc = vt_try(
			a, .op = op[i], .id = 1, .len = 8, .ah = ah, .qpn = a->qp->qp_num, .qkey = VT_QKEY);

		if (!rc)
			vt_expect(a, 1, IBV_WC_LOC_QP_OP_ERR);
		else
			assert_int_equal(rc, EINVAL);
		assert_int_equal(ibv_destroy_ah(ah), 0);
	}
}

static void inline_datagram_needs_no_key(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *b;
	struct ibv_ah *ah;

	vt_need("UD");
	a = vt_ep(t, .type = IBV_QPT_UD, .inline_data = 64);
	vt_ud_start(a, VT_QKEY);
	b = ud(t);
	ah = ah_to(a, b);
	vt_recv(b, 2, 0, 1000);
	vt_fill(a->buf, 64, 3);
	vt_deliver(a, b, 2, .op = IBV_WR_SEND, .id = 1, .len = 64, .flags = IBV_SEND_INLINE, .lkey = 0xbad,
		TO(b, ah));
	vt_check(b->buf + VT_GRH, 64, 3);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

/* The interface behind our GID must carry multicast: loopback does not unless told to, and for IPv6 never. */
static bool interface_has_multicast(struct vt *t)
{
	struct ibv_gid_entry e;
	struct ifreq r = {0};
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	bool yes = false;

	if (!ibv_query_gid_ex(t->ctx, t->port_num, t->gid_index, &e, 0) &&
		if_indextoname(e.ndev_ifindex, r.ifr_name) && !ioctl(fd, SIOCGIFFLAGS, &r))
		yes = (r.ifr_flags & IFF_MULTICAST) && (t->gid.raw[10] || !(r.ifr_flags & IFF_LOOPBACK));
	close(fd);
	return yes;
}

/* On a subnet the ports must have joined: VERBS_GROUP is what they did, VERBS_MLID its LID (on_fabric.sh). */
static bool has_multicast(struct vt *t)
{
	return is_ethernet(t) ? interface_has_multicast(t) : getenv("VERBS_GROUP") != NULL;
}

static struct vt_addr group(struct vt *t)
{
	struct vt_addr g = {.lid = 0xc001};
	const char *name = getenv("VERBS_GROUP");

	if (name && getenv("VERBS_MLID"))
		g.lid = (uint16_t)strtoul(getenv("VERBS_MLID"), NULL, 0);
	else
		name = is_ipv4(t) ? "::ffff:239.77.1.2" : "ff05::4d01:2";
	assert_int_equal(inet_pton(AF_INET6, name, &g.gid), 1);
	return g;
}

static void multicast_copies_to_every_member(void **state)
{
	struct vt *t = *state;
	struct vt_ep *a, *m[3];
	struct vt_addr to = group(t);
	struct ibv_ah *ah;

	vt_need("MCAST");
	if (!has_multicast(t))
		skip_because("the interface has no multicast");
	a = ud(t);
	for (int i = 0; i < 3; i++)
		m[i] = ud(t);
	ah = vt_ah(a, &to);
	for (int i = 0; i < 3; i++) {
		vt_recv(m[i], 10, 0, 1000);
		vt_recv(m[i], 11, 0, 1000);
		if (i < 2) /* the third has nothing to do with the group */
			assert_int_equal(ibv_attach_mcast(m[i]->qp, &to.gid, to.lid), 0);
	}
	vt_fill(a->buf, 100, 8);
	vt_post(a, .op = IBV_WR_SEND, .id = 1, .len = 100, .ah = ah, .qpn = 0xffffff, .qkey = VT_QKEY);
	vt_ok(a, 1);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(vt_ok(m[i], 10).byte_len, VT_GRH + 100);
		vt_check(m[i]->buf + VT_GRH, 100, 8);
	}
	assert_int_equal(ibv_detach_mcast(m[0]->qp, &to.gid, to.lid), 0);
	assert_int_equal(ibv_detach_mcast(m[0]->qp, &to.gid, to.lid), EINVAL);
	vt_post(a, .op = IBV_WR_SEND, .id = 2, .len = 50, .ah = ah, .qpn = 0xffffff, .qkey = VT_QKEY);
	vt_ok(a, 2);
	vt_ok(m[1], 11);
	for (int i = 0; i < 3; i++)
		vt_cq_is_empty(m[i]);
	assert_int_equal(ibv_detach_mcast(m[1]->qp, &to.gid, to.lid), 0);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

static void only_ud_and_only_groups_attach(void **state)
{
	struct vt *t = *state;
	union ibv_gid g = group(t).gid;
	struct vt_ep *rc, *a;

	vt_need("MCAST");
	rc = vt_ep(t);
	a = ud(t);
	assert_int_not_equal(ibv_attach_mcast(rc->qp, &g, 0xc001), 0);
	assert_int_not_equal(ibv_attach_mcast(a->qp, &t->gid, 0xc001), 0);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(every_length_arrives_behind_forty_bytes),
	VT_TEST(immediate_data_comes_along),
	VT_TEST(answer_goes_back_by_the_completion),
	VT_TEST(wrong_qkey_is_dropped_in_silence),
	VT_TEST(address_of_another_domain_is_refused),
	VT_TEST(controlled_qkey_stands_for_the_senders_own),
	VT_TEST(datagram_longer_than_the_mtu_is_not_sent),
	VT_TEST(datagram_without_a_receive_is_dropped),
	VT_TEST(one_qp_reaches_many),
	VT_TEST(rdma_is_not_for_ud),
	VT_TEST(inline_datagram_needs_no_key),
	VT_TEST(multicast_copies_to_every_member),
	VT_TEST(only_ud_and_only_groups_attach),
};

VT_MAIN("ud", tests, NULL)
