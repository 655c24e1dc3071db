/* SPDX-License-Identifier: MIT */
/*
 * What libibumad and the process that is the subnet say to each other, over a Unix stream socket `umad` in
 *the fabric's directory. Both are of one machine and one user (SO_PEERCRED, on both sides), so numbers are in
 *the machine's order; what comes from a MAD or stands in struct ib_user_mad is as it is there.
 *
 * A message is a header and len bytes. A connection is one of two sorts, by its first message:
 *
 *	a question: LIST, CA, ISSM, REGISTER, UNREGISTER	one answer with the same type, and so on
 *	a port: OPEN						one answer; then SEND from the program,
 *								RECV from the fabric, until either closes
 *
 * Agents are registered over a connection of their own, so that the port's carries nothing but MADs: whoever
 * polls the descriptor of the port sees what the kernel would show him. REGISTER names the port by the secret
 * that OPEN gave.
 *
 * A RECV ends with one byte more, FABRIC_RECV_END. The program takes it when the message has found its
 *buffer: a message that did not fit stays readable for poll().
 */
#ifndef FABRIC_PROTO_H
#define FABRIC_PROTO_H

#include <stdint.h>

enum {
	FABRIC_UMAD_VERSION = 1,
	FABRIC_NAME = 64,    /* of a fabric or a host, its end included */
	FABRIC_CA_NAME = 20, /* UMAD_CA_NAME_LEN */
	FABRIC_CAS = 32,     /* UMAD_MAX_DEVICES */
	FABRIC_CA_PORTS = 9, /* UMAD_CA_MAX_PORTS less port 0 */
	FABRIC_AGENTS = 32,  /* UMAD_CA_MAX_AGENTS, of one port */
	FABRIC_PORT_PKEYS = 32,
	FABRIC_PATH = 1024,
	FABRIC_RECV_END = 1,
	FABRIC_MESSAGE_MAX = (32 << 20) + 4096, /* a megabyte of SA records is nothing unusual */
};

enum fabric_umad_type {
	FABRIC_LIST = 1,   /* struct fabric_where: struct fabric_listed */
	FABRIC_CA,         /* struct fabric_where: struct fabric_ca, then struct fabric_ca_port for each */
	FABRIC_ISSM,       /* struct fabric_where: struct fabric_path */
	FABRIC_OPEN,       /* struct fabric_where: struct fabric_opened */
	FABRIC_REGISTER,   /* struct fabric_register: struct fabric_done */
	FABRIC_UNREGISTER, /* struct fabric_register: struct fabric_done */
	FABRIC_SEND,       /* struct fabric_mad, the message; no answer */
	FABRIC_RECV,       /* struct fabric_mad, the message, FABRIC_RECV_END */
};

struct fabric_msg {
	uint32_t len; /* of what follows */
	uint16_t version, type;
};

/* Every answer begins with one. No such host: ENODEV; no such adapter or port: ENXIO; another version:
 * EPROTO. */
struct fabric_done {
	int32_t error; /* 0 or an errno */
	uint32_t unused;
};

struct fabric_where {
	char host[FABRIC_NAME];  /* "": the first one */
	char ca[FABRIC_CA_NAME]; /* ib0, ib1, … */
	uint32_t port;
};

struct fabric_listed {
	struct fabric_done done;
	char host[FABRIC_NAME]; /* its name */
	uint32_t ncas, unused;
	char ca[FABRIC_CAS][FABRIC_CA_NAME];
};

struct fabric_ca {
	struct fabric_done done;
	char name[FABRIC_CA_NAME];
	char fw_ver[20], hw_ver[20], type[40];
	uint32_t node_type, nports;
	uint64_t node_guid, system_guid;
};

struct fabric_ca_port {
	uint32_t num, lid, lmc, sm_lid, sm_sl, state, phys, rate; /* rate: Gb/s */
	uint32_t cap_mask, npkeys;
	uint64_t prefix, guid;
	uint16_t pkey[FABRIC_PORT_PKEYS];
};

struct fabric_path {
	struct fabric_done done;
	char path[FABRIC_PATH];
};

struct fabric_opened {
	struct fabric_done done;
	uint64_t secret;
};

enum { FABRIC_USER_RMPP = 1 };

struct fabric_register {
	uint64_t secret;
	uint64_t methods[2];
	uint32_t agent; /* 0 to 31: the program chooses */
	uint8_t mgmt_class, class_version, rmpp_version, qp;
	uint8_t oui[3], flags;
	uint32_t unused;
};

/* As struct ib_user_mad, without the MAD. */
struct fabric_mad {
	uint32_t agent, status, timeout_ms, retries, length;
	uint32_t qpn, qkey; /* network order */
	uint16_t lid;       /* network order */
	uint8_t sl, path_bits, grh_present, gid_index, hop_limit, traffic_class;
	uint8_t gid[16];
	uint32_t flow_label; /* network order */
	uint16_t pkey_index;
	uint8_t unused[6];
};
_Static_assert(sizeof(struct fabric_msg) == 8, "messages");
_Static_assert(sizeof(struct fabric_mad) == 64, "struct ib_user_mad");
_Static_assert(sizeof(struct fabric_register) == 40, "no holes");

#endif
