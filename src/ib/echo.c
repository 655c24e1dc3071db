/* SPDX-License-Identifier: MIT */
#include "ib/echo.h"

#include "wire/ibt.h"

#include <string.h>

static uint8_t *put(struct frame_batch *out, uint8_t opcode, uint16_t pkey, uint32_t dqpn)
{
	struct frame_out *f = &out->frame[out->nframes++];

	memset(f, 0, sizeof(*f));
	f->hdr_len = BTH_LEN + ECHO_LEN;
	bth_put(f->hdr, opcode, false, 0, pkey, dqpn, false, 0);
	return f->hdr + BTH_LEN;
}

void ibt_echo_ask(struct frame_batch *out, uint16_t pkey, uint32_t asker, uint32_t asked, uint64_t sent)
{
	uint8_t *p = put(out, OPCODE_ECHO_REQUEST, pkey, asked);

	put_be32(p, asker);
	put_be32(p + 4, asked);
	put_be64(p + 8, sent);
}

bool ibt_echo_reply(const struct frame_in *in, uint16_t pkey, struct frame_batch *out)
{
	const uint8_t *q = in->bytes + BTH_LEN;

	if (bth_opcode(in->bytes) != OPCODE_ECHO_REQUEST || in->len != BTH_LEN + ECHO_LEN)
		return false;
	frame_dest_back(in, &out->dest);
	memcpy(put(out, OPCODE_ECHO_REPLY, pkey, get_be32(q) & 0xffffff), q, ECHO_LEN);
	return true;
}

bool ibt_echo_parse(const struct frame_in *in, uint32_t *asked, uint64_t *sent)
{
	const uint8_t *p = in->bytes + BTH_LEN;

	if (bth_opcode(in->bytes) != OPCODE_ECHO_REPLY || in->len != BTH_LEN + ECHO_LEN)
		return false;
	*asked = get_be32(p + 4) & 0xffffff;
	*sent = get_be64(p + 8);
	return true;
}
