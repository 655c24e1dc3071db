/* SPDX-License-Identifier: MIT */
/* What the files of rdmacm.iwarp share: ids of one program over iWARP, each with a channel of its own. */
#ifndef RDMACM_IWARP_H
#define RDMACM_IWARP_H

#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of the first listener's device; a child that begins anew clears iw_pd. */
extern struct ibv_pd *iw_pd;
extern struct ibv_cq *iw_cq;

struct rdma_cm_id *iw_new_id(void);
/* With its queue pair and its channel. */
void iw_end(struct rdma_cm_id *id);
/* The next event of a channel, which must be this one, in w.last. */
void iw_next(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* On any port of loopback. */
struct rdma_cm_id *iw_listen(int backlog);
void iw_give_qp(struct rdma_cm_id *id);
/* Has begun to connect when it returns. */
struct rdma_cm_id *iw_connect_to(__be16 port, const void *priv, uint8_t len);
/* The request that comes next, on a channel of its own. */
struct rdma_cm_id *iw_asked(struct rdma_cm_id *listener);
/* Accepts, and both ends hear so. */
void iw_accepted(struct rdma_cm_id *server, struct rdma_cm_id *client);
/* Connects and disconnects. */
void iw_once(struct rdma_cm_id *listener);

/* ---- iwarp_strangers.c ---- */
/* A TCP connection to a listener that begins with these bytes; whether the listener ended it. */
int iw_stranger(__be16 port, const void *bytes, size_t len);
bool iw_hung_up(int fd);
void strangers_are_sent_away_and_others_served(void **state);
void silent_crowd_keeps_nobody_out(void **state);
void silent_crowd_slows_nobody_down(void **state);
void longest_private_data_is_cut(void **state);
void stuck_peer_does_not_hold_the_end(void **state);

/* ---- iwarp_upgrade.c ---- */
void who_is_not_here_is_not_believed(void **state);
void bytes_behind_the_upgrade_end_it(void **state);
void who_speaks_by_udp_is_not_heard(void **state);
void who_talks_nonsense_instead_or_goes_is_let_go(void **state);

/* ---- iwarp_child.c ---- */
void child_begins_anew(void **state);
void taken_udp_port_is_no_obstacle(void **state);
void refused_udp_is_no_obstacle(void **state);
void users_list_decides(void **state);

#endif
