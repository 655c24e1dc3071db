/* SPDX-License-Identifier: MIT */
/*
 * M_Key: who may manage a port (IBA volume 1, 14.2.4). A port that has a key acts on nothing that changes it
 * without that key, and with protection bits 2 and 3 shows nothing either. What it refuses it does not
 * answer: it counts it and raises trap 256.
 *
 *   protection   Get without the key                 Set, TrapRepress without it
 *   0            answered                            refused
 *   1            answered, the key shown as 0        refused
 *   2, 3         refused                             refused
 *
 * A manager that died with the key would lock the port for good: so a refusal starts the lease, if there is
 * one, and when nobody who has the key is heard until it runs out, the protection bits become 0.
 */
#include "subnet/parts.h"

#include "wire/smp.h"

static bool needs_key(const struct port_agent *a, uint8_t method)
{
	switch (method) {
	case MAD_METHOD_GET:
		return a->mkey_protect >= 2;
	case MAD_METHOD_SET:
	case MAD_METHOD_TRAP_REPRESS:
		return true;
	default:
		return false;
	}
}

static void start_lease(struct subnet *s, struct port_agent *a)
{
	if (!a->mkey_lease || a->lease_due != SUBNET_NEVER)
		return;
	a->lease_due = s->now + a->mkey_lease * 1000000000ull;
	agent_arm(s, a, a->lease_due);
}

bool mkey_allows(struct subnet *s, struct port_agent *a, const struct packet *p, const uint8_t *smp)
{
	if (!a->mkey || smp_mkey(smp) == a->mkey) {
		a->lease_due = SUBNET_NEVER;
		return true;
	}
	if (!needs_key(a, smp[3]))
		return true;
	if (a->mkey_violations != UINT16_MAX)
		a->mkey_violations++;
	start_lease(s, a);
	trap_bad_mkey(a, p, smp);
	return false;
}

void mkey_expire(struct subnet *s, struct port_agent *a)
{
	if (a->lease_due == SUBNET_NEVER)
		return;
	if (a->lease_due > s->now) {
		agent_arm(s, a, a->lease_due);
		return;
	}
	a->lease_due = SUBNET_NEVER;
	a->mkey_protect = 0;
}
