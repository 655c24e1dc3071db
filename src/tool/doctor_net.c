/* SPDX-License-Identifier: MIT */
/* Interfaces, and what the kernel's UDP offers: sharing a port, batches, buffers. */
#include "tool/doctor.h"
#include "base/env.h"
#include "tool/tool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#endif

/* ---- interfaces ---- */

/* The largest path MTU whose packets fit with the longest headers, as the kernel reckons it: GRH or IP 40,
 * UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4. */
static int path_mtu(int mtu)
{
	int best = 0;

	for (int m = 256; m <= 4096; m *= 2)
		if (m + 96 <= mtu)
			best = m;
	return best;
}

static void say_interface(int fd, const char *name, int *up)
{
	struct ifreq ifr = {0};
	int mtu;

	snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "%s", name);
	if (ioctl(fd, SIOCGIFFLAGS, &ifr))
		return;
	if (!(ifr.ifr_flags & IFF_UP)) {
		doctor_say(DOCTOR_NOTE, "interface", "%s is down and gives no device", name);
		doctor_advise("when it is wanted, as root: ip link set %s up", name);
		return;
	}
	if (ioctl(fd, SIOCGIFMTU, &ifr))
		return;
	mtu = ifr.ifr_mtu;
	++*up;
	if (!path_mtu(mtu)) {
		doctor_say(DOCTOR_PROBLEM, "interface", "%s has an MTU of %d, too small for RoCE", name, mtu);
		doctor_advise("352 is the least; as root: ip link set %s mtu 1500", name);
	} else {
		doctor_say(DOCTOR_OK, "interface", "%s is up; its MTU of %d allows a path MTU of %d", name,
			mtu, path_mtu(mtu));
	}
}

void doctor_check_interfaces(void)
{
	struct if_nameindex *all = if_nameindex();
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int up = 0;

	if (fd < 0) {
		doctor_say(DOCTOR_FATAL, "interface", "no UDP socket can be opened: %s", strerror(errno));
		doctor_advise("a container or sandbox forbids it; allow network sockets there");
	}
	for (struct if_nameindex *i = all; i && fd >= 0 && i->if_index; i++)
		say_interface(fd, i->if_name, &up);
	if (fd >= 0 && !up) {
		doctor_say(DOCTOR_FATAL, "interface", "no network interface is up, not even the loopback");
		doctor_advise("as root (or in your own network namespace): ip link set lo up");
	}
	if (all)
		if_freenameindex(all);
	if (fd >= 0)
		close(fd);
}

void doctor_check_ipv6(void)
{
	struct sockaddr_in6 sa = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && !bind(fd, (void *)&sa, sizeof(sa))) {
		doctor_say(DOCTOR_OK, "IPv6", "on");
	} else {
		doctor_say(DOCTOR_NOTE, "IPv6", "off (%s): devices have IPv4 GIDs only", strerror(errno));
		doctor_advise(
			"nothing needs it; to have it, as root: sysctl net.ipv6.conf.all.disable_ipv6=0");
	}
	if (fd >= 0)
		close(fd);
}

/* ---- sockets ---- */

/* A UDP socket on a free port of the loopback address, or -1. */
static int loopback_socket(struct sockaddr_in *sa)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*sa);
	int one = 1;

	*sa = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (!bind(fd, (void *)sa, sizeof(*sa)) && !getsockname(fd, (void *)sa, &len))
		return fd;
	close(fd);
	return -1;
}

void doctor_check_reuseport(void)
{
	struct sock_filter code[] = {{BPF_RET | BPF_K, 0, 0, 0}};
	struct sock_fprog prog = {.len = 1, .filter = code};
	struct sockaddr_in sa;
	int fd = loopback_socket(&sa);

	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &prog, sizeof(prog))) {
		doctor_say(
			DOCTOR_OK, "port sharing", "programs can share the port, each gets its own packets");
	} else {
		doctor_say(DOCTOR_PROBLEM, "port sharing",
			"packets cannot be steered among programs that share the port "
			"(SO_ATTACH_REUSEPORT_CBPF: %s)",
			strerror(errno));
		doctor_advise(
			"one program at a time works; for more, a Linux of at least 4.5 without a sandbox "
			"that forbids this socket option");
	}
	if (fd >= 0)
		close(fd);
}

static void say_buffer(int fd, const char *what, int option, const char *setting)
{
	char path[64];
	int want = 4 << 20, got = 0;
	socklen_t len = sizeof(got);
	long max;

	snprintf(path, sizeof(path), "/proc/sys/net/core/%s", setting);
	max = doctor_read_long(path);
	setsockopt(fd, SOL_SOCKET, option, &want, sizeof(want));
	if (getsockopt(fd, SOL_SOCKET, option, &got, &len))
		return;
	got /= 2; /* the kernel counts its own overhead in */
	if (got >= 1 << 20) {
		doctor_say(DOCTOR_OK, "buffers", "a socket's %s buffer can have %d KiB", what, got >> 10);
		return;
	}
	doctor_say(DOCTOR_NOTE, "buffers", "a socket's %s buffer can have only %d KiB%s", what, got >> 10,
		max < 0         ? ""
		: max < 1 << 20 ? " (the system's limit)"
				: "");
	doctor_advise("anyrdma keeps within that; for more speed between hosts, as root: sysctl "
		      "net.core.%s=4194304",
		setting);
}

void doctor_check_buffers(void)
{
	struct sockaddr_in sa;
	int fd = loopback_socket(&sa);

	if (fd < 0)
		return;
	say_buffer(fd, "receive", SO_RCVBUF, "rmem_max");
	say_buffer(fd, "send", SO_SNDBUF, "wmem_max");
	close(fd);
}

/* ---- batches ---- */

enum { SEGMENT = 1000, SEGMENTS = 3 };

/* Sends SEGMENTS datagrams in one call. Returns 0 or -errno. */
static int send_batch(const struct sockaddr_in *to)
{
	static char data[SEGMENT * SEGMENTS];
	struct sockaddr_in sa;
	int fd = loopback_socket(&sa);
	int size = SEGMENT, err = 0;

	if (fd < 0 || setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof(size)) ||
		sendto(fd, data, sizeof(data), 0, (const void *)to, sizeof(*to)) != sizeof(data))
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

/* Reads all that has come: how many reads it took, how many bytes, and the largest read. */
static void receive_all(int fd, int *reads, int *bytes, int *largest)
{
	char data[SEGMENT * SEGMENTS];
	struct pollfd p = {.fd = fd, .events = POLLIN};

	*reads = *bytes = *largest = 0;
	while (*bytes < SEGMENT * SEGMENTS && poll(&p, 1, 1000) > 0) {
		int n = recv(fd, data, sizeof(data), 0);

		if (n < 0)
			return;
		++*reads;
		*bytes += n;
		if (n > *largest)
			*largest = n;
	}
}

static void check_send(const char *off)
{
	struct sockaddr_in to;
	int fd = loopback_socket(&to);
	int reads, bytes, largest, err = -EIO;

	if (fd >= 0)
		err = send_batch(&to);
	if (!err)
		receive_all(fd, &reads, &bytes, &largest);
	if (!err && reads == SEGMENTS && bytes == SEGMENT * SEGMENTS) {
		doctor_say(DOCTOR_OK, "batches", "packets are sent in batches (UDP_SEGMENT)%s", off);
	} else {
		doctor_say(DOCTOR_NOTE, "batches", "packets cannot be sent in batches (UDP_SEGMENT: %s)",
			err ? strerror(-err) : "the packets did not arrive as sent");
		doctor_advise(
			"works, but large transfers are about three times slower; Linux has it since 4.18, "
			"some sandboxes take it away");
	}
	if (fd >= 0)
		close(fd);
}

static void check_receive(void)
{
	struct sockaddr_in to;
	int fd = loopback_socket(&to);
	int one = 1, reads = 0, bytes = 0, largest = 0;
	bool ok = fd >= 0 && !setsockopt(fd, IPPROTO_UDP, UDP_GRO, &one, sizeof(one));

	if (!ok) {
		doctor_say(DOCTOR_NOTE, "batches", "packets cannot be received in batches (UDP_GRO: %s)",
			strerror(errno));
		doctor_advise("works, but large transfers are slower; Linux has it since 5.0");
	} else {
		if (!send_batch(&to))
			receive_all(fd, &reads, &bytes, &largest);
		if (largest > SEGMENT)
			doctor_say(DOCTOR_OK, "batches", "packets are received in batches (UDP_GRO)");
		else
			doctor_say(DOCTOR_NOTE, "batches",
				"UDP_GRO is there, but the trial's packets came one by one");
	}
	if (fd >= 0)
		close(fd);
}

void doctor_check_offload(void)
{
	check_send(env_value(ANYRDMA_GSO) ? "" : ", but ANYRDMA_GSO=off turns that off");
	check_receive();
}
