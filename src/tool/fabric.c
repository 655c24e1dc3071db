/* SPDX-License-Identifier: MIT */
/* anyrdma fabric: an InfiniBand subnet in software. Each of its words is a row of the table at the end. */
#include "tool/fabric.h"
#include "tool/tool.h"

#include "base/clock.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORDS = 100, SM_PATIENCE = 60 };

/* How many words --name NAME or --name=NAME is at words[i]: its value. 0: another word stands there. */
static int read_name(int n, char **words, int i, const char **name)
{
	if (!strncmp(words[i], "--name=", 7)) {
		*name = words[i] + 7;
		return 1;
	}
	if (strcmp(words[i], "--name") || i + 1 >= n)
		return 0;
	*name = words[i + 1];
	return 2;
}

/* --name, wherever it stands, is taken off the words; what follows two dashes is another program's. */
static const char *take_name(int *argc, char **argv)
{
	const char *name = NULL;
	int n = 0, i = 0;

	while (i < *argc && strcmp(argv[i], "--")) {
		int used = read_name(*argc, argv, i, &name);

		if (!used)
			argv[n++] = argv[i];
		i += used ? used : 1;
	}
	while (i < *argc)
		argv[n++] = argv[i++];
	argv[n] = NULL;
	*argc = n;
	return name;
}

/* --name in front of the word that says what to do goes behind it. */
static void put_word_first(int argc, char **argv)
{
	const char *name;
	int at = 1, used;
	char *word;

	while (at < argc && (used = read_name(argc, argv, at, &name)))
		at += used;
	if (at >= argc)
		return;
	word = argv[at];
	memmove(argv + 2, argv + 1, (size_t)(at - 1) * sizeof(*argv));
	argv[1] = word;
}

static int ask_and_print(const char *name, const char *const *words)
{
	struct fabric_ref f;
	char *answer;

	if (fabric_find_up(name, &f))
		return 1;
	answer = fabric_ask(&f, words);
	if (!answer)
		return 1;
	fputs(answer, stdout);
	free(answer);
	return 0;
}

/* Whether more is said than a command takes, which is so many words: above all a name without --name, or
 * another fabric would be meant. */
static bool says_more(int argc, char **argv, int takes)
{
	if (argc <= takes + 1)
		return false;
	tool_warn("fabric %s takes no '%s'; --name NAME says which fabric", argv[0], argv[takes + 1]);
	return true;
}

/* Nothing but the name. */
static int bare(int argc, char **argv)
{
	const char *name = take_name(&argc, argv);

	return says_more(argc, argv, 0) ? 2 : ask_and_print(name, (const char *const[]){argv[0], NULL});
}

/* The words as they are. */
static int plain(int argc, char **argv)
{
	const char *words[WORDS + 2] = {argv[0]};
	const char *name = take_name(&argc, argv);

	if (argc > WORDS) {
		tool_warn("fabric %s: too many arguments", argv[0]);
		return 2;
	}
	for (int i = 1; i < argc; i++)
		words[i] = argv[i];
	return ask_and_print(name, words);
}

static int map(int argc, char **argv)
{
	const char *name = take_name(&argc, argv);
	struct fabric_ref f;
	bool written;
	char *svg;
	FILE *to;

	if (argc > 1 && strncmp(argv[1], "--svg=", 6)) {
		tool_warn("fabric map: there is no option '%s'; --svg=FILE draws a picture", argv[1]);
		return 2;
	}
	if (says_more(argc, argv, 1))
		return 2;
	if (fabric_find_up(name, &f))
		return 1;
	if (argc < 2) {
		fabric_print_map(&f);
		return 0;
	}
	svg = fabric_ask(&f, (const char *const[]){"map", "svg", NULL});
	if (!svg)
		return 1;
	to = fopen(argv[1] + 6, "w");
	written = to && fputs(svg, to) >= 0;
	if (to && fclose(to))
		written = false;
	if (written)
		printf("%s\n", argv[1] + 6);
	else
		tool_warn("%s cannot be written: %s", argv[1] + 6, strerror(errno));
	free(svg);
	return written ? 0 : 1;
}

/* The fabric opens the file, and it has another working directory. */
static int capture(int argc, char **argv)
{
	char cwd[PATH_MAX], path[2 * PATH_MAX];
	const char *words[WORDS + 2] = {argv[0]};
	const char *name = take_name(&argc, argv);

	if (argc < 2 || argc > WORDS) {
		tool_warn("fabric capture: to which file? See anyrdma help fabric");
		return 2;
	}
	for (int i = 1; i < argc; i++)
		words[i] = argv[i];
	if (strcmp(argv[1], "stop") && *argv[1] != '/' && getcwd(cwd, sizeof(cwd))) {
		snprintf(path, sizeof(path), "%s/%s", cwd, argv[1]);
		words[1] = path;
	}
	return ask_and_print(name, words);
}

/* Ends OpenSM, and waits until it has: another may be started then. */
static int sm_stop(const char *name)
{
	enum { LOOKS = 250 };
	const struct timespec pause = {.tv_nsec = 20000000};
	struct fabric_ref f;
	char *answer;
	bool running, answered;

	if (fabric_find_up(name, &f))
		return 1;
	answer = fabric_ask(&f, (const char *const[]){"sm", "stop", NULL});
	if (!answer)
		return 1;
	free(answer);
	for (int i = 0; i < LOOKS; i++) {
		answer = fabric_ask(&f, (const char *const[]){"sm", "running", NULL});
		answered = answer;
		running = answered && !strncmp(answer, "yes", 3);
		free(answer);
		if (!running)
			return !answered;
		nanosleep(&pause, NULL);
	}
	tool_warn("opensm does not end; `anyrdma fabric down` ends it with the fabric");
	return 1;
}

/* sm opensm [--host H] [-- OPTIONS] | sm stop | sm */
static int sm(int argc, char **argv)
{
	const char *name = take_name(&argc, argv), *words[WORDS + 4] = {"sm", "start", ""};
	uint64_t begin;
	struct fabric_ref f;
	char path[PATH_MAX], *answer;
	int i = 2, n = 3;

	if (argc < 2)
		return ask_and_print(name, (const char *const[]){"sm", "", NULL});
	if (!strcmp(argv[1], "stop") && argc == 2)
		return sm_stop(name);
	if (i < argc && !strncmp(argv[i], "--host=", 7)) {
		words[2] = argv[i++] + 7;
	} else if (i + 1 < argc && !strcmp(argv[i], "--host")) {
		words[2] = argv[i + 1];
		i += 2;
	}
	if (strcmp(argv[1], "opensm") || argc > WORDS || (i < argc && strcmp(argv[i], "--"))) {
		tool_warn("fabric sm: opensm [--host HOST] [-- OPTIONS], or stop");
		return 2;
	}
	while (++i < argc)
		words[n++] = argv[i];
	if (tool_which("opensm", path, sizeof(path))) {
		/* Debian has it where only root looks. */
		if (access("/usr/sbin/opensm", X_OK)) {
			tool_warn("opensm is not installed (Debian: apt install opensm)");
			return 1;
		}
	}
	if (fabric_find_up(name, &f))
		return 1;
	begin = clock_ns();
	answer = fabric_ask(&f, words);
	if (!answer)
		return 1;
	if (!fabric_wait_active(&f, SM_PATIENCE))
		printf("All ports are ACTIVE after %.2f s. Its log: %s", (double)(clock_ns() - begin) / 1e9,
			answer);
	else
		n = 0;
	free(answer);
	return n ? 0 : 1;
}

static int down(int argc, char **argv)
{
	const char *name = take_name(&argc, argv);
	struct fabric_ref f;

	if (says_more(argc, argv, 0))
		return 2;
	return fabric_find_up(name, &f) ? 1 : fabric_down(&f);
}

/* What ends us would leave the fabric behind: it is the program's, whose end is waited for. SIGCHLD is in. */
static sigset_t take_signals(sigset_t *before)
{
	static const int all[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD};
	struct sigaction how;
	sigset_t set;

	signal(SIGCHLD, SIG_DFL); /* whoever ignores it gets no status */
	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (!sigaction(all[i], NULL, &how) && how.sa_handler != SIG_IGN) /* nohup */
			sigaddset(&set, all[i]);
	sigprocmask(SIG_BLOCK, &set, before);
	return set;
}

/* Ended while the fabric came up: 128 and the signal, or 0. */
static int ended_before(void)
{
	sigset_t set;

	sigpending(&set);
	return sigismember(&set, SIGTERM) == 1  ? 128 + SIGTERM
	       : sigismember(&set, SIGINT) == 1 ? 128 + SIGINT
	       : sigismember(&set, SIGHUP) == 1 ? 128 + SIGHUP
						: 0;
}

/* A terminal's Ctrl-C has reached the program too. */
static int wait_for(pid_t pid, const sigset_t *signals)
{
	siginfo_t info;
	int status;

	while (waitpid(pid, &status, WNOHANG) != pid)
		if (sigwaitinfo(signals, &info) > 0 && info.si_signo != SIGCHLD && info.si_code != SI_KERNEL)
			kill(pid, info.si_signo);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* The program and those it starts are on the first host of the fabric unless they say otherwise. */
static int run_inside(const struct fabric_ref *f, char **cmd, const sigset_t *signals, const sigset_t *before)
{
	pid_t pid = fork();

	if (pid < 0)
		return 126;
	if (!pid) {
		setenv("ANYRDMA_FABRIC", f->name, 1);
		sigprocmask(SIG_SETMASK, before, NULL);
		execvp(cmd[0], cmd);
		tool_warn("%s: %s", cmd[0], strerror(errno));
		_exit(errno == ENOENT ? 127 : 126);
	}
	return wait_for(pid, signals);
}

/* run [OPTIONS of up] SPEC -- CMD: for scripts and CI. If we are killed, the fabric ends with the program. */
static int run(int argc, char **argv)
{
	int split = 1, status, n = 0;
	char own[32], *up[32];
	sigset_t signals, before;
	struct fabric_ref f;

	while (split < argc && strcmp(argv[split], "--"))
		split++;
	if (split + 1 >= argc || split > 24) {
		tool_warn("fabric run: SPEC -- PROGRAM; for example: anyrdma fabric run star:4 -- ./test.sh");
		return 2;
	}
	snprintf(own, sizeof(own), "run-%d", (int)getpid());
	up[n++] = "up";
	up[n++] = "--quiet";
	up[n++] = "--until-unused";
	up[n++] = "--name"; /* unless another one follows */
	up[n++] = own;
	for (int i = 1; i < split; i++)
		up[n++] = argv[i];
	up[n] = NULL;
	signals = take_signals(&before);
	status = fabric_up_as(n, up, &f);
	if (status)
		return status;
	status = ended_before();
	if (!status && fabric_hold(&f))
		status = 126;
	if (!status)
		status = run_inside(&f, argv + split + 1, &signals, &before);
	fabric_down(&f);
	return status;
}

/* What real fabrics have, and people will ask for. */
static int not_yet(int argc, char **argv)
{
	tool_warn(
		"fabric %s: subnets across machines, and IP interfaces of hosts, are not there yet", argv[0]);
	return 2;
}

static const struct {
	const char *word;
	int (*fn)(int argc, char **argv);
} table[] = {
	{"up", fabric_up},
	{"status", bare},
	{"hosts", bare},
	{"map", map},
	{"topology", bare},
	{"counters", plain},
	{"tables", plain},
	{"cut", plain},
	{"mend", plain},
	{"inject", plain},
	{"capture", capture},
	{"sm", sm},
	{"down", down},
	{"run", run},
	{"link", not_yet},
	{"ip", not_yet},
};

static int fabric(int argc, char **argv)
{
	put_word_first(argc, argv);
	if (argc < 2) {
		tool_usage(stderr, &tool_cmd_fabric);
		return 2;
	}
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (!strcmp(argv[1], table[i].word))
			return table[i].fn(argc - 1, argv + 1);
	tool_warn("fabric: there is no '%s'; see anyrdma help fabric", argv[1]);
	return 2;
}

const struct tool_cmd tool_cmd_fabric = {
	.name = "fabric",
	.synopsis = "up|status|hosts|map|topology|counters|tables|cut|mend|inject|capture|sm|down|run ...",
	.summary = "an InfiniBand subnet in software",
	.help = "Hosts, switches and cables of an InfiniBand subnet, run by a process of your own user.\n"
		"OpenSM and the diagnostics take it for real; `anyrdma run --host node1 ibstat` is a\n"
		"program on one of its hosts.\n\n"
		"  up [TOPOLOGY|FILE]    pair, star:N (default star:4), ring:N, fat-tree:K, "
		"tree:LEAVES,SPINES,HOSTS,\n"
		"                        torus:XxY[xZ], dragonfly:A,H,P, or a file of ibsim's or "
		"ibnetdiscover's\n"
		"     --name NAME        several fabrics can be up; all commands take --name\n"
		"     --mtu BYTES  --speed SDR|...|NDR  --ports-per-hca N  --seed N  --ip 10.47.0.0/16  "
		"--quiet\n"
		"     --sm=auto|off      auto: a built-in subnet manager, until OpenSM comes; off: none\n"
		"  sm opensm [--host H] [-- OPTIONS]   starts OpenSM on a host and waits until ports are "
		"ACTIVE\n"
		"  sm stop | sm          ends it; says who manages the subnet\n"
		"  status | hosts        in a few lines; a table of hosts, LIDs and addresses\n"
		"  map [--svg=FILE]      draws it\n"
		"  topology              its description, in ibnetdiscover's format\n"
		"  counters [PORT]...    packets, bytes, errors; a port is 'S1[3]'\n"
		"  tables [SWITCH]...    forwarding tables: each LID and the port, each group and the ports\n"
		"  cut PORT... | mend PORT...          the cable at a port\n"
		"  inject PORT FAULT...  loss=1% corrupt=0.1% duplicate=1% delay=50us, or none\n"
		"  capture FILE [PORT]...| capture stop   pcapng, for tshark and wireshark\n"
		"  down                  ends it\n"
		"  run TOPOLOGY -- CMD   up, CMD, down; the status is CMD's",
	.run = fabric,
};
