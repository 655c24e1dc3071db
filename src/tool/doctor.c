/* SPDX-License-Identifier: MIT */
/* anyrdma doctor: tries what anyrdma needs and says in plain words what works and what to do.
 *
 * Each check is a function that reports findings; here are their order and the printing. A check tries the
 * thing itself where it can, and reads settings only to explain. */
#include "tool/doctor.h"
#include "tool/tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static void (*const checks[])(void) = {
	doctor_check_libraries,
	doctor_check_interfaces,
	doctor_check_devices,
	doctor_check_port,
	doctor_check_reuseport,
	doctor_check_offload,
	doctor_check_buffers,
	doctor_check_ipv6,
	doctor_check_rundir,
	doctor_check_memfd,
	doctor_check_process_vm,
	doctor_check_files,
	doctor_check_stock,
};

struct finding {
	enum doctor_level level;
	const char *check;
	char *text;
	char *advice; /* may be NULL */
};

static struct finding findings[256];
static int nfindings;

void doctor_say(enum doctor_level level, const char *check, const char *fmt, ...)
{
	struct finding *f = &findings[nfindings];
	va_list ap;

	if (nfindings == (int)(sizeof(findings) / sizeof(findings[0])))
		return;
	*f = (struct finding){.level = level, .check = check};
	va_start(ap, fmt);
	if (vasprintf(&f->text, fmt, ap) < 0)
		f->text = NULL;
	va_end(ap);
	if (f->text)
		nfindings++;
}

void doctor_advise(const char *fmt, ...)
{
	struct finding *f = &findings[nfindings - 1];
	va_list ap;

	if (!nfindings || f->advice)
		return;
	va_start(ap, fmt);
	if (vasprintf(&f->advice, fmt, ap) < 0)
		f->advice = NULL;
	va_end(ap);
}

long doctor_read_long(const char *path)
{
	FILE *f = fopen(path, "re");
	long value = -1;

	if (!f)
		return -1;
	if (fscanf(f, "%ld", &value) != 1)
		value = -1;
	fclose(f);
	return value;
}

static const struct {
	const char *word, *json, *colour;
} levels[] = {
	[DOCTOR_OK] = {"ok", "ok", "\033[32m"},
	[DOCTOR_NOTE] = {"note", "note", "\033[33m"},
	[DOCTOR_PROBLEM] = {"problem", "problem", "\033[31m"},
	[DOCTOR_FATAL] = {"problem", "problem", "\033[1;31m"},
};

static bool usable(void)
{
	for (int i = 0; i < nfindings; i++)
		if (findings[i].level == DOCTOR_FATAL)
			return false;
	return true;
}

/* Words folded at 100 columns, the following lines indented. */
static void print_folded(const char *text, int indent, int column)
{
	while (*(text += strspn(text, " "))) {
		int n = strcspn(text, " ");

		if (column > indent && column + 1 + n > 100)
			column = printf("\n%*s", indent, "") - 1;
		else if (column > indent)
			column += printf(" ");
		column += printf("%.*s", n, text);
		text += n;
	}
	putchar('\n');
}

static void print_text(void)
{
	bool colour = tool_colour(stdout);

	for (int i = 0; i < nfindings; i++) {
		const struct finding *f = &findings[i];

		printf("%s%-7s%s  %-12s ", colour ? levels[f->level].colour : "", levels[f->level].word,
			colour ? "\033[0m" : "", f->check);
		print_folded(f->text, 22, 22);
		if (f->advice) {
			printf("%22s", "");
			fputs("-> ", stdout);
			print_folded(f->advice, 25, 25);
		}
	}
	puts(usable() ? "\nanyrdma can be used on this machine."
		      : "\nanyrdma cannot be used before the problems above are solved.");
}

static void print_json(void)
{
	printf("{\"usable\": %s,\n \"checks\": [", usable() ? "true" : "false");
	for (int i = 0; i < nfindings; i++) {
		const struct finding *f = &findings[i];

		printf("%s\n  {\"check\": ", i ? "," : "");
		tool_json_str(stdout, f->check);
		printf(", \"status\": \"%s\", \"fatal\": %s, \"text\": ", levels[f->level].json,
			f->level == DOCTOR_FATAL ? "true" : "false");
		tool_json_str(stdout, f->text);
		if (f->advice) {
			printf(", \"advice\": ");
			tool_json_str(stdout, f->advice);
		}
		putchar('}');
	}
	puts("\n]}");
}

static int run(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'}, {0}};
	bool json = false;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (c != 'j')
			return 2;
		json = true;
	}
	if (optind < argc) {
		tool_warn("doctor: '%s' was not expected; see anyrdma help doctor", argv[optind]);
		return 2;
	}
	for (size_t i = 0; i < sizeof(checks) / sizeof(checks[0]); i++)
		checks[i]();
	if (json)
		print_json();
	else
		print_text();
	return usable() ? 0 : 1;
}

const struct tool_cmd tool_cmd_doctor = {
	.name = "doctor",
	.synopsis = "[--json]",
	.summary = "check this machine and say what to do",
	.help = "Tries what anyrdma needs of the system and says, line by line, what works (ok), what is\n"
		"worth knowing (note) and what does not work (problem), with what to do about it. The\n"
		"exit status is 0 unless a problem makes anyrdma unusable.\n\n"
		"  --json  the same for programs",
	.run = run,
};
