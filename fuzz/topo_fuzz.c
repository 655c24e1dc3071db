/* SPDX-License-Identifier: MIT */
/* Descriptions of subnets: any text is read or refused in words, and what was read is written and read alike.
 */
#include "subnet/topo_parse.h"
#include "subnet/topo_write.h"

#include <stdlib.h>
#include <string.h>

static const struct subnet_ops nobody;

/* Two nodes with one GUID would have one name in what is written. */
static bool guids_differ(const struct subnet *s)
{
	for (unsigned i = 0; i < subnet_nodes(s); i++)
		for (unsigned k = 0; k < i; k++)
			if (subnet_node(s, i)->guid == subnet_node(s, k)->guid)
				return false;
	return true;
}

static void read_back(const struct subnet *s, const struct topo *t)
{
	struct subnet *again = subnet_open(&nobody, NULL, 1);
	struct topo topo = {0};
	char err[TOPO_ERROR];
	size_t len;
	char *text = topo_write(s, t, &len);

	if (!text || !again || topo_parse(again, &topo, text, len, err) ||
		subnet_nodes(again) != subnet_nodes(s) || topo.nips != t->nips)
		abort();
	free(text);
	topo_fini(&topo);
	subnet_close(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct subnet *s = subnet_open(&nobody, NULL, 1);
	struct topo t = {0};
	char err[TOPO_ERROR] = "";

	if (!topo_parse(s, &t, (const char *)data, size, err)) {
		if (guids_differ(s) && !topo_complete(&t, s))
			read_back(s, &t);
	} else if (!*err) {
		abort();
	}
	topo_fini(&t);
	subnet_close(s);
	return 0;
}
