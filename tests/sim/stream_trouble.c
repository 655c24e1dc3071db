/* SPDX-License-Identifier: MIT */
/* What goes wrong with a call on purpose; and strangers that connect and do not speak MPA, or not to the end.
 */
#include "stream_calls.h"

#include "link/tcp.h"

#include <string.h>
#include <unistd.h>

const char *const trouble_names[] = {
#define X(name, text) text,
	TROUBLES(X)
#undef X
};

static void touch_node(unsigned node)
{
	for (unsigned i = 0; i < sim.calls; i++) {
		struct call *k = &sim.call[i];

		if (k->end[0].node != node && k->end[1].node != node)
			continue;
		k->work.lenient = k->happened = true;
		k->work.broken = true;
	}
}

static void end_process(unsigned node)
{
	for (unsigned i = 0; i < sim.calls; i++) {
		struct call *k = &sim.call[i];

		for (unsigned e = 0; e < 2; e++) {
			if (k->end[e].node != node)
				continue;
			call_unmake_end(k, e);
			k->end[e].closed = true;
			k->end[e].conn = NULL;
			if (e)
				k->listener = NULL;
		}
	}
	sim_node_stop(&sim.w, node);
}

void call_happen(struct call *k)
{
	struct ibv_qp_attr a = {.qp_state = IBV_QPS_ERR};
	struct end *n = &k->end[k->whose];
	struct sockaddr_storage addr = node_address(n->node, 0);

	if (k->trouble == FLIPPED) {
		if (n->established && k->end[!k->whose].established)
			sim_tcp_flip((uint16_t)(CALLER_PORT + k->index), k->whose, sim_draw(20000));
		k->trouble_at = n->established || k->whole || k->happened ? UINT64_MAX : sim.now + SIM_MS;
		return;
	}
	k->trouble_at = UINT64_MAX;
	if (k->whole || k->happened)
		return;
	if (k->trouble == CALM || k->trouble == WRONG || k->trouble == REJECTED || k->trouble == SLOW ||
		k->trouble == FULL || k->trouble == UNHEARD)
		return;
	call_say(k, "%s, end %u", trouble_names[k->trouble], k->whose);
	k->happened = k->work.broken = true;
	switch (k->trouble) {
	case BROKEN:
		k->happened = k->work.broken = sim_tcp_break((uint16_t)(CALLER_PORT + k->index));
		break;
	case TO_ERROR:
		if (n->qp && hca_qp_state(n->qp) != IBV_QPS_ERR)
			hca_qp_modify(n->qp, &a, IBV_QP_STATE);
		break;
	case DESTROYED:
		call_destroy_qp(k, n);
		break;
	case CLOSED:
		k->happened = k->work.broken = n->conn;
		if (n->conn)
			call_let_go(k, n);
		break;
	case DISCONNECTED:
		k->happened = k->work.broken =
			n->conn && !iwarp_conn_disconnect(node_adapter(n->node), n->conn);
		break;
	case DEAF:
		k->happened = k->work.broken = !k->end[1].conn && !k->answered;
		k->listened = true;
		call_close_listener(k);
		break;
	case VANISHED:
		touch_node(n->node);
		sim_tcp_vanish((struct sockaddr *)&addr);
		break;
	default:
		touch_node(n->node);
		end_process(n->node);
	}
}

void stranger_act(struct stranger *s)
{
	uint8_t bytes[40];

	if (s->fd < 0 && sim.now >= s->come_at && sim.now < s->leave_at) {
		struct sockaddr_storage from = node_address(0, 0), to;

		to = node_address(sim.call[s->to].end[1].node, LISTEN_PORT + s->to);
		s->fd = link_tcp_connect((struct sockaddr *)&from, (struct sockaddr *)&to, 0);
		s->speak_at = sim.now + 4 * sim.rules.delay;
	}
	if (s->fd >= 0 && !s->spoke && sim.now >= s->speak_at) {
		struct iovec iov = {bytes, sim_draw(sizeof(bytes))};
		struct sockaddr_storage local;

		memcpy(bytes, "MPA ID Req Frame\x40\x02\x00\x20", 20); /* more is announced than comes */
		if (sim_draw(2))
			bytes[sim_draw(18)] ^= (uint8_t)(1 + sim_draw(255));
		memset(bytes + 20, 0x5a, 20);
		s->spoke = true;
		if (iov.iov_len && !link_tcp_connected(s->fd, &local))
			link_tcp_send(s->fd, &iov, 1);
	}
	if (s->fd >= 0 && sim.now >= s->leave_at) {
		if (sim_draw(2))
			link_tcp_reset(s->fd);
		else
			close(s->fd);
		s->fd = -1;
	}
}
