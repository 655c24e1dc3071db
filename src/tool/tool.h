/* SPDX-License-Identifier: MIT */
/* What the subcommands of `anyrdma` share. */
#ifndef TOOL_TOOL_H
#define TOOL_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A row of the table in main.c. run() gets argv[0] = the subcommand's name and returns the exit status. */
struct tool_cmd {
	const char *name;
	const char *synopsis; /* what follows the name */
	const char *summary;  /* one line */
	const char *help;     /* the rest of --help */
	int (*run)(int argc, char **argv);
};

extern const struct tool_cmd tool_cmd_run, tool_cmd_devices, tool_cmd_doctor, tool_cmd_demo, tool_cmd_fabric;

/* The path of this program. Returns 0 or -errno. */
int tool_self(char *buf, size_t len);

/* Where we are installed: the directory above that of this program. Returns 0 or -errno. */
int tool_prefix(char *buf, size_t len);

/* The directory of our libraries, found from the program's own place. Returns 0 or -errno; does not say
 * whether it exists. */
int tool_libdir(char *buf, size_t len);

/* File names in that directory, in preload order, ending with NULL. */
extern const char *const tool_libs[];

/* The first of tool_libs that cannot be read in dir, or NULL. */
const char *tool_lib_missing(const char *dir);

/* Finds a program as a shell would; a name with a slash stands for itself. Returns 0, -ENOENT, or
 * -EACCES when it is there but cannot be executed. */
int tool_which(const char *name, char *buf, size_t len);

void tool_usage(FILE *to, const struct tool_cmd *cmd);

/* A message on stderr, "anyrdma: ..." and a newline. */
void tool_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Colours only on a terminal and only when NO_COLOR is not set. */
bool tool_colour(FILE *to);

/* Whether the locale shows UTF-8. */
bool tool_utf8(void);

/* A JSON string with its quotes. */
void tool_json_str(FILE *to, const char *s);

/* The last path component. */
const char *tool_base(const char *path);

/* The UDP port anyrdma will use: ANYRDMA_PORT or 4791. */
uint16_t tool_udp_port(void);

/* Which path the queue pairs of running programs take; nothing when there are none. */
void tool_print_paths(void);

#endif
