/* SPDX-License-Identifier: MIT */
/*
 * What an adapter counts, from the first packet on, per QP and per adapter. The records lie in a segment of
 * shared memory (host/registry.h), so that another process can read them while the program runs. A record is
 * written by one thread at a time (under the QP's lock, or the drive lock for the adapter's) and read by
 * anyone.
 */
#ifndef HOST_COUNTERS_H
#define HOST_COUNTERS_H

#include <stdint.h>

#define HOST_QP_COUNTERS(X)                                                                                  \
	X(tx_packets)                                                                                        \
	X(tx_bytes)                                                                                          \
	X(rx_packets)                                                                                        \
	X(rx_bytes)                                                                                          \
	X(retransmits) /* packets sent again */                                                              \
	X(probes)      /* single packets sent again before the ACK timer, to ask the peer where it is */     \
	X(timeouts)    /* ACK timer expiries */                                                              \
	X(naks_sent)                                                                                         \
	X(naks_received)                                                                                     \
	X(rnr_sent)                                                                                          \
	X(rnr_received)                                                                                      \
	X(duplicates)      /* requests seen before, answered again */                                        \
	X(out_of_sequence) /* requests ahead of the expected PSN */                                          \
	X(stale_responses) /* acknowledges and responses nobody waits for */                                 \
	X(dropped)         /* packets refused by a check: see the log at level debug for which */            \
	X(not_ready)       /* packets that came before RTR or after an error */                              \
	X(wrong_peer)      /* right QP, but not from the connected peer's address */                         \
	X(local)           /* 1: its peer is on this host and what it sends goes by memory */                \
	X(direct)          /* requests it did itself in the peer's memory, without a packet */               \
	X(direct_bytes)

#define HOST_ADAPTER_COUNTERS(X)                                                                             \
	X(tx_packets)                                                                                        \
	X(tx_bytes)                                                                                          \
	X(rx_packets)                                                                                        \
	X(rx_bytes)                                                                                          \
	X(bad_icrc)                                                                                          \
	X(bad_length)                                                                                        \
	X(no_qp)       /* addressed to a QP that is not there */                                             \
	X(handed_over) /* arrived here, belonged to another process */                                       \
	X(tx_errors)                                                                                         \
	X(echo_requests)                                                                                     \
	X(echo_timeouts)                                                                                     \
	X(mads_sent)                                                                                         \
	X(mads_received)    /* for this process */                                                           \
	X(mads_handed_over) /* arrived here, concerned another process */                                    \
	X(mads_unclaimed)   /* concerned nobody: answered here, if at all */                                 \
	X(mads_dropped)     /* no MAD, not for us, or whom it concerns had no room for long */               \
	X(qps_local)        /* times a QP was connected to a peer by memory */                               \
	X(qps_wire)         /* and to one by the wire */

struct host_qp_counters {
	uint32_t qpn; /* 0: free record */
	uint32_t type;
#define X(name) uint64_t name;
	HOST_QP_COUNTERS(X)
#undef X
};

struct host_adapter_counters {
#define X(name) uint64_t name;
	HOST_ADAPTER_COUNTERS(X)
#undef X
};

/* For the user's eyes when a QP or the adapter goes, at level info: what is not 0. */
void host_counters_log_qp(const struct host_qp_counters *c);
void host_counters_log_adapter(const struct host_adapter_counters *c);

#endif
