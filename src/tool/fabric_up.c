/* SPDX-License-Identifier: MIT */
/* anyrdma fabric up, down: starts anyrdma-fabricd and waits for its word; ends it. */
#include "tool/fabric.h"
#include "tool/tool.h"

#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ARGS_OURS: those of add_ours(), and the NULL. */
enum { ARGS_MAX = 64, ARGS_OURS = 14, REPORT_FD = 3 };

/* anyrdma-fabricd lies beside us: ../libexec/anyrdma. */
static int program_path(char *buf, size_t len)
{
	char prefix[PATH_MAX];

	if (tool_prefix(prefix, sizeof(prefix)) ||
		(size_t)snprintf(buf, len, "%s/libexec/anyrdma/anyrdma-fabricd", prefix) >= len)
		return -ENOENT;
	return access(buf, X_OK) ? -errno : 0;
}

/* In the child of the child: a process of its own, whose errors go to the fabric's log. */
static void become(const char *program, char **args, const struct fabric_ref *f, int report)
{
	char log[PATH_MAX + 16];
	int fd;

	/* Where a standard stream was closed, the pipe may have taken its number, or REPORT_FD itself. */
	report = fcntl(report, F_DUPFD_CLOEXEC, REPORT_FD + 1);
	fd = open("/dev/null", O_RDWR);
	dup2(fd, 0);
	dup2(fd, 1);
	mkdir(f->dir, 0700);
	snprintf(log, sizeof(log), "%s/fabricd.log", f->dir);
	fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
	dup2(fd < 0 ? 0 : fd, 2);
	dup2(report, REPORT_FD);
	close_range(REPORT_FD + 1, ~0u, 0);
	unsetenv("ANYRDMA_HOST"); /* it is no program on a host */
	unsetenv("ANYRDMA_TREE");
	execv(program, args);
	dprintf(REPORT_FD, "error %s cannot be started: %s\n", program, strerror(errno));
	_exit(127);
}

/* What it says until it is ready. The last line but "ready" is shown while a large fabric is being made. */
static int follow(FILE *report)
{
	bool live = isatty(2), shown = false;
	char line[512];

	while (fgets(line, sizeof(line), report)) {
		line[strcspn(line, "\n")] = '\0';
		if (live && shown)
			fputs("\r\033[K", stderr);
		if (!strcmp(line, "ready"))
			return 0;
		if (!strncmp(line, "error ", 6)) {
			tool_warn("%s", line + 6);
			while (fgets(line, sizeof(line), report))
				; /* until it has ended, and its directory is free for the next */
			return -1;
		}
		shown = !!strncmp(line, "warning ", 8);
		if (!shown)
			tool_warn("%s", line + 8);
		else if (live)
			fprintf(stderr, "%s ...", line);
	}
	tool_warn("anyrdma-fabricd ended before the fabric was up");
	return -1;
}

static int start(const char *program, char **args, const struct fabric_ref *f)
{
	int ends[2], status;
	FILE *report;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC)) {
		tool_warn("no pipe: %s", strerror(errno));
		return -1;
	}
	pid = fork();
	if (!pid) {
		setsid();
		if (fork())
			_exit(0);
		become(program, args, f, ends[1]);
	}
	close(ends[1]);
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	report = fdopen(ends[0], "r");
	status = pid > 0 && report ? follow(report) : -1;
	if (report)
		fclose(report);
	return status;
}

void fabric_print_map(const struct fabric_ref *f)
{
	struct winsize w = {.ws_col = 80};
	char columns[16];
	char *map;

	ioctl(1, TIOCGWINSZ, &w);
	snprintf(columns, sizeof(columns), "%u", w.ws_col ? w.ws_col : 80);
	map = fabric_ask(f, (const char *const[]){"map", columns, tool_utf8() ? "utf8" : "ascii", NULL});
	if (map)
		fputs(map, stdout);
	free(map);
}

static int say_up(const struct fabric_ref *f)
{
	char *status = fabric_ask(f, (const char *const[]){"status", NULL});

	if (!status)
		return 1;
	fabric_print_map(f);
	printf("\n%s", status);
	free(status);
	return 0;
}

/* A whole number from 0 to max, or false after a message. */
static bool is_number(const char *option, const char *text, uint64_t max)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(text, &end, 0);
	if (*text >= '0' && *text <= '9' && !*end && !errno && v <= max)
		return true;
	tool_warn("%s wants a number, and '%s' is none that it can have", option, text);
	return false;
}

/* What the command line says. */
struct up {
	const char *name, *sm, *ip, *topology;
	bool quiet;
	char *args[ARGS_MAX]; /* for anyrdma-fabricd, so far */
	int n;
};

static void add(struct up *u, const char *option, const char *value)
{
	u->args[u->n++] = (char *)option;
	if (value)
		u->args[u->n++] = (char *)value;
}

/* An option that anyrdma-fabricd has, too. number: the largest that it may be; 0: it is none. */
static bool pass_on(struct up *u, const char *option, const char *value, uint64_t number)
{
	if (number && !is_number(option, value, number))
		return false;
	if (u->n > ARGS_MAX - ARGS_OURS - 2) {
		tool_warn("too many options");
		return false;
	}
	add(u, option, value);
	return true;
}

static bool take_option(struct up *u, int c)
{
	switch (c) {
	case 'n':
		u->name = optarg;
		return true;
	case 'S':
		u->sm = optarg;
		return true;
	case 'i':
		u->ip = optarg;
		return true;
	case 'q':
		u->quiet = true;
		return true;
	case 'u':
		return pass_on(u, "--until-unused", NULL, 0);
	case 'm':
		return pass_on(u, "--mtu", optarg, UINT_MAX);
	case 'v':
		return pass_on(u, "--speed", optarg, 0);
	case 's':
		return pass_on(u, "--seed", optarg, UINT64_MAX);
	case 'p':
		return pass_on(u, "--ports-per-hca", optarg, UINT_MAX);
	default:
		return false;
	}
}

/* false after a message. */
static bool read_options(int argc, char **argv, struct up *u)
{
	static const struct option options[] = {{"name", 1, 0, 'n'}, {"sm", 1, 0, 'S'}, {"mtu", 1, 0, 'm'},
		{"speed", 1, 0, 'v'}, {"seed", 1, 0, 's'}, {"ports-per-hca", 1, 0, 'p'}, {"ip", 1, 0, 'i'},
		{"quiet", 0, 0, 'q'}, {"until-unused", 0, 0, 'u'}, {0}};
	int c;

	optind = 1;
	argv[0] = "anyrdma: fabric up"; /* whose complaints are getopt's */
	while ((c = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (!take_option(u, c))
			return false;
	}
	if (strcmp(u->sm, "auto") && strcmp(u->sm, "off")) {
		tool_warn("--sm is auto or off; `anyrdma fabric sm opensm` starts OpenSM afterwards");
		return false;
	}
	if (optind + 1 < argc) {
		tool_warn("fabric up takes one topology; see anyrdma help fabric");
		return false;
	}
	if (optind < argc)
		u->topology = argv[optind];
	return true;
}

static void add_ours(struct up *u, const struct fabric_ref *f, const char *self)
{
	add(u, "--name", f->name);
	add(u, "--dir", f->dir);
	add(u, "--tool", self);
	add(u, "--ip", u->ip);
	add(u, "--sm", u->sm);
	add(u, "--report=3", NULL);
	add(u, "--", u->topology);
	u->args[u->n] = NULL;
}

int fabric_up_as(int argc, char **argv, struct fabric_ref *f)
{
	char program[PATH_MAX], self[PATH_MAX];
	struct up u = {.sm = "auto", .ip = "10.47.0.0/16", .topology = "star:4"};

	add(&u, program, NULL);
	if (!read_options(argc, argv, &u))
		return 2;
	if (!u.name && !env_text(ANYRDMA_FABRIC))
		u.name = FABRIC_DEFAULT;
	if (fabric_find(u.name, f))
		return 1;
	if (program_path(program, sizeof(program)) || tool_self(self, sizeof(self))) {
		tool_warn("anyrdma-fabricd is not there (%s): anyrdma is not completely built or installed",
			program);
		return 1;
	}
	if (f->up && fabric_stays(f)) {
		tool_warn("the fabric '%s' is already up; `anyrdma fabric down` ends it, --name starts "
			  "another one",
			f->name);
		return 1;
	}
	add_ours(&u, f, self);
	if (start(program, u.args, f))
		return 1;
	return u.quiet ? 0 : say_up(f);
}

int fabric_up(int argc, char **argv)
{
	struct fabric_ref f;

	return fabric_up_as(argc, argv, &f);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

int fabric_down(const struct fabric_ref *f)
{
	char *answer = fabric_ask(f, (const char *const[]){"down", NULL});

	free(answer);
	for (int i = 0; answer && i < 500; i++) {
		if (!fabric_is_up(f->dir))
			return 0;
		pause_ms(10);
	}
	if (answer)
		tool_warn("the fabric '%s' does not end; its log is %s/fabricd.log", f->name, f->dir);
	return 1;
}

int fabric_wait_active(const struct fabric_ref *f, unsigned seconds)
{
	unsigned active = 0, all = 0, managed = 0;

	for (unsigned i = 0; i < seconds * 50; i++) {
		char *answer = fabric_ask(f, (const char *const[]){"ready", NULL});
		int running = 0, status = 0;
		bool read = answer &&
			    sscanf(answer, "%u %u %d %d %u", &active, &all, &running, &status, &managed) == 5;

		free(answer);
		if (!read)
			return -1;
		/* Ports stay ACTIVE without a manager. Its work is done once (-o), or it is at its port. */
		if (active == all && (running ? managed : !status))
			return 0;
		if (!running) {
			tool_warn("opensm has ended with status %d%s; see %s/opensm/", status,
				status == 127 ? " (is it installed? Debian: apt install opensm)" : "",
				f->dir);
			return -1;
		}
		pause_ms(20);
	}
	tool_warn("after %u s only %u of %u ports are ACTIVE; see %s/opensm/opensm.log", seconds, active, all,
		f->dir);
	return -1;
}
