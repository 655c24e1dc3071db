/* SPDX-License-Identifier: MIT */
/*
 * Many processes, one UDP port. All bind it with SO_REUSEPORT; a classic BPF program reads the destination
 * QPN of each packet, whose upper bits are the slot of the process it belongs to (host/slot.h), and names the
 * index of its socket in the group. No privilege is needed. The slot's Unix socket takes the packets that
 * reached the wrong process.
 *
 * The order of sockets in the group is the kernel's: a new one comes last; when one closes, the last takes
 * its index. A file in the run directory, under a lock, follows that. Who joins attaches the program anew.
 * Who leaves, or dies, cannot: the program then names an index that is empty or another's, and the packet
 * lands in some process of the group, which hands it over and repairs. One death is followed by the kernel's
 * own rule; after several, an INDEX packet is sent to every index, which the program steers by the
 * index it carries: whoever gets it has that one.
 *
 * The file may be removed or emptied while processes run. Who joins and finds it new asks all who have a slot
 * to look (slots_ask_to_look): each enters itself, and then INDEX packets are sent to all. Who was stopped
 * meanwhile is asked again by whoever gets a packet of its.
 */
#ifndef LINK_STEER_H
#define LINK_STEER_H

#include "base/frame.h"
#include "host/runfile.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct steer {
	uint16_t port;
	uint32_t slot;
	int fd4, fd6; /* the UDP sockets; fd6 -1 without IPv6 */
	int hand_fd;  /* the Unix socket of our slot */
	struct runfile file;
	_Atomic uint64_t repaired_at, missed_at, in_vain_at;
	pthread_mutex_t mutex; /* with the file lock, which does not keep our own threads apart */
	/* Called when another process asked to look at the files that all share; set by the owner, or NULL.
	 */
	void (*on_look)(void *arg);
	void *on_look_arg;
};

/* Binds fd4 and fd6 to the port within the group. 0 or -errno (-EADDRINUSE: the port is someone else's). */
int steer_join(struct steer *s, uint16_t port, int fd4, int fd6);
/* Leaves and closes the sockets. */
void steer_leave(struct steer *s);

/* After fork, in the child: closes the descriptors; the parent stays a member. */
void steer_abandon(struct steer *s);

/* An INDEX packet reached us: note our index. */
void steer_index_reply(struct steer *s, const uint8_t *pkt, uint32_t len);
/*
 * Whether one of our own processes has that slot: others may have bound its name to catch what is not theirs.
 * One that should be there and is not is asked to look.
 */
bool steer_is_member(struct steer *s, uint32_t slot);
/*
 * Hands a frame over to another slot: 0, -EAGAIN when it has no room, another -errno when nobody is there.
 * `wait` for room: not long, and not again soon after it was in vain, since who does not drain its socket may
 * be stopped.
 */
int steer_hand_over(struct steer *s, uint32_t slot, const struct frame_in *in, bool wait);
/* The program led a frame to us that names another slot: it has to be made anew. */
void steer_misdelivered(struct steer *s);
/* A handed-over frame in a datagram of any content; *in points into it. false: it is none. */
bool steer_hand_parse(const uint8_t *datagram, size_t len, struct frame_in *in);
/* Frames handed over to us; returns how many. */
int steer_receive(struct steer *s, unsigned max, void (*deliver)(void *, const struct frame_in *), void *arg);

#endif
