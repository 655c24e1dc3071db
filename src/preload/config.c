/* SPDX-License-Identifier: MIT */
/* Without anything said, stream sockets go by RDMA and datagrams do not: a stream falls back to TCP where the
 * peer knows no RDMA, a datagram has nothing to fall back from and would reach a plain peer with a header it
 * does not know. ANYRDMA_SOCKETS says which: stream, dgram or all. The stock library's file, when it is
 * there, says which programs and which of their sockets. */
#include "preload/config.h"

#include "base/env.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONFIG_FILE "/etc/rdma/rsocket/preload_config"

/* A line of the file: program, domain, type, protocol; "*" or 0 is any. */
struct rule {
	char program[64];
	int domain, type, protocol;
};

static struct rule *rules;
static int nrules = -1; /* no file */
static bool streams, datagrams;

/* The words of the file, as they are or with the prefix of the C constant. */
static const struct word {
	const char *name;
	const char *prefix;
	int value;
} domains[] = {{"INET", "AF_", AF_INET}, {"INET6", "AF_", AF_INET6}, {"INET", "PF_", AF_INET},
	{"INET6", "PF_", AF_INET6}, {}},
  types[] = {{"STREAM", "SOCK_", SOCK_STREAM}, {"DGRAM", "SOCK_", SOCK_DGRAM}, {}},
  protocols[] = {{"TCP", "IPPROTO_", IPPROTO_TCP}, {"UDP", "IPPROTO_", IPPROTO_UDP}, {}};

static bool parse(const char *text, const struct word *words, int *value)
{
	*value = 0;
	if (!strcmp(text, "*"))
		return true;
	for (; words->name; words++) {
		size_t n = strlen(words->prefix);

		if (!strcasecmp(text, words->name) ||
			(!strncasecmp(text, words->prefix, n) && !strcasecmp(text + n, words->name))) {
			*value = words->value;
			return true;
		}
	}
	return false;
}

static void add_line(const char *line)
{
	char domain[16], type[16], protocol[16];
	struct rule r, *more;

	if (*line == '#' || sscanf(line, "%63s %15s %15s %15s", r.program, domain, type, protocol) != 4 ||
		!parse(domain, domains, &r.domain) || !parse(type, types, &r.type) ||
		!parse(protocol, protocols, &r.protocol))
		return;
	more = realloc(rules, (nrules + 1) * sizeof(*rules));
	if (!more)
		return;
	rules = more;
	rules[nrules++] = r;
}

static void read_environment(void)
{
	enum { STREAM, DGRAM, ALL }; /* in the order of the words in base/env.h */
	int64_t wanted;

	env_quiet = true; /* libibverbs tells of it */
	log_init();
	env_quiet = false;
	wanted = env_value(ANYRDMA_SOCKETS);
	if (wanted == ENV_UNSET)
		wanted = nrules > 0 ? ALL : STREAM;
	streams = wanted != DGRAM;
	datagrams = wanted != STREAM;
}

static void read_config(void)
{
	FILE *file = fopen(CONFIG_FILE, "re");
	char line[160];

	if (file) {
		nrules = 0;
		while (fgets(line, sizeof(line), file))
			add_line(line);
		fclose(file);
	}
	read_environment();
}

static bool matches(const struct rule *r, int domain, int type, int protocol)
{
	return (!strcmp(r->program, "*") ||
		       !strncasecmp(r->program, program_invocation_short_name, strlen(r->program))) &&
	       (!r->domain || r->domain == domain) && (!r->type || r->type == type) &&
	       (!r->protocol || r->protocol == protocol);
}

bool config_wants(int domain, int type, int protocol)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int usual = type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;

	if ((domain != AF_INET && domain != AF_INET6) || (type != SOCK_STREAM && type != SOCK_DGRAM) ||
		(protocol && protocol != usual))
		return false;
	pthread_once(&once, read_config);
	if (!(type == SOCK_STREAM ? streams : datagrams))
		return false;
	for (int i = 0; i < nrules; i++)
		if (matches(&rules[i], domain, type, usual))
			return true;
	return nrules <= 0;
}

int config_silence_ms(void)
{
	return (int)env_value(ANYRDMA_SOCKETS_SILENCE);
}

static void apply(int rs, int option, enum env variable)
{
	int value = (int)env_value(variable);

	if (value != ENV_UNSET)
		rsetsockopt(rs, SOL_RDMA, option, &value, sizeof(value));
}

void config_apply(int rs)
{
	apply(rs, RDMA_SQSIZE, RS_SQ_SIZE);
	apply(rs, RDMA_RQSIZE, RS_RQ_SIZE);
	apply(rs, RDMA_INLINE, RS_INLINE);
}
