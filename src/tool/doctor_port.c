/* SPDX-License-Identifier: MIT */
/* Is the UDP port ours to use, and if not, who has it?
 *
 * /proc/net/udp names each socket's owner and inode; the process is whoever has that inode among its
 * descriptors. A socket that no process has belongs to the kernel (rdma_rxe) or to a process that we cannot
 * see: one of another user, or of another PID namespace. */
#include "tool/doctor.h"
#include "tool/tool.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CHECK "UDP port"

struct holder {
	unsigned long inode;
	unsigned uid;
	int pid; /* 0: not found */
	char name[32];
	bool anyrdma;
};

struct holders {
	struct holder h[256];
	int n;
};

static void read_table(const char *path, unsigned port, struct holders *hs)
{
	FILE *f = fopen(path, "re");
	char line[512];

	while (f && fgets(line, sizeof(line), f)) {
		struct holder *h = &hs->h[hs->n];
		unsigned local;

		if (hs->n == (int)(sizeof(hs->h) / sizeof(hs->h[0])))
			break;
		*h = (struct holder){0};
		if (sscanf(line, " %*d: %*[0-9A-Fa-f]:%x %*s %*x %*x:%*x %*x:%*x %*x %u %*d %lu", &local,
			    &h->uid, &h->inode) == 3 &&
			local == port)
			hs->n++;
	}
	if (f)
		fclose(f);
}

/* Whether the process has our libibverbs loaded, wherever anyrdma is installed for it. */
static bool runs_anyrdma(int pid)
{
	char path[64], line[PATH_MAX + 128];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof(line), f))
		found = strstr(line, "/anyrdma/libibverbs.so") != NULL;
	if (f)
		fclose(f);
	return found;
}

static void set_owner(struct holder *h, int pid)
{
	char path[64];
	FILE *f;

	h->pid = pid;
	h->anyrdma = runs_anyrdma(pid);
	snprintf(path, sizeof(path), "/proc/%d/comm", pid);
	f = fopen(path, "re");
	if (!f || !fgets(h->name, sizeof(h->name), f))
		strcpy(h->name, "?");
	h->name[strcspn(h->name, "\n")] = '\0';
	if (f)
		fclose(f);
}

static void search_process(int pid, struct holders *hs)
{
	char path[64], link[64];
	unsigned long inode;
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && (e = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		if (n <= 0)
			continue;
		link[n] = '\0';
		if (sscanf(link, "socket:[%lu]", &inode) != 1)
			continue;
		for (int i = 0; i < hs->n; i++)
			if (hs->h[i].inode == inode && !hs->h[i].pid)
				set_owner(&hs->h[i], pid);
	}
	if (dir)
		closedir(dir);
}

static void find_owners(struct holders *hs)
{
	DIR *proc = hs->n ? opendir("/proc") : NULL;
	struct dirent *e;

	while (proc && (e = readdir(proc)))
		if (isdigit((unsigned char)e->d_name[0]))
			search_process(atoi(e->d_name), hs);
	if (proc)
		closedir(proc);
}

static const char *user_name(unsigned uid)
{
	static char buf[64];
	struct passwd *pw = getpwuid(uid);

	if (pw)
		snprintf(buf, sizeof(buf), "%s", pw->pw_name);
	else
		snprintf(buf, sizeof(buf), "%u", uid);
	return buf;
}

/* Can a socket be bound the way anyrdma does it? The address is taken with the port set. */
static bool can_bind(const struct sockaddr *sa)
{
	int fd = socket(sa->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int one = 1;
	bool ok;

	if (fd < 0)
		return false;
	setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one));
	if (sa->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
	ok = !bind(
		fd, sa, sa->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in));
	close(fd);
	return ok;
}

/* Tries every address of this machine; writes those that are refused to text. */
static void try_addresses(int port, int *tried, int *refused, char *text, size_t len)
{
	struct ifaddrs *all, *a;
	char buf[INET6_ADDRSTRLEN];
	size_t at = 0;

	*tried = *refused = 0;
	*text = '\0';
	if (getifaddrs(&all))
		return;
	for (a = all; a; a = a->ifa_next) {
		struct sockaddr_in *in = (void *)a->ifa_addr;
		struct sockaddr_in6 *in6 = (void *)a->ifa_addr;
		int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;

		if ((family != AF_INET && family != AF_INET6) || !(a->ifa_flags & IFF_UP))
			continue;
		in->sin_port = htons(port); /* the same place in both */
		++*tried;
		if (can_bind(a->ifa_addr))
			continue;
		++*refused;
		inet_ntop(family, family == AF_INET ? (void *)&in->sin_addr : (void *)&in6->sin6_addr, buf,
			sizeof(buf));
		if (at < len)
			at += snprintf(text + at, len - at, "%s%s", at ? ", " : "", buf);
	}
	freeifaddrs(all);
}

static bool kernel_rxe(void)
{
	return !access("/sys/module/rdma_rxe", F_OK);
}

/* Names a holder that is not one of our own processes. */
static void say_holder(enum doctor_level level, int port, const struct holder *h)
{
	bool visible = geteuid() == 0 || h->uid == geteuid();

	if (h->pid && h->anyrdma && h->uid != geteuid()) {
		doctor_say(level, CHECK, "%d is used by an anyrdma program of user %s: %s (process %d)", port,
			user_name(h->uid), h->name, h->pid);
		doctor_advise("only programs of one user can share the port; run as that user, in a network "
			      "namespace of your own, or set ANYRDMA_PORT to another port on both ends");
	} else if (h->pid) {
		doctor_say(level, CHECK, "%d is used by %s (process %d, user %s)", port, h->name, h->pid,
			user_name(h->uid));
		doctor_advise("end that program, or set ANYRDMA_PORT to another port on both ends");
	} else if (visible) {
		doctor_say(level, CHECK, "%d is used by a socket that no process here has: %s", port,
			kernel_rxe()
				? "the kernel's own soft RoCE (rdma_rxe is loaded)"
				: "the kernel's soft RoCE (rdma_rxe), or a program in another container that "
				  "shares this network");
		doctor_advise("remove the kernel's device (as root: rdma link show, rdma link delete NAME, "
			      "modprobe -r rdma_rxe), or set ANYRDMA_PORT to another port on both ends");
	} else {
		doctor_say(level, CHECK,
			"%d is used by a socket of user %s; which process it is only that user and root can "
			"see%s",
			port, user_name(h->uid),
			h->uid == 0 && kernel_rxe() ? " (rdma_rxe is loaded: likely the kernel's soft RoCE)"
						    : "");
		doctor_advise(
			"run anyrdma doctor as root to learn more, or set ANYRDMA_PORT to another port on "
			"both ends");
	}
}

void doctor_check_port(void)
{
	static struct holders hs;
	int port = tool_udp_port(), tried, refused, sharing = 0;
	char text[1024];

	read_table("/proc/net/udp", port, &hs);
	read_table("/proc/net/udp6", port, &hs);
	find_owners(&hs);
	for (int i = 0; i < hs.n; i++)
		sharing += hs.h[i].anyrdma && hs.h[i].uid == geteuid();
	if (sharing) {
		/* A socket of ours on trial would take packets from theirs; that they have it is proof. */
		doctor_say(DOCTOR_OK, CHECK, "%d is shared by anyrdma programs of yours that are running now",
			port);
		return;
	}
	try_addresses(port, &tried, &refused, text, sizeof(text));
	if (!refused) {
		doctor_say(DOCTOR_OK, CHECK, "%d can be used on all %d addresses%s", port, tried,
			hs.n ? " although another program has a socket on it" : "");
		return;
	}
	doctor_say(refused == tried ? DOCTOR_FATAL : DOCTOR_PROBLEM, CHECK, "%d cannot be used on: %s", port,
		text);
	if (!hs.n && port < 1024)
		doctor_advise("ports below 1024 are for root; choose another in ANYRDMA_PORT");
	for (int i = 0; i < hs.n; i++)
		say_holder(DOCTOR_PROBLEM, port, &hs.h[i]);
}
