/* SPDX-License-Identifier: MIT */
/*
 * rpma_talk ADDRESS PORT [client]: librpma at both ends. The client reads what the server has, writes it back
 * changed, flushes, writes eight bytes atomically, and says so in a message; the server looks at every byte
 * and answers.
 */
#include <librpma.h>

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 1 << 20, WORD = BYTES / 2, MESSAGE = 64, HINT = 4711 };
enum {
	USAGE = RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC |
		RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_SEND |
		RPMA_MR_USAGE_RECV
};

static struct rpma_peer *peer;
static struct rpma_conn *conn;
static struct rpma_mr_local *mr;
static unsigned char *data; /* BYTES, and behind them a message */

static void need(const char *what, int err)
{
	if (!err)
		return;
	printf("%s: %s\n", what, rpma_err_2str(err));
	exit(1);
}

static unsigned char value(size_t i, bool changed)
{
	return (unsigned char)(i * 7 + i / 251 + (changed ? 100 : 0));
}

static void fill(bool changed)
{
	for (size_t i = 0; i < BYTES; i++)
		data[i] = value(i, changed);
}

static void check(bool changed)
{
	for (size_t i = 0; i < BYTES; i++) {
		if (data[i] == value(i, changed))
			continue;
		printf("byte %zu: invalid data\n", i);
		exit(1);
	}
}

/* The next completion is of this work. */
static void done(enum ibv_wc_opcode opcode)
{
	struct rpma_cq *cq;
	struct ibv_wc wc;

	need("rpma_conn_get_cq", rpma_conn_get_cq(conn, &cq));
	need("rpma_cq_wait", rpma_cq_wait(cq));
	need("rpma_cq_get_wc", rpma_cq_get_wc(cq, 1, &wc, NULL));
	if (wc.status || wc.opcode != opcode || (opcode == IBV_WC_RECV && ntohl(wc.imm_data) != HINT)) {
		printf("completion of %d: opcode %d, %s\n", opcode, wc.opcode, ibv_wc_status_str(wc.status));
		exit(1);
	}
}

static void event(enum rpma_conn_event wanted)
{
	enum rpma_conn_event e;

	need("rpma_conn_next_event", rpma_conn_next_event(conn, &e));
	if (e == wanted)
		return;
	printf("%s, not %s\n", rpma_utils_conn_event_2str(e), rpma_utils_conn_event_2str(wanted));
	exit(1);
}

static void open_all(const char *address, bool client)
{
	struct ibv_context *device;

	data = aligned_alloc(4096, BYTES + 4096);
	memset(data, 0, BYTES + 4096);
	need("rpma_utils_get_ibv_context",
		rpma_utils_get_ibv_context(address,
			client ? RPMA_UTIL_IBV_CONTEXT_REMOTE : RPMA_UTIL_IBV_CONTEXT_LOCAL, &device));
	need("rpma_peer_new", rpma_peer_new(device, &peer));
	need("rpma_mr_reg", rpma_mr_reg(peer, data, BYTES + 4096, USAGE, &mr));
}

static void expect_message(struct rpma_conn_req *before)
{
	if (before)
		need("rpma_conn_req_recv", rpma_conn_req_recv(before, mr, BYTES, MESSAGE, NULL));
	else
		need("rpma_recv", rpma_recv(conn, mr, BYTES, MESSAGE, NULL));
}

static void say(void)
{
	need("rpma_send_with_imm",
		rpma_send_with_imm(conn, mr, BYTES, MESSAGE, RPMA_F_COMPLETION_ALWAYS, HINT, NULL));
}

static void serve(const char *address, const char *port)
{
	struct rpma_conn_private_data priv;
	struct rpma_conn_req *req;
	unsigned char description[256];
	struct rpma_ep *ep;
	size_t len;

	fill(false);
	need("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(mr, &len));
	need("rpma_mr_get_descriptor", rpma_mr_get_descriptor(mr, description));
	priv = (struct rpma_conn_private_data){description, (uint8_t)len};
	need("rpma_ep_listen", rpma_ep_listen(peer, address, port, &ep));
	need("rpma_ep_next_conn_req", rpma_ep_next_conn_req(ep, NULL, &req));
	expect_message(req);
	need("rpma_conn_req_connect", rpma_conn_req_connect(&req, &priv, &conn));
	event(RPMA_CONN_ESTABLISHED);
	done(IBV_WC_RECV);
	if (memcmp(data + WORD, "atomic!!", 8)) {
		printf("the word: invalid data\n");
		exit(1);
	}
	for (size_t i = WORD; i < WORD + 8; i++)
		data[i] = value(i, true);
	check(true);
	say();
	done(IBV_WC_SEND);
	event(RPMA_CONN_CLOSED);
	need("rpma_conn_disconnect", rpma_conn_disconnect(conn));
	need("rpma_conn_delete", rpma_conn_delete(&conn));
	need("rpma_ep_shutdown", rpma_ep_shutdown(&ep));
}

static void talk(const char *address, const char *port)
{
	struct rpma_conn_private_data priv;
	struct rpma_mr_remote *there;
	struct rpma_conn_req *req;

	need("rpma_conn_req_new", rpma_conn_req_new(peer, address, port, NULL, &req));
	expect_message(req);
	need("rpma_conn_req_connect", rpma_conn_req_connect(&req, NULL, &conn));
	event(RPMA_CONN_ESTABLISHED);
	need("rpma_conn_get_private_data", rpma_conn_get_private_data(conn, &priv));
	need("rpma_mr_remote_from_descriptor", rpma_mr_remote_from_descriptor(priv.ptr, priv.len, &there));
	need("rpma_read", rpma_read(conn, mr, 0, there, 0, BYTES, RPMA_F_COMPLETION_ALWAYS, NULL));
	done(IBV_WC_RDMA_READ);
	check(false);
	fill(true);
	need("rpma_write", rpma_write(conn, there, 0, mr, 0, BYTES, RPMA_F_COMPLETION_ON_ERROR, NULL));
	need("rpma_flush", rpma_flush(conn, there, 0, BYTES, RPMA_FLUSH_TYPE_VISIBILITY,
				   RPMA_F_COMPLETION_ALWAYS, NULL));
	done(IBV_WC_RDMA_READ); /* that is how it flushes */
	need("rpma_atomic_write",
		rpma_atomic_write(conn, there, WORD, "atomic!!", RPMA_F_COMPLETION_ALWAYS, NULL));
	done(IBV_WC_RDMA_WRITE);
	say();
	done(IBV_WC_SEND);
	done(IBV_WC_RECV);
	need("rpma_mr_remote_delete", rpma_mr_remote_delete(&there));
	need("rpma_conn_disconnect", rpma_conn_disconnect(conn));
	event(RPMA_CONN_CLOSED);
	need("rpma_conn_delete", rpma_conn_delete(&conn));
}

int main(int argc, char **argv)
{
	bool client = argc == 4;

	open_all(argv[1], client);
	if (client)
		talk(argv[1], argv[2]);
	else
		serve(argv[1], argv[2]);
	need("rpma_mr_dereg", rpma_mr_dereg(&mr));
	need("rpma_peer_delete", rpma_peer_delete(&peer));
	printf("%d bytes there and back by librpma\n", BYTES);
	return 0;
}
