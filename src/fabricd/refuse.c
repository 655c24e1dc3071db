/* SPDX-License-Identifier: MIT */
#include "fabricd/fabricd.h"
#include "wire/cm_msg.h"

bool gsi_refuse(const struct fabricd *d, const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN], uint64_t now)
{
	if (cm_refuse(mad, answer))
		return true;
	return now >= d->started + GSI_RETURN_NS && cm_answer_for_dead(mad, answer);
}
