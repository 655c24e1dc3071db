/* SPDX-License-Identifier: MIT */
/* forbid CALL... -- PROGRAM ARGS...: runs the program; the kernel refuses it these system calls, with EPERM.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
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

static int forbid(const char *name)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		struct sock_filter code[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i].number, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};

		if (!strcmp(name, calls[i].name))
			return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
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
