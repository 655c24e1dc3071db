/* SPDX-License-Identifier: MIT */
/* What the device says of itself: device, port, GID and P_Key tables, by every entry point. */
#include "fixture.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>

static void device_is_listed_with_its_names(void **state)
{
	struct vt *t = *state;
	int n = 0, found = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	assert_non_null(list);
	assert_true(n > 0);
	for (int i = 0; i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), ibv_get_device_name(t->ctx->device))) {
			found++;
			assert_int_equal(ibv_get_device_guid(list[i]), t->dev.node_guid);
			assert_true(list[i]->node_type == IBV_NODE_CA || list[i]->node_type == IBV_NODE_RNIC);
		}
	assert_int_equal(found, 1);
	assert_null(list[n]);
	ibv_free_device_list(list);
}

/* The device must outlive the list it came from. */
static void context_outlives_the_device_list(void **state)
{
	struct vt *t = *state;
	struct ibv_device_attr again;

	assert_int_equal(ibv_query_device(t->ctx, &again), 0);
	assert_int_equal(again.node_guid, t->dev.node_guid);
	assert_true(t->ctx->num_comp_vectors >= 1);
	assert_true(t->ctx->async_fd >= 0);
}

static void device_limits_are_sane(void **state)
{
	const struct ibv_device_attr *d = &((struct vt *)*state)->dev;

	assert_true(d->phys_port_cnt >= 1);
	assert_true(d->max_qp > 0 && d->max_qp_wr > 0 && d->max_sge > 0 && d->max_sge_rd > 0);
	assert_true(d->max_cq > 0 && d->max_cqe > 0 && d->max_mr > 0 && d->max_pd > 0);
	assert_true(d->max_srq > 0 && d->max_srq_wr > 0 && d->max_srq_sge > 0);
	assert_true(d->max_qp_rd_atom > 0 && d->max_qp_init_rd_atom > 0 && d->max_pkeys > 0);
	assert_true(d->max_mr_size >= UINT32_MAX);
	assert_true(d->page_size_cap & 4096);
	assert_true(memchr(d->fw_ver, 0, sizeof(d->fw_ver)) != NULL);
	if (vt_can("UD"))
		assert_true(d->max_ah > 0);
	if (vt_can("ATOMIC"))
		assert_int_not_equal(d->atomic_cap, IBV_ATOMIC_NONE);
}

static void extended_device_query_agrees_with_the_plain_one(void **state)
{
	struct vt *t = *state;
	struct ibv_device_attr_ex ex;
	struct ibv_query_device_ex_input in = {0};

	memset(&ex, 0xA5, sizeof(ex));
	assert_int_equal(ibv_query_device_ex(t->ctx, &in, &ex), 0);
	assert_memory_equal(ex.orig_attr.fw_ver, t->dev.fw_ver, sizeof(t->dev.fw_ver));
	assert_int_equal(ex.orig_attr.node_guid, t->dev.node_guid);
	assert_int_equal(ex.orig_attr.max_qp_wr, t->dev.max_qp_wr);
	assert_int_equal(ex.orig_attr.device_cap_flags, t->dev.device_cap_flags);
	assert_int_equal(ex.orig_attr.phys_port_cnt, t->dev.phys_port_cnt);
	assert_int_equal(ex.tso_caps.max_tso, 0);
	assert_int_equal(ex.rss_caps.supported_qpts, 0);
	in.comp_mask = 1;
	assert_int_equal(ibv_query_device_ex(t->ctx, &in, &ex), EINVAL);
}

/* Programs built against older and newer headers bring structs of other sizes. */
static void extended_device_query_keeps_to_the_size_given(void **state)
{
	struct vt *t = *state;
	struct verbs_context *v = verbs_get_ctx_op(t->ctx, query_device_ex);
	static const size_t sizes[] = {offsetof(struct ibv_device_attr_ex, odp_caps),
		offsetof(struct ibv_device_attr_ex, tso_caps), sizeof(struct ibv_device_attr_ex) - 8,
		sizeof(struct ibv_device_attr_ex), sizeof(struct ibv_device_attr_ex) + 64};
	struct {
		struct ibv_device_attr_ex ex;
		uint8_t more[128];
	} room;

	assert_non_null(v);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		memset(&room, 0xA5, sizeof(room));
		assert_int_equal(v->query_device_ex(t->ctx, NULL, &room.ex, sizes[i]), 0);
		assert_int_equal(room.ex.orig_attr.max_qp, t->dev.max_qp);
		vt_check_all((uint8_t *)&room + sizes[i], sizeof(room) - sizes[i], 0xA5);
	}
}

static void port_is_up_and_its_numbers_are_sane(void **state)
{
	const struct vt *t = *state;
	const struct ibv_port_attr *p = &t->port;

	assert_int_equal(p->state, IBV_PORT_ACTIVE);
	assert_true(p->active_mtu >= IBV_MTU_256 && p->active_mtu <= p->max_mtu);
	assert_true(p->max_mtu <= IBV_MTU_4096);
	assert_true(p->gid_tbl_len > 0 && p->pkey_tbl_len > 0);
	assert_true(p->max_msg_sz >= 1u << 30);
	assert_true(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4);
	assert_true(p->active_width && p->active_speed);
}

static void port_that_is_not_there_is_refused(void **state)
{
	struct vt *t = *state;
	struct ibv_port_attr p;

	assert_int_equal(ibv_query_port(t->ctx, 0, &p), EINVAL);
	assert_int_equal(ibv_query_port(t->ctx, t->dev.phys_port_cnt + 1, &p), EINVAL);
}

/* Both exported versions are the old ones: they know 48 bytes. The header's macro goes another way. */
static void exported_port_query_writes_48_bytes(void **state)
{
	static const char *const versions[] = {"IBVERBS_1.1", "IBVERBS_1.0"};
	struct vt *t = *state;
	void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
	int (*query)(struct ibv_context *, uint8_t, void *);
	uint8_t room[96];

	assert_non_null(lib);
	*(void **)&query = dlvsym(lib, "ibv_query_port", versions[0]);
	assert_non_null(query);
	assert_non_null(dlvsym(lib, "ibv_query_port", versions[1]));
	memset(room, 0xA5, sizeof(room));
	assert_int_equal(query(t->ctx, t->port_num, room), 0);
	assert_memory_equal(room, &t->port, 48);
	vt_check_all(room + 48, sizeof(room) - 48, 0xA5);
	dlclose(lib);
}

static void port_query_keeps_to_the_size_given(void **state)
{
	struct vt *t = *state;
	struct verbs_context *v = verbs_get_ctx_op(t->ctx, query_port);
	static const size_t sizes[] = {48, 52, 64, 96};
	uint8_t room[128];

	assert_non_null(v);
	for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
		memset(room, 0xA5, sizeof(room));
		assert_int_equal(
			v->query_port(t->ctx, t->port_num, (struct ibv_port_attr *)room, sizes[i]), 0);
		assert_memory_equal(room, &t->port, 48);
		vt_check_all(room + sizes[i], sizeof(room) - sizes[i], 0xA5);
	}
}

static void every_gid_slot_answers_and_none_beyond(void **state)
{
	struct vt *t = *state;
	union ibv_gid gid;

	for (int i = 0; i < t->port.gid_tbl_len; i++)
		assert_int_equal(ibv_query_gid(t->ctx, t->port_num, i, &gid), 0);
	assert_int_equal(ibv_query_gid(t->ctx, t->port_num, t->port.gid_tbl_len, &gid), -1);
	assert_int_equal(ibv_query_gid(t->ctx, t->port_num, -1, &gid), -1);
	assert_int_equal(ibv_query_gid(t->ctx, 99, 0, &gid), -1);
}

static void gid_entries_tell_index_type_and_interface(void **state)
{
	static const union ibv_gid none;
	struct vt *t = *state;
	int valid = 0;

	for (int i = 0; i < t->port.gid_tbl_len; i++) {
		struct ibv_gid_entry e;
		union ibv_gid gid;
		int rc = ibv_query_gid_ex(t->ctx, t->port_num, i, &e, 0);

		assert_int_equal(ibv_query_gid(t->ctx, t->port_num, i, &gid), 0);
		if (!memcmp(&gid, &none, sizeof(gid))) {
			assert_int_equal(rc, ENODATA);
			continue;
		}
		assert_int_equal(rc, 0);
		valid++;
		assert_memory_equal(&e.gid, &gid, sizeof(gid));
		assert_int_equal(e.gid_index, i);
		assert_int_equal(e.port_num, t->port_num);
		if (t->port.link_layer == IBV_LINK_LAYER_ETHERNET) {
			char name[IF_NAMESIZE];

			if (t->ctx->device->transport_type == IBV_TRANSPORT_IB)
				assert_int_equal(e.gid_type, IBV_GID_TYPE_ROCE_V2);
			assert_non_null(if_indextoname(e.ndev_ifindex, name));
		}
	}
	assert_true(valid > 0);
}

static void gid_table_lists_the_valid_entries(void **state)
{
	struct vt *t = *state;
	struct ibv_gid_entry table[1024], e;
	ssize_t n = ibv_query_gid_table(t->ctx, table, ARRAY_LEN(table), 0);

	assert_true(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		assert_int_equal(ibv_query_gid_ex(t->ctx, table[i].port_num, table[i].gid_index, &e, 0), 0);
		assert_memory_equal(&e, &table[i], sizeof(e));
	}
}

/* The size of an entry is the caller's: a longer one is stepped over, what it holds is left alone. */
static void gid_table_steps_by_the_callers_entry(void **state)
{
	struct vt *t = *state;
	struct {
		struct ibv_gid_entry e;
		uint8_t more[32];
	} table[64];
	struct ibv_gid_entry e;
	ssize_t n;

	memset(table, 0, sizeof(table));
	n = _ibv_query_gid_table(t->ctx, &table[0].e, ARRAY_LEN(table), 0, sizeof(table[0]));
	assert_true(n > 0);
	for (ssize_t i = 0; i < n; i++) {
		assert_int_equal(
			ibv_query_gid_ex(t->ctx, table[i].e.port_num, table[i].e.gid_index, &e, 0), 0);
		assert_memory_equal(&table[i].e, &e, sizeof(e));
	}
	assert_int_not_equal(ibv_query_gid_ex(t->ctx, t->port_num, 0, &e, 1), 0);
	assert_true(ibv_query_gid_table(t->ctx, &e, 1, 1) < 0);
}

static void pkey_table_has_the_default_key(void **state)
{
	struct vt *t = *state;
	__be16 pkey;

	assert_int_equal(ibv_query_pkey(t->ctx, t->port_num, 0, &pkey), 0);
	assert_true(ntohs(pkey) & 0x7fff);
	assert_int_equal(ibv_get_pkey_index(t->ctx, t->port_num, pkey), 0);
	assert_int_equal(ibv_query_pkey(t->ctx, t->port_num, t->port.pkey_tbl_len, &pkey), -1);
	assert_int_equal(ibv_get_pkey_index(t->ctx, t->port_num, htons(0x0123)), -1);
}

static void two_contexts_of_one_device_are_independent(void **state)
{
	struct vt *t = *state;
	struct ibv_context *ctx = ibv_open_device(t->ctx->device);
	struct vt other = *t;
	struct vt_ep *a = vt_ep(t), *b;

	assert_non_null(ctx);
	assert_ptr_not_equal(ctx, t->ctx);
	assert_int_not_equal(ctx->async_fd, t->ctx->async_fd);
	other.ctx = ctx;
	other.eps = NULL;
	b = vt_ep(&other);
	vt_connect(a, b, NULL);
	vt_ping_pong(a, b);
	vt_ep_close(b);
	assert_int_equal(ibv_close_device(ctx), 0);
	if (vt_can("MODIFY")) /* else the connection ended with b */
		assert_int_equal(vt_state(a->qp), IBV_QPS_RTS);
}

int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size); /* in no header */
const char *ibv_get_sysfs_path(void);

/* What programs look for below /sys/class/infiniband. */
static void files_of_the_device_say_the_same(void **state)
{
	struct vt *t = *state;
	char dir[512], text[64], guid[20];
	const uint8_t *g = (const uint8_t *)&t->dev.node_guid;

	assert_true((size_t)snprintf(dir, sizeof(dir), "%s/class/infiniband/%s", ibv_get_sysfs_path(),
			    ibv_get_device_name(t->ctx->device)) < sizeof(dir));
	snprintf(guid, sizeof(guid), "%02x%02x:%02x%02x:%02x%02x:%02x%02x", g[0], g[1], g[2], g[3], g[4],
		g[5], g[6], g[7]);
	assert_int_equal(ibv_read_sysfs_file(dir, "node_guid", text, sizeof(text)), 19);
	assert_string_equal(text, guid);
	assert_int_equal(ibv_read_sysfs_file(dir, "node_guid", text, 19), -1); /* does not fit */
	assert_int_equal(ibv_read_sysfs_file(dir, "no_such_file", text, sizeof(text)), -1);
	assert_int_equal(errno, ENOENT);
}

static void calls_the_device_does_not_know_say_so(void **state)
{
	struct vt *t = *state;
	struct ibv_values_ex v = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
	struct ibv_alloc_dm_attr dm = {.length = 4096};
	struct ibv_dm *got;
	int rc = ibv_query_rt_values_ex(t->ctx, &v);

	assert_true(rc == 0 || rc == EOPNOTSUPP);
	errno = 0;
	got = ibv_alloc_dm(t->ctx, &dm);
	if (got)
		assert_int_equal(ibv_free_dm(got), 0);
	else
		assert_true(errno == EOPNOTSUPP || errno == EINVAL || errno == ENOMEM);
}

static const struct CMUnitTest tests[] = {
	VT_TEST(device_is_listed_with_its_names),
	VT_TEST(context_outlives_the_device_list),
	VT_TEST(device_limits_are_sane),
	VT_TEST(extended_device_query_agrees_with_the_plain_one),
	VT_TEST(extended_device_query_keeps_to_the_size_given),
	VT_TEST(port_is_up_and_its_numbers_are_sane),
	VT_TEST(port_that_is_not_there_is_refused),
	VT_TEST(exported_port_query_writes_48_bytes),
	VT_TEST(port_query_keeps_to_the_size_given),
	VT_TEST(every_gid_slot_answers_and_none_beyond),
	VT_TEST(gid_entries_tell_index_type_and_interface),
	VT_TEST(gid_table_lists_the_valid_entries),
	VT_TEST(gid_table_steps_by_the_callers_entry),
	VT_TEST(pkey_table_has_the_default_key),
	VT_TEST(two_contexts_of_one_device_are_independent),
	VT_TEST(files_of_the_device_say_the_same),
	VT_TEST(calls_the_device_does_not_know_say_so),
};

VT_MAIN("identity", tests, NULL)
