/* SPDX-License-Identifier: MIT */
/* Agents of a port, and what they send. */
#include "front/umad_front.h"

#include "base/cancel.h"
#include "base/clock.h"
#include "wire/rmpp.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <infiniband/umad.h>

enum { CLASS_SMP = 0x01, CLASS_SMP_DIRECTED = 0x81, VENDOR_FIRST = 0x30, VENDOR_LAST = 0x4f };
enum { MESSAGE_LEAST = 36 }; /* the kernel's: a MAD with an RMPP header */
enum { OPENIB_OUI = 0x001405 };

/* ---- registering ---- */
/* The number of the new agent, or a negative errno: EPERM for a method that has an owner. */
static int add_agent(int portid, struct fabric_register *r)
{
	struct umad_handle *p = umad_handle_get(portid);
	int err = 0, id;

	if (!p)
		return -EINVAL;
	r->qp = r->mgmt_class != CLASS_SMP && r->mgmt_class != CLASS_SMP_DIRECTED;
	umad_handle_mend(p);
	pthread_mutex_lock(&p->sending);
	for (id = 0; id < FABRIC_AGENTS && p->agents >> id & 1; id++)
		;
	if (id == FABRIC_AGENTS) {
		err = ENOMEM;
	} else {
		r->agent = (uint32_t)id;
		err = umad_handle_agent(p, FABRIC_REGISTER, *r);
	}
	if (!err) {
		pthread_mutex_lock(&p->lock);
		p->agent[id] = *r;
		p->agents |= 1u << id;
		pthread_mutex_unlock(&p->lock);
	}
	pthread_mutex_unlock(&p->sending);
	umad_handle_put(p);
	return err ? -err : id;
}

/* The kernel's word for a method that has an owner, and for most that is wrong, is EINVAL. */
static int kernels(int err)
{
	return err == EPERM ? EINVAL : err;
}

static void copy_mask(struct fabric_register *r, const long *mask)
{
	_Static_assert(sizeof(r->methods) == 16, "128 methods");
	if (mask)
		memcpy(r->methods, mask, sizeof(r->methods));
}

int umad_register(int portid, int mgmt_class, int mgmt_version, uint8_t rmpp_version,
	long method_mask[16 / sizeof(long)])
{
	CANCEL_SAFE;
	struct fabric_register r = {.mgmt_class = (uint8_t)mgmt_class,
		.class_version = (uint8_t)mgmt_version,
		.rmpp_version = rmpp_version,
		.oui = {OPENIB_OUI >> 16, OPENIB_OUI >> 8 & 0xff, OPENIB_OUI & 0xff}};
	int id;

	copy_mask(&r, method_mask);
	id = add_agent(portid, &r);
	if (id < 0)
		errno = kernels(-id);
	return id < 0 ? -EPERM : id;
}

int umad_register_oui(
	int portid, int mgmt_class, uint8_t rmpp_version, uint8_t oui[3], long method_mask[16 / sizeof(long)])
{
	CANCEL_SAFE;
	struct fabric_register r = {
		.mgmt_class = (uint8_t)mgmt_class, .class_version = 1, .rmpp_version = rmpp_version};
	int id;

	if (mgmt_class < VENDOR_FIRST || mgmt_class > VENDOR_LAST)
		return umad_error(EINVAL);
	memcpy(r.oui, oui, 3);
	copy_mask(&r, method_mask);
	id = add_agent(portid, &r);
	return id < 0 ? umad_error(kernels(-id)) : id;
}

/* Alone of all, this reports a positive errno. Flags that we do not know are answered with those we do. */
int umad_register2(int port_fd, struct umad_reg_attr *attr, uint32_t *agent_id)
{
	CANCEL_SAFE;
	struct fabric_register r;
	int id;

	if (attr->flags & ~(uint32_t)UMAD_USER_RMPP) {
		attr->flags = UMAD_USER_RMPP;
		return errno = EINVAL;
	}
	if (attr->oui & 0xff000000)
		return errno = EINVAL;
	r = (struct fabric_register){.mgmt_class = attr->mgmt_class,
		.class_version = attr->mgmt_class_version,
		.rmpp_version = attr->rmpp_version,
		.methods = {attr->method_mask[0], attr->method_mask[1]},
		.oui = {(uint8_t)(attr->oui >> 16), (uint8_t)(attr->oui >> 8), (uint8_t)attr->oui},
		.flags = attr->flags & UMAD_USER_RMPP ? FABRIC_USER_RMPP : 0};
	id = add_agent(port_fd, &r);
	if (id < 0)
		return errno = kernels(-id);
	*agent_id = (uint32_t)id;
	return 0;
}

static void forget_requests(struct umad_handle *p, uint32_t agent)
{
	list_for_each_safe(pos, &p->waiting)
	{
		struct umad_waiting *w = container_of(pos, struct umad_waiting, node);

		if (w->mad.agent == agent) {
			list_del(pos);
			free(w);
		}
	}
}

/* Whoever has sent something has sent it: the fabric looks at that first. */
static bool remove_agent(struct umad_handle *p, int id)
{
	bool found, down;

	pthread_mutex_lock(&p->sending);
	pthread_mutex_lock(&p->lock);
	found = id >= 0 && id < FABRIC_AGENTS && p->agents >> id & 1;
	down = p->down;
	if (found) {
		p->agents &= ~(1u << id);
		forget_requests(p, (uint32_t)id);
	}
	pthread_mutex_unlock(&p->lock);
	if (found && !down)
		umad_handle_agent(p, FABRIC_UNREGISTER, p->agent[id]);
	pthread_mutex_unlock(&p->sending);
	return found;
}

int umad_unregister(int portid, int agentid)
{
	CANCEL_SAFE;
	struct umad_handle *p = umad_handle_get(portid);
	bool found;

	if (!p)
		return -EINVAL;
	found = remove_agent(p, agentid);
	umad_handle_put(p);
	if (found)
		return 0;
	errno = EINVAL;
	return -1;
}

/* ---- sending ---- */
bool umad_is_response(const uint8_t *mad)
{
	return mad[3] & 0x80 || mad[3] == 0x07 || (mad[1] == 0x05 && mad[23] & 1);
}

static bool is_in_use(struct umad_handle *p, const struct fabric_mad *mad, const uint8_t *msg)
{
	list_for_each(pos, &p->waiting)
	{
		struct umad_waiting *w = container_of(pos, struct umad_waiting, node);

		if (w->mad.agent == mad->agent && w->msg[1] == msg[1] && !memcmp(w->msg + 12, msg + 12, 4))
			return true;
	}
	return false;
}

/* Remembers a request until its response is there: 0 or ENOMEM. */
static int note_request(struct umad_handle *p, const struct fabric_mad *mad, const uint8_t *msg, size_t len)
{
	struct umad_waiting *w = malloc(sizeof(*w) + (p->down ? len : UMAD_HDR));

	if (!w)
		return ENOMEM;
	w->len = p->down ? len : UMAD_HDR;
	memcpy(w->msg, msg, w->len);
	w->mad = *mad;
	w->mad.status = ETIMEDOUT;
	w->mad.length = sizeof(*mad) + UMAD_HDR;
	w->deadline = clock_ns() + (uint64_t)mad->timeout_ms * (mad->retries + 1ull) * 1000000ull;
	list_add_tail(&p->waiting, &w->node);
	if (p->down)
		umad_handle_set_alarm(p);
	return 0;
}

/* As the kernel has it: longer than a MAD is only what it makes segments of, and that has its class's header.
 */
static bool is_length_of(const struct fabric_register *r, const uint8_t *msg, size_t len)
{
	if (r->rmpp_version && !(r->flags & FABRIC_USER_RMPP) && rmpp_is_active(msg))
		return len >= rmpp_data_offset(msg[1]);
	return len <= MAD_LEN;
}

static int check_and_note(struct umad_handle *p, const struct fabric_mad *mad, const uint8_t *msg, size_t len)
{
	int err = 0;

	pthread_mutex_lock(&p->lock);
	if (!(p->agents >> mad->agent & 1) || !is_length_of(&p->agent[mad->agent], msg, len) ||
		(!umad_is_response(msg) && is_in_use(p, mad, msg)))
		err = EINVAL;
	else if (!umad_is_response(msg) && mad->timeout_ms)
		err = note_request(p, mad, msg, len);
	pthread_mutex_unlock(&p->lock);
	return err;
}

int umad_handle_write(int fd, const struct fabric_mad *mad, const void *msg, size_t len)
{
	struct fabric_msg m = {(uint32_t)(sizeof(*mad) + len), FABRIC_UMAD_VERSION, FABRIC_SEND};
	struct iovec iovs[] = {{&m, sizeof(m)}, {(void *)mad, sizeof(*mad)}, {(void *)msg, len}}, *iov = iovs;
	size_t count = 3;

	while (count) {
		struct msghdr h = {.msg_iov = iov, .msg_iovlen = count};
		ssize_t n = sendmsg(fd, &h, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno;
		for (; count && (size_t)n >= iov->iov_len; count--, iov++)
			n -= (ssize_t)iov->iov_len;
		if (count) {
			iov->iov_base = (char *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
	return 0;
}

/* While the fabric is gone a request waits for it, or times out; the rest is lost, as on a cut cable. */
static int send_message(struct umad_handle *p, const struct fabric_mad *mad, size_t len)
{
	const uint8_t *msg = (const uint8_t *)mad + sizeof(*mad);
	int err, lost = 0;

	pthread_mutex_lock(&p->sending);
	err = check_and_note(p, mad, msg, len);
	if (!err && !p->down)
		lost = umad_handle_write(p->fd, mad, msg, len);
	pthread_mutex_unlock(&p->sending);
	if (lost)
		umad_handle_lost(p);
	return err;
}

int umad_send(int portid, int agentid, void *umad, int length, int timeout_ms, int retries)
{
	CANCEL_SAFE;
	struct ib_user_mad *mad = umad;
	struct umad_handle *p;
	int err;

	if (!umad || length < MESSAGE_LEAST ||
		(size_t)length > FABRIC_MESSAGE_MAX - sizeof(struct fabric_mad) || agentid < 0 ||
		agentid >= FABRIC_AGENTS) {
		errno = EINVAL;
		return -EIO;
	}
	mad->timeout_ms = (uint32_t)timeout_ms;
	mad->retries = (uint32_t)retries;
	mad->agent_id = (uint32_t)agentid;
	p = umad_handle_get(portid);
	if (!p)
		return -EIO;
	umad_handle_mend(p);
	err = send_message(p, umad, (size_t)length);
	umad_handle_put(p);
	if (err) {
		errno = err;
		return -EIO;
	}
	return 0;
}
