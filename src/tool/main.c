/* SPDX-License-Identifier: MIT */
/* anyrdma: the command. A file per subcommand; this one holds the table and the way in. */
#include "tool/tool.h"

#include "base/env.h"

#include <locale.h>
#include <string.h>

static int cmd_help(int argc, char **argv);

static const struct tool_cmd help_cmd = {
	.name = "help",
	.synopsis = "[COMMAND]",
	.summary = "show help, for one command when named",
	.help = "Shows the list of commands, or the options of COMMAND.",
	.run = cmd_help,
};

static const struct tool_cmd *const cmds[] = {
	&tool_cmd_run, &tool_cmd_devices, &tool_cmd_doctor, &tool_cmd_demo, &tool_cmd_fabric, &help_cmd};

#define NCMDS (sizeof(cmds) / sizeof(cmds[0]))

static void usage(FILE *to)
{
	fputs("Usage: anyrdma COMMAND [ARGUMENTS]\n\n"
	      "RDMA in user space: programs written for RDMA run on machines without an RDMA card.\n\n"
	      "Commands:\n",
		to);
	for (size_t i = 0; i < NCMDS; i++)
		fprintf(to, "  %-8s  %s\n", cmds[i]->name, cmds[i]->summary);
	fputs("\n"
	      "Options:\n"
	      "  -h, --help     this text\n"
	      "  -V, --version  the version\n\n"
	      "`anyrdma help COMMAND` tells more; the environment variables are in anyrdma(1).\n",
		to);
}

static size_t smallest(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* How many letters to add, drop or change to get from one word to the other (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
	size_t row[32], n = strlen(b);

	if (n >= sizeof(row) / sizeof(row[0]))
		return n;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; *a; a++, i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			size_t above = row[j];

			row[j] = smallest(above + 1, row[j - 1] + 1, diagonal + (*a != b[j - 1]));
			diagonal = above;
		}
	}
	return row[n];
}

static const struct tool_cmd *find(const char *name)
{
	for (size_t i = 0; i < NCMDS; i++)
		if (!strcmp(name, cmds[i]->name))
			return cmds[i];
	return NULL;
}

/* The command that was likely meant, or NULL: one that begins so, else one within two letters. */
static const struct tool_cmd *nearest_to(const char *name)
{
	const struct tool_cmd *nearest = cmds[0];

	for (size_t i = 0; i < NCMDS; i++)
		if (!strncmp(name, cmds[i]->name, strlen(name)))
			return cmds[i];
	for (size_t i = 1; i < NCMDS; i++)
		if (distance(name, cmds[i]->name) < distance(name, nearest->name))
			nearest = cmds[i];
	return distance(name, nearest->name) <= 2 ? nearest : NULL;
}

static int unknown(const char *name)
{
	const struct tool_cmd *nearest = nearest_to(name);

	if (nearest)
		tool_warn("there is no command '%s'. Did you mean '%s'?", name, nearest->name);
	else
		tool_warn(
			"there is no command '%s'. To run a program: anyrdma run %s; see also anyrdma --help",
			name, name);
	return 2;
}

static int cmd_help(int argc, char **argv)
{
	const struct tool_cmd *cmd;

	if (argc < 2 || argv[1][0] == '-') {
		usage(stdout);
		return 0;
	}
	cmd = find(argv[1]);
	if (!cmd)
		return unknown(argv[1]);
	tool_usage(stdout, cmd);
	return 0;
}

int main(int argc, char **argv)
{
	const struct tool_cmd *cmd;

	env_quiet = true; /* the libraries tell of what they do not understand */
	setlocale(LC_CTYPE, "");
	if (argc < 2) {
		usage(stderr);
		return 2;
	}
	if (!strcmp(argv[1], "-h") || !strcmp(argv[1], "--help")) {
		usage(stdout);
		return 0;
	}
	if (!strcmp(argv[1], "-V") || !strcmp(argv[1], "--version")) {
		puts("anyrdma " ANYRDMA_VERSION);
		return 0;
	}
	if (argv[1][0] == '-') {
		tool_warn("there is no option '%s'; see anyrdma --help", argv[1]);
		return 2;
	}
	cmd = find(argv[1]);
	if (!cmd)
		return unknown(argv[1]);
	if (argc > 2 && (!strcmp(argv[2], "-h") || !strcmp(argv[2], "--help"))) {
		tool_usage(stdout, cmd);
		return 0;
	}
	return cmd->run(argc - 1, argv + 1);
}
