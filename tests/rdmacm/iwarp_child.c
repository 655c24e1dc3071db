/* SPDX-License-Identifier: MIT */
/* What is decided when a process begins: after fork, without UDP, by a list of devices. Each in a child. */
#include "iwarp.h"

#include "world.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

struct deed {
	void (*act)(void *arg);
	void *arg;
};

/* It ends as another program, so that nobody looks for leaks in it: what the parent's threads held is lost
 * there. */
static void *do_and_exec(void *arg)
{
	struct deed *d = arg;

	d->act(d->arg);
	execlp("true", "true", NULL);
	_exit(127);
}

/*
 * What a child does for itself must end well. In a thread, since the copy of the running test that the child
 * is would otherwise catch a failing assertion and go on with the parent's tests.
 */
static void in_child(void (*act)(void *arg), void *arg)
{
	struct deed deed = {act, arg};
	pthread_t thread;
	int status;
	pid_t pid;

	if (!FORKS_WELL)
		skip_because("needs a child, which the thread sanitizer does not follow");
	pid = fork();
	if (!pid) {
		iw_pd = NULL;
		if (!pthread_create(&thread, NULL, do_and_exec, &deed))
			pthread_join(thread, NULL);
		_exit(126);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void connect_once(void *arg)
{
	struct rdma_cm_id *listener = iw_listen(8);

	iw_once(listener);
	iw_end(listener);
}

void child_begins_anew(void **state)
{
	struct rdma_cm_id *listener = iw_listen(8),
			  *client = iw_connect_to(rdma_get_src_port(listener), "x", 1),
			  *server = iw_asked(listener);

	iw_accepted(server, client);
	in_child(connect_once, NULL);
	/* The child's end is not the end of what it inherited. */
	assert_int_equal(rdma_disconnect(server), 0);
	iw_next(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	iw_end(client);
	iw_end(server);
	iw_once(listener);
	iw_end(listener);
}

/* ---- no UDP ---- */
/* Before the child looks at its devices. */
static void with_roce(void)
{
	setenv("ANYRDMA_DEVICES", "iwarp_lo,roce_lo", 1);
}

static void no_roce(int err)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1, .max_recv_wr = 1}};
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx;
	struct ibv_pd *own_pd;

	assert_string_equal(list[1]->name, "roce_lo"); /* with_roce() */
	ctx = ibv_open_device(list[1]);
	ibv_free_device_list(list);
	assert_non_null(ctx);
	own_pd = ibv_alloc_pd(ctx);
	attr.send_cq = attr.recv_cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	errno = 0;
	assert_null(ibv_create_qp(own_pd, &attr));
	assert_int_equal(errno, err);
	ibv_destroy_cq(attr.send_cq);
	ibv_dealloc_pd(own_pd);
	ibv_close_device(ctx);
}

/* Another program has the port, or another user. */
static void with_taken_port(void *arg)
{
	char port[8];

	snprintf(port, sizeof(port), "%u", *(unsigned *)arg);
	setenv("ANYRDMA_PORT", port, 1);
	with_roce();
	connect_once(NULL);
	no_roce(EADDRINUSE);
}

void taken_udp_port_is_no_obstacle(void **state)
{
	struct sockaddr_in sa = loopback(0);
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	unsigned port;

	assert_int_equal(bind(fd, (struct sockaddr *)&sa, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&sa, &len), 0);
	port = ntohs(sa.sin_port);
	in_child(with_taken_port, &port);
	close(fd);
}

/* A sandbox, say. */
static void without_udp(void *arg)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 3, 0),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SOCK_DGRAM, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_fprog prog = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
	assert_int_equal(socket(AF_INET, SOCK_DGRAM, 0), -1);
	with_roce();
	connect_once(NULL);
	no_roce(EPERM);
}

void refused_udp_is_no_obstacle(void **state)
{
	in_child(without_udp, NULL);
}

struct list_row {
	const char *list;
	enum ibv_transport_type first;
};

static void with_list(void *arg)
{
	const struct list_row *row = arg;
	struct sockaddr_in any = loopback(0);
	struct rdma_cm_id *id;
	struct ibv_device **list;

	setenv("ANYRDMA_DEVICES", row->list, 1);
	id = iw_new_id();
	list = ibv_get_device_list(NULL);
	assert_int_equal(list[0]->transport_type, row->first);
	ibv_free_device_list(list);
	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(id, 1), 0);
	assert_int_equal(id->verbs->device->transport_type, row->first);
	iw_end(id);
}

/* Each in a process of its own: the list is read once. */
void users_list_decides(void **state)
{
	static struct list_row rows[] = {{"", IBV_TRANSPORT_IB}, {"roce,iwarp", IBV_TRANSPORT_IB},
		{"iwarp,roce", IBV_TRANSPORT_IWARP}, {"iwarp_lo,lo", IBV_TRANSPORT_IWARP},
		{"lo", IBV_TRANSPORT_IB}, {"iwarp", IBV_TRANSPORT_IWARP}};

	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		in_child(with_list, &rows[i]);
}
