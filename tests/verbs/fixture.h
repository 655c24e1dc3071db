/* SPDX-License-Identifier: MIT */
/*
 * What the conformance tests stand on. A test gets a `struct vt`: an opened device, chosen by the
 * environment, and everything it builds with vt_ep() is closed again after it, so that a test that
 * fails leaves nothing to the next. Only the public verbs API is used: the same suite says of any
 * device whether it behaves.
 *
 * Environment:
 *   VERBS_DEVICE    the device's name; roce_lo unless told
 *   VERBS_GID       4 or 6: which address family's GID connects; 4 unless told
 *   VERBS_CAPS      what the transport can do, e.g. "UC UD ATOMIC MCAST"; unset means everything. Also:
 * MODIFY, queue pairs are connected by ibv_modify_qp and not by rdma_cm alone; ACK, a SEND or WRITE is done
 * when the peer has it, and not when it has left
 *   VERBS_PORTS     2: endpoints are at the first and the second port of the device in turn; 1 unless told
 *   VERBS_GRH       1: addresses have a GRH where they need not
 *   VERBS_PEER_HOST the host of a fabric that peers are on; that of the test unless told
 *   VERBS_DEADLINE  seconds a wait may take before it is a failure; 60 unless told
 *
 * Helpers fail the running test by cmocka's assertions. In another thread or in a peer process an
 * assertion ends the process instead, which fails the whole theme.
 */
#ifndef TESTS_VERBS_FIXTURE_H
#define TESTS_VERBS_FIXTURE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <sys/types.h>
#include <cmocka.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../skip.h"

#define VT_ALL_ACCESS                                                                                        \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define VT_NO_ACCESS (-1) /* vt_opts.access: none at all, since 0 stands for the default */
#define VT_QKEY      0x1badcafe
#define VT_GRH       40

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Where an endpoint can be: a port of the device, and its addresses. */
struct vt_place {
	uint8_t port;
	uint16_t lid;
	union ibv_gid gid;
};

/* One test's world. */
struct vt {
	struct ibv_context *ctx;
	struct ibv_device_attr dev;
	struct ibv_port_attr port;
	uint8_t port_num;
	int gid_index;
	union ibv_gid gid;
	struct vt_place place[2]; /* the first is what is above; endpoints take them in turn */
	unsigned places, opened;
	struct vt_ep *eps; /* newest first */
};

/* One end of a connection: a QP and what it needs. Pointers given in vt_opts are borrowed. */
struct vt_ep {
	struct vt *t;
	const struct vt_place *at;
	struct vt_ep *next;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_qp_cap cap; /* as granted */
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t len;
	bool own_pd, own_cq;
	struct rdma_cm_id *id; /* of its connection, where rdma_cm makes it */
};

/* How to build an endpoint; what is zero takes the default named here. */
struct vt_opts {
	enum ibv_qp_type type;     /* RC */
	size_t len;                /* 64 KiB of page-aligned zeros */
	int access;                /* VT_ALL_ACCESS, of the region */
	uint32_t send_wr, recv_wr; /* 64 each */
	uint32_t sge;              /* 4 */
	uint32_t inline_data;      /* none */
	int cqe;                   /* enough for both queues */
	int sig_all;               /* no */
	bool channel;              /* no completion channel */
	uint64_t send_ops;         /* QP_EX with these builders */
	struct ibv_pd *pd;         /* an own one */
	struct ibv_cq *cq;         /* an own one */
	struct ibv_srq *srq;       /* none */
};

struct vt_ep *vt_ep_open(struct vt *t, const struct vt_opts *opts);
#define vt_ep(t, ...) vt_ep_open(t, &(struct vt_opts){__VA_ARGS__})

/* Closes one endpoint before the test's end. */
void vt_ep_close(struct vt_ep *ep);

/* Destroys the endpoint's QP and leaves the rest. */
void vt_ep_drop_qp(struct vt_ep *ep);

/* Where an endpoint is: all that the other side has to know, also over a pipe. */
struct vt_addr {
	union ibv_gid gid;
	uint64_t addr;
	uint32_t qpn, rkey;
	uint16_t lid, spare[3]; /* no hidden bytes: it is sent as it lies */
};

struct vt_addr vt_addr(const struct vt_ep *ep);

/*
 * Timeouts of RC, for eight tries each. A peer that lives may have to wait for a CPU: it gets 1.07 s a try.
 * Who waits for one that dies in the middle asks every 0.27 s, 2.1 s in all, in which it must have answered
 * if it lives. And a queue pair whose only request cannot be answered need not be patient: 0.54 s in all.
 */
enum { VT_PATIENT = 18, VT_MORTAL = 16, VT_UNANSWERED = 14 };

/* The attributes of a connection. vt_conn() gives the defaults, to be changed from there. */
struct vt_conn {
	uint32_t psn_out, psn_in; /* vt_connect(): out of a, into a */
	enum ibv_mtu mtu;
	uint8_t timeout, retry, rnr_retry, min_rnr;
	uint8_t rd_atomic, dest_rd_atomic;
	unsigned int access;
};

struct vt_conn vt_conn(const struct vt *t);

/* The steps of a connection, one end each. `c` may be NULL for the defaults. */
void vt_init(struct vt_ep *ep, const struct vt_conn *c);
void vt_rtr(struct vt_ep *ep, const struct vt_addr *to, const struct vt_conn *c);
void vt_rts(struct vt_ep *ep, const struct vt_conn *c);
void vt_connect(struct vt_ep *a, struct vt_ep *b, const struct vt_conn *c);
/* Both ends default-built and default-connected. */
void vt_pair(struct vt *t, enum ibv_qp_type type, struct vt_ep **a, struct vt_ep **b);
/*
 * The same by rdma_cm, for transports that know no other way (by_cm.c): one end listens and answers, the
 * other asks. vt_connect() and vt_meet() do all that.
 */
bool vt_by_cm(const struct vt *t);
/* The next event, which must be this one; to be acknowledged. */
struct rdma_cm_event *vt_cm_next(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
struct rdma_cm_id *vt_cm_listen(const struct vt *t, uint16_t *port);
/* An id whose way to that place is known; and one that asks there. */
void vt_cm_find(struct vt_ep *ep, const union ibv_gid *gid, uint16_t port);
void vt_cm_ask(struct vt_ep *ep, const union ibv_gid *gid, uint16_t port, const struct vt_conn *c);
void vt_cm_asked(struct vt_ep *ep);
/* Ends the listener. */
void vt_cm_answer(struct vt_ep *ep, struct rdma_cm_id *listener, const struct vt_conn *c);
void vt_cm_close(struct vt_ep *ep);
/* A UD endpoint ready to send and receive. */
void vt_ud_start(struct vt_ep *ep, uint32_t qkey);

/* From the first port; vt_ah() and vt_rtr() begin where the endpoint is. */
void vt_fill_av(const struct vt *t, const union ibv_gid *gid, uint16_t lid, struct ibv_ah_attr *av);
struct ibv_ah *vt_ah(struct vt_ep *ep, const struct vt_addr *to);

/* State changes and questions of a QP. */
int vt_modify_state(struct ibv_qp *qp, enum ibv_qp_state to);
enum ibv_qp_state vt_state(struct ibv_qp *qp);

/* A send request, put together from few words. Signalled unless quiet. */
struct vt_req {
	enum ibv_wr_opcode op;
	uint64_t id;
	size_t off; /* in the endpoint's buffer */
	uint32_t len;
	unsigned int flags;
	bool quiet;
	uint32_t imm;           /* host order */
	const struct vt_ep *to; /* remote address and key from this endpoint ... */
	size_t roff;
	uint64_t raddr; /* ... or said outright */
	uint32_t rkey;
	uint32_t lkey; /* the endpoint's unless told */
	uint64_t add, swap;
	struct ibv_ah *ah;
	uint32_t qpn, qkey;
};

int vt_try_post(struct vt_ep *ep, const struct vt_req *r);
#define vt_try(ep, ...)  vt_try_post(ep, &(struct vt_req){__VA_ARGS__})
#define vt_post(ep, ...) assert_int_equal(vt_try(ep, __VA_ARGS__), 0)

struct ibv_sge vt_sge(const struct vt_ep *ep, size_t off, uint32_t len);
int vt_try_recv(struct vt_ep *ep, uint64_t id, size_t off, uint32_t len);
#define vt_recv(ep, id, off, len) assert_int_equal(vt_try_recv(ep, id, off, len), 0)

/*
 * Waiting is polling until the deadline; nothing sleeps. vt_wait() takes the next completion, whatever
 * it says; vt_expect() wants this request and this status.
 */
struct ibv_wc vt_wait_at(struct ibv_cq *cq, const char *file, int line);
struct ibv_wc vt_expect_at(
	struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status, const char *file, int line);
#define vt_wait_cq(cq)            vt_wait_at(cq, __FILE__, __LINE__)
#define vt_wait(ep)               vt_wait_at((ep)->cq, __FILE__, __LINE__)
#define vt_expect(ep, id, status) vt_expect_at((ep)->cq, id, status, __FILE__, __LINE__)
#define vt_ok(ep, id)             vt_expect(ep, id, IBV_WC_SUCCESS)
#define vt_cq_is_empty(ep)        assert_int_equal(ibv_poll_cq((ep)->cq, 1, &(struct ibv_wc){0}), 0)

/* The next completion, with one of two statuses: where adapters differ and both are right. */
struct ibv_wc vt_expect_either_at(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status a, enum ibv_wc_status b,
	const char *file, int line);
#define vt_expect_either(ep, id, a, b) vt_expect_either_at((ep)->cq, id, a, b, __FILE__, __LINE__)

/*
 * Sends a message and waits for it at the other end, whose receive is posted. UC and UD may lose one, but not
 * on an idle loopback: a message that does not arrive is a failure.
 */
struct ibv_wc vt_deliver_at(struct vt_ep *from, const struct vt_req *r, struct vt_ep *to, uint64_t recv_id,
	const char *file, int line);
#define vt_deliver(from, to, recv_id, ...)                                                                   \
	vt_deliver_at(from, &(struct vt_req){__VA_ARGS__}, to, recv_id, __FILE__, __LINE__)

/* Asynchronous events: waits for one of the type on the object, acknowledges it. */
void vt_expect_async_at(
	struct vt *t, enum ibv_event_type type, const void *element, const char *file, int line);
#define vt_expect_async(t, type, element) vt_expect_async_at(t, type, element, __FILE__, __LINE__)
/* Fails when an event is waiting now that the test must have caused. */
void vt_no_async(struct vt *t);

/* True when the descriptor becomes readable before the deadline / is readable now. */
bool vt_readable_soon(int fd);
bool vt_readable_now(int fd);
void vt_nonblock(int fd);

/*
 * Contents that differ by position and seed, and the check that they arrived and nothing more did. What a
 * WRITE alone has brought may come after its completion where that only says that it has left (RFC 5040);
 * nothing else may.
 */
void vt_fill(void *p, size_t len, uint32_t seed);
void vt_check_at(const void *p, size_t len, uint32_t seed, const char *file, int line);
void vt_check_written_at(const void *p, size_t len, uint32_t seed, const char *file, int line);
void vt_check_all_at(const void *p, size_t len, uint8_t byte, const char *file, int line);
#define vt_check(p, len, seed)         vt_check_at(p, len, seed, __FILE__, __LINE__)
#define vt_check_written(p, len, seed) vt_check_written_at(p, len, seed, __FILE__, __LINE__)
#define vt_check_all(p, len, byte)     vt_check_all_at(p, len, byte, __FILE__, __LINE__)

/* What a has written is in b's memory: at once where a WRITE is done only then, else a READ behind it tells.
 */
void vt_landed(struct vt_ep *a, const struct vt_ep *b);

/* One SEND from a to b and one back: shows that the connection lives. */
void vt_ping_pong_at(struct vt_ep *a, struct vt_ep *b, const char *file, int line);
#define vt_ping_pong(a, b) vt_ping_pong_at(a, b, __FILE__, __LINE__)

double vt_now(void); /* seconds, monotonic */
double vt_deadline(void);
/*
 * Whether threads get in each other's way here as nowhere else, so that how soon something happens says
 * nothing: valgrind runs one at a time, the thread sanitizer stops for up to a second to look up names for
 * its suppressions.
 */
bool vt_slow(void);
uint32_t vt_random(uint32_t *state);
uint32_t vt_mtu_bytes(enum ibv_mtu mtu);

/* Skips the running test when the transport does not claim the capability. */
bool vt_can(const char *cap);
#define vt_need(cap)                                                                                         \
	do {                                                                                                 \
		if (!vt_can(cap))                                                                            \
			skip_because("no " cap " by this transport");                                        \
	} while (0)

/* Whether the kernel lets this process have a userfaultfd, which ANYRDMA_LOCAL=map needs. */
bool vt_userfaultfd(void);

/* What a bad key makes fail at both ends: a WRITE, or a READ where a WRITE is done when it has left. */
static inline enum ibv_wr_opcode vt_refusable(void)
{
	return vt_can("ACK") ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
}

/*
 * A peer is this program again in another process, running one of the theme's roles with a socket to
 * the test. It starts by exec, so that it shares nothing with the test but the socket, and it dies
 * with the test.
 */
struct vt_peer {
	pid_t pid;
	int fd;
};

struct vt_role {
	const char *name;
	void (*run)(struct vt *t, int fd);
};

void vt_peer_start(struct vt_peer *p, const char *role);
/* Ends the peer: by closing the socket and waiting, or by SIGKILL. */
void vt_peer_finish(struct vt_peer *p);
void vt_peer_kill(struct vt_peer *p);
void vt_tell(int fd, const void *data, size_t len);
void vt_hear(int fd, void *data, size_t len);
/* Connects with the peer over the socket; both processes call it, with the same attributes. */
void vt_meet(struct vt_ep *ep, int fd, const struct vt_conn *c, struct vt_addr *peer);

int vt_setup(void **state);
int vt_teardown(void **state);
#define VT_TEST(f) cmocka_unit_test_setup_teardown(f, vt_setup, vt_teardown)

/* Runs a theme; argv[1] may be a pattern of test names, with a '!' in front one of those to leave out.
 * `roles` ends with a NULL name, or is NULL. */
int vt_main(int argc, char **argv, const char *theme, const struct CMUnitTest *tests, size_t n,
	const struct vt_role *roles);
#define VT_MAIN(theme, tests, roles)                                                                         \
	int main(int argc, char **argv)                                                                      \
	{                                                                                                    \
		return vt_main(argc, argv, theme, tests, ARRAY_LEN(tests), roles);                           \
	}

#endif
