/* SPDX-License-Identifier: MIT */
/*
 * The services that a queue pair can have, a row each: what the code asks instead of comparing types.
 */
#ifndef HCA_SERVICE_H
#define HCA_SERVICE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>

/* For tables of what each service offers. */
enum { SERVICE_RC = 1, SERVICE_UC = 2, SERVICE_UD = 4 };

struct hca_service {
	uint8_t bit;
	uint8_t column;  /* of the table of arrows, qp_attr.c */
	uint8_t opcodes; /* where its opcodes begin on the wire: enum ibt_service */
	bool reliable;   /* each request is acknowledged; READ and atomics */
	bool connected;  /* to one peer, from RTR on; else each request has its own */
};

/* NULL: there is no such service here. */
const struct hca_service *hca_service_of(enum ibv_qp_type type);

#endif
