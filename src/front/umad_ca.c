/* SPDX-License-Identifier: MIT */
/*
 * Adapters and ports: what a host of the fabric has. Asked anew each time, since LIDs and states change, and
 * from the fabric, not from files.
 */
#include "front/umad_front.h"

#include "base/cancel.h"
#include "base/env.h"
#include "base/log.h"

#include <endian.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/umad.h>

enum { STATE_ACTIVE = 4, PHYS_DISABLED = 3, PHYS_LINK_UP = 5, NODE_SWITCH = 2 };

_Static_assert(FABRIC_CA_NAME == UMAD_CA_NAME_LEN && FABRIC_CAS == UMAD_MAX_DEVICES &&
		       FABRIC_CA_PORTS == UMAD_CA_MAX_PORTS - 1,
	"fabric/proto.h has what umad.h has");

struct ca_answer {
	struct fabric_ca ca;
	struct fabric_ca_port port[FABRIC_CA_PORTS];
};

void umad_explain(int err)
{
	static atomic_bool said;
	const char *host = env_text(ANYRDMA_HOST), *fabric = env_text(ANYRDMA_FABRIC);

	if (atomic_exchange(&said, true))
		return;
	if (err == ENODEV)
		log_warn("the fabric has no host %s: `anyrdma fabric hosts` lists those it has",
			host ? host : "");
	else if (err == EPROTO)
		log_warn("the fabric was started by another version of anyrdma: `anyrdma fabric down`, then "
			 "up again");
	else if (err == ENOENT && fabric && *fabric)
		log_warn("there is no fabric %s here: start it with `anyrdma fabric up --name %s`", fabric,
			fabric);
	else if (err == ENOENT)
		log_warn("there is no InfiniBand fabric here, or more than one and ANYRDMA_FABRIC does not "
			 "say "
			 "which: start one with `anyrdma fabric up`, and programs on a host of it with "
			 "`anyrdma run --host NAME`");
	else
		log_warn("the fabric does not answer: %s", strerror(err));
}

/* ---- asking ---- */
/* Positive errno. */
static int ask_list(struct fabric_listed *l)
{
	struct fabric_where w;
	int n;

	fabric_where(&w, NULL, 0);
	n = fabric_ask(NULL, FABRIC_LIST, &w, sizeof(w), l, sizeof(*l));
	if (n < 0) {
		umad_explain(-n);
		return -n;
	}
	if (n != sizeof(*l) || l->ncas > FABRIC_CAS)
		return EPROTO;
	for (uint32_t i = 0; i < l->ncas; i++)
		l->ca[i][FABRIC_CA_NAME - 1] = '\0';
	return 0;
}

static int ask_ca(const char *name, struct ca_answer *a)
{
	struct fabric_where w;
	int n;

	fabric_where(&w, name, 0);
	n = fabric_ask(NULL, FABRIC_CA, &w, sizeof(w), a, sizeof(*a));
	if (n < 0) {
		if (n != -ENXIO) /* an adapter's name may be any, and be asked for in vain */
			umad_explain(-n);
		return n == -ENOENT || n == -ENXIO ? ENODEV : -n;
	}
	if ((size_t)n < sizeof(a->ca) || a->ca.nports > FABRIC_CA_PORTS ||
		(size_t)n != sizeof(a->ca) + a->ca.nports * sizeof(a->port[0]))
		return EPROTO;
	a->ca.name[sizeof(a->ca.name) - 1] = a->ca.fw_ver[sizeof(a->ca.fw_ver) - 1] = '\0';
	a->ca.hw_ver[sizeof(a->ca.hw_ver) - 1] = a->ca.type[sizeof(a->ca.type) - 1] = '\0';
	return 0;
}

/* ---- which one is meant ---- */
enum rank { RANK_NONE, RANK_ANY, RANK_UP, RANK_ACTIVE };

static enum rank rank_of(const struct fabric_ca_port *p)
{
	if (p->state == STATE_ACTIVE)
		return RANK_ACTIVE;
	if (p->phys == PHYS_LINK_UP)
		return RANK_UP;
	return p->phys == PHYS_DISABLED ? RANK_NONE : RANK_ANY;
}

static enum rank best_port(const struct ca_answer *a, uint32_t wanted, uint32_t *port)
{
	enum rank best = RANK_NONE;

	for (uint32_t i = 0; i < a->ca.nports; i++) {
		enum rank r = rank_of(&a->port[i]);

		if (wanted ? a->port[i].num != wanted : r <= best)
			continue;
		best = wanted && r == RANK_NONE ? RANK_ANY : r;
		*port = a->port[i].num;
	}
	return best;
}

static int first_active_ca(uint32_t wanted, char ca[FABRIC_CA_NAME], uint32_t *port)
{
	struct fabric_listed l;
	enum rank best = RANK_NONE;
	int err = ask_list(&l);

	if (err)
		return ENODEV;
	for (uint32_t i = 0; i < l.ncas; i++) {
		struct ca_answer a;
		uint32_t num;
		enum rank r = ask_ca(l.ca[i], &a) ? RANK_NONE : best_port(&a, wanted, &num);

		if (r <= best)
			continue;
		best = r;
		*port = num;
		memcpy(ca, l.ca[i], FABRIC_CA_NAME);
	}
	return best == RANK_NONE ? ENODEV : 0;
}

int umad_resolve(const char *ca_name, int portnum, char ca[FABRIC_CA_NAME], uint32_t *port)
{
	struct ca_answer a;
	int err;

	if (portnum < 0)
		return EINVAL;
	if (!ca_name)
		return first_active_ca((uint32_t)portnum, ca, port);
	err = ask_ca(ca_name, &a);
	if (err)
		return err;
	memcpy(ca, a.ca.name, FABRIC_CA_NAME);
	return best_port(&a, (uint32_t)portnum, port) == RANK_NONE ? ENODEV : 0;
}

/* ---- lists ---- */
int umad_init(void)
{
	CANCEL_SAFE;

	env_forget(); /* which host it is on may be set until here */
	log_init();
	return 0;
}

int umad_done(void)
{
	return 0;
}

int umad_get_cas_names(char cas[][UMAD_CA_NAME_LEN], int max)
{
	CANCEL_SAFE;
	struct fabric_listed l;
	int n = ask_list(&l) ? 0 : (int)l.ncas;

	if (n > max)
		n = max;
	for (int i = 0; cas && i < n; i++)
		memcpy(cas[i], l.ca[i], UMAD_CA_NAME_LEN);
	return n < 0 ? 0 : n;
}

void umad_free_ca_device_list(struct umad_device_node *head)
{
	while (head) {
		struct umad_device_node *next = head->next;

		free((void *)head->ca_name);
		free(head);
		head = next;
	}
}

struct umad_device_node *umad_get_ca_device_list(void)
{
	CANCEL_SAFE;
	struct umad_device_node *head = NULL, **end = &head;
	struct fabric_listed l;

	if (ask_list(&l))
		return NULL;
	for (uint32_t i = 0; i < l.ncas; i++) {
		struct umad_device_node *n = calloc(1, sizeof(*n));

		if (!n || !(n->ca_name = strdup(l.ca[i]))) {
			free(n);
			umad_free_ca_device_list(head);
			errno = ENOMEM;
			return NULL;
		}
		*end = n;
		end = &n->next;
	}
	return head;
}

/* By name; size is how many there are, as the caller thinks, and not needed. */
int umad_sort_ca_device_list(struct umad_device_node **head, size_t size)
{
	struct umad_device_node *sorted = NULL;

	if (!head)
		return EINVAL;
	for (struct umad_device_node *n = *head, *next; n; n = next) {
		struct umad_device_node **at = &sorted;

		next = n->next;
		while (*at && strcmp((*at)->ca_name, n->ca_name) <= 0)
			at = &(*at)->next;
		n->next = *at;
		*at = n;
	}
	*head = sorted;
	return 0;
}

/* ---- one adapter, one port ---- */
static int fill_port(umad_port_t *to, const char *ca, const struct fabric_ca_port *p)
{
	uint32_t npkeys = p->npkeys > FABRIC_PORT_PKEYS ? FABRIC_PORT_PKEYS : p->npkeys;

	memset(to, 0, sizeof(*to));
	to->pkeys = calloc(npkeys ? npkeys : 1, sizeof(*to->pkeys));
	if (!to->pkeys)
		return ENOMEM;
	memcpy(to->pkeys, p->pkey, npkeys * sizeof(*to->pkeys));
	to->pkeys_size = npkeys;
	snprintf(to->ca_name, sizeof(to->ca_name), "%s", ca);
	snprintf(to->link_layer, sizeof(to->link_layer), "InfiniBand");
	to->portnum = (int)p->num;
	to->base_lid = p->lid;
	to->lmc = p->lmc;
	to->sm_lid = p->sm_lid;
	to->sm_sl = p->sm_sl;
	to->state = p->state;
	to->phys_state = p->phys;
	to->rate = p->rate;
	to->capmask = htobe32(p->cap_mask);
	to->gid_prefix = htobe64(p->prefix);
	to->port_guid = htobe64(p->guid);
	return 0;
}

int umad_release_port(umad_port_t *port)
{
	free(port->pkeys);
	port->pkeys = NULL;
	return 0;
}

int umad_release_ca(umad_ca_t *ca)
{
	for (int i = 0; i < UMAD_CA_MAX_PORTS; i++) {
		if (!ca->ports[i])
			continue;
		umad_release_port(ca->ports[i]);
		free(ca->ports[i]);
		ca->ports[i] = NULL;
	}
	return 0;
}

static int fill_ca(umad_ca_t *ca, const struct ca_answer *a)
{
	memset(ca, 0, sizeof(*ca));
	memcpy(ca->ca_name, a->ca.name, sizeof(ca->ca_name));
	memcpy(ca->fw_ver, a->ca.fw_ver, sizeof(ca->fw_ver));
	memcpy(ca->hw_ver, a->ca.hw_ver, sizeof(ca->hw_ver));
	memcpy(ca->ca_type, a->ca.type, sizeof(ca->ca_type));
	ca->node_type = a->ca.node_type;
	ca->numports = (int)a->ca.nports;
	ca->node_guid = htobe64(a->ca.node_guid);
	ca->system_guid = htobe64(a->ca.system_guid);
	for (uint32_t i = 0; i < a->ca.nports; i++) {
		uint32_t num = a->port[i].num;

		if (!num || num >= UMAD_CA_MAX_PORTS || ca->ports[num])
			return EPROTO;
		ca->ports[num] = calloc(1, sizeof(*ca->ports[num]));
		if (!ca->ports[num] || fill_port(ca->ports[num], a->ca.name, &a->port[i]))
			return ENOMEM;
	}
	return 0;
}

static int get_ca(const char *ca_name, umad_ca_t *ca)
{
	char name[FABRIC_CA_NAME];
	struct ca_answer a;
	uint32_t port;
	int err = 0;

	if (!ca_name)
		err = first_active_ca(0, name, &port);
	if (!err)
		err = ask_ca(ca_name ? ca_name : name, &a);
	if (err)
		return err;
	err = fill_ca(ca, &a);
	if (err)
		umad_release_ca(ca);
	return err;
}

int umad_get_ca(const char *ca_name, umad_ca_t *ca)
{
	CANCEL_SAFE;
	int err = get_ca(ca_name, ca);

	return err ? umad_error(err) : 0;
}

int umad_get_port(const char *ca_name, int portnum, umad_port_t *port)
{
	CANCEL_SAFE;
	char ca[FABRIC_CA_NAME];
	struct ca_answer a;
	uint32_t num;
	int err = umad_resolve(ca_name, portnum, ca, &num);

	if (!err)
		err = ask_ca(ca, &a);
	for (uint32_t i = 0; !err && i < a.ca.nports; i++) {
		if (a.port[i].num != num)
			continue;
		err = fill_port(port, ca, &a.port[i]);
		return err ? umad_error(err) : 0;
	}
	return umad_error(err ? err : ENODEV);
}

int umad_get_ca_portguids(const char *ca_name, __be64 *portguids, int max)
{
	CANCEL_SAFE;
	umad_ca_t ca;
	int err = get_ca(ca_name, &ca), n = err ? 0 : ca.numports + 1;

	if (err)
		return umad_error(err);
	if (portguids && n > max)
		err = ENOMEM;
	for (int i = 0; portguids && !err && i < n; i++)
		portguids[i] = ca.ports[i] ? ca.ports[i]->port_guid : 0;
	umad_release_ca(&ca);
	return err ? umad_error(err) : n;
}

int umad_get_issm_path(const char *ca_name, int portnum, char path[], int max)
{
	CANCEL_SAFE;
	char ca[FABRIC_CA_NAME];
	struct fabric_where w;
	struct fabric_path answer;
	uint32_t port;
	int n = umad_resolve(ca_name, portnum, ca, &port);

	if (n)
		return umad_error(n);
	fabric_where(&w, ca, port);
	n = fabric_ask(NULL, FABRIC_ISSM, &w, sizeof(w), &answer, sizeof(answer));
	if (n != sizeof(answer))
		return umad_error(n < 0 ? -n : EPROTO);
	answer.path[sizeof(answer.path) - 1] = '\0';
	n = snprintf(path, max > 0 ? (size_t)max : 0, "%s", answer.path);
	return n >= max ? umad_error(ENAMETOOLONG) : 0;
}

/* ---- since rdma-core 50: an adapter's management may be two devices; here it is one ---- */
struct umad_ca_pair {
	char smi_name[UMAD_CA_NAME_LEN];
	uint32_t smi_preferred_port;
	char gsi_name[UMAD_CA_NAME_LEN];
	uint32_t gsi_preferred_port;
};

static void fill_pair(struct umad_ca_pair *pair, const char *ca, uint32_t port)
{
	memset(pair, 0, sizeof(*pair));
	snprintf(pair->smi_name, sizeof(pair->smi_name), "%s", ca);
	snprintf(pair->gsi_name, sizeof(pair->gsi_name), "%s", ca);
	pair->smi_preferred_port = pair->gsi_preferred_port = port;
}

int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max);
int umad_get_smi_gsi_pairs(struct umad_ca_pair cas[], size_t max)
{
	CANCEL_SAFE;
	struct fabric_listed l;
	size_t n = 0;

	if (ask_list(&l))
		return 0;
	for (uint32_t i = 0; i < l.ncas && n < max; i++) {
		char ca[FABRIC_CA_NAME];
		uint32_t port;

		if (!umad_resolve(l.ca[i], 0, ca, &port))
			fill_pair(&cas[n++], ca, port);
	}
	return (int)n;
}

int umad_get_smi_gsi_pair_by_ca_name(
	const char *devname, uint8_t portnum, struct umad_ca_pair *pair, unsigned enforce_smi);
int umad_get_smi_gsi_pair_by_ca_name(
	const char *devname, uint8_t portnum, struct umad_ca_pair *pair, unsigned enforce_smi)
{
	CANCEL_SAFE;
	char ca[FABRIC_CA_NAME];
	uint32_t port;
	int err = umad_resolve(devname, portnum, ca, &port);

	if (err)
		return umad_error(err);
	fill_pair(pair, ca, port);
	return 0;
}
