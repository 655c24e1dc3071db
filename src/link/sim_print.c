/* SPDX-License-Identifier: MIT */
/* A packet of the simulated network as a line, for people. */
#include "link/sim.h"

#include "base/bytes.h"
#include "wire/ibt.h"

#include <stdio.h>

static void print_aeth(FILE *out, const uint8_t *aeth)
{
	static const char *const nak[] = {"sequence", "invalid request", "access", "operation", "invalid RD"};
	unsigned value = aeth_syndrome(aeth) & AETH_VALUE_MASK;

	switch (aeth_syndrome(aeth) & AETH_TYPE_MASK) {
	case AETH_ACK:
		break;
	case AETH_RNR:
		fprintf(out, " RNR %u us,", (unsigned)(ibt_rnr_ns(value) / 1000));
		break;
	default:
		fprintf(out, " NAK %s,", value < sizeof(nak) / sizeof(nak[0]) ? nak[value] : "reserved");
	}
	fprintf(out, " MSN %u,", aeth_msn(aeth));
}

/* What a request asks for: where, or for whom. */
static void print_request(FILE *out, const uint8_t *bth, unsigned flags)
{
	const uint8_t *ext = bth + BTH_LEN;

	if ((bth_opcode(bth) & IBT_SERVICE_MASK) == IBT_UD) {
		fprintf(out, " from QP 0x%06x,", get_be24(ext + 5));
		ext += DETH_LEN;
	}
	if (flags & OPF_RETH)
		fprintf(out, " %u at 0x%llx,", reth_get(ext).len, (unsigned long long)reth_get(ext).va);
	if (flags & OPF_ATOMICETH)
		fprintf(out, " at 0x%llx,", (unsigned long long)atomiceth_get(ext).va);
	if (flags & OPF_IETH)
		fprintf(out, " invalidates 0x%08x,", get_be32(ext));
}

void sim_trace_print(void *file, const struct sim_packet *p)
{
	const struct ibt_op_info *op = ibt_op_lookup(bth_opcode(p->bytes));
	char name[32], to[8] = "?";
	FILE *out = file;

	if (p->to < SIM_PORTS)
		snprintf(to, sizeof(to), "%u", p->to);
	fprintf(out, "%12.3f us  %u -> %s  %-21s QP 0x%06x PSN 0x%06x%s, %u bytes,", (double)p->at / 1000,
		p->from, to, ibt_op_name(bth_opcode(p->bytes), name), bth_dqpn(p->bytes), bth_psn(p->bytes),
		bth_ackreq(p->bytes) ? " A" : "", p->len);
	if (op && (op->flags & OPF_AETH))
		print_aeth(out, p->bytes + BTH_LEN);
	if (op && (op->flags & OPF_REQUEST))
		print_request(out, p->bytes, op->flags);
	fprintf(out, " %s", sim_fate_name(p->fate));
	if (p->arrives)
		fprintf(out, " at %.3f", (double)p->arrives / 1000);
	if (p->arrives_again)
		fprintf(out, " and %.3f", (double)p->arrives_again / 1000);
	fputc('\n', out);
}
