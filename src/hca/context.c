/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events are small records, queued until ibv_get_async_event hands them out and then kept on
 * a second list until they are acknowledged: destroying an object waits for its records to be gone.
 */
#include "hca/context.h"

#include "base/cancel.h"
#include "base/fd.h"
#include "base/log.h"
#include "hca/adapter.h"
#include "hca/device.h"
#include "hca/netdev.h"
#include "observe/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct async_record {
	struct list node;
	struct ibv_async_event ev;
};

/* One lock and condition for all contexts: acknowledging is rare. Guards every `unacked` record. */
static pthread_mutex_t ack_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ack_cond = PTHREAD_COND_INITIALIZER;
static struct list unacked = {&unacked, &unacked};
static struct list parents = {&parents, &parents}; /* in a child: what it would have had to acknowledge */

void hca_async_hold(void)
{
	pthread_mutex_lock(&ack_mutex);
}

void hca_async_release(void)
{
	pthread_mutex_unlock(&ack_mutex);
}

void hca_async_renew(void)
{
	pthread_cond_init(&ack_cond, NULL);
	for (struct list *n; (n = list_pop(&unacked));)
		list_add_tail(&parents, n);
}

static bool about_object(enum ibv_event_type t)
{
	switch (t) {
	case IBV_EVENT_DEVICE_FATAL:
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		return false;
	default:
		return true;
	}
}

/* The union's members are all pointers but for the port number; compare them as one. */
static void *object_of(const struct ibv_async_event *ev)
{
	return about_object(ev->event_type) ? (void *)ev->element.qp : NULL;
}

struct hca_context *hca_context_open(struct hca_device *dev)
{
	struct hca_context *ctx = calloc(1, sizeof(*ctx));
	int err;

	if (!ctx)
		return NULL;
	err = hca_evq_init(&ctx->async);
	if (err)
		goto free_ctx;
	ctx->objects = 1;
	ctx->adapter = dev->adapter;
	ctx->dev = dev;
	ctx->v.sz = sizeof(ctx->v);
	ctx->v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	ctx->v.context.device = &dev->vd.ibv;
	ctx->v.context.async_fd = ctx->async.fd;
	ctx->v.context.num_comp_vectors = 1;
	pthread_mutex_init(&ctx->v.context.mutex, NULL);
	/* Programs may look at cmd_fd; give them one that is valid and does nothing. */
	ctx->v.context.cmd_fd = fd_above_stdio(open("/dev/null", O_RDWR | O_CLOEXEC));
	if (ctx->v.context.cmd_fd < 0) {
		err = -errno;
		goto fini_async;
	}
	lock_take(&dev->adapter->lock);
	list_add_tail(&dev->adapter->contexts, &ctx->node);
	lock_drop(&dev->adapter->lock);
	return ctx;

fini_async:
	hca_evq_fini(&ctx->async);
free_ctx:
	log_error("cannot open %s: %s", dev->vd.ibv.name, fd_reason(-err));
	free(ctx);
	errno = -err;
	return NULL;
}

void hca_context_put(struct hca_context *ctx)
{
	struct hca_adapter *a = ctx->adapter;

	if (--ctx->objects)
		return;
	lock_take(&a->lock);
	list_del(&ctx->node);
	lock_drop(&a->lock);
	for (struct list *n; (n = list_pop(&ctx->async.events));)
		free(container_of(n, struct async_record, node));
	hca_evq_fini(&ctx->async);
	close(ctx->v.context.cmd_fd);
	pthread_mutex_destroy(&ctx->v.context.mutex);
	free(ctx);
	hca_adapter_down(a);
}

bool hca_context_is_parents(struct ibv_context *c)
{
	return hca_context(c)->adapter->dead;
}

void hca_context_close(struct hca_context *ctx)
{
	hca_context_put(ctx);
}

void hca_async_raise(struct hca_context *ctx, enum ibv_event_type type, void *object)
{
	struct async_record *r = calloc(1, sizeof(*r));

	PROBE(ASYNC_EVENT, .event = type, .object = object);
	if (!r)
		return;
	r->ev.event_type = type;
	if (about_object(type))
		r->ev.element.qp = object;
	else
		r->ev.element.port_num = ((const struct hca_port *)object)->num;
	lock_take(&ctx->async.lock);
	list_add_tail(&ctx->async.events, &r->node);
	hca_evq_signal(&ctx->async);
	lock_drop(&ctx->async.lock);
}

static void close_watch(void *fd)
{
	if (*(int *)fd >= 0)
		close(*(int *)fd);
}

/* The only place where a thread that waits for an event may be cancelled. */
static int sleep_on(struct pollfd p[2], int cancel)
{
	int err;

	pthread_cleanup_push(close_watch, &p[1].fd);
	cancel_restore(cancel);
	err = poll(p, 2, -1) < 0 ? -errno : 0;
	cancel_off();
	pthread_cleanup_pop(0);
	return err;
}

int hca_async_wait(struct hca_context *ctx)
{
	CANCEL_SAFE;
	struct pollfd p[2] = {{.fd = ctx->async.fd, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
	int err = 0;

	if (!ctx->adapter->up) {
		p[1].fd = hca_devices_watch(ctx->adapter);
		if (p[1].fd >= 0)
			hca_devices_refresh(ctx->adapter); /* what changed before we watched */
	}
	while (!err && !(p[0].revents & POLLIN)) {
		err = sleep_on(p, cancel_before);
		if (!err && p[1].revents)
			hca_devices_changed(ctx->adapter, p[1].fd);
	}
	close_watch(&p[1].fd);
	return err;
}

int hca_async_get(struct hca_context *ctx, struct ibv_async_event *ev)
{
	struct list *n;

	do {
		int err = hca_evq_wait(&ctx->async);

		if (err)
			return err;
		pthread_mutex_lock(&ack_mutex);
		lock_take(&ctx->async.lock);
		n = list_pop(&ctx->async.events);
		lock_drop(&ctx->async.lock);
		if (n) {
			struct async_record *r = container_of(n, struct async_record, node);

			*ev = r->ev;
			if (about_object(ev->event_type))
				list_add_tail(&unacked, &r->node);
			else
				free(r);
		}
		pthread_mutex_unlock(&ack_mutex);
	} while (!n); /* destroy took the event away under us */
	return 0;
}

void hca_async_ack(struct ibv_async_event *ev)
{
	pthread_mutex_lock(&ack_mutex);
	list_for_each_safe(n, &unacked)
	{
		struct async_record *r = container_of(n, struct async_record, node);

		if (r->ev.event_type == ev->event_type && object_of(&r->ev) == object_of(ev)) {
			list_del(n);
			free(r);
			pthread_cond_broadcast(&ack_cond);
			break;
		}
	}
	pthread_mutex_unlock(&ack_mutex);
}

static bool has_unacked(void *object)
{
	list_for_each(n, &unacked)
	{
		if (object_of(&container_of(n, struct async_record, node)->ev) == object)
			return true;
	}
	return false;
}

void hca_async_forget(struct hca_context *ctx, void *object)
{
	pthread_mutex_lock(&ack_mutex);
	lock_take(&ctx->async.lock);
	list_for_each_safe(n, &ctx->async.events)
	{
		struct async_record *r = container_of(n, struct async_record, node);

		if (object_of(&r->ev) == object) {
			list_del(n);
			free(r);
			hca_evq_unsignal(&ctx->async);
		}
	}
	lock_drop(&ctx->async.lock);
	while (has_unacked(object))
		pthread_cond_wait(&ack_cond, &ack_mutex);
	pthread_mutex_unlock(&ack_mutex);
}
