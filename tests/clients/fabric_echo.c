/* SPDX-License-Identifier: MIT */
/*
 * fabric_echo PROVIDER ADDRESS PORT [client]: tagged messages of growing sizes to who listens there and back,
 * by libfabric's reliable datagrams; every byte is looked at on both ends. fi_pingpong says no address, so it
 * takes the first.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_tagged.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 1 << 20, ROUNDS = 5, NAME = 128 };

static struct fid_ep *ep;
static struct fid_cq *cq;
static struct fid_av *av;
static unsigned char *out, *in;

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

	hints->ep_attr->type = FI_EP_RDM;
	hints->caps = FI_TAGGED;
	hints->addr_format = FI_SOCKADDR_IN;
	hints->fabric_attr->prov_name = strdup(args[1]);
	need("fi_getinfo",
		fi_getinfo(FI_VERSION(1, 14), args[2], args[3], client ? 0 : FI_SOURCE, hints, &info));
	fi_freeinfo(hints);
	return info;
}

static void set_up(struct fi_info *info)
{
	struct fi_cq_attr ask_cq = {.format = FI_CQ_FORMAT_TAGGED, .size = 64};
	struct fi_av_attr ask_av = {.type = FI_AV_TABLE, .count = 2};
	struct fid_fabric *fabric;
	struct fid_domain *domain;

	need("fi_fabric", fi_fabric(info->fabric_attr, &fabric, NULL));
	need("fi_domain", fi_domain(fabric, info, &domain, NULL));
	need("fi_cq_open", fi_cq_open(domain, &ask_cq, &cq, NULL));
	need("fi_av_open", fi_av_open(domain, &ask_av, &av, NULL));
	need("fi_endpoint", fi_endpoint(domain, info, &ep, NULL));
	need("fi_ep_bind", fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	need("fi_ep_bind", fi_ep_bind(ep, &av->fid, 0));
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

static void take(size_t len)
{
	ssize_t err;

	while ((err = fi_trecv(ep, in, len, NULL, FI_ADDR_UNSPEC, 1, 0, NULL)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	need("fi_trecv", err);
	wait_for(FI_RECV);
}

static void give(fi_addr_t to, size_t len)
{
	ssize_t err;

	while ((err = fi_tsend(ep, out, len, NULL, to, 1, NULL)) == -FI_EAGAIN)
		fi_cq_read(cq, NULL, 0);
	need("fi_tsend", err);
	wait_for(FI_SEND);
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
	size_t name_len = NAME;
	fi_addr_t peer;

	out = calloc(1, LARGEST);
	in = calloc(1, LARGEST);
	set_up(info);
	if (client) {
		peer = known(info->dest_addr);
		need("fi_getname", fi_getname(&ep->fid, out, &name_len));
		give(peer, NAME);
	} else {
		printf("listening\n");
		fflush(stdout);
		take(NAME);
		peer = known(in);
	}
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
