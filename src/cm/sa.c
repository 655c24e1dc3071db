/* SPDX-License-Identifier: MIT */
#include "cm/sa.h"

#include "cm/id.h"
#include "hca/adapter.h"
#include "hca/fabric.h"
#include "mad/gsi.h"

#include <errno.h>
#include <string.h>

/* ---- asking ---- */
void rcm_sa_begin(uint8_t mad[MAD_LEN], uint8_t method, uint16_t attr, uint64_t mask)
{
	const struct mad_hdr h = {.base_version = MAD_BASE_VERSION,
		.mgmt_class = MAD_CLASS_SA,
		.class_version = SA_CLASS_VERSION,
		.method = method,
		.attr = attr};

	memset(mad, 0, MAD_LEN);
	mad_hdr_put(mad, &h);
	put_be64(mad + SA_MASK, mask);
}

struct rcm_sa_port rcm_sa_port_of(const struct rcm_id *id)
{
	return (struct rcm_sa_port){.cm = id->cm, .ifindex = id->path.ifindex};
}

/*
 * From the port's LID to the subnet manager's, as the fabric's table has them now. It is not asked of a
 * device, which would wait for a fabric that is away: here the question is lost then, and times out as any
 * other.
 */
static int send_question(const struct rcm_sa_port *port, const uint8_t mad[MAD_LEN])
{
	struct frame_dest to = {.ifindex = port->ifindex, .hop_limit = 64};

	hca_fabric_path_to_sm(port->cm->host.adapter, &to);
	gid_of_lid(to.slid, to.sgid);
	gid_of_lid(to.dlid, to.dgid);
	return mad_send(port->cm->host.adapter, &to, mad);
}

bool rcm_sa_is_there(const struct rcm_sa_port *port)
{
	struct frame_dest to = {.ifindex = port->ifindex};

	hca_fabric_path_to_sm(port->cm->host.adapter, &to);
	return to.dlid;
}

static void out_of_time(struct cm_host_timer *t, uint64_t now)
{
	struct rcm_question *q = container_of(t, struct rcm_question, timer);

	list_del(&q->node);
	q->answered(q, NULL);
}

int rcm_sa_ask(const struct rcm_sa_port *port, struct rcm_question *q, uint8_t mad[MAD_LEN], int timeout_ms)
{
	struct cm_host *h = &port->cm->host;
	uint64_t patience = timeout_ms > 0 ? (uint64_t)timeout_ms * 1000 * 1000 : 0;
	int err;

	assert_locked(&h->lock);
	q->tid = ++port->cm->asked;
	put_be64(mad + 8, q->tid);
	err = send_question(port, mad);
	if (err)
		return err;
	list_add_tail(&port->cm->questions, &q->node);
	q->timer.due = out_of_time;
	cm_host_timer_set(h, &q->timer, cm_host_now(h) + patience);
	return 0;
}

/* Its transaction id is none of ours, 0. */
void rcm_sa_tell(const struct rcm_sa_port *port, const uint8_t mad[MAD_LEN])
{
	send_question(port, mad);
}

void rcm_question_forget(struct rcm *cm, struct rcm_question *q)
{
	assert_locked(&cm->host.lock);
	list_del(&q->node);
	cm_host_timer_clear(&cm->host, &q->timer);
}

/* ---- answers ---- */
void rcm_sa_answer(struct cm_host *h, const uint8_t *mad)
{
	struct rcm *cm = container_of(h, struct rcm, host);
	const uint64_t tid = get_be64(mad + 8);

	assert_locked(&h->lock);
	list_for_each(n, &cm->questions)
	{
		struct rcm_question *q = container_of(n, struct rcm_question, node);

		if (q->tid != tid)
			continue;
		rcm_question_forget(cm, q);
		q->answered(q, mad);
		return;
	}
}
