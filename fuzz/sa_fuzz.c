/* SPDX-License-Identifier: MIT */
/*
 * Any questions to the subnet administration of a small subnet, from anybody, while cables are cut and
 * mended, time passes, and the manager makes way and comes back. A question is as it is, or made to fit, so
 * that it gets past version, attribute and components. After each move what the SA holds must be within its
 * bounds, and hosts that cables connect must reach each other.
 */
#include "input.h"

#include "fabric/walk.h"
#include "subnet/sm_parts.h"
#include "subnet/topo_make.h"

enum { HOSTS = 4, LIDS = 12 };

static struct subnet *s;
static struct subnet_sm *sm;
static struct subnet_port *host[HOSTS];
static uint64_t now;

static void on_arrived(void *arg, struct subnet_port *at, const struct packet *p)
{
}

static void build(void)
{
	static const struct subnet_ops ops = {.arrived = on_arrived};
	char err[TOPO_ERROR];

	now = 1000;
	s = subnet_open(&ops, NULL, 1);
	must(s && !topo_make(s, "tree:2,2,2", 1, err) && !subnet_start(s, now));
	for (unsigned i = 0, n = 0; i < subnet_nodes(s); i++)
		if (subnet_node(s, i)->type == SUBNET_CA)
			host[n++] = &subnet_node(s, i)->port[1];
	sm = subnet_sm_open(s, host[0]);
	must(sm);
	subnet_sm_take(sm, now);
}

/* ---- moves ---- */
enum { FIT_HEADER = 1, FIT_ATTR = 2, FIT_GIDS = 4, TRUSTED = 8 };

static void fit(uint8_t *mad, uint8_t flags, uint8_t which)
{
	static const uint8_t methods[] = {MAD_METHOD_GET, MAD_METHOD_SET, SA_GET_TABLE, SA_DELETE};
	static const uint16_t attrs[] = {SA_CLASS_PORT_INFO, SA_INFORM_INFO, SA_SL2VL, SA_MFT, SA_GUID_INFO,
		SA_PKEY_TABLE, SA_VL_ARB, SA_NODE, SA_PORT_INFO, SA_SWITCH_INFO, SA_LFT, SA_SM_INFO, SA_LINK,
		SA_SERVICE, SA_PATH, SA_MC_MEMBER};
	const struct subnet_port *p = host[which % HOSTS];

	if (flags & FIT_HEADER) {
		mad[0] = MAD_BASE_VERSION;
		mad[1] = MAD_CLASS_SA;
		mad[2] = SA_CLASS_VERSION;
		mad[3] = methods[mad[3] % 4];
	}
	if (flags & FIT_ATTR)
		put_be16(mad + 16, attrs[mad[17] % 16]);
	if (flags & FIT_GIDS) /* both a path's and a member's second */
		for (unsigned at = get_be16(mad + 16) == SA_PATH ? 8 : 16; at < 32; at += 16) {
			put_be64(mad + SA_DATA + at, p->shared->prefix);
			put_be64(mad + SA_DATA + at + 8, p->guid);
		}
	if (flags & TRUSTED)
		put_be64(mad + SA_SM_KEY, 1);
}

static void ask(struct input *in)
{
	uint8_t from = draw_u8(in) % LIDS, flags = draw_u8(in), which = draw_u8(in), mad[MAD_LEN] = {0};
	size_t len = flags & 16 ? draw_u8(in) : MAD_LEN, got;
	const uint8_t *answer;

	draw(in, mad, MAD_HDR_LEN);
	draw(in, mad + SA_MASK, 8);
	draw(in, mad + SA_DATA, 64);
	fit(mad, flags, which);
	got = subnet_sa_answer(sm, from, mad, len, now, &answer);
	must(got <= SA_ANSWER_MAX && (!got || got >= SA_DATA));
	if (got)
		must(answer[3] & MAD_METHOD_RESPONSE && (got == MAD_LEN || answer[26] & 1));
}

static void flip(struct input *in)
{
	struct subnet_node *n = subnet_node(s, draw_u8(in) % subnet_nodes(s));
	struct subnet_port *p = subnet_port(n, 1 + draw_u8(in) % n->nports);

	if (p->cut)
		subnet_mend(p, now);
	else
		subnet_cut(p, now);
}

static void manage(struct input *in)
{
	uint8_t smp[MAD_LEN] = {0};

	switch (draw_u8(in) % 4) {
	case 0:
		subnet_sm_step_aside(sm, now);
		break;
	case 1:
		subnet_sm_take(sm, now);
		break;
	case 2:
		now += (uint64_t)draw_u16(in) << 20;
		break;
	case 3:
		draw(in, smp, MAD_HDR_LEN);
		draw(in, smp + SMP_DATA, SMP_DATA_LEN);
		subnet_sm_receive(sm, draw_u8(in) % LIDS, smp);
		break;
	}
}

/* ---- what must hold ---- */
static unsigned count(const struct list *l)
{
	unsigned n = 0;

	list_for_each(pos, l) n++;
	return n;
}

static void check_group(const struct sa_group *g)
{
	must(g->what.mlid >= LID_MCAST && g->what.mlid < LID_MCAST + SA_GROUPS && g->what.mgid[0] == 0xff);
	list_for_each(pos, &g->members)
	{
		const struct sa_group_member *k = container_of(pos, struct sa_group_member, node);

		must(k->join && !(k->join & ~7) && k->end->shared->lid);
	}
}

static void check(void)
{
	static const struct walk_for what = {.pkey = PKEY_DEFAULT, .words = 64};
	struct walk w;

	must(count(&sm->sa.groups) == sm->sa.ngroups && count(&sm->sa.services) == sm->sa.nservices);
	must(count(&sm->sa.informs) == sm->sa.ninforms && count(&sm->sa.reports) == sm->sa.nreports);
	must(!(fabric_epoch(s->table) & 1) && !s->depth);
	list_for_each(pos, &sm->sa.groups) check_group(container_of(pos, struct sa_group, node));
	if (!sm->master || subnet_sm_has_work(sm))
		return;
	for (unsigned i = 0; i < HOSTS; i += 2) /* two at one leaf */
		if (!host[i]->cut && !host[i + 1]->cut)
			must(fabric_walk(s->table, host[i]->index, host[i + 1]->shared->lid, &what, &w) ==
				WALK_ARRIVED);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};
	struct sa_report r;

	build();
	while (in.at < in.end) {
		switch (draw_u8(&in) % 8) {
		case 0:
			flip(&in);
			break;
		case 1:
			subnet_sm_run(sm, now);
			break;
		case 2:
			manage(&in);
			break;
		case 3:
			subnet_sa_next_report(sm, &r);
			break;
		default:
			ask(&in);
		}
		check();
	}
	subnet_sm_close(sm);
	subnet_close(s);
	return 0;
}
