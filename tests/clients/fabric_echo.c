/* SPDX-License-Identifier: MIT */
/*
 * fabric_echo PROVIDER ADDRESS PORT [client]: messages of growing sizes to who listens there and back, by
 * libfabric: tagged ones between reliable datagrams, or with the provider `verbs` on a connection. The
 * address is an IP address, or as libfabric says GIDs: [GID]:P_Key:port space:scope. Every byte is looked at
 * on both ends. fi_pingpong says no address, so it takes the first.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_tagged.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, ROUNDS = 5, NAME = 128 };

static bool connected; /* by a connection */
static struct fid_fabric *fabric;
static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_eq *eq;
static struct fid_av *av;
static struct fid_mr *mr;
static unsigned char *out, *in; /* of one region */

static void need(const char *what, ssize_t err)
{
	if (err >= 0)
		return;
	printf("%s: %s\n", what, fi_strerror((int)-err));
	exit(1);
}

static struct fi_info *find(char **args, bool client)
{
	struct fi_info *hints = fi_allocinfo(), *info;

	connected = !strcmp(args[1], "verbs");
	hints->ep_attr->type = connected ? FI_EP_MSG : FI_EP_RDM;
	hints->caps = connected ? FI_MSG : FI_TAGGED;
	hints->addr_format = strchr(args[2], ':') ? FI_SOCKADDR_IB : FI_SOCKADDR_IN;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_VIRT_ADDR | FI_MR_PROV_KEY;
	hints->fabric_attr->prov_name = strdup(args[1]);
	need("fi_getinfo",
		fi_getinfo(FI_VERSION(1, 14), args[2], args[3], client ? 0 : FI_SOURCE, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static void set_up(struct fi_info *info)
{
	struct fi_cq_attr ask_cq = {.format = connected ? FI_CQ_FORMAT_MSG : FI_CQ_FORMAT_TAGGED, .size = 64};
	struct fi_av_attr ask_av = {.type = FI_AV_TABLE, .count = 2};
	struct fid_domain *domain;

	need("fi_domain", fi_domain(fabric, info, &domain, NULL));
	need("fi_cq_open", fi_cq_open(domain, &ask_cq, &cq, NULL));
	need("fi_mr_reg", fi_mr_reg(domain, out, 2 * LARGEST, FI_SEND | FI_RECV, 0, 0, 0, &mr, NULL));
	need("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	need("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	if (connected) {
		need("fi_ep_bind", fi_ep_bind(ep, &eq->fid, 0));
	} else {
		need("fi_av_open", fi_av_open(domain, &ask_av, &av, NULL));
		need("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
	}
	need("fi_enable", fi_enable(ep));
}

static fi_addr_t known(const void *name)
{
	fi_addr_t at;

	need("fi_av_insert", fi_av_insert(av, name, 1, &at, 0, NULL) == 1 ? 0 : -FI_EINVAL);
	return at;
}

static void wait_for(uint64_t flag)
{
	static unsigned sent, received;
	struct fi_cq_tagged_entry e;
	ssize_t n;

	while (flag & FI_SEND ? !sent : !received) {
		n = fi_cq_read(cq, &e, 1);
		if (n == -FI_EAGAIN)
			continue;
		need("fi_cq_read", n);
		sent += !!(e.flags & FI_SEND);
		received += !!(e.flags & FI_RECV);
	}
	*(flag & FI_SEND ? &sent : &received) -= 1;
}

static ssize_t post_receive(size_t len)
{
	return connected ? fi_recv(ep, in, len, fi_mr_desc(mr), FI_ADDR_UNSPEC, NULL)
			 : fi_trecv(ep, in, len, fi_mr_desc(mr), FI_ADDR_UNSPEC, 1, 0, NULL);
}

static ssize_t post_send(fi_addr_t to, size_t len)
{
	return connected ? fi_send(ep, out, len, fi_mr_desc(mr), to, NULL)
			 : fi_tsend(ep, out, len, fi_mr_desc(mr), to, 1, NULL);
}

static void take(size_t len)
{
	ssize_t err;

	while ((err = post_receive(len)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	need("receive", err);
	wait_for(FI_RECV);
}

static void give(fi_addr_t to, size_t len)
{
	ssize_t err;

	while ((err = post_send(to, len)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	need("send", err);
	wait_for(FI_SEND);
}

/* ---- with a connection ---- */
static struct fi_info *await_event(uint32_t wanted)
{
	struct fi_eq_cm_entry e;
	uint32_t event = 0;

	need("fi_eq_sread", fi_eq_sread(eq, &event, &e, sizeof(e), -1, 0));
	need("event", event == wanted ? 0 : -FI_EOTHER);
	return e.info;
}

static void connect_to(struct fi_info *info)
{
	set_up(info);
	need("fi_connect", fi_connect(ep, info->dest_addr, NULL, 0));
	await_event(FI_CONNECTED);
}

static void accept_one(struct fi_info *info)
{
	struct fid_pep *pep;

	need("fi_passive_ep", fi_passive_ep(fabric, info, &pep, NULL));
	need("fi_pep_bind", fi_pep_bind(pep, &eq->fid, 0));
	need("fi_listen", fi_listen(pep));
	printf("listening\n");
	fflush(stdout);
	set_up(await_event(FI_CONNREQ));
	need("fi_accept", fi_accept(ep, NULL, 0));
	await_event(FI_CONNECTED);
}

static fi_addr_t meet_connected(struct fi_info *info, bool client)
{
	struct fi_eq_attr ask_eq = {.wait_obj = FI_WAIT_UNSPEC};

	need("fi_eq_open", fi_eq_open(fabric, &ask_eq, &eq, NULL));
	if (client)
		connect_to(info);
	else
		accept_one(info);
	return FI_ADDR_UNSPEC;
}

/* ---- without: the client says who it is ---- */
static fi_addr_t meet(struct fi_info *info, bool client)
{
	size_t name_len = NAME;
	fi_addr_t peer;

	set_up(info);
	if (!client) {
		printf("listening\n");
		fflush(stdout);
		take(NAME);
		return known(in);
	}
	peer = known(info->dest_addr);
	need("fi_getname", fi_getname(&ep->fid, out, &name_len));
	give(peer, NAME);
	return peer;
}

static void fill(unsigned char *p, size_t len, unsigned round)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(i * 7 + round + len);
}

static void compare(size_t len, unsigned round)
{
	fill(out, len, round);
	if (!memcmp(in, out, len))
		return;
	printf("%zu bytes, round %u: invalid data\n", len, round);
	exit(1);
}

int main(int argc, char **argv)
{
	bool client = argc == 5;
	struct fi_info *info = find(argv, client);
	fi_addr_t peer;

	out = calloc(2, LARGEST);
	in = out + LARGEST;
	need("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	peer = connected ? meet_connected(info, client) : meet(info, client);
	for (size_t len = 1; len <= LARGEST; len *= 4) {
		for (unsigned round = 0; round < ROUNDS; round++) {
			if (client) {
				fill(out, len, round);
				give(peer, len);
			}
			take(len);
			compare(len, round);
			if (!client)
				give(peer, len);
		}
	}
	printf("%d bytes and back by %s, %s\n", LARGEST, info->domain_attr->name,
		info->fabric_attr->prov_name);
	return 0;
}
