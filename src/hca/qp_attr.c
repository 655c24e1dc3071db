/* SPDX-License-Identifier: MIT */
/*
 * Which attributes each arrow of the QP state machine must and may bring, per type: IBA volume 1, table 91
 * ("QP state transition properties"), a row per arrow. The last column is iWARP's: its queue pairs have no
 * path, and come to RTS with their connection (iwarp/conn.h), from INIT or RTR.
 */
#include "hca/qp.h"

#include "base/log.h"

#include <errno.h>

enum { IWARP = 3, COLUMNS }; /* of services: hca/service.h */

#define ALT  (IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE)
#define BASE (IBV_QP_PKEY_INDEX | IBV_QP_PORT)
#define ACC  IBV_QP_ACCESS_FLAGS
#define CUR  IBV_QP_CUR_STATE
#define KEY  IBV_QP_QKEY
#define PKI  IBV_QP_PKEY_INDEX
#define RNR  IBV_QP_MIN_RNR_TIMER
#define PATH (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

struct arrow {
	enum ibv_qp_state from, to;
	int required[COLUMNS], optional[COLUMNS]; /* RC, UC, UD, iWARP; optional -1: no such arrow */
};

static const struct arrow arrows[] = {
	{IBV_QPS_RESET, IBV_QPS_INIT, {BASE | ACC, BASE | ACC, BASE | KEY, 0}, {0, 0, 0, BASE | ACC}},
	{IBV_QPS_INIT, IBV_QPS_INIT, {0, 0, 0, 0}, {BASE | ACC, BASE | ACC, BASE | KEY, BASE | ACC}},
	{IBV_QPS_INIT, IBV_QPS_RTR, {PATH | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, PATH, 0, 0},
		{ALT | ACC | PKI, ALT | ACC | PKI, KEY | PKI, BASE | ACC}},
	{IBV_QPS_RTR, IBV_QPS_RTS,
		{IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC,
			IBV_QP_SQ_PSN, IBV_QP_SQ_PSN, 0},
		{CUR | ALT | ACC | RNR | IBV_QP_RATE_LIMIT, CUR | ALT | ACC | IBV_QP_RATE_LIMIT,
			CUR | KEY | IBV_QP_RATE_LIMIT, -1}},
	{IBV_QPS_RTS, IBV_QPS_RTS, {0, 0, 0, 0},
		{CUR | ALT | ACC | RNR | IBV_QP_RATE_LIMIT, CUR | ALT | ACC | IBV_QP_RATE_LIMIT,
			CUR | KEY | IBV_QP_RATE_LIMIT, CUR | ACC}},
	{IBV_QPS_RTS, IBV_QPS_SQD, {0, 0, 0, 0},
		{IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY, IBV_QP_EN_SQD_ASYNC_NOTIFY,
			IBV_QP_EN_SQD_ASYNC_NOTIFY}},
	{IBV_QPS_SQD, IBV_QPS_RTS, {0, 0, 0, 0},
		{CUR | ALT | ACC | RNR, CUR | ALT | ACC, CUR | KEY, CUR | ACC}},
	{IBV_QPS_SQD, IBV_QPS_SQD, {0, 0, 0, 0},
		{IBV_QP_PORT | IBV_QP_AV | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACC | PKI | RNR,
			IBV_QP_AV | ALT | ACC | PKI, PKI | KEY, ACC}},
	{IBV_QPS_SQE, IBV_QPS_RTS, {0, 0, 0, 0}, {-1, CUR | ACC, CUR | KEY, -1}},
};

static int column_of(const struct hca_qp *qp)
{
	return qp->by_modify ? qp->service.column : IWARP;
}

int hca_qp_check_attr(const struct hca_qp *qp, enum ibv_qp_state from, enum ibv_qp_state to, int mask)
{
	int t = column_of(qp);

	if (t == IWARP && !mask) /* what rdma_init_qp_attr() says of RTS: nothing to do */
		return 0;
	mask &= ~IBV_QP_STATE;
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return mask & ~IBV_QP_CUR_STATE ? EINVAL : 0;
	for (unsigned i = 0; i < sizeof(arrows) / sizeof(arrows[0]); i++) {
		const struct arrow *a = &arrows[i];

		if (a->from != from || a->to != to)
			continue;
		if (t == IWARP && (mask & PATH))
			log_warn("iWARP queue pairs are connected by address, through rdma_cm, not by "
				 "ibv_modify_qp (perftest: -R)");
		if (a->optional[t] < 0) /* RC has no SQE */
			return EINVAL;
		if ((mask & a->required[t]) != a->required[t])
			return EINVAL;
		return mask & ~(a->required[t] | a->optional[t]) ? EINVAL : 0;
	}
	return EINVAL;
}

bool hca_qp_has_arrow(enum ibv_qp_state from, enum ibv_qp_state to)
{
	if (to == IBV_QPS_RESET || to == IBV_QPS_ERR)
		return true;
	if (to == IBV_QPS_SQE) /* a request that had begun may fail while the queue drains */
		return from == IBV_QPS_RTS || from == IBV_QPS_SQD;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTS) /* with a stream */
		return true;
	for (unsigned i = 0; i < sizeof(arrows) / sizeof(arrows[0]); i++) {
		if (arrows[i].from == from && arrows[i].to == to)
			return true;
	}
	return false;
}

const char *hca_qp_state_name(enum ibv_qp_state s)
{
	static const char *const name[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR", "UNKNOWN"};

	return (unsigned)s < 7 ? name[s] : "UNKNOWN";
}
