/* SPDX-License-Identifier: MIT */
/* What the checks of `anyrdma doctor` share. */
#ifndef TOOL_DOCTOR_H
#define TOOL_DOCTOR_H

enum doctor_level {
	DOCTOR_OK,
	DOCTOR_NOTE,    /* works, but could be better, or good to know */
	DOCTOR_PROBLEM, /* something does not work */
	DOCTOR_FATAL,   /* a problem without whose solution nothing works */
};

/* Adds a finding: one plain sentence on what is so. */
void doctor_say(enum doctor_level level, const char *check, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Adds to the last finding what to do about it. */
void doctor_advise(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A number in a file of /proc, or -1. */
long doctor_read_long(const char *path);

/* doctor_host.c */
void doctor_check_libraries(void);
void doctor_check_stock(void);
void doctor_check_rundir(void);
void doctor_check_files(void);
void doctor_check_devices(void);

/* doctor_memory.c */
void doctor_check_memfd(void);
void doctor_check_process_vm(void);

/* doctor_port.c */
void doctor_check_port(void);

/* doctor_net.c */
void doctor_check_interfaces(void);
void doctor_check_ipv6(void);
void doctor_check_reuseport(void);
void doctor_check_buffers(void);
void doctor_check_offload(void);

#endif
