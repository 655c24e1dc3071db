/* SPDX-License-Identifier: MIT */
/*
 * Probes: one list of what can be seen of an adapter at work. Counters (host/counters.h), the debug log, and
 * traces are made from it; whoever wants to see more subscribes (struct probe_subscriber below) and touches
 * no protocol code.
 *
 * A probe that nobody listens to costs a comparison of one byte and a branch; its fields are not evaluated.
 *
 *	PROBE(QP_STATE, .qpn = hca_qpn(qp), .from = from, .to = to);
 *	hca_qp_probe(qp, RETRANSMIT, .psn = psn);    also counts, and fills in the QP's number (hca/qp.h)
 */
#ifndef OBSERVE_PROBE_H
#define OBSERVE_PROBE_H

#include "base/log.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * A row: name; from which level on the log has it, and in which words ({field} stands for its value),
 * LOG_NONE: it has not; what is counted; fields. Each is used somewhere: tests/tree/check.py probes.
 *
 * Counted, per queue pair or for the adapter: a COUNTER goes up by one with the probe (hca_qp_probe(),
 * hca_adapter_probe()); a SUM by what only the place knows, which adds to it by itself. Counters are kept
 * whether anybody listens or not.
 */
/* clang-format off */
#define PROBES(P) \
	/* ---- queue pairs and work requests: numbers of verbs ---- */ \
	P(QP_STATE, LOG_DEBUG, "QP {qpn}: {from} -> {to}", NOTHING, QPN(qpn) STATE(from) STATE(to)) \
	P(WR_POSTED, LOG_NONE, NULL, NOTHING, QPN(qpn) HEX(wr_id) WR_OPCODE(opcode) NUMBER(length) OBJECT(wqe)) \
	P(RECV_POSTED, LOG_NONE, NULL, NOTHING, OBJECT(rq) HEX(wr_id) NUMBER(length) NUMBER(nsge)) \
	P(WR_DONE, LOG_NONE, NULL, NOTHING, QPN(qpn) HEX(wr_id) WR_OPCODE(opcode) WC_STATUS(status) OBJECT(wqe)) \
	P(WR_FAILED, LOG_DEBUG, "QP {qpn}: a request failed: {status}", NOTHING, QPN(qpn) WC_STATUS(status)) \
	P(CQE, LOG_NONE, NULL, NOTHING, QPN(qpn) HEX(wr_id) WC_OPCODE(opcode) WC_STATUS(status) NUMBER(length)) \
	P(ASYNC_EVENT, LOG_NONE, NULL, NOTHING, EVENT(event) OBJECT(object)) \
	P(ONESIDED, LOG_NONE, NULL, \
		QP_COUNTER(direct) /* requests it did itself in the peer's memory, without a packet */ \
		QP_SUM(direct_bytes), \
		QPN(qpn) HEX(wr_id) WR_OPCODE(opcode) NUMBER(length) OBJECT(wqe)) \
	/* ---- memory ---- */ \
	P(MR_REG, LOG_NONE, NULL, NOTHING, KEY(key) HEX(addr) NUMBER(length) HEX(access)) \
	P(MR_DEREG, LOG_NONE, NULL, NOTHING, KEY(key)) \
	P(KEY_REFUSED, LOG_NONE, NULL, NOTHING, QPN(qpn) KEY(key) HEX(addr) NUMBER(length) HEX(access)) \
	/* ---- packets between queue pairs; qpn: whom they are for ---- */ \
	P(FRAME_TX, LOG_NONE, NULL, \
		QP_SUM(tx_packets) QP_SUM(tx_bytes) ADAPTER_SUM(tx_packets) ADAPTER_SUM(tx_bytes), \
		QPN(qpn) OPCODE(opcode) PSN(psn) NUMBER(length) OBJECT(frame)) \
	P(FRAME_RX, LOG_NONE, NULL, \
		QP_SUM(rx_packets) QP_SUM(rx_bytes) ADAPTER_SUM(rx_packets) ADAPTER_SUM(rx_bytes), \
		QPN(qpn) OPCODE(opcode) PSN(psn) NUMBER(length) OBJECT(frame)) \
	P(TX_ERROR, LOG_DEBUG, "cannot send a packet: {error}", ADAPTER_SUM(tx_errors), ERRNO(error)) \
	P(BAD_LENGTH, LOG_NONE, NULL, ADAPTER_SUM(bad_length), NUMBER(length)) \
	P(BAD_ICRC, LOG_NONE, NULL, ADAPTER_SUM(bad_icrc), QPN(qpn) OPCODE(opcode) PSN(psn) NUMBER(length)) \
	P(HANDED_OVER, LOG_NONE, NULL, \
		ADAPTER_SUM(handed_over), /* arrived here, belonged to another process */ \
		QPN(qpn) OPCODE(opcode)) \
	P(NO_QP, LOG_NONE, NULL, ADAPTER_COUNTER(no_qp) /* addressed to a QP that is not there */, QPN(qpn)) \
	P(ECHO_REQUEST, LOG_NONE, NULL, ADAPTER_COUNTER(echo_requests), QPN(qpn)) \
	P(ECHO_TIMEOUT, LOG_NONE, NULL, ADAPTER_COUNTER(echo_timeouts), QPN(qpn)) \
	/* ---- what the transport makes of them ---- */ \
	P(VERDICT, LOG_DEBUG, "QP {qpn}: {opcode}, PSN {psn}: {verdict}", NOTHING, \
		QPN(qpn) OPCODE(opcode) PSN(psn) TEXT(verdict)) \
	P(NAK_TX, LOG_NONE, NULL, QP_COUNTER(naks_sent), QPN(qpn) PSN(psn) HEX(syndrome)) \
	P(NAK_RX, LOG_NONE, NULL, QP_COUNTER(naks_received), QPN(qpn) PSN(psn) HEX(code)) \
	P(NAK_UNVERIFIED, LOG_DEBUG, "QP {qpn}: a NAK with an impossible MSN is not believed", NOTHING, \
		QPN(qpn) PSN(psn)) \
	P(RNR_TX, LOG_NONE, NULL, QP_COUNTER(rnr_sent), QPN(qpn) PSN(psn)) \
	P(RNR_RX, LOG_NONE, NULL, QP_COUNTER(rnr_received), QPN(qpn) PSN(psn) HEX(code)) \
	P(RETRANSMIT, LOG_NONE, NULL, QP_COUNTER(retransmits) /* packets sent again */, QPN(qpn) PSN(psn)) \
	P(LOSS_PROBE, LOG_NONE, NULL, \
		QP_COUNTER(probes), /* single packets sent again before the ACK timer, to ask the peer where it is */ \
		QPN(qpn) PSN(psn)) \
	P(ACK_TIMEOUT, LOG_NONE, NULL, QP_COUNTER(timeouts) /* ACK timer expiries */, QPN(qpn) PSN(psn)) \
	P(DUPLICATE, LOG_NONE, NULL, \
		QP_COUNTER(duplicates), /* requests seen before, answered again */ \
		QPN(qpn) PSN(psn)) \
	P(OUT_OF_SEQUENCE, LOG_NONE, NULL, \
		QP_COUNTER(out_of_sequence), /* requests ahead of the expected PSN */ \
		QPN(qpn) PSN(psn)) \
	P(STALE_RESPONSE, LOG_NONE, NULL, \
		QP_COUNTER(stale_responses), /* acknowledges and responses nobody waits for */ \
		QPN(qpn) PSN(psn)) \
	P(DROP, LOG_NONE, NULL, \
		QP_COUNTER(dropped), /* packets refused by a check: ANYRDMA_TRACE=DROP says by which */ \
		QPN(qpn) TEXT(why)) \
	P(NOT_READY, LOG_NONE, NULL, \
		QP_COUNTER(not_ready), /* packets that came before RTR or after an error */ \
		QPN(qpn) STATE(state)) \
	P(WRONG_PEER, LOG_NONE, NULL, \
		QP_COUNTER(wrong_peer), /* right QP, but not from the connected peer's address */ \
		QPN(qpn)) \
	P(PATH_CHANGED, LOG_INFO, "QP {qpn}: to QP {peer} {path}", \
		QP_SUM(local)         /* 1: its peer is on this host and what it sends goes through shared memory */ \
		ADAPTER_SUM(qps_local) /* times a QP was connected to a peer through shared memory */ \
		ADAPTER_SUM(qps_wire), /* and to one over the network */ \
		QPN(qpn) QPN(peer) TEXT(path)) \
	/* ---- iWARP ---- */ \
	P(STREAM_STATE, LOG_DEBUG, "QP {qpn}: iWARP connection with descriptor {fd}: {from} -> {to}", NOTHING, \
		QPN(qpn) NUMBER(fd) TEXT(from) TEXT(to)) \
	P(MPA_STATE, LOG_DEBUG, "MPA: {from} -> {to}", NOTHING, TEXT(from) TEXT(to)) \
	P(MPA_ERROR, LOG_DEBUG, "MPA: {error}", NOTHING, TEXT(error)) \
	P(RDMAP_STATE, LOG_DEBUG, "QP {qpn}: RDMAP stream {from} -> {to}", NOTHING, QPN(qpn) TEXT(from) TEXT(to)) \
	P(STREAM_TX, LOG_NONE, NULL, NOTHING, QPN(qpn) NUMBER(length)) \
	P(STREAM_RX, LOG_NONE, NULL, NOTHING, QPN(qpn) NUMBER(length)) \
	P(TERMINATE_TX, LOG_DEBUG, "QP {qpn}: we end the connection: {message}: {error}", NOTHING, \
		QPN(qpn) TEXT(message) TEXT(error)) \
	P(TERMINATE_RX, LOG_DEBUG, \
		"QP {qpn}: the peer ends the connection: {error} (layer {layer}, type {type}, code {code})", NOTHING, \
		QPN(qpn) TEXT(error) NUMBER(layer) NUMBER(type) HEX(code)) \
	/* ---- shared memory: what we write to; slot: the other process ---- */ \
	P(CHANNEL_STATE, LOG_DEBUG, "process in slot {slot}: channel {from} -> {to}", NOTHING, \
		NUMBER(slot) TEXT(from) TEXT(to)) \
	/* ---- management datagrams and the connection manager; id: ours ---- */ \
	P(MAD_TX, LOG_NONE, NULL, ADAPTER_COUNTER(mads_sent), HEX(mgmt_class) HEX(method) HEX(attr)) \
	P(MAD_RX, LOG_NONE, NULL, \
		ADAPTER_COUNTER(mads_received), /* for this process */ \
		HEX(mgmt_class) HEX(method) HEX(attr)) \
	P(MAD_HANDED_OVER, LOG_NONE, NULL, \
		ADAPTER_COUNTER(mads_handed_over), /* arrived here, concerned another process */ \
		NUMBER(slot)) \
	P(MAD_UNCLAIMED, LOG_NONE, NULL, \
		ADAPTER_COUNTER(mads_unclaimed), /* concerned nobody: answered here, if at all */ \
		HEX(mgmt_class) HEX(method) HEX(attr)) \
	P(MAD_DROP, LOG_NONE, NULL, \
		ADAPTER_COUNTER(mads_dropped), /* no MAD, not for us, or whom it concerns had no room for long */ \
		TEXT(why)) \
	P(CM_STATE, LOG_DEBUG, "CM id {id}: {from} -> {to}", NOTHING, KEY(id) TEXT(from) TEXT(to)) \
	P(CM_TX, LOG_NONE, NULL, NOTHING, TEXT(message) KEY(id) KEY(remote_id)) \
	P(CM_RX, LOG_NONE, NULL, NOTHING, TEXT(message) KEY(id) KEY(remote_id)) \
	P(RSOCKET_STATE, LOG_DEBUG, "rsocket {fd}: {from} -> {to}", NOTHING, NUMBER(fd) TEXT(from) TEXT(to)) \
	/* ---- the system ---- */ \
	P(CALL_FAILED, LOG_DEBUG, "{call} failed: {error}", NOTHING, TEXT(call) ERRNO(error))
/* clang-format on */

enum probe {
#define P(name, level, text, counted, fields) PROBE_##name,
	PROBES(P)
#undef P
		PROBE_COUNT,
};

/* What a field is, in the trace and in words. Each takes 8 bytes of its probe's struct. */
enum probe_field_type {
	FIELD_END, /* of a row's fields */
	FIELD_NUMBER,
	FIELD_HEX,
	FIELD_HEX24,  /* a QPN, a PSN */
	FIELD_HEX32,  /* a key, an id */
	FIELD_OPCODE, /* of BTH */
	FIELD_STATE,
	FIELD_WR_OPCODE,
	FIELD_WC_OPCODE,
	FIELD_WC_STATUS,
	FIELD_EVENT,
	FIELD_ERRNO,
	FIELD_TEXT,
	FIELD_OBJECT, /* for subscribers, while they are told: a struct of ours. Not shown */
};

/* struct probe_QP_STATE {uint64_t qpn, from, to;} and so on: what a subscriber is told. */
#define QPN(name)       uint64_t name;
#define PSN(name)       uint64_t name;
#define KEY(name)       uint64_t name;
#define NUMBER(name)    uint64_t name;
#define HEX(name)       uint64_t name;
#define OPCODE(name)    uint64_t name;
#define STATE(name)     uint64_t name;
#define WR_OPCODE(name) uint64_t name;
#define WC_OPCODE(name) uint64_t name;
#define WC_STATUS(name) uint64_t name;
#define EVENT(name)     uint64_t name;
#define ERRNO(name)     uint64_t name;
#define TEXT(name)      _Alignas(8) const char *name;
#define OBJECT(name)    _Alignas(8) const void *name;
#define P(name, level, text, counted, fields)                                                                \
	struct probe_##name {                                                                                \
		fields                                                                                       \
	};
PROBES(P)
#undef P
#undef QPN
#undef PSN
#undef KEY
#undef NUMBER
#undef HEX
#undef OPCODE
#undef STATE
#undef WR_OPCODE
#undef WC_OPCODE
#undef WC_STATUS
#undef EVENT
#undef ERRNO
#undef TEXT
#undef OBJECT

/* ---- telling ---- */
/* A bit for each subscriber. Written while nothing is being told: probe_init(). Each library has its own;
 * said so, since the compiler would look for it in the GOT. */
extern uint8_t probe_subscribed[PROBE_COUNT] __attribute__((visibility("hidden")));

void probe_tell(enum probe p, const void *values) __attribute__((cold));

#define probe_is_on(name) __builtin_expect(probe_subscribed[PROBE_##name] != 0, 0)
#define PROBE(name, ...)                                                                                     \
	do {                                                                                                 \
		if (probe_is_on(name))                                                                       \
			probe_tell(PROBE_##name, &(const struct probe_##name){__VA_ARGS__});                 \
	} while (0)

/* ---- listening ---- */
/*
 * tell() is called by any thread, under any lock: it takes none of ours, does not wait, and posts nothing.
 * values: the struct of that probe, as long as the call lasts.
 */
struct probe_subscriber {
	bool (*start)(void);         /* by probe_subscribe(); false: it wants nothing. NULL: none needed */
	bool (*wants)(enum probe p); /* then asked once for each */
	void (*tell)(enum probe p, const void *values);
};

/* Subscribes all that are in the table of probe.c: the log, the trace, and whoever comes. Behind log_init().
 */
void probe_init(void);
/* Again: asks it anew what it wants. At most eight. */
void probe_subscribe(const struct probe_subscriber *s);
void probe_unsubscribe(const struct probe_subscriber *s);

extern const struct probe_subscriber probe_to_log, probe_to_trace;

#endif
