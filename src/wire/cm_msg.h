/* SPDX-License-Identifier: MIT */
/*
 * The messages of communication management (IBA volume 1, chapter 12) in host order, and as the 256 bytes
 * of a MAD. cm_msg.c has one table of fields per message; packing and parsing both read it, so they cannot
 * disagree. Reserved bits are sent as 0 and not looked at.
 *
 * "local" and "remote" are the sender's words: local_id of a received message is the peer's id.
 */
#ifndef WIRE_CM_MSG_H
#define WIRE_CM_MSG_H

#include "wire/mad.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(name, attribute id, bytes of private data) */
#define CM_ATTRS(X)                                                                                          \
	X(REQ, 0x10, 92)                                                                                     \
	X(MRA, 0x11, 222)                                                                                    \
	X(REJ, 0x12, 148)                                                                                    \
	X(REP, 0x13, 196)                                                                                    \
	X(RTU, 0x14, 224)                                                                                    \
	X(DREQ, 0x15, 220)                                                                                   \
	X(DREP, 0x16, 224)                                                                                   \
	X(SIDR_REQ, 0x17, 216)                                                                               \
	X(SIDR_REP, 0x18, 136)                                                                               \
	X(LAP, 0x19, 168)                                                                                    \
	X(APR, 0x1a, 148)

enum cm_attr {
#define X(name, id, priv) CM_##name = id,
	CM_ATTRS(X)
#undef X
};

enum {
	CM_CLASS_VERSION = 2,
	CM_PRIV_MAX = 224,
	CM_INFO_MAX = 72, /* additional information of REJ, APR, SIDR_REP */
};

/* Why a REQ or REP was rejected (IBA table 109; 35 came with enhanced connection establishment). */
#define CM_REJ_REASONS(X)                                                                                    \
	X(NO_QP, 1, "no QP")                                                                                 \
	X(NO_EEC, 2, "no EEC")                                                                               \
	X(NO_RESOURCES, 3, "no resources")                                                                   \
	X(TIMEOUT, 4, "timeout")                                                                             \
	X(UNSUPPORTED, 5, "unsupported request")                                                             \
	X(INVALID_COMM_ID, 6, "invalid communication ID")                                                    \
	X(INVALID_COMM_INSTANCE, 7, "invalid communication instance")                                        \
	X(INVALID_SERVICE_ID, 8, "invalid service ID")                                                       \
	X(INVALID_TRANSPORT, 9, "invalid transport service type")                                            \
	X(STALE_CONN, 10, "stale connection")                                                                \
	X(NO_RDC, 11, "RDC does not exist")                                                                  \
	X(INVALID_GID, 12, "primary remote port GID rejected")                                               \
	X(INVALID_LID, 13, "primary remote port LID rejected")                                               \
	X(INVALID_SL, 14, "invalid primary SL")                                                              \
	X(INVALID_TCLASS, 15, "invalid primary traffic class")                                               \
	X(INVALID_HOP_LIMIT, 16, "invalid primary hop limit")                                                \
	X(INVALID_RATE, 17, "invalid primary packet rate")                                                   \
	X(INVALID_ALT_GID, 18, "alternate remote port GID rejected")                                         \
	X(INVALID_ALT_LID, 19, "alternate remote port LID rejected")                                         \
	X(INVALID_ALT_SL, 20, "invalid alternate SL")                                                        \
	X(INVALID_ALT_TCLASS, 21, "invalid alternate traffic class")                                         \
	X(INVALID_ALT_HOP_LIMIT, 22, "invalid alternate hop limit")                                          \
	X(INVALID_ALT_RATE, 23, "invalid alternate packet rate")                                             \
	X(CM_REDIRECT, 24, "port and CM redirection")                                                        \
	X(PORT_REDIRECT, 25, "port redirection")                                                             \
	X(INVALID_MTU, 26, "invalid path MTU")                                                               \
	X(INSUFFICIENT_RESPONDER, 27, "insufficient responder resources")                                    \
	X(CONSUMER, 28, "consumer reject")                                                                   \
	X(INVALID_RNR_RETRY, 29, "RNR retry count rejected")                                                 \
	X(DUPLICATE_COMM_ID, 30, "duplicate local communication ID")                                         \
	X(INVALID_CLASS_VERSION, 31, "unsupported class version")                                            \
	X(INVALID_FLOW_LABEL, 32, "invalid primary flow label")                                              \
	X(INVALID_ALT_FLOW_LABEL, 33, "invalid alternate flow label")                                        \
	X(VENDOR_OPTION, 35, "vendor option not supported")

enum cm_rej_reason {
#define X(name, code, text) CM_REJ_##name = code,
	CM_REJ_REASONS(X)
#undef X
};

/* What a MRA or REJ speaks about. */
enum cm_about { CM_ABOUT_REQ, CM_ABOUT_REP, CM_ABOUT_OTHER };

/* SIDR_REP status (IBA table 121) */
#define CM_SIDR_STATUSES(X)                                                                                  \
	X(OK, 0, "success")                                                                                  \
	X(UNSUPPORTED, 1, "service ID not supported")                                                        \
	X(REJECT, 2, "rejected by the service provider")                                                     \
	X(NO_QP, 3, "no QP available")                                                                       \
	X(REDIRECT, 4, "redirected")                                                                         \
	X(VERSION, 5, "version not supported")

enum cm_sidr_status {
#define X(name, code, text) CM_SIDR_##name = code,
	CM_SIDR_STATUSES(X)
#undef X
};

enum { CM_APR_UNSUPPORTED = 2 }; /* APR status: alternate paths are not supported */

/* Transport service types of a REQ */
enum { CM_TRANSPORT_RC, CM_TRANSPORT_UC, CM_TRANSPORT_RD, CM_TRANSPORT_EXTENDED };

struct cm_req_path {
	uint16_t local_lid, remote_lid;
	uint8_t local_gid[16], remote_gid[16];
	uint32_t flow_label;
	uint8_t rate, tclass, hop_limit, sl, subnet_local, ack_timeout;
};

struct cm_req {
	uint32_t vendor_id; /* enhanced connection establishment; its options are attr_mod */
	uint64_t service_id, ca_guid;
	uint32_t qkey, qpn, local_eecn, remote_eecn;
	uint8_t responder_resources, initiator_depth;
	uint8_t remote_timeout, local_timeout; /* CM response timeouts, 4.096 us * 2^t */
	uint8_t transport, ext_transport, flow_control;
	uint32_t psn; /* the receiver's first: what it sends starts there */
	uint8_t retry_count, rnr_retry, max_cm_retries;
	uint16_t pkey;
	uint8_t mtu, rdc_exists, srq, sap_supported;
	struct cm_req_path primary, alternate;
};

struct cm_rep {
	uint32_t qkey, qpn, eecn, psn;
	uint8_t vendor_h, vendor_m, vendor_l; /* a REP has no three bytes in a row for it */
	uint8_t responder_resources, initiator_depth;
	uint8_t target_ack_delay, failover, flow_control, rnr_retry, srq;
	uint64_t ca_guid;
};

struct cm_mra {
	uint8_t about, service_timeout;
};

struct cm_rej {
	uint8_t about, info_len;
	uint16_t reason;
	uint8_t info[CM_INFO_MAX];
};

struct cm_dreq {
	uint32_t remote_qpn;
};

struct cm_sidr_req {
	uint16_t pkey;
	uint64_t service_id;
};

struct cm_sidr_rep {
	uint8_t status, info_len;
	uint32_t qpn, qkey;
	uint64_t service_id;
	uint8_t info[CM_INFO_MAX];
};

/* Only what is needed to refuse them: there is no path migration here. */
struct cm_lap {
	uint32_t remote_qpn;
	uint8_t remote_timeout;
};

struct cm_apr {
	uint8_t status, info_len;
	uint8_t info[CM_INFO_MAX];
};

struct cm_msg {
	enum cm_attr attr;
	uint64_t tid;
	uint32_t attr_mod;
	uint32_t local_id;  /* the sender's communication id; the request id of SIDR_REQ and SIDR_REP */
	uint32_t remote_id; /* the receiver's; 0 in REQ and SIDR */
	union {
		struct cm_req req;
		struct cm_rep rep;
		struct cm_mra mra;
		struct cm_rej rej;
		struct cm_dreq dreq;
		struct cm_sidr_req sidr_req;
		struct cm_sidr_rep sidr_rep;
		struct cm_lap lap;
		struct cm_apr apr;
	};
	/* The whole field of cm_priv_len(): nothing on the wire tells how much of it the sender meant. */
	uint8_t priv[CM_PRIV_MAX];
};

/* Writes all 256 bytes. What is wider than its field is cut. attr must be one of the above. */
void cm_msg_pack(const struct cm_msg *m, uint8_t mad[MAD_LEN]);
/* false: no CM MAD of our version, or an unknown attribute; *m is then undefined. */
bool cm_msg_parse(const uint8_t *mad, size_t len, struct cm_msg *m);

/* Size of a message's field for private data; 0 for an unknown attribute. */
unsigned cm_priv_len(enum cm_attr attr);
const char *cm_attr_name(enum cm_attr attr);
const char *cm_rej_name(unsigned reason);
const char *cm_sidr_name(unsigned status);

/*
 * Which process of the host a MAD concerns: its slot, or one of these. Slots that no process has, and MADs
 * for services nobody listens to, are taken by whoever received them: its core answers for the dead.
 */
enum {
	CM_OWNER_SERVICE = -1, /* who listens to *service_id */
	CM_OWNER_ANY = -2,     /* every process of the host may have the connection */
	CM_OWNER_NONE = -3,    /* malformed, or can be no connection's */
};
int cm_owner(const uint8_t *mad, size_t len, uint64_t *service_id);
/*
 * What who has ended cannot answer any more: a DREQ is answered as if it had been done, a REP names an id
 * that is none. false: it wants no answer.
 */
bool cm_answer_for_dead(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN]);
/* Turns a request that nobody listens for into its refusal; false: it is none, and wants no answer. */
bool cm_refuse(const uint8_t mad[MAD_LEN], uint8_t answer[MAD_LEN]);

/* ---- the RDMA IP CM service (IBA annex A11) ---- */

enum { CM_IP_LEN = 36, CM_SERVICE_PORT_BITS = 16 };

/* In front of the private data of REQ and SIDR_REQ. Addresses as GIDs: IPv4 is ::ffff:a.b.c.d. */
struct cm_ip {
	uint8_t version; /* of IP: 4 or 6 */
	uint16_t port;   /* the sender's */
	uint8_t src[16], dst[16];
};

void cm_ip_pack(const struct cm_ip *ip, uint8_t p[CM_IP_LEN]);
/* false: another version of the header, or neither IPv4 nor IPv6 */
bool cm_ip_parse(const uint8_t p[CM_IP_LEN], struct cm_ip *ip);

/* A service id is a port space and a port. */
enum cm_port_space { CM_PS_IPOIB = 0x0002, CM_PS_TCP = 0x0106, CM_PS_UDP = 0x0111, CM_PS_IB = 0x013f };

/* Which requests somebody listens for: of a service, for an address (a GID where it is none of IP). */
struct cm_listen {
	uint64_t service_id;
	uint8_t addr[16]; /* all zero: any of these: IPv4, IPv6, GIDs */
	bool v4, v6, gid;
};

static inline uint64_t cm_service_id(enum cm_port_space ps, uint16_t port)
{
	return (uint64_t)ps << CM_SERVICE_PORT_BITS | port;
}
static inline uint64_t cm_service_space(uint64_t service_id)
{
	return service_id >> CM_SERVICE_PORT_BITS;
}
static inline uint16_t cm_service_port(uint64_t service_id)
{
	return (uint16_t)service_id;
}

#endif
