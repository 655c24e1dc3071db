/* SPDX-License-Identifier: MIT */
/* The providers of an engine: entered, given defaults, and asked together. */
#include "engine/parts.h"

#include <errno.h>
#include <stddef.h>

/* ---- what a provider does that does not say ---- */
static bool offers_all(struct hca_qp *qp, unsigned opcode)
{
	return true;
}

static void no_qp(struct hca_qp *qp)
{
}

static void nothing(struct hca_provider *p)
{
}

static bool no(struct hca_provider *p)
{
	return false;
}

static bool yes(struct hca_provider *p)
{
	return true;
}

static bool no_answers(struct hca_provider *p, struct hca_qp *qp, uint64_t now)
{
	return false;
}

static enum hca_post may_wait(struct hca_qp *qp)
{
	return POST_MAY_WAIT;
}

static void no_path(struct hca_provider *p, const struct hca_path *path, uint32_t qpn)
{
}

static int no_mcast(struct hca_provider *p, const uint8_t mgid[16], uint32_t ifindex, bool join)
{
	return -EOPNOTSUPP;
}

static int no_frames(struct hca_provider *p, const struct frame_batch *b)
{
	return -EOPNOTSUPP;
}

static int nobody(struct hca_provider *p, uint32_t slot, const struct frame_in *in, bool wait)
{
	return -ESRCH;
}

static int tells_nobody(struct hca_provider *p, const struct cm_listen *what, bool on)
{
	return 0;
}

static void nothing_due(struct hca_provider *p, uint64_t now)
{
}

static void nothing_to_tidy(struct hca_provider *p, struct hca_clock *clock)
{
}

void hca_provider_init(struct hca_provider *p, const struct hca_provider_ops *ops, struct hca_engine *e,
	enum hca_carrier carrier)
{
	p->ops = *ops;
	p->e = e;
	p->carrier = carrier;
	p->bit = 1u << carrier;
#define DEFAULT(name, fn)                                                                                    \
	if (!p->ops.name)                                                                                    \
	p->ops.name = fn
	DEFAULT(offers, offers_all);
	DEFAULT(failed, no_qp);
	DEFAULT(detach, no_qp);
	DEFAULT(post, may_wait);
	DEFAULT(answer, no_answers);
	DEFAULT(flush_answers, nothing);
	DEFAULT(find_path, no_path);
	DEFAULT(set_path, no_qp);
	DEFAULT(mcast, no_mcast);
	DEFAULT(send_frames, no_frames);
	DEFAULT(hand_over, nobody);
	DEFAULT(listen, tells_nobody);
	DEFAULT(is_busy, no);
	DEFAULT(expire, nothing_due);
	DEFAULT(tidy, nothing_to_tidy);
	DEFAULT(sleep, yes);
	DEFAULT(woke, nothing);
	DEFAULT(has_deferred, no);
	DEFAULT(flush_deferred, nothing);
	DEFAULT(recv_posted, nothing);
	DEFAULT(publish, nothing);
	DEFAULT(interfaces_changed, nothing);
	DEFAULT(quiesce, nothing);
	DEFAULT(at_exit, nothing);
#undef DEFAULT
	__atomic_store_n(&e->provider[carrier], p, __ATOMIC_RELEASE);
}

void hca_provider_arm(struct hca_provider *p, uint64_t at)
{
	hca_engine_alarm(p->e, HCA_QP1_ALARMS + p->carrier, at);
}

/* ---- all of them ---- */
nfds_t engine_fds(struct hca_engine *e, struct pollfd p[ENGINE_FDS], uint8_t bit[ENGINE_FDS])
{
	nfds_t n = 0;

	for_each_provider(v, e)
	{
		int fds[HCA_PROVIDER_FDS], got = v->ops.fds(v, fds);

		for (int i = 0; i < got; i++) {
			bit[n] = (uint8_t)v->bit;
			p[n++] = (struct pollfd){.fd = fds[i], .events = POLLIN};
		}
	}
	return n;
}

bool engine_sleep(struct hca_engine *e)
{
	bool may = true;

	for_each_provider(p, e)
	{
		may &= p->ops.sleep(p);
	}
	return may;
}

void engine_woke(struct hca_engine *e)
{
	for_each_provider(p, e)
	{
		p->ops.woke(p);
	}
}

bool engine_is_quiet(struct hca_engine *e)
{
	for_each_provider(p, e)
	{
		if (p->ops.is_quiet && !p->ops.is_quiet(p))
			return false;
	}
	return e->open;
}

bool hca_engine_has_deferred(struct hca_engine *e)
{
	for_each_provider(p, e)
	{
		if (p->ops.has_deferred(p))
			return true;
	}
	return false;
}

void hca_engine_tidy(struct hca_engine *e)
{
	struct hca_clock clock = {.e = e};

	assert_locked(&e->drive);
	for_each_provider(p, e)
	{
		p->ops.tidy(p, &clock);
	}
}

void hca_engine_recv_posted(struct hca_engine *e)
{
	for_each_provider(p, e)
	{
		p->ops.recv_posted(p);
	}
}

/* ---- QP1, which moves frames ---- */
int hca_engine_send(struct hca_engine *e, const struct frame_batch *b)
{
	struct hca_provider *p = e->provider[HCA_FRAMES];

	return p ? p->ops.send_frames(p, b) : -ENETDOWN;
}

int hca_engine_listen(struct hca_engine *e, const struct cm_listen *what, bool on)
{
	struct hca_provider *p = e->provider[HCA_FRAMES];

	return p ? p->ops.listen(p, what, on) : 0;
}

int hca_engine_hand_over(struct hca_engine *e, uint32_t slot, const struct frame_in *in, bool wait)
{
	struct hca_provider *p = e->provider[HCA_FRAMES];

	return p ? p->ops.hand_over(p, slot, in, wait) : -ESRCH;
}
