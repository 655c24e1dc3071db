/* SPDX-License-Identifier: MIT */
/* Small things that every subcommand needs: where we are installed, messages, JSON. */
#include "tool/tool.h"

#include "base/env.h"

#include <errno.h>
#include <langinfo.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const tool_libs[] = {
	"libanyrdma-path.so", "libibverbs.so.1", "librdmacm.so.1", "libibumad.so.3", NULL};

int tool_self(char *buf, size_t len)
{
	ssize_t n = readlink("/proc/self/exe", buf, len - 1);

	if (n < 0)
		return -errno;
	buf[n] = '\0';
	return 0;
}

int tool_prefix(char *buf, size_t len)
{
	int err = tool_self(buf, len);

	for (int up = 0; !err && up < 2; up++) {
		char *slash = strrchr(buf, '/');

		if (!slash)
			return -ENOENT;
		*slash = '\0';
	}
	return err;
}

int tool_libdir(char *buf, size_t len)
{
	static const char *const places[] = {ANYRDMA_LIBDIR, "lib"};
	char prefix[PATH_MAX];
	int err = tool_prefix(prefix, sizeof(prefix));

	/* lib in the build tree and for most prefixes; a distribution may have it in lib64 or lib/TRIPLET */
	for (size_t i = 0; !err && i < sizeof(places) / sizeof(places[0]); i++) {
		if ((size_t)snprintf(buf, len, "%s/%s/anyrdma", prefix, places[i]) >= len)
			err = -ENAMETOOLONG;
		else if (!access(buf, F_OK))
			return 0;
	}
	return err;
}

const char *tool_lib_missing(const char *dir)
{
	char path[PATH_MAX + 64];

	for (int i = 0; tool_libs[i]; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, tool_libs[i]);
		if (access(path, R_OK))
			return tool_libs[i];
	}
	return NULL;
}

static int executable(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return errno == EACCES ? -EACCES : -ENOENT;
	return S_ISREG(st.st_mode) && !access(path, X_OK) ? 0 : -EACCES;
}

int tool_which(const char *name, char *buf, size_t len)
{
	const char *dir = getenv("PATH");
	int result = -ENOENT;

	if (!*name)
		return -ENOENT;
	if (strchr(name, '/')) {
		if ((size_t)snprintf(buf, len, "%s", name) >= len)
			return -ENAMETOOLONG;
		return executable(buf);
	}
	if (!dir)
		dir = "/usr/local/bin:/usr/bin:/bin";
	for (;;) {
		size_t n = strcspn(dir, ":");
		int err;

		/* an empty entry is the current directory */
		snprintf(buf, len, "%.*s/%s", n ? (int)n : 1, n ? dir : ".", name);
		err = executable(buf);
		if (!err)
			return 0;
		if (err == -EACCES &&
			!access(buf, F_OK)) /* and not merely a directory that is closed to us */
			result = err;
		if (!dir[n])
			return result;
		dir += n + 1;
	}
}

void tool_usage(FILE *to, const struct tool_cmd *cmd)
{
	fprintf(to, "Usage: anyrdma %s%s%s\n\n%s\n", cmd->name, *cmd->synopsis ? " " : "", cmd->synopsis,
		cmd->help);
}

void tool_warn(const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	fputs("anyrdma: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

bool tool_colour(FILE *to)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fileno(to)) && !(no && *no) && term && strcmp(term, "dumb");
}

bool tool_utf8(void)
{
	return !strcmp(nl_langinfo(CODESET), "UTF-8");
}

void tool_json_str(FILE *to, const char *s)
{
	fputc('"', to);
	for (; *s; s++) {
		unsigned char c = *s;

		if (c == '"' || c == '\\')
			fprintf(to, "\\%c", c);
		else if (c < 0x20)
			fprintf(to, "\\u%04x", c);
		else
			fputc(c, to);
	}
	fputc('"', to);
}

const char *tool_base(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

uint16_t tool_udp_port(void)
{
	return (uint16_t)env_value(ANYRDMA_PORT);
}
