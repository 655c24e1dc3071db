/* SPDX-License-Identifier: MIT */
/* leaves ADDRESS GROUP: joins the group, leaves it when told (SIGUSR1), and lives on. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct sockaddr_in own = {.sin_family = AF_INET}, group = {.sin_family = AF_INET};
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;
	sigset_t told;
	int sig;

	if (argc != 3 || !inet_aton(argv[1], &own.sin_addr) || !inet_aton(argv[2], &group.sin_addr))
		return 2;
	sigemptyset(&told);
	sigaddset(&told, SIGUSR1);
	sigprocmask(SIG_BLOCK, &told, NULL);
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_UDP) ||
		rdma_bind_addr(id, (struct sockaddr *)&own) ||
		rdma_join_multicast(id, (struct sockaddr *)&group, NULL) ||
		rdma_get_cm_event(channel, &event) || event->event != RDMA_CM_EVENT_MULTICAST_JOIN)
		return 1;
	puts("joined");
	fflush(stdout);
	sigwait(&told, &sig);
	if (rdma_leave_multicast(id, (struct sockaddr *)&group))
		return 1;
	puts("left");
	fflush(stdout);
	for (;;)
		pause();
}
