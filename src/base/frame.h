/* SPDX-License-Identifier: MIT */
/*
 * A frame on its way between a transport and a link. A transport builds frames as headers plus pointers to
 * the payload; the link adds its envelope and the ICRC and moves them. A link hands up frames whose ICRC it
 * has checked. Neither needs to know the other.
 */
#ifndef BASE_FRAME_H
#define BASE_FRAME_H

#include "base/gid.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

struct link;

enum {
	FRAME_HDR_MAX = 56,      /* BTH + the largest set of extension headers */
	FRAME_BATCH_MAX = 64,    /* frames of one batch: what one UDP_SEGMENT send may carry */
	FRAME_BATCH_IOV = 256,   /* pieces of payload in one batch */
	FRAME_TRAILER = 4,       /* what a link adds to each: the ICRC */
	FRAME_RUN_BYTES = 65000, /* of frames that leave as one piece: see frame_batch_ends() */
	FRAME_REFS = 32,         /* places of a payload that goes by reference */
};

/*
 * Between processes of one host a frame may carry a whole message without its bytes: it says where they lie
 * in the sender's memory, as a list of these, laid out as struct ibv_sge. Such a frame goes *by reference*.
 * It stands for all packets of the message; its headers are those of an ONLY packet with the first one's PSN.
 */
struct frame_ref {
	uint64_t addr;
	uint32_t len, key;
};

/*
 * What stands in `by_ref`: the path MTU (enum ibv_mtu, so it is not 0), and which generation of its QP the
 * message is of. When the QP is reset its buffers are the program's again, and frames may still be on their
 * way.
 */
enum { FRAME_BY_REF_MTU = 7, FRAME_BY_REF_GENERATION_SHIFT = 3 };

static inline uint8_t frame_by_ref(unsigned mtu, uint32_t generation)
{
	return (uint8_t)(mtu | generation << FRAME_BY_REF_GENERATION_SHIFT);
}

static inline bool frame_by_ref_is_of(uint8_t by_ref, uint32_t generation)
{
	return by_ref >> FRAME_BY_REF_GENERATION_SHIFT ==
	       (uint8_t)(generation << FRAME_BY_REF_GENERATION_SHIFT) >> FRAME_BY_REF_GENERATION_SHIFT;
}

/* The GIDs of an InfiniBand packet that has a GRH. */
struct frame_grh {
	uint8_t sgid[16], dgid[16];
};

/*
 * Where frames go: IPv4 addresses as ::ffff:a.b.c.d, as in a GID table. On InfiniBand the addresses are those
 * of LIDs (gid_of_lid()), or of a group; what its packets say besides is below, and 0 elsewhere.
 */
struct frame_dest {
	uint8_t sgid[16], dgid[16];
	uint32_t ifindex; /* of the device: scope of link-local and multicast addresses; or hca_port.scope */
	uint8_t tclass, hop_limit;
	uint8_t sl;
	uint8_t has_grh; /* no bool: others may have written it */
	uint16_t slid, dlid;
	uint32_t flow_label;
	struct frame_grh grh; /* when it has one */
};
enum { FRAME_DEST_ROUTE = offsetof(struct frame_dest, ifindex) }; /* 16 bytes without holes, to be compared */
_Static_assert(offsetof(struct frame_dest, grh) == FRAME_DEST_ROUTE + 16, "compared as one");

struct frame_out {
	uint8_t hdr[FRAME_HDR_MAX];
	uint8_t hdr_len;
	uint8_t pad;    /* zero bytes between payload and ICRC */
	uint8_t copy;   /* payload may change under us: link must take a copy before it computes the ICRC */
	uint8_t own;    /* the payload is not in the program's memory */
	uint8_t by_ref; /* the payload is a list of struct frame_ref: see frame_by_ref(); else 0 */
	uint16_t iov_first, iov_count;
	uint32_t payload_len;
	uint32_t cookie, psn; /* for links that confirm what was executed: whose it is; 0: nobody asks */
};

/* Frames to one destination, in order, as a path says it (hca/path.h). */
struct frame_batch {
	struct link *link; /* which they leave by */
	struct frame_dest dest;
	uint32_t slot; /* the process of this host that they are for; 0: of another, or not known */
	unsigned nframes, niov;
	bool wanted;    /* there is data among them that the other side waits for */
	bool ack_first; /* the first is an acknowledge: who can, sends it with what follows, in any order */
	uint32_t run_len, run_bytes; /* of the frames noted last that can leave as one piece */
	struct frame_out frame[FRAME_BATCH_MAX];
	struct iovec iov[FRAME_BATCH_IOV];
};

/* A frame by reference that waits behind the one in hand, when its payload lies in one place. */
struct frame_ahead {
	uint32_t dqpn;
	uint8_t opcode;
	struct frame_ref ref;
};

struct frame_in {
	const uint8_t *bytes; /* BTH up to the pad bytes; the ICRC is checked and gone */
	uint32_t len;
	uint8_t sgid[16], dgid[16]; /* as on the wire: the sender's address first */
	uint32_t ifindex;           /* 0: not known */
	uint8_t tclass, hop_limit;
	uint8_t sl;      /* InfiniBand, as are the next: 0 elsewhere */
	uint8_t has_grh; /* no bool: others may have written it */
	uint16_t slid, dlid;
	uint32_t flow_label;
	const struct frame_grh *grh; /* when it has one */
	bool handed;                 /* by another process of this host: not to be handed on */
	bool local;                  /* came through shared memory */
	const uint8_t *payload_ext;  /* the payload, when it does not lie behind the headers: others may write
					there now */
	uint32_t head_len;           /* bytes of headers, then */
	void *from;                  /* the link's: see local_channel_took() */
	/* Of a frame that came through shared memory: */
	uint32_t slot;  /* of the process that wrote it; 0: not known */
	uint32_t place; /* counts the frames of this way: the next one has the next */
	uint8_t by_ref; /* as in frame_out; then, instead of a payload: */
	uint8_t nrefs;
	uint64_t ref_len;
	const struct frame_ref *refs; /* a copy */
};

enum { FRAME_ADDRESS = 48 }; /* bytes that a frame's address has in common with where it went */
_Static_assert(offsetof(struct frame_in, flow_label) + 4 == offsetof(struct frame_in, sgid) + FRAME_ADDRESS &&
		       offsetof(struct frame_dest, grh) == FRAME_ADDRESS,
	"copied as one");

static inline bool frame_dest_same(const struct frame_dest *a, const struct frame_dest *b)
{
	return gid_same(a->sgid, b->sgid) && gid_same(a->dgid, b->dgid) &&
	       gid_same((const uint8_t *)a + FRAME_DEST_ROUTE, (const uint8_t *)b + FRAME_DEST_ROUTE) &&
	       (!a->has_grh || (gid_same(a->grh.sgid, b->grh.sgid) && gid_same(a->grh.dgid, b->grh.dgid)));
}

/* Where an answer to a frame goes. */
static inline void frame_dest_back(const struct frame_in *in, struct frame_dest *to)
{
	*to = (struct frame_dest){.ifindex = in->ifindex,
		.hop_limit = 64,
		.sl = in->sl,
		.slid = in->dlid,
		.dlid = in->slid,
		.has_grh = in->has_grh};
	memcpy(to->sgid, in->dgid, 16);
	memcpy(to->dgid, in->sgid, 16);
	if (in->has_grh) {
		memcpy(to->grh.sgid, in->grh->dgid, 16);
		memcpy(to->grh.dgid, in->grh->sgid, 16);
	}
}

static inline void frame_batch_begin(struct frame_batch *b)
{
	b->nframes = b->niov = 0;
	b->ack_first = false;
	b->run_len = b->run_bytes = 0;
}

static inline bool frame_batch_full(const struct frame_batch *b, unsigned iovs)
{
	return b->nframes == FRAME_BATCH_MAX || b->niov + iovs > FRAME_BATCH_IOV;
}

static inline uint32_t frame_len(const struct frame_out *f)
{
	return f->hdr_len + f->payload_len + f->pad;
}

/*
 * Links send frames as one piece that follow each other and are equally long, but for a shorter last one, as
 * far as a UDP datagram holds them; a piece costs nearly the same whatever it carries. Who fills a batch with
 * large frames notes the length of each, and ends it where a piece does, when what is left does not hold
 * another.
 */
static inline void frame_batch_note(struct frame_batch *b, uint32_t len)
{
	len += FRAME_TRAILER;
	if (len > b->run_len || b->run_bytes + len > FRAME_RUN_BYTES) {
		b->run_len = b->run_bytes = len;
		return;
	}
	b->run_bytes += len;
	if (len < b->run_len)
		b->run_len = 0; /* any other begins another piece */
}

/* How many frames of this length fit behind the last one in the same piece, or in a piece of their own. */
static inline uint32_t frame_batch_room(const struct frame_batch *b, uint32_t len)
{
	uint32_t bytes = FRAME_RUN_BYTES, n;

	len += FRAME_TRAILER;
	if (len == b->run_len && b->run_bytes + len <= FRAME_RUN_BYTES)
		bytes -= b->run_bytes;
	n = bytes / len;
	return n < FRAME_BATCH_MAX - b->nframes ? n : FRAME_BATCH_MAX - b->nframes;
}

static inline bool frame_batch_ends(const struct frame_batch *b, uint32_t len)
{
	len += FRAME_TRAILER;
	return b->nframes && len <= b->run_len && b->run_bytes + len > FRAME_RUN_BYTES &&
	       FRAME_BATCH_MAX - b->nframes < FRAME_RUN_BYTES / len;
}

#endif
