/* SPDX-License-Identifier: MIT */
/* An opened device: what ibv_open_device returns, with its asynchronous events. */
#ifndef HCA_CONTEXT_H
#define HCA_CONTEXT_H

#include "hca/evq.h"

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>

struct hca_adapter;
struct hca_device;

/*
 * Room for members that later rdma-core releases put in front of verbs_context: a program built against them
 * finds NULL (not supported) there and not another object's bytes.
 */
struct hca_context {
	void *future_ops[16];
	struct verbs_context v;
	struct hca_adapter *adapter;
	struct hca_device *dev;
	struct hca_evq async;
	struct list node;         /* in adapter->contexts */
	_Atomic unsigned objects; /* PDs, CQs, channels, ... alive, plus one while it is open */
};

static inline struct hca_context *hca_context(struct ibv_context *c)
{
	return (struct hca_context *)((char *)c - offsetof(struct hca_context, v.context));
}

/* Opens dev; its function table is the front's. NULL with errno. */
struct hca_context *hca_context_open(struct hca_device *dev);
/* Objects that live on keep it in memory until the last of them is gone, as the kernel would. */
void hca_context_close(struct hca_context *ctx);
void hca_context_put(struct hca_context *ctx);
/*
 * After fork, in the child: the context and all that was made with it are the parent's. Destroying them does
 * nothing: it is done by programs that clean up at exit, or collect garbage, not knowing that they forked.
 */
bool hca_context_is_parents(struct ibv_context *c);
static inline void hca_context_get(struct hca_context *ctx)
{
	ctx->objects++;
}

/* Queues an asynchronous event about an object of verbs, or about a struct hca_port. */
void hca_async_raise(struct hca_context *ctx, enum ibv_event_type type, void *object);
/*
 * Waits for an event. Before the first QP there is no helper to watch the interfaces: then who waits here
 * does it. 0 or -EINTR.
 */
int hca_async_wait(struct hca_context *ctx);
int hca_async_get(struct hca_context *ctx, struct ibv_async_event *ev);
void hca_async_ack(struct ibv_async_event *ev);
/*
 * Drops what is queued about the object and waits until every event about it that was handed out is
 * acknowledged. Called by destroy, after nothing can raise a new one.
 */
void hca_async_forget(struct hca_context *ctx, void *object);
/* Around fork (fork.c): nobody hands out or acknowledges events meanwhile. In the child: none was handed out.
 */
void hca_async_hold(void);
void hca_async_release(void);
void hca_async_renew(void);

#endif
