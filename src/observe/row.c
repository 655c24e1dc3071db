/* SPDX-License-Identifier: MIT */
/* Rows of the list, and what was told in words and as fields. */
#include "observe/row.h"

#include "wire/ibt.h"

#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- the rows ---- */
#define QPN(name)       {#name, FIELD_HEX24},
#define PSN(name)       {#name, FIELD_HEX24},
#define KEY(name)       {#name, FIELD_HEX32},
#define NUMBER(name)    {#name, FIELD_NUMBER},
#define HEX(name)       {#name, FIELD_HEX},
#define OPCODE(name)    {#name, FIELD_OPCODE},
#define STATE(name)     {#name, FIELD_STATE},
#define WR_OPCODE(name) {#name, FIELD_WR_OPCODE},
#define WC_OPCODE(name) {#name, FIELD_WC_OPCODE},
#define WC_STATUS(name) {#name, FIELD_WC_STATUS},
#define EVENT(name)     {#name, FIELD_EVENT},
#define ERRNO(name)     {#name, FIELD_ERRNO},
#define TEXT(name)      {#name, FIELD_TEXT},
#define OBJECT(name)    {#name, FIELD_OBJECT},

const struct probe_row probe_rows[PROBE_COUNT] = {
#define P(name, level, text, counted, fields) [PROBE_##name] = {#name, level, text, {fields}},
	PROBES(P)
#undef P
};

/* A field is found by its place. */
#define P(name, level, text, counted, fields)                                                                \
	_Static_assert(sizeof(struct probe_##name) == 8 * sizeof((struct probe_field[]){fields}) /           \
							      sizeof(struct probe_field) &&                  \
			       sizeof(struct probe_##name) <= 8 * FIELDS_MAX,                                \
		"eight bytes for each field");
PROBES(P)
#undef P

/* ---- names ---- */
#define NAME(prefix, name) [prefix##name] = #name
static const char *const qp_states[] = {NAME(IBV_QPS_, RESET), NAME(IBV_QPS_, INIT), NAME(IBV_QPS_, RTR),
	NAME(IBV_QPS_, RTS), NAME(IBV_QPS_, SQD), NAME(IBV_QPS_, SQE), NAME(IBV_QPS_, ERR)};
static const char *const wr_opcodes[] = {NAME(IBV_WR_, RDMA_WRITE), NAME(IBV_WR_, RDMA_WRITE_WITH_IMM),
	NAME(IBV_WR_, SEND), NAME(IBV_WR_, SEND_WITH_IMM), NAME(IBV_WR_, RDMA_READ),
	NAME(IBV_WR_, ATOMIC_CMP_AND_SWP), NAME(IBV_WR_, ATOMIC_FETCH_AND_ADD), NAME(IBV_WR_, LOCAL_INV),
	NAME(IBV_WR_, BIND_MW), NAME(IBV_WR_, SEND_WITH_INV)};
static const char *const wc_opcodes[] = {NAME(IBV_WC_, SEND), NAME(IBV_WC_, RDMA_WRITE),
	NAME(IBV_WC_, RDMA_READ), NAME(IBV_WC_, COMP_SWAP), NAME(IBV_WC_, FETCH_ADD), NAME(IBV_WC_, BIND_MW),
	NAME(IBV_WC_, LOCAL_INV), NAME(IBV_WC_, RECV), NAME(IBV_WC_, RECV_RDMA_WITH_IMM)};
static const char *const wc_statuses[] = {NAME(IBV_WC_, SUCCESS), NAME(IBV_WC_, LOC_LEN_ERR),
	NAME(IBV_WC_, LOC_QP_OP_ERR), NAME(IBV_WC_, LOC_EEC_OP_ERR), NAME(IBV_WC_, LOC_PROT_ERR),
	NAME(IBV_WC_, WR_FLUSH_ERR), NAME(IBV_WC_, MW_BIND_ERR), NAME(IBV_WC_, BAD_RESP_ERR),
	NAME(IBV_WC_, LOC_ACCESS_ERR), NAME(IBV_WC_, REM_INV_REQ_ERR), NAME(IBV_WC_, REM_ACCESS_ERR),
	NAME(IBV_WC_, REM_OP_ERR), NAME(IBV_WC_, RETRY_EXC_ERR), NAME(IBV_WC_, RNR_RETRY_EXC_ERR),
	NAME(IBV_WC_, REM_ABORT_ERR), NAME(IBV_WC_, FATAL_ERR), NAME(IBV_WC_, GENERAL_ERR)};
static const char *const events[] = {NAME(IBV_EVENT_, CQ_ERR), NAME(IBV_EVENT_, QP_FATAL),
	NAME(IBV_EVENT_, QP_REQ_ERR), NAME(IBV_EVENT_, QP_ACCESS_ERR), NAME(IBV_EVENT_, COMM_EST),
	NAME(IBV_EVENT_, SQ_DRAINED), NAME(IBV_EVENT_, PATH_MIG), NAME(IBV_EVENT_, PATH_MIG_ERR),
	NAME(IBV_EVENT_, DEVICE_FATAL), NAME(IBV_EVENT_, PORT_ACTIVE), NAME(IBV_EVENT_, PORT_ERR),
	NAME(IBV_EVENT_, LID_CHANGE), NAME(IBV_EVENT_, PKEY_CHANGE), NAME(IBV_EVENT_, SM_CHANGE),
	NAME(IBV_EVENT_, SRQ_ERR), NAME(IBV_EVENT_, SRQ_LIMIT_REACHED), NAME(IBV_EVENT_, QP_LAST_WQE_REACHED),
	NAME(IBV_EVENT_, CLIENT_REREGISTER), NAME(IBV_EVENT_, GID_CHANGE), NAME(IBV_EVENT_, WQ_FATAL)};

#define NAMES(table)                                                                                         \
	{                                                                                                    \
		table, sizeof(table) / sizeof(table[0])                                                      \
	}
static const struct names {
	const char *const *name;
	unsigned n;
} names[] = {
	[FIELD_STATE] = NAMES(qp_states),
	[FIELD_WR_OPCODE] = NAMES(wr_opcodes),
	[FIELD_WC_OPCODE] = NAMES(wc_opcodes),
	[FIELD_WC_STATUS] = NAMES(wc_statuses),
	[FIELD_EVENT] = NAMES(events),
};

/* ---- text ---- */
struct text {
	char *buf;
	size_t size, len;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *fmt, ...)
{
	va_list ap;
	int more;

	va_start(ap, fmt);
	more = vsnprintf(t->buf + t->len, t->size - t->len, fmt, ap);
	va_end(ap);
	t->len += (size_t)more < t->size - t->len ? (size_t)more : t->size - t->len - 1;
}

static void add_name(struct text *t, enum probe_field_type type, uint64_t value)
{
	const struct names *n = &names[type];

	if (value < n->n && n->name[value])
		add(t, "%s", n->name[value]);
	else
		add(t, "%" PRIu64, value);
}

/* Of the field in that place of a probe's struct. */
static void add_value(struct text *t, enum probe_field_type type, const void *values, unsigned place)
{
	const char *at = (const char *)values + 8 * place;
	const char *text;
	uint64_t value;
	char buf[64];

	memcpy(&value, at, sizeof(value));
	memcpy(&text, at, sizeof(text));
	switch (type) {
	case FIELD_HEX:
		add(t, "0x%" PRIx64, value);
		break;
	case FIELD_HEX24:
		add(t, "0x%06" PRIx64, value);
		break;
	case FIELD_HEX32:
		add(t, "0x%08" PRIx64, value);
		break;
	case FIELD_OPCODE:
		add(t, "%s", ibt_op_name((uint8_t)value, buf));
		break;
	case FIELD_ERRNO:
		add(t, "%s", strerror_r((int)value, buf, sizeof(buf)));
		break;
	case FIELD_TEXT:
		add(t, "%s", text ? text : "-");
		break;
	case FIELD_NUMBER:
	case FIELD_OBJECT:
	case FIELD_END:
		add(t, "%" PRId64, (int64_t)value); /* a descriptor may be -1 */
		break;
	default:
		add_name(t, type, value);
	}
}

size_t probe_in_fields(enum probe p, const void *values, char *buf, size_t size)
{
	struct text t = {buf, size, 0};
	const struct probe_row *row = &probe_rows[p];

	add(&t, "%s", row->name);
	for (unsigned i = 0; row->field[i].type != FIELD_END; i++) {
		enum probe_field_type type = row->field[i].type;
		/* Texts and names of two words can be told apart. */
		const char *quote =
			type == FIELD_TEXT || type == FIELD_OPCODE || type == FIELD_ERRNO ? "\"" : "";

		if (type == FIELD_OBJECT)
			continue;
		add(&t, " %s=%s", row->field[i].name, quote);
		add_value(&t, type, values, i);
		add(&t, "%s", quote);
	}
	return t.len;
}

/* The place of the field whose name is s[0..n); FIELDS_MAX: there is none. */
static unsigned place_of(const struct probe_row *row, const char *s, size_t n)
{
	for (unsigned i = 0; i < FIELDS_MAX && row->field[i].type != FIELD_END; i++) {
		if (strlen(row->field[i].name) == n && !memcmp(row->field[i].name, s, n))
			return i;
	}
	return FIELDS_MAX;
}

size_t probe_in_words(enum probe p, const void *values, char *buf, size_t size)
{
	struct text t = {buf, size, 0};
	const struct probe_row *row = &probe_rows[p];

	for (const char *s = row->text ? row->text : row->name; *s;) {
		size_t plain = strcspn(s, "{"), n = strcspn(s + plain, "}");
		unsigned place;

		add(&t, "%.*s", (int)plain, s);
		s += plain;
		if (!*s)
			break;
		place = place_of(row, s + 1, n - 1);
		if (place < FIELDS_MAX)
			add_value(&t, row->field[place].type, values, place);
		s += n + 1;
	}
	return t.len;
}
