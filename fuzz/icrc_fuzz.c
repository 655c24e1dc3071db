/* SPDX-License-Identifier: MIT */
/* The ICRC check on any bytes of any length; what it accepts with an exact id it accepts with any. */
#include "wire/icrc.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct icrc_flow flow = {
		.src = {[10] = 0xff, [11] = 0xff, [15] = 1}, .dst = {[10] = 0xff, [11] = 0xff, [15] = 2}};
	bool exact, any;

	if (size && (data[0] & 1))
		flow.dst[0] = 0xfd; /* IPv6 */
	exact = icrc_check(&flow, data, size, true, 0);
	any = icrc_check(&flow, data, size, false, 0);
	if (exact && !any)
		abort();
	return 0;
}
