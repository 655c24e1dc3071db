/* SPDX-License-Identifier: MIT */
/* anyrdma run: starts a program with our libraries in place of the stock ones.
 *
 * Both ways are needed, and together they load one copy: LD_LIBRARY_PATH reaches what the program opens
 * later by name (dlopen("libibverbs.so"), plugins), LD_PRELOAD reaches programs that carry a search path
 * of their own (DT_RPATH). The path shim comes by LD_PRELOAD alone, and so does the library that stands in
 * front of the program's sockets, when it is asked for. */
#include "tool/tool.h"
#include "base/env.h"
#include "tool/devlist.h"
#include "tool/fabric.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define SOCKETS_LIB "librspreload.so.1"

/* As a shell and env(1) have it. */
enum { CANNOT_RUN = 126, NOT_FOUND = 127 };

/* A sanitizer's runtime must be the first of all preloaded libraries. */
static bool is_sanitizer(const char *entry, size_t len)
{
	static const char *const names[] = {"libasan.", "libtsan.", "libubsan.", "liblsan.", "libclang_rt."};
	const char *base = entry;

	for (const char *p = entry; p < entry + len; p++)
		if (*p == '/')
			base = p + 1;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(base, names[i], strlen(names[i])))
			return true;
	return false;
}

static bool in_dir(const char *entry, size_t len, const char *dir)
{
	size_t n = strlen(dir);

	return len >= n && !strncmp(entry, dir, n) && (len == n || entry[n] == '/');
}

static void add(FILE *to, const char *entry, size_t len)
{
	if (ftell(to))
		fputc(':', to);
	fwrite(entry, 1, len, to);
}

/* Copies the entries of a list that pass the test. */
static void add_old(FILE *to, const char *list, const char *separators, const char *ours, bool sanitizers)
{
	for (size_t n; list && *(list += strspn(list, separators)); list += n) {
		n = strcspn(list, separators);
		if (!in_dir(list, n, ours) && is_sanitizer(list, n) == sanitizers)
			add(to, list, n);
	}
}

static bool contains_lib(const char *list, const char *lib)
{
	return list && strstr(list, lib);
}

/* A directory with a space in its name cannot be written in LD_PRELOAD, but bare names are looked up in
 * LD_LIBRARY_PATH. */
static void add_lib(FILE *to, const char *old, const char *dir, const char *lib)
{
	bool bare = strchr(dir, ' ') != NULL;
	char path[PATH_MAX + 64];

	if (bare && contains_lib(old, lib))
		return;
	snprintf(path, sizeof(path), "%s%s%s", bare ? "" : dir, bare ? "" : "/", lib);
	add(to, path, strlen(path));
}

/* The thread sanitizer's runtime calls sigaction(), which would be our instrumented one, before it can run
 * such code; and socket() would be called by it, whoever called it (caller_is_ours of preload/sock.c). */
#ifdef __SANITIZE_THREAD__
enum { SOCKETS_BEFORE_SANITIZER = true };
#else
enum { SOCKETS_BEFORE_SANITIZER = false };
#endif

/* A program may free what it has sent when the answer is there, as OpenSM does. The address sanitizer looks
 * at it behind the call, which may be later. */
static int let_go_of_what_is_sent(void)
{
#ifdef ANYRDMA_SANITIZER_RUNTIME
	const char *old = getenv("ASAN_OPTIONS");
	char text[1024];

	if (old && strstr(old, "intercept_send="))
		return 0;
	snprintf(text, sizeof(text), "%s%sintercept_send=0", old ? old : "", old && *old ? ":" : "");
	return setenv("ASAN_OPTIONS", text, 1);
#else
	return 0;
#endif
}

/* What is there stays, after ours; ours from an outer `anyrdma run` are not repeated. */
static int set_preload(const char *dir, bool sockets)
{
	const char *old = getenv("LD_PRELOAD");
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);

	if (!to)
		return -ENOMEM;
	sockets |= contains_lib(old, SOCKETS_LIB); /* of an outer run */
	if (sockets && SOCKETS_BEFORE_SANITIZER)
		add_lib(to, old, dir, SOCKETS_LIB);
	add_old(to, old, ": ", dir, true);
#ifdef ANYRDMA_SANITIZER_RUNTIME
	if (!contains_lib(old, tool_base(ANYRDMA_SANITIZER_RUNTIME)))
		add(to, ANYRDMA_SANITIZER_RUNTIME, strlen(ANYRDMA_SANITIZER_RUNTIME));
#endif
	if (sockets && !SOCKETS_BEFORE_SANITIZER)
		add_lib(to, old, dir, SOCKETS_LIB);
	for (int i = 0; tool_libs[i]; i++)
		add_lib(to, old, dir, tool_libs[i]);
	add_old(to, old, ": ", dir, false);
	if (fclose(to) || setenv("LD_PRELOAD", text, 1)) {
		free(text);
		return -ENOMEM;
	}
	free(text);
	return 0;
}

static int set_library_path(const char *dir)
{
	char *text = NULL;
	size_t len;
	FILE *to = open_memstream(&text, &len);
	int err;

	if (!to)
		return -ENOMEM;
	add(to, dir, strlen(dir));
	add_old(to, getenv("LD_LIBRARY_PATH"), ":;", dir, false);
	err = fclose(to) || setenv("LD_LIBRARY_PATH", text, 1) ? -ENOMEM : 0;
	free(text);
	return err;
}

/* The program may change its directory: make the path absolute while we know from where it counts. */
static void fix_dir(void)
{
	const char *dir = env_text(ANYRDMA_DIR);
	char cwd[PATH_MAX], path[2 * PATH_MAX];

	if (!dir || *dir == '/' || !getcwd(cwd, sizeof(cwd)))
		return;
	snprintf(path, sizeof(path), "%s/%s", cwd, dir);
	setenv("ANYRDMA_DIR", path, 1);
	env_forget();
}

/* Whether an ELF program of this machine's word size asks for no dynamic loader. */
static bool is_static(const char *path)
{
	ElfW(Ehdr) eh;
	ElfW(Phdr) ph;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool elf, dynamic = false;

	if (fd < 0)
		return false;
	elf = pread(fd, &eh, sizeof(eh), 0) == sizeof(eh) && !memcmp(eh.e_ident, ELFMAG, SELFMAG) &&
	      eh.e_phentsize == sizeof(ph);
	for (int i = 0; elf && i < eh.e_phnum; i++)
		if (pread(fd, &ph, sizeof(ph), eh.e_phoff + (off_t)i * sizeof(ph)) == sizeof(ph))
			dynamic |= ph.p_type == PT_INTERP;
	close(fd);
	return elf && !dynamic;
}

/* Where the loader ignores LD_* the program would silently meet the stock libraries: say so. */
static void warn_out_of_reach(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return;
	if ((st.st_mode & S_ISUID && st.st_uid != getuid()) ||
		((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getgid()))
		tool_warn("warning: %s is a setuid or setgid program; for these the system ignores "
			  "LD_PRELOAD and LD_LIBRARY_PATH, so it will not see anyrdma's devices. Run it as "
			  "the user it changes to, or use a copy without the setuid bit.",
			path);
	else if (getuid() && getxattr(path, "security.capability", NULL, 0) > 0)
		tool_warn("warning: %s has file capabilities; for such programs the system ignores "
			  "LD_PRELOAD and LD_LIBRARY_PATH, so it will not see anyrdma's devices. Use a copy "
			  "without them.",
			path);
	else if (is_static(path))
		tool_warn("warning: %s is statically linked, so it will not see anyrdma's devices", path);
}

/* Lets the library write its sysfs-like tree before the program looks there. In a process of its own with
 * a time limit: whatever happens, the program starts. */
static void write_tree(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		if (null >= 0) {
			dup2(null, 1);
			dup2(null, 2);
		}
		alarm(3);
		verbs_touch();
		_exit(0);
	}
	while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}

static int check_libdir(char *dir, size_t len)
{
	const char *missing;
	int err = tool_libdir(dir, len);

	if (err) {
		tool_warn("cannot find out where anyrdma is installed: %s", strerror(-err));
		return err;
	}
	missing = tool_lib_missing(dir);
	if (missing) {
		tool_warn("cannot read %s/%s: anyrdma is not completely built or installed", dir, missing);
		return -ENOENT;
	}
	if (strpbrk(dir, ":;")) {
		tool_warn(
			"the path %s has a ':' or ';' in it, which the system's loader cannot take; install "
			"anyrdma elsewhere",
			dir);
		return -EINVAL;
	}
	return 0;
}

/* --sockets or --sockets=KIND. False: another option, or no such kind. */
static bool take_sockets(const char *option)
{
	static const char *const kinds[] = {"stream", "dgram", "all"};

	if (!strcmp(option, "--sockets"))
		return true;
	if (strncmp(option, "--sockets=", strlen("--sockets=")))
		return false;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(option + strlen("--sockets="), kinds[i]))
			return !setenv("ANYRDMA_SOCKETS", kinds[i], 1);
	return false;
}

/* --host=HOST, or --host and HOST as the next word. */
static bool take_host(char ***argv, const char **host)
{
	if (!strncmp(**argv, "--host=", strlen("--host=")))
		*host = **argv + strlen("--host=");
	else if (!strcmp(**argv, "--host") && (*argv)[1])
		*host = *++*argv;
	else
		return false;
	return true;
}

/* --fabric or --fabric=TOPOLOGY. */
static bool take_fabric(const char *option, bool *wanted, const char **topology)
{
	if (!strncmp(option, "--fabric=", strlen("--fabric=")))
		*topology = option + strlen("--fabric=");
	else if (strcmp(option, "--fabric"))
		return false;
	return *wanted = true;
}

static int run(int argc, char **argv)
{
	char dir[PATH_MAX], path[PATH_MAX];
	const char *host = env_text(ANYRDMA_HOST), *topology = NULL;
	bool sockets = false, fabric = false;
	int err;

	for (argv++; *argv && **argv == '-'; argv++) {
		if (!strcmp(*argv, "--")) {
			argv++;
			break;
		}
		if (take_host(&argv, &host) || take_fabric(*argv, &fabric, &topology))
			continue;
		if (!strcmp(*argv, "--host")) {
			tool_warn("run: --host wants the name of a host; `anyrdma fabric hosts` lists them");
			return 2;
		}
		if (!take_sockets(*argv)) {
			tool_warn("run: there is no option '%s'; see anyrdma help run", *argv);
			return 2;
		}
		sockets = true;
	}
	if (!*argv) {
		tool_warn("run: which program? See anyrdma help run");
		return 2;
	}
	if (check_libdir(dir, sizeof(dir)))
		return CANNOT_RUN;
	err = tool_which(*argv, path, sizeof(path));
	if (err == -ENOENT && !strchr(*argv, '/')) {
		/* OpenSM and the diagnostics are where only root looks. */
		char sbin[PATH_MAX];

		snprintf(sbin, sizeof(sbin), "/usr/sbin/%s", *argv);
		err = tool_which(sbin, path, sizeof(path));
	}
	if (err == -EACCES) {
		tool_warn("%s: cannot be executed (a directory, or no permission)", *argv);
		return CANNOT_RUN;
	}
	if (err) {
		tool_warn("%s: command not found", *argv);
		return NOT_FOUND;
	}
	warn_out_of_reach(path);
	fix_dir();
	if (fabric && (!host || !*host))
		host = "auto";
	if (fabric && fabric_use(topology))
		return CANNOT_RUN;
	if (host && *host && fabric_enter(NULL, host))
		return CANNOT_RUN;
	write_tree();
	if (set_library_path(dir) || set_preload(dir, sockets) || let_go_of_what_is_sent()) {
		tool_warn("out of memory");
		return CANNOT_RUN;
	}
	execvp(path, argv);
	tool_warn("%s: %s", *argv, strerror(errno));
	return errno == ENOENT ? NOT_FOUND : CANNOT_RUN;
}

const struct tool_cmd tool_cmd_run = {
	.name = "run",
	.synopsis = "[--host HOST] [--fabric[=TOPOLOGY]] [--sockets[=KIND]] [--] PROGRAM [ARGUMENTS]",
	.summary = "run a program with anyrdma's devices",
	.help = "Starts PROGRAM with anyrdma's libibverbs, librdmacm and libibumad in place of the\n"
		"system's, for itself and for the programs it starts. The exit status is the program's;\n"
		"127 when it was not found, 126 when it or anyrdma's libraries could not be used.\n\n"
		"Options:\n"
		"  --host HOST       as a program on a host of the fabric that is up (see anyrdma help "
		"fabric);\n"
		"                    auto: the next host; ANYRDMA_HOST says the same\n"
		"  --fabric[=TOPOLOGY]  on the next host of the fabric that is up, or of one (star:4) that "
		"is\n"
		"                    brought up for it and ends with the last program that uses it\n"
		"  --sockets[=KIND]  also let the program's ordinary sockets talk RDMA: stream (as without\n"
		"                    KIND), dgram or all. Both ends need it; a stream to an end that does "
		"not\n"
		"                    have it is TCP as ever.\n\n"
		"Examples:\n"
		"  anyrdma run ibv_devinfo\n"
		"  anyrdma run --sockets iperf3 -s",
	.run = run,
};
