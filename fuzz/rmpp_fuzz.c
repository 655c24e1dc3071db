/* SPDX-License-Identifier: MIT */
/*
 * Any MADs into the MAD layer of an InfiniBand port whose agents send and receive messages in segments. The
 * input is a list of moves: a MAD (as it is, or made to fit what is on its way), a message that an agent
 * sends, time that passes, agents that come and go. What the port sends goes nowhere, or back into it.
 */
#include "mad/ib/port.h"

#include "input.h"
#include "wire/rmpp.h"

enum { AGENTS = 4, SA = 3, PING = 0x32, KEPT = 8 };
enum { FIT_HEADER = 1, FIT_RMPP = 2, FIT_TID = 4, FROM_OTHER = 8, ECHO = 16 };

static struct ibmad_port port;
static struct ibmad_agent *agent[AGENTS];
static uint8_t kept[KEPT][MAD_LEN]; /* what the port sent last */
static unsigned nkept;
static uint64_t now;

static void on_send(void *arg, unsigned qp, const struct ibmad_addr *to, const uint8_t mad[MAD_LEN])
{
	must(qp <= 1);
	memcpy(kept[nkept++ % KEPT], mad, MAD_LEN);
}

static void on_deliver(void *arg, struct ibmad_agent *a, const struct ibmad_addr *from, unsigned status,
	const uint8_t *msg, size_t len)
{
	volatile uint8_t sum = 0;
	bool known = false;

	for (unsigned i = 0; i < AGENTS; i++)
		known |= agent[i] == a;
	must(known && len >= MAD_HDR_LEN && len <= IBMAD_MAX_MESSAGE);
	for (size_t i = 0; i < len; i++)
		sum = (uint8_t)(sum + msg[i]);
}

static const struct ibmad_ops ops = {on_send, on_deliver};

static void come_and_go(struct input *in)
{
	unsigned i = draw_u8(in) % AGENTS;
	uint8_t how = draw_u8(in);
	struct ibmad_reg reg = {.takes = {how & 1 ? SA : PING, how & 1 ? 2 : 1, {draw_u32(in), 0}},
		.oui = {0, 0x14, 5},
		.qp = 1,
		.rmpp_version = how >> 1 & 1,
		.user_rmpp = how >> 2 & 1};

	if (agent[i]) {
		ibmad_unregister(agent[i]);
		agent[i] = NULL;
	} else if (ibmad_register(&port, &reg, NULL, &agent[i])) {
		agent[i] = NULL;
	}
}

static void send(struct input *in)
{
	struct ibmad_agent *a = agent[draw_u8(in) % AGENTS];
	uint8_t how = draw_u8(in);
	size_t len = draw_u16(in);
	struct ibmad_addr to = {.qpn = 1, .lid = how & FROM_OTHER ? 3 : 2};
	uint8_t *msg;

	if (!a)
		return;
	msg = calloc(1, len ? len : 1);
	must(msg != NULL);
	draw(in, msg, len < 64 ? len : 64);
	if (len >= RMPP_HDR_END && how & FIT_HEADER) {
		memcpy(msg, (uint8_t[]){1, a->reg.takes.mgmt_class, a->reg.takes.class_version}, 3);
		rmpp_hdr_put(msg, &(struct rmpp_hdr){1, RMPP_DATA, RMPP_ACTIVE, 0, 0, 0});
	}
	ibmad_send(a, &to, msg, len, draw_u16(in) % 4000, draw_u8(in) % 4, now);
	free(msg);
}

static void receive(struct input *in)
{
	uint8_t how = draw_u8(in), mad[MAD_LEN];
	struct ibmad_addr from = {.qpn = 1, .lid = how & FROM_OTHER ? 3 : 2};

	draw(in, mad, 64);
	memset(mad + 64, how, MAD_LEN - 64);
	if (how & ECHO)
		memcpy(mad, kept[mad[0] % KEPT], MAD_LEN);
	if (how & FIT_HEADER)
		memcpy(mad, (uint8_t[]){1, mad[1] & 1 ? SA : PING, mad[1] & 1 ? 2 : 1}, 3);
	if (how & FIT_TID)
		memcpy(mad + 8, kept[mad[15] % KEPT] + 8, 8);
	if (how & FIT_RMPP) {
		mad[24] = 1;
		mad[25] = 1 + mad[25] % 4;
		mad[26] |= RMPP_ACTIVE;
		mad[27] = 0;
		put_be32(mad + 28, get_be32(mad + 28) % 200);
		put_be32(mad + 32, get_be32(mad + 32) % 300);
	}
	ibmad_receive(&port, 1, &from, mad, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, data + size};

	now = 1;
	nkept = 0;
	memset(kept, 0, sizeof(kept));
	ibmad_port_init(&port, &ops, NULL);
	while (in.at < in.end) {
		switch (draw_u8(&in) % 4) {
		case 0:
			come_and_go(&in);
			break;
		case 1:
			send(&in);
			break;
		case 2:
			receive(&in);
			break;
		case 3:
			now += draw_u16(&in) * 1000000ull;
			ibmad_expire(&port, now);
			must(ibmad_deadline(&port) > now);
			break;
		}
		must(port.held <= IBMAD_MAX_HELD);
	}
	for (unsigned i = 0; i < AGENTS; i++)
		agent[i] = NULL;
	ibmad_port_fini(&port);
	must(port.held == 0);
	return 0;
}
