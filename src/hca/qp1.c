/* SPDX-License-Identifier: MIT */
#include "hca/qp1.h"

#include "hca/adapter.h"

static void drop(struct hca_adapter *a, const struct frame_in *in, uint64_t now)
{
	hca_adapter_probe(a, MAD_DROP, .why = "nobody takes MADs");
}

static void ignore_timer(struct hca_adapter *a, uint32_t alarms, uint64_t now)
{
}

static void ignore(struct hca_adapter *a)
{
}

const struct hca_qp1_ops hca_qp1_none = {
	.receive = drop, .timer = ignore_timer, .changed = ignore, .down = ignore};

void hca_qp1_changed(struct hca_adapter *a)
{
	lock_take(&a->engine.drive);
	a->qp1.ops->changed(a);
	lock_drop(&a->engine.drive);
}
