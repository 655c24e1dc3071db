/* SPDX-License-Identifier: MIT */
/* The guest's side of agent.h: runs what comes, any number of commands at a time. */
#include "agent.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/random.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void receive(int s, void *to, size_t len)
{
	if (recv(s, to, len, MSG_WAITALL) != (ssize_t)len)
		exit(1);
}

static void receive_words(int s, char *words[AGENT_WORDS + 1])
{
	static char text[AGENT_TEXT];
	uint32_t len, n = 0;

	receive(s, &len, sizeof(len));
	len = ntohl(len);
	if (!len || len > sizeof(text))
		exit(1);
	receive(s, text, len);
	text[len - 1] = 0;
	for (char *word = text; word < text + len && n < AGENT_WORDS; word += strlen(word) + 1)
		words[n++] = word;
}

static void become_command(int s, char **words)
{
	setsid();
	dup2(open("/dev/null", O_RDONLY | O_CLOEXEC), STDIN_FILENO);
	dup2(s, STDOUT_FILENO);
	dup2(s, STDERR_FILENO);
	close(s);
	execvp(words[0], words);
	perror(words[0]);
	_exit(127);
}

/* Waits for the command or for the end of the connection. The exit status is as a shell has it. */
static unsigned char outcome(int s, pid_t command)
{
	struct pollfd p[2] = {{.fd = s, .events = POLLIN}, {.fd = pidfd_open(command, 0), .events = POLLIN}};
	int status;

	if (p[1].fd < 0 || poll(p, 2, -1) < 0)
		die("agent");
	if (!p[1].revents)
		kill(-command, SIGKILL);
	waitpid(command, &status, 0);
	return (unsigned char)(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static void serve(int s)
{
	static char *words[AGENT_WORDS + 1];
	char last[AGENT_LAST] = AGENT_END;
	pid_t command;

	receive_words(s, words);
	command = fork();
	if (command < 0)
		die("fork");
	if (command == 0)
		become_command(s, words);
	last[AGENT_LAST - 1] = (char)outcome(s, command);
	exit(send(s, last, sizeof(last), MSG_NOSIGNAL) != sizeof(last));
}

static int listen_everywhere(void)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(AGENT_PORT)};
	int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (s < 0 || bind(s, (struct sockaddr *)&any, sizeof(any)) || listen(s, 16))
		die("agent");
	return s;
}

/*
 * User Mode Linux has nothing to draw chance from: who asks for a random number would wait for minutes. A
 * guest for tests has no secrets; the clock will do.
 */
static void seed(void)
{
	struct {
		int bits, len;
		struct timespec now[16];
	} pool = {.bits = 256, .len = sizeof(pool.now)};
	int fd = open("/dev/random", O_WRONLY | O_CLOEXEC);

	for (unsigned i = 0; i < 16; i++)
		clock_gettime(CLOCK_REALTIME, &pool.now[i]);
	if (fd < 0 || ioctl(fd, RNDADDENTROPY, &pool))
		perror("/dev/random");
	close(fd);
}

int main(void)
{
	const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
	int listener = listen_everywhere();

	seed();
	setrlimit(RLIMIT_MEMLOCK, &all);
	setenv("HOME", "/", 1);
	signal(SIGCHLD, SIG_IGN); /* connections are not waited for */
	for (;;) {
		int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (s >= 0 && fork() == 0) {
			signal(SIGCHLD, SIG_DFL);
			serve(s);
		}
		if (s >= 0)
			close(s);
	}
}
