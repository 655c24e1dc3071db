/* SPDX-License-Identifier: MIT */
#include "subnet/sm_stage_test.h"

#include "fabric/walk.h"

/* ---- what must hold ---- */
static enum walk_end walk(const struct subnet_port *from, const struct subnet_port *to, struct walk *w)
{
	static const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 64};

	return fabric_walk(subnet_table(t.s), from->index, to->shared->lid, &what, w);
}

static bool is_host(const struct subnet_node *n)
{
	return n->type == SUBNET_CA;
}

/* All pairs of hosts reach each other; the longest path in switches. */
static unsigned longest_path(void)
{
	unsigned longest = 0;

	for (unsigned a = 0; a < subnet_nodes(t.s); a++)
		for (unsigned b = 0; b < subnet_nodes(t.s); b++) {
			struct subnet_node *from = subnet_node(t.s, a), *to = subnet_node(t.s, b);
			struct walk w;

			if (a == b || !is_host(from) || !is_host(to))
				continue;
			assert_int_equal(walk(&from->port[1], &to->port[1], &w), WALK_ARRIVED);
			assert_int_equal(w.port, to->port[1].index);
			longest = w.hops > longest ? w.hops : longest;
		}
	return longest;
}

static void comes_up(const char *spec, unsigned longest)
{
	open_spec(spec);
	subnet_sm_take(sm, t.now);
	assert_true(subnet_sm_is_master(sm));
	assert_int_equal(longest_path(), longest);
	for (unsigned i = 0; i < subnet_nodes(t.s); i++)
		for (unsigned k = 1; k <= subnet_node(t.s, i)->nports; k++)
			if (subnet_node(t.s, i)->port[k].peer)
				assert_int_equal(subnet_node(t.s, i)->port[k].shared->state, PORT_ACTIVE);
	close_spec();
}

static void all_shapes_come_up(void **state)
{
	comes_up("pair", 0);
	comes_up("star:4", 1);
	comes_up("ring:6", 5);
	comes_up("tree:4,2,3", 3);
	comes_up("fat-tree:4", 5);
	comes_up("torus:3x3", 3);
	comes_up("dragonfly:2,1,1", 5);
}

/* ---- deadlocks ---- */
/* Which cable, named by the port that packets leave by, packets wait for while they hold another. */
struct waits {
	unsigned n;
	bool *for_; /* [n][n] */
	uint8_t *color;
};

static void add_path(struct waits *w, const struct subnet_port *from, const struct subnet_port *to)
{
	const struct subnet_port *out = from, *in;
	uint8_t num;

	while ((in = out->peer) != to) {
		assert_int_equal(fabric_route(subnet_table(t.s), in->shared, to->shared->lid, &num), 0);
		w->for_[out->index * w->n + in->node->port[num].index] = true;
		out = &in->node->port[num];
	}
}

static bool in_circle(struct waits *w, unsigned at)
{
	w->color[at] = 1;
	for (unsigned i = 0; i < w->n; i++)
		if (w->for_[at * w->n + i] && (w->color[i] == 1 || (!w->color[i] && in_circle(w, i))))
			return true;
	w->color[at] = 2;
	return false;
}

static void waits_in_no_circle(void)
{
	struct waits w = {.n = subnet_table(t.s)->n.ports};

	w.for_ = calloc(w.n, w.n);
	w.color = calloc(w.n, 1);
	for (unsigned a = 0; a < subnet_nodes(t.s); a++)
		for (unsigned b = 0; b < subnet_nodes(t.s); b++)
			if (a != b && is_host(subnet_node(t.s, a)) && is_host(subnet_node(t.s, b)))
				add_path(&w, &subnet_node(t.s, a)->port[1], &subnet_node(t.s, b)->port[1]);
	for (unsigned i = 0; i < w.n; i++)
		assert_false(!w.color[i] && in_circle(&w, i));
	free(w.for_);
	free(w.color);
}

static void no_circle_of_waiting_packets(void **state)
{
	static const char *const specs[] = {
		"ring:6", "tree:4,2,3", "fat-tree:4", "torus:4x4", "torus:3x3x3", "dragonfly:4,2,2"};

	for (unsigned i = 0; i < sizeof(specs) / sizeof(*specs); i++) {
		open_spec(specs[i]);
		subnet_sm_take(sm, t.now);
		waits_in_no_circle();
		close_spec();
	}
}

/* ---- balance ---- */
/* How many LIDs of hosts elsewhere a port is for, counting only what traffic between hosts uses. */
static unsigned paths_by(const struct subnet_port *p)
{
	unsigned n = 0;

	for (unsigned b = 0; b < subnet_nodes(t.s); b++) {
		const struct subnet_node *to = subnet_node(t.s, b);
		bool used = false;

		for (unsigned a = 0; a < subnet_nodes(t.s) && is_host(to) && !used; a++) {
			const struct subnet_port *out = &subnet_node(t.s, a)->port[1], *in;
			uint8_t num;

			if (a == b || !is_host(subnet_node(t.s, a)))
				continue;
			while ((in = out->peer) != &to->port[1] && !used) {
				fabric_route(subnet_table(t.s), in->shared, to->port[1].shared->lid, &num);
				out = &in->node->port[num];
				used = out == p;
			}
		}
		n += used;
	}
	return n;
}

/* 16 hosts, 12 of them elsewhere for a pod: each cable between switches has its share, and no more. */
static void cables_of_a_fat_tree_share(void **state)
{
	open_spec("fat-tree:4");
	subnet_sm_take(sm, t.now);
	for (unsigned i = 0; i < subnet_nodes(t.s); i++)
		for (unsigned k = 1; k <= subnet_node(t.s, i)->nports; k++) {
			const struct subnet_port *p = &subnet_node(t.s, i)->port[k];

			if (!is_host(p->node) && !is_host(p->peer->node))
				assert_in_range(paths_by(p), 1, 8);
		}
	close_spec();
}

/* ---- links that move ---- */
static struct subnet_port *path_port(const struct subnet_port *from, const struct subnet_port *to)
{
	uint8_t num;

	assert_int_equal(
		fabric_route(subnet_table(t.s), from->peer->shared, to->shared->lid, &num), WALK_ARRIVED);
	return &from->peer->node->port[num];
}

static void a_cut_cable_is_routed_around(void **state)
{
	struct subnet_port *a, *b, *cut;
	uint16_t lid;
	struct walk w;

	open_spec("fat-tree:4");
	subnet_sm_take(sm, t.now);
	a = first_host();
	b = host("node16");
	lid = b->shared->lid;
	cut = path_port(a, b);
	assert_int_equal(subnet_cut(cut, t.now), 0);
	assert_true(subnet_sm_has_work(sm));
	assert_int_not_equal(walk(a, b, &w), WALK_ARRIVED);
	subnet_sm_run(sm, t.now);
	assert_false(subnet_sm_has_work(sm));
	assert_int_equal(longest_path(), 5);
	assert_int_equal(subnet_mend(cut, t.now), 0);
	subnet_sm_run(sm, t.now);
	assert_int_equal(cut->shared->state, PORT_ACTIVE);
	assert_ptr_equal(path_port(a, b), cut); /* the same cables, the same tables */
	assert_int_equal(b->shared->lid, lid);
	close_spec();
}

static void a_host_that_is_cut_off_keeps_its_lid(void **state)
{
	struct subnet_port *a, *b;
	struct walk w;

	open_spec("star:4");
	subnet_sm_take(sm, t.now);
	a = first_host();
	b = host("node3");
	subnet_cut(b, t.now);
	subnet_sm_run(sm, t.now);
	assert_int_equal(b->shared->lid, 3);
	assert_int_equal(walk(a, b, &w), WALK_NO_ROUTE);
	t.changed[SUBNET_REREGISTER] = 0;
	subnet_mend(b, t.now);
	subnet_sm_run(sm, t.now);
	assert_int_equal(walk(a, b, &w), WALK_ARRIVED);
	assert_int_equal(b->shared->lid, 3);
	assert_int_equal(t.changed[SUBNET_REREGISTER], 1); /* that one alone */
	close_spec();
}

/* Only cables that were cut make switches of a tree take a path that goes up again. */
static void a_tree_in_pieces_still_connects(void **state)
{
	struct subnet_node *leaf1, *leaf2;

	open_spec("tree:3,2,1"); /* leaf 1 keeps the first spine, leaf 2 the second, leaf 3 both */
	subnet_sm_take(sm, t.now);
	leaf1 = host("node1")->peer->node;
	leaf2 = host("node2")->peer->node;
	for (unsigned k = 1; k <= leaf1->nports; k++) {
		struct subnet_port *p = subnet_port(leaf1, k), *q = subnet_port(leaf2, k);

		if (p->peer && !is_host(p->peer->node)) {
			subnet_cut(p, t.now);
			for (k++; is_host(subnet_port(leaf2, k)->peer->node); k++)
				;
			q = subnet_port(leaf2, k);
			subnet_cut(q, t.now);
			break;
		}
	}
	subnet_sm_run(sm, t.now);
	assert_int_equal(longest_path(), 5);
	close_spec();
}

/* ---- LIDs ---- */
static void lids_that_are_there_stay(void **state)
{
	struct subnet_port *b;

	open_spec("star:4");
	stage_bring_up(&t, first_host()); /* another manager, with an order of its own */
	b = host("node2");
	assert_int_not_equal(b->shared->lid, 2);
	t.changed[SUBNET_LID_CHANGED] = 0;
	subnet_sm_take(sm, t.now);
	assert_int_equal(t.changed[SUBNET_LID_CHANGED], 0);
	assert_int_equal(t.changed[SUBNET_REREGISTER], 4);
	assert_int_equal(longest_path(), 1);
	close_spec();
}

static void two_of_one_lid_are_told_apart(void **state)
{
	uint8_t data[SMP_DATA_LEN];
	struct subnet_port *b;
	struct port_info i;

	open_spec("star:4");
	subnet_sm_take(sm, t.now);
	subnet_sm_step_aside(sm, t.now);
	b = host("node2");
	assert_true(stage_by_lid(&t, first_host(), 2, MAD_METHOD_GET, SMP_PORT_INFO, 0, data));
	i = port_info_get(data);
	i.lid = 3;
	i.state = i.phys = 0;
	port_info_put(data, &i);
	stage_by_lid(&t, first_host(), 2, MAD_METHOD_SET, SMP_PORT_INFO, 0, data);
	assert_int_equal(b->shared->lid, 3);
	subnet_sm_take(sm, t.now);
	assert_int_equal(longest_path(), 1);
	close_spec();
}

/* ---- as others see it ---- */
static void is_an_sm_of_priority_0(void **state)
{
	uint8_t data[SMP_DATA_LEN] = {0}, mad[MAD_LEN] = {0};
	const struct mad_hdr h = {
		MAD_BASE_VERSION, MAD_CLASS_SUBN, SMP_CLASS_VERSION, MAD_METHOD_GET, 0, 0, 7, SMP_SM_INFO, 0};

	open_spec("star:4");
	mad_hdr_put(mad, &h);
	assert_false(subnet_sm_receive(sm, 2, mad)); /* not yet */
	subnet_sm_take(sm, t.now);
	assert_true(first_host()->shared->cap_mask & PORT_CAP_IS_SM);
	assert_int_equal(host("node2")->shared->sm_lid, 1);
	assert_true(subnet_sm_receive(sm, 2, mad));
	assert_int_equal(mad[3], MAD_METHOD_GET_RESP);
	put_be64(data, first_host()->guid);
	put_be32(data + 16, 1);
	data[20] = 3; /* master */
	assert_memory_equal(mad + SMP_DATA, data, SMP_DATA_LEN);
	subnet_sm_step_aside(sm, t.now);
	assert_false(first_host()->shared->cap_mask & PORT_CAP_IS_SM);
	mad_hdr_put(mad, &h);
	assert_false(subnet_sm_receive(sm, 2, mad));
	close_spec();
}

static void a_trap_is_repressed(void **state)
{
	uint8_t mad[MAD_LEN], tid[8];

	open_spec("star:4");
	subnet_sm_take(sm, t.now);
	subnet_cut(host("node4"), t.now);
	subnet_expire(t.s, t.now); /* the switch tells */
	assert_ptr_equal(t.at, first_host());
	assert_int_equal(t.mad[3], MAD_METHOD_TRAP);
	memcpy(mad, t.mad, MAD_LEN);
	memcpy(tid, mad + 8, 8);
	assert_true(subnet_sm_receive(sm, t.from.slid, mad));
	assert_int_equal(mad[3], MAD_METHOD_TRAP_REPRESS);
	assert_memory_equal(mad + 8, tid, 8);
	close_spec();
}

static void aside_it_does_nothing(void **state)
{
	struct subnet_port *b;

	open_spec("star:4");
	subnet_sm_take(sm, t.now);
	subnet_sm_step_aside(sm, t.now);
	assert_false(subnet_sm_has_work(sm));
	b = host("node2");
	subnet_cut(b, t.now);
	subnet_mend(b, t.now);
	assert_true(subnet_sm_has_work(sm));
	subnet_sm_run(sm, t.now);
	assert_int_equal(b->shared->state, PORT_INIT);
	subnet_sm_take(sm, t.now);
	assert_int_equal(longest_path(), 1);
	close_spec();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(all_shapes_come_up),
		cmocka_unit_test(no_circle_of_waiting_packets),
		cmocka_unit_test(cables_of_a_fat_tree_share),
		cmocka_unit_test(a_cut_cable_is_routed_around),
		cmocka_unit_test(a_host_that_is_cut_off_keeps_its_lid),
		cmocka_unit_test(a_tree_in_pieces_still_connects),
		cmocka_unit_test(lids_that_are_there_stay),
		cmocka_unit_test(two_of_one_lid_are_told_apart),
		cmocka_unit_test(is_an_sm_of_priority_0),
		cmocka_unit_test(a_trap_is_repressed),
		cmocka_unit_test(aside_it_does_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
