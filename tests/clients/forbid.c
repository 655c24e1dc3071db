/* SPDX-License-Identifier: MIT */
/* forbid NAME... -- PROGRAM ARGS...: runs the program; the kernel refuses it these system calls, with EPERM,
 * and does not know these options of sockets, as older ones do not (ENOPROTOOPT).
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
	const char *name;
	unsigned number;
} calls[] = {
	{"bpf", SYS_bpf},
	{"io_uring_setup", SYS_io_uring_setup},
	{"keyctl", SYS_keyctl},
	{"memfd_create", SYS_memfd_create},
	{"mount", SYS_mount},
	{"perf_event_open", SYS_perf_event_open},
	{"personality", SYS_personality},
	{"process_vm_readv", SYS_process_vm_readv},
	{"process_vm_writev", SYS_process_vm_writev},
	{"setns", SYS_setns},
	{"unshare", SYS_unshare},
	{"userfaultfd", SYS_userfaultfd},
};

static const struct {
	const char *name;
	unsigned level, number;
} options[] = {
	{"SO_ATTACH_REUSEPORT_CBPF", SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF},
	{"UDP_GRO", IPPROTO_UDP, UDP_GRO},
	{"UDP_SEGMENT", IPPROTO_UDP, UDP_SEGMENT},
};

#define LOAD(member)        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (value), 0, (skip))
#define END(verdict)        BPF_STMT(BPF_RET | BPF_K, (verdict))

static int filter(struct sock_filter *code, unsigned short len)
{
	struct sock_fprog program = {len, code};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static int forbid_call(unsigned number)
{
	struct sock_filter code[] = {
		LOAD(nr),
		UNLESS(number, 1),
		END(SECCOMP_RET_ERRNO | EPERM),
		END(SECCOMP_RET_ALLOW),
	};

	return filter(code, sizeof(code) / sizeof(code[0]));
}

static int forbid_option(unsigned level, unsigned number)
{
	struct sock_filter code[] = {
		LOAD(nr),
		UNLESS(SYS_setsockopt, 5),
		LOAD(args[1]),
		UNLESS(level, 3),
		LOAD(args[2]),
		UNLESS(number, 1),
		END(SECCOMP_RET_ERRNO | ENOPROTOOPT),
		END(SECCOMP_RET_ALLOW),
	};

	return filter(code, sizeof(code) / sizeof(code[0]));
}

static int forbid(const char *name)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (!strcmp(name, calls[i].name))
			return forbid_call(calls[i].number);
	}
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (!strcmp(name, options[i].name))
			return forbid_option(options[i].level, options[i].number);
	}
	errno = EINVAL;
	return -1;
}

int main(int argc, char **argv)
{
	int i = 1;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) {
		perror("forbid");
		return 77;
	}
	for (; i < argc && strcmp(argv[i], "--"); i++) {
		if (forbid(argv[i])) {
			perror(argv[i]);
			return 77;
		}
	}
	if (i + 1 >= argc)
		return 2;
	execvp(argv[i + 1], argv + i + 1);
	perror(argv[i + 1]);
	return 127;
}
