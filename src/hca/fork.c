/* SPDX-License-Identifier: MIT */
/*
 * A child has a copy of every lock and none of the threads that will let go of it. Three rules make that
 * safe:
 *
 * - The child never takes a lock of the parent's objects (QPs, queues, flows, timers, the link). It starts
 *   with a new adapter when it opens a device; the old one is dead, and destroying its objects does nothing.
 * - What both adapters share, and what the child needs whole, is held across the fork, in this order:
 *
 *     the front's adapter mutex   which adapter is the process's
 *     bring-up                    the engine is open or closed, not half
 *     acknowledges                hca/context.c, of all contexts
 *     guard                       base/guard.c, of the process
 *     moved pages                 local/pages/share.c (map), which makes a copy for the child
 *
 * - And it neither allocates nor frees: programs bring allocators of their own, a sanitizer's among them,
 * whose locks nobody holds across a fork. What the parent allocated stays, and can be reached, as all of the
 * old adapter.
 *
 * No lock that packets need: the kernel takes tens of milliseconds for each gigabyte to fork, and peers wait
 * for their acknowledges meanwhile. So the child may find the parent in the middle of a drive. Of what a
 * drive changes it looks only at descriptors, to close them, which are forgotten before their numbers are
 * free (fd_take), and at lists, forward: whose links are whole at any moment (base/list.h).
 *
 * A condition variable with waiters is of no use to the child, so that of the acknowledges is made anew; and
 * the GID locks of the devices, which it goes on using.
 */
#include "hca/fork.h"

#include "base/guard.h"
#include "hca/adapter.h"
#include "hca/context.h"
#include "hca/device.h"
#include "local/pages/share.h"

void hca_fork_prepare(struct hca_adapter *a)
{
	if (a)
		lock_take(&a->bring_up);
	hca_async_hold();
	guard_hold();
	share_fork_prepare();
}

static void let_go(struct hca_adapter *a)
{
	guard_release();
	hca_async_release();
	if (a)
		lock_drop(&a->bring_up);
}

void hca_fork_parent(struct hca_adapter *a)
{
	share_fork_parent();
	let_go(a);
}

void hca_fork_child(struct hca_adapter *a)
{
	share_fork_child();
	hca_async_renew();
	let_go(a);
	if (!a)
		return;
	/* Who held them is not here: queries of the parent's devices go on. */
	lock_init(&a->lock);
	lock_init(&a->engine.drive);
	hca_devices_abandon(a);
	a->dead = true;
	if (a->up)
		bringup_abandon(a);
}

void hca_fork_adopt(struct hca_adapter *to, struct hca_adapter *dead)
{
	list_for_each_safe(n, &dead->devices)
	{
		struct hca_device *d = container_of(n, struct hca_device, node);

		for_each_port(p, d) lock_init(&p->gid_lock);
		d->adapter = to;
		list_add_tail(&to->devices, n);
	}
	list_init(&dead->devices);
}
