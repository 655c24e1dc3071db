/* SPDX-License-Identifier: MIT */
#include "host/counters.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdio.h>

#define NOTHING
#define P(name, level, text, counted, fields) counted

struct text {
	char s[400];
	size_t len;
};

static void add(struct text *t, const char *name, uint64_t n)
{
	int more;

	if (!n)
		return;
	more = snprintf(t->s + t->len, sizeof(t->s) - t->len, " %s=%" PRIu64, name, n);
	t->len += (size_t)more < sizeof(t->s) - t->len ? (size_t)more : sizeof(t->s) - t->len - 1;
}

void host_counters_log_qp(const struct host_qp_counters *c)
{
	struct text t = {.len = 0};

	if (log_level < LOG_INFO)
		return;
#define QP_COUNTER(name) add(&t, #name, c->name);
#define QP_SUM(name)     add(&t, #name, c->name);
#define ADAPTER_COUNTER(name)
#define ADAPTER_SUM(name)
	PROBES(P)
#undef QP_COUNTER
#undef QP_SUM
#undef ADAPTER_COUNTER
#undef ADAPTER_SUM
	log_info("QP 0x%06x counters:%s", c->qpn, t.len ? t.s : " none");
}

void host_counters_log_adapter(const struct host_adapter_counters *c)
{
	struct text t = {.len = 0};

	if (log_level < LOG_INFO)
		return;
#define QP_COUNTER(name)
#define QP_SUM(name)
#define ADAPTER_COUNTER(name) add(&t, #name, c->name);
#define ADAPTER_SUM(name)     add(&t, #name, c->name);
	PROBES(P)
#undef QP_COUNTER
#undef QP_SUM
#undef ADAPTER_COUNTER
#undef ADAPTER_SUM
	log_info("adapter counters:%s", t.len ? t.s : " none");
}
