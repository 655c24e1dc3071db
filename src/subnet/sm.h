/* SPDX-License-Identifier: MIT */
/*
 * The built-in subnet manager: LIDs, forwarding tables and port states, within the call that it is given time
 * by. It is an SM of priority 0 at one port, its home: IsSM, SMInfo, traps and the SA (subnet/sa.h) are
 * there. What it sets it sets by the functions that a Set reaches, not by packets, so that it manages parts
 * of the subnet that its home is cut off from, too.
 *
 *              subnet_sm_take()
 *    ASIDE --------------------------> MASTER ---. subnet_sm_run(): links have moved
 *      ^                                 |  ^____|
 *      '---------------------------------'
 *              subnet_sm_step_aside()
 *
 * It keeps the LIDs that it finds, and what it knows nothing of stays as another manager left it: LMC,
 * partitions, M_Keys, QoS. No I/O, no clock, one thread, as the subnet itself.
 */
#ifndef SUBNET_SM_H
#define SUBNET_SM_H

#include "subnet/model.h"
#include "wire/mad.h"

struct subnet_sm;

/* Aside, at an end port of a subnet that has been started. NULL: no memory. It ends before the subnet does.
 */
struct subnet_sm *subnet_sm_open(struct subnet *s, struct subnet_port *home);
void subnet_sm_close(struct subnet_sm *m);

/* It becomes the master: everything is set up, and clients are asked to register again. */
void subnet_sm_take(struct subnet_sm *m, uint64_t now);
/* Another manager is there, or will be: it does nothing any more, and forgets what clients had told it. */
void subnet_sm_step_aside(struct subnet_sm *m, uint64_t now);

bool subnet_sm_is_master(const struct subnet_sm *m);
struct subnet_port *subnet_sm_home(const struct subnet_sm *m);
/* How often it has set up the subnet. */
uint32_t subnet_sm_sweeps(const struct subnet_sm *m);
/* Whether links have moved since it last looked, or stepped aside. */
bool subnet_sm_has_work(const struct subnet_sm *m);
/* Does what there is to do; nothing while it is aside. */
void subnet_sm_run(struct subnet_sm *m, uint64_t now);

/*
 * A packet of subnet management that has reached the home and that the SMA did not want, from this LID: true,
 * it has become the answer, which is to be sent back. False: it is not for a master, or it is aside.
 */
bool subnet_sm_receive(struct subnet_sm *m, uint16_t slid, uint8_t smp[MAD_LEN]);

#endif
